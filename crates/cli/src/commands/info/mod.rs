//! `extant info`.

mod disk;
mod other;

use crate::args::{Info, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, how, shown};
use crate::output::Output;
use crate::record::{lossless, uuid};
use crate::size::human;
use crate::time::{long, rfc3339};
use disk::Disk;
use extant::{Content, Escaped, Filesystem, SharedDevice, Timestamp};
use extant_core::Result as EngineResult;
use extant_core::fs::Fs;
use extant_format::dir::HashVersion;
use extant_format::features::{Compat, Features, Incompat, RoCompat};
use extant_format::group_desc::{GroupDesc, GroupFlags};
use extant_format::superblock::{ErrorRecord, Superblock};
use extant_format::{Group, Pblk, bitmap};
use other::{Carried, Other};
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// What is said about a file system.
#[derive(Debug, Serialize)]
struct Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Carried>,
    kind: &'static str,
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_hex: Option<String>,
    uuid: String,
    state: &'static str,
    /// The journal was not closed.
    journal_dirty: bool,
    /// What is shown is what the journal makes of it.
    journal_replayed: bool,
    error_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_error: Option<Trouble>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<Trouble>,
    size: u64,
    /// Bytes by which the image is shorter than its file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<u64>,
    block_size: u32,
    cluster_size: u64,
    blocks: u64,
    free_blocks: u64,
    reserved_blocks: u64,
    inode_size: u32,
    inodes: u32,
    free_inodes: u64,
    directories: u64,
    groups: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    groups_per_flex: u32,
    descriptor_size: u32,
    journal_blocks: u64,
    directory_hash: &'static str,
    last_mounted_on: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_mounted_on_hex: Option<String>,
    created: String,
    written: String,
    mounted: Option<String>,
    checked: String,
    features: FeatureLists,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_list: Option<Vec<GroupRecord>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_extents: Option<Vec<FreeSize>>,
}

/// An error that Linux recorded.
#[derive(Debug, Serialize)]
struct Trouble {
    time: String,
    function: String,
    line: u32,
    inode: u32,
    block: u64,
}

