//! Fields of inodes.

use super::entries::{Naming, is_really_dir, naming};
use super::work::{Work, delete};
use super::{content, map_builder};
use crate::bytes::{le16, le32};
use crate::encryption::Context;
use crate::error::Result;
use crate::inode::{is_of_feature, subject};
use crate::inode_table::KIND_DIR;
use crate::volume::Volume;
use crate::{Code, Evidence, Finding, Place, xattr};
use extant_format::dir::EntryType;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::inode::rules::{NumberClass, Report, looks_like_extents};
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES, Mode};
use extant_format::{Ino, Pblk};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The longest value of an attribute that Linux hands out, in bytes.
const LARGEST_ATTRIBUTE: u64 = 64 << 10;

const CODES: &[Code] = &[
    Code::InodeGarbage,
    Code::InodeChecksum,
    Code::InodeMode,
    Code::InodeExtraSize,
    Code::InodeFlags,
    Code::InodeFlagsUnused,
    Code::InodeReserved,
    Code::InodeSize,
    Code::InodeBlocks,
    Code::InodeDeletionTime,
    Code::InodeDeletedUndated,
    Code::InodeTime,
    Code::Symlink,
    Code::SpecialFile,
    Code::SpecialFileUnused,
    Code::InlineData,
    Code::XattrInInode,
    Code::XattrLocation,
    Code::XattrOverlap,
    Code::XattrHash,
    Code::XattrValueInode,
    Code::EaInodeReferences,
];

/// Faults of maps, after which sizes and counts say nothing yet.
const MAP_CODES: &[Code] = &[
    Code::ExtentNode,
    Code::ExtentIndexStart,
    Code::ExtentMisaligned,
    Code::IndirectPointer,
    Code::MapAbandoned,
];

/// Puts fields right, inode by inode.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    types_by_names(work)?;
    turn_on_large_files(work)?;
    encrypted_again(work)?;
    let mut found: BTreeMap<Ino, Vec<&Finding>> = BTreeMap::new();
    for finding in work.findings(CODES) {
        let in_block = finding.place.block.is_some() && finding.code != Code::Symlink;
        if let Some(ino) = finding.place.ino.filter(|_| !in_block) {
            found.entry(ino).or_default().push(finding);
        }
    }
    let nameable: HashSet<Ino> = found
        .iter()
        .filter(|(_, findings)| {
            let codes = [Code::InodeMode, Code::InodeDeletedUndated, Code::Symlink];
            findings.iter().any(|finding| codes.contains(&finding.code))
        })
        .map(|(ino, _)| *ino)
        .collect();
    let names = naming(work.survey, &nameable)?;
    let broken_maps = work.by_inode(MAP_CODES);
    for (ino, findings) in found {
        let link = findings.iter().any(|f| f.code == Code::Symlink);
        if link && !content::owns_target(work, ino)? {
            continue;
        }
        let mut one = One {
            ino,
            names: names.get(&ino).map_or(&[], |names| names),
            map_is_sound: !broken_maps.contains_key(&ino),
            findings: &findings,
        };
        one.fix(work)?;
    }
    Ok(())
}

/// Takes a root directory that is one but for its links for what it is: without it, all names in it
/// would be lost.
pub(super) fn root(work: &mut Work<'_>) -> Result<()> {
    let volume = work.volume();
    if !work.has(Code::RootMissing) {
        return Ok(());
    }
    let Some((_, inode)) = volume.inode(Ino::ROOT)? else {
        return Ok(());
    };
    let is_dir = inode.file_type() == Some(FileType::Directory);
    if !is_dir || inode.links > 0 || !is_really_dir(volume, Ino::ROOT, &inode)? {
        return Ok(());
    }
    work.edit_inode(Ino::ROOT, |inode, _| {
        inode.links = 2;
        inode.dtime = 0;
    })?;
    let text = "the root directory is in use: its link count was 0";
    work.fix(Code::RootMissing, Place::ino(Ino::ROOT), text);
    Ok(())
}

/// One inode, and what was found about it.
struct One<'a> {
    ino: Ino,
    names: &'a [Naming],
    map_is_sound: bool,
    findings: &'a [&'a Finding],
}

