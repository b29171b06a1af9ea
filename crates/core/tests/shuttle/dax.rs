//! A device that is memory: writes over data share the lock of the file where the device keeps
//! copies whole.

use super::{
    World, content, create, explore, explore_and_find, image, image_with, names, open_and_close,
};
use extant_blockdev::{BlockDevice, DeviceResult, DirectMemory, MemoryDevice};
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Held;
use extant_core::mutants::Mutant;
use extant_core::ops;
use extant_sync::thread;
use std::sync::Arc;

/// Bytes of the parts of a device in memory, within which copies are whole.
const PART: u64 = 64 << 10;
/// Bytes of a write.
const LEN: usize = 2048;
/// Bytes of a file in which such a part begins for certain.
const FILE: usize = 96 << 10;

/// An image that has less to use than twice the file that is cut: the rest is another one's.
fn small_image() -> Arc<[u8]> {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("c"), vec![9; 1700 << 10]).unwrap();
    image_with(3 << 20, &["-d", source.path().to_str().unwrap()])
}

fn open(device: &Arc<MemoryDevice>) -> Arc<Fs> {
    let options = MountOptions::read_write().background(false).dax(true);
    Fs::open(device.clone(), options).unwrap()
}

/// Opens it on a device that claims more than it keeps.
fn open_torn(device: &Arc<MemoryDevice>) -> Arc<Fs> {
    let options = MountOptions::read_write().background(false).dax(true);
    Fs::open(Arc::new(Torn(device.clone())), options).unwrap()
}

/// A device that copies line by line, and says that copies are whole.
#[derive(Debug)]
struct Torn(Arc<MemoryDevice>);

impl BlockDevice for Torn {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.0.flush()
    }

    fn direct(&self) -> Option<&dyn DirectMemory> {
        Some(self)
    }
}

impl DirectMemory for Torn {
    fn copy_in(&self, offset: u64, src: &[u8]) -> DeviceResult<()> {
        let lines = (offset..).step_by(64).zip(src.chunks(64));
        lines
            .into_iter()
            .try_for_each(|(at, line)| self.0.copy_in(at, line))
    }

    fn copy_out(&self, offset: u64, dst: &mut [u8]) -> DeviceResult<()> {
        self.0.copy_out(offset, dst)
    }

    fn persist(&self, range: std::ops::Range<u64>) -> DeviceResult<()> {
        self.0.persist(range)
    }

    fn whole_within(&self) -> u64 {
        self.0.whole_within()
    }
}

/// A file of ones; where a write of it lies inside one part of the device, and where one lies in
/// two.
fn file_of_ones(fs: &Fs, file: &Held, len: usize) -> (u64, u64) {
    write(fs, file, 0, &vec![1; len]);
    let pieces = ops::allocated_live(fs, file).unwrap();
    let parts = pieces.iter().filter_map(|piece| {
        let start = piece.device_offset?;
        let begins = start.next_multiple_of(PART) - start;
        let is_inside = begins >= LEN as u64 && begins + 4 * LEN as u64 <= piece.len;
        is_inside.then(|| piece.offset + begins)
    });
    let begins = parts
        .min()
        .expect("a file in which a part of the device begins");
    (begins + 2 * LEN as u64, begins - LEN as u64 / 2)
}

fn write(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    assert_eq!(ops::pwrite(fs, file, offset, bytes).unwrap(), bytes.len());
}

fn write_direct(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    let written = ops::pwrite_direct(fs, file, offset, bytes).unwrap();
    assert_eq!(written, bytes.len());
}

/// What `LEN` bytes from `offset` on all are. Nothing where the file ends before.
fn read_whole(fs: &Fs, file: &Held, offset: u64, is_direct: bool) -> Option<u8> {
    let mut bytes = [0xaa; LEN];
    let len = if is_direct {
        ops::pread_direct(fs, file, offset, &mut bytes)
    } else {
        ops::pread(fs, file, offset, &mut bytes)
    };
    match len.unwrap() {
        0 => None,
        len => {
            assert!(len == LEN && bytes == [bytes[0]; LEN], "a torn write");
            Some(bytes[0])
        }
    }
}

