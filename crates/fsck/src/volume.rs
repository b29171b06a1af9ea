//! The file system under check: its superblock, its descriptors, and reading from it.
//!
//! # Invariants
//! - A read past the end of the device gives zeros: an image that was cut short is judged as far as
//!   it goes.
//! - Every block number that is read was computed or checked by the caller; reading itself never
//!   fails for a number out of range.

use crate::error::{Error, Result};
use crate::report::Sink;
use crate::undo::half_way;
use crate::{Code, Place};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::checksum::Crc32c;
use extant_format::dir::DirLayout;
use extant_format::features::{Compat, Features, Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupState;
use extant_format::inode::rules::InodeRules;
use extant_format::inode::{Inode, InodeContext, InodeFlags};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_format::{BlockSize, Expected, FormatError, Group, Ino, Pblk};
use std::ops::Range;
use std::sync::Arc;

/// More groups than this are refused: their descriptors are held in memory.
const GROUPS_MAX: u32 = 1 << 22;

/// The file system under check.
#[derive(Debug)]
pub(crate) struct Volume {
    device: SharedDevice,
    pub(crate) sb: Superblock,
    pub(crate) geo: Geometry,
    pub(crate) groups: Vec<GroupState>,
    pub(crate) features: Features,
    /// Seed of metadata checksums, where there are any.
    pub(crate) seed: Option<Crc32c>,
    /// What inodes must not say here.
    pub(crate) rules: InodeRules,
    inode_size: u16,
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

/// Finds a superblock: the primary one, or the first sound backup.
pub(crate) fn find_superblock(device: &dyn BlockDevice, sink: &mut Sink) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    read_padded(device, SUPERBLOCK_OFFSET, &mut bytes)?;
    let why = match Superblock::parse(&bytes) {
        Ok(sb) => {
            half_way::refuse(&sb)?;
            return Ok(sb);
        }
        Err(e) => e,
    };
    if why.is_checksum()
        && let Ok(sb) = Superblock::parse_unverified(&bytes)
    {
        half_way::refuse(&sb)?;
        sink.format(Code::SuperblockChecksum, Place::FILE_SYSTEM, why);
        return Ok(sb);
    }
    // Nothing else of it is wrong, and what backups say of a file system is older.
    if let Some((sb, why)) = of_revision_1(&bytes) {
        half_way::refuse(&sb)?;
        sink.format(Code::SuperblockField, Place::FILE_SYSTEM, why);
        return Ok(sb);
    }
    if let Some((sb, block)) = find_backup(device)? {
        sink.format(Code::SuperblockInvalid, Place::FILE_SYSTEM, why);
        sink.say(
            Code::SuperblockInvalid,
            Place::block(block),
            "the backup here was used in its place",
        );
        return Ok(sb);
    }
    if let Some(sb) = with_possible_fields(&mut bytes) {
        half_way::refuse(&sb)?;
        sink.format(Code::SuperblockField, Place::FILE_SYSTEM, why);
        return Ok(sb);
    }
    Err(Error::not_ext4(device, why))
}

/// Fields that the rest of a superblock does not depend on, or that show in other structures: by
/// name, with their byte, how many they are, and a value that is possible.
const REPLACEABLE: &[(&str, usize, usize, u32)] = &[
    ("usr_quota_inum", 0x240, 4, 0),
    ("grp_quota_inum", 0x244, 4, 0),
    ("prj_quota_inum", 0x26c, 4, 0),
    ("orphan_file_inum", 0x280, 4, 0),
    ("journal_inum", 0xe0, 4, 8),
    ("first_ino", 0x54, 4, 11),
    ("first_meta_bg", 0x104, 4, 0),
    ("reserved_gdt_blocks", 0xce, 2, 0),
    ("desc_size", 0xfe, 2, 64),
    ("log_groups_per_flex", 0x174, 1, 4),
    ("checksum_type", 0x175, 1, 1),
];

/// The revision of a superblock that says 0 and has what revision 0 has not, as [`REPLACEABLE`] has
/// fields.
const REVISION: (&str, usize, usize, u32) = ("rev_level", 0x4c, 4, 1);

/// Fields whose value follows from others, where these are right: by name, with their byte. Which
/// of them is wrong is a guess, good enough to read by.
const FOLLOWING: &[(&str, usize)] = &[
    ("inodes_count", 0x00),
    ("first_data_block", 0x14),
    ("log_cluster_size", 0x1c),
    ("blocks_per_group", 0x20),
];

/// The superblock in `bytes` as one of revision 1, if it cannot be one of revision 0, as it says,
/// and nothing else is wrong; and why not.
fn of_revision_1(bytes: &[u8; SUPERBLOCK_LEN]) -> Option<(Superblock, FormatError)> {
    let (name, at, len, value) = REVISION;
    let why = Superblock::parse_unverified(bytes).err()?;
    if why.field != name || why.found != 0 {
        return None;
    }
    let mut bytes = *bytes;
    let to = bytes.get_mut(at..at + len)?;
    to.copy_from_slice(value.to_le_bytes().get(..len)?);
    Some((Superblock::parse(&bytes).ok()?, why))
}

/// The superblock in `bytes` with possible values in the place of those that cannot be, if nothing
/// else is wrong.
fn with_possible_fields(bytes: &mut [u8; SUPERBLOCK_LEN]) -> Option<Superblock> {
    with_other_fields(bytes, &|why| {
        let mut fields = REPLACEABLE.iter().chain([&REVISION]);
        let (_, at, len, value) = fields.find(|(name, ..)| *name == why.field)?;
        // A revision of which nothing is known is no slip of this one.
        let is_known = *at != REVISION.1 || why.found == 0;
        is_known.then_some((*at, *len, *value))
    })
}

/// What a field is to hold: its byte, its length and its value.
type Field = (usize, usize, u32);

/// The superblock in `bytes` with what `other` says in the place of fields that cannot be.
fn with_other_fields(
    bytes: &mut [u8; SUPERBLOCK_LEN],
    other: &dyn Fn(&FormatError) -> Option<Field>,
) -> Option<Superblock> {
    for _ in 0..=REPLACEABLE.len() + FOLLOWING.len() {
        let why = match Superblock::parse_unverified(bytes) {
            Ok(sb) => return Some(sb),
            Err(why) => why,
        };
        let (at, len, value) = other(&why)?;
        let to = bytes.get_mut(at..at + len)?;
        to.copy_from_slice(value.to_le_bytes().get(..len)?);
    }
    None
}

/// Finds a superblock as [`find_superblock`] does, or one to read by: of the primary one, with
/// values in the place of those that cannot be which follow from others.
pub(crate) fn find_superblock_to_read(device: &dyn BlockDevice) -> Result<Superblock> {
    let e = match find_superblock(device, &mut Sink::new()) {
        Err(e @ Error::NotExt4 { .. }) => e,
        found => return found,
    };
    let mut bytes = [0; SUPERBLOCK_LEN];
    read_padded(device, SUPERBLOCK_OFFSET, &mut bytes)?;
    let found = with_other_fields(&mut bytes, &|why| {
        let by_name = |(name, ..): &&(&str, usize, usize, u32)| *name == why.field;
        if let Some((_, at, len, value)) = REPLACEABLE.iter().find(by_name) {
            return Some((*at, *len, *value));
        }
        match (why.field, &why.expected) {
            (field, _) if field == REVISION.0 => Some((REVISION.1, REVISION.2, REVISION.3)),
            (field, Expected::Exactly(value)) => {
                let (_, at) = FOLLOWING.iter().find(|(name, _)| *name == field)?;
                Some((*at, 4, u32::try_from(*value).ok()?))
            }
            _ => None,
        }
    });
    found.ok_or(e)
}

/// Groups that keep a backup in most file systems, beginning with the first one.
const WITH_BACKUP: [u32; 5] = [1, 3, 5, 7, 9];

/// Looks for a backup where groups begin by what the primary superblock says of their size, sound
/// or not, and then where they begin with the usual sizes.
pub(crate) fn find_backup(device: &dyn BlockDevice) -> Result<Option<(Superblock, Pblk)>> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    read_padded(device, SUPERBLOCK_OFFSET, &mut bytes)?;
    let usual = block_sizes().flat_map(|size| {
        let (first, per_group) = (u64::from(size.log2() == 10), u64::from(size.bytes()) * 8);
        let groups = WITH_BACKUP.into_iter().map(u64::from);
        groups.map(move |group| (size, Pblk::new(first + group * per_group)))
    });
    // Numbers that are wrong may lead to another file system, in a file of this one.
    for (size, block) in told_places(&bytes) {
        if let Some(sb) = superblock_at(device, size, block)?.filter(|sb| belongs_at(sb, block)) {
            return Ok(Some((sb, block)));
        }
    }
    for (size, block) in usual {
        if let Some(sb) = superblock_at(device, size, block)? {
            return Ok(Some((sb, block)));
        }
    }
    Ok(None)
}