impl Trouble {
    fn new(record: ErrorRecord) -> Self {
        let end = record.function.iter().position(|&b| b == 0);
        let function = &record.function[..end.unwrap_or(record.function.len())];
        Self {
            time: moment(record.time),
            function: Escaped(function).to_string(),
            line: record.line,
            inode: record.ino.get(),
            block: record.block.get(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}:{}", self.time, self.function, self.line)?;
        if self.inode != 0 {
            write!(f, ", inode {}", self.inode)?;
        }
        if self.block != 0 {
            write!(f, ", block {}", self.block)?;
        }
        Ok(())
    }
}

#[derive(Debug, Serialize)]
struct FeatureLists {
    compat: Vec<String>,
    incompat: Vec<String>,
    ro_compat: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GroupRecord {
    group: u32,
    first_block: u64,
    blocks: u32,
    free_blocks: u64,
    free_inodes: u32,
    directories: u32,
    unused_inodes: u32,
    has_superblock: bool,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    flags: Vec<&'static str>,
}

/// Free extents of `2^order` to `2^(order + 1) - 1` blocks.
#[derive(Debug, Clone, Serialize)]
struct FreeSize {
    from_blocks: u64,
    extents: u64,
    blocks: u64,
}

pub(super) fn run(args: &Info, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.image)?;
    if !from.is_root() {
        return Err(Failure::usage(
            "info is about whole images: name IMAGE without a path, or use `extant stat` for a file",
        ));
    }
    let opened = from.image.open_disk(&how(location, &from.image, false));
    let opened = opened.map_err(Failure::new)?;
    let container = opened.container.map(Carried::from);
    let fs = match from.open_in(&opened.device, location) {
        Ok(fs) => fs,
        Err(failure) => return anything(args, &from, location, &opened.device, container, failure),
    };
    let mut summary = summary(&fs).map_err(|e| from.failure(&e))?;
    let there = from.part_of(&opened.device, location)?.size();
    summary.missing = summary
        .size
        .checked_sub(there)
        .filter(|missing| *missing > 0);
    let engine = |e: extant_core::Error| Failure::new(format!("{}: {e}", shown(&from.image)));
    if args.groups {
        summary.group_list = Some(groups(fs.engine()).map_err(engine)?);
    }
    if args.free {
        summary.free_extents = Some(free_extents(fs.engine()).map_err(engine)?);
    }
    summary.container = container;
    let mut output = Output::new();
    if args.json {
        output.json_pretty(&summary)?;
    } else {
        if let Some(container) = &summary.container {
            container.print(&mut output)?;
        }
        print(&summary, fs.engine().superblock(), &mut output)?;
        if args.features {
            print_features(fs.engine().superblock().features(), &mut output)?;
        }
        if let Some(groups) = &summary.group_list {
            print_groups(groups, &mut output)?;
        }
        if let Some(free) = &summary.free_extents {
            print_free(free, summary.block_size, &mut output)?;
        }
    }
    output.finish()
}

/// Says what it is where no file system opened: a disk with partitions, or what is known by its
/// marks. Else the failure of opening stands.
fn anything(
    args: &Info,
    from: &ImagePath,
    location: &Whereabouts,
    whole: &SharedDevice,
    container: Option<Carried>,
    failure: Failure,
) -> Outcome {
    if location.superblock.is_some() {
        return Err(failure);
    }
    let mut output = Output::new();
    let is_whole =
        from.image.partition().is_none() && (location.partition, location.offset) == (None, None);
    if let Some(mut disk) = is_whole.then(|| Disk::of(whole)).flatten() {
        disk.container = container;
        if args.json {
            output.json_pretty(&disk)?
        } else {
            disk.print(&mut output)?
        }
        return output.finish();
    }
    let part = from.part_of(whole, location)?;
    let content = Content::on(&*part).map_err(Failure::new)?;
    let Some(other) = Other::of(content, part.size(), container) else {
        return Err(failure);
    };
    if args.json {
        output.json_pretty(&other)?
    } else {
        other.print(&mut output)?
    }
    output.finish()
}

fn summary(fs: &Filesystem) -> extant::Result<Summary> {
    let space = fs.statfs()?;
    let engine = fs.engine();
    let superblock = engine.superblock();
    let geometry = engine.geometry();
    let features = superblock.features();
    let (label, label_hex) = lossless(superblock.label());
    let (last_mounted_on, last_mounted_on_hex) = lossless(superblock.last_mounted());
    let block_size = superblock.block_size().bytes();
    let journal_blocks = superblock
        .journal_ino()
        .filter(|_| superblock.has_compat(Compat::HAS_JOURNAL))
        .and_then(|ino| engine.inode(ino).ok())
        .map_or(0, |journal| {
            superblock.block_size().blocks_for(journal.size())
        });
    Ok(Summary {
        container: None,
        kind: kind(features),
        label,
        label_hex,
        uuid: uuid(superblock.uuid()),
        state: state(superblock),
        journal_dirty: engine.was_replayed() || features.incompat.contains(Incompat::RECOVER),
        journal_replayed: engine.was_replayed(),
        error_count: superblock.error_count(),
        first_error: superblock.first_error().map(Trouble::new),
        last_error: superblock.last_error().map(Trouble::new),
        size: superblock.blocks_count().saturating_mul(block_size.into()),
        missing: None,
        block_size,
        cluster_size: u64::from(block_size) << geometry.cluster_bits(),
        blocks: superblock.blocks_count(),
        free_blocks: space.free,
        reserved_blocks: superblock.reserved_blocks_count(),
        inode_size: superblock.inode_size(),
        inodes: superblock.inodes_count(),
        free_inodes: space.free_inodes,
        directories: space.directories,
        groups: geometry.groups_count(),
        blocks_per_group: geometry.blocks_per_group(),
        inodes_per_group: geometry.inodes_per_group(),
        groups_per_flex: geometry.groups_per_flex(),
        descriptor_size: geometry.desc_size(),
        journal_blocks,
        directory_hash: hash(superblock),
        last_mounted_on,
        last_mounted_on_hex,
        created: moment(superblock.mkfs_time()),
        written: moment(superblock.write_time()),
        mounted: match superblock.mount_time() {
            0 => None,
            time => Some(moment(time)),
        },
        checked: moment(superblock.last_check()),
        features: FeatureLists {
            compat: features.compat.names_of_bits(),
            incompat: features.incompat.names_of_bits(),
            ro_compat: features.ro_compat.names_of_bits(),
        },
        group_list: None,
        free_extents: None,
    })
}

/// Which of the family it is, as `blkid` decides.
fn kind(features: Features) -> &'static str {
    let ext3_incompat = Incompat::FILETYPE | Incompat::RECOVER | Incompat::META_BG;
    let ext3_ro_compat =
        RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::from_bits_retain(4);
    if !features.incompat.beyond(ext3_incompat).is_empty()
        || !features.ro_compat.beyond(ext3_ro_compat).is_empty()
    {
        "ext4"
    } else if features.compat.contains(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

fn state(superblock: &Superblock) -> &'static str {
    use extant_format::superblock::State;
    let state = superblock.state();
    if state.contains(State::ERRORS) {
        "errors"
    } else if state.contains(State::CLEAN) {
        "clean"
    } else {
        "not clean"
    }
}

fn hash(superblock: &Superblock) -> &'static str {
    match superblock.hash_version().map(HashVersion::stored) {
        Ok(HashVersion::Legacy) => "legacy",
        Ok(HashVersion::HalfMd4) => "half_md4",
        Ok(HashVersion::Tea) => "tea",
        Ok(HashVersion::SipHash) => "siphash",
        _ => "unknown",
    }
}

