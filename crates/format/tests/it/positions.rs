//! Superblocks, descriptors and positions of real images, against `dumpe2fs`.

use extant_format::bitmap;
use extant_format::features::{Compat, Incompat};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{DescChecksum, GroupDesc, GroupFaults, GroupFlags, GroupState};
use extant_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_format::{Group, Pblk};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Size argument and options of `mke2fs`.
const IMAGES: &[(&str, &str)] = &[
    ("64M", "-t ext4"),
    ("1M", "-t ext4"),
    ("3G", "-t ext4"),
    ("300G", "-t ext4"),
    ("3T", "-t ext4"),
    ("100M", "-t ext2"),
    ("100M", "-t ext3 -b 1024"),
    ("100M", "-t ext4 -b 1024"),
    ("600M", "-t ext4 -b 2048 -I 128"),
    ("9G", "-t ext4 -b 65536 -I 4096"),
    ("3G", "-t ext4 -O ^flex_bg"),
    ("3G", "-t ext4 -O ^64bit,^metadata_csum"),
    ("3G", "-t ext4 -O ^64bit,^metadata_csum,uninit_bg"),
    ("3G", "-t ext4 -O ^metadata_csum,uninit_bg"),
    ("3G", "-t ext4 -O ^metadata_csum"),
    ("3G", "-t ext4 -O metadata_csum_seed,orphan_file"),
    ("3G", "-t ext4 -O ^resize_inode,meta_bg"),
    ("3G", "-t ext4 -b 1024 -O ^resize_inode,meta_bg"),
    ("40G", "-t ext4 -b 1024 -O ^resize_inode,meta_bg,^flex_bg"),
    ("3G", "-t ext4 -O sparse_super2"),
    ("3G", "-t ext4 -O sparse_super2 -E num_backup_sb=1"),
    ("3G", "-t ext4 -O ^sparse_super,^resize_inode"),
    ("3G", "-t ext4 -O bigalloc"),
    ("3G", "-t ext4 -O bigalloc -C 262144"),
    ("3G", "-t ext4 -b 1024 -O bigalloc -C 16384"),
    ("3G", "-t ext4 -O quota,project,encrypt,casefold,verity,mmp"),
    (
        "3G",
        "-t ext4 -O inline_data,ea_inode,large_dir,fast_commit",
    ),
    ("3G", "-t ext4 -G 64 -g 8192"),
    ("129M", "-t ext4 -N 1000"),
];

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|e| panic!("{program} must be installed: {e}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn make(path: &Path, size: &str, options: &str) {
    let mut args = vec!["-q", "-F"];
    args.extend(options.split_whitespace());
    args.extend([path.to_str().unwrap(), size]);
    run("mke2fs", &args);
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn read_block(file: &File, geometry: &Geometry, block: Pblk) -> Vec<u8> {
    let size = geometry.block_size();
    read(file, size.offset_of(block).unwrap(), size.len())
}

/// One group the way `dumpe2fs` prints it, as far as positions and counts go.
fn describe(geometry: &Geometry, group: Group, desc: &GroupDesc) -> Vec<String> {
    let mut lines = Vec::new();
    let (first, last) = (
        geometry.group_first_block(group).unwrap(),
        geometry.group_last_block(group).unwrap(),
    );
    lines.push(format!("Group {group}: (Blocks {first}-{last})"));
    let header = geometry.group_header(group).unwrap();
    let kind = if group.get() == 0 {
        "Primary"
    } else {
        "Backup"
    };
    if let Some(block) = header.super_block {
        lines.push(format!("{kind} superblock at {block}"));
    }
    let descs = header.descs;
    if descs.end - descs.start > 0 {
        if header.super_block.is_some() && geometry.classic_desc_blocks() > 0 {
            lines.push(format!(
                "Group descriptors at {}-{}",
                descs.start,
                descs.end - 1
            ));
        } else {
            lines.push(format!("Group descriptor at {}", descs.start));
        }
    }
    let reserved = header.reserved_gdt;
    if !reserved.is_empty() {
        lines.push(format!(
            "Reserved GDT blocks at {}-{}",
            reserved.start,
            reserved.end - 1
        ));
    }
    lines.push(format!("Block bitmap at {}", desc.block_bitmap));
    lines.push(format!("Inode bitmap at {}", desc.inode_bitmap));
    let table = desc.inode_table.get();
    lines.push(format!(
        "Inode table at {table}-{}",
        table + u64::from(geometry.inode_table_blocks()) - 1
    ));
    let unit = if geometry.cluster_bits() == 0 {
        "blocks"
    } else {
        "clusters"
    };
    let mut counts = format!(
        "{} free {unit}, {} free inodes, {} directories",
        desc.free_clusters, desc.free_inodes, desc.used_dirs
    );
    if desc.itable_unused > 0 {
        counts += &format!(", {} unused inodes", desc.itable_unused);
    }
    lines.push(counts);
    lines
}

/// Takes the lines of the groups from the tool's output.
fn groups_of(dump: &str) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    for line in dump.lines() {
        let line = line.trim();
        if line.starts_with("Group ") && line.contains(": (Blocks ") {
            let end = line.find(')').unwrap();
            groups.push(vec![line[..=end].to_string()]);
            continue;
        }
        let Some(group) = groups.last_mut() else {
            continue;
        };
        let until = |text: &str, mark: &str| text.split(mark).next().unwrap().trim().to_string();
        if line.contains(" superblock at ") {
            group.extend(line.split(", ").map(|part| fix_range(&until(part, " ("))));
        } else if line.starts_with("Group descriptor") || line.starts_with("Reserved GDT") {
            group.push(fix_range(&until(line, " (")));
        } else if line.starts_with("Block bitmap at") || line.starts_with("Inode bitmap at") {
            group.push(until(&until(line, " ("), ","));
        } else if line.starts_with("Inode table at") {
            group.push(fix_range(&until(line, " (")));
        } else if line.contains(" free inodes, ") {
            group.push(line.to_string());
        }
    }
    groups
}

