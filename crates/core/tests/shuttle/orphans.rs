//! Orphans: noted and taken back by several threads, on the list and in the orphan file, while
//! inodes leave memory, transactions commit and the power may fail.

use super::{World, bytes, create, explore, image_with, open, open_with_memory, was_there};
use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Bulkstat, BulkstatWay, FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::{Error, ops};
use extant_format::{Ino, Pblk};
use extant_sync::thread;
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle::assert_clean;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Room for next to no inode.
const SHORT: usize = 1 << 12;
/// Slots of an orphan file of one block.
const SLOTS: usize = 254;

/// An image that notes orphans on the list.
fn image() -> Arc<[u8]> {
    image_with(3 << 20, &["-O", "^orphan_file"])
}

/// An image with an orphan file of one block, and more inodes than that has slots.
fn image_with_file() -> Arc<[u8]> {
    image_with(
        3 << 20,
        &["-N", "320", "-O", "orphan_file", "-E", "orphan_file_size=1"],
    )
}

fn free_inodes(fs: &Fs) -> u64 {
    fs.statfs().unwrap().free_inodes
}

/// Notes what was not taken back: on the list, in the file.
fn noted(fs: &Fs) -> [u64; 2] {
    let stats = fs.orphan_stats();
    [
        stats.list_added - stats.list_removed,
        stats.file_added - stats.file_removed,
    ]
}

/// What a crash would leave now is recovered: every note can be right, and of the inodes that `all`
/// counts, those with names apart, none is lost.
fn survives_a_crash_now(device: &MemoryDevice, all: u64) {
    static IMAGES: AtomicU64 = AtomicU64::new(0);
    let copy = Arc::new(MemoryDevice::from_image(&bytes(device)));
    let fs = open(&copy);
    let names = super::names(&fs);
    assert_eq!(free_inodes(&fs) + names.len() as u64, all, "{names:?}");
    fs.close().unwrap();
    drop(fs);
    let again = Fs::open(copy.clone(), MountOptions::read_only()).unwrap();
    assert_eq!(again.superblock().error_count(), 0, "a note was wrong");
    assert_eq!(again.superblock().orphan_list_head(), None);
    if IMAGES.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes(&copy)).unwrap();
        assert_clean(file.path());
    }
}

/// An inode that never had a name.
fn nameless(fs: &Fs, root: &Held) -> Held {
    let new = NewInode::new(FileType::Regular, 0o600, ops::now());
    ops::tmpfile(fs, root, &new).unwrap()
}

/// Commits, and shows what a crash would leave.
fn committing(world: &World, all: u64) -> thread::JoinHandle<()> {
    let (fs, device) = (Arc::clone(&world.fs), Arc::clone(&world.device));
    thread::spawn(move || {
        for _ in 0..2 {
            fs.sync().unwrap();
            survives_a_crash_now(&device, all);
        }
    })
}

/// What becomes orphan is deleted by one thread while another one unlinks, others walk over all
/// inodes with room for none, and others commit.
fn come_and_go_while_inodes_leave_memory(name: &str, image: Arc<[u8]>) {
    explore(name, move || {
        let world = World::with(&image, |device| open_with_memory(device, SHORT));
        let root = world.root();
        let all = free_inodes(&world.fs);
        let names = ["a", "b", "c"];
        for name in names {
            let held = create(&world.fs, &root, name).unwrap();
            ops::pwrite(&world.fs, &held, 0, &[1; 3000]).unwrap();
        }
        world.fs.sync().unwrap();
        let unlinking = names.map(|name| {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || {
                let held = ops::lookup_held(&*fs, &root, name.as_bytes()).unwrap();
                ops::truncate(&fs, &held, 1500).unwrap();
                assert!(was_there(ops::unlink(&fs, &root, name.as_bytes())));
                // Gone from the directory, and still what it was.
                assert_eq!(held.view().size(), 1500);
                let id = held.id();
                ops::release(&fs, held).unwrap();
                assert!(fs.hold_same(id).is_err());
            })
        });
        let walking = {
            let fs = Arc::clone(&world.fs);
            thread::spawn(move || {
                let way = BulkstatWay::Cache;
                fs.bulkstat(Bulkstat::new(way, 1), |_, inode| {
                    inode.unwrap();
                });
            })
        };
        let committing = committing(&world, all);
        for thread in unlinking.into_iter().chain([walking, committing]) {
            thread.join().unwrap();
        }
        world.fs.sync().unwrap();
        assert_eq!(noted(&world.fs), [0, 0]);
        assert_eq!(free_inodes(&world.fs), all);
        survives_a_crash_now(&world.device, all);
        drop(root);
        world.finish(&[&[]]);
    });
}

#[test]
fn orphans_on_the_list_come_and_go_while_inodes_leave_memory() {
    come_and_go_while_inodes_leave_memory("orphans_on_the_list_come_and_go", image());
}

#[test]
fn orphans_in_the_file_come_and_go_while_inodes_leave_memory() {
    come_and_go_while_inodes_leave_memory("orphans_in_the_file_come_and_go", image_with_file());
}