fn moment(secs: u64) -> String {
    rfc3339(timestamp(secs))
}

fn timestamp(secs: u64) -> Timestamp {
    Timestamp {
        // Forty bits.
        secs: i64::try_from(secs).unwrap_or(0),
        nanos: 0,
    }
}

fn groups(fs: &Fs) -> EngineResult<Vec<GroupRecord>> {
    let geometry = fs.geometry();
    geometry
        .groups()
        .map(|group| {
            let desc = fs.group(group)?;
            let flags = [
                (GroupFlags::INODE_UNINIT, "inode_uninit"),
                (GroupFlags::BLOCK_UNINIT, "block_uninit"),
                (GroupFlags::INODE_ZEROED, "inode_zeroed"),
            ];
            Ok(GroupRecord {
                group: group.get(),
                first_block: geometry.group_first_block(group).map_or(0, |b| b.get()),
                blocks: geometry.blocks_in_group(group).unwrap_or(0),
                free_blocks: u64::from(desc.free_clusters) << geometry.cluster_bits(),
                free_inodes: desc.free_inodes,
                directories: desc.used_dirs,
                unused_inodes: desc.itable_unused,
                has_superblock: geometry.has_super(group),
                block_bitmap: desc.block_bitmap.get(),
                inode_bitmap: desc.inode_bitmap.get(),
                inode_table: desc.inode_table.get(),
                flags: flags
                    .into_iter()
                    .filter(|(flag, _)| desc.flags.contains(*flag))
                    .map(|(_, name)| name)
                    .collect(),
            })
        })
        .collect()
}

