//! What is told of a file system: the lines that scripts look for.

use super::settings::Wanted;
use crate::failure::Outcome;
use crate::output::Output;
use crate::record::uuid;
use extant_format::geometry::Geometry;
use extant_format::superblock::Superblock;
use extant_mkfs::layout::Layout;
use std::io::{self, Write};

/// Columns for the numbers of blocks with copies.
const COLUMNS: usize = 72;

/// Tells what is going to be made.
pub(super) fn beginning(wanted: &Wanted, layout: &Layout, tells_all: bool) -> Outcome {
    let mut output = Output::new();
    let sb = layout.superblock();
    let (geometry, block) = (layout.geometry(), sb.block_size().bytes());
    if tells_all {
        all(&mut output, wanted, sb, geometry)?;
    } else {
        let (blocks, inodes) = (sb.blocks_count(), sb.inodes_count());
        let kib = block / 1024;
        writeln!(
            output,
            "Creating filesystem with {blocks} {kib}k blocks and {inodes} inodes"
        )?;
    }
    if geometry.groups_count() > 1 {
        if sb.uuid() != [0; 16] {
            writeln!(output, "Filesystem UUID: {}", uuid(sb.uuid()))?;
        }
        backups(&mut output, geometry)?;
    }
    writeln!(output)?;
    output.finish()
}

/// All numbers of the file system.
fn all(
    output: &mut Output,
    wanted: &Wanted,
    sb: &Superblock,
    geometry: &Geometry,
) -> io::Result<()> {
    let (raw, format) = (sb.raw(), &wanted.format);
    let block = sb.block_size().bytes();
    let log = block.trailing_zeros() - 10;
    write!(output, "Filesystem label=")?;
    output.name_line(sb.label())?;
    writeln!(output, "OS type: Linux")?;
    writeln!(output, "Block size={block} (log={log})")?;
    let bits = geometry.cluster_bits();
    if bits > 0 {
        writeln!(
            output,
            "Cluster size={} (log={})",
            block << bits,
            log + bits
        )?;
    } else {
        writeln!(output, "Fragment size={block} (log={log})")?;
    }
    let stride = format.stride.unwrap_or(0);
    let width = format.stripe_width.unwrap_or(0);
    writeln!(
        output,
        "Stride={stride} blocks, Stripe width={width} blocks"
    )?;
    let (blocks, reserved) = (sb.blocks_count(), sb.reserved_blocks_count());
    writeln!(output, "{} inodes, {blocks} blocks", sb.inodes_count())?;
    let percent = 100.0 * reserved as f64 / blocks as f64;
    writeln!(
        output,
        "{reserved} blocks ({percent:.2}%) reserved for the super user"
    )?;
    let first = raw.first_data_block.get();
    writeln!(output, "First data block={first}")?;
    let (uid, gid) = format.root_owner;
    if (uid, gid) != (0, 0) {
        writeln!(output, "Root directory owner={uid}:{gid}")?;
    }
    let reserved = u64::from(geometry.reserved_gdt_blocks());
    let per_group = u64::from(geometry.blocks_per_group());
    if reserved > 0 {
        let descs = reserved + u64::from(geometry.desc_blocks());
        let most = descs * u64::from(geometry.descs_per_block()) * per_group;
        writeln!(output, "Maximum filesystem blocks={most}")?;
    }
    let groups = geometry.groups_count();
    let many = if groups == 1 { "" } else { "s" };
    writeln!(output, "{groups} block group{many}")?;
    let (clusters, unit) = if bits > 0 {
        (geometry.clusters_per_group(), "clusters")
    } else {
        (geometry.blocks_per_group(), "fragments")
    };
    writeln!(
        output,
        "{per_group} blocks per group, {clusters} {unit} per group"
    )?;
    writeln!(output, "{} inodes per group", geometry.inodes_per_group())
}

/// Where copies of the superblock are.
fn backups(output: &mut Output, geometry: &Geometry) -> io::Result<()> {
    write!(output, "Superblock backups stored on blocks: ")?;
    let groups = geometry.groups().skip(1);
    let copies = groups
        .filter(|group| geometry.has_super(*group))
        .filter_map(|group| geometry.group_first_block(group).ok());
    let mut left = 0;
    for (at, block) in copies.enumerate() {
        let block = block.get().to_string();
        if at > 0 {
            write!(output, ", ")?;
        }
        let needed = block.len() + 2;
        if needed > left {
            write!(output, "\n\t")?;
            left = COLUMNS;
        }
        left -= needed;
        write!(output, "{block}")?;
    }
    writeln!(output)
}

/// Tells one thing, at once.
pub(super) fn line(text: &str) -> Outcome {
    let mut output = Output::new();
    writeln!(output, "{text}")?;
    output.finish()
}

/// Tells what was done, step by step, as the real program names the steps.
pub(super) fn end(journal_blocks: u32, has_source: bool) -> Outcome {
    let mut output = Output::new();
    writeln!(
        output,
        "Allocating group tables: done                            "
    )?;
    writeln!(
        output,
        "Writing inode tables: done                            "
    )?;
    if journal_blocks > 0 {
        writeln!(output, "Creating journal ({journal_blocks} blocks): done")?;
    }
    if has_source {
        writeln!(output, "Copying files into the device: done")?;
    }
    writeln!(
        output,
        "Writing superblocks and filesystem accounting information: done\n"
    )?;
    output.finish()
}
