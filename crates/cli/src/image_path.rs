//! `IMAGE:/path`, and opening what it names.

use crate::args::{ImageLocation, SuperblockAt};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::time;
use extant::{Cause, Escaped, Filesystem, JournalChoice, MountOptions, OpenSpec, SharedDevice};
use extant_blockdev::DeviceError;
use extant_core::Error as EngineError;
use extant_core::fs::SuperblockChoice;
use extant_format::Pblk;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of file data that are kept in memory where what is written shall not depend on the
/// machine.
const STEADY_CACHE: usize = 256 << 20;

/// An image, and a path inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePath {
    pub(crate) image: PathBuf,
    /// The partition that is named with the image, `IMAGE#N`: stronger than the one for all images
    /// of the command.
    pub(crate) partition: Option<u32>,
    /// From the root, never empty.
    pub(crate) path: PathBuf,
    /// Whether a path was given.
    pub(crate) has_path: bool,
}

impl ImagePath {
    /// Takes `IMAGE:/path` and `IMAGE#N:/path` apart. `IMAGE` alone means its root. An existing
    /// file whose name holds a colon, or ends like the number of a partition, wins over a shorter
    /// one.
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
                partition: None,
                path: PathBuf::from(OsString::from_vec(from_root)),
                has_path,
            }
        };
        let colons = || (0..bytes.len()).filter(|&i| bytes.get(i) == Some(&b':'));
        let ends = std::iter::once(bytes.len()).chain(colons().rev());
        ends.map(at)
            .flat_map(|place| {
                let of_partition = place.clone().of_partition();
                std::iter::once(place).chain(of_partition)
            })
            .find(|place| !place.image.as_os_str().is_empty() && exists(&place.image))
            .unwrap_or_else(|| at(colons().find(|&i| i > 0).unwrap_or(bytes.len())))
    }

    /// Takes the number of a partition off the end of the image's name, `IMAGE#N`, if it is there.
    fn of_partition(self) -> Option<Self> {
        let name = self.image.as_os_str().as_bytes();
        let mark = name.iter().rposition(|byte| *byte == b'#')?;
        let (image, number) = name.split_at(mark);
        let digits = number
            .get(1..)
            .filter(|all| all.iter().all(u8::is_ascii_digit))?;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        Some(Self {
            image: PathBuf::from(OsStr::from_bytes(image)),
            partition: Some(number),
            ..self
        })
    }

    /// Which part of the image holds the file system: what was said with it, or else for all images
    /// of the command.
    fn part(&self, location: &ImageLocation) -> (Option<u64>, Option<u32>) {
        match self.partition {
            Some(number) => (None, Some(number)),
            None => (location.offset, location.partition),
        }
    }

    /// Whether the whole image is meant: no path, or that of the root.
    pub(crate) fn is_root(&self) -> bool {
        !self.has_path || self.path.as_os_str() == "/"
    }

    /// The place inside an image that an operand of a command that changes images names.
    pub(crate) fn inside(text: &OsStr) -> Outcome<Self> {
        let place = Self::parse(text);
        if place.has_path {
            Ok(place)
        } else {
            Err(Failure::usage(format!(
                "{} names no file in an image: write IMAGE:/path",
                Escaped(text.as_bytes())
            )))
        }
    }

    /// The place inside an image that an operand names which could also be a file of the host.
    pub(crate) fn inside_if_any(text: &OsStr) -> Option<Self> {
        let place = Self::parse(text);
        let looks_inside = || text.as_bytes().windows(2).any(|pair| pair == b":/");
        let is_image = match place.image.metadata() {
            Ok(found) => !found.is_dir(),
            Err(_) => looks_inside(),
        };
        (place.has_path && is_image).then_some(place)
    }

    /// Opens the image for reading. What may be wrong with it although it opened goes to standard
    /// error.
    pub(crate) fn open(&self, location: &ImageLocation) -> Outcome<Filesystem> {
        let fs = self.open_silently(location)?;
        self.warn(&fs);
        Ok(fs)
    }

    /// Opens the image for reading and writing, as [`ImagePath::open`] does for reading.
    pub(crate) fn open_writable(&self, location: &ImageLocation) -> Outcome<Filesystem> {
        refuse_reading_options(location)?;
        let (offset, partition) = self.part(location);
        let spec = OpenSpec::read_write(&self.image)
            .offset(offset)
            .partition(partition);
        let options = if time::is_reproducible() {
            // Neither the machine's speed nor its memory decides what is written when.
            MountOptions::read_write()
                .background(false)
                .cache_bytes(STEADY_CACHE)
        } else {
            MountOptions::read_write()
        };
        let fs = Filesystem::open_spec(&spec, options).map_err(|e| {
            let why = match e.cause() {
                Cause::Image(e) => why_not_writable(&self.image, e.engine()),
                _ => None,
            };
            self.cannot_open(location, why.unwrap_or_else(|| e.to_string()))
        })?;
        self.warn(&fs);
        Ok(fs)
    }

    /// Opens all of what holds the file system, without looking at it; for reading as long as no
    /// process writes it. If a process uses it that `may_be` about to end, its end is waited for,
    /// at most for `patience`.
    pub(crate) fn open_when_free(
        &self,
        writable: bool,
        patience: Duration,
        may_be: impl Fn() -> bool,
    ) -> Outcome<SharedDevice> {
        const PAUSE: Duration = Duration::from_millis(10);
        let spec = self.spec(writable).guarded(!writable);
        let end = Instant::now() + patience;
        loop {
            match spec.open() {
                Err(DeviceError::InUse { .. }) if Instant::now() < end && may_be() => {
                    std::thread::sleep(PAUSE);
                }
                opened => return opened.map_err(|e| self.not_opened(e, writable)),
            }
        }
    }

    fn spec(&self, writable: bool) -> OpenSpec {
        if writable {
            OpenSpec::read_write(&self.image)
        } else {
            OpenSpec::read_only(&self.image)
        }
    }

    fn not_opened(&self, e: DeviceError, writable: bool) -> Failure {
        let shown = e.to_string();
        let engine = EngineError::from(e);
        let why = why_not_writable(&self.image, &engine).filter(|_| writable);
        Failure::new(why.unwrap_or(shown))
    }

    /// Opens the file system that lies at a place on a device that [`ImagePath::open_when_free`]
    /// has opened.
    pub(crate) fn open_on(
        &self,
        device: SharedDevice,
        location: &ImageLocation,
        options: MountOptions,
    ) -> Outcome<Filesystem> {
        let (offset, partition) = self.part(location);
        let spec = self.spec(false).offset(offset).partition(partition);
        let part = spec.part_of(Arc::clone(&device)).map_err(Failure::new)?;
        let is_whole = offset.is_none() && partition.is_none();
        let fs = Filesystem::open_device(part, options).map_err(|e| {
            let why = match e.cause() {
                Cause::Image(e) => why_not_writable(&self.image, e.engine()),
                _ => None,
            };
            let why = why.unwrap_or_else(|| in_image(&self.image, &e));
            match is_whole.then(|| hint_of(&device)).flatten() {
                Some(hint) => Failure::new(format!("{why}\n{hint}")),
                None => Failure::new(why),
            }
        })?;
        self.warn(&fs);
        Ok(fs)
    }

    fn warn(&self, fs: &Filesystem) {
        for notice in fs.notices().iter().filter(|notice| notice.is_warning()) {
            say(format_args!(
                "warning: {}: {notice}",
                Escaped::path(&self.image)
            ));
        }
    }

    fn open_silently(&self, location: &ImageLocation) -> Outcome<Filesystem> {
        let (offset, partition) = self.part(location);
        let spec = OpenSpec::read_only(&self.image)
            .offset(offset)
            .partition(partition);
        let journal = if location.as_is {
            JournalChoice::Ignore
        } else {
            JournalChoice::Replay
        };
        let options = MountOptions::read_only().journal(journal).cut_short(true);
        let options = with_journal(options, location)?;
        let options = match location.superblock {
            Some(wanted) => options.superblock(self.backup(&spec, wanted)?),
            None => options,
        };
        Filesystem::open_spec(&spec, options).map_err(|e| {
            let failure = self.cannot_open(location, &e);
            match (location.superblock, e.cause()) {
                (None, Cause::Image(e)) if is_of_superblock(e.engine()) => {
                    self.with_backup_hint(&spec, failure)
                }
                _ => failure,
            }
        })
    }

    /// The backup superblock to read by.
    fn backup(&self, spec: &OpenSpec, wanted: SuperblockAt) -> Outcome<SuperblockChoice> {
        let device = spec.open().map_err(Failure::new)?;
        let image = Escaped::path(&self.image);
        let found = match wanted {
            SuperblockAt::Auto => extant_fsck::find_backup_superblock(&*device),
            SuperblockAt::Block(block) => {
                extant_fsck::superblock_in_block(&*device, Pblk::new(block))
            }
        };
        let found = found.map_err(|e| Failure::new(format!("{image}: {e}")))?;
        match (found, wanted) {
            (Some((block, block_size)), _) => Ok(SuperblockChoice::Backup { block, block_size }),
            (None, SuperblockAt::Auto) => Err(Failure::new(format!(
                "{image}: no backup superblock was found where groups of the usual size begin; if you know the block of \
                 one, name it with --superblock BLOCK"
            ))),
            (None, SuperblockAt::Block(block)) => Err(Failure::new(format!(
                "{image}: there is no superblock in block {block}, whatever the size of blocks is; --superblock auto \
                 looks for one"
            ))),
        }
    }

    /// Adds to a failure of reading the superblock where a sound backup of it is.
    fn with_backup_hint(&self, spec: &OpenSpec, failure: Failure) -> Failure {
        let backup = spec
            .open()
            .ok()
            .and_then(|device| extant_fsck::find_backup_superblock(&*device).ok().flatten());
        match (failure, backup) {
            (Failure::Failed(text), Some((block, _))) => Failure::Failed(format!(
                "{text}\nThere is a backup superblock in block {block}: read by it with --superblock auto, or mend the \
                 image with `extant repair`."
            )),
            (failure, _) => failure,
        }
    }

    /// Why the image did not open, with advice where there is some.
    fn cannot_open(&self, place: &ImageLocation, why: impl fmt::Display) -> Failure {
        let hint = if self.part(place) == (None, None) {
            self.partition_hint()
        } else {
            None
        };
        match hint {
            Some(hint) => Failure::new(format!("{why}\n{hint}")),
            None => Failure::new(why),
        }
    }

    /// What to do about a whole-disk image that was taken for a file system.
    fn partition_hint(&self) -> Option<String> {
        let device = OpenSpec::read_only(&self.image).open().ok()?;
        hint_of(&device)
    }

    /// The place as it is named on the command line, safe for a terminal.
    pub(crate) fn shown(&self) -> String {
        let partition = self.partition.map(|number| format!("#{number}"));
        format!(
            "{}{}:{}",
            Escaped::path(&self.image),
            partition.unwrap_or_default(),
            Escaped::path(&self.path)
        )
    }

    /// A failure inside this image.
    pub(crate) fn failure(&self, e: &extant::Error) -> Failure {
        Failure::Failed(in_image(&self.image, e))
    }
}

