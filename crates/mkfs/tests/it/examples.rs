//! The example, whose images e2fsck judges.

use extant_testkit::oracle::{assert_clean, dumpe2fs_header};

#[path = "../../examples/build_image.rs"]
#[allow(dead_code, reason = "its main is for a program of its own")]
mod build_image;

#[test]
fn a_directory_becomes_an_image_that_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/hostname"), "box\n").unwrap();
    let images = ["one.img", "two.img"].map(|name| dir.path().join(name));
    for image in &images {
        let report = build_image::build(&source, image).unwrap();
        assert_eq!(
            report.size,
            report.blocks * u64::from(report.block_size),
            "{report:?}"
        );
        assert_clean(image);
    }
    assert_eq!(
        dumpe2fs_header(&images[0]).fields["Filesystem volume name"],
        "example"
    );
    let [one, two] = images.map(|image| std::fs::read(image).unwrap());
    assert!(one == two, "the images differ");
    assert!(build_image::build(&dir.path().join("none"), &dir.path().join("no.img")).is_err());
    assert!(!dir.path().join("no.img").exists());
}