/// Whether a backup is that of the group which begins with `block`, as it says itself.
fn belongs_at(backup: &Superblock, block: Pblk) -> bool {
    let raw = backup.raw();
    let first = u64::from(raw.first_data_block.get());
    let blocks = u64::from(raw.blocks_per_group.get());
    let behind = block.get().checked_sub(first).filter(|_| blocks > 0);
    behind.is_some_and(|behind| {
        let (group, rest) = (behind / blocks, behind % blocks);
        // The number has 16 bits.
        rest == 0 && group & 0xFFFF == u64::from(raw.block_group_nr.get())
    })
}

/// Where backups lie by a superblock in which something may be wrong: the size of a group stands
/// there twice.
fn told_places(bytes: &[u8; SUPERBLOCK_LEN]) -> Vec<(BlockSize, Pblk)> {
    let number = |at: usize| {
        let field = bytes
            .get(at..at + 4)
            .and_then(|field| field.try_into().ok());
        field.map_or(0, u32::from_le_bytes)
    };
    let size = number(0x18).checked_add(10).and_then(BlockSize::from_log2);
    let Some(size) = size.filter(|_| number(0x38) & 0xFFFF == 0xEF53) else {
        return Vec::new();
    };
    let first = u64::from(number(0x14) == 1);
    let bits = number(0x1C).saturating_sub(number(0x18)).min(31);
    let sizes = [u64::from(number(0x20)), u64::from(number(0x24)) << bits];
    // The last two are those of the feature sparse_super2.
    let groups = [&WITH_BACKUP[..], &[number(0x24C), number(0x250)]].concat();
    let places = sizes.into_iter().filter(|blocks| *blocks > 0);
    let places = places.flat_map(|blocks| {
        let groups = groups.iter().filter(|group| **group > 0);
        groups.map(move |group| {
            u64::from(*group)
                .saturating_mul(blocks)
                .saturating_add(first)
        })
    });
    places.map(|block| (size, Pblk::new(block))).collect()
}

