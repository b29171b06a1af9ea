//! Images that are made in formats of disks.

use crate::call::Failure;
use crate::making::now;
use crate::watch::Watching;
use extant::Escaped;
use extant::container::{Container, Format, Names, second_file};
use extant_mkfs::output::Replaces;
use extant_mkfs::source::Tree;
use extant_mkfs::{BuildError, BuildOptions, Report};
use std::path::{Path, PathBuf};

/// A format other than raw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed(Format);

impl Packed {
    /// The format that a word names, or else the extension of the image's name; `None` for raw.
    pub(crate) fn asked_for(image: &Path, word: Option<&str>) -> Result<Option<Self>, Failure> {
        let words = || Format::MADE.map(Format::word).join(", ");
        let format = match word {
            None => Format::from_extension(image).unwrap_or(Format::Raw),
            Some(word) => (Format::MADE.into_iter())
                .find(|format| format.word() == word)
                .ok_or_else(|| {
                    Failure::invalid(format!("format={word}: use one of {}", words()))
                })?,
        };
        if !Format::MADE.contains(&format) {
            return Err(Failure::invalid(format!(
                "{}: images in {} are not made here: use format=raw, or another name",
                Escaped::path(image),
                format.name()
            )));
        }
        Ok((format != Format::Raw).then_some(Self(format)))
    }

    /// The file with the bytes of the disk, where the format has two files.
    pub(crate) fn second_file(self, image: &Path) -> Option<PathBuf> {
        second_file(image, self.0)
    }

    /// Makes the image, which may replace these: what has its name, and that of its second file.
    pub(crate) fn build(
        self,
        image: &Path,
        (own, second): (Replaces, Replaces),
        tree: Option<&Tree>,
        options: &BuildOptions,
        watching: &Watching,
    ) -> Result<Report, BuildError> {
        let container = Container {
            path: image,
            format: self.0,
            names: Names { image: own, second },
            time: now(),
        };
        container.build(tree, options, |disk| watching.over(&disk), watching)
    }
}
