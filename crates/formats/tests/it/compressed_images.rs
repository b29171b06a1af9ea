//! Compressed raw images, made by the tools of their formats.

use crate::support::{assert_same, disk, file, patches, raw, run};
use extant_formats::{FormatError, OpenHow, open, recognise};
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const TOOLS: [(&str, &str); 4] = [
    ("gzip -k {}", "gz"),
    ("zstd -q -k {}", "zst"),
    ("zstd -q -k -19 --long=27 {}", "zst"),
    ("xz -k {}", "xz"),
];

/// The compressed form of a file, which stays.
fn compressed(line: &str, extension: &str, plain: &Path) -> PathBuf {
    run(line, &[plain]);
    plain.with_extension(extension)
}

fn refusal(image: &Path, how: &OpenHow) -> FormatError {
    let device = file(image);
    let format = recognise(&*device).expect("a file").expect("a mark");
    open(device, format, how).expect_err("an image that is refused")
}

#[test]
fn they_are_read_with_members_one_after_the_other() {
    let seed = seed_from_env("compressed_images::read");
    let mut rng = Rng::new(seed);
    for (line, extension) in TOOLS {
        let dir = tempfile::tempdir().expect("a directory");
        let plain = dir.path().join("plain");
        // More than is kept in memory.
        let size = 80 << 20;
        let changes = patches(&mut rng, size, 300);
        raw(&plain, size, &changes);
        let image = compressed(line, extension, &plain);
        assert_same(&*disk(&image), &*file(&plain), line);

        let again = fs::read(&image).expect("a file");
        let mut twice = fs::OpenOptions::new()
            .append(true)
            .open(&image)
            .expect("a file");
        twice.write_all(&again).expect("room");
        if extension == "gz" {
            twice.write_all(&[0; 700]).expect("room");
        }
        let found = disk(&image);
        assert_eq!(found.size(), 2 * size, "{line}");
        let (mut a, mut b) = ([0; 4096], [0; 4096]);
        let offset = changes[0].offset & !4095;
        found.read_at(size + offset, &mut a).expect("a read");
        file(&plain).read_at(offset, &mut b).expect("a read");
        assert!(a == b, "{line}");
    }
}

#[test]
fn damaged_and_endless_ones_are_refused_in_words() {
    for (line, extension) in TOOLS {
        let dir = tempfile::tempdir().expect("a directory");
        let plain = dir.path().join("plain");
        let mut rng = Rng::new(3);
        raw(&plain, 4 << 20, &patches(&mut rng, 4 << 20, 20));
        let image = compressed(line, extension, &plain);
        let whole = fs::read(&image).expect("a file");

        let how = OpenHow::read_only().limit(1 << 20);
        let error = refusal(&image, &how);
        assert!(
            matches!(error, FormatError::TooLarge { .. }),
            "{line}: {error}"
        );

        let how = OpenHow::read_only();
        for len in [7, 20, whole.len() / 2, whole.len() - 5, whole.len() - 1] {
            fs::write(&image, &whole[..len]).expect("room");
            let error = refusal(&image, &how);
            assert!(
                matches!(error, FormatError::Damaged { .. }),
                "{line}, {len}: {error}"
            );
        }
        let mut wrong = whole.clone();
        wrong.extend_from_slice(b"something else");
        fs::write(&image, &wrong).expect("room");
        let error = refusal(&image, &how);
        assert!(
            matches!(error, FormatError::Damaged { .. }),
            "{line}: {error}"
        );
        let mut wrong = whole.clone();
        let middle = whole.len() / 2;
        wrong[middle] ^= 0xff;
        wrong[middle + 1] ^= 0xff;
        fs::write(&image, &wrong).expect("room");
        let error = refusal(&image, &how);
        assert!(
            matches!(error, FormatError::Damaged { .. }),
            "{line}: {error}"
        );
    }
}

#[test]
fn a_window_that_takes_too_much_memory_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    raw(&plain, 300 << 20, &[]);
    run("zstd -q -k --long=30 {}", &[&plain]);
    let error = refusal(&plain.with_extension("zst"), &OpenHow::read_only());
    assert!(matches!(error, FormatError::Damaged { .. }), "{error}");
}

#[test]
fn none_is_written_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let plain = dir.path().join("plain");
    raw(&plain, 4096, &[]);
    let image = compressed("gzip -k {}", "gz", &plain);
    let error = refusal(&image, &OpenHow::read_write());
    assert!(matches!(error, FormatError::ReadOnly { .. }), "{error}");
}
