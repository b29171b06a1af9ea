//! Where a file system goes: a file that is made, or a file or block device that is there, which
//! is written in place.

use super::settings::Wanted;
use crate::commands::mkfs::replacing;
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_blockdev::{FileOptions, OpenSpec, SharedDevice, WindowDevice};
use extant_mkfs::BuildError;
use extant_mkfs::output::{Output, OutputError, Replaces};
use extant_mkfs::standing::Identity;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Links that lead to one another, at most, as Linux has it.
const LINKS_MAX: u32 = 40;

/// What is there.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    New,
    /// A file of this many bytes.
    File(u64),
    /// A block device of this many bytes, with sectors of this many.
    Device(u64, u32),
}

/// Where a file is made whose name may be a symbolic link to what is not there.
fn where_links_lead(mut path: PathBuf) -> io::Result<PathBuf> {
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            // From the directory of the link on, if it does not begin at the root.
            Ok(target) => {
                path.pop();
                path.push(target);
            }
            // What is no link, or not there.
            Err(e)
                if [io::ErrorKind::InvalidInput, io::ErrorKind::NotFound].contains(&e.kind()) =>
            {
                return Ok(path);
            }
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

impl Target {
    /// Looks at what is at a path.
    pub(super) fn look(path: &Path) -> Outcome<Self> {
        let named = |e: &dyn std::fmt::Display| {
            Failure::new(format!(
                "{e} while trying to determine filesystem size of {}",
                Escaped::path(path)
            ))
        };
        let mut place = path.to_owned();
        let kind = match fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                place = where_links_lead(place).map_err(|e| named(&e))?;
                Kind::New
            }
            Err(e) => return Err(named(&e)),
            Ok(found) if found.is_file() => Kind::File(found.len()),
            Ok(found) if found.file_type().is_block_device() => {
                let device = OpenSpec::read_only(path).open();
                let device = device.map_err(|e| named(&e))?;
                Kind::Device(device.size(), device.logical_sector())
            }
            Ok(_) => {
                let path = Escaped::path(path);
                let text = format!("{path} is no regular file and no block device");
                return Err(Failure::new(text));
            }
        };
        Ok(Self { path: place, kind })
    }

    pub(super) fn is_new(&self) -> bool {
        self.kind == Kind::New
    }

    pub(super) fn is_device(&self) -> bool {
        matches!(self.kind, Kind::Device(..))
    }

    /// Bytes of a sector.
    pub(super) fn sector(&self) -> u32 {
        match self.kind {
            Kind::Device(_, sector) => sector,
            _ => 512,
        }
    }

    /// Bytes that are there from an offset on.
    pub(super) fn room(&self, offset: u64) -> u64 {
        match self.kind {
            Kind::New => 0,
            Kind::File(len) | Kind::Device(len, _) => len.saturating_sub(offset),
        }
    }

    /// Refuses what is in use, and asks at a terminal before something is lost, as the real program
    /// does: without a terminal it goes on.
    pub(super) fn check(&self, wanted: &Wanted, is_forced: bool) -> Outcome {
        let identity = Identity {
            uuid: Some(wanted.format.uuid),
            hash_seed: None,
        };
        let window = self.window(wanted);
        let goes_on = is_forced || !replacing::asks();
        replacing::check(&self.path, window.as_ref(), &identity, goes_on).map(|_| ())
    }

    /// The part of what is there that is written to.
    fn window(&self, wanted: &Wanted) -> Option<Range<u64>> {
        let start = wanted.offset;
        (start > 0).then(|| start..start.saturating_add(wanted.format.size))
    }

    /// Opens the place for a file system of this many bytes, as long as that at least.
    pub(super) fn output(&self, wanted: &Wanted, size: u64) -> Result<Output, BuildError> {
        let offset = wanted.offset;
        if self.is_new() {
            if offset == 0 {
                let output = Output::create_over(&self.path, size, Replaces::Nothing)?;
                return Ok(output);
            }
            let made = FileOptions::create_new(0).open(&self.path);
            made.map_err(OutputError::from)?;
        }
        self.in_place(offset, size, wanted.discards)
            .map_err(BuildError::from)
    }

    fn in_place(&self, offset: u64, size: u64, discards: bool) -> Result<Output, OutputError> {
        // Image builders hold a lock on the device that they have it made on, against udev.
        let options = FileOptions::read_write().locked_by_caller(self.is_device());
        let whole: SharedDevice = Arc::new(options.open(&self.path)?);
        if !self.is_device() {
            whole.grow(offset.saturating_add(size))?;
            if discards {
                // Then nothing of what was there is left, and nothing is written where zeros are.
                whole.zero(offset, size)?;
                let place = WindowDevice::new(whole, offset, size)?;
                return Ok(Output::on_device(Arc::new(place), true));
            }
        }
        let place: SharedDevice = Arc::new(WindowDevice::from_offset(whole, offset)?);
        if discards {
            // A device that cannot keeps what it has, which is written over where it matters.
            let _ = place.discard(0, size);
        }
        Output::in_place_of(&place, size, offset > 0)
    }
}