/// Whether an error may be one of the superblock alone, so that a backup of it may help.
fn is_of_superblock(e: &EngineError) -> bool {
    match e {
        EngineError::NotExt4 { .. } => true,
        EngineError::Corrupt { place, .. } => *place == extant_core::Place::Superblock,
        _ => false,
    }
}

/// Refuses what a command that changes an image has no use for.
pub(crate) fn refuse_reading_options(place: &ImageLocation) -> Outcome {
    if place.as_is {
        return Err(Failure::usage(
            "--as-is is about reading: nothing can be changed before the journal is replayed",
        ));
    }
    if place.superblock.is_some() {
        return Err(Failure::usage(
            "--superblock is about reading: an image whose first superblock is damaged is changed after `extant repair`, \
             which finds a backup by itself",
        ));
    }
    if place.journal.is_some() {
        return Err(Failure::usage(
            "--journal is about reading: images with a journal on another device are not changed",
        ));
    }
    Ok(())
}

/// Adds to the options the device that holds the journal, if one was named.
pub(crate) fn with_journal(options: MountOptions, place: &ImageLocation) -> Outcome<MountOptions> {
    Ok(match journal_device(place)? {
        Some(device) => options.journal_device(device),
        None => options,
    })
}

/// The device that holds the journal, if one was named.
pub(crate) fn journal_device(place: &ImageLocation) -> Outcome<Option<SharedDevice>> {
    let Some(path) = &place.journal else {
        return Ok(None);
    };
    let opened = OpenSpec::read_only(path).open();
    opened.map(Some).map_err(Failure::new)
}

