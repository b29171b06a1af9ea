//! `IMAGE:/path`, and opening what it names.

use crate::args::Where;
use crate::failure::{Failure, Outcome, in_image, say};
use extant::{Escaped, Filesystem, JournalChoice, MountOptions, OpenSpec};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// An image, and a path inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) image: PathBuf,
    /// From the root, never empty.
    pub(crate) path: PathBuf,
    /// Whether a path was given.
    pub(crate) has_path: bool,
}

impl Place {
    /// Takes `IMAGE:/path` apart. `IMAGE` alone means its root. An existing file whose name holds a
    /// colon wins over a shorter one.
    pub(crate) fn parse(text: &OsStr) -> Self {
        Self::parse_with(text, |path| path.exists())
    }

    fn parse_with(text: &OsStr, exists: impl Fn(&Path) -> bool) -> Self {
        let bytes = text.as_bytes();
        let at = |end: usize| {
            let image = PathBuf::from(OsStr::from_bytes(bytes.get(..end).unwrap_or(bytes)));
            let path = bytes.get(end + 1..).unwrap_or(b"");
            let has_path = end < bytes.len();
            let mut from_root = Vec::with_capacity(path.len() + 1);
            if !path.starts_with(b"/") {
                from_root.push(b'/');
            }
            from_root.extend_from_slice(path);
            Self {
                image,
                path: PathBuf::from(OsString::from_vec(from_root)),
                has_path,
            }
        };
        let colons = || (0..bytes.len()).filter(|&i| bytes.get(i) == Some(&b':'));
        let ends = std::iter::once(bytes.len()).chain(colons().rev());
        ends.map(at)
            .find(|place| !place.image.as_os_str().is_empty() && exists(&place.image))
            .unwrap_or_else(|| at(colons().find(|&i| i > 0).unwrap_or(bytes.len())))
    }

    /// Opens the image. What may be wrong with it although it opened goes to standard error.
    pub(crate) fn open(&self, place: &Where) -> Outcome<Filesystem> {
        let fs = self.open_silently(place)?;
        for notice in fs.notices().iter().filter(|notice| notice.is_warning()) {
            say(format_args!(
                "warning: {}: {notice}",
                Escaped::path(&self.image)
            ));
        }
        Ok(fs)
    }

    fn open_silently(&self, place: &Where) -> Outcome<Filesystem> {
        let spec = OpenSpec::read_only(&self.image)
            .offset(place.offset)
            .partition(place.partition);
        let journal = match place.as_is {
            true => JournalChoice::Ignore,
            false => JournalChoice::Replay,
        };
        let options = MountOptions::read_only().journal(journal);
        Filesystem::open_spec(&spec, options).map_err(|e| {
            let hint = if place.offset.is_none() && place.partition.is_none() {
                self.partition_hint()
            } else {
                None
            };
            match hint {
                Some(hint) => Failure::new(format!("{e}\n{hint}")),
                None => Failure::new(e),
            }
        })
    }

    /// What to do about a whole-disk image that was taken for a file system.
    fn partition_hint(&self) -> Option<String> {
        let device = OpenSpec::read_only(&self.image).open().ok()?;
        let table = extant_blockdev::list_partitions(&*device).ok()?;
        let numbers: Vec<String> = table
            .partitions
            .iter()
            .map(|partition| partition.number.to_string())
            .collect();
        if numbers.is_empty() {
            return None;
        }
        Some(format!(
            "This is a disk with partitions {}: say which with --partition N.",
            numbers.join(", ")
        ))
    }

    /// A failure inside this image.
    pub(crate) fn failure(&self, e: &extant::Error) -> Failure {
        Failure::Failed(in_image(&self.image, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, existing: &[&str]) -> (String, String) {
        let place = Place::parse_with(OsStr::new(text), |path| {
            existing.iter().any(|known| Path::new(known) == path)
        });
        let show = |path: &Path| path.display().to_string();
        (show(&place.image), show(&place.path))
    }

    fn expected(image: &str, path: &str) -> (String, String) {
        (image.to_owned(), path.to_owned())
    }

    #[test]
    fn an_image_and_a_path_are_told_apart() {
        assert_eq!(parse("a.img", &["a.img"]), expected("a.img", "/"));
        assert_eq!(parse("a.img:", &["a.img"]), expected("a.img", "/"));
        assert_eq!(parse("a.img:/etc", &["a.img"]), expected("a.img", "/etc"));
        assert_eq!(parse("a.img:etc", &["a.img"]), expected("a.img", "/etc"));
        assert_eq!(parse("a.img:/e:f", &["a.img"]), expected("a.img", "/e:f"));
        assert_eq!(parse("gone:/e:f", &[]), expected("gone", "/e:f"));
    }

    #[test]
    fn an_existing_file_with_a_colon_wins() {
        let existing = ["a", "a:b"];
        assert_eq!(parse("a:b", &existing), expected("a:b", "/"));
        assert_eq!(parse("a:b:/etc", &existing), expected("a:b", "/etc"));
        assert_eq!(parse("a:c", &existing), expected("a", "/c"));
    }
}
