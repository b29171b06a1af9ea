//! Files that may not be changed: a change that is refused has changed nothing.

use crate::support::{Image, pattern};
use extant_core::data::{self, FallocateMode, WriteOptions};
use extant_core::fs::Fs;
use extant_core::inode::Held;
use extant_core::{Error, Result, ops};
use extant_format::inode::InodeFlags;
use extant_testkit::oracle::{assert_clean, debugfs_write};

const INLINE: &[&str] = &["-b", "1024", "-O", "inline_data,^resize_inode"];

/// An image with a file whose content lies in its inode.
fn image() -> Image {
    Image::make(8, INLINE, |tree| {
        std::fs::write(tree.join("small"), pattern(1, 50)).unwrap();
    })
}

/// All that changes content.
fn changes(fs: &Fs, held: &Held) -> Vec<(&'static str, Result<()>)> {
    let options = WriteOptions::default();
    let mode = FallocateMode::default();
    vec![
        ("write", data::write_at(fs, held, 0, b"x").map(drop)),
        ("append", data::append(fs, held, b"x", options).map(drop)),
        (
            "write past memory",
            data::write_direct(fs, held, 0, &[1; 4096], options).map(drop),
        ),
        (
            "append past memory",
            data::append_direct(fs, held, &[1; 4096], options).map(drop),
        ),
        ("empty", data::truncate(fs, held, 0)),
        ("cut", data::truncate(fs, held, 10)),
        ("grow", data::truncate(fs, held, 5000)),
        ("reserve", data::fallocate(fs, held, 0, 4096, mode, options)),
        ("take out", data::collapse_range(fs, held, 0, 1024, options)),
        ("put in", data::insert_range(fs, held, 0, 1024, options)),
        ("punch", data::punch_hole(fs, held, 0, 10, options)),
    ]
}

/// Whether the file is as [`image`] made it.
fn assert_as_it_was(fs: &Fs, held: &Held, after: &str) {
    let mut bytes = [0; 100];
    let len = data::read_live(fs, held, 0, &mut bytes).unwrap();
    assert!(bytes[..len] == pattern(1, 50)[..], "content after {after}");
    let inode = held.snapshot();
    assert!(inode.is_inline(), "it left its inode with {after}");
    assert_eq!(inode.disk().sectors(fs.block_size()), 0, "{after}");
}

#[test]
fn what_lies_in_an_immutable_inode_stays_there() {
    let image = image();
    let fs = image.open_writable();
    let held = fs.hold(image.ino("small")).unwrap();
    let none = InodeFlags::empty();
    ops::chattr(&fs, &held, InodeFlags::IMMUTABLE, none).unwrap();
    for (what, result) in changes(&fs, &held) {
        assert!(
            matches!(result, Err(Error::NotPermitted)),
            "{what}: {result:?}"
        );
        assert_as_it_was(&fs, &held, what);
    }
    ops::chattr(&fs, &held, none, InodeFlags::IMMUTABLE).unwrap();
    // What makes no sense changes nothing either.
    let empty = data::fallocate(
        &fs,
        &held,
        0,
        0,
        FallocateMode::default(),
        WriteOptions::default(),
    );
    assert!(matches!(empty, Err(Error::InvalidInput(_))), "{empty:?}");
    assert_as_it_was(&fs, &held, "an empty range");
    data::truncate(&fs, &held, 0).unwrap();
    assert_eq!(held.snapshot().size(), 0);
    drop(held);
    fs.close().unwrap();
    assert_clean(&image.path());
}

#[test]
fn what_is_sealed_by_verity_is_not_emptied_before_that_is_refused() {
    let image = image();
    let flags = InodeFlags::INLINE_DATA | InodeFlags::VERITY;
    let request = format!("set_inode_field small flags {:#x}", flags.bits());
    debugfs_write(&image.path(), &[&request]);
    let fs = image.open_writable();
    let held = fs.hold(image.ino("small")).unwrap();
    for (what, result) in changes(&fs, &held) {
        assert!(
            matches!(result, Err(Error::NotPermitted)),
            "{what}: {result:?}"
        );
        assert_as_it_was(&fs, &held, what);
    }
}
