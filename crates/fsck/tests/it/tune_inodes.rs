//! Inodes that grow, cut off at each write: what is left is sound with the inodes from before or
//! with larger ones, and loses nothing. What has no room is refused, and changes nothing.

use crate::cuts::{Cuts, bytes_of};
use crate::support::{check_bytes, problems, superblock};
use crate::tune_sweep::{Tree, settle, told_apart, tree, waits};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::superblock::State;
use extant_fsck::repair::{self, Plan, tune};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::{oracle, require};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// An image: what mke2fs is told, and the sizes that inodes get one after the other.
type Base = (&'static [&'static str], &'static [u32]);

const FLEX: &[&str] = &["-t", "ext4", "-b", "1024", "-g", "2048", "-G", "4"];
const BASES: &[Base] = &[
    (FLEX, &[512, 1024]),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-I",
            "128",
            "-O",
            "^metadata_csum,^extra_isize",
        ],
        &[256, 512],
    ),
    (
        &["-t", "ext3", "-b", "1024", "-g", "2048", "-I", "128"],
        &[256],
    ),
    (
        &["-t", "ext2", "-b", "2048", "-I", "128", "-O", "^filetype"],
        &[256],
    ),
];

/// Names of several lengths, attributes inside inodes and beside them, maps of all kinds.
fn made(dir: &Path, options: &[&str]) -> Vec<u8> {
    let path = dir.join("image");
    let size = ["-J", "size=1"];
    let journal = if options.contains(&"ext2") {
        &[][..]
    } else {
        &size
    };
    oracle::mke2fs(&path, 8 * MIB, &[options, &["-N", "256"], journal].concat());
    let content = dir.join("content");
    std::fs::write(&content, vec![7; 30_000]).unwrap();
    let content = content.display();
    let mut requests = vec![
        "mkdir dir".to_owned(),
        "symlink link dir/0".to_owned(),
        "mknod pipe p".to_owned(),
    ];
    requests.extend((0..20).map(|i| format!("write {content} dir/{i}")));
    requests.extend((0..20).step_by(3).map(|i| format!("rm dir/{i}")));
    requests.extend([
        "ea_set dir/1 user.small value".to_owned(),
        format!("ea_set dir/2 user.large {}", "0123456789".repeat(20)),
        "sif dir/4 uid 70000".to_owned(),
    ]);
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    oracle::debugfs_write(&path, &requests);
    oracle::assert_clean(&path);
    std::fs::read(&path).unwrap()
}

fn tree_of(image: &[u8]) -> Tree {
    tree(Arc::new(MemoryDevice::from_image(image))).unwrap()
}

fn planned(device: Arc<dyn BlockDevice>, bytes: u32, in_front: bool) -> extant_fsck::Result<Plan> {
    let settings = tune::Settings {
        inode_size: Some(bytes),
        ..tune::Settings::default()
    };
    let options = repair::Options::default()
        .now(1_700_000_000)
        .in_front(in_front);
    tune::plan(device, &settings, options, &())
}

/// A growth of inodes that is cut off.
struct Growth<'a> {
    dir: &'a Path,
    start: &'a [u8],
    sizes: [u32; 2],
    /// What is there, before and afterwards.
    tree: Tree,
}

impl Growth<'_> {
    /// Judges what a crash left, once what waits is in place. Returns how large inodes are.
    fn judge(&self, left: &[u8]) -> Result<u32, String> {
        let memory = Arc::new(MemoryDevice::from_image(left));
        if waits(&*memory) {
            settle(&(memory.clone() as Arc<dyn BlockDevice>))?;
        }
        let settled = bytes_of(&memory);
        let sb = superblock(&settled);
        if !self.sizes.contains(&sb.inode_size()) || !sb.state().contains(State::CLEAN) {
            return Err(format!("{} bytes, {:?}", sb.inode_size(), sb.state()));
        }
        let report = check_bytes(&settled, false).map_err(|e| e.to_string())?;
        if !report.is_clean() {
            return Err(problems(&report));
        }
        let path = self.dir.join("left");
        std::fs::write(&path, &settled).unwrap();
        oracle::check_clean(&path)?;
        match told_apart(&self.tree, &tree_of(&settled)) {
            None => Ok(sb.inode_size()),
            Some(apart) => Err(apart),
        }
    }

    /// Grows inodes with a cut at each write; returns the image with larger ones.
    fn cut_at_each_write(&self) -> Vec<u8> {
        let cuts = Cuts::new(self.start, |device| {
            let plan = planned(device, self.sizes[1], false).unwrap();
            assert!(plan.is_complete() && plan.is_whole());
            plan
        });
        let writes = cuts.writes;
        assert_eq!(self.judge(&cuts.done), Ok(self.sizes[1]));

        let mut found = [0; 2];
        for cut in 0..writes {
            let bytes = self.judge(&cuts.left_after(cut));
            let bytes = bytes.unwrap_or_else(|e| panic!("{cut} of {writes} writes: {e}"));
            found[usize::from(bytes == self.sizes[1])] += 1;
            let back = cuts.taken_back().unwrap_or_else(|e| panic!("{cut}: {e}"));
            assert!(back == self.start, "{cut}: not every byte");
        }
        // From one write on, larger inodes are what is found.
        assert!(found[0] > 0 && found[1] > 0, "{found:?} of {writes}");
        cuts.done
    }
}

