//! Superblock, descriptors, inodes, and reading.
//!
//! # Invariants
//! - A read past the end of the device gives zeros: an image that was cut short is looked at as far
//!   as it goes.
//! - One look at all maps reads twice as many of their nodes as the file system has blocks at most,
//!   however many inodes share them.

use crate::error::{Error, Result};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::checksum::Crc32c;
use extant_format::dir::DirLayout;
use extant_format::features::{Features, Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{GroupFlags, GroupState};
use extant_format::inode::{Inode, InodeContext, InodeFlags};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::{BlockSize, Group, Ino, Pblk, bitmap, waiting};
use std::cell::Cell;
use std::ops::Range;

/// More groups than this are refused: their descriptors are held in memory.
const GROUPS_MAX: u32 = 1 << 22;
/// Bytes of an inode table that are read at once.
const TABLE_WINDOW: usize = 1 << 18;

/// Takes a slot of an inode table: the number, whether it is in use, and the bytes.
type EachSlot<'a> = dyn FnMut(Ino, bool, &[u8]) -> Result<()> + 'a;

/// The feature of an image of which a part is put back, which `extant revert` gives it.
const HALF_TAKEN_BACK: u32 = 1 << 30;

/// The file system.
#[derive(Debug)]
pub(crate) struct Volume {
    device: SharedDevice,
    pub(crate) sb: Superblock,
    pub(crate) geo: Geometry,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) features: Features,
    /// Seed of metadata checksums, where there are any.
    pub(crate) seed: Option<Crc32c>,
    inode_size: u16,
    /// Nodes of maps that may still be read.
    nodes_left: Cell<u64>,
}

/// Refuses an image in which changes wait to be put in place, or of which a part is put back.
fn refuse_half_way(sb: &Superblock) -> Result<()> {
    let bits = sb.features().incompat.bits();
    if bits & waiting::FEATURE != 0 {
        return Err(Error::ChangesWait);
    }
    if bits & HALF_TAKEN_BACK != 0 {
        return Err(Error::HalfTakenBack);
    }
    Ok(())
}

