//! Files whose blocks have numbers of more than 32 bits, on a sparse file of 17 TiB.

use crate::support::pattern;
use extant_blockdev::{FileDevice, SharedDevice};
use extant_core::data;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::ops::{self, SetXattr};
use extant_format::Ino;
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{debugfs_write, e2fsck, mke2fs};
use extant_testkit::require;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const LIMIT: u64 = 1 << 32;
const BLOCK: u64 = 4096;
/// Files of so many kinds, by the remainders of their numbers, begin in different places.
fn kinds() -> u32 {
    extant_sync::shard_count() as u32
}

/// So many files that some are of any kind.
fn old_files() -> u32 {
    20 * kinds()
}

struct Image {
    _dir: TempDir,
    path: PathBuf,
}

/// Few inodes, tables that are not written, and a file only as large as what is.
fn image() -> Image {
    // Files of 16 TiB are too large for other file systems.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("image");
    let lazily = "lazy_itable_init=1,lazy_journal_init=1,nodiscard";
    let options = [
        "-t",
        "ext4",
        "-b",
        "4096",
        "-N",
        "139264",
        "-J",
        "size=4",
        "-E",
        lazily,
        "-O",
        "64bit,^resize_inode,sparse_super2",
    ];
    mke2fs(&path, 17 << 40, &options);
    Image { _dir: dir, path }
}

fn open(path: &Path) -> (Arc<Fs>, Arc<FaultDevice>) {
    let device: SharedDevice = Arc::new(FileDevice::open(path).unwrap());
    let faulty = Arc::new(FaultDevice::new(device));
    let options = MountOptions::read_write().background(false);
    (Fs::open(faulty.clone(), options).unwrap(), faulty)
}

/// Leaves the log dirty: after this nothing reaches the device.
fn die(fs: Arc<Fs>, device: Arc<FaultDevice>) {
    device.inject(FaultRule::fail_nth(IoKind::Write, 0).from_then_on());
    assert!(fs.close().is_err());
    drop((fs, device));
}

/// Makes directories below the root until one lies beyond, and returns that. They are spread.
fn directory_beyond(fs: &Fs, root: &Held) -> (String, Held) {
    for n in 0..600 {
        let name = format!("top{n}");
        let new = NewInode::new(FileType::Directory, 0o755, ops::now());
        let dir = ops::mkdir(fs, root, name.as_bytes(), &new).unwrap();
        let at = fs.geometry().locate_inode(dir.ino()).unwrap();
        if fs.geometry().group_first_block(at.group).unwrap().get() >= LIMIT {
            return (name, dir);
        }
    }
    panic!("none of 600 directories lies beyond");
}

fn create(fs: &Fs, dir: &Held, name: &str) -> Held {
    let new = NewInode::new(FileType::Regular, 0o644, ops::now());
    ops::create(fs, dir, name.as_bytes(), &new).unwrap()
}

fn held(fs: &Fs, dir: &Held, name: &str) -> Held {
    let found = ops::lookup(fs, &dir.snapshot(), name.as_bytes()).unwrap();
    fs.hold(found.ino()).unwrap()
}

/// The numbers of a file's blocks.
fn blocks(fs: &Fs, held: &Held) -> Vec<u64> {
    let pieces = data::allocated_live(fs, held).unwrap();
    let runs = pieces.iter().map(|piece| {
        let first = piece.device_offset.unwrap() / BLOCK;
        first..first + piece.len.div_ceil(BLOCK)
    });
    runs.flatten().collect()
}