#[test]
fn growing_inodes_that_is_cut_off_at_any_write_leaves_one_size_or_the_other() {
    for (options, sizes) in BASES {
        let dir = tempfile::tempdir().unwrap();
        let mut image = made(dir.path(), options);
        for bytes in *sizes {
            let growth = Growth {
                dir: dir.path(),
                start: &image,
                sizes: [superblock(&image).inode_size(), *bytes],
                tree: tree_of(&image),
            };
            image = growth.cut_at_each_write();
        }
    }
}

#[test]
fn linux_writes_attributes_into_what_larger_inodes_have_room_for() {
    require!(KernelExt4);
    for (options, sizes) in BASES {
        let dir = tempfile::tempdir().unwrap();
        let start = made(dir.path(), options);
        let memory = Arc::new(MemoryDevice::from_image(&start));
        for bytes in *sizes {
            let plan = planned(memory.clone(), *bytes, false).unwrap();
            plan.apply().unwrap();
        }
        let path = dir.path().join("grown");
        std::fs::write(&path, bytes_of(&memory)).unwrap();
        let mount = KernelMount::mount(&path, Mode::ReadWrite, "");
        let at = |name: &str| mount.path().join(name);
        std::fs::copy(at("dir/1"), at("copy")).unwrap();
        for name in ["copy", "dir/4"] {
            rustix::fs::setxattr(
                at(name),
                "user.note",
                &[b'x'; 60],
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
        }
        mount.unmount();
        oracle::assert_clean(&path);
        let image = std::fs::read(&path).unwrap();
        let now = tree_of(&image);
        for name in ["/copy", "/dir/4"] {
            let (_, found) = now
                .iter()
                .find(|(path, _)| path.ends_with(&name.as_bytes()[1..]))
                .unwrap();
            let note = found.attributes.get(&b"user.note"[..]);
            assert_eq!(
                note.map(Vec::as_slice),
                Some(&[b'x'; 60][..]),
                "{options:?}"
            );
        }
    }
}

/// Files that leave `free` blocks of an image, of 1 KiB each.
fn filled(dir: &Path, image: &[u8], free: u64) -> Vec<u8> {
    let path = dir.join("filled");
    std::fs::write(&path, image).unwrap();
    let content = dir.join("much");
    let blocks = superblock(image).free_blocks_count() - free;
    // Beside a block for each of the nodes of its map.
    std::fs::write(&content, vec![5; (blocks as usize) << 10]).unwrap();
    oracle::debugfs_write(&path, &[&format!("write {} much", content.display())]);
    oracle::assert_clean(&path);
    std::fs::read(&path).unwrap()
}

fn refusal(image: &[u8], bytes: u32) -> Option<String> {
    let memory = Arc::new(MemoryDevice::from_image(image));
    let refused = planned(memory.clone(), bytes, false).err();
    assert!(
        bytes_of(&memory) == image,
        "what is only planned is written"
    );
    refused.map(|e| e.to_string())
}

#[test]
fn larger_inodes_without_room_for_their_log_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path(), FLEX);
    assert_eq!(refusal(&start, 512), None);
    // 64 tables' blocks more in each of the groups.
    let geo = extant_format::geometry::Geometry::new(&superblock(&start));
    let tables = u64::from(geo.groups_count()) * u64::from(geo.inode_table_blocks()) * 2;
    let mut reasons = Vec::new();
    for free in (0..30).map(|more| tables + more * 4) {
        match refusal(&filled(dir.path(), &start, free), 512) {
            None => break,
            Some(why) => reasons.push(why),
        }
    }
    let log = "there is no room for the log of a change of the size of inodes";
    assert!(reasons.iter().any(|why| why.contains(log)), "{reasons:#?}");
    let is_known = |why: &String| why.contains(log) || why.contains("free ones in a row");
    assert!(reasons.iter().all(is_known), "{reasons:#?}");
    assert!(reasons.len() < 30, "never enough room");
}

#[test]
fn larger_inodes_without_room_in_their_group_are_refused_without_flex_bg() {
    let dir = tempfile::tempdir().unwrap();
    let options = [&FLEX[..6], &["-O", "^flex_bg"]].concat();
    let start = made(dir.path(), &options);
    assert_eq!(refusal(&start, 512), None);
    let full = filled(dir.path(), &start, 100);
    let why = refusal(&full, 512).unwrap();
    assert!(
        why.contains("in a row in group") && why.contains("without flex_bg"),
        "{why}"
    );
}

#[test]
fn sizes_that_inodes_cannot_have_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path(), FLEX);
    for (bytes, part) in [
        (128, "do not get smaller"),
        (300, "a power of two"),
        (2048, "at most 1024"),
        (u32::MAX, "at most 1024"),
    ] {
        let why = refusal(&start, bytes).unwrap_or_default();
        assert!(why.contains(part), "{bytes}: {why}");
    }
}
