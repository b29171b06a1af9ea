//! File systems of revision 0 of the format, which has no features: what gives them one makes them
//! of revision 1, as Linux and e2fsprogs do.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image of revision 0, with a file in it.
fn image(place: &Place, name: &str) -> String {
    mke2fs(
        &place.join(name),
        16 << 20,
        // Of two groups, so that there is a backup of the superblock.
        &["-t", "ext2", "-r", "0", "-b", "1024"],
    );
    let image = place.arg(name);
    std::fs::write(place.join("before"), "before").expect("room");
    extant(["cp", &place.arg("before"), &format!("{image}:/before")]).ok();
    let revision = dumpe2fs_header(Path::new(&image));
    assert_eq!(revision.field("Filesystem revision #"), "0 (original)");
    image
}

/// Judges an image as one of revision 1 with this feature, sound, that holds what it held.
fn must_have(image: &str, feature: &str) {
    assert_clean(Path::new(image));
    let header = dumpe2fs_header(Path::new(image));
    assert_eq!(header.field("Filesystem revision #"), "1 (dynamic)");
    assert_eq!(header.field("Inode size"), "128");
    assert!(header.has_feature(feature), "{header:#?}");
    let read = extant(["cat", &format!("{image}:/before")]).ok();
    assert_eq!(read.stdout, b"before");
}

#[test]
fn a_feature_makes_it_one_of_revision_1() {
    for feature in ["dir_index", "has_journal", "large_file", "sparse_super"] {
        let place = Place::new();
        let image = image(&place, feature);
        extant(["tune", "--features", feature, &image]).ok();
        must_have(&image, feature);
        // The copy in the second group says so as well.
        let mut revision = [0; 4];
        let file = std::fs::File::open(&image).expect("an image");
        file.read_exact_at(&mut revision, 8193 * 1024 + 0x4c)
            .expect("a copy");
        assert_eq!(revision, [1, 0, 0, 0], "{feature}");
    }
}

#[test]
fn the_first_large_file_makes_it_one_of_revision_1() {
    let place = Place::new();
    let image = image(&place, "large");
    let file = format!("{image}:/large");
    extant(["truncate", "--size", "3G", &file]).ok();
    must_have(&image, "large_file");
    extant(["ls", "-l", &file]).ok();
}

/// Sets bits of the word of features that are compatible for reading, and nothing else.
fn set_ro_compat(image: &str, bits: u8) {
    let file = std::fs::File::options().write(true).open(image);
    file.and_then(|file| file.write_all_at(&[bits], 1024 + 0x64))
        .expect("room");
}

#[test]
fn flags_without_the_revision_are_gone_by_and_mended() {
    let place = Place::new();
    let image = image(&place, "flagged");
    set_ro_compat(&image, 2);
    let read = extant(["cat", &format!("{image}:/before")]).ok();
    assert_eq!(read.stdout, b"before");
    let checked = extant(["check", &image]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.text().contains("feature-alone"), "{checked:?}");
    let repaired = extant(["repair", &image]);
    assert_eq!(repaired.code, 1, "{}", repaired.stderr);
    must_have(&image, "large_file");
    let checked = extant(["check", &image]).ok();
    assert!(!checked.text().contains("superblock"), "{checked:?}");
    assert!(!checked.text().contains("feature-alone"), "{checked:?}");
}

#[test]
fn inodes_get_no_other_size_before_it_is_one_of_revision_1() {
    let place = Place::new();
    let image = image(&place, "inodes");
    let before = std::fs::read(&image).expect("an image");
    let refused = extant(["tune", "--inode-size", "256", &image]).fails(8);
    assert!(refused.stderr.contains("revision 0"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&image).expect("an image"), before);
    extant(["tune", "--features", "large_file", &image]).ok();
    extant(["tune", "--inode-size", "256", &image]).ok();
    assert_clean(Path::new(&image));
    assert_eq!(
        extant(["cat", &format!("{image}:/before")]).stdout,
        b"before"
    );
}
