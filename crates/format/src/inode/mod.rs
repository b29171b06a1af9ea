//! Inodes: fixed part, extra fields, times, flags and modes.
//!
//! # Responsibilities
//!
//! | item | owns |
//! |---|---|
//! | [`RawInode`], [`RawInodeExtra`] | the bytes |
//! | [`Inode`] | the same, typed and checked; [`Inode::encode`] is the inverse of [`Inode::parse`] |
//! | [`are_sound`] | the checksums of several inodes at once |
//! | [`rules`] | what fields must not say together, and what follows when they do |
//! | [`Timestamp`], [`Mode`], [`InodeFlags`], [`DeviceNumber`] | one field each |
//!
//! # Invariants
//!
//! - A parsed inode's extra fields lie inside its slot in the inode table.
//! - [`Inode::encode`] writes into the slot it is given and touches no byte after the extra fields
//!   in use: extended attributes there, and extra fields a later format adds, stay as they are.
//! - The map (`i_block`) is opaque here; [`crate::extent`] and [`crate::indirect`] read it.
//!
//! Source: the kernel's `ext4/inodes` and `ext4/checksums` pages.

mod checksum;
mod flags;
mod mode;
mod raw;
pub mod rules;
mod time;

pub use checksum::{are_sound, seal_slot};
pub use flags::InodeFlags;
pub use mode::{DeviceNumber, FileType, Mode};
pub use raw::{FIXED_BYTES, KNOWN_BYTES, MAP_BYTES, RawInode, RawInodeExtra};
pub use time::Timestamp;

use crate::checksum::Crc32c;
use crate::side_by_side::update_word;
use crate::{BlockSize, Expected, FormatError, FormatResult, Ino, Pblk, Structure};
use checksum::{store_checksum, verify_checksum};
use core::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Smallest size of an inode on disk.
pub const MIN_INODE_SIZE: u16 = 128;
/// Largest size of an inode this crate reads.
pub const MAX_INODE_SIZE: u16 = 4096;

/// What the superblock says about inodes, and which inode this is.
#[derive(Clone, Copy, Debug)]
pub struct InodeContext {
    /// Bytes of an inode on disk.
    pub inode_size: u16,
    /// The file system's checksum seed, where it has metadata checksums.
    pub seed: Option<Crc32c>,
    /// The number of the inode.
    pub ino: Ino,
    /// Feature `large_dir`: directories have 64-bit sizes.
    pub large_dir: bool,
    /// Feature `huge_file`: block counts have 48 bits.
    pub huge_file: bool,
}

impl InodeContext {
    /// Returns the seed of everything that belongs to one inode (extent nodes, directory blocks):
    /// the file system's seed continued over number and generation.
    #[must_use]
    pub fn inode_seed(&self, generation: u32) -> Option<Crc32c> {
        // Both in one piece: beginning costs more than eight bytes do.
        let owner = join32(self.ino.get(), generation);
        self.seed.map(|seed| update_word(seed, owner))
    }
}

/// An inode, checked and typed.
// What is looked at most comes first: engines keep very many of these, and fetch them by lines of
// their caches.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions.
    pub mode: Mode,
    /// Number of names.
    pub links: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Flags.
    pub flags: InodeFlags,
    /// Generation, which tells reuses of a number apart.
    pub generation: u32,
    /// Deletion time in seconds; while the inode is on the orphan list, the next one there.
    pub dtime: u32,
    /// Size in bytes.
    pub size: u64,
    /// Blocks charged to the file, in the unit [`InodeFlags::HUGE_FILE`] says; read it through
    /// [`Inode::sectors`].
    pub blocks: u64,
    /// Change counter; an inode that holds an attribute value keeps the low half of its reference
    /// count here (and the high half in the seconds of `ctime`).
    pub version: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last access.
    pub atime: Timestamp,
    /// Creation, where the inode is large enough to say.
    pub crtime: Option<Timestamp>,
    /// The block of extended attributes; block 0 means none.
    pub file_acl: Pblk,
    /// Project id, where the inode is large enough to hold one.
    pub project: Option<u32>,
    /// Bytes of extra fields in use.
    pub extra_isize: u16,
    /// Map, symlink target, device number or inline data.
    pub map: [u8; MAP_BYTES],
}

/// Bytes of the slot that extra fields use, or an error if they do not fit it.
fn checked_extra_isize(extra_isize: u16, inode_size: u16) -> FormatResult<u16> {
    let room = inode_size.saturating_sub(MIN_INODE_SIZE);
    let wrong = |expected| {
        FormatError::new(
            Structure::Inode,
            "extra_isize",
            extra_isize.into(),
            expected,
        )
        .at(FIXED_BYTES)
    };
    if extra_isize > room {
        Err(wrong(Expected::AtMost(room.into())))
    } else if !extra_isize.is_multiple_of(4) {
        Err(wrong(Expected::Said("a multiple of 4")))
    } else {
        Ok(extra_isize)
    }
}

