//! Checks of one inode by itself: mode, flags, size, block count, times, its map and its
//! attributes.

use crate::bytes::{le16, le32};
use crate::claims::InodeClaims;
use crate::encryption::Context;
use crate::error::Result;
use crate::inode_table::{Summary, kind_of};
use crate::maps::{self, Piece, Run};
use crate::report::Sink;
use crate::scan::{Scan, XattrReference};
use crate::volume::Volume;
use crate::{Code, Place, garbage, special, xattr};
use extant_format::checksum::Crc32c;
use extant_format::features::{Compat, Incompat, RoCompat};
use extant_format::inode::rules::{Inline, Report, Rule, Subject, looks_like_extents};
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES};
use extant_format::{Expected, Ino};
use std::collections::HashSet;

/// Types and permissions.
const MODE_AT: usize = 0;
const UID_AT: usize = 2;
const GID_AT: usize = 24;
const LINKS_AT: usize = 26;
const DTIME_AT: usize = 20;
const FRAGMENT_AT: usize = 0x70;
const SIZE_LO_AT: usize = 4;
const SIZE_HI_AT: usize = 0x6c;
const BLOCKS_HI_AT: usize = 0x74;
const FILE_ACL_HI_AT: usize = 0x76;

/// Checks inodes.
pub(crate) struct Checker<'a> {
    pub(crate) volume: &'a Volume,
    orphans: &'a HashSet<Ino>,
    first_ino: Ino,
    journal: Option<Ino>,
    orphan_file: Option<Ino>,
    quotas: [Option<Ino>; 3],
    keeps_usage: bool,
    /// The machine that wrote here had a clock: times are larger than numbers of inodes.
    knows_time: bool,
}

/// What the map of an inode holds.
#[derive(Debug, Default)]
struct Tally {
    claims: InodeClaims,
    /// One past the last mapped block.
    end: u64,
    /// The last block that is not unwritten.
    last_written: Option<u64>,
    misaligned: Option<Run>,
    /// The first run that begins inside a cluster of the file whose blocks before it lie in another
    /// one.
    split: Option<Run>,
    unwritten: bool,
    pieces: Pieces,
}

/// Whether the blocks of a file follow each other on the device, as e2fsck sees it: holes do not
/// count, and nor do blocks of extent trees.
#[derive(Debug, Default)]
struct Pieces {
    /// The block behind the last one so far.
    end: Option<u64>,
    blocks: u64,
    are_apart: bool,
}

impl Pieces {
    fn add(&mut self, first: u64, len: u64) {
        self.are_apart |= self.end.is_some_and(|end| end != first);
        self.end = Some(first + len);
        self.blocks += len;
    }
}

impl<'a> Checker<'a> {
    pub(crate) fn new(volume: &'a Volume, orphans: &'a HashSet<Ino>) -> Self {
        let sb = &volume.sb;
        Self {
            volume,
            orphans,
            first_ino: sb.first_ino(),
            journal: sb.journal_ino(),
            orphan_file: sb.orphan_file_ino(),
            quotas: sb.quota_inodes(),
            keeps_usage: volume.has_ro_compat(RoCompat::QUOTA),
            knows_time: {
                let inodes = u64::from(volume.geo.inodes_count());
                let is_time = |seconds: u64| seconds == 0 || seconds >= inodes;
                sb.write_time() >= inodes && is_time(sb.mount_time()) && is_time(sb.mkfs_time())
            },
        }
    }