impl One<'_> {
    fn has(&self, code: Code) -> bool {
        self.findings.iter().any(|finding| finding.code == code)
    }

    fn expected(&self, code: Code) -> Option<(u64, u64)> {
        let finding = self.findings.iter().find(|finding| finding.code == code)?;
        match finding.evidence {
            Evidence::Number {
                found, expected, ..
            } => Some((found, expected)),
            _ => None,
        }
    }

    fn fix(&mut self, work: &mut Work<'_>) -> Result<()> {
        let volume = work.volume();
        let Some(offset) = volume.inode_offset(self.ino) else {
            return Ok(());
        };
        let mut slot = vec![0; usize::from(volume.inode_size())];
        volume.read_bytes(offset, &mut slot)?;
        if self.has(Code::InodeGarbage) {
            work.draft.write(offset, &vec![0; slot.len()])?;
            let text = "cleared: nothing in it can be kept";
            work.fix(Code::InodeGarbage, Place::ino(self.ino), text);
            return Ok(());
        }
        let before = slot.clone();
        self.raw_fields(volume, &mut slot);
        let Some(mut inode) = volume.parse_inode(&slot, self.ino, &mut |_| {}) else {
            return Ok(());
        };
        self.fields(work, &mut inode, &mut slot)?;
        // Blocks past what the field can count are left to the check after this round.
        if inode
            .encode(&mut slot, &volume.inode_context(self.ino))
            .is_err()
        {
            return Ok(());
        }
        if slot == before {
            return Ok(());
        }
        work.draft.write(offset, &slot)?;
        let codes: BTreeSet<Code> = self.findings.iter().map(|finding| finding.code).collect();
        for code in codes {
            let text = self.told(code, &before, &slot);
            work.fix(code, Place::ino(self.ino), text);
        }
        Ok(())
    }

    /// What was done, as far as one number says it.
    fn told(&self, code: Code, before: &[u8], after: &[u8]) -> String {
        let number = |slot: &[u8]| match code {
            Code::InodeMode => Some(("mode", u64::from(le16(slot, 0)))),
            Code::InodeFlags | Code::InodeFlagsUnused => Some(("flags", le32(slot, 32).into())),
            Code::InodeSize | Code::Symlink | Code::SpecialFile | Code::InlineData => {
                let size = u64::from(le32(slot, 4)) | u64::from(le32(slot, 0x6c)) << 32;
                Some(("size", size))
            }
            Code::InodeBlocks => Some(("count of 512-byte blocks", le32(slot, 28).into())),
            Code::InodeDeletionTime | Code::InodeDeletedUndated => {
                Some(("time of deletion", le32(slot, 20).into()))
            }
            Code::InodeExtraSize => Some(("size of extra fields", le16(slot, 128).into())),
            Code::XattrLocation => Some(("attribute block", le32(slot, 0x68).into())),
            _ => None,
        };
        match (number(before), number(after)) {
            (Some((what, old)), Some((_, new))) if old != new => {
                format!("{what} is {new:#x}, was {old:#x}")
            }
            _ if code == Code::InodeChecksum => "computed anew".to_owned(),
            _ => "put right".to_owned(),
        }
    }

    /// Fields that are not read as numbers, or without which others cannot be read.
    fn raw_fields(&self, volume: &Volume, slot: &mut [u8]) {
        if self.has(Code::InodeExtraSize) {
            let size = 32.min(volume.inode_size().saturating_sub(128));
            if let Some(field) = slot.get_mut(128..130) {
                field.copy_from_slice(&size.to_le_bytes());
            }
        }
        let mut zero = |at: usize, len: usize| {
            if let Some(field) = slot.get_mut(at..at + len) {
                field.fill(0);
            }
        };
        if self.has(Code::InodeReserved) {
            zero(0x70, 4);
            if !volume.has_incompat(Incompat::BIT64) {
                zero(0x76, 2);
            }
            if !volume.has_ro_compat(RoCompat::HUGE_FILE) {
                zero(0x74, 2);
            }
        }
        if self.has(Code::InodeTime) {
            for at in [0x84, 0x88, 0x8c, 0x94] {
                // The lowest two bits are of the seconds.
                let nanos = le32(slot, at) >> 2;
                if nanos > 999_999_999
                    && let Some(field) = slot.get_mut(at..at + 4)
                {
                    let seconds = u32::from_le_bytes([field[0], field[1], field[2], field[3]]) & 3;
                    field.copy_from_slice(&seconds.to_le_bytes());
                }
            }
        }
    }

    fn fields(&self, work: &mut Work<'_>, inode: &mut Inode, slot: &mut [u8]) -> Result<()> {
        let volume = work.volume();
        if self.has(Code::Symlink)
            && let Some(file_type) = self.type_of_no_link(volume, inode)?
        {
            inode.mode = Mode::new(file_type, inode.mode.permissions());
            return Ok(());
        }
        if self.has(Code::InodeMode) || inode.file_type().is_none() {
            self.mode(volume, inode, work.deletion_time())?;
        }
        content::drop_false_inline_flag(volume, self.ino, inode, slot)?;
        if self.has(Code::InodeReserved) && self.ino == Ino::BAD_BLOCKS {
            inode.mode = Mode::default();
            inode.links = 0;
            inode.file_acl = Pblk::new(0);
            (inode.uid, inode.gid) = (0, 0);
            inode.flags.remove(InodeFlags::INLINE_DATA);
        }
        if self.has(Code::InodeReserved) && self.ino == Ino::RESIZE {
            inode.file_acl = Pblk::new(0);
        }
        if self.has(Code::InodeReserved) && is_unused_of_feature(volume, self.ino) {
            (inode.links, inode.blocks, inode.size) = (0, 0, 0);
            inode.map.fill(0);
            inode.mode = Mode::default();
            inode.flags = InodeFlags::empty();
        }
        if self.has(Code::InodeDeletionTime) {
            let is_deleted = inode.links == 0 && inode.mode.bits() != 0;
            inode.dtime = if is_deleted { work.deletion_time() } else { 0 };
        }
        if self.has(Code::InodeDeletedUndated) {
            self.undated(inode, work.deletion_time());
        }
        if self.has(Code::InodeFlags) || self.has(Code::InodeFlagsUnused) {
            // Attributes that are mended yet may hold an encryption context.
            let codes = [Code::XattrInInode, Code::XattrOverlap, Code::XattrHash];
            let in_block = inode.file_acl.get() != 0 && work.has(Code::XattrBlock);
            let are_read = !in_block && !codes.iter().any(|code| self.has(*code));
            flags(work, self.ino, inode, slot, are_read)?;
            let survey = work.survey;
            if xattr::is_flag_alone(volume, &survey.ea, self.ino, inode)? {
                inode.flags.remove(InodeFlags::EA_INODE);
            }
        }
        if self.has(Code::SpecialFile) {
            inode.size = 0;
        }
        if self.has(Code::SpecialFileUnused) {
            clear_behind_device(inode);
        }
        if self.has(Code::XattrLocation) {
            if super::xattrs::feature_is_missing(work, inode.file_acl)? {
                turn_on_attributes(work)?
            } else {
                inode.file_acl = Pblk::new(0)
            }
        }
        if self.has(Code::InodeSize) && self.map_is_sound {
            self.size(work, inode)?;
        }
        if let Some((_, blocks)) = self.expected(Code::InodeBlocks)
            && self.map_is_sound
        {
            let huge = volume.has_ro_compat(RoCompat::HUGE_FILE);
            inode.set_sectors(blocks, volume.block_size(), huge)?;
        }
        let values = [
            Code::XattrInInode,
            Code::XattrOverlap,
            Code::XattrHash,
            Code::XattrValueInode,
            Code::EaInodeReferences,
        ];
        if inode.flags.contains(InodeFlags::EA_INODE) {
            if values.iter().any(|code| self.has(*code)) {
                super::xattrs::value_inode(work, self.ino, inode)?;
            }
        } else if values.iter().any(|code| self.has(*code)) {
            content::attributes(volume, inode, slot)?;
        }
        if self.has(Code::Symlink) {
            content::symlink(work, self.ino, inode, slot)?;
        }
        if self.has(Code::InlineData) && inode.flags.contains(InodeFlags::INLINE_DATA) {
            content::inline_data(volume, inode, slot)?;
        }
        Ok(())
    }

    /// What a symbolic link is that is none: a name says that it is a file or a directory, and what
    /// it maps is one.
    fn type_of_no_link(&self, volume: &Volume, inode: &Inode) -> Result<Option<FileType>> {
        let says = |file_type| {
            let mut kinds = self.names.iter().map(|naming| naming.kind);
            kinds.any(|kind| EntryType::from_raw(kind).file_type() == Some(file_type))
        };
        if says(FileType::Directory) && is_really_dir(volume, self.ino, inode)? {
            return Ok(Some(FileType::Directory));
        }
        if !says(FileType::Regular) || crate::special::is_text(inode) {
            return Ok(None);
        }
        // An empty file has neither blocks nor a target.
        let runs = crate::maps::runs(volume, self.ino, inode)?;
        let is_empty = inode.size == 0 && runs.is_empty();
        let is_file =
            is_empty || !runs.is_empty() && content::is_counted_map(volume, self.ino, inode)?;
        Ok(is_file.then_some(FileType::Regular))
    }

    fn mode(&self, volume: &Volume, inode: &mut Inode, now: u32) -> Result<()> {
        let ino = self.ino;
        if ino < volume.sb.first_ino() && ino != Ino::ROOT {
            let own = volume.sb.journal_ino() == Some(ino)
                || volume.sb.quota_inodes().contains(&Some(ino));
            inode.mode = if own {
                Mode::new(FileType::Regular, 0o600)
            } else {
                Mode::default()
            };
            return Ok(());
        }
        let kind = self.names.first().map_or(0, |naming| naming.kind);
        let said = EntryType::from_raw(kind).file_type();
        let is_dir = is_really_dir(volume, ino, inode)?;
        let mapped = looks_like_extents(inode) && inode.flags.contains(InodeFlags::EXTENTS);
        let guess = match said {
            _ if is_dir => Some(FileType::Directory),
            Some(FileType::Directory) => None,
            Some(other) => Some(other),
            None if mapped => Some(FileType::Regular),
            None => None,
        };
        let Some(file_type) = guess else {
            // Nothing says what it is, and it could not be read.
            delete(inode, now);
            return Ok(());
        };
        let permissions = match (inode.mode.permissions(), file_type) {
            (0, FileType::Directory) => 0o700,
            (0, _) => 0o600,
            (bits, _) => bits,
        };
        inode.mode = Mode::new(file_type, permissions);
        Ok(())
    }

    /// A deleted inode without a date: one that has a name is kept.
    fn undated(&self, inode: &mut Inode, now: u32) {
        if !self.names.is_empty() && inode.file_type().is_some() {
            inode.links = 1;
        } else {
            inode.dtime = now;
        }
    }

    fn size(&self, work: &mut Work<'_>, inode: &mut Inode) -> Result<()> {
        let volume = work.volume();
        let block = u64::from(volume.block_size().bytes());
        let runs = map_builder::salvage(volume, self.ino, inode)?;
        let end_of = |run: &crate::maps::Run| (u64::from(run.lblk) + u64::from(run.len)) * block;
        let end = runs.last().map_or(0, end_of);
        let Some((found, expected)) = self.expected(Code::InodeSize) else {
            // A directory with blocks that are said to be unwritten.
            let written: Vec<_> = runs
                .iter()
                .map(|run| crate::maps::Run {
                    unwritten: false,
                    ..*run
                })
                .collect();
            if map_builder::Builder::rebuild(work, self.ino, &written)?
                && let Some((_, new)) = volume.inode(self.ino)?
            {
                inode.map = new.map;
            }
            return Ok(());
        };
        let size = match inode.file_type() {
            Some(FileType::Regular) if expected < found => end_of_file(found, end, block),
            Some(FileType::Directory) => end,
            _ if expected < found => end,
            _ => expected.next_multiple_of(block),
        };
        if inode.flags.contains(InodeFlags::EA_INODE) && size > LARGEST_ATTRIBUTE {
            // Such a value could not be read: what is mapped there is none.
            delete(inode, work.deletion_time());
            return Ok(());
        }
        inode.size = size;
        Ok(())
    }
}