/// Whether extra fields reach the end of a field at `at` (from the start of the inode).
const fn reaches(extra_isize: u16, at: usize, len: usize) -> bool {
    at + len <= FIXED_BYTES + extra_isize as usize
}

impl Inode {
    /// Reads an inode from its slot in the inode table.
    ///
    /// A slot of zeros is an inode that was never written: it has no type, and no checksum is asked
    /// of it.
    ///
    /// # Errors
    /// When the slot is short, the checksum is wrong or the extra fields do not fit.
    #[inline]
    pub fn parse(bytes: &[u8], context: &InodeContext) -> FormatResult<Self> {
        Self::read(bytes, context, |slot, raw, extra| match context.seed {
            Some(seed) => verify_checksum(slot, raw, extra, seed, context.ino),
            None => Ok(()),
        })
    }

    /// Reads an inode from a slot that [`are_sound`] found to have the right checksum.
    ///
    /// # Errors
    /// When the slot is short or the extra fields do not fit.
    // Into the caller, which may need some of it only.
    #[inline(always)]
    pub fn parse_sound(bytes: &[u8], context: &InodeContext) -> FormatResult<Self> {
        Self::read(bytes, context, |_, _, _| Ok(()))
    }

    #[inline(always)]
    fn read(
        bytes: &[u8],
        context: &InodeContext,
        verify: impl FnOnce(&[u8], &RawInode, &RawInodeExtra) -> FormatResult<()>,
    ) -> FormatResult<Self> {
        let slot = slot(bytes, context)?;
        let (raw, rest) = RawInode::ref_from_prefix(slot)
            .map_err(|_| FormatError::short(Structure::Inode, bytes.len(), FIXED_BYTES))?;
        // Whole in all but small slots.
        let known: [u8; KNOWN_BYTES - FIXED_BYTES] = match rest.first_chunk() {
            Some(known) => *known,
            None => core::array::from_fn(|at| rest.get(at).copied().unwrap_or(0)),
        };
        let extra = RawInodeExtra::read_from_bytes(&known)
            .map_err(|_| FormatError::short(Structure::Inode, known.len(), KNOWN_BYTES))?;
        verify(slot, raw, &extra)?;
        let extra_isize = if slot.len() > FIXED_BYTES {
            checked_extra_isize(extra.extra_isize.get(), context.inode_size)?
        } else {
            0
        };
        Ok(Self::from_raw(raw, &extra, extra_isize, context))
    }

    #[inline(always)]
    fn from_raw(
        raw: &RawInode,
        extra: &RawInodeExtra,
        extra_isize: u16,
        context: &InodeContext,
    ) -> Self {
        let mode = Mode::from_bits(raw.mode.get());
        let has = |at, value: u32| reaches(extra_isize, at, 4).then_some(value);
        let wide_size = context.large_dir || mode.file_type() == Some(FileType::Regular);
        let size_hi = if wide_size { raw.size_hi.get() } else { 0 };
        let blocks_hi = if context.huge_file {
            raw.blocks_hi.get()
        } else {
            0
        };
        Self {
            mode,
            uid: join16(raw.uid_lo.get(), raw.uid_hi.get()),
            gid: join16(raw.gid_lo.get(), raw.gid_hi.get()),
            size: join32(raw.size_lo.get(), size_hi),
            links: raw.links.get(),
            blocks: join32(raw.blocks_lo.get(), blocks_hi.into()),
            flags: InodeFlags::from_bits_retain(raw.flags.get()),
            atime: Timestamp::decode(raw.atime.get(), has(0x8c, extra.atime_extra.get())),
            ctime: Timestamp::decode(raw.ctime.get(), has(0x84, extra.ctime_extra.get())),
            mtime: Timestamp::decode(raw.mtime.get(), has(0x88, extra.mtime_extra.get())),
            crtime: has(0x90, extra.crtime.get())
                .map(|base| Timestamp::decode(base, has(0x94, extra.crtime_extra.get()))),
            dtime: raw.dtime.get(),
            generation: raw.generation.get(),
            file_acl: Pblk::new(join32(raw.file_acl_lo.get(), raw.file_acl_hi.get().into())),
            version: join32(
                raw.version_lo.get(),
                has(0x98, extra.version_hi.get()).unwrap_or(0),
            ),
            project: has(0x9c, extra.project.get()),
            extra_isize,
            map: raw.map,
        }
    }