/// What to do about a whole disk that was taken for a file system.
fn hint_of(device: &SharedDevice) -> Option<String> {
    let table = extant_blockdev::list_partitions(&**device).ok()?;
    let numbers: Vec<String> = table
        .partitions
        .iter()
        .map(|partition| partition.number.to_string())
        .collect();
    if numbers.is_empty() {
        return None;
    }
    Some(format!(
        "This is a disk with partitions {}: say which with --partition N, or IMAGE#N (`extant info` tells more of them).",
        numbers.join(", ")
    ))
}

/// What an error of opening for writing is called: with what to do about it, where that is known.
fn why_not_writable(image: &Path, e: &EngineError) -> Option<String> {
    let image = Escaped::path(image);
    Some(match e {
        EngineError::Device(device) => match &**device {
            DeviceError::InUse { .. } => format!(
                "{image} is open elsewhere: another program writes to it, or it is mounted. Try again when \
                 that has ended"
            ),
            DeviceError::Open { source, .. } if is_refusal(source) => {
                format!("{image} cannot be written to: {source}. Reading it may still be possible")
            }
            _ => return None,
        },
        EngineError::Unsupported { .. } => format!(
            "{image}: {e}; it can still be read: take the files out with `extant cp`, and make a new image with \
             `extant mkfs`"
        ),
        _ => return None,
    })
}