    /// Checks the inode in `slot`, and says what is to be remembered of it.
    pub(crate) fn inode(&self, ino: Ino, slot: &[u8], scan: &mut Scan) -> Result<Summary> {
        let (mode, links) = (le16(slot, MODE_AT), le16(slot, LINKS_AT));
        let orphan = self.orphans.contains(&ino);
        let reserved = ino < self.first_ino && ino != Ino::ROOT;
        if links == 0 && !orphan && !reserved {
            self.lost_orphan(ino, slot, scan);
            self.unused(ino, slot, scan);
            if mode != 0 && le32(slot, DTIME_AT) == 0 {
                let text =
                    "a deleted inode without a time of deletion, and not in the list of orphans";
                scan.sink
                    .say(Code::InodeDeletedUndated, Place::ino(ino), text);
            }
            return Ok(Summary::default());
        }
        if slot.iter().all(|byte| *byte == 0) {
            if ino == Ino::RESIZE && self.volume.has_compat(Compat::RESIZE_INODE) {
                let text = "the inode is all zeros";
                scan.sink.say(Code::ResizeInode, Place::ino(ino), text);
            }
            // Reserved numbers are in use, whatever is there.
            return Ok(if reserved {
                Summary::in_use(0, 0).nameless(true)
            } else {
                Summary::default()
            });
        }
        let place = Place::ino(ino);
        if !self.belongs_to_file_system(ino)
            && ino != Ino::ROOT
            && let Some(count) = garbage::contradictions(self.volume, ino, slot)
        {
            let sum = match self.volume.seed {
                Some(_) => "the checksum is wrong, and ",
                None => "",
            };
            let text = format!("{sum}{count} fields contradict others: it is garbage");
            scan.sink.say(Code::InodeGarbage, place, text);
            return Ok(Summary::default());
        }
        let parsed = self.volume.parse_inode(slot, ino, &mut |e| {
            let code = if e.is_checksum() {
                Code::InodeChecksum
            } else {
                Code::InodeExtraSize
            };
            scan.sink.format(code, place, e);
        });
        let Some(inode) = parsed else {
            return Ok(Summary::in_use(links, 0));
        };
        if reserved {
            self.reserved(ino, &inode, slot, scan)?;
            return Ok(Summary::in_use(links, 0).nameless(true));
        }
        self.general(ino, &inode, slot, orphan, scan)?;
        let flags = inode.flags;
        Ok(Summary::in_use(links, kind_of(inode.file_type()))
            .ea_inode(flags.contains(InodeFlags::EA_INODE))
            .orphan(orphan)
            .indexed(flags.contains(InodeFlags::INDEX))
            .nameless(self.belongs_to_file_system(ino)))
    }

    /// Checks the checksum of an inode that is not in use, unless the inode never was.
    fn unused(&self, ino: Ino, slot: &[u8], scan: &mut Scan) {
        if self.volume.seed.is_some() && slot.iter().any(|byte| *byte != 0) {
            self.volume.parse_inode(slot, ino, &mut |e| {
                if e.is_checksum() {
                    scan.sink.format(Code::InodeChecksum, Place::ino(ino), e);
                }
            });
        }
    }

    /// Whether what stands in the place of a time of deletion is a number of an inode: the next one
    /// of a list.
    fn lost_orphan(&self, ino: Ino, slot: &[u8], scan: &mut Scan) {
        let dtime = le32(slot, DTIME_AT);
        if self.knows_time && dtime != 0 && dtime < self.volume.geo.inodes_count() {
            let text = format!(
                "time of deletion {dtime} is the number of an inode: it was in a list of orphans, and is in none"
            );
            scan.sink
                .say(Code::InodeDeletionTime, Place::ino(ino), text);
        }
    }

    /// Whether the inode has a use of its own and no name.
    fn belongs_to_file_system(&self, ino: Ino) -> bool {
        let reserved = ino < self.first_ino && ino != Ino::ROOT;
        reserved || self.orphan_file == Some(ino) || self.quotas.contains(&Some(ino))
    }