    /// Writes this inode into its slot of the inode table, checksum included.
    ///
    /// Bytes past the extra fields in use, and fields of the fixed part that have no meaning, keep
    /// what the slot held.
    ///
    /// # Errors
    /// When the slot is short, or a number does not fit the format: extra fields, block count,
    /// attribute block, size of a directory without `large_dir`.
    pub fn encode(&self, bytes: &mut [u8], context: &InodeContext) -> FormatResult<()> {
        let len = bytes.len();
        let slot = bytes
            .get_mut(..usize::from(context.inode_size))
            .filter(|slot| slot.len() >= FIXED_BYTES)
            .ok_or_else(|| FormatError::short(Structure::Inode, len, context.inode_size.into()))?;
        self.check_encodable(context)?;
        if let Ok((raw, rest)) = RawInode::mut_from_prefix(slot) {
            self.encode_fixed(raw);
            self.encode_extra(rest);
        }
        if let Some(seed) = context.seed {
            store_checksum(slot, seed, context.ino, self.generation, self.extra_isize);
        }
        Ok(())
    }

    fn check_encodable(&self, context: &InodeContext) -> FormatResult<()> {
        let wrong = |field, found, limit| {
            FormatError::new(Structure::Inode, field, found, Expected::AtMost(limit))
        };
        checked_extra_isize(self.extra_isize, context.inode_size)?;
        let blocks_limit = if context.huge_file {
            (1 << 48) - 1
        } else {
            u64::from(u32::MAX)
        };
        if self.blocks > blocks_limit {
            return Err(wrong("blocks", self.blocks, blocks_limit));
        }
        if self.file_acl.get() >= 1 << 48 {
            return Err(wrong("file_acl", self.file_acl.get(), (1 << 48) - 1));
        }
        let wide_size = context.large_dir || self.mode.file_type() == Some(FileType::Regular);
        if !wide_size && self.size > u32::MAX.into() {
            return Err(wrong("size", self.size, u32::MAX.into()));
        }
        Ok(())
    }

    fn encode_fixed(&self, raw: &mut RawInode) {
        raw.mode.set(self.mode.bits());
        raw.uid_lo.set(self.uid as u16);
        raw.uid_hi.set((self.uid >> 16) as u16);
        raw.gid_lo.set(self.gid as u16);
        raw.gid_hi.set((self.gid >> 16) as u16);
        raw.size_lo.set(self.size as u32);
        raw.size_hi.set((self.size >> 32) as u32);
        raw.dtime.set(self.dtime);
        raw.links.set(self.links);
        raw.blocks_lo.set(self.blocks as u32);
        raw.blocks_hi.set((self.blocks >> 32) as u16);
        raw.flags.set(self.flags.bits());
        raw.version_lo.set(self.version as u32);
        raw.map = self.map;
        raw.generation.set(self.generation);
        raw.file_acl_lo.set(self.file_acl.get() as u32);
        raw.file_acl_hi.set((self.file_acl.get() >> 32) as u16);
        let base = |at, time: Timestamp| {
            if reaches(self.extra_isize, at, 4) {
                time.encode().0
            } else {
                time.encode_short()
            }
        };
        raw.atime.set(base(0x8c, self.atime));
        raw.ctime.set(base(0x84, self.ctime));
        raw.mtime.set(base(0x88, self.mtime));
    }

    /// Writes the extra fields that are in use into the bytes after the fixed part.
    fn encode_extra(&self, rest: &mut [u8]) {
        let mut known = [0; KNOWN_BYTES - FIXED_BYTES];
        let len = rest.len().min(known.len());
        let (Some(known), Some(rest)) = (known.get_mut(..len), rest.get_mut(..len)) else {
            return;
        };
        // `extra_isize` itself is there as soon as the slot is larger than the fixed part.
        let used = usize::from(self.extra_isize).max(2).min(len);
        let crtime = self.crtime.unwrap_or_default();
        let crtime_base = if reaches(self.extra_isize, 0x94, 4) {
            crtime.encode().0
        } else {
            crtime.encode_short()
        };
        let raw = RawInodeExtra {
            extra_isize: self.extra_isize.into(),
            checksum_hi: 0.into(),
            ctime_extra: self.ctime.encode().1.into(),
            mtime_extra: self.mtime.encode().1.into(),
            atime_extra: self.atime.encode().1.into(),
            crtime: crtime_base.into(),
            crtime_extra: crtime.encode().1.into(),
            version_hi: ((self.version >> 32) as u32).into(),
            project: self.project.unwrap_or(0).into(),
        };
        for (to, from) in known.iter_mut().zip(raw.as_bytes()) {
            *to = *from;
        }
        for (to, from) in rest.iter_mut().zip(known.iter()).take(used) {
            *to = *from;
        }
    }

