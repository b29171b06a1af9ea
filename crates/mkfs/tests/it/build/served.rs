//! Images that exist as a plan: the bytes are those of an image that is written, and a source that
//! changes is an error.

use super::random::random_variant;
use super::*;
use extant_blockdev::{BlockDevice, DeviceError};
use extant_mkfs::PlannedDevice;
use extant_mkfs::source::{TarOptions, read_tar, read_tar_stream};
use extant_testkit::plan::{Content as Bytes, SparseForm, TarForm};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::torture::{TortureSpec, random_plan};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

fn serve(tree: Tree, options: &BuildOptions) -> PlannedDevice {
    let tell = |error: &extant_mkfs::source::SourceError| panic!("nothing changes here: {error}");
    PlannedDevice::new(tree, options, "the plan", tell).unwrap()
}

/// What is read in whatever pieces is what is in the image, and holes are zeros there.
fn assert_same_as(device: &PlannedDevice, image: &Path, rng: &mut Rng) {
    let file = File::open(image).unwrap();
    let size = file.metadata().unwrap().len();
    assert_eq!(device.size(), size);
    let (mut ours, mut theirs) = (vec![1; 1 << 20], vec![2; 1 << 20]);
    let mut compare = |at: u64, len: usize| {
        device.read_at(at, &mut ours[..len]).unwrap();
        file.read_exact_at(&mut theirs[..len], at).unwrap();
        if ours[..len] != theirs[..len] {
            let differs = (0..len).find(|&i| ours[i] != theirs[i]).unwrap_or(0);
            panic!("byte {} differs", at + differs as u64);
        }
    };
    let mut at = 0;
    while at < size {
        let len = (1 << 20).min(size - at);
        compare(at, len as usize);
        at += len;
    }
    for _ in 0..300 {
        let most = *rng.pick(&[10, 5000, 200_000]);
        let len = rng.below(most).min(size);
        compare(rng.below(size - len + 1), len as usize);
    }
    let mut covered = 0;
    let mut zeros = Vec::new();
    let extents = device.data_extents(0..size).unwrap();
    for extent in extents.into_iter().chain(std::iter::once(size..size)) {
        assert!(extent.start >= covered);
        let mut hole = extent.start - covered;
        while hole > 0 {
            let len = hole.min(1 << 20);
            zeros.resize(len as usize, 1);
            file.read_exact_at(&mut zeros, extent.start - hole).unwrap();
            assert!(zeros.iter().all(|&byte| byte == 0), "a hole holds data");
            hole -= len;
        }
        covered = extent.end;
    }
    let mut past = [0; 2];
    device.read_at(size - 1, &mut past).unwrap_err();
}

/// Builds and plans an image of a source, and compares.
fn compare(source: Tree, options: &BuildOptions, dir: &Path, rng: &mut Rng) {
    let image = dir.join("image");
    let report = match try_build(&source, &image, options) {
        Ok(report) => report,
        // What cannot be built cannot be planned.
        Err(e) => {
            let tell = |_: &extant_mkfs::source::SourceError| {};
            let refused = PlannedDevice::new(source, options, "the plan", tell).unwrap_err();
            assert_eq!(refused.to_string(), e.to_string());
            return;
        }
    };
    oracle::assert_clean(&image);
    let device = serve(source, options);
    assert_eq!(device.report(), report);
    assert_same_as(&device, &image, rng);
}

#[test]
fn a_planned_image_of_a_directory_has_the_bytes_of_a_written_one() {
    require!(Root, TmpfsXattrs);
    let seed = seed_from_env("planned image of a directory");
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let source = planted(&random_plan(seed, 400), dir.path(), "source");
    for round in 0..if in_full() { 60 } else { 6 } {
        let variant = random_variant(&mut rng);
        println!("EXTANT_SEED={seed:#x}, round {round}: {variant:?}");
        compare(scan(&source), &variant.auto(), dir.path(), &mut rng);
    }
}

#[test]
fn so_has_one_of_an_archive_in_place_and_of_a_stream() {
    let seed = seed_from_env("planned image of an archive");
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let mut bytes = Vec::new();
    random_plan(seed, 300)
        .write_tar(&mut bytes, TarForm::Pax, SparseForm::Pax10)
        .unwrap();
    let archive = dir.path().join("archive");
    std::fs::write(&archive, &bytes).unwrap();
    let mut options = TarOptions::default();
    options.spool_dir = dir.path().to_owned();
    for _ in 0..3 {
        let variant = random_variant(&mut rng);
        println!("EXTANT_SEED={seed:#x}: {variant:?}");
        let in_place = read_tar(&archive, &options).unwrap();
        compare(in_place, &variant.auto(), dir.path(), &mut rng);
        let stream = std::io::Cursor::new(bytes.clone());
        let streamed = read_tar_stream(stream, Path::new("-"), &options).unwrap();
        compare(streamed, &variant.auto(), dir.path(), &mut rng);
    }
}