    fn reserved(&self, ino: Ino, inode: &Inode, slot: &[u8], scan: &mut Scan) -> Result<()> {
        let place = Place::ino(ino);
        let own_file = self.journal == Some(ino) || self.quotas.contains(&Some(ino));
        if own_file {
            if inode.file_type() != Some(FileType::Regular) {
                let (mode, regular) = (inode.mode.bits(), FileType::Regular.mode_bits());
                scan.sink
                    .number(Code::InodeMode, place, "mode", mode, regular);
            }
            return self.general(ino, inode, slot, false, scan);
        }
        self.lost_orphan(ino, slot, scan);
        self.rules(ino, inode, slot, false, scan);
        if ino == Ino::RESIZE && self.volume.has_compat(Compat::RESIZE_INODE) {
            if inode.file_acl.get() != 0 {
                let text = "the inode that keeps room for descriptors has attributes";
                scan.sink.say(Code::InodeReserved, place, text);
            }
            return special::resize_inode(self.volume, inode, scan);
        }
        if ino == Ino::BAD_BLOCKS {
            let owned = le16(slot, UID_AT) != 0 || le16(slot, GID_AT) != 0;
            let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
            let has_more = inode.mode.bits() != 0 || inode.links != 0 || owned || inline;
            if has_more || inode.file_acl.get() != 0 {
                let text =
                    "the list of bad blocks has a mode, links, an owner, inline data or attributes";
                scan.sink.say(Code::InodeReserved, place, text);
            }
            // The count of this inode is not kept.
            self.map(ino, inode, scan)?;
            return Ok(());
        }
        if is_of_feature(ino) {
            if holds_something(inode) {
                let text = "the feature that the inode is for is off, and it holds something";
                scan.sink.say(Code::InodeReserved, place, text);
            }
            return Ok(());
        }
        let wrong = if ino == Ino::BOOT_LOADER {
            inode.file_type() == Some(FileType::Directory)
        } else {
            inode.mode.bits() != 0
        };
        if wrong {
            let mode = inode.mode.bits();
            scan.sink.number(Code::InodeMode, place, "mode", mode, 0u64);
        }
        // Of an inode without a type the high half of the size is read by e2fsck alone.
        let size = u64::from(le32(slot, SIZE_LO_AT)) | u64::from(le32(slot, SIZE_HI_AT)) << 32;
        if inode.size != size && size > self.volume.rules.largest_size(inode) {
            let found = size >> 32;
            let what = "high half of the size";
            scan.sink
                .number(Code::InodeReserved, place, what, found, 0u64);
        }
        // What an inode without a type has in its map leads nowhere.
        let mut clusters = match inode.file_type() {
            Some(file_type) if special::has_map(self.volume, inode, file_type) => {
                let tally = self.map(ino, inode, scan)?;
                if file_type == FileType::Regular {
                    self.check_size(place, file_type, inode, &tally, scan);
                }
                tally.claims.clusters
            }
            _ => 0,
        };
        clusters += u64::from(self.xattr_block(ino, inode, scan));
        self.check_blocks(ino, inode, clusters, scan);
        Ok(())
    }

    /// Checks that apply to every inode that holds something.
    fn general(
        &self,
        ino: Ino,
        inode: &Inode,
        slot: &[u8],
        orphan: bool,
        scan: &mut Scan,
    ) -> Result<()> {
        let place = Place::ino(ino);
        let Some(file_type) = inode.file_type() else {
            let mode = inode.mode.bits();
            let text = format!("mode {mode:#o} names no file type");
            scan.sink.say(Code::InodeMode, place, text);
            return Ok(());
        };
        if inode.dtime != 0 && !orphan {
            let (what, found) = ("time of deletion", inode.dtime);
            scan.sink
                .number(Code::InodeDeletionTime, place, what, found, 0u64);
        }
        self.fixed_fields(place, file_type, slot, scan);
        self.rules(ino, inode, slot, orphan, scan);
        // The journal is not read as a file.
        if inode.flags.contains(InodeFlags::ENCRYPT) && self.journal != Some(ino) {
            self.encryption(ino, inode, slot, scan)?;
        }
        let inline = inode.flags.contains(InodeFlags::INLINE_DATA)
            && self.volume.has_incompat(Incompat::INLINE_DATA);
        let mut clusters = 0;
        let mut cost =
            xattr::in_inode(self.volume, ino, inode, slot, &mut scan.sink, &mut scan.ea)?;
        if special::lacks_inline_flag(self.volume, inode, slot) {
            let text = "the content lies in the inode, but the flags do not say so";
            scan.sink.say(Code::InodeFlags, place, text);
        }
        if inline {
            special::inline_data(self.volume, ino, inode, slot, &mut scan.sink);
            if ino == Ino::ROOT && inode.blocks == 0 {
                let text = "the root directory has no block, and Linux mounts none without";
                scan.sink.say(Code::InlineData, place, text);
            }
        } else if special::has_map(self.volume, inode, file_type) {
            let tally = self.map(ino, inode, scan)?;
            clusters = tally.claims.clusters;
            let flagged = inode.flags.contains(InodeFlags::EXTENTS);
            if clusters > 0 && !flagged && self.volume.has_ro_compat(RoCompat::BIGALLOC) {
                let text = "the map is no extent tree, and bigalloc knows no other";
                scan.sink.say(Code::InodeFlags, place, text);
            }
            // Files that wait to be deleted or cut are cut already by their size.
            if !orphan {
                self.check_size(place, file_type, inode, &tally, scan);
            }
            if file_type == FileType::Symlink && !orphan {
                special::slow_symlink(self.volume, ino, inode, &mut scan.sink)?;
            }
        } else if file_type == FileType::Symlink {
            if !orphan {
                special::fast_symlink(self.volume, place, inode, &mut scan.sink);
            }
        } else {
            special::device(place, file_type, inode, &mut scan.sink);
        }
        if self.xattr_block(ino, inode, scan) {
            clusters += 1;
            cost.add(xattr::cost_of_block(self.volume, inode.file_acl)?);
        }
        clusters += cost.clusters;
        self.check_blocks(ino, inode, clusters, scan);
        self.charge(ino, inode, clusters, 1 + cost.inodes, scan);
        Ok(())
    }

