//! `dumpe2fs`.

use super::log::Log;
use super::place::Place;
use super::{bad_blocks, getopt, header, usage, version};
use crate::commands::info::free_runs;
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, whole_image};
use crate::output::Output;
use extant::Escaped;
use extant_core::fs::Fs;
use extant_format::features::{Incompat, RoCompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::jbd2::IncompatFeatures;
use extant_format::mmp::MmpBlock;
use extant_format::{Group, Pblk, bitmap};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::ops::Range;

/// How it is called.
const USAGE: &str = "Usage: dumpe2fs [-bfhxV] device";

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> Outcome {
    let line = getopt::read("bfghimxVo:", args)?;
    version("dumpe2fs");
    let (mut is_short, mut is_hex, mut only_bad) = (false, false, false);
    for (letter, _) in line.options {
        let why = match letter {
            'V' => return Ok(()),
            'h' => {
                is_short = true;
                continue;
            }
            'x' => {
                is_hex = true;
                continue;
            }
            'b' => {
                only_bad = true;
                continue;
            }
            // What is there is shown, forced or not.
            'f' => continue,
            'g' => "`extant info --json --groups` is for programs",
            'i' => "images of e2image are not read",
            'm' => "whether it is in use is not waited for",
            'o' => "`extant info --superblock BLOCK` reads by a backup",
            _ => return Err(usage(USAGE)),
        };
        return Err(Failure::usage(format!("-{letter}: {why}")));
    }
    let mut operands = line.operands.into_iter();
    let place = Place::of(operands.next().ok_or_else(|| usage(USAGE))?)?;
    if operands.next().is_some() {
        return Err(usage(USAGE));
    }
    let mut location = place.location.clone();
    location.as_is = true;
    let from = ImagePath::root_of(whole_image(place.image())?);
    let fs = from.open(&location)?;
    let fs = fs.engine();
    let failed = |e: &dyn Display| Failure::new(format!("{}: {e}", place.shown()));
    let mut output = Output::new();
    if only_bad {
        let shown = bad_blocks::each(fs, &mut |block| writeln!(output, "{block}"));
        shown.map_err(|e| failed(&e))?;
        return output.finish();
    }
    header::write(&mut output, fs.superblock())?;
    journal(&mut output, fs).map_err(|e| failed(&e))?;
    mmp(&mut output, fs).map_err(|e| failed(&e))?;
    let mut lead = "Bad blocks: ";
    let shown = bad_blocks::each(fs, &mut |block| {
        write!(output, "{}{block}", std::mem::replace(&mut lead, ", "))
    });
    shown.map_err(|e| failed(&e))?;
    writeln!(output)?;
    if !is_short {
        writeln!(output)?;
        for group in fs.geometry().groups() {
            let shown = Shown { fs, is_hex };
            shown.group(&mut output, group).map_err(|e| failed(&e))?;
        }
    }
    output.finish()
}

/// Why something cannot be shown.
type Shows<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The journal's own superblock.
fn journal(output: &mut dyn Write, fs: &Fs) -> Shows {
    let Some(Log {
        superblock: log,
        record,
        size,
    }) = Log::read(fs)?
    else {
        return Ok(());
    };
    let field = |output: &mut dyn Write, name: &str, value: &dyn Display| {
        let name = format!("{name}:");
        writeln!(output, "{name:<25} {value}")
    };
    let compat = log.compat.iter_names().count();
    let mut names: Vec<String> = Vec::new();
    if compat > 0 {
        names.push("journal_checksum".to_owned());
    }
    for bit in (0..32).map(|at| 1 << at) {
        if log.incompat.bits() & bit != 0 {
            let name = IncompatFeatures::bit_name(bit).map(str::to_owned);
            names.push(name.unwrap_or_else(|| format!("FEATURE_I{}", bit.trailing_zeros())));
        }
    }
    let names = if names.is_empty() {
        "(none)".to_owned()
    } else {
        names.join(" ")
    };
    field(output, "Journal features", &names)?;
    let kib = size / 1024;
    field(output, "Total journal size", &format!("{kib}k"))?;
    let fast = log.fast_commit_blocks;
    field(output, "Total journal blocks", &log.max_len)?;
    let length = log.max_len.saturating_sub(fast);
    field(output, "Max transaction length", &length)?;
    field(output, "Fast commit length", &fast)?;
    let sequence = format!("0x{:08x}", log.sequence.get());
    field(output, "Journal sequence", &sequence)?;
    field(output, "Journal start", &log.start)?;
    if log.v2 && log.users_count != 1 {
        field(output, "Journal number of users", &log.users_count)?;
    }
    if log.checksum_type == 4 {
        field(output, "Journal checksum type", &"crc32c")?;
        let stored = record.get(0xFC..0x100).unwrap_or_default();
        let stored = stored
            .iter()
            .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        field(output, "Journal checksum", &format!("0x{stored:08x}"))?;
    }
    if log.errno != 0 {
        field(output, "Journal errno", &log.errno)?;
    }
    Ok(())
}

/// Multiple-mount protection.
fn mmp(output: &mut dyn Write, fs: &Fs) -> Shows {
    let sb = fs.superblock();
    let Some(at) = sb.mmp_block().filter(|_| sb.has_incompat(Incompat::MMP)) else {
        return Ok(());
    };
    let mut block = vec![0; fs.block_size().len()];
    let offset = fs.block_size().offset_of(at).unwrap_or(u64::MAX);
    fs.device().read_at(offset, &mut block)?;
    let seed = sb.has_metadata_csum().then(|| sb.checksum_seed());
    let found = MmpBlock::parse(&block, seed.map(extant_format::checksum::Crc32c::seeded))?;
    writeln!(output, "MMP_block:")?;
    writeln!(output, "    mmp_magic: 0x4d4d50")?;
    writeln!(output, "    mmp_check_interval: {}", found.check_interval)?;
    let sequence = found.state.sequence();
    writeln!(output, "    mmp_sequence: {sequence:#08x}")?;
    writeln!(output, "    mmp_update_date: {}", header::date(found.time))?;
    writeln!(output, "    mmp_update_time: {}", found.time)?;
    let name = |field: &[u8]| {
        let end = field.iter().position(|byte| *byte == 0);
        let name = field.get(..end.unwrap_or(field.len()));
        Escaped(name.unwrap_or_default()).to_string()
    };
    writeln!(output, "    mmp_node_name: {}", name(&found.node_name))?;
    let device = name(&found.device_name);
    Ok(writeln!(output, "    mmp_device_name: {device}")?)
}

/// How groups are shown.
struct Shown<'f> {
    fs: &'f Fs,
    is_hex: bool,
}

