//! Damaged logs, inodes and directories: an answer or an error, soon.

use crate::support::{Image, content};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use extant_rescue::{Rescue, Verdict};
use extant_testkit::mount::Shutdown;
use extant_testkit::oracle::{debugfs, dumpe2fs};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs;
use std::sync::Arc;
use std::time::Instant;

/// Bytes where the past is told: the log, inode tables, directories, descriptors and bitmaps.
fn places(image: &Image) -> Vec<u64> {
    let numbers = |text: String| -> Vec<u64> {
        text.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let mut blocks: Vec<u64> = numbers(debugfs(&image.path, "blocks <8>"));
    blocks.truncate(400);
    blocks.extend(numbers(debugfs(&image.path, "blocks <2>")));
    for group in dumpe2fs(&image.path).groups {
        blocks.extend([group.block_bitmap, group.inode_bitmap]);
        let table = group.inode_table.unwrap();
        blocks.extend(*table.start()..table.start() + 6);
    }
    blocks.extend([1, 2]);
    blocks
}

#[test]
fn hostile_logs_and_directories_give_an_answer_or_an_error() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::hostile"));
    let rounds = if std::env::var_os("EXTANT_FULL").is_some() {
        20_000
    } else {
        120
    };
    for options in [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^uninit_bg",
        ][..],
        &["-t", "ext3", "-b", "1024"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^64bit,inline_data,orphan_file",
        ][..],
    ] {
        let image = Image::new(16 << 20, options);
        let mount = image.mount();
        for n in 0..60 {
            let dir = mount.join(format!("d{}", n % 5));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("f{n}")), vec![n; usize::from(n) * 400]).unwrap();
        }
        mount.sync();
        fs::remove_dir_all(mount.join("d1")).unwrap();
        fs::remove_dir_all(mount.join("d2")).unwrap();
        mount.shutdown(Shutdown::FlushLog);
        let places = places(&image);
        let base = crate::support::device(&image.path);
        for round in 0..rounds {
            let overlay = OverlayDevice::new(SharedDevice::clone(&base), 1024).keep_writes();
            for _ in 0..rng.between(1, 12) {
                let block = *rng.pick(&places) * 1024;
                let at = block + rng.below(1024) / 4 * 4;
                let value = match rng.below(5) {
                    0 => 0,
                    1 => u32::MAX,
                    2 => rng.next_u64() as u32,
                    // The magic of the log, and small numbers.
                    3 => 0xC03B_3998_u32.swap_bytes(),
                    _ => rng.below(5000) as u32,
                };
                overlay.write_at(at, &value.to_le_bytes()).unwrap();
            }
            let begun = Instant::now();
            let Ok(rescue) = Rescue::open(Arc::new(overlay), None) else {
                continue;
            };
            let _ = rescue.log(None, None);
            if let Ok(deleted) = rescue.deleted() {
                for file in deleted.files.iter().filter(|file| file.size < 1 << 20) {
                    if !matches!(file.verdict, Verdict::Unmapped | Verdict::NameOnly) {
                        content(&rescue, file);
                    }
                }
            }
            let took = begun.elapsed().as_secs();
            assert!(took < 60, "round {round} of {options:?} took {took} s");
        }
    }
}
