//! What cannot be opened is refused with a sentence that says what to do.

use extant_image::{How, ImageLocation};

#[test]
fn what_is_not_there_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let gone = dir.path().join("gone#2");
    let location = ImageLocation::parse(&gone).expect("a path");
    assert_eq!(location.path(), Some(gone.as_path()));
    let e = location.open(&How::reading()).expect_err("no such file");
    assert!(e.to_string().contains("gone#2"), "{e}");
    let e = ImageLocation::file(dir.path()).open(&How::reading());
    assert!(
        e.expect_err("a directory")
            .to_string()
            .contains("is a directory")
    );
}