/// Looks for a superblock that lies in block `block`, in blocks of the size that it says.
pub(crate) fn superblock_in(
    device: &dyn BlockDevice,
    block: Pblk,
) -> Result<Option<(Superblock, Pblk)>> {
    for size in block_sizes() {
        if let Some(sb) = superblock_at(device, size, block)? {
            return Ok(Some((sb, block)));
        }
    }
    Ok(None)
}

/// The sizes that blocks may have.
fn block_sizes() -> impl Iterator<Item = BlockSize> {
    (10..=16).filter_map(BlockSize::from_log2)
}

/// The superblock in a block, if it is sound and says that blocks have this size.
fn superblock_at(
    device: &dyn BlockDevice,
    size: BlockSize,
    block: Pblk,
) -> Result<Option<Superblock>> {
    let Some(offset) = size.offset_of(block).filter(|at| *at < device.size()) else {
        return Ok(None);
    };
    let mut bytes = [0; SUPERBLOCK_LEN];
    read_padded(device, offset, &mut bytes)?;
    let found = Superblock::parse(&bytes).ok();
    Ok(found.filter(|sb| sb.block_size() == size))
}

/// UTF-8, in the version by which names are folded.
const ENCODING: u16 = 1;

/// Refuses what cannot be judged.
fn check_features(features: Features) -> Result<()> {
    let known = Features::DESCRIBED;
    let mut names = features.incompat.beyond(known.incompat).names_of_bits();
    names.extend(features.ro_compat.beyond(known.ro_compat).names_of_bits());
    names.extend(features.compat.beyond(known.compat).names_of_bits());
    if names.is_empty() {
        Ok(())
    } else {
        Err(Error::Unsupported { names })
    }
}