/// `dumpe2fs` prints a range of one block without its end.
fn fix_range(line: &str) -> String {
    let ranged = ["Group descriptors", "Reserved GDT", "Inode table"]
        .iter()
        .any(|start| line.starts_with(start));
    match line.rsplit_once(' ') {
        Some((_, number)) if ranged && !number.contains('-') => format!("{line}-{number}"),
        _ => line.to_string(),
    }
}

fn check_bitmaps(file: &File, sb: &Superblock, geometry: &Geometry, group: Group, d: &GroupDesc) {
    let clusters = geometry.clusters_in_group(group).unwrap();
    if !d.flags.contains(GroupFlags::BLOCK_UNINIT) {
        let map = read_block(file, geometry, d.block_bitmap);
        let free = bitmap::count_clear(&map, 0..clusters);
        assert_eq!(free, d.free_clusters, "free clusters of group {group}");
        let per_group = geometry.clusters_per_group();
        assert!(bitmap::padding_is_set(
            &map[..per_group as usize / 8],
            clusters
        ));
        if sb.has_metadata_csum() {
            let sum = bitmap::checksum(sb.checksum_seed(), &map, per_group);
            assert!(d.block_bitmap_csum_matches(sum, sb.desc_size()));
        }
    }
    if !d.flags.contains(GroupFlags::INODE_UNINIT) {
        let map = read_block(file, geometry, d.inode_bitmap);
        let inodes = geometry.inodes_per_group();
        let free = bitmap::count_clear(&map, 0..inodes);
        assert_eq!(free, d.free_inodes, "free inodes of group {group}");
        if sb.has_metadata_csum() {
            let sum = bitmap::checksum(sb.checksum_seed(), &map, inodes);
            assert!(d.inode_bitmap_csum_matches(sum, sb.desc_size()));
        }
    }
}

