//! Reading a damaged file system as a repair would leave it, without writing to its device (feature
//! `mend`).
//!
//! ```no_run
//! use extant::Filesystem;
//! use extant::mend::{MendOptions, mend};
//! use extant::{MountOptions, OpenSpec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = OpenSpec::read_only("damaged.img").open()?;
//! let mended = mend(&device, &MendOptions::default())?;
//! println!("{} things are mended in memory", mended.fixes_count);
//! let fs = Filesystem::on_mended(&mended, MountOptions::read_only())?;
//! # Ok(())
//! # }
//! ```

use crate::mount::Mount;
use crate::{Cause, Error, Filesystem, MountOptions, Result, SharedDevice, SuperblockChoice};
use extant_blockdev::{DeviceError, OverlayDevice};
use extant_core::fs::Fs;
use extant_format::Ino;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
pub use extant_fsck::repair::mend::Mended;
use extant_fsck::repair::{self, mend as in_memory};
pub use extant_fsck::repair::{Fix, Plan};
pub use extant_fsck::{Code, Error as MendError, Pass, Place, Progress};
use extant_fsck::{Report, Severity};
use extant_image::{How, ImageLocation};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes of the pieces in which a replay is kept: the least that a block has.
const PIECE: u32 = 1024;

/// How to mend. Made with [`MendOptions::default`], changed field by field.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct MendOptions<'a> {
    /// The device that holds the journal, where the file system says that it is on one of its own.
    /// It is only read.
    pub journal: Option<SharedDevice>,
    /// The superblock to begin with. By default the primary one, or the first sound backup where
    /// that is none.
    pub superblock: SuperblockChoice,
    /// The device for what memory has no room for, which reads as zeros and is as large as the file
    /// system. By default a temporary file without a name (in the directory that `TMPDIR` names).
    pub spool: Option<SharedDevice>,
    /// Told how far the checks are.
    pub progress: Option<&'a dyn Progress>,
}

impl fmt::Debug for MendOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MendOptions")
            .field("journal", &self.journal)
            .field("superblock", &self.superblock)
            .finish_non_exhaustive()
    }
}

/// Mends the file system that starts at byte 0 of `device` in memory: what a repair would do is
/// done in front of the device, which is only read. A journal is replayed there as well, fast
/// commits among it; what cannot be replayed is left out. What a repair refuses, since files would
/// be lost, is left as it is.
///
/// # Errors
/// When there is nothing to mend: a device that fails, no file system and no backup of its
/// superblock, features that are not known here, a journal on another device that waits and is not
/// named.
pub fn mend(
    device: &SharedDevice,
    options: &MendOptions<'_>,
) -> std::result::Result<Mended, MendError> {
    let device = &by_superblock(device, options.superblock)?;
    let progress = options.progress.unwrap_or(&());
    let spool = |size: u64| match &options.spool {
        Some(spool) => Some(Arc::clone(spool)).filter(|spool| spool.size() >= size),
        // Without one all is kept in memory.
        None => temporary_spool(size).ok(),
    };
    let how = repair::Options::default().discard_journal(true);
    let careful = how.discard_journal(false);
    match in_memory::mend(device, careful, &spool, progress) {
        Err(e) if e.is_fast_commit() || is_elsewhere(&e) && options.journal.is_some() => {
            match replay(device, options.journal.as_ref()) {
                Ok(replayed) => {
                    in_memory::mend_after_replay(device, &replayed, how, &spool, progress)
                }
                Err(_) if is_elsewhere(&e) => Err(e),
                Err(_) => {
                    in_memory::mend_before_replay(device, &over_mended, careful, &spool, progress)
                        .or_else(|_| in_memory::mend(device, how, &spool, progress))
                }
            }
        }
        Err(MendError::Refused { .. } | MendError::Journal(_)) => {
            in_memory::mend(device, how, &spool, progress)
        }
        done => done,
    }
}

/// Checks the file system that starts at byte 0 of `device` as the next mount will see it: fast
/// commits that wait in its journal are replayed in memory, by the engine. Where what they change
/// is damaged, what is judged is the file system without them, and that they cannot be replayed is
/// one of the errors.
///
/// # Errors
/// As for [`extant_fsck::check_with_journal`]; also where fast commits wait that the engine does
/// not replay, and nothing else is wrong.
pub fn check(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    options: extant_fsck::Options,
    progress: &dyn Progress,
) -> std::result::Result<Report, MendError> {
    let own_journal = || journal.map(Arc::clone);
    let judge = |device| extant_fsck::check_with_journal(device, own_journal(), options, progress);
    let pending = match judge(Arc::clone(device)) {
        Err(e) if e.is_fast_commit() => e,
        done => return done,
    };
    let why = match replay(device, journal) {
        Ok(replayed) => return judge(replayed),
        Err(why) => why,
    };
    let unsupported = match why.cause() {
        Cause::Image(why) => match why.device() {
            Some(_) => {
                let why = why.to_string();
                return Err(MendError::Refused { why });
            }
            None => why.unsupported_features().is_some(),
        },
        _ => false,
    };
    let (device, said) = (Arc::clone(device), why.to_string());
    let report =
        extant_fsck::check_without_fast_commits(device, own_journal(), &said, options, progress)?;
    let errors = report.count(Severity::Error) + report.count(Severity::Fatal);
    if unsupported && errors <= 1 {
        // Nothing but that they wait.
        let why = format!("{pending}; they cannot be replayed in memory: {said}");
        return Err(MendError::Refused { why });
    }
    Ok(report)
}