impl Volume {
    /// Reads superblock and descriptors.
    pub(crate) fn open(device: SharedDevice, sink: &mut Sink) -> Result<Self> {
        let sb = find_superblock(&*device, sink)?;
        check_features(sb.features())?;
        if let Some((encoding, _)) = sb.encoding().filter(|(n, _)| *n != ENCODING) {
            return Err(Error::Unsupported {
                names: vec![format!("names in the encoding {encoding}")],
            });
        }
        let geo = Geometry::new(&sb);
        // No device is shorter than the descriptors of its file system: what is held follows its
        // size.
        let room = device.size() / u64::from(geo.desc_size().max(1));
        let most = u32::try_from(room).unwrap_or(u32::MAX).min(GROUPS_MAX);
        if geo.groups_count() > most {
            return Err(Error::TooLarge {
                groups: geo.groups_count(),
                most,
            });
        }
        let Ok(inode_size) = u16::try_from(geo.inode_size()) else {
            return Err(Error::Unsupported {
                names: vec![format!("inodes of {} bytes", geo.inode_size())],
            });
        };
        let seed = sb
            .has_metadata_csum()
            .then(|| Crc32c::seeded(sb.checksum_seed()));
        let mut volume = Self {
            features: sb.features(),
            rules: InodeRules::new(&sb, &geo),
            device,
            geo,
            groups: Vec::new(),
            seed,
            inode_size,
            sb,
        };
        volume.read_descriptors(sink)?;
        Ok(volume)
    }

    fn read_descriptors(&mut self, sink: &mut Sink) -> Result<()> {
        let checksum = self.sb.desc_checksum();
        let per_block = self.geo.descs_per_block();
        let size = self.geo.desc_size() as usize;
        for index in 0..self.geo.desc_blocks() {
            let first = index * per_block;
            let count = per_block.min(self.geo.groups_count() - first);
            let block = match self.geo.desc_block(index) {
                Ok(at) => self.block(at)?,
                Err(e) => {
                    sink.format(Code::GroupLocation, Place::group(Group::new(first)), e);
                    vec![0; self.block_size().len()]
                }
            };
            for (i, bytes) in block.chunks_exact(size).take(count as usize).enumerate() {
                let group = Group::new(first + i as u32);
                let (state, faults) = GroupState::read(bytes, group, &checksum, &self.geo);
                if let Some(e) = faults.checksum {
                    sink.format(Code::GroupChecksum, Place::group(group), e);
                }
                if let Some(e) = faults.location {
                    sink.format(Code::GroupLocation, Place::group(group), e);
                }
                self.groups.push(state);
            }
        }
        Ok(())
    }

    /// The file system as another superblock has it: what that says of the form of things, and of
    /// their checksums.
    pub(crate) fn with_superblock(&self, sb: &Superblock) -> Self {
        let geo = Geometry::new(sb);
        Self {
            features: sb.features(),
            rules: InodeRules::new(sb, &geo),
            device: Arc::clone(&self.device),
            groups: self.groups.clone(),
            inode_size: u16::try_from(geo.inode_size()).unwrap_or(self.inode_size),
            seed: sb
                .has_metadata_csum()
                .then(|| Crc32c::seeded(sb.checksum_seed())),
            sb: sb.clone(),
            geo,
        }
    }

