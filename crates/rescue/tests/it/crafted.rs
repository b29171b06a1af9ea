//! Images that are made by hand, inode by inode.

use crate::support::{Image, content, device, noise, path_of};
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice};
use extant_rescue::{Deleted, Rescue, Source, Verdict};
use extant_testkit::oracle::{debugfs_write, dumpe2fs, dumpe2fs_header};
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK: usize = 1024;
/// A time at which inodes were deleted.
const DELETED: u32 = 1_700_000_000;

/// An image whose bytes are changed in memory. Nothing in it has a checksum.
struct Raw {
    image: Image,
    bytes: Vec<u8>,
    per_group: u32,
    /// Of each group: block of the bitmap of inodes, first block of the table.
    groups: Vec<(u64, u64)>,
}

impl Raw {
    fn new() -> Self {
        let features = "^metadata_csum,^uninit_bg,^has_journal,^resize_inode";
        let options = [
            "-t", "ext4", "-b", "1024", "-I", "128", "-N", "16384", "-O", features,
        ];
        let image = Image::new(64 << 20, &options);
        let groups = dumpe2fs(&image.path).groups;
        Self {
            bytes: fs::read(&image.path).unwrap(),
            per_group: dumpe2fs_header(&image.path).number("Inodes per group") as u32,
            groups: groups
                .iter()
                .map(|group| {
                    let table = group.inode_table.clone().unwrap();
                    (group.inode_bitmap, *table.start())
                })
                .collect(),
            image,
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes an inode with a map of extents; one with links is in use.
    fn inode(&mut self, ino: u32, mode: u16, links: u16, size: u32, map: &[u8]) {
        let (group, index) = ((ino - 1) / self.per_group, (ino - 1) % self.per_group);
        let (bitmap, table) = self.groups[group as usize];
        let at = table as usize * BLOCK + index as usize * 128;
        self.put(at, &[0; 128]);
        self.put(at, &mode.to_le_bytes());
        self.put(at + 4, &size.to_le_bytes());
        self.put(at + 26, &links.to_le_bytes());
        self.put(at + 32, &0x8_0000_u32.to_le_bytes());
        self.put(at + 40, map);
        if links > 0 {
            self.bytes[bitmap as usize * BLOCK + index as usize / 8] |= 1 << (index % 8);
        } else {
            self.put(at + 20, &DELETED.to_le_bytes());
        }
    }

    fn save(&self) -> &Path {
        fs::write(&self.image.path, &self.bytes).unwrap();
        &self.image.path
    }
}

fn header(entries: u16, most: u16, depth: u16) -> Vec<u8> {
    let words = [0xF30A, entries, most, depth, 0, 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn extent(lblk: u32, len: u16, pblk: u32) -> Vec<u8> {
    let mut bytes = lblk.to_le_bytes().to_vec();
    bytes.extend(len.to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(pblk.to_le_bytes());
    bytes
}

/// A device that counts what is read from it.
#[derive(Debug)]
struct Counting {
    device: SharedDevice,
    reads: AtomicU64,
}

impl BlockDevice for Counting {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> DeviceResult<()> {
        unreachable!("something wrote")
    }

    fn flush(&self) -> DeviceResult<()> {
        unreachable!("something flushed")
    }
}

#[test]
fn directories_that_share_their_blocks_are_read_once() {
    let mut raw = Raw::new();
    let mut map = header(4, 4, 0);
    for n in 0..4 {
        map.extend(extent(n * 32_768, 32_768, 20_000));
    }
    for ino in 20..60 {
        raw.inode(ino, 0o040_755, 2, 4 * 32_768 * BLOCK as u32, &map);
    }
    let counting = Arc::new(Counting {
        device: device(raw.save()),
        reads: AtomicU64::new(0),
    });
    let shared: SharedDevice = Arc::<Counting>::clone(&counting);
    let rescue = Rescue::open(shared, None).unwrap();
    rescue.deleted().unwrap();
    // The image has 65,536 blocks.
    let reads = counting.reads.load(Ordering::Relaxed);
    assert!((60_000..200_000).contains(&reads), "{reads}");
}

#[test]
fn deleted_inodes_that_share_a_node_claim_no_more_than_there_is() {
    let mut raw = Raw::new();
    let (leaf, data) = (30_000_u32, 40_000);
    let mut node = header(84, 84, 0);
    for n in 0..84 {
        node.extend(extent(2 * n, 1, data + 2 * n));
    }
    raw.put(leaf as usize * BLOCK, &node);
    let mut map = header(1, 4, 1);
    map.extend(0_u32.to_le_bytes());
    map.extend(leaf.to_le_bytes());
    map.extend([0; 4]);
    for ino in 20..16_384 {
        raw.inode(ino, 0o100_644, 0, 168 * BLOCK as u32, &map);
    }
    raw.save();
    let (_, deleted) = raw.image.deleted();
    let with = |verdict: Verdict| {
        let files = deleted.files.iter();
        files.filter(move |file| file.verdict == verdict)
    };
    let is_said = |file: &&extant_rescue::DeletedFile| file.why.contains("more blocks");
    // 131,072 blocks and 1,048,576 runs are kept; the first ones have claimed each other's blocks.
    assert_eq!(with(Verdict::Lost).count(), 131_072 / 84);
    let (likely, unmapped) = (with(Verdict::Likely), with(Verdict::Unmapped));
    assert_eq!(
        likely.filter(is_said).count(),
        (1 << 20) / 84 - 131_072 / 84
    );
    assert_eq!(unmapped.filter(is_said).count(), 16_364 - (1 << 20) / 84);
}

#[test]
fn paths_that_are_longer_than_paths_can_be_are_not_told() {
    let image = Image::new(16 << 20, &["-t", "ext2", "-b", "1024"]);
    let source = image.path.with_extension("source");
    fs::write(&source, "content\n").unwrap();
    let name = "n".repeat(250);
    let mut requests = Vec::new();
    for depth in 0..20 {
        requests.push(format!("mkdir {name}"));
        requests.push(format!("cd {name}"));
        if depth == 9 || depth == 19 {
            requests.push(format!("write {} f{depth}", source.display()));
        }
    }
    requests.push("rm f19".to_owned());
    requests.extend((0..10).map(|_| "cd ..".to_owned()));
    requests.push("rm f9".to_owned());
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(&image.path, &requests);
    let (_, deleted) = image.deleted();
    let paths: Vec<Option<String>> = deleted.files.iter().map(path_of).collect();
    assert_eq!(paths.len(), 2, "{deleted:?}");
    assert!(paths[0].as_ref().is_some_and(|path| path.ends_with("/f9")));
    assert_eq!(paths[1], None);
}

/// The verdict on an orphan, and why.
#[track_caller]
fn orphan(image: &Image, rescue: &Rescue, expected: &[u8]) -> (Verdict, &'static str) {
    let Deleted { files, .. } = rescue.deleted().unwrap();
    let orphan = files.iter().find(|file| file.source == Source::OrphanList);
    let orphan = orphan.unwrap_or_else(|| panic!("{}: {files:?}", image.path.display()));
    assert!(content(rescue, orphan) == expected);
    (orphan.verdict, orphan.why)
}

#[test]
fn orphans_are_whole_only_where_recovery_is_known_to_leave_them() {
    let mut rng = Rng::new(seed_from_env("rescue::orphans_without_proof"));
    let bytes = noise(&mut rng, 50_000);
    for has_journal in [true, false] {
        let features = if has_journal {
            "has_journal"
        } else {
            "^has_journal"
        };
        let image = Image::new(32 << 20, &["-t", "ext4", "-b", "1024", "-O", features]);
        let source = image.path.with_extension("source");
        fs::write(&source, &bytes).unwrap();
        let put = format!("write {} f", source.display());
        let requests = [
            put.as_str(),
            "unlink f",
            "set_inode_field <12> links_count 0",
            "set_super_value last_orphan 12",
        ];
        debugfs_write(&image.path, &requests);
        let told = orphan(&image, &image.rescue(), &bytes);
        if has_journal {
            assert_eq!(told, (Verdict::Whole, ""));
            let lies = Rescue::open_as_it_lies(device(&image.path)).unwrap();
            let (verdict, why) = orphan(&image, &lies, &bytes);
            assert_eq!(verdict, Verdict::Likely);
            assert!(why.contains("as it lies"), "{why}");
        } else {
            assert_eq!(told, (Verdict::Likely, "there is no journal"));
        }
    }
}

#[test]
fn an_image_that_is_half_way_is_refused_with_what_to_do() {
    for (bit, advice) in [(29, "`extant replay`"), (30, "`extant revert`")] {
        let mut raw = Raw::new();
        let at = 1024 + 0x60;
        let incompat = u32::from_le_bytes(raw.bytes[at..at + 4].try_into().unwrap());
        raw.put(at, &(incompat | 1 << bit).to_le_bytes());
        let path = raw.save();
        for opened in [
            Rescue::open(device(path), None),
            Rescue::open_as_it_lies(device(path)),
        ] {
            let refused = opened.map(drop).unwrap_err().to_string();
            assert!(refused.contains(advice), "{bit}: {refused}");
        }
    }
}