    /// Takes note of the policy of an encrypted inode.
    fn encryption(&self, ino: Ino, inode: &Inode, slot: &[u8], scan: &mut Scan) -> Result<()> {
        let text = match Context::of(self.volume, inode, slot)? {
            Context::Policy(policy) => {
                scan.policies.note(ino, policy);
                return Ok(());
            }
            Context::Missing => "the file is said to be encrypted, but has no encryption context",
            Context::Malformed => {
                "the file is said to be encrypted, but its encryption context is none"
            }
        };
        scan.sink.say(Code::InodeFlags, Place::ino(ino), text);
        Ok(())
    }

    fn fixed_fields(&self, place: Place, file_type: FileType, slot: &[u8], scan: &mut Scan) {
        let mut zero = |what, found: u32| {
            if found != 0 {
                scan.sink
                    .number(Code::InodeReserved, place, what, found, 0u64);
            }
        };
        zero("fragment address", le32(slot, FRAGMENT_AT));
        let wide_size = file_type == FileType::Regular
            || (file_type == FileType::Directory && self.volume.has_incompat(Incompat::LARGEDIR));
        if !wide_size {
            zero("high half of the size", le32(slot, SIZE_HI_AT));
        }
        if !self.volume.has_ro_compat(RoCompat::HUGE_FILE) {
            let found = le16(slot, BLOCKS_HI_AT).into();
            zero("high half of the block count", found);
        }
        if !self.volume.has_incompat(Incompat::BIT64) {
            let found = le16(slot, FILE_ACL_HI_AT).into();
            zero("high half of the attribute block", found);
        }
        let extra = usize::from(le16(slot, 128));
        for (what, at) in [
            ("ctime", 0x84),
            ("mtime", 0x88),
            ("atime", 0x8c),
            ("crtime", 0x94),
        ] {
            let nanos = le32(slot, at) >> 2;
            if slot.len() > 128 && at + 4 <= 128 + extra && nanos > 999_999_999 {
                let text = format!("{what} has {nanos} nanoseconds");
                scan.sink.say(Code::InodeTime, place, text);
            }
        }
    }

    /// Says which rules about fields the inode breaks.
    fn rules(&self, ino: Ino, inode: &Inode, slot: &[u8], orphan: bool, scan: &mut Scan) {
        if self.volume.rules.is_faultless(ino, inode) {
            return;
        }
        let place = Place::ino(ino);
        let subject = subject(self.volume, ino, inode, slot);
        for rule in self.volume.rules.broken(&subject) {
            let sink = &mut scan.sink;
            match rule.report {
                Report::Flags | Report::UnusedFlags => {
                    let code = match rule.report {
                        Report::Flags => Code::InodeFlags,
                        _ => Code::InodeFlagsUnused,
                    };
                    let bits = (inode.flags & rule.flags).bits();
                    let text = match bits {
                        0 => rule.wrong.to_owned(),
                        bits => format!("flag {bits:#x} {}", rule.wrong),
                    };
                    sink.say(code, place, text);
                }
                // Files that wait to be deleted or cut are cut already by their size.
                Report::Size if !orphan => number(Code::InodeSize, place, rule, &subject, sink),
                Report::Symlink if !orphan => number(Code::Symlink, place, rule, &subject, sink),
                Report::InlineData => sink.say(Code::InlineData, place, rule.wrong),
                Report::LargeFile => scan.needs_large_file = true,
                // Of types it is said before, of blocks with them, and the walks come later.
                Report::Size | Report::Symlink => {}
                Report::Mode | Report::AttributeBlock | Report::Walk => {}
            }
        }
        let is_flagged = inode.flags.contains(InodeFlags::EXTENTS);
        if is_flagged && special::is_text(inode) && !looks_like_extents(inode) {
            let text = "the map is the target of a symbolic link, but the flags say that it is an extent tree";
            scan.sink.say(Code::InodeFlags, place, text);
        }
    }