fn read(fs: &Fs, held: &Held) -> Vec<u8> {
    let mut bytes = vec![0xaa; held.live_size() as usize];
    assert_eq!(ops::pread(fs, held, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// A file with two blocks, of which the second holds zeros. They lie near its inode, and so does
/// what follows once it is opened again.
fn begin(fs: &Fs, dir: &Held, name: &str) -> Held {
    let file = create(fs, dir, name);
    let mut two = [0; 2 * BLOCK as usize];
    two[..5].copy_from_slice(b"first");
    assert_eq!(ops::pwrite(fs, &file, 0, &two).unwrap(), two.len());
    ops::fsync(fs, &file).unwrap();
    file
}

/// Blocks that lie apart, each with the number it has.
fn write_pieces(fs: &Fs, held: &Held, pieces: u64) -> Vec<u8> {
    let mut content = vec![0; (pieces * 2 * BLOCK) as usize];
    for n in 0..pieces {
        let at = (2 * n * BLOCK) as usize;
        let bytes = pattern(n, BLOCK as usize);
        content[at..at + bytes.len()].copy_from_slice(&bytes);
        let wrote = ops::pwrite(fs, held, at as u64, &bytes).unwrap();
        assert_eq!(wrote, bytes.len());
    }
    content.truncate(((pieces * 2 - 1) * BLOCK) as usize);
    content
}

fn assert_clean(image: &Image) {
    let output = e2fsck(&image.path, &["-fn"]);
    assert_eq!(output.code, 0, "{output}");
}

/// What is made with extents.
struct Made {
    top: String,
    plain: Vec<u8>,
    pieces: Vec<u8>,
    value: Vec<u8>,
    target: Vec<u8>,
    /// Free blocks before.
    free: u64,
}

/// Names in the directory with an index.
fn names() -> impl Iterator<Item = String> {
    (0..60).map(|n| format!("{n:0200}"))
}

/// Makes all kinds of blocks beyond, and leaves them in the log.
fn make(image: &Image) -> Made {
    let (fs, device) = open(&image.path);
    let root = fs.hold(Ino::ROOT).unwrap();
    let (top, dir) = directory_beyond(&fs, &root);
    ops::syncfs(&fs).unwrap();
    let free = fs.statfs().unwrap().free;
    for name in ["plain", "pieces"] {
        drop(begin(&fs, &dir, name));
    }
    drop((dir, root));
    fs.close().unwrap();
    drop((fs, device));

    let (fs, device) = open(&image.path);
    let root = fs.hold(Ino::ROOT).unwrap();
    let dir = held(&fs, &root, &top);
    let (plain, pieces) = (held(&fs, &dir, "plain"), held(&fs, &dir, "pieces"));
    let content = pattern(1, 3_000_000);
    let wrote = ops::pwrite(&fs, &plain, 0, &content).unwrap();
    assert_eq!(wrote, content.len());
    // Leaves of the tree lie in blocks of their own.
    let in_pieces = write_pieces(&fs, &pieces, 400);
    // So does the value.
    let value = pattern(2, 3000);
    ops::setxattr(&fs, &plain, b"user.large", &value, SetXattr::Any).unwrap();
    let target = vec![b'x'; 200];
    let new = NewInode::new(FileType::Symlink, 0o777, ops::now());
    let link = ops::symlink(&fs, &dir, b"link", &target, &new).unwrap();
    let new = NewInode::new(FileType::Directory, 0o755, ops::now());
    let sub = ops::mkdir(&fs, &dir, b"sub", &new).unwrap();
    for name in names() {
        create(&fs, &sub, &name);
    }
    ops::syncfs(&fs).unwrap();
    for held in [&plain, &pieces, &link, &sub] {
        let blocks = blocks(&fs, held);
        let few = &blocks[..blocks.len().min(8)];
        assert!(
            !few.is_empty() && blocks.iter().all(|b| *b >= LIMIT),
            "{few:?}"
        );
    }
    drop((plain, pieces, link, sub, dir, root));
    die(fs, device);
    Made {
        top,
        plain: content,
        pieces: in_pieces,
        value,
        target,
        free,
    }
}

/// What the kernel finds once it has replayed the log.
fn assert_linux_sees(image: &Image, made: &Made) {
    require!(Root, LoopDevices, KernelExt4);
    let mounted = KernelMount::mount(&image.path, Mode::ReadWrite, "noinit_itable");
    let at = mounted.join(&made.top);
    assert!(std::fs::read(at.join("plain")).unwrap() == made.plain);
    assert!(std::fs::read(at.join("pieces")).unwrap() == made.pieces);
    assert_eq!(std::fs::read_dir(at.join("sub")).unwrap().count(), 60);
    let found = std::fs::read_link(at.join("link")).unwrap();
    assert_eq!(found.as_os_str().as_encoded_bytes(), made.target);
    mounted.unmount();
}

/// Files made as on ext3, in a directory that lies beyond: maps of indirect blocks hold numbers of
/// 32 bits.
fn make_old(image: &Image, made: &Made) {
    // What is made without this feature is mapped so.
    debugfs_write(&image.path, &["feature -extent"]);
    let (fs, _device) = open(&image.path);
    let root = fs.hold(Ino::ROOT).unwrap();
    let dir = held(&fs, &root, &made.top);
    let new = NewInode::new(FileType::Directory, 0o755, ops::now());
    let old = ops::mkdir(&fs, &dir, b"old", &new).unwrap();
    let file = begin(&fs, &old, "file");
    let content = write_pieces(&fs, &file, 600);
    let value = &made.value;
    ops::setxattr(&fs, &file, b"user.large", value, SetXattr::Any).unwrap();
    let new = NewInode::new(FileType::Symlink, 0o777, ops::now());
    let link = ops::symlink(&fs, &old, b"link", &made.target, &new).unwrap();
    for n in 0..old_files() {
        create(&fs, &old, &format!("{n}"));
    }
    ops::syncfs(&fs).unwrap();
    for held in [&file, &link, &old] {
        assert_below(&blocks(&fs, held));
    }
    assert!(read(&fs, &file) == content);
    drop((file, link, old, dir, root));
    fs.close().unwrap();
    debugfs_write(&image.path, &["feature extent"]);
}

fn assert_below(blocks: &[u64]) {
    let few = &blocks[..blocks.len().min(8)];
    assert!(
        !few.is_empty() && blocks.iter().all(|b| *b < LIMIT),
        "{few:?}"
    );
}

#[test]
fn files_beyond_32_bits_are_written_read_and_freed_and_those_with_indirect_blocks_stay_below() {
    let image = image();
    let made = make(&image);
    assert_linux_sees(&image, &made);
    make_old(&image, &made);
    assert_clean(&image);

    let (fs, _device) = open(&image.path);
    let root = fs.hold(Ino::ROOT).unwrap();
    let dir = held(&fs, &root, &made.top);
    let (plain, pieces) = (held(&fs, &dir, "plain"), held(&fs, &dir, "pieces"));
    assert!(read(&fs, &plain) == made.plain);
    assert!(read(&fs, &pieces) == made.pieces);
    let found = ops::getxattr_live(&fs, &plain, b"user.large").unwrap();
    assert!(found == made.value);

    // Files whose numbers have the same remainder are to begin where this one goes on.
    let more = pattern(3, 300_000);
    let end = plain.live_size();
    assert_eq!(ops::pwrite(&fs, &plain, end, &more).unwrap(), more.len());
    ops::syncfs(&fs).unwrap();
    let last = *blocks(&fs, &plain).last().unwrap();
    assert!(last >= LIMIT, "{last}");
    let old = held(&fs, &dir, "old");
    let mut tried = 0;
    for n in 0..old_files() {
        let file = held(&fs, &old, &format!("{n}"));
        let alike = file.ino().get() % kinds() == plain.ino().get() % kinds();
        if alike && tried < 4 {
            assert_eq!(ops::pwrite(&fs, &file, 0, &more).unwrap(), more.len());
            ops::fsync(&fs, &file).unwrap();
            assert_below(&blocks(&fs, &file));
            tried += 1;
        }
        drop(file);
        ops::unlink(&fs, &old, format!("{n}").as_bytes()).unwrap();
    }
    assert!(tried > 0);

    ops::ftruncate(&fs, &pieces, 100 * BLOCK).unwrap();
    assert!(read(&fs, &pieces) == made.pieces[..100 * BLOCK as usize]);
    drop((plain, pieces));
    let sub = held(&fs, &dir, "sub");
    for name in names() {
        ops::unlink(&fs, &sub, name.as_bytes()).unwrap();
    }
    for name in ["file", "link"] {
        ops::unlink(&fs, &old, name.as_bytes()).unwrap();
    }
    drop((sub, old));
    for name in ["sub", "old"] {
        ops::rmdir(&fs, &dir, name.as_bytes()).unwrap();
    }
    for name in ["plain", "pieces", "link"] {
        ops::unlink(&fs, &dir, name.as_bytes()).unwrap();
    }
    ops::syncfs(&fs).unwrap();
    assert_eq!(fs.statfs().unwrap().free, made.free);
    drop((dir, root));
    fs.close().unwrap();
    drop((fs, _device));
    assert_clean(&image);
}
