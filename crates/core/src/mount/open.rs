//! The way from a device to a usable [`Fs`].

use super::torn::{self, Found};
use super::waiting;
use super::writable::Claims;
use crate::data::Caches;
use crate::fs::JournalChoice;
use crate::fs::{AccessPolicy, Fs, MountOptions, Notice, SuperblockChoice, policy};
use crate::inode::Table;
use crate::meta::Overlay;
use crate::names::Names;
use crate::volume::{Volume, VolumeOptions};
use crate::{Error, Place, Result};
use extant_blockdev::{Content, SharedDevice};
use extant_format::features::{Compat, Features, Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::superblock::{
    MAGIC, RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock,
};
use extant_format::{Expected, FormatError, FormatResult, Pblk, Structure};
use std::sync::{Arc, OnceLock};

/// One part in this many of the memory budget goes to inodes.
const INODE_SHARE: usize = 4;
/// One part in this many goes to names; metadata blocks have the rest.
const NAME_SHARE: usize = 8;
/// Bytes of inodes that are kept where only a few are looked at.
const LOOKED_AT: usize = 64 << 10;

/// Bytes of memory for what is kept of inodes and names.
struct Budgets {
    inodes: usize,
    names: usize,
}

impl Fs {
    /// Opens the file system on `device`.
    ///
    /// Open for reading, a journal that was not closed cleanly is replayed into memory, and the
    /// device is never written. Open for writing, it is replayed to the device, and the file system
    /// is marked as in use until [`Fs::close`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the features that are in the way. [`Error::Corrupt`] says
    /// what is wrong with the superblock or the journal. [`Error::InvalidInput`] when options ask
    /// for what this engine cannot do yet.
    pub fn open(mut device: SharedDevice, options: MountOptions) -> Result<Arc<Self>> {
        check_direct(&device, &options)?;
        if !options.read_only {
            return Self::open_writable(device, &options, Claims::Taken);
        }
        let mut found = torn::find_superblock(&device, &options);
        let is_primary = options.superblock == SuperblockChoice::Primary;
        // Where all is well, nothing more is read.
        if (found.is_err() || !is_primary)
            && let Some(front) = waiting::in_front(&device)?
        {
            // Once at most: whatever is in front is taken as it is.
            check_direct(&front, &options)?;
            found = torn::find_superblock(&front, &options);
            device = front;
        }
        let Found { superblock, torn } = found?;
        let fs = Self::assemble(device, superblock, &options, false, None)?;
        // Like Linux, which looks at the journal only where there is one.
        let waits = torn.is_some() || fs.superblock().needs_recovery();
        let dirty = waits && fs.superblock().has_compat(Compat::HAS_JOURNAL);
        if !dirty || options.journal == JournalChoice::Ignore {
            fs.check_root()?;
            return Ok(Arc::new(fs));
        }
        let (replayed, notices) = fs.replay(&options)?;
        // The log may have changed the superblock and every descriptor.
        let superblock = read_superblock(&replayed, options.superblock)?;
        let mut fs = Self::assemble(replayed, superblock, &options, true, None)?;
        fs.add_notices(torn);
        fs.add_notices(notices);
        fs.check_root()?;
        Ok(Arc::new(fs))
    }

    /// Puts a file system together that is read to find its journal, and serves nobody: it keeps no
    /// names and few inodes.
    pub(super) fn to_look(
        device: SharedDevice,
        superblock: Superblock,
        options: &MountOptions,
    ) -> Result<Self> {
        let budgets = Budgets {
            inodes: LOOKED_AT,
            names: 0,
        };
        Self::within(device, superblock, options, false, None, budgets)
    }

    pub(super) fn assemble(
        device: SharedDevice,
        superblock: Superblock,
        options: &MountOptions,
        replayed: bool,
        overlay: Option<Arc<dyn Overlay>>,
    ) -> Result<Self> {
        let budgets = Budgets {
            inodes: options.memory / INODE_SHARE,
            names: options.memory / NAME_SHARE,
        };
        Self::within(device, superblock, options, replayed, overlay, budgets)
    }

    fn within(
        device: SharedDevice,
        superblock: Superblock,
        options: &MountOptions,
        replayed: bool,
        overlay: Option<Arc<dyn Overlay>>,
        budgets: Budgets,
    ) -> Result<Self> {
        let geometry = Geometry::new(&superblock);
        let short = check_device(&device, &geometry, options)?;
        let backup = match options.superblock {
            SuperblockChoice::Primary => None,
            SuperblockChoice::Backup { block, .. } => block.checked_add(1),
        };
        let notices = short
            .into_iter()
            .chain(Notice::of_superblock(&superblock, options))
            .collect();
        let volume = VolumeOptions {
            backup_descriptors: backup,
            cache_bytes: options.memory
                - options.memory / INODE_SHARE
                - options.memory / NAME_SHARE,
            overlay,
            errors: options.errors,
        };
        let volume = Arc::new(Volume::new(device, superblock, volume));
        let inodes = Table::new(budgets.inodes, geometry.inode_size());
        #[cfg(feature = "baseline")]
        let inodes = inodes.with_one_lock(options.baseline.inode.one_inode_list);
        Ok(Self {
            volume,
            inodes,
            names: Names::new(budgets.names),
            data: Arc::new(Caches::new(options)),
            space: OnceLock::new(),
            notices,
            replayed,
            access: AccessPolicy::of(options),
            write_state: None,
        })
    }
}

pub(crate) fn read_superblock(
    device: &SharedDevice,
    choice: SuperblockChoice,
) -> Result<Superblock> {
    read_superblock_by(device, choice, Superblock::parse)
}

/// The superblock as `parse` understands it.
pub(super) fn read_superblock_by(
    device: &SharedDevice,
    choice: SuperblockChoice,
    parse: impl FnOnce(&[u8]) -> FormatResult<Superblock>,
) -> Result<Superblock> {
    let (offset, place) = match choice {
        SuperblockChoice::Primary => (SUPERBLOCK_OFFSET, Place::Superblock),
        SuperblockChoice::Backup { block, block_size } => (
            block_size
                .offset_of(block)
                .ok_or(Error::InvalidInput("the superblock lies past any device"))?,
            Place::Block(block),
        ),
    };
    let mut bytes = [0; SUPERBLOCK_LEN];
    if device.size() < offset.saturating_add(SUPERBLOCK_LEN as u64) {
        let found = usize::try_from(device.size()).unwrap_or(usize::MAX);
        let needed = usize::try_from(offset).unwrap_or(usize::MAX);
        let source = FormatError::short(
            Structure::Superblock,
            found,
            needed.saturating_add(SUPERBLOCK_LEN),
        );
        return Err(not_found(device, choice, place, source));
    }
    device.read_at(offset, &mut bytes)?;
    // Features come first: fields that an unknown feature changed must not be called corrupt.
    if let Some(features) = raw_features(&bytes) {
        policy::check_readable(features)?;
    }
    let superblock = parse(&bytes).map_err(|source| match source.field {
        "magic" => not_found(device, choice, place, source),
        _ => Error::corrupt(place, source),
    })?;
    if let SuperblockChoice::Backup { block_size, .. } = choice
        && block_size != superblock.block_size()
    {
        let expected = Expected::Exactly(block_size.bytes().into());
        let found = superblock.block_size().bytes().into();
        let source = FormatError::new(Structure::Superblock, "block_size", found, expected);
        return Err(Error::corrupt(place, source));
    }
    Ok(superblock)
}

/// There is no superblock where one should be. A caller that names the place of a backup has found
/// the file system already.
fn not_found(
    device: &SharedDevice,
    choice: SuperblockChoice,
    place: Place,
    source: FormatError,
) -> Error {
    match choice {
        SuperblockChoice::Primary => Error::NotExt4 {
            source,
            content: Content::on(&**device).unwrap_or(Content::Unknown),
        },
        SuperblockChoice::Backup { .. } => Error::corrupt(place, source),
    }
}

/// The feature words of something that looks like a superblock.
fn raw_features(bytes: &[u8]) -> Option<Features> {
    use zerocopy::FromBytes;
    let (raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
    (raw.magic.get() == MAGIC).then(|| Features {
        compat: Compat::from_bits_retain(raw.feature_compat.get()),
        incompat: Incompat::from_bits_retain(raw.feature_incompat.get()),
        ro_compat: RoCompat::from_bits_retain(raw.feature_ro_compat.get()),
    })
}

/// Refuses direct access to a device that is not memory.
fn check_direct(device: &SharedDevice, options: &MountOptions) -> Result<()> {
    if options.dax && device.direct().is_none() {
        let reason = "direct access (dax) to a device that is not memory";
        return Err(Error::InvalidInput(reason));
    }
    Ok(())
}

/// Refuses a file system that is larger than its device, or notes that where `options` accept it.
fn check_device(
    device: &SharedDevice,
    geometry: &Geometry,
    options: &MountOptions,
) -> Result<Option<Notice>> {
    let end = Pblk::new(geometry.blocks_count());
    let needed = geometry.block_size().offset_of(end).unwrap_or(u64::MAX);
    let found = device.size();
    if needed <= found {
        Ok(None)
    } else if options.read_only && options.cut_short {
        Ok(Some(Notice::CutShort { needed, found }))
    } else {
        Err(Error::DeviceTooSmall { needed, found })
    }
}
