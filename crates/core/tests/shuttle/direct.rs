//! Reading and writing past memory while others use memory, cut or convert.

use super::{World, content, create, explore, image, names, open_and_close};
use extant_core::fs::Fs;
use extant_core::inode::Held;
use extant_core::ops;
use extant_sync::thread;
use std::sync::Arc;

fn write(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    assert_eq!(ops::pwrite(fs, file, offset, bytes).unwrap(), bytes.len());
}

fn write_direct(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    let written = ops::pwrite_direct(fs, file, offset, bytes).unwrap();
    assert_eq!(written, bytes.len());
}

fn read(fs: &Fs, file: &Held, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let len = ops::pread(fs, file, offset, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn read_direct(fs: &Fs, file: &Held, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    let len = ops::pread_direct(fs, file, offset, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// Runs each of `work` in a thread of its own.
fn all(world: &World, file: &Held, work: [fn(&Fs, &Held); 3]) {
    let threads = work.map(|work| {
        let (fs, file) = (Arc::clone(&world.fs), file.clone());
        thread::spawn(move || work(&fs, &file))
    });
    for thread in threads {
        thread.join().unwrap();
    }
}

/// One writes past memory and reads it both ways, one through memory, and one cuts the end off; the
/// file is bypassed when they begin, or is not.
#[test]
fn what_is_written_past_memory_and_through_it_is_there_for_both_while_one_cuts() {
    let image = image();
    for turns in [1, 5] {
        let image = image.clone();
        explore("direct_against_buffered_against_truncate", move || {
            let world = World::new(&image);
            let file = create(&world.fs, &world.root(), "a").unwrap();
            for _ in 0..turns {
                write_direct(&world.fs, &file, 0, &[1; 8192]);
            }
            all(
                &world,
                &file,
                [
                    |fs, file| {
                        write_direct(fs, file, 4096, &[2; 1024]);
                        assert!(read(fs, file, 4096, 1024) == [2; 1024]);
                        assert!(read_direct(fs, file, 4096, 1024) == [2; 1024]);
                    },
                    |fs, file| {
                        // A part of a block that another part of is written past memory.
                        write(fs, file, 3800, &[3; 200]);
                        assert!(read_direct(fs, file, 3584, 512)[216..416] == [3; 200]);
                    },
                    |fs, file| {
                        ops::truncate(fs, file, 6000).unwrap();
                        write_direct(fs, file, 3072, &[4; 512]);
                        assert!(read(fs, file, 3072, 512) == [4; 512]);
                    },
                ],
            );
            let mut expected = [1; 6000];
            expected[3072..3584].fill(4);
            expected[3800..4000].fill(3);
            expected[4096..5120].fill(2);
            assert!(read_direct(&world.fs, &file, 0, 8192) == expected);
            assert!(read(&world.fs, &file, 0, 8192) == expected);
            ops::fsync(&world.fs, &file).unwrap();
            let recovered = open_and_close(&world.copy());
            let found = names(&recovered);
            assert!(content(&recovered, found["a"]) == expected);
            drop(file);
            world.finish(&[&["a"]]);
        });
    }
}

/// Reserved blocks are written past memory by two, which convert them together or one by one, while
/// a third one brings some into memory.
#[test]
fn reserved_blocks_are_converted_by_whoever_comes_first() {
    let image = image();
    explore("reserved_blocks_are_converted", move || {
        let world = World::new(&image);
        let file = create(&world.fs, &world.root(), "a").unwrap();
        for _ in 0..5 {
            write_direct(&world.fs, &file, 0, &[1; 1024]);
        }
        let mode = ops::FallocateMode::default();
        ops::fallocate(&world.fs, &file, 0, 8192, mode).unwrap();
        all(
            &world,
            &file,
            [
                |fs, file| {
                    write_direct(fs, file, 2048, &[2; 2048]);
                    assert!(read_direct(fs, file, 2048, 2048) == [2; 2048]);
                },
                |fs, file| {
                    write_direct(fs, file, 6144, &[3; 1024]);
                    assert!(read(fs, file, 6144, 1024) == [3; 1024]);
                },
                |fs, file| {
                    let found = read(fs, file, 0, 8192);
                    assert!(found[..1024] == [1; 1024] && found[1024..2048] == [0; 1024]);
                    assert!(found[7168..] == [0; 1024]);
                },
            ],
        );
        let mut expected = [0; 8192];
        expected[..1024].fill(1);
        expected[2048..4096].fill(2);
        expected[6144..7168].fill(3);
        assert!(read_direct(&world.fs, &file, 0, 8192) == expected);
        ops::fdatasync(&world.fs, &file).unwrap();
        let recovered = open_and_close(&world.copy());
        let found = names(&recovered);
        assert!(content(&recovered, found["a"]) == expected);
        drop(file);
        world.finish(&[&["a"]]);
    });
}