    /// Walks the map, claims its blocks and sums it up.
    fn map(&self, ino: Ino, inode: &Inode, scan: &mut Scan) -> Result<Tally> {
        let mut tally = Tally::default();
        if scan.abandoned {
            return Ok(tally);
        }
        let volume = self.volume;
        let ratio = volume.cluster_ratio();
        let has_extents = inode.flags.contains(InodeFlags::EXTENTS);
        let Scan { sink, claims, .. } = scan;
        // The last cluster so far: of the file, and on the device.
        let mut split: Option<(u64, u64)> = None;
        maps::walk(volume, ino, inode, sink, &mut |piece| match piece {
            Piece::Node(block) => {
                tally.claims.node();
                let cluster = volume.cluster_of(block.get());
                claims.claim(cluster..cluster + 1);
                if !has_extents {
                    tally.pieces.add(block.get(), 1);
                }
            }
            Piece::Data(run) => {
                let (lblk, len) = (u64::from(run.lblk), u64::from(run.len));
                tally.pieces.add(run.pblk, len);
                tally.end = tally.end.max(lblk + len);
                if run.unwritten {
                    tally.unwritten = true;
                } else {
                    let last = lblk + len - 1;
                    tally.last_written = Some(tally.last_written.unwrap_or(0).max(last));
                }
                if ratio > 1 && run.pblk % ratio != lblk % ratio {
                    tally.misaligned.get_or_insert(run);
                }
                let (first, last) = (volume.cluster_of(run.pblk), lblk + len - 1);
                if ratio > 1 && split.is_some_and(|end| end.0 == lblk / ratio && end.1 != first) {
                    tally.split.get_or_insert(run);
                }
                split = Some((last / ratio, volume.cluster_of(run.pblk + len - 1)));
                let clusters = volume.clusters_of(run.pblk..run.pblk + len);
                claims.claim(tally.claims.data(clusters, lblk / ratio));
            }
        })?;
        let per_group = u64::from(volume.geo.blocks_per_group());
        let Pieces {
            blocks, are_apart, ..
        } = tally.pieces;
        if are_apart && blocks < per_group && ino != Ino::RESIZE {
            scan.totals.fragmented += 1;
        }
        let sink = &mut scan.sink;
        if let Some(run) = tally.misaligned {
            let place = Place::ino(ino).at_lblk(maps::lblk(run.lblk.into()));
            let what = "place inside its cluster";
            sink.number(
                Code::ExtentMisaligned,
                place,
                what,
                run.pblk % ratio,
                u64::from(run.lblk) % ratio,
            );
        }
        if let Some(run) = tally.split {
            let place = Place::ino(ino).at_lblk(maps::lblk(run.lblk.into()));
            let text = "the blocks of one cluster of the file lie in two clusters";
            sink.say(Code::ExtentMisaligned, place, text);
        }
        // A sound file system claims every cluster once.
        let claimed = claims.total() - scan.claimed_before;
        if claimed > volume.geo.clusters_count().saturating_mul(4) + (1 << 16) {
            scan.abandoned = true;
            let text = "most blocks are claimed many times over: further maps were not looked at";
            scan.sink.say(Code::ClaimsAbandoned, Place::ino(ino), text);
        }
        Ok(tally)
    }

    fn check_size(
        &self,
        place: Place,
        file_type: FileType,
        inode: &Inode,
        tally: &Tally,
        scan: &mut Scan,
    ) {
        let size = u64::from(self.volume.block_size().bytes());
        match file_type {
            FileType::Directory if tally.end > special::dir_blocks_max(self.volume) => {
                let most = special::dir_blocks_max(self.volume);
                let what = "blocks up to the last one that the directory maps";
                scan.sink
                    .number(Code::DirTooLarge, place, what, tally.end, most);
            }
            FileType::Directory => {
                if tally.unwritten {
                    let text = "a directory has unwritten blocks";
                    scan.sink.say(Code::InodeSize, place, text);
                }
                let expected = tally.end * size;
                if inode.size != expected || inode.size == 0 {
                    let expected = expected.max(size);
                    scan.sink
                        .number(Code::InodeSize, place, "size", inode.size, expected);
                }
            }
            FileType::Regular => {
                let past_end = tally.last_written.unwrap_or(0) * size;
                let allowed = inode.flags.contains(InodeFlags::VERITY);
                if past_end > inode.size && !allowed {
                    let expected = past_end + 1;
                    scan.sink
                        .number(Code::InodeSize, place, "size", inode.size, expected);
                }
            }
            _ => {}
        }
    }