    pub(crate) fn device(&self) -> &SharedDevice {
        &self.device
    }

    pub(crate) fn block_size(&self) -> BlockSize {
        self.geo.block_size()
    }

    pub(crate) fn inode_size(&self) -> u16 {
        self.inode_size
    }

    pub(crate) fn has_compat(&self, feature: Compat) -> bool {
        self.features.compat.contains(feature)
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

    /// Blocks in a cluster.
    pub(crate) fn cluster_ratio(&self) -> u64 {
        1 << self.geo.cluster_bits()
    }

    /// The number a cluster has in sets of clusters, by one of its blocks: bit 0 of group 0 is 0.
    pub(crate) fn cluster_of(&self, block: u64) -> u64 {
        block.saturating_sub(self.geo.first_data_block().get()) >> self.geo.cluster_bits()
    }

    /// The clusters that `blocks` touch.
    pub(crate) fn clusters_of(&self, blocks: Range<u64>) -> Range<u64> {
        if blocks.is_empty() {
            return 0..0;
        }
        self.cluster_of(blocks.start)..self.cluster_of(blocks.end - 1) + 1
    }

    /// The first block of a cluster.
    pub(crate) fn block_of_cluster(&self, cluster: u64) -> Pblk {
        Pblk::new((cluster << self.geo.cluster_bits()) + self.geo.first_data_block().get())
    }

    pub(crate) fn read(&self, at: Pblk, buf: &mut [u8]) -> Result<()> {
        let offset = self.block_size().offset_of(at).unwrap_or(u64::MAX);
        self.read_bytes(offset, buf)
    }

    pub(crate) fn read_bytes(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        read_padded(&*self.device, offset, buf)
    }

    pub(crate) fn block(&self, at: Pblk) -> Result<Vec<u8>> {
        let mut buf = vec![0; self.block_size().len()];
        self.read(at, &mut buf)?;
        Ok(buf)
    }

    /// Where an inode's slot lies on the device; `None` if there is no such inode or its table is
    /// lost.
    pub(crate) fn inode_offset(&self, ino: Ino) -> Option<u64> {
        let location = self.geo.locate_inode(ino).ok()?;
        let state = self.groups.get(location.group.get() as usize)?;
        if !state.located {
            return None;
        }
        self.geo.inode_position(ino, state.desc.inode_table).ok()
    }

    /// The slot of an inode, and the inode without regard to its checksum.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Option<(Vec<u8>, Inode)>> {
        let Some(offset) = self.inode_offset(ino) else {
            return Ok(None);
        };
        let mut slot = vec![0; usize::from(self.inode_size)];
        self.read_bytes(offset, &mut slot)?;
        let inode = self.parse_inode(&slot, ino, &mut |_| {});
        Ok(inode.map(|inode| (slot, inode)))
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

    /// Reads an inode as well as it can be read, and tells what is wrong with it.
    pub(crate) fn parse_inode(
        &self,
        slot: &[u8],
        ino: Ino,
        wrong: &mut dyn FnMut(FormatError),
    ) -> Option<Inode> {
        let mut context = self.inode_context(ino);
        let first = match Inode::parse(slot, &context) {
            Ok(inode) => return Some(inode),
            Err(e) => e,
        };
        wrong(first);
        context.seed = None;
        let second = match Inode::parse(slot, &context) {
            Ok(inode) => return Some(inode),
            Err(e) => e,
        };
        if second != first {
            wrong(second);
        }
        // Without its extra fields.
        let mut slot = slot.to_vec();
        if let Some(size) = slot.get_mut(128..130) {
            size.fill(0);
        }
        Inode::parse(&slot, &context).ok()
    }

    /// The seed of the checksums of an inode's own blocks.
    pub(crate) fn inode_seed(&self, ino: Ino, inode: &Inode) -> Option<Crc32c> {
        self.inode_context(ino).inode_seed(inode.generation)
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
