//! Making images in formats of disks (feature `mkfs-formats`): the files that a format takes, and
//! how a disk becomes them.

use extant_blockdev::{BlockDevice, FileOptions, SharedDevice};
use extant_formats::simg::{self, WriteHow};
use extant_formats::{CopyProgress, CreateHow, create, describe_flat, flat_extent_of};
pub use extant_formats::{Format, FormatError};
use extant_mkfs::output::{Output, OutputError, Replaces};
use extant_mkfs::source::Tree;
use extant_mkfs::{BuildError, BuildOptions, Progress, Report, build_into};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sizes of disks are multiples of this, which every format has.
const SECTOR: u64 = 512;

/// Which files an image may take the names of: its own, and that of its bytes where the format has
/// two files.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// What of the image's own name.
    pub image: Replaces,
    /// What of the name of [`second_file`].
    pub second: Replaces,
}

/// An image that is made: where, in which format, and when.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    /// The name of the image.
    pub path: &'a Path,
    /// The format.
    pub format: Format,
    /// What may be replaced.
    pub names: Names,
    /// Seconds since 1970, for formats that say when they were made.
    pub time: u64,
}

/// Returns the file with the bytes of the disk, where the format has two files.
#[must_use]
pub fn second_file(image: &Path, format: Format) -> Option<PathBuf> {
    (format == Format::Vmdk).then(|| flat_extent_of(image))
}

/// Turns an error of a format into one of outputs.
#[must_use]
pub fn wrapped(error: FormatError) -> OutputError {
    match error {
        FormatError::Device(error) => OutputError::Device(error),
        other => OutputError::Format(Box::new(other)),
    }
}

/// Makes a file of `size` bytes without a name, beside an image.
///
/// # Errors
/// When the folder takes none.
pub fn spool(image: &Path, size: u64) -> Result<SharedDevice, OutputError> {
    let folder = match image.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let file = tempfile::tempfile_in(folder).map_err(|source| {
        OutputError::Device(extant_blockdev::DeviceError::Open {
            op: "make a file in",
            path: folder.to_owned(),
            source,
        })
    })?;
    let device = FileOptions::create(size).adopt(file, image)?;
    Ok(Arc::new(device))
}

impl Container<'_> {
    /// Makes the place for a disk of `size` bytes. An Android sparse image has none: it is written
    /// when all of the disk is there, by [`write_simg`](Self::write_simg).
    ///
    /// # Errors
    /// When the format has no disk of that size, or the file cannot be made.
    pub fn output(&self, size: u64, uuid: Option<[u8; 16]>) -> Result<Output, OutputError> {
        match self.format {
            Format::Raw => Output::create_over(self.path, size, self.names.image),
            Format::Vmdk => {
                // What cannot be described is said before anything is made or replaced.
                self.description(size)?;
                let size = size.next_multiple_of(SECTOR);
                Output::create_over(&flat_extent_of(self.path), size, self.names.second)
            }
            format => Output::create_in_format(self.path, self.names.image, |file| {
                let mut how = CreateHow::default();
                how.uuid = uuid;
                how.time = self.time;
                let size = size.next_multiple_of(SECTOR);
                create(file, format, size, &how).map_err(wrapped)
            }),
        }
    }

    /// The description of a disk of `size` bytes, which are in a file beside it.
    fn description(&self, size: u64) -> Result<String, OutputError> {
        let size = size.next_multiple_of(SECTOR);
        let flat = flat_extent_of(self.path);
        describe_flat(size, &flat, self.time as u32).map_err(wrapped)
    }

    /// Writes the description of a disk whose bytes are in a file beside it.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn describe(&self, size: u64) -> Result<(), OutputError> {
        let text = self.description(size)?;
        let output = Output::create_over(self.path, text.len() as u64, self.names.image)?;
        output.device().write_at(0, text.as_bytes())?;
        output.commit()
    }

    /// Writes an Android sparse image of a disk.
    ///
    /// # Errors
    /// When the disk cannot be read, or the file cannot be made.
    pub fn write_simg(
        &self,
        disk: &dyn BlockDevice,
        how: &WriteHow,
        progress: &dyn CopyProgress,
    ) -> Result<(), OutputError> {
        let output = Output::create_in_format(self.path, self.names.image, Ok)?;
        simg::write(disk, output.device(), how, progress).map_err(wrapped)?;
        output.commit()
    }

    /// Makes a file system, filled with a tree if one is given, in the format. `over` is put over
    /// the disk while it is written, for one that counts or ends.
    ///
    /// # Errors
    /// As for [`build_into`].
    pub fn build(
        &self,
        tree: Option<&Tree>,
        options: &BuildOptions,
        over: impl Fn(SharedDevice) -> SharedDevice + Send + Sync,
        progress: &dyn Progress,
    ) -> Result<Report, BuildError> {
        let mut disk = None;
        let into = |size| {
            if self.format == Format::Simg {
                let spool = spool(self.path, size)?;
                disk = Some(Arc::clone(&spool));
                return Ok(Output::on_device(over(spool), true));
            }
            let output = self.output(size, Some(options.format.uuid))?;
            Ok(output.over(over))
        };
        let report = build_into(tree, into, options, progress)?;
        if let Some(disk) = disk {
            let mut how = WriteHow::default();
            how.threads = options.threads;
            self.write_simg(&*disk, &how, &())?;
        }
        if self.format == Format::Vmdk {
            self.describe(report.image_size())?;
        }
        Ok(report)
    }
}