impl Volume {
    pub(crate) fn open(device: SharedDevice) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        read_padded(&*device, SUPERBLOCK_OFFSET, &mut bytes)?;
        let sb = match Superblock::parse(&bytes) {
            Err(e) if e.is_checksum() => Superblock::parse_unverified(&bytes),
            parsed => parsed,
        };
        let sb = sb.map_err(|e| Error::not_ext4(&*device, e))?;
        refuse_half_way(&sb)?;
        let unknown = sb.features().incompat.beyond(Features::DESCRIBED.incompat);
        if !unknown.is_empty() {
            return Err(Error::Unsupported {
                names: unknown.names_of_bits(),
            });
        }
        let geo = Geometry::new(&sb);
        let groups = geo.groups_count();
        let room = device.size() / u64::from(geo.desc_size().max(1));
        if u64::from(groups) > room || groups > GROUPS_MAX {
            return Err(Error::TooLarge { groups });
        }
        let Ok(inode_size) = u16::try_from(geo.inode_size()) else {
            let names = vec![format!("inodes of {} bytes", geo.inode_size())];
            return Err(Error::Unsupported { names });
        };
        let seed = sb
            .has_metadata_csum()
            .then(|| Crc32c::seeded(sb.checksum_seed()));
        let mut volume = Self {
            nodes_left: Cell::new(0),
            features: sb.features(),
            device,
            geo,
            groups: Vec::new(),
            seed,
            inode_size,
            sb,
        };
        volume.read_descriptors()?;
        volume.begin();
        Ok(volume)
    }

    /// Begins another look at all maps.
    pub(crate) fn begin(&self) {
        self.nodes_left
            .set(self.blocks_on_device().saturating_mul(2));
    }

    /// Blocks of the file system that the device has room for.
    pub(crate) fn blocks_on_device(&self) -> u64 {
        let on_device = self.device.size() >> self.block_size().log2();
        self.geo.blocks_count().min(on_device)
    }

    fn read_descriptors(&mut self) -> Result<()> {
        let checksum = self.sb.desc_checksum();
        let per_block = self.geo.descs_per_block();
        let size = self.geo.desc_size() as usize;
        for index in 0..self.geo.desc_blocks() {
            let first = index * per_block;
            let count = per_block.min(self.geo.groups_count() - first);
            let block = match self.geo.desc_block(index) {
                Ok(at) => self.block(at.get())?,
                Err(_) => vec![0; self.block_size().len()],
            };
            for (i, bytes) in block.chunks_exact(size).take(count as usize).enumerate() {
                let group = Group::new(first + i as u32);
                let (state, _) = GroupState::read(bytes, group, &checksum, &self.geo);
                self.groups.push(state);
            }
        }
        Ok(())
    }

    pub(crate) fn device(&self) -> &SharedDevice {
        &self.device
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.geo.block_size()
    }

    pub(crate) fn has_incompat(&self, feature: Incompat) -> bool {
        self.features.incompat.contains(feature)
    }

    pub(crate) fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.features.ro_compat.contains(feature)
    }

    /// Block numbers that files may use.
    pub(crate) fn physical(&self) -> Range<u64> {
        self.geo.first_data_block().get() + 1..self.geo.blocks_count()
    }

    pub(crate) fn read(&self, block: u64, buf: &mut [u8]) -> Result<()> {
        let offset = self.block_size().offset_of(Pblk::new(block));
        read_padded(&*self.device, offset.unwrap_or(u64::MAX), buf)
    }

    pub(crate) fn block(&self, block: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0; self.block_size().len()];
        self.read(block, &mut buf)?;
        Ok(buf)
    }

    /// Takes one from the nodes of maps that may be read.
    pub(crate) fn may_read_node(&self) -> bool {
        let left = self.nodes_left.get();
        self.nodes_left.set(left.saturating_sub(1));
        left > 0
    }

    /// A group whose bitmaps and table are found.
    pub(crate) fn group(&self, group: Group) -> Option<&GroupState> {
        let state = self.groups.get(group.get() as usize)?;
        state.located.then_some(state)
    }

    /// The bitmap of the clusters of a group, as it is now.
    pub(crate) fn block_bitmap(&self, group: Group) -> Result<Option<Vec<u8>>> {
        match self.group(group) {
            // It was never written: what lies there says nothing.
            Some(state) if state.says(GroupFlags::BLOCK_UNINIT) => Ok(None),
            Some(state) => Ok(Some(self.block(state.desc.block_bitmap.get())?)),
            None => Ok(None),
        }
    }

    /// Hands on each slot of the inode tables that may have been used, with whether the inode is in
    /// use.
    pub(crate) fn slots(&self, each: &mut EachSlot<'_>) -> Result<()> {
        let size = usize::from(self.inode_size).max(1);
        let mut window = Vec::new();
        for (group, state) in self.geo.groups().zip(&self.groups) {
            if !state.located || state.says(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let unused = state.unused_inodes();
            let used = self.geo.inodes_per_group().saturating_sub(unused);
            let in_use = self.block(state.desc.inode_bitmap.get())?;
            let table = self.block_size().offset_of(state.desc.inode_table);
            let table = table.unwrap_or(u64::MAX);
            let together = (TABLE_WINDOW / size).max(1) as u32;
            let mut index = 0;
            while index < used {
                let count = together.min(used - index);
                window.resize(count as usize * size, 0);
                let offset = table.saturating_add(u64::from(index) * size as u64);
                if offset >= self.device.size() {
                    break;
                }
                read_padded(&*self.device, offset, &mut window)?;
                for (slot, i) in window.chunks_exact(size).zip(index..) {
                    if let Ok(ino) = self.geo.inode_at(group, i) {
                        each(ino, bitmap::test(&in_use, i), slot)?;
                    }
                }
                index += count;
            }
        }
        Ok(())
    }

    /// The slot of an inode, and whether it is in use.
    pub(crate) fn slot(&self, ino: Ino) -> Result<Option<(Vec<u8>, bool)>> {
        let Ok(location) = self.geo.locate_inode(ino) else {
            return Ok(None);
        };
        let Some(state) = self.group(location.group) else {
            return Ok(None);
        };
        let Ok(offset) = self.geo.inode_position(ino, state.desc.inode_table) else {
            return Ok(None);
        };
        let mut slot = vec![0; usize::from(self.inode_size)];
        read_padded(&*self.device, offset, &mut slot)?;
        let in_use = !state.says(GroupFlags::INODE_UNINIT)
            && bitmap::test(&self.block(state.desc.inode_bitmap.get())?, location.index);
        Ok(Some((slot, in_use)))
    }

    /// An inode that is in use, and its slot.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Option<(Inode, Vec<u8>)>> {
        let Some((slot, true)) = self.slot(ino)? else {
            return Ok(None);
        };
        Ok(self.parse(&slot, ino).map(|inode| (inode, slot)))
    }

    pub(crate) fn inode_size(&self) -> u16 {
        self.inode_size
    }

    pub(crate) fn inode_context(&self, ino: Ino) -> InodeContext {
        InodeContext {
            inode_size: self.inode_size,
            seed: self.seed,
            ino,
            large_dir: self.has_incompat(Incompat::LARGEDIR),
            huge_file: self.has_ro_compat(RoCompat::HUGE_FILE),
        }
    }

    /// An inode whose checksum is right, and that has a type.
    pub(crate) fn parse(&self, slot: &[u8], ino: Ino) -> Option<Inode> {
        let inode = Inode::parse(slot, &self.inode_context(ino)).ok()?;
        inode.file_type().is_some().then_some(inode)
    }

    /// The seed of the checksums of an inode's own blocks.
    pub(crate) fn inode_seed(&self, ino: Ino, generation: u32) -> Option<Crc32c> {
        self.inode_context(ino).inode_seed(generation)
    }

    /// The form of the entries of a directory with these flags.
    pub(crate) fn dir_layout(&self, flags: InodeFlags) -> DirLayout {
        let encrypted = flags.contains(InodeFlags::ENCRYPT);
        DirLayout {
            block_size: self.block_size(),
            file_type: self.has_incompat(Incompat::FILETYPE),
            checksums: self.seed.is_some(),
            hash_in_entry: encrypted && flags.contains(InodeFlags::CASEFOLD),
            raw_names: encrypted,
            max_inode: Ino::new(self.geo.inodes_count()),
        }
    }
}

/// Reads `buf` from byte `offset`; what lies past the end of the device reads as zeros.
fn read_padded(device: &dyn BlockDevice, offset: u64, buf: &mut [u8]) -> Result<()> {
    let left = device.size().saturating_sub(offset);
    let len = left.min(buf.len() as u64) as usize;
    let (inside, beyond) = buf.split_at_mut(len);
    beyond.fill(0);
    if !inside.is_empty() {
        device.read_at(offset, inside)?;
    }
    Ok(())
}
