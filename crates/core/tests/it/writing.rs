//! Writing and truncating files, against a vector of bytes.

use crate::support::{Image, content, pattern};
use extant_core::Error;
use extant_core::data::{self, FallocateMode, WriteOptions};
use extant_core::fs::Fs;
use extant_core::inode::Held;
use extant_testkit::oracle::assert_clean;
use extant_testkit::rng::Rng;
use std::fs::File;

/// An image with empty files `f0` to `f3`, and full ones `g0` to `g3`.
fn image(mib: u64, options: &[&str]) -> Image {
    let all: Vec<&str> = ["-t", "ext4"].iter().chain(options).copied().collect();
    Image::make(mib, &all, |tree| {
        for i in 0..4 {
            File::create(tree.join(format!("f{i}"))).unwrap();
            std::fs::write(tree.join(format!("g{i}")), pattern(i, 100_000)).unwrap();
        }
    })
}

fn hold(image: &Image, fs: &Fs, path: &str) -> Held {
    fs.hold(image.ino(path)).unwrap()
}

/// What the file holds, read in pieces.
fn read_all(fs: &Fs, held: &Held) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buf = vec![0xaa; 77_777];
    loop {
        let len = data::read_live(fs, held, bytes.len() as u64, &mut buf).unwrap();
        if len == 0 {
            return bytes;
        }
        bytes.extend_from_slice(&buf[..len]);
    }
}

/// What streaming hands out.
fn streamed(fs: &Fs, held: &Held) -> Vec<u8> {
    struct Whole(Vec<u8>);
    impl data::Sink for Whole {
        type Error = std::convert::Infallible;

        fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Self::Error> {
            assert_eq!(offset, self.0.len() as u64);
            self.0.extend_from_slice(bytes);
            Ok(())
        }

        fn hole(&mut self, offset: u64, len: u64) -> Result<(), Self::Error> {
            assert_eq!(offset, self.0.len() as u64);
            self.0.resize((offset + len) as usize, 0);
            Ok(())
        }
    }
    let mut whole = Whole(Vec::new());
    let Ok(()) = data::stream_live(fs, held, &mut whole).unwrap();
    whole.0
}