/// The size of a file that maps blocks of `block` bytes up to byte `end`, and whose field says
/// `found`, which cannot be: what the lower half of that says, where the file ends in its last
/// block by it.
fn end_of_file(found: u64, end: u64, block: u64) -> u64 {
    const LOWER: u64 = 0xffff_ffff;
    let likely = end.saturating_sub(1) & !LOWER | found & LOWER;
    let last_block = end.saturating_sub(block) + 1..=end;
    if last_block.contains(&likely) {
        likely
    } else {
        end
    }
}

/// Whether the inode is for a feature that is off.
fn is_unused_of_feature(volume: &Volume, ino: Ino) -> bool {
    let used = [volume.sb.journal_ino()]
        .into_iter()
        .chain(volume.sb.quota_inodes());
    is_of_feature(ino) && !used.flatten().any(|own| own == ino)
}

fn clear_behind_device(inode: &mut Inode) {
    let is_device = inode.file_type().is_some_and(FileType::is_device);
    let used = match (is_device, le32(&inode.map, 0)) {
        (false, _) => 0,
        (true, 0) => 8,
        (true, _) => 4,
    };
    if let Some(rest) = inode.map.get_mut(used..MAP_BYTES) {
        rest.fill(0);
    }
}

/// Takes away flags that cannot be; turns on the feature that a flag needs whose inode has what it
/// says. `are_read` says that the inode's attributes are sound.
fn flags(
    work: &mut Work<'_>,
    ino: Ino,
    inode: &mut Inode,
    slot: &[u8],
    are_read: bool,
) -> Result<()> {
    const BOTH: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::EXTENTS);
    const INDEXED: InodeFlags = InodeFlags::INLINE_DATA.union(InodeFlags::INDEX);
    // What no other way of reading would follow from, whether the feature is on or not.
    const KEPT: InodeFlags = InodeFlags::VERITY.union(InodeFlags::ENCRYPT);
    let volume = work.volume();
    let judged = inode.clone();
    let subject = subject(volume, ino, &judged, slot);
    // The list of bad blocks has a map without a type.
    let mapped = ino == Ino::BAD_BLOCKS
        || matches!(
            inode.file_type(),
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
    let tree = looks_like_extents(inode) && mapped;
    let inline = mapped && xattr::inline_value(volume, inode, slot).is_some();
    for rule in volume.rules.broken(&subject) {
        let flag = match rule.report {
            Report::Flags => rule.flags,
            Report::UnusedFlags => rule.flags - KEPT,
            _ => continue,
        };
        if subject.class == NumberClass::Resize {
            inode.flags.remove(flag);
        } else if flag == BOTH {
            inode.flags.remove(if tree {
                InodeFlags::INLINE_DATA
            } else {
                InodeFlags::EXTENTS
            });
        } else if flag == INDEXED {
            inode.flags.remove(InodeFlags::INDEX);
        } else if flag == InodeFlags::EXTENTS && tree && !volume.has_incompat(Incompat::EXTENTS) {
            turn_on(work, Incompat::EXTENTS)?;
        } else if flag == InodeFlags::INLINE_DATA
            && inline
            && !volume.has_incompat(Incompat::INLINE_DATA)
        {
            turn_on(work, Incompat::INLINE_DATA)?;
        } else {
            inode.flags.remove(flag);
        }
    }
    let Some(file_type) = inode.file_type() else {
        return Ok(());
    };
    if crate::special::is_text(inode) && !looks_like_extents(inode) {
        inode.flags.remove(InodeFlags::EXTENTS);
    }
    if are_read
        && inode.flags.contains(InodeFlags::ENCRYPT)
        && !matches!(Context::of(volume, inode, slot)?, Context::Policy(_))
    {
        inode.flags.remove(InodeFlags::ENCRYPT);
        if file_type == FileType::Symlink && !crate::special::is_text(inode) {
            // Without its context the target cannot be told any more.
            delete(inode, work.deletion_time());
        }
    }
    if crate::special::lacks_inline_flag(volume, inode, slot) {
        inode.flags.insert(InodeFlags::INLINE_DATA);
    }
    let mapped = crate::special::has_map(volume, inode, file_type)
        && !inode.flags.contains(InodeFlags::INLINE_DATA);
    if mapped && looks_like_extents(inode) && volume.has_incompat(Incompat::EXTENTS) {
        inode.flags.insert(InodeFlags::EXTENTS);
    }
    Ok(())
}