#[test]
fn so_has_one_of_several_groups_with_large_directories_and_blocks_of_every_size() {
    require!(Root, TmpfsXattrs);
    let seed = seed_from_env("planned image of several groups");
    let mut rng = Rng::new(seed);
    let dir = scratch();
    let plan = TortureSpec {
        entries_in_one_dir: 3000,
        subdirs_in_one_dir: 100,
        ..TortureSpec::small()
    }
    .for_image(1024, 256, false)
    .plan();
    let source = planted(&plan, dir.path(), "source");
    let meta = "^has_journal,^resize_inode,meta_bg";
    for (block, features) in [
        (1024, ""),
        (1024, meta),
        (2048, meta),
        (4096, ""),
        (16384, meta),
        (65536, ""),
    ] {
        let variant = Variant::new(block, 256, Profile::Default, features);
        // With blocks of 4 KiB a group has 128 MiB.
        let mib = if block == 4096 || in_full() { 260 } else { 90 };
        let options = with(variant.format(0), Size::Bytes(mib * MIB + 4096));
        println!("EXTANT_SEED={seed:#x}: {variant:?}");
        compare(scan(&source), &options, dir.path(), &mut rng);
    }
}

fn blocks_of_4k() -> BuildOptions {
    let variant = Variant::new(4096, 256, Profile::Default, "");
    with(variant.format(0), Size::Bytes(64 * MIB))
}

/// Where the first bytes of a file lie in an image with blocks of 4 KiB.
fn place_of(image: &Path, path: &str) -> u64 {
    let said = oracle::debugfs(image, &format!("bmap {path} 0"));
    let block: u64 = said.trim().parse().unwrap_or_else(|_| panic!("{said}"));
    block * 4096
}

#[test]
fn a_file_that_changed_is_an_error_with_its_name_and_no_other_file_is() {
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["longer", "newer", "gone", "other", "kept"] {
        std::fs::write(source.join(name), name.repeat(3000)).unwrap();
    }
    let image = dir.path().join("image");
    let options = blocks_of_4k();
    build_clean(&scan(&source), &image, &options);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let tell = move |error: &extant_mkfs::source::SourceError| {
        telling.lock().unwrap().push(error.to_string());
    };
    let device = PlannedDevice::new(scan(&source), &options, "the plan", tell).unwrap();
    std::fs::write(source.join("longer"), "longer".repeat(3001)).unwrap();
    let newer = File::options()
        .write(true)
        .open(source.join("newer"))
        .unwrap();
    newer.write_all_at(b"NEWER", 0).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    newer.set_modified(later).unwrap();
    std::fs::remove_file(source.join("gone")).unwrap();
    // The same size and time, and yet another file.
    let was = std::fs::metadata(source.join("other")).unwrap();
    std::fs::write(source.join("new"), "OTHER".repeat(3000)).unwrap();
    let new = File::options()
        .write(true)
        .open(source.join("new"))
        .unwrap();
    new.set_modified(was.modified().unwrap()).unwrap();
    std::fs::rename(source.join("new"), source.join("other")).unwrap();
    let mut bytes = vec![0; 4096];
    for name in ["longer", "newer", "gone", "other"] {
        for _ in 0..2 {
            let error = device.read_at(place_of(&image, name), &mut bytes);
            let error = error.unwrap_err();
            assert!(matches!(error, DeviceError::Io { .. }), "{error}");
            assert_eq!(error.errno(), 5, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
    device
        .read_at(place_of(&image, "kept"), &mut bytes)
        .unwrap();
    assert!(bytes.starts_with(b"keptkept"));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 4, "each once: {told:?}");
    // Everything but these files is there.
    let mut all = vec![0; 4096];
    let file = File::open(&image).unwrap();
    let mut failed = 0;
    for at in (0..device.size()).step_by(4096) {
        match device.read_at(at, &mut bytes) {
            Ok(()) => {
                file.read_exact_at(&mut all, at).unwrap();
                assert!(all == bytes, "byte {at}");
            }
            Err(_) => failed += 1,
        }
    }
    let blocks = |len: usize| (len * 3000).div_ceil(4096);
    assert_eq!(failed, blocks(6) + blocks(5) + blocks(4) + blocks(5));
}

#[test]
fn an_archive_that_changed_is_an_error_and_one_without_a_name_is_none() {
    let dir = scratch();
    let mut plan = TreePlan::new();
    plan.file("file", Bytes::filled(1, 100_000));
    let archive = dir.path().join("archive");
    let mut out = File::create(&archive).unwrap();
    plan.write_tar(&mut out, TarForm::Pax, SparseForm::Plain)
        .unwrap();
    let image = dir.path().join("image");
    let options = blocks_of_4k();
    let read = || read_tar(&archive, &TarOptions::default()).unwrap();
    build_clean(&read(), &image, &options);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let tell = move |error: &extant_mkfs::source::SourceError| {
        telling.lock().unwrap().push(error.to_string());
    };
    let device = PlannedDevice::new(read(), &options, "the plan", tell).unwrap();
    let at = place_of(&image, "file");
    let (mut bytes, mut expected) = (vec![0; 50_000], vec![1; 50_000]);
    std::fs::remove_file(&archive).unwrap();
    device.read_at(at, &mut bytes).unwrap();
    let file = File::open(&image).unwrap();
    file.read_exact_at(&mut expected, at).unwrap();
    assert!(bytes == expected);
    out.write_all_at(b"x", 99_000).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    out.set_modified(later).unwrap();
    for _ in 0..2 {
        let error = device.read_at(at, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("archive"), "{error}");
    }
    assert_eq!(told.lock().unwrap().len(), 1);
    // What is not in the archive is there.
    device.read_at(1024, &mut bytes[..1024]).unwrap();
}
