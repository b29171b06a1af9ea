//! Writing back what others cut, evict, remove or write to meanwhile.

use super::{World, content, create, explore, image, names, open_and_close};
use extant_blockdev::MemoryDevice;
use extant_core::data;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::Held;
use extant_core::ops;
use extant_sync::thread;
use std::sync::Arc;

impl World {
    /// Opens an image with as little memory for file data as there can be.
    fn with_little_memory(image: &[u8]) -> Self {
        let device = Arc::new(MemoryDevice::from_image(image));
        let options = MountOptions::read_write()
            .background(false)
            .memory(1 << 20)
            .cache_bytes(0);
        let fs = Fs::open(device.clone(), options).unwrap();
        Self { device, fs }
    }

    fn spawn(&self, work: impl FnOnce(&Fs) + Send + 'static) -> thread::JoinHandle<()> {
        let fs = Arc::clone(&self.fs);
        thread::spawn(move || work(&fs))
    }
}

fn write(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    assert_eq!(ops::pwrite(fs, file, offset, bytes).unwrap(), bytes.len());
}

fn read(fs: &Fs, file: &Held, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let len = ops::pread(fs, file, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// One writes back while another cuts the file in the middle of a block and makes it longer again.
/// A reader sees a state that was, and what was cut is zeros, in memory and on the device.
#[test]
fn what_is_cut_while_it_is_written_back_stays_cut() {
    let image = image();
    explore("what_is_cut_while_it_is_written_back", move || {
        let world = World::new(&image);
        let file = create(&world.fs, &world.root(), "a").unwrap();
        write(&world.fs, &file, 0, &[1; 5000]);
        let threads = [
            world.spawn(|fs| fs.write_back().unwrap()),
            {
                let file = file.clone();
                world.spawn(move |fs| {
                    ops::truncate(fs, &file, 1500).unwrap();
                    write(fs, &file, 3000, &[2; 100]);
                })
            },
            {
                let file = file.clone();
                world.spawn(move |fs| {
                    let found = read(fs, &file, 6000);
                    assert!(found[..1500].iter().all(|&byte| byte == 1));
                    let rest = &found[1500..found.len().min(3000)];
                    assert!(rest.iter().all(|&byte| byte <= 1));
                })
            },
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        let expected = [vec![1; 1500], vec![0; 1500], vec![2; 100]].concat();
        assert!(read(&world.fs, &file, 6000) == expected);
        ops::fsync(&world.fs, &file).unwrap();
        let recovered = open_and_close(&world.copy());
        let found = names(&recovered);
        assert!(content(&recovered, found["a"]) == expected);
        drop(file);
        world.finish(&[&["a"]]);
    });
}

/// Memory is short: what one writes back another one evicts, and reads again.
#[test]
fn what_is_evicted_while_it_is_written_back_is_there_again() {
    let image = image();
    explore("what_is_evicted_while_it_is_written_back", move || {
        let world = World::with_little_memory(&image);
        let files = ["a", "b"].map(|name| create(&world.fs, &world.root(), name).unwrap());
        // More than memory holds, of both together.
        let threads = [1, 2].map(|value: u8| {
            let file = files[usize::from(value) - 1].clone();
            world.spawn(move |fs| {
                write(fs, &file, 0, &[value; 50_000]);
                write(fs, &file, 1000, &[9; 10]);
                let found = read(fs, &file, 60_000);
                assert_eq!(found.len(), 50_000);
                let is_right = |(i, byte): (usize, &u8)| {
                    *byte == if (1000..1010).contains(&i) { 9 } else { value }
                };
                assert!(found.iter().enumerate().all(is_right));
            })
        });
        let third = world.spawn(|fs| fs.write_back().unwrap());
        for thread in threads.into_iter().chain([third]) {
            thread.join().unwrap();
        }
        world.fs.sync().unwrap();
        let recovered = open_and_close(&world.copy());
        for (name, value) in [("a", 1), ("b", 2)] {
            let found = content(&recovered, names(&recovered)[name]);
            assert_eq!((found.len(), found[999], found[1005]), (50_000, value, 9));
        }
        drop(files);
        world.finish(&[&["a", "b"]]);
    });
}

/// A file as large as all memory for data, on the device only, and one that is to be written over.
fn image_with_files() -> Arc<[u8]> {
    let world = World::new(&image());
    for (name, len) in [("a", 2000), ("large", 70_000)] {
        let file = create(&world.fs, &world.root(), name).unwrap();
        write(&world.fs, &file, 0, &vec![7; len]);
    }
    world.fs.close().unwrap();
    super::bytes(&world.device).into()
}

/// A reader of a large file pushes out of memory what may go, and finds what is on its way to the
/// device there all the same: what was written over, and what has no place yet.
#[test]
fn what_is_on_its_way_is_not_pushed_out_of_memory() {
    let image = std::sync::OnceLock::new();
    explore("what_is_on_its_way_is_not_pushed_out", move || {
        let world = World::with_little_memory(image.get_or_init(image_with_files));
        let [a, large] = ["a", "large"]
            .map(|name| ops::lookup_held(&world.fs, &world.root(), name.as_bytes()).unwrap());
        write(&world.fs, &a, 0, &[1; 5000]);
        let written_back = world.spawn(|fs| fs.write_back().unwrap());
        let pushed_out = {
            let (a, large) = (a.clone(), large.clone());
            world.spawn(move |fs| {
                for _ in 0..3 {
                    assert!(read(fs, &large, 70_000) == [7; 70_000]);
                    assert!(read(fs, &a, 6000) == [1; 5000]);
                }
            })
        };
        for thread in [written_back, pushed_out] {
            thread.join().unwrap();
        }
        ops::fsync(&world.fs, &a).unwrap();
        let recovered = open_and_close(&world.copy());
        assert!(content(&recovered, names(&recovered)["a"]) == [1; 5000]);
        drop((a, large));
        world.finish(&[&["a", "large"]]);
    });
}

/// Memory is short: parts of a file go, records and all, while others want to write to them or read
/// them.
#[test]
fn a_part_that_goes_while_it_is_wanted_comes_again() {
    /// Where another part of the file begins.
    const PART: u64 = 64 << 10;
    let image = std::sync::OnceLock::new();
    explore("a_part_that_goes_while_it_is_wanted", move || {
        let world = World::with_little_memory(image.get_or_init(image_with_files));
        let [a, large] = ["a", "large"]
            .map(|name| ops::lookup_held(&world.fs, &world.root(), name.as_bytes()).unwrap());
        let writers = [0, 1_u64].map(|part| {
            let a = a.clone();
            world.spawn(move |fs| {
                for value in 1..3 {
                    write(fs, &a, part * PART, &[value; 3000]);
                    ops::fsync(fs, &a).unwrap();
                    let mut found = [0; 3000];
                    assert_eq!(ops::pread(fs, &a, part * PART, &mut found).unwrap(), 3000);
                    assert!(found == [value; 3000]);
                }
            })
        });
        let pushing = world.spawn(move |fs| {
            for _ in 0..2 {
                assert!(read(fs, &large, 70_000) == [7; 70_000]);
            }
        });
        for thread in writers.into_iter().chain([pushing]) {
            thread.join().unwrap();
        }
        let recovered = open_and_close(&world.copy());
        let found = content(&recovered, names(&recovered)["a"]);
        for part in [0, PART as usize] {
            assert!(found[part..part + 3000] == [2; 3000]);
        }
        drop(a);
        world.finish(&[&["a", "large"]]);
    });
}

/// Two write small files back, together, while one of the files is removed and another one is
/// written to.
#[test]
fn small_files_are_written_back_together_or_by_themselves() {
    let image = image();
    explore("small_files_are_written_back_together", move || {
        let world = World::new(&image);
        let root = world.root();
        let files = ["a", "b", "c"].map(|name| create(&world.fs, &root, name).unwrap());
        for file in &files {
            write(&world.fs, file, 0, &[1; 1500]);
        }
        let [a, b, c] = files;
        let threads = [
            world.spawn(|fs| fs.write_back().unwrap()),
            world.spawn(move |fs| {
                write(fs, &a, 1000, &[2; 1000]);
                ops::fsync(fs, &a).unwrap();
            }),
            world.spawn(move |fs| {
                drop((b, c));
                ops::unlink(fs, &root, b"b").unwrap();
                fs.write_back().unwrap();
            }),
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        world.fs.sync().unwrap();
        let recovered = open_and_close(&world.copy());
        let found = names(&recovered);
        assert!(content(&recovered, found["a"]) == [vec![1; 1000], vec![2; 1000]].concat());
        assert!(content(&recovered, found["c"]) == vec![1; 1500]);
        world.finish(&[&["a", "c"]]);
    });
}

/// One gathers small files to write them back while another makes one of them longer, shorter and
/// longer again.
#[test]
fn what_is_gathered_is_of_one_moment_for_each_file() {
    let image = image();
    explore("what_is_gathered_is_of_one_moment", move || {
        let world = World::new(&image);
        let root = world.root();
        let [a, b] = ["a", "b"].map(|name| create(&world.fs, &root, name).unwrap());
        for file in [&a, &b] {
            write(&world.fs, file, 0, &[1; 1500]);
        }
        let threads = [
            world.spawn(|fs| fs.write_back().unwrap()),
            world.spawn(|fs| fs.sync().unwrap()),
            {
                let a = a.clone();
                world.spawn(move |fs| {
                    write(fs, &a, 1500, &[2; 2000]);
                    ops::truncate(fs, &a, 700).unwrap();
                    write(fs, &a, 900, &[3; 300]);
                })
            },
        ];
        for thread in threads {
            thread.join().unwrap();
        }
        let expected = [vec![1; 700], vec![0; 200], vec![3; 300]].concat();
        assert!(read(&world.fs, &a, 5000) == expected);
        world.fs.sync().unwrap();
        let recovered = open_and_close(&world.copy());
        let found = names(&recovered);
        assert!(content(&recovered, found["a"]) == expected);
        assert!(content(&recovered, found["b"]) == vec![1; 1500]);
        drop((a, b, root));
        world.finish(&[&["a", "b"]]);
    });
}

/// What was written is data to a thread that looks for it, at each moment of its way to the device;
/// what lies between is a hole.
#[test]
fn data_and_holes_are_told_apart_while_the_file_is_written_back() {
    const FAR: u64 = 200 << 10;
    let image = image();
    explore("data_and_holes_are_told_apart", move || {
        let world = World::new(&image);
        let file = create(&world.fs, &world.root(), "a").unwrap();
        write(&world.fs, &file, 2048, &[1; 2048]);
        write(&world.fs, &file, FAR, &[1; 1024]);
        let look = |file: &Held| {
            let file = file.clone();
            world.spawn(move |fs| {
                for _ in 0..3 {
                    assert_eq!(data::seek_data_live(fs, &file, 0).unwrap(), Some(2048));
                    let hole = data::seek_hole_live(fs, &file, 2048).unwrap().unwrap();
                    assert!(hole == 4096 || hole == 5120, "{hole}");
                    assert_eq!(data::seek_data_live(fs, &file, 6000).unwrap(), Some(FAR));
                    let end = data::seek_hole_live(fs, &file, FAR).unwrap();
                    assert_eq!(end, Some(FAR + 1024));
                    let all = data::allocated_live(fs, &file).unwrap();
                    let blocks: u64 = all.iter().map(|piece| piece.len >> 10).sum();
                    assert!((3..=4).contains(&blocks), "{all:?}");
                }
            })
        };
        let threads = [world.spawn(|fs| fs.sync().unwrap()), look(&file), {
            let file = file.clone();
            world.spawn(move |fs| {
                write(fs, &file, 4096, &[2; 1024]);
                fs.sync().unwrap();
            })
        }];
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(
            data::seek_hole_live(&world.fs, &file, 2048).unwrap(),
            Some(5120)
        );
        drop(file);
        world.finish(&[&["a"]]);
    });
}
