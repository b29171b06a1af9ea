//! Multiple-mount protection, as others see it: the kernel and e2fsprogs keep off an image that is
//! open here, and what the kernel has mounted is not opened here.

use crate::transactions::give_uuid;
use extant::{Filesystem, MountOptions, SharedDevice, Transaction};
use extant_blockdev::BlockDevice;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_testkit::crash::{Content, CrashDevice};
use extant_testkit::loopdev::{Access, LoopDevice};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The number in the block of a file system that nobody has open (`EXT4_MMP_SEQ_CLEAN`).
const CLEAN: &str = "ff4d4d50";

/// A program that finds a number that is alive watches it for at least so long: twice the shortest
/// interval (5 s), and 1 s.
const WATCH: Duration = Duration::from_secs(11);
/// Well below that: a free file system is not watched.
const AT_ONCE: Duration = Duration::from_secs(5);

fn image(dir: &TempDir, name: &str) -> std::path::PathBuf {
    let path = dir.path().join(name);
    // The shortest intervals there are.
    let options = ["-t", "ext4", "-O", "mmp", "-E", "mmp_update_interval=1"];
    mke2fs(&path, 16 << 20, &options);
    path
}

/// A field of the block, as debugfs shows it.
#[track_caller]
fn field(image: &Path, name: &str) -> String {
    let said = tool("debugfs").args(["-R", "dump_mmp"]).arg(image).run();
    let block = said.text();
    let line = block.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(": "));
    let (_, value) = value.unwrap_or_else(|| panic!("no {name}: {said}"));
    value.trim().to_owned()
}

/// What the kernel says to mounting the image, and when.
fn mount(image: &Path) -> (Result<KernelMount, std::io::Error>, Duration) {
    let start = Instant::now();
    let device = LoopDevice::attach(image, Access::ReadWrite).unwrap();
    let mounted = KernelMount::from_device("ext4", device, Mode::ReadWrite, "");
    (mounted, start.elapsed())
}

fn errno_of(refused: extant::Result<Filesystem>) -> i32 {
    refused
        .expect_err("what the kernel has mounted is opened")
        .errno()
}

/// One test, because it waits for the same 11 s all the time.
#[test]
fn an_image_belongs_to_who_opened_it_first_be_it_the_kernel_or_us() {
    require!(LoopDevices, KernelExt4);
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (ours, theirs) = (image(&dir, "ours.img"), image(&dir, "theirs.img"));

    assert_eq!(field(&ours, "sequence"), CLEAN);
    let fs = Filesystem::open_writable(&ours).unwrap();
    fs.write("/file", b"ours").unwrap();
    fs.sync().unwrap();
    let number = field(&ours, "sequence");
    assert_ne!(number, CLEAN);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(field(&ours, "node_name"), host.trim());

    let (mounted, waited) = mount(&theirs);
    let mounted = mounted.unwrap();
    assert!(waited < AT_ONCE, "the kernel waited {waited:?}");
    std::fs::write(mounted.join("file"), b"theirs").unwrap();
    // On this host we see that without any number.
    let refused = Filesystem::open_writable(&theirs);
    assert_eq!(errno_of(refused), Errno::BUSY.raw_os_error());
    // A device of its own stands for that of another host: it has its own copies in memory, and
    // nothing else of what is known here leads from the one to the other.
    let elsewhere = || LoopDevice::attach(&theirs, Access::ReadWrite).unwrap();

    thread::scope(|scope| {
        scope.spawn(|| {
            let (refused, waited) = mount(&ours);
            let error = refused.expect_err("the kernel mounts what is open here");
            assert_eq!(error.raw_os_error(), Some(Errno::BUSY.raw_os_error()));
            assert!(waited >= WATCH, "the kernel looked for {waited:?} only");
        });
        scope.spawn(|| {
            let refused = e2fsck(&ours, &["-fy"]);
            assert!(refused.code & 8 != 0, "{refused}");
            assert!(refused.to_string().contains("MMP"), "{refused}");
        });
        scope.spawn(|| {
            let refused = tool("dumpe2fs").arg("-m").arg(&ours).run();
            assert!(refused.code != 0, "{refused}");
            assert!(refused.to_string().contains("active"), "{refused}");
        });
        scope.spawn(|| {
            let start = Instant::now();
            let elsewhere = elsewhere();
            let refused = Filesystem::open_writable(elsewhere.path());
            let said = format!("{:?}", refused.as_ref().err());
            assert_eq!(errno_of(refused), Errno::BUSY.raw_os_error());
            assert!(said.contains(host.trim()), "{said}");
            assert!(start.elapsed() >= WATCH, "{:?}", start.elapsed());
        });
    });

    // A program that was refused has changed nothing, and our number is another one by now.
    assert_ne!(field(&ours, "sequence"), number);
    fs.write("/later", b"still ours").unwrap();
    fs.close().unwrap();
    assert_eq!(field(&ours, "sequence"), CLEAN);
    assert_clean(&ours);
    let free = tool("dumpe2fs").arg("-m").arg(&ours).run();
    assert!(free.code == 0, "{free}");
    let (remounted, waited) = mount(&ours);
    let remounted = remounted.unwrap();
    assert!(waited < AT_ONCE, "the kernel waited {waited:?}");
    assert_eq!(std::fs::read(remounted.join("file")).unwrap(), b"ours");
    assert_eq!(
        std::fs::read(remounted.join("later")).unwrap(),
        b"still ours"
    );
    remounted.unmount();

    assert_eq!(std::fs::read(mounted.join("file")).unwrap(), b"theirs");
    mounted.unmount();
    assert_clean(&theirs);
    let start = Instant::now();
    let elsewhere = elsewhere();
    let fs = Filesystem::open_writable(elsewhere.path()).unwrap();
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert_eq!(fs.read("/file").unwrap(), b"theirs");
    fs.close().unwrap();
    drop(elsewhere);
    assert_eq!(field(&theirs, "sequence"), CLEAN);
}