/// Turns on the feature of attribute blocks, for an inode that has one.
fn turn_on_attributes(work: &mut Work<'_>) -> Result<()> {
    let sb = work.superblock()?;
    if sb.has_compat(Compat::EXT_ATTR) {
        return Ok(());
    }
    let sb = sb.with(|raw| {
        let bits = raw.feature_compat.get() | Compat::EXT_ATTR.bits();
        raw.feature_compat.set(bits);
    })?;
    work.put_superblock(&sb)?;
    let text = "the feature ext_attr is on: inodes have attribute blocks";
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    Ok(())
}

/// Turns on the feature of large files, where there are any.
fn turn_on_large_files(work: &mut Work<'_>) -> Result<()> {
    if !work.has(Code::LargeFileFeature) {
        return Ok(());
    }
    let sb = work.superblock()?.with(|raw| {
        let bits = raw.feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
        raw.feature_ro_compat.set(bits);
    })?;
    work.put_superblock(&sb)?;
    let text = "the feature large_file is on";
    work.fix(Code::LargeFileFeature, Place::FILE_SYSTEM, text);
    Ok(())
}

fn turn_on(work: &mut Work<'_>, feature: Incompat) -> Result<()> {
    let sb = work.superblock()?;
    if sb.has_incompat(feature) {
        return Ok(());
    }
    let sb = sb.with(|raw| {
        let bits = raw.feature_incompat.get() | feature.bits();
        raw.feature_incompat.set(bits);
    })?;
    work.put_superblock(&sb)?;
    let text = "the feature is on that inodes need";
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    Ok(())
}

