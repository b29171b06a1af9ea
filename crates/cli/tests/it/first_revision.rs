//! File systems of revision 0 of the format, which has no features: what gives them one makes them
//! of revision 1, as Linux and e2fsprogs do.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use std::path::Path;

/// An image of revision 0, with a file in it.
fn image(place: &Place, name: &str) -> String {
    mke2fs(
        &place.join(name),
        16 << 20,
        &["-t", "ext2", "-r", "0", "-b", "4096"],
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