/// Counts free extents by size. Extents end at group borders, as an allocator sees them.
fn free_extents(fs: &Fs) -> EngineResult<Vec<FreeSize>> {
    let mut sizes: Vec<FreeSize> = Vec::new();
    let bits = fs.geometry().cluster_bits();
    for group in fs.geometry().groups() {
        for run in free_runs(fs, group)? {
            let blocks = u64::from(run.end - run.start) << bits;
            let order = blocks.max(1).ilog2() as usize;
            while sizes.len() <= order {
                sizes.push(FreeSize {
                    from_blocks: 1 << sizes.len(),
                    extents: 0,
                    blocks: 0,
                });
            }
            if let Some(size) = sizes.get_mut(order) {
                size.extents += 1;
                size.blocks += blocks;
            }
        }
    }
    sizes.retain(|size| size.extents > 0);
    Ok(sizes)
}

/// The free clusters of a group, as its bitmap says.
pub(super) fn free_runs(fs: &Fs, group: Group) -> EngineResult<Vec<std::ops::Range<u32>>> {
    let geometry = fs.geometry();
    let clusters = geometry.clusters_in_group(group).unwrap_or(0);
    let desc = fs.group(group)?;
    let mut map = vec![0; fs.block_size().len()];
    if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        // A bitmap that was never written stands for a group that holds nothing but its own
        // metadata.
        mark_own_metadata(fs, group, &desc, &mut map);
    } else {
        let offset = fs.block_size().offset_of(desc.block_bitmap);
        fs.device().read_at(offset.unwrap_or(u64::MAX), &mut map)?;
    }
    Ok(bitmap::clear_runs(&map, 0..clusters).collect())
}

fn mark_own_metadata(fs: &Fs, group: Group, desc: &GroupDesc, map: &mut [u8]) {
    let geometry = fs.geometry();
    let mut mark = |blocks: std::ops::Range<u64>| {
        for block in blocks {
            if let Ok((owner, bit)) = geometry.bitmap_position(Pblk::new(block))
                && owner == group
            {
                bitmap::set(map, bit);
            }
        }
    };
    if let Ok(header) = geometry.group_header(group) {
        mark(header.end().get() - header.blocks()..header.end().get());
    }
    let one = |block: Pblk| block.get()..block.get().saturating_add(1);
    mark(one(desc.block_bitmap));
    mark(one(desc.inode_bitmap));
    let table = desc.inode_table.get();
    mark(table..table.saturating_add(geometry.inode_table_blocks().into()));
}