/// Whether the system refuses to open a file for writing, as opposed to not finding it.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, existing: &[&str]) -> (String, String) {
        let place = ImagePath::parse_with(OsStr::new(text), |path| {
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
    fn a_partition_is_named_with_its_image_unless_a_file_is_called_so() {
        let partition = |text: &str, existing: &[&str]| {
            let place = ImagePath::parse_with(OsStr::new(text), |path| {
                existing.iter().any(|known| Path::new(known) == path)
            });
            let image = place.image.display().to_string();
            (image, place.partition, place.path.display().to_string())
        };
        let whole = |image: &str, number, path: &str| (image.to_owned(), number, path.to_owned());
        assert_eq!(partition("d#2:/f", &["d"]), whole("d", Some(2), "/f"));
        assert_eq!(partition("d#2", &["d"]), whole("d", Some(2), "/"));
        assert_eq!(partition("d#2:/f", &["d", "d#2"]), whole("d#2", None, "/f"));
        assert_eq!(partition("d:/f#2", &["d"]), whole("d", None, "/f#2"));
        assert_eq!(partition("d#x:/f", &["d"]), whole("d#x", None, "/f"));
        assert_eq!(partition("d#:/f", &["d"]), whole("d#", None, "/f"));
        assert_eq!(partition("gone#2:/f", &["d"]), whole("gone#2", None, "/f"));
    }

    #[test]
    fn an_existing_file_with_a_colon_wins() {
        let existing = ["a", "a:b"];
        assert_eq!(parse("a:b", &existing), expected("a:b", "/"));
        assert_eq!(parse("a:b:/etc", &existing), expected("a:b", "/etc"));
        assert_eq!(parse("a:c", &existing), expected("a", "/c"));
    }
}