/// Those that stand next to each other on the list are taken off by different threads, while others
/// come to stand before them.
#[test]
fn neighbours_on_the_list_leave_it_together() {
    let image = image();
    explore("neighbours_on_the_list_leave_it_together", move || {
        let world = World::new(&image);
        let root = world.root();
        let all = free_inodes(&world.fs);
        let noted_now: Vec<Held> = (0..5).map(|_| nameless(&world.fs, &root)).collect();
        world.fs.sync().unwrap();
        assert_eq!(noted(&world.fs), [5, 0]);
        let mut kept = Vec::new();
        let mut threads = vec![committing(&world, all)];
        for (at, held) in noted_now.into_iter().enumerate() {
            // The first and the last noted stay: what is between them names one of them in the end.
            if at % 4 == 0 {
                kept.push(held);
                continue;
            }
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            threads.push(thread::spawn(move || {
                let another = (at == 2).then(|| nameless(&fs, &root));
                ops::release(&fs, held).unwrap();
                if let Some(another) = another {
                    ops::release(&fs, another).unwrap();
                }
            }));
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(noted(&world.fs), [2, 0]);
        world.fs.sync().unwrap();
        survives_a_crash_now(&world.device, all);
        for held in kept {
            ops::release(&world.fs, held).unwrap();
        }
        drop(root);
        world.finish(&[&[]]);
    });
}

/// An inode that finds no slot in the orphan file is noted on the list; both places are recovered,
/// and looked at by a thread that takes a note back.
#[test]
fn what_finds_the_file_full_goes_to_the_list_and_both_are_recovered() {
    static LISTED: AtomicU64 = AtomicU64::new(0);
    static FILED: AtomicU64 = AtomicU64::new(0);
    let image = image_with_file();
    explore("what_finds_the_file_full_goes_to_the_list", move || {
        let world = World::new(&image);
        let root = world.root();
        let all = free_inodes(&world.fs);
        let filling: Vec<Held> = (2..SLOTS).map(|_| nameless(&world.fs, &root)).collect();
        let before = world.fs.orphan_stats();
        assert_eq!(
            (before.list_added, before.file_added),
            (0, SLOTS as u64 - 2)
        );
        // There are two slots for six.
        let threads = [0, 1, 2].map(|_| {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || {
                let two = [nameless(&fs, &root), nameless(&fs, &root)];
                for held in two {
                    ops::release(&fs, held).unwrap();
                }
            })
        });
        let committing = {
            let (fs, device) = (Arc::clone(&world.fs), Arc::clone(&world.device));
            thread::spawn(move || {
                fs.sync().unwrap();
                survives_a_crash_now(&device, all);
            })
        };
        for thread in threads.into_iter().chain([committing]) {
            thread.join().unwrap();
        }
        let stats = world.fs.orphan_stats();
        LISTED.fetch_add(stats.list_added, Ordering::Relaxed);
        FILED.fetch_add(stats.file_added - before.file_added, Ordering::Relaxed);
        assert_eq!(stats.list_added, stats.list_removed);
        assert_eq!(noted(&world.fs), [0, SLOTS as u64 - 2]);
        drop((filling, root));
        world.finish(&[&[]]);
    });
    let seen = [&LISTED, &FILED].map(|seen| seen.load(Ordering::Relaxed));
    assert!(!seen.contains(&0), "{seen:?}");
}

/// The record of the inode before cannot be read: the inode that is to leave the list stays on it,
/// and is deleted by the next to open the file system. All others go.
#[test]
fn who_cannot_be_taken_off_the_list_is_still_on_it() {
    /// Records in a block of the inode table.
    const RECORDS: u32 = 4;
    static FAILED: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicU64 = AtomicU64::new(0);
    let image = image();
    explore("who_cannot_be_taken_off_the_list", move || {
        let device = Arc::new(MemoryDevice::from_image(&image));
        let faulty = Arc::new(FaultDevice::new(device.clone()));
        let options = MountOptions::read_write().background(false).memory(1 << 20);
        let fs = Fs::open(faulty.clone(), options).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let all = free_inodes(&fs);
        let mut held: Vec<Held> = (0..16).map(|_| nameless(&fs, &root)).collect();
        let block = |held: &Held| (held.ino().get() - 1) / RECORDS;
        fs.sync().unwrap();
        fs.checkpoint().unwrap();
        for at in 0..fs.cache().blocks() {
            fs.cache().discard(Pblk::new(at));
        }
        // One whose own record is at hand, and that of the one that names it is not; and the
        // latter.
        let mut both = held.windows(2);
        let at = both.position(|both| block(&both[0]) != block(&both[1]));
        let at = at.expect("they lie in four blocks at least");
        ops::chmod(&*fs, &held[at], 0o640).unwrap();
        faulty.inject(FaultRule::fail_nth(IoKind::Read, 0).from_then_on());
        let leaving = [held.remove(at), held.remove(at)].map(|held| {
            let fs = Arc::clone(&fs);
            thread::spawn(move || match ops::release(&fs, held) {
                Ok(()) => DONE.fetch_add(1, Ordering::Relaxed),
                Err(Error::Device(_)) => FAILED.fetch_add(1, Ordering::Relaxed),
                Err(e) => panic!("{e}"),
            })
        });
        thread::yield_now();
        faulty.heal();
        for thread in leaving {
            thread.join().unwrap();
        }
        // One more comes and goes.
        ops::release(&fs, nameless(&fs, &root)).unwrap();
        fs.sync().unwrap();
        survives_a_crash_now(&device, all);
        drop((held, root));
        fs.close().unwrap();
        survives_a_crash_now(&device, all);
    });
    let seen = [&FAILED, &DONE].map(|seen| seen.load(Ordering::Relaxed));
    assert!(!seen.contains(&0), "{seen:?}");
}