fn print(summary: &Summary, superblock: &Superblock, output: &mut Output) -> std::io::Result<()> {
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let bytes = |blocks: u64| human(blocks.saturating_mul(summary.block_size.into()));
    write!(output, "{:<14}{}", "File system:", summary.kind)?;
    if superblock.label().is_empty() {
        writeln!(output, ", without label")?;
    } else {
        write!(output, ", label ")?;
        output.name_line(superblock.label())?;
    }
    writeln!(output, "{:<14}{}", "UUID:", summary.uuid)?;
    write!(output, "{:<14}{}", "State:", summary.state)?;
    if summary.journal_replayed {
        write!(
            output,
            "; the journal was not closed and is replayed in memory here"
        )?;
    } else if summary.journal_dirty {
        write!(output, "; the journal was not closed, and is not replayed")?;
    }
    writeln!(output)?;
    if summary.error_count > 0 {
        writeln!(output, "{:<14}{} recorded", "Errors:", summary.error_count)?;
        for (which, trouble) in [
            ("first", &summary.first_error),
            ("last", &summary.last_error),
        ] {
            if let Some(trouble) = trouble {
                writeln!(output, "{:<14}{which} at {trouble}", "")?;
            }
        }
    }
    writeln!(
        output,
        "{:<14}{} in {} blocks of {} bytes",
        "Size:",
        human(summary.size),
        summary.blocks,
        summary.block_size
    )?;
    if let Some(missing) = summary.missing {
        writeln!(
            output,
            "{:<14}the image is cut short: {} at the end, {missing} bytes, are not there",
            "Missing:",
            human(missing)
        )?;
    }
    writeln!(
        output,
        "{:<14}{} ({:.0}%), {} of it reserved for root",
        "Free:",
        bytes(summary.free_blocks),
        percent(summary.free_blocks, summary.blocks),
        match summary.reserved_blocks {
            // As much as there still is of what is reserved.
            reserved if reserved > 0 && reserved >= summary.free_blocks => "all".to_owned(),
            reserved => bytes(reserved),
        }
    )?;
    writeln!(
        output,
        "{:<14}{} of {} bytes, {} free; {} directories",
        "Inodes:", summary.inodes, summary.inode_size, summary.free_inodes, summary.directories
    )?;
    writeln!(
        output,
        "{:<14}{} of {} blocks and {} inodes",
        "Groups:", summary.groups, summary.blocks_per_group, summary.inodes_per_group
    )?;
    match summary.journal_blocks {
        0 => writeln!(output, "{:<14}none", "Journal:")?,
        blocks => writeln!(output, "{:<14}{}", "Journal:", bytes(blocks))?,
    }
    writeln!(output, "{:<14}{}", "Hash:", summary.directory_hash)?;
    writeln!(
        output,
        "{:<14}{}",
        "Created:",
        long(timestamp(superblock.mkfs_time()))
    )?;
    writeln!(
        output,
        "{:<14}{}",
        "Written:",
        long(timestamp(superblock.write_time()))
    )?;
    if superblock.mount_time() > 0 {
        let time = long(timestamp(superblock.mount_time()));
        // What commands change was open nowhere.
        if superblock.last_mounted().is_empty() {
            writeln!(output, "{:<14}{time}", "Mounted:")?;
        } else {
            write!(output, "{:<14}{time} on ", "Mounted:")?;
            output.name_line(superblock.last_mounted())?;
        }
    }
    let names = superblock.features().names().join(" ");
    writeln!(output, "{:<14}{names}", "Features:")
}

fn print_features(features: Features, output: &mut Output) -> std::io::Result<()> {
    for (names, meaning) in [
        (
            features.compat.names_of_bits(),
            "Readers and writers that do not know these may go on",
        ),
        (
            features.ro_compat.names_of_bits(),
            "Whoever does not know these may only read",
        ),
        (
            features.incompat.names_of_bits(),
            "Whoever does not know these must not touch the file system",
        ),
    ] {
        writeln!(output, "\n{meaning}:")?;
        for name in names {
            writeln!(output, "  {name}")?;
        }
    }
    Ok(())
}

fn print_groups(groups: &[GroupRecord], output: &mut Output) -> std::io::Result<()> {
    writeln!(
        output,
        "\n{:>7} {:>12} {:>8} {:>8} {:>8} {:>7} {:>12} {:>12} {:>12}  flags",
        "group", "first", "blocks", "free", "inodes", "dirs", "bbitmap", "ibitmap", "itable"
    )?;
    for group in groups {
        let mut flags = group.flags.clone();
        if group.has_superblock {
            flags.insert(0, "superblock");
        }
        writeln!(
            output,
            "{:>7} {:>12} {:>8} {:>8} {:>8} {:>7} {:>12} {:>12} {:>12}  {}",
            group.group,
            group.first_block,
            group.blocks,
            group.free_blocks,
            group.free_inodes,
            group.directories,
            group.block_bitmap,
            group.inode_bitmap,
            group.inode_table,
            flags.join(",")
        )?;
    }
    Ok(())
}

fn print_free(sizes: &[FreeSize], block_size: u32, output: &mut Output) -> std::io::Result<()> {
    writeln!(
        output,
        "\n{:>20} {:>10} {:>12}",
        "free extents of", "number", "together"
    )?;
    for size in sizes {
        let bytes = |blocks: u64| human(blocks.saturating_mul(block_size.into()));
        writeln!(
            output,
            "{:>20} {:>10} {:>12}",
            format!("{} and more", bytes(size.from_blocks)),
            size.extents,
            bytes(size.blocks)
        )?;
    }
    Ok(())
}