/// Two write over the same data, as users of memory and as users past it, inside one part of the
/// device and in two parts, while one reads.
fn overwrites(world: World) {
    let file = create(&world.fs, &world.root(), "a").unwrap();
    let places = file_of_ones(&world.fs, &file, FILE);
    let spawn = |work: fn(&Fs, &Held, (u64, u64))| {
        let (fs, file) = (Arc::clone(&world.fs), file.clone());
        thread::spawn(move || work(&fs, &file, places))
    };
    let threads = [
        spawn(|fs, file, (inside, across)| {
            write(fs, file, inside, &[2; LEN]);
            write(fs, file, across, &[2; LEN]);
        }),
        spawn(|fs, file, (inside, across)| {
            write_direct(fs, file, across, &[3; LEN]);
            write_direct(fs, file, inside, &[3; LEN]);
        }),
        spawn(|fs, file, (inside, across)| {
            let mut seen = [1, 1];
            for is_direct in [false, true, false] {
                for (at, before) in [inside, across].into_iter().zip(&mut seen) {
                    let now = read_whole(fs, file, at, is_direct);
                    let now = now.expect("the file is as long as ever");
                    assert!(now == *before || now > 1, "{before} came back as {now}");
                    *before = now;
                }
            }
        }),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    let (inside, across) = places;
    let mut expected = vec![1; FILE];
    for at in [inside, across] {
        let last = read_whole(&world.fs, &file, at, true).unwrap();
        assert!(last == 2 || last == 3);
        expected[at as usize..][..LEN].fill(last);
    }
    ops::fsync(&world.fs, &file).unwrap();
    let recovered = open_and_close(&world.copy());
    assert!(content(&recovered, names(&recovered)["a"]) == expected);
    drop(file);
    world.finish(&[&["a"]]);
}

#[test]
fn writes_that_share_the_lock_of_a_file_are_whole() {
    let image = image();
    explore("writes_that_share_a_lock_are_whole", move || {
        overwrites(World::with(&image, open));
    });
}

#[test]
fn a_device_whose_copies_are_not_whole_is_found() {
    let image = image();
    explore_and_find(
        "copies_that_are_not_whole",
        None,
        "a torn write",
        move || {
            overwrites(World::with(&image, open_torn));
        },
    );
}

#[test]
fn sharing_the_lock_across_parts_of_the_device_is_found() {
    let image = image();
    let mistake = Some(Mutant::PartsShared);
    explore_and_find("sharing_across_parts", mistake, "a torn write", move || {
        overwrites(World::with(&image, open));
    });
}

/// The last of the writes, which go from 2 on: often, so that one of them is interrupted where it
/// matters.
const LAST: u8 = 40;

/// Reads what is written again and again. It never goes back.
fn read_on(fs: &Fs, _: &Held, file: &Held, at: u64) {
    let mut seen = 1;
    for is_direct in [true, false, true, false] {
        if let Some(now) = read_whole(fs, file, at, is_direct) {
            assert!((seen..=LAST).contains(&now), "{now} after {seen}");
            seen = now;
        }
    }
}

/// One writes over a file that takes most of what room there is, one takes the file's blocks away
/// and gives them to another, and one reads, unless the device's copies are not whole.
fn overwrite_against_truncate(world: World, is_whole: bool) {
    const ROOM: usize = 240 << 10;
    const OTHERS: usize = 200 << 10;
    const OTHER: u8 = 200;
    let file = create(&world.fs, &world.root(), "a").unwrap();
    let (inside, _) = file_of_ones(&world.fs, &file, ROOM);
    ops::syncfs(&world.fs).unwrap();
    let spawn = |work: fn(&Fs, &Held, &Held, u64)| {
        let (fs, file, root) = (Arc::clone(&world.fs), file.clone(), world.root());
        thread::spawn(move || work(&fs, &root, &file, inside))
    };
    let threads = [
        spawn(|fs, _, file, at| {
            for value in 2..=LAST {
                match value % 2 {
                    0 => write(fs, file, at, &[value; LEN]),
                    _ => write_direct(fs, file, at, &[value; LEN]),
                }
            }
        }),
        spawn(|fs, root, file, _| {
            ops::ftruncate(fs, file, 0).unwrap();
            ops::syncfs(fs).unwrap();
            let other = create(fs, root, "b").unwrap();
            write(fs, &other, 0, &vec![OTHER; OTHERS]);
        }),
        spawn(if is_whole { read_on } else { |_, _, _, _| {} }),
    ];
    for thread in threads {
        thread.join().unwrap();
    }
    // Cut after the last write, or before.
    let mut expected = vec![0; inside as usize];
    match read_whole(&world.fs, &file, inside, false) {
        None => expected.clear(),
        Some(last) => {
            assert_eq!(last, LAST);
            expected.extend([LAST; LEN]);
        }
    }
    ops::syncfs(&world.fs).unwrap();
    let recovered = open_and_close(&world.copy());
    let found = names(&recovered);
    assert!(
        content(&recovered, found["a"]) == expected,
        "content of the file that was cut"
    );
    let other = content(&recovered, found["b"]);
    assert!(
        other == vec![OTHER; OTHERS],
        "a write to blocks of another file"
    );
    drop(file);
    world.finish(&[&["a", "b", "c"]]);
}

#[test]
fn no_write_goes_to_blocks_that_were_taken_away() {
    let image = small_image();
    explore("no_write_goes_to_blocks_taken_away", move || {
        overwrite_against_truncate(World::with(&image, open), true);
    });
}

#[test]
fn writing_without_the_lock_of_the_file_is_found() {
    let image = small_image();
    let mistake = Some(Mutant::OverwriteNotLocked);
    let what = "a write to blocks of another file";
    explore_and_find("writing_without_the_lock", mistake, what, move || {
        overwrite_against_truncate(World::with(&image, open_torn), false);
    });
}