/// Types that the names of inodes and their content contradict: what is a directory by its name and
/// its content is one, and what is none by both is none.
fn types_by_names(work: &mut Work<'_>) -> Result<()> {
    if work.has(Code::RootMissing) {
        retype(work, Ino::ROOT, FileType::Directory)?;
    }
    let mut suspects: HashMap<Ino, u8> = HashMap::new();
    for dir in work.by_inode(&[Code::DirEntryType]).into_keys() {
        let table = &work.survey.table;
        super::entries::each(work.survey, dir, &mut |_, entry| {
            let Some(ino) = entry.ino else { return };
            let kind = entry.file_type.raw();
            let differs = table.get(ino).kind != kind && table.get(ino).is_in_use();
            if differs && (kind == KIND_DIR || table.get(ino).is_dir()) && kind != 0 {
                suspects.insert(ino, kind);
            }
        })?;
    }
    let no_dirs: HashSet<Ino> = work.by_inode(&[Code::DirDot]).into_keys().collect();
    for (ino, kind) in suspects {
        match EntryType::from_raw(kind).file_type() {
            Some(FileType::Directory) => retype(work, ino, FileType::Directory)?,
            Some(other) if no_dirs.contains(&ino) => retype(work, ino, other)?,
            _ => {}
        }
    }
    Ok(())
}