#[test]
fn positions_are_those_dumpe2fs_prints() {
    let dir = tempfile::tempdir().unwrap();
    for (size, options) in IMAGES {
        let path = dir.path().join("image");
        make(&path, size, options);
        let dump = run("dumpe2fs", &[path.to_str().unwrap()]);
        let expected = groups_of(&dump);
        let file = File::open(&path).unwrap();

        let bytes = read(&file, SUPERBLOCK_OFFSET, 1024);
        let sb = Superblock::parse(&bytes).unwrap_or_else(|e| panic!("{size} {options}: {e}"));
        assert_eq!(sb.encode()[..], bytes[..], "{size} {options}");
        let names = dump
            .lines()
            .find_map(|l| l.strip_prefix("Filesystem features:"));
        assert_eq!(names.unwrap().trim(), sb.features().names().join(" "));

        let geometry = Geometry::new(&sb);
        assert_eq!(expected.len(), geometry.groups_count() as usize);
        for (group, expected) in geometry.groups().zip(&expected) {
            let (block, offset) = geometry.desc_position(group).unwrap();
            let at = geometry.block_size().offset_of(block).unwrap() + u64::from(offset);
            let bytes = read(&file, at, sb.desc_size() as usize);
            let desc = GroupDesc::parse(&bytes, group, &sb.desc_checksum())
                .unwrap_or_else(|e| panic!("{size} {options}: group {group}: {e}"));
            desc.validate(group, &geometry).unwrap();
            desc.validate_counts(group, &geometry).unwrap();
            check_state(&bytes, group, &sb, &geometry);
            let ours = describe(&geometry, group, &desc);
            assert_eq!(&ours, expected, "{size} {options}");
            // Tables of thousands of groups are alike: look at the bitmaps of some.
            if group.get() < 70 || group.get() + 3 > geometry.groups_count() {
                check_bitmaps(&file, &sb, &geometry, group, &desc);
            }
            let mut again = bytes.clone();
            desc.encode(&mut again, group, &sb.desc_checksum()).unwrap();
            assert_eq!(again, bytes, "{size} {options}: group {group}");
        }
        check_backups(&file, &sb, &geometry);
        std::fs::remove_file(&path).unwrap();
    }
}

/// A descriptor is trusted and located as it lies, not trusted with a wrong bit, and not located
/// where a bitmap lies nowhere.
fn check_state(bytes: &[u8], group: Group, sb: &Superblock, geometry: &Geometry) {
    let checksum = sb.desc_checksum();
    let has_checksum = checksum != DescChecksum::None;
    let read = |bytes: &[u8]| GroupState::read(bytes, group, &checksum, geometry);
    let (state, faults) = read(bytes);
    assert_eq!(faults, GroupFaults::default());
    assert_eq!((state.trusted, state.located), (has_checksum, true));
    let unused = if has_checksum {
        state.desc.itable_unused
    } else {
        0
    };
    assert_eq!(state.unused_inodes(), unused);
    let mut wrong = bytes.to_vec();
    wrong[0x12] |= 0x80;
    let flag = GroupFlags::from_bits_retain(0x80);
    let (state, faults) = read(&wrong);
    assert_eq!((state.trusted, state.located), (false, true));
    assert_eq!(faults.checksum.is_some(), has_checksum);
    assert!(state.desc.flags.contains(flag) && !state.says(flag));
    wrong[..4].fill(0xff);
    if let Some(high) = wrong.get_mut(32..36) {
        high.fill(0xff);
    }
    let (state, faults) = read(&wrong);
    assert!(!state.located && faults.location.is_some());
}

/// Every backup parses and says the same geometry; its number is its group.
fn check_backups(file: &File, sb: &Superblock, geometry: &Geometry) {
    for group in geometry.groups().filter(|g| geometry.has_super(*g)) {
        let (block, offset) = geometry.super_block(group).unwrap();
        let block = read_block(file, geometry, block);
        let backup = Superblock::parse(&block[offset as usize..]).unwrap();
        assert_eq!(
            u32::from(backup.raw().block_group_nr.get()),
            group.get().min(65_535)
        );
        assert_eq!(backup.uuid(), sb.uuid());
        assert_eq!(&Geometry::new(&backup), geometry);
    }
}

#[test]
fn typed_fields_are_those_dumpe2fs_prints() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    make(
        &path,
        "200M",
        "-t ext4 -L name -E hash_seed=01020304-0506-0708-090a-0b0c0d0e0f10 -e remount-ro -m 3 \
         -O orphan_file,quota",
    );
    let bytes = read(&File::open(&path).unwrap(), SUPERBLOCK_OFFSET, 1024);
    let sb = Superblock::parse(&bytes).unwrap();
    assert_eq!(sb.label(), b"name");
    assert_eq!(sb.hash_seed()[0].to_le_bytes(), [1, 2, 3, 4]);
    assert_eq!(sb.errors_behaviour().to_raw(), 2);
    assert_eq!(sb.reserved_blocks_count(), 204_800 * 3 / 100);
    assert!(sb.has_compat(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE));
    assert!(sb.has_incompat(Incompat::EXTENTS));
    assert_eq!(sb.journal_ino().unwrap().get(), 8);
    assert_eq!(sb.orphan_file_ino().unwrap().get(), 12);
    let quota = sb.quota_inodes().map(|ino| ino.map(|i| i.get()));
    assert_eq!(quota, [Some(3), Some(4), None]);
    assert_eq!(sb.state().bits(), 1);
    assert!(sb.journal_backup().is_some());
    assert!(sb.first_error().is_none());
}