/// Finds out how to repair the file system that starts at byte 0 of `device`, in whose journal fast
/// commits wait, and writes nothing: the engine replays them, over what is mended where what they
/// change is damaged.
///
/// # Errors
/// As for [`repair::plan`]; where they can be replayed in neither way.
pub fn plan_with_fast_commits(
    device: &SharedDevice,
    options: repair::Options,
    progress: &dyn Progress,
) -> std::result::Result<Plan, MendError> {
    let device = || Arc::clone(device);
    match replay(&device(), None) {
        Ok(replayed) => repair::plan_after_replay(device(), replayed, options, progress),
        Err(_) => repair::plan_before_replay(device(), &over_mended, options, progress),
    }
}

/// Replays fast commits over what is mended.
fn over_mended(device: &SharedDevice) -> std::result::Result<Arc<OverlayDevice>, String> {
    replay(device, None).map_err(|e| e.to_string())
}

/// Whether what waits is in a journal on another device.
fn is_elsewhere(e: &MendError) -> bool {
    matches!(e, MendError::ExternalJournal)
}

/// Replays the journal of a file system in memory, as a mount would leave it that replays it and
/// ends: what that writes is in the overlay. Fast commits say what changed in names and maps, and
/// not which blocks hold that: it takes the engine to replay them.
///
/// # Errors
/// When the engine cannot replay the journal.
pub fn replay(device: &SharedDevice, journal: Option<&SharedDevice>) -> Result<Arc<OverlayDevice>> {
    let over = |device: &SharedDevice| OverlayDevice::new(Arc::clone(device), PIECE).keep_writes();
    let overlay = Arc::new(over(device));
    let mut options = MountOptions::read_write().background(false);
    if let Some(journal) = journal {
        options = options.journal_device(Arc::new(over(journal)));
    }
    let fs = Filesystem::open_device(Arc::clone(&overlay) as SharedDevice, options)?;
    fs.close()?;
    Ok(overlay)
}

/// The device with this superblock as the primary one.
fn by_superblock(
    device: &SharedDevice,
    choice: SuperblockChoice,
) -> std::result::Result<SharedDevice, MendError> {
    let SuperblockChoice::Backup { block, block_size } = choice else {
        return Ok(Arc::clone(device));
    };
    let offset = block_size.offset_of(block).unwrap_or(u64::MAX);
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(offset, &mut bytes)?;
    let found = Superblock::parse(&bytes).map_err(|e| MendError::not_ext4(&**device, e))?;
    let primary = found.with(|raw| raw.block_group_nr.set(0))?;
    let mut overlay = OverlayDevice::new(Arc::clone(device), SUPERBLOCK_LEN as u32);
    overlay.replace(
        SUPERBLOCK_OFFSET / SUPERBLOCK_LEN as u64,
        primary.encode().to_vec(),
    )?;
    Ok(Arc::new(overlay))
}

/// Makes a temporary file without a name as a device of `size` bytes, which takes room for what is
/// written only: for [`MendOptions::spool`], where it has to be made before.
///
/// # Errors
/// When the directory that `TMPDIR` names cannot hold one.
pub fn temporary_spool(size: u64) -> Result<SharedDevice> {
    crate::spool::spool(size)
}

impl Filesystem {
    /// Opens the image or block device at `path` for reading, as a repair would leave it. The image
    /// is only read, and need not be writable: see [`mend()`]. What lies behind the end of an image
    /// that was cut short is an error for the file that has it.
    ///
    /// # Errors
    /// As for [`Filesystem::open`], and for [`mend()`].
    pub fn open_mended(path: impl AsRef<Path>) -> Result<(Self, Mended)> {
        let location = ImageLocation::parse(path.as_ref())
            .map_err(|e| Error::engine("", DeviceError::from(e).into()))?;
        Self::open_location_mended(&location, &How::reading(), MountOptions::read_only())
    }

    /// Opens the file system at a location for reading, as a repair would leave it: see
    /// [`Filesystem::open_mended`].
    ///
    /// # Errors
    /// As for [`Filesystem::open`], and for [`mend()`].
    pub fn open_location_mended(
        location: &ImageLocation,
        how: &How,
        options: MountOptions,
    ) -> Result<(Self, Mended)> {
        let name = location.name();
        let failed = |e: extant_core::Error| Error::engine(&name, e);
        let device = location.open(how).map_err(|e| failed(e.into()))?;
        let mending = MendOptions {
            journal: options.journal_device.clone(),
            superblock: options.superblock,
            ..MendOptions::default()
        };
        let mended = mend(&device, &mending).map_err(|e| match e {
            MendError::Device(e) => failed(e.into()),
            // What keeps it from being opened at all is said as by opening it.
            e => match Fs::open(device, options.clone()) {
                Err(e) => failed(e),
                Ok(_) => Error::host("mend", &name, io::Error::other(e)),
            },
        })?;
        let fs = Self::on_mended(&mended, options)?;
        Ok((fs, mended))
    }

    /// Opens the file system on a device that was mended in memory, for reading. Of the options,
    /// those of the journal and the superblock mean nothing any more.
    ///
    /// # Errors
    /// As for [`Filesystem::open`].
    pub fn on_mended(mended: &Mended, options: MountOptions) -> Result<Self> {
        let mut options = options
            .superblock(SuperblockChoice::Primary)
            .cut_short(true);
        options.read_only = true;
        options.journal_device = None;
        let fs = Fs::open(Arc::clone(&mended.device), options);
        let fs = fs.map_err(|e| Error::engine("", e))?;
        Ok(Self::of_mount(Mount::mended(fs, mended.in_doubt.clone())))
    }

    /// Whether the content of the file with this inode number may not be what it was, since it was
    /// mended in memory where that lies.
    #[must_use]
    pub fn is_in_doubt(&self, ino: u32) -> bool {
        self.mount().is_in_doubt(Ino::new(ino))
    }
}
