//! How a source is named: a path, or one with what is there in front of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::SourceResult;
use super::exclude::Excludes;
use super::image::{ImageReader, Reader};

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// What it looks like: a directory, an archive, a container image in either.
    ByContent,
    /// A directory that is an OCI layout.
    Oci,
    /// An archive of one.
    OciArchive,
    /// What `docker save` writes.
    DockerArchive,
    /// An archive that is nothing else.
    Archive,
    /// Files in an image of a file system.
    Image,
}

/// Where a source is, and which image there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    path: PathBuf,
    form: Form,
    tag: Option<String>,
    excludes: Excludes,
    reader: Option<Reader>,
}

impl Source {
    /// Takes a path of a directory or an archive, which may hold a container image; `-` is an
    /// archive on the standard input.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            form: Form::ByContent,
            tag: None,
            excludes: Excludes::default(),
            reader: None,
        }
    }

    /// Takes an archive for one, whatever names it has: no container image is looked for in it. `-`
    /// is the standard input.
    #[must_use]
    pub fn archive(path: impl Into<PathBuf>) -> Self {
        Self {
            form: Form::Archive,
            ..Self::at(path)
        }
    }

    /// Takes the files that `reader` finds in an image, which errors and callers know by `path`.
    #[must_use]
    pub fn of_image(path: impl Into<PathBuf>, reader: Arc<dyn ImageReader>) -> Self {
        Self {
            form: Form::Image,
            reader: Some(Reader(reader)),
            ..Self::at(path)
        }
    }

    /// Reads a source as it is named on a command line: a path, `oci:DIR[:TAG]`,
    /// `oci-archive:FILE[:TAG]` or `docker-archive:FILE[:TAG]`. The tag begins behind the longest
    /// path that exists.
    ///
    /// # Errors
    ///
    /// A sentence about a name without a path, or a tag that is not UTF-8.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        const FORMS: [(&[u8], Form); 3] = [
            (b"oci:", Form::Oci),
            (b"oci-archive:", Form::OciArchive),
            (b"docker-archive:", Form::DockerArchive),
        ];
        let bytes = text.as_bytes();
        let found = FORMS
            .iter()
            .find_map(|(word, form)| Some((bytes.strip_prefix(*word)?, *form)));
        let Some((rest, form)) = found else {
            return Ok(Self::at(text));
        };
        if rest.is_empty() {
            return Err(format!(
                "{}: a path is missing behind the colon",
                text.to_string_lossy()
            ));
        }
        let (path, tag) = split_tag(rest);
        let tag = tag.map(|tag| {
            String::from_utf8(tag.to_vec())
                .map_err(|_| format!("{}: the tag is no text", text.to_string_lossy()))
        });
        Ok(Self {
            path: PathBuf::from(OsString::from_vec(path.to_vec())),
            form,
            tag: tag.transpose()?.filter(|tag| !tag.is_empty()),
            excludes: Excludes::default(),
            reader: None,
        })
    }

    /// Leaves out what matches a pattern, if this is a directory whose files are taken. No pattern
    /// of [`SourceOptions::excludes`](super::SourceOptions::excludes) takes it back.
    ///
    /// # Errors
    ///
    /// [`SourceError::Pattern`](super::SourceError::Pattern) for a pattern that is none.
    pub fn leave_out(&mut self, pattern: impl AsRef<[u8]>) -> SourceResult<()> {
        self.excludes = self.excludes.with(&Excludes::new([pattern])?);
        Ok(())
    }

    /// Returns the path; `-` is the standard input.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a directory whose files are read by their names while an image is
    /// written.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.form == Form::ByContent && self.path.as_os_str() != "-" && self.path.is_dir()
    }

    pub(super) const fn excludes(&self) -> &Excludes {
        &self.excludes
    }

    pub(super) const fn form(&self) -> Form {
        self.form
    }

    pub(super) fn reader(&self) -> Option<&dyn ImageReader> {
        self.reader.as_ref().map(|reader| &*reader.0)
    }

    pub(super) fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }
}

/// Cuts the tag off: at a colon, the last one behind which no path goes on.
fn split_tag(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let exists = |path: &[u8]| path == b"-" || Path::new(OsStr::from_bytes(path)).exists();
    let colons = || (0..text.len()).filter(|at| text[*at] == b':');
    if exists(text) {
        return (text, None);
    }
    let cut = colons().rev().find(|at| exists(&text[..*at]));
    match cut.or_else(|| colons().next()) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_begins_behind_the_longest_path_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("a"), "").unwrap();
        std::fs::write(at("a:b"), "").unwrap();
        let parse = |text: String| {
            let source = Source::parse(OsStr::new(&text)).unwrap();
            (source.path.to_str().unwrap().to_owned(), source.tag)
        };
        let tag = |text: &str| Some(text.to_owned());
        assert_eq!(parse(format!("oci:{}", at("a"))), (at("a"), None));
        assert_eq!(parse(format!("oci:{}", at("a:b"))), (at("a:b"), None));
        assert_eq!(parse(format!("oci:{}", at("a:b:c"))), (at("a:b"), tag("c")));
        assert_eq!(
            parse(format!("docker-archive:{}", at("a:host:5000/x:1"))),
            (at("a"), tag("host:5000/x:1"))
        );
        assert_eq!(
            parse(format!("oci-archive:{}", at("none:1"))),
            (at("none"), tag("1"))
        );
        assert_eq!(parse("docker-archive:-:x".into()), ("-".into(), tag("x")));
        assert_eq!(parse("./oci:x".into()), ("./oci:x".into(), None));
        assert!(Source::parse(OsStr::new("oci:")).is_err());
    }
}