    /// Returns the file type, or `None` when the mode names none (a slot that was never used).
    #[must_use]
    pub const fn file_type(&self) -> Option<FileType> {
        self.mode.file_type()
    }

    /// Returns the space charged to the file in 512-byte sectors.
    #[must_use]
    pub const fn sectors(&self, block_size: BlockSize) -> u64 {
        if self.flags.contains(InodeFlags::HUGE_FILE) {
            // 48 bits of blocks and at most 7 more for 64 KiB blocks.
            (self.blocks & 0xffff_ffff_ffff) << (block_size.log2() - 9)
        } else {
            self.blocks
        }
    }

    /// Sets the space charged to the file, choosing the unit (and the flag that says it).
    ///
    /// # Errors
    /// When the count needs feature `huge_file` and it is off, is not whole blocks where the unit
    /// is blocks, or passes 48 bits.
    pub fn set_sectors(
        &mut self,
        sectors: u64,
        block_size: BlockSize,
        huge_file: bool,
    ) -> FormatResult<()> {
        let wrong = |expected| FormatError::new(Structure::Inode, "blocks", sectors, expected);
        if sectors <= u32::MAX.into() || (huge_file && sectors < 1 << 48) {
            self.flags.remove(InodeFlags::HUGE_FILE);
            self.blocks = sectors;
            return Ok(());
        }
        if !huge_file {
            return Err(wrong(Expected::AtMost(u32::MAX.into())));
        }
        let shift = block_size.log2() - 9;
        let blocks = sectors >> shift;
        if blocks >= 1 << 48 {
            return Err(wrong(Expected::AtMost(((1 << 48) - 1) << shift)));
        }
        if blocks << shift != sectors {
            return Err(wrong(Expected::Said("whole blocks")));
        }
        self.flags.insert(InodeFlags::HUGE_FILE);
        self.blocks = blocks;
        Ok(())
    }

    /// Returns the next inode of the orphan list, read from the field that holds the deletion time
    /// of inodes not on the list. `None` at the end of the list.
    #[must_use]
    pub const fn next_orphan(&self) -> Option<Ino> {
        match self.dtime {
            0 => None,
            next => Some(Ino::new(next)),
        }
    }

    /// Returns the device number in the map. Only meaningful for device nodes.
    #[must_use]
    pub const fn device(&self) -> DeviceNumber {
        let [a, b, c, d, e, f, g, h, ..] = self.map;
        DeviceNumber::decode(
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, g, h]),
        )
    }

    /// Returns whether each of its times has an extra word, for nanoseconds and years past 2038.
    #[inline]
    #[must_use]
    pub const fn has_long_times(&self) -> bool {
        reaches(self.extra_isize, 0x94, 4)
    }

    /// Returns the times of last access, change and change of the content, as the record stores
    /// them. They differ from what was asked for where the record has no room for it.
    #[must_use]
    pub fn stored_times(&self) -> [Timestamp; 3] {
        let stored = |time: Timestamp, at| time.stored(reaches(self.extra_isize, at, 4));
        [
            stored(self.atime, 0x8c),
            stored(self.ctime, 0x84),
            stored(self.mtime, 0x88),
        ]
    }

    /// Returns where extended attributes lie in the slot. Empty for inodes without extra fields,
    /// whose bytes past the fixed part have no meaning.
    #[must_use]
    pub fn xattr_range(&self, inode_size: u16) -> Range<usize> {
        let end = usize::from(inode_size);
        if self.extra_isize == 0 {
            end..end
        } else {
            (FIXED_BYTES + usize::from(self.extra_isize)).min(end)..end
        }
    }

    /// Returns the part of the slot that holds extended attributes (their magic first), empty if
    /// there is no room for any.
    #[must_use]
    pub fn xattr_region<'a>(&self, slot: &'a [u8], inode_size: u16) -> &'a [u8] {
        slot.get(self.xattr_range(inode_size)).unwrap_or(&[])
    }
}

#[inline(always)]
fn slot<'a>(bytes: &'a [u8], context: &InodeContext) -> FormatResult<&'a [u8]> {
    bytes
        .get(..usize::from(context.inode_size))
        .filter(|slot| slot.len() >= FIXED_BYTES)
        .ok_or_else(|| {
            FormatError::short(
                Structure::Inode,
                bytes.len(),
                usize::from(context.inode_size).max(FIXED_BYTES),
            )
        })
}

const fn join16(lo: u16, hi: u16) -> u32 {
    lo as u32 | (hi as u32) << 16
}

const fn join32(lo: u32, hi: u32) -> u64 {
    lo as u64 | (hi as u64) << 32
}

#[cfg(test)]
mod tests;