fn retype(work: &mut Work<'_>, ino: Ino, file_type: FileType) -> Result<()> {
    let volume = work.volume();
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    let to_dir = file_type == FileType::Directory;
    let old = inode.mode.bits();
    if inode.file_type() == Some(file_type) || is_really_dir(volume, ino, &inode)? != to_dir {
        return Ok(());
    }
    let mode = Mode::new(file_type, inode.mode.permissions());
    work.edit_inode(ino, |inode, _| {
        inode.mode = mode;
        inode.links = inode.links.max(1);
    })?;
    let text = format!(
        "mode is {:#o}, was {old:#o}: so its names and its content say",
        mode.bits()
    );
    work.fix(Code::InodeMode, Place::ino(ino), text);
    Ok(())
}

/// Gives the flag back to what an encrypted directory names and what has the directory's policy,
/// but does not say that it is encrypted.
fn encrypted_again(work: &mut Work<'_>) -> Result<()> {
    let survey = work.survey;
    let volume = work.volume();
    for dir in work.by_inode(&[Code::DirEntryPolicy]).into_keys() {
        let mut without = Vec::new();
        super::entries::each(survey, dir, &mut |_, entry| {
            without.extend(entry.ino.filter(|ino| survey.policies.of(*ino).is_none()));
        })?;
        for ino in without {
            let Some((slot, inode)) = volume.inode(ino)? else {
                continue;
            };
            let of_dir = survey.policies.of(dir).map(Context::Policy);
            let flagged = inode.flags.contains(InodeFlags::ENCRYPT);
            if flagged || Some(Context::of(volume, &inode, &slot)?) != of_dir {
                continue;
            }
            work.edit_inode(ino, |inode, _| inode.flags.insert(InodeFlags::ENCRYPT))?;
            let text = "it is encrypted: it has the policy of its directory";
            work.fix(Code::DirEntryPolicy, Place::ino(ino), text);
        }
    }
    Ok(())
}