impl Shown<'_> {
    fn number(&self, number: u64) -> String {
        match (
            self.is_hex,
            self.fs.superblock().has_incompat(Incompat::BIT64),
        ) {
            (true, true) => format!("0x{number:08x}"),
            (true, false) => format!("0x{number:04x}"),
            (false, _) => number.to_string(),
        }
    }

    fn range(&self, range: Range<u64>) -> String {
        let last = range.end.saturating_sub(1);
        format!("{}-{}", self.number(range.start), self.number(last))
    }

    fn geometry(&self) -> &Geometry {
        self.fs.geometry()
    }

    fn group(&self, output: &mut dyn Write, group: Group) -> Shows {
        let geometry = self.geometry();
        let desc = self.fs.group(group)?;
        let sb = self.fs.superblock();
        let first = geometry.group_first_block(group)?.get();
        let end = first + u64::from(geometry.blocks_in_group(group)?);
        write!(output, "Group {}: ", group.get())?;
        write!(output, "(Blocks {})", self.range(first..end))?;
        let has_checksums = sb.has_metadata_csum() || sb.has_ro_compat(RoCompat::GDT_CSUM);
        if has_checksums {
            write!(output, " csum 0x{:04x}", self.stored_checksum(group)?)?;
        }
        let flags: Vec<&str> = [
            (GroupFlags::INODE_UNINIT, "INODE_UNINIT"),
            (GroupFlags::BLOCK_UNINIT, "BLOCK_UNINIT"),
            (GroupFlags::INODE_ZEROED, "ITABLE_ZEROED"),
        ]
        .into_iter()
        .filter(|(flag, _)| has_checksums && desc.flags.contains(*flag))
        .map(|(_, name)| name)
        .collect();
        if !flags.is_empty() {
            write!(output, " [{}]", flags.join(", "))?;
        }
        writeln!(output)?;
        self.copies(output, group)?;
        self.places(output, &desc, first..end)?;
        let units = if geometry.cluster_bits() > 0 {
            "clusters"
        } else {
            "blocks"
        };
        let (blocks, inodes, dirs) = (desc.free_clusters, desc.free_inodes, desc.used_dirs);
        write!(
            output,
            "  {blocks} free {units}, {inodes} free inodes, {dirs} directories"
        )?;
        if desc.itable_unused != 0 {
            write!(output, ", {} unused inodes", desc.itable_unused)?;
        }
        writeln!(output)?;
        self.free(output, group, &desc, first)
    }

    /// The checksum of a descriptor, as it is stored.
    fn stored_checksum(&self, group: Group) -> Shows<u16> {
        let (block, at) = self.geometry().desc_position(group)?;
        let offset = self.fs.block_size().offset_of(block).unwrap_or(u64::MAX);
        let mut stored = [0; 2];
        let at = offset.saturating_add(u64::from(at) + 0x1e);
        self.fs.device().read_at(at, &mut stored)?;
        Ok(u16::from_le_bytes(stored))
    }

    /// The copies of superblock and descriptors that a group has.
    fn copies(&self, output: &mut dyn Write, group: Group) -> Shows {
        let sb = self.fs.superblock();
        let header = self.geometry().group_header(group)?;
        let per_block = self.geometry().descs_per_block().max(1);
        let is_meta = sb.has_incompat(Incompat::META_BG)
            && group.get() / per_block >= sb.raw().first_meta_bg.get();
        if let Some(at) = header.super_block {
            let which = if group.get() == 0 {
                "Primary"
            } else {
                "Backup"
            };
            let at = self.number(at.get());
            write!(output, "  {which} superblock at {at}")?;
        }
        let has_descs = !header.descs.is_empty();
        if has_descs && is_meta {
            let lead = if header.super_block.is_some() {
                ", "
            } else {
                "  "
            };
            let at = self.number(header.descs.start);
            write!(output, "{lead}Group descriptor at {at}")?;
        } else if has_descs {
            let range = self.range(header.descs);
            write!(output, ", Group descriptors at {range}")?;
            if !header.reserved_gdt.is_empty() {
                let range = self.range(header.reserved_gdt);
                write!(output, "\n  Reserved GDT blocks at {range}")?;
            }
        }
        if has_descs || header.super_block.is_some() {
            writeln!(output)?;
        }
        Ok(())
    }

    /// Where bitmaps and the inode table lie.
    fn places(&self, output: &mut dyn Write, desc: &GroupDesc, group: Range<u64>) -> Shows {
        let has_checksums = self.fs.superblock().has_metadata_csum();
        for (what, at, checksum) in [
            ("Block", desc.block_bitmap, desc.block_bitmap_csum),
            ("Inode", desc.inode_bitmap, desc.inode_bitmap_csum),
        ] {
            let number = self.number(at.get());
            write!(output, "  {what} bitmap at {number}")?;
            self.relative(output, at, &group, false)?;
            if has_checksums {
                write!(output, ", csum 0x{checksum:08x}")?;
            }
            writeln!(output)?;
        }
        let table = desc.inode_table.get();
        let end = table.saturating_add(self.geometry().inode_table_blocks().into());
        write!(output, "  Inode table at {}", self.range(table..end))?;
        self.relative(output, desc.inode_table, &group, true)?;
        Ok(writeln!(output)?)
    }

    /// Where a block lies in its group, or in which other group.
    fn relative(
        &self,
        output: &mut dyn Write,
        at: Pblk,
        group: &Range<u64>,
        is_table: bool,
    ) -> io::Result<()> {
        if group.contains(&at.get()) {
            let offset = at.get() - group.start;
            if is_table && offset == 0 {
                return Ok(());
            }
            return write!(output, " (+{offset})");
        }
        let geometry = self.geometry();
        let Ok((other, offset)) = geometry.split_block(at) else {
            return Ok(());
        };
        if geometry.has_flex_bg() {
            write!(output, " (bg #{} + {offset})", other.get())?;
        }
        Ok(())
    }

    /// What is free in a group, by its bitmaps.
    fn free(&self, output: &mut dyn Write, group: Group, desc: &GroupDesc, first: u64) -> Shows {
        let bits = self.geometry().cluster_bits();
        let runs = free_runs(self.fs, group)?;
        let place = |cluster: u32| (u64::from(cluster) << bits) + first;
        let blocks: Vec<String> = runs
            .into_iter()
            .map(|run| self.run(place(run.start), place(run.end - 1)))
            .collect();
        writeln!(output, "  Free blocks: {}", blocks.join(", "))?;
        let per_group = self.geometry().inodes_per_group();
        let mut bits = vec![0; self.fs.block_size().len()];
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let offset = self.fs.block_size().offset_of(desc.inode_bitmap);
            let offset = offset.unwrap_or(u64::MAX);
            self.fs.device().read_at(offset, &mut bits)?;
        }
        let one = u64::from(group.get()) * u64::from(per_group) + 1;
        let inodes: Vec<String> = bitmap::clear_runs(&bits, 0..per_group)
            .map(|run| self.run(one + u64::from(run.start), one + u64::from(run.end - 1)))
            .collect();
        Ok(writeln!(output, "  Free inodes: {}", inodes.join(", "))?)
    }

    fn run(&self, first: u64, last: u64) -> String {
        if first == last {
            self.number(first)
        } else {
            self.range(first..last + 1)
        }
    }
}