    /// Takes note of the attribute block; returns whether there is one.
    fn xattr_block(&self, ino: Ino, inode: &Inode, scan: &mut Scan) -> bool {
        let block = inode.file_acl;
        if block.get() == 0 {
            return false;
        }
        // What else the inode says does not matter here.
        let subject = self.volume.rules.subject(ino, inode, Inline::Unknown);
        let mut broken = self.volume.rules.broken(&subject);
        if broken.any(|rule| rule.report == Report::AttributeBlock) {
            let most = self.volume.geo.blocks_count() - 1;
            let place = Place::ino(ino);
            let what = "attribute block";
            scan.sink
                .number(Code::XattrLocation, place, what, block.get(), most);
            return false;
        }
        let reference = XattrReference { count: 1, ino };
        scan.refer_to_xattr_block(block, reference);
        true
    }

    fn check_blocks(&self, ino: Ino, inode: &Inode, clusters: u64, scan: &mut Scan) {
        if scan.abandoned {
            return;
        }
        let block_size = self.volume.block_size();
        let expected = (clusters * self.volume.cluster_ratio()) << (block_size.log2() - 9);
        let huge = self.volume.has_ro_compat(RoCompat::HUGE_FILE);
        let found = if huge {
            inode.sectors(block_size)
        } else {
            inode.blocks
        };
        let expected = if huge {
            expected
        } else {
            expected & 0xffff_ffff
        };
        if found != expected {
            let what = "count of 512-byte blocks";
            scan.sink
                .number(Code::InodeBlocks, Place::ino(ino), what, found, expected);
        }
    }

    /// Adds the inode to what its owners use.
    fn charge(&self, ino: Ino, inode: &Inode, clusters: u64, inodes: u64, scan: &mut Scan) {
        let own = self.belongs_to_file_system(ino);
        if !self.keeps_usage || own || inode.flags.contains(InodeFlags::EA_INODE) {
            return;
        }
        let bytes = (clusters * self.volume.cluster_ratio()) << self.volume.block_size().log2();
        let ids = [inode.uid, inode.gid, inode.project.unwrap_or(0)];
        let is_inline = inode.flags.contains(InodeFlags::INLINE_DATA);
        let is_inline_link = is_inline && inode.file_type() == Some(FileType::Symlink);
        for (usages, id) in scan.usages.iter_mut().zip(ids) {
            let usage = usages.entry(id).or_default();
            usage.bytes = usage.bytes.saturating_add(bytes);
            usage.inodes = usage.inodes.saturating_add(inodes);
            usage.inline_links += u64::from(is_inline_link);
        }
    }
}

/// Whether a reserved number is that of the journal or of a quota file.
pub(crate) fn is_of_feature(ino: Ino) -> bool {
    [Ino::JOURNAL, Ino::USER_QUOTA, Ino::GROUP_QUOTA].contains(&ino)
}

/// Whether an inode without a use is not as good as empty.
fn holds_something(inode: &Inode) -> bool {
    inode.links != 0 || inode.blocks as u32 != 0 || le32(&inode.map, 0) != 0
}

/// Says a rule whose field has a number that would be right, or why there is none.
fn number(code: Code, place: Place, rule: &Rule, subject: &Subject<'_>, sink: &mut Sink) {
    let found = (rule.found)(subject);
    match (rule.expected)(subject) {
        Expected::Exactly(right) | Expected::AtMost(right) => {
            sink.number(code, place, rule.field, found, right);
        }
        _ => sink.say(code, place, rule.wrong),
    }
}

/// An inode, with what the rules about fields ask of it.
pub(crate) fn subject<'a>(
    volume: &'a Volume,
    ino: Ino,
    inode: &'a Inode,
    slot: &[u8],
) -> Subject<'a> {
    let inline = match xattr::inline_value(volume, inode, slot) {
        Some(rest) => Inline::Stored((MAP_BYTES + rest.len()) as u64),
        None => Inline::Missing,
    };
    volume.rules.subject(ino, inode, inline)
}

/// The seed of the file system's own checksums, as attribute blocks use it.
pub(crate) fn fs_seed(volume: &Volume) -> Crc32c {
    Crc32c::seeded(volume.sb.checksum_seed())
}
