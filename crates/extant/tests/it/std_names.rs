//! What people expect of a library that is used as `std::fs` is.

use crate::support::{Blank, Image, plan};
use extant::errno::{EEXIST, EINVAL, ELOOP, ENOENT, ENOTDIR};
use extant::{Filesystem, MemoryDevice};
use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

fn empty() -> Filesystem {
    Filesystem::format_device(MemoryDevice::new(16 << 20)).unwrap()
}

#[test]
fn a_copy_has_content_holes_and_permissions() {
    let blank = Blank::new(32);
    let fs = blank.open_writable();
    let file = fs.create("/from").unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    fs.set_permissions("/from", 0o750).unwrap();
    fs.write("/to", vec![7; 5 << 20]).unwrap();
    fs.symlink("to", "/link").unwrap();

    assert_eq!(fs.copy("/from", "/link").unwrap(), 3 << 20);
    assert!(fs.read("/from").unwrap() == fs.read("/to").unwrap());
    let found = fs.metadata("/to").unwrap();
    assert_eq!(found.mode().permissions(), 0o750);
    assert!(found.blocks() * 512 < 1 << 20, "{}", found.blocks());

    for (from, to, errno) in [("/from", "/from", EINVAL), ("/none", "/to", ENOENT)] {
        assert_eq!(fs.copy(from, to).unwrap_err().errno(), errno, "{from} {to}");
    }
    assert_eq!(fs.metadata("/from").unwrap().len(), 3 << 20);
    fs.close().unwrap();
    blank.check();
}

#[test]
fn a_canonical_path_has_no_links_and_no_dots() {
    let image = Image::of(&plan());
    let fs = image.open();
    for (path, expected) in [
        ("/", "/"),
        ("a/./b//c", "/a/b/c"),
        ("to-file", "/a/b/c/file"),
        ("/to-dir/up", "/top"),
        ("far-up", "/top"),
        ("slash/c/", "/a/b/c"),
        ("../../a/..", "/"),
        ("chain39", "/top"),
    ] {
        assert_eq!(
            fs.canonicalize(path).unwrap(),
            Path::new(expected),
            "{path}"
        );
        // Whatever leads there is the same file.
        let ino = |path: &Path| fs.metadata(path).unwrap().ino();
        assert_eq!(ino(Path::new(path)), ino(Path::new(expected)));
    }
    for (path, errno) in [
        ("", ENOENT),
        ("nowhere", ENOENT),
        ("top/", ENOTDIR),
        ("top/..", ENOTDIR),
        ("loop", ELOOP),
        ("chain40", ELOOP),
    ] {
        let e = fs.canonicalize(path).unwrap_err();
        assert_eq!((e.errno(), e.path()), (errno, Path::new(path)), "{path}");
        assert_eq!(fs.metadata(path).unwrap_err().errno(), errno, "{path}");
    }
}

#[test]
fn a_pattern_finds_what_a_shell_would() {
    let image = Image::of(&plan());
    let fs = image.open();
    let found = |pattern: &str| -> Vec<PathBuf> {
        let found: Result<Vec<_>, _> = fs.glob(pattern).unwrap().collect();
        found.unwrap_or_else(|e| panic!("{pattern}: {e}"))
    };
    for (pattern, expected) in [
        ("/", &["/"][..]),
        ("t*", &["to-dir", "to-file", "top"]),
        ("/t[!o]*", &[]),
        ("*/", &["a", "lost+found", "slash", "to-dir"]),
        ("/a/*/c/f???", &["/a/b/c/file"]),
        // Links are followed on the way, but not below `**`.
        ("to-*/c/*", &["to-dir/c/file"]),
        ("**/file", &["a/b/c/file"]),
        ("to-dir/**/file", &["to-dir/c/file"]),
        ("/a/**/", &["/a", "/a/b", "/a/b/c"]),
        ("nowhere", &["nowhere"]),
        ("nowhere/*", &[]),
        ("top/*", &[]),
        ("none", &[]),
        ("a/../t?p", &["a/../top"]),
        ("to-dir/../?", &["to-dir/../b"]),
    ] {
        let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(found(pattern), expected, "{pattern}");
    }
    assert_eq!(found("**").len(), fs.walk("/").unwrap().count() - 1);
    for pattern in ["", "[a"] {
        assert_eq!(fs.glob(pattern).unwrap_err().errno(), EINVAL, "{pattern:?}");
    }
}

#[test]
fn a_file_that_is_shared_is_read_and_written_from_many_threads() {
    const PIECE: usize = 1000;
    const PIECES: usize = 400;
    let fs = empty();
    let file = fs.create_new("/shared").unwrap();
    assert_eq!(fs.create_new("/shared").unwrap_err().errno(), EEXIST);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut file = &file;
            scope.spawn(move || {
                for piece in (thread..PIECES).step_by(4) {
                    let bytes = (piece as u32).to_le_bytes().repeat(PIECE / 4);
                    file.write_all(&bytes).unwrap();
                }
            });
        }
    });
    assert_eq!((&file).stream_position().unwrap(), (PIECE * PIECES) as u64);
    // A clone begins at the same place and goes its own way.
    let mut clone = file.clone();
    assert_eq!(
        clone.seek(SeekFrom::Current(-8)).unwrap() + 8,
        (&file).stream_position().unwrap()
    );

    (&file).rewind().unwrap();
    let pieces = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mut file = &file;
                scope.spawn(move || {
                    let (mut found, mut buf) = (Vec::new(), [0; PIECE]);
                    while file.read(&mut buf).unwrap() == PIECE {
                        assert!(buf.chunks(4).all(|word| word == &buf[..4]));
                        found.push(u32::from_le_bytes(buf[..4].try_into().unwrap()));
                    }
                    found
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(pieces.len(), PIECES);
    let pieces: BTreeSet<u32> = pieces.into_iter().collect();
    assert_eq!(pieces.len(), PIECES, "each piece is read once");
    assert!((&file).seek(SeekFrom::Current(-1 << 40)).is_err());
}