fn write(fs: &Fs, held: &Held, model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    assert_eq!(
        data::write_at(fs, held, at as u64, bytes).unwrap(),
        bytes.len()
    );
    if model.len() < at + bytes.len() {
        model.resize(at + bytes.len(), 0);
    }
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

fn truncate(fs: &Fs, held: &Held, model: &mut Vec<u8>, size: usize) {
    data::truncate(fs, held, size as u64).unwrap();
    model.resize(size, 0);
}

fn random_writes(options: &[&str], seeds: std::ops::Range<u64>) {
    for seed in seeds {
        println!("seed {seed}, mke2fs {options:?}");
        let mut rng = Rng::new(seed);
        let image = image(48, options);
        let fs = image.open_writable();
        let names = ["/f0", "/f1", "/g0"];
        let held: Vec<_> = names.iter().map(|name| hold(&image, &fs, name)).collect();
        let mut models: Vec<_> = held.iter().map(|held| read_all(&fs, held)).collect();
        for step in 0..150 {
            let which = rng.below(3) as usize;
            let (held, model) = (&held[which], &mut models[which]);
            let reach = 1 + rng.below(400_000) as usize;
            let at = rng.below(reach as u64) as usize;
            let most = 1 + rng.below(60_000);
            let len = 1 + rng.below(most) as usize;
            match rng.below(10) {
                0 => truncate(&fs, held, model, at),
                1 => {
                    let end = model.len();
                    let bytes = pattern(step, len);
                    let wrote = data::append(&fs, held, &bytes, WriteOptions::default()).unwrap();
                    assert_eq!(wrote, (end as u64, len));
                    model.extend_from_slice(&bytes);
                }
                2 => truncate(&fs, held, model, at / 1024 * 1024),
                _ => write(&fs, held, model, at, &pattern(step, len)),
            }
            if step % 10 == 0 {
                assert_eq!(read_all(&fs, held), *model, "step {step}");
            }
        }
        for (held, model) in held.iter().zip(&models) {
            assert!(read_all(&fs, held) == *model);
        }
        drop(held);
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
        let fs = image.open();
        for (name, model) in names.iter().zip(&models) {
            assert!(content(&fs, &image.inode(&fs, name)) == *model, "{name}");
        }
    }
}

#[test]
fn random_writes_and_truncations_leave_what_a_vector_holds() {
    random_writes(&["-b", "4096"], 0..3);
}

#[test]
fn random_writes_with_small_blocks_and_no_checksums_do_so_too() {
    random_writes(&["-b", "1024", "-O", "^metadata_csum"], 10..13);
}

#[test]
fn random_writes_without_a_journal_do_so_too() {
    random_writes(&["-b", "2048", "-O", "^has_journal"], 20..22);
}

#[test]
fn a_file_in_many_pieces_gets_a_tree_and_loses_it() {
    let image = image(64, &["-b", "1024"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "/f0");
    let mut model = Vec::new();
    // Every other block: nothing joins. More than one level of nodes with 84 entries hold.
    for i in 0..1500 {
        let at = 2048 * (i * 7 % 1500);
        write(&fs, &held, &mut model, at, &[(i % 250) as u8 + 1; 1024]);
    }
    assert!(read_all(&fs, &held) == model);
    let pieces = data::extents_live(&fs, &held).unwrap();
    assert_eq!(pieces.len(), 1500);
    assert_eq!(data::seek_hole_live(&fs, &held, 2048).unwrap(), Some(3072));
    assert_eq!(data::seek_data_live(&fs, &held, 1024).unwrap(), Some(2048));
    assert!(streamed(&fs, &held) == model);
    // Holes in the middle are filled: extents join across.
    let filled = pattern(1, 300_000);
    write(&fs, &held, &mut model, 100_123, &filled);
    assert!(read_all(&fs, &held) == model);
    for size in [2_000_000, 700_123, 100_123, 3000] {
        truncate(&fs, &held, &mut model, size);
        assert!(read_all(&fs, &held) == model);
    }
    truncate(&fs, &held, &mut model, 9000);
    assert!(read_all(&fs, &held) == model);
    truncate(&fs, &held, &mut model, 0);
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
    let fs = image.open();
    let inode = image.inode(&fs, "/f0");
    assert_eq!(inode.disk().sectors(fs.block_size()), 0);
}

#[test]
fn files_mapped_by_indirect_blocks_can_be_cut_overwritten_and_extended() {
    for options in [["-t", "ext3", "-b", "1024"], ["-t", "ext2", "-b", "1024"]] {
        let bytes = pattern(9, 9_000_000);
        let image = Image::make(32, &options, |tree| {
            std::fs::write(tree.join("big"), &bytes).unwrap();
            // A hole, and blocks behind three levels of pointers.
            let sparse = File::create(tree.join("sparse")).unwrap();
            std::os::unix::fs::FileExt::write_at(&sparse, b"first", 5000).unwrap();
            std::os::unix::fs::FileExt::write_at(&sparse, b"last", 80_000_000).unwrap();
        });
        let fs = image.open_writable();
        let held = hold(&image, &fs, "/big");
        let mut model = bytes.clone();
        for size in [
            8_999_000,
            8_000_500,
            1024 * (12 + 256),
            300_000,
            12 * 1024,
            5000,
        ] {
            truncate(&fs, &held, &mut model, size);
            write(&fs, &held, &mut model, 1000, b"overwritten");
            assert!(read_all(&fs, &held) == model, "{size}");
        }
        write(&fs, &held, &mut model, 1 << 20, b"new");
        let sparse = hold(&image, &fs, "/sparse");
        data::truncate(&fs, &sparse, 40_000_000).unwrap();
        data::truncate(&fs, &sparse, 0).unwrap();
        drop((held, sparse));
        fs.close().unwrap();
        drop(fs);
        assert_clean(&image.path());
        let fs = image.open();
        assert!(content(&fs, &image.inode(&fs, "/big")) == model);
    }
}

#[test]
fn setting_the_size_to_what_it_is_gives_back_what_is_reserved_behind() {
    let image = image(16, &["-b", "1024"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "g1");
    let sectors = || held.snapshot().disk().sectors(fs.block_size());
    let before = sectors();
    let (mode, options) = (FallocateMode { keep_size: true }, WriteOptions::default());
    for written_behind in [false, true] {
        let mut model = pattern(1, 100_000);
        data::fallocate(&fs, &held, 90_000, 900_000, mode, options).unwrap();
        assert!(sectors() > before + 1600, "{} and {before}", sectors());
        let size = if written_behind { 100_500 } else { 100_000 };
        if written_behind {
            // In memory only: neither the record nor the device know it yet.
            write(&fs, &held, &mut model, 100_000, &[9; 500]);
        }
        truncate(&fs, &held, &mut model, size);
        assert_eq!(sectors(), before + 2 * u64::from(written_behind));
        assert!(read_all(&fs, &held) == model);
    }
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_lay_past_the_end_never_comes_back() {
    let image = image(16, &["-b", "4096"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "/g1");
    let mut model = read_all(&fs, &held);
    truncate(&fs, &held, &mut model, 50_001);
    truncate(&fs, &held, &mut model, 60_000);
    assert!(read_all(&fs, &held) == model);
    write(&fs, &held, &mut model, 70_000, b"far");
    truncate(&fs, &held, &mut model, 3);
    write(&fs, &held, &mut model, 100, b"near");
    assert_eq!(read_all(&fs, &held), model);
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn a_full_image_takes_what_fits_and_says_so() {
    let image = image(8, &["-b", "1024", "-m", "0"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "/f0");
    let bytes = pattern(3, 16 << 20);
    let written = data::write_at(&fs, &held, 0, &bytes).unwrap();
    assert!(written > 1 << 20 && written < 8 << 20, "{written}");
    let e = data::write_at(&fs, &held, written as u64, b"more").unwrap_err();
    assert_eq!(e.errno(), 28, "{e}");
    assert!(read_all(&fs, &held) == bytes[..written]);
    // What is freed can be used at once, if it takes a commit.
    data::truncate(&fs, &held, 0).unwrap();
    assert_eq!(
        data::write_at(&fs, &held, 0, &bytes[..written]).unwrap(),
        written
    );
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

/// Whatever a write says it did is in the file, and nothing else, wherever in it space ran out.
#[test]
fn a_full_image_changes_nothing_but_what_it_says() {
    let image = image(6, &["-b", "1024", "-m", "0"]);
    let fs = image.open_writable();
    let (filler, held) = (hold(&image, &fs, "/g0"), hold(&image, &fs, "/f0"));
    let mut rng = Rng::new(5);
    let mut model = Vec::new();
    let mut cut_short = 0;
    for round in 0..400 {
        let full = vec![1; 1 << 20];
        while data::append(&fs, &filler, &full, WriteOptions::default()).is_ok() {}
        let size = filler.live_size();
        data::truncate(&fs, &filler, size - rng.below(6 << 10)).unwrap();
        fs.sync().unwrap();
        let bytes = pattern(round, 1 + rng.below(5000) as usize);
        let at = rng.below(60_000) as usize;
        let written = match data::write_at(&fs, &held, at as u64, &bytes) {
            Err(Error::NoSpace) => 0,
            written => written.unwrap(),
        };
        cut_short += u32::from(written < bytes.len());
        if written > 0 {
            model.resize(model.len().max(at + written), 0);
            model[at..at + written].copy_from_slice(&bytes[..written]);
        }
        assert!(read_all(&fs, &held) == model, "{round}: {written} at {at}");
        if rng.one_in(20) {
            truncate(&fs, &held, &mut model, 0);
        }
    }
    assert!(cut_short > 50, "{cut_short}");
    drop((filler, held));
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn sizes_past_the_limit_are_refused() {
    let image = image(8, &["-b", "1024"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "/f0");
    let limit = u64::from(u32::MAX) << 10;
    assert_eq!(
        data::truncate(&fs, &held, limit + 1).unwrap_err().errno(),
        27
    );
    assert_eq!(
        data::write_at(&fs, &held, limit, b"x").unwrap_err().errno(),
        27
    );
    assert_eq!(data::write_at(&fs, &held, limit - 2, b"abcd").unwrap(), 2);
    let mut end = [0; 4];
    assert_eq!(data::read_live(&fs, &held, limit - 3, &mut end).unwrap(), 3);
    assert_eq!(&end, b"\0ab\0");
    data::truncate(&fs, &held, limit).unwrap();
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

#[test]
fn many_threads_write_their_parts_of_one_file() {
    let image = image(64, &["-b", "1024"]);
    let fs = image.open_writable();
    let held = hold(&image, &fs, "/f0");
    let part = 40 << 10;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (fs, held) = (&fs, &held);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                let bytes = pattern(thread, part);
                for _ in 0..3 {
                    let mut left: Vec<usize> = (0..40).collect();
                    while !left.is_empty() {
                        let i = left.swap_remove(rng.below(left.len() as u64) as usize);
                        let at = thread as usize * part + (i << 10);
                        let piece = &bytes[i << 10..(i + 1) << 10];
                        assert_eq!(data::write_at(fs, held, at as u64, piece).unwrap(), 1024);
                        let mut back = [0; 1024];
                        data::read_live(fs, held, at as u64, &mut back).unwrap();
                        assert!(back == *piece);
                    }
                }
            });
        }
    });
    let all = read_all(&fs, &held);
    for thread in 0..8 {
        let at = thread as usize * part;
        assert!(all[at..at + part] == pattern(thread, part));
    }
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}

/// Words that tell which file and which place in it they belong to.
fn tagged(file: u64, at: usize, len: usize) -> Vec<u8> {
    let words = at / 8..(at + len).div_ceil(8) + 1;
    let all: Vec<u8> = words
        .flat_map(|word| ((file << 56) | word as u64 | 1 << 48).to_le_bytes())
        .collect();
    all[at % 8..at % 8 + len].to_vec()
}

#[test]
fn readers_never_see_what_belongs_elsewhere_while_files_grow_and_shrink() {
    let seed = 77;
    println!("seed {seed}");
    // So small that blocks go from file to file all the time.
    let image = image(8, &["-b", "1024", "-g", "512"]);
    let fs = image.open_writable();
    let names = ["/f0", "/f1", "/f2"];
    let held: Vec<_> = names.iter().map(|name| hold(&image, &fs, name)).collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (fs, done) = (&fs, &done);
        let mut changing = Vec::new();
        for (file, held) in held.iter().enumerate() {
            for thread in 0..2 {
                changing.push(scope.spawn(move || {
                    let mut rng = Rng::new(seed + 10 * file as u64 + thread);
                    for _ in 0..400 {
                        let at = rng.below(900_000) as usize;
                        let len = 1 + rng.below(40_000) as usize;
                        let outcome = match rng.below(6) {
                            0 => data::truncate(fs, held, at as u64),
                            _ => data::write_at(fs, held, at as u64, &tagged(file as u64, at, len))
                                .map(|_| ()),
                        };
                        if let Err(e) = outcome {
                            assert_eq!(e.errno(), 28, "{e}");
                        }
                    }
                }));
            }
        }
        for (file, held) in held.iter().enumerate() {
            scope.spawn(move || {
                let mut rng = Rng::new(seed + 1000 + file as u64);
                let mut buf = vec![0; 50_000];
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let at = rng.below(900_000) as usize / 8 * 8;
                    let len = data::read_live(fs, held, at as u64, &mut buf).unwrap();
                    let own = tagged(file as u64, at, len);
                    for (i, (found, own)) in buf[..len].iter().zip(own).enumerate() {
                        assert!(
                            *found == 0 || *found == own,
                            "byte {} of file {file}",
                            at + i
                        );
                    }
                    data::extents_live(fs, held).unwrap();
                }
            });
        }
        for thread in changing {
            if let Err(panic) = thread.join() {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(held);
    fs.close().unwrap();
    drop(fs);
    assert_clean(&image.path());
}