/// Where the number of a claim is.
fn place_of_number(content: &Content) -> u64 {
    let mut bytes = [0; SUPERBLOCK_LEN];
    content.read(SUPERBLOCK_OFFSET, &mut bytes);
    let superblock = Superblock::parse(&bytes).unwrap();
    let block = superblock.mmp_block().unwrap();
    superblock.block_size().offset_of(block).unwrap() + 4
}

fn bytes_of(content: &Content) -> Vec<u8> {
    let mut bytes = vec![0; content.size() as usize];
    content.read(0, &mut bytes);
    bytes
}

/// A try writes nothing, and says what the change itself would say, after as long a wait.
#[test]
fn a_dry_run_is_refused_what_another_host_has_claimed() {
    const FSCK: u32 = 0xe24d_4d50;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    // Without a checksum of the block, which the test would have to make.
    let options = ["-t", "ext4", "-O", "mmp,^metadata_csum"];
    let options = [&options[..], &["-E", "mmp_update_interval=1"]].concat();
    mke2fs(&path, 8 << 20, &options);
    let begun = |number: u32, is_alive: bool| {
        let mut content = Content::of_file(&path);
        let at = place_of_number(&content);
        content.write(at, &number.to_le_bytes());
        let device = CrashDevice::over(content.clone());
        let ended = Arc::new(AtomicBool::new(false));
        let other = {
            let (device, ended) = (device.clone(), Arc::clone(&ended));
            thread::spawn(move || {
                let mut number = number;
                while is_alive && !ended.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(500));
                    number += 1;
                    device.write_at(at, &number.to_le_bytes()).unwrap();
                }
            })
        };
        let shared: SharedDevice = Arc::new(device.clone());
        let options = MountOptions::read_write();
        let start = Instant::now();
        let begun = Transaction::rehearse_device(shared, "", options);
        let took = start.elapsed();
        ended.store(true, Ordering::Relaxed);
        other.join().unwrap();
        if !is_alive {
            let is_as_before = bytes_of(&device.content()) == bytes_of(&content);
            assert!(is_as_before, "it was written to");
        }
        (begun, took)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let (refused, took) = begun(FSCK, false);
            assert_eq!(refused.unwrap_err().errno(), Errno::BUSY.raw_os_error());
            assert!(took < AT_ONCE, "{took:?}");
        });
        scope.spawn(|| {
            let (refused, took) = begun(7, true);
            assert_eq!(refused.unwrap_err().errno(), Errno::BUSY.raw_os_error());
            assert!(took >= WATCH, "{took:?}");
        });
        scope.spawn(|| {
            let (begun, took) = begun(7, false);
            assert!(took >= WATCH, "{took:?}");
            // A host that died keeps no line of a script from what it does.
            give_uuid(&mut begun.unwrap(), [7; 16]).unwrap();
        });
    });
}
