//! What people expect of a library that is used as `std::fs` is.

use crate::support::{Blank, Image, plan};
use extant::errno::{EBUSY, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR};
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

/// A call that gives, moves or takes the last name of a path.
struct Call {
    name: &'static str,
    here: fn(&Filesystem, &str) -> extant::Result<()>,
    host: fn(&str) -> std::io::Result<()>,
}

/// The directory of a path of the tests, of which each has one of its own: `/7/d/.` lies in `/7`.
fn desk(path: &str) -> &str {
    let end = path.find("/desk").unwrap() + "/desk".len();
    &path[..end]
}

fn with(path: &str, name: &str) -> String {
    format!("{}/{name}", desk(path))
}

const CALLS: &[Call] = &[
    Call {
        name: "mkdir",
        here: |fs, path| fs.create_dir(path),
        host: |path| std::fs::create_dir(path),
    },
    Call {
        name: "rmdir",
        here: |fs, path| fs.remove_dir(path),
        host: |path| std::fs::remove_dir(path),
    },
    Call {
        name: "unlink",
        here: |fs, path| fs.remove_file(path),
        host: |path| std::fs::remove_file(path),
    },
    Call {
        name: "symlink",
        here: |fs, path| fs.symlink("target", path),
        host: |path| std::os::unix::fs::symlink("target", path),
    },
    Call {
        name: "link",
        here: |fs, path| fs.hard_link(with(path, "f"), path),
        host: |path| std::fs::hard_link(with(path, "f"), path),
    },
    Call {
        name: "create",
        here: |fs, path| fs.create(path).map(drop),
        host: |path| std::fs::File::create(path).map(drop),
    },
    Call {
        name: "create new",
        here: |fs, path| fs.create_new(path).map(drop),
        host: |path| std::fs::File::create_new(path).map(drop),
    },
    Call {
        name: "pipe",
        here: |fs, path| {
            let none = extant::DeviceNumber::default();
            fs.create_special(path, extant::FileType::Fifo, none, 0o644)
        },
        host: |path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o644));
            Ok(rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0)?)
        },
    },
    Call {
        name: "rename from",
        here: |fs, path| fs.rename(path, with(path, "new")),
        host: |path| std::fs::rename(path, with(path, "new")),
    },
    Call {
        name: "rename a file to",
        here: |fs, path| fs.rename(with(path, "f"), path),
        host: |path| std::fs::rename(with(path, "f"), path),
    },
    Call {
        name: "rename a directory to",
        here: |fs, path| fs.rename(with(path, "d"), path),
        host: |path| std::fs::rename(with(path, "d"), path),
    },
    Call {
        name: "rename a directory to, replacing nothing",
        here: |fs, path| fs.rename_new(with(path, "d"), path),
        host: |path| renameat(&with(path, "d"), path, rustix::fs::RenameFlags::NOREPLACE),
    },
    Call {
        name: "rename a file to, replacing nothing",
        here: |fs, path| fs.rename_new(with(path, "f"), path),
        host: |path| renameat(&with(path, "f"), path, rustix::fs::RenameFlags::NOREPLACE),
    },
    Call {
        name: "exchange with nothing",
        here: |fs, path| fs.exchange(with(path, "none"), path),
        host: |path| renameat(&with(path, "none"), path, rustix::fs::RenameFlags::EXCHANGE),
    },
    Call {
        name: "exchange nothing with",
        here: |fs, path| fs.exchange(path, with(path, "none")),
        host: |path| renameat(path, &with(path, "none"), rustix::fs::RenameFlags::EXCHANGE),
    },
    Call {
        name: "exchange",
        here: |fs, path| fs.exchange(with(path, "f"), path),
        host: |path| renameat(&with(path, "f"), path, rustix::fs::RenameFlags::EXCHANGE),
    },
];

fn renameat(from: &str, to: &str, flags: rustix::fs::RenameFlags) -> std::io::Result<()> {
    let here = rustix::fs::CWD;
    Ok(rustix::fs::renameat_with(here, from, here, to, flags)?)
}

/// What is at the names that calls could have changed.
fn left(exists: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let names = [
        "d", "d/in", "e", "f", "l", "new", "none", "d/none", "target",
    ];
    names.into_iter().filter(|name| exists(name)).collect()
}

#[test]
fn how_a_path_ends_is_judged_as_linux_does() {
    let fs = empty();
    let dir = tempfile::tempdir().unwrap();
    let ends = [
        "", ".", "..", "d", "d/", "d/.", "d/..", "d/./", "d/../", "d//", "e/", "e/.", "e/..", "f/",
        "f/.", "f/..", "f/x", "l/", "l/.", "l/..", "none/", "none/.", "none/..", "d/none/",
        "d/in/", "none",
    ];
    for (call, number) in CALLS.iter().zip(0..) {
        for (end, case) in ends.iter().zip(0..) {
            let inside = format!("/{number}-{case}/desk");
            let outside = format!("{}{inside}", dir.path().display());
            fs.create_dir_all(format!("{inside}/d")).unwrap();
            fs.create_dir(format!("{inside}/e")).unwrap();
            std::fs::create_dir_all(format!("{outside}/d")).unwrap();
            std::fs::create_dir(format!("{outside}/e")).unwrap();
            for file in ["f", "d/in"] {
                fs.write(format!("{inside}/{file}"), "").unwrap();
                std::fs::write(format!("{outside}/{file}"), "").unwrap();
            }
            fs.symlink("d", format!("{inside}/l")).unwrap();
            std::os::unix::fs::symlink("d", format!("{outside}/l")).unwrap();
            let theirs = (call.host)(&format!("{outside}/{end}"));
            let ours = (call.here)(&fs, &format!("{inside}/{end}"));
            assert_eq!(
                ours.as_ref().map_err(extant::Error::errno).err(),
                theirs.as_ref().map_err(|e| e.raw_os_error().unwrap()).err(),
                "{} {end:?}: {ours:?}, Linux: {theirs:?}",
                call.name
            );
            assert_eq!(
                left(|name| fs.symlink_metadata(format!("{inside}/{name}")).is_ok()),
                left(|name| Path::new(&format!("{outside}/{name}")).is_symlink()
                    || Path::new(&format!("{outside}/{name}")).exists()),
                "{} {end:?}",
                call.name
            );
        }
    }
}

#[test]
fn the_root_can_be_neither_made_nor_removed() {
    let fs = empty();
    fs.write("/f", "").unwrap();
    fs.create_dir("/d").unwrap();
    for root in ["/", "//", "///"] {
        for (call, errno, done) in [
            ("mkdir", EEXIST, fs.create_dir(root)),
            ("rmdir", EBUSY, fs.remove_dir(root)),
            ("remove all", EBUSY, fs.remove_dir_all(root)),
            ("unlink", EISDIR, fs.remove_file(root)),
            ("symlink", EEXIST, fs.symlink("f", root)),
            ("link", EEXIST, fs.hard_link("/f", root)),
            ("create", EISDIR, fs.create(root).map(drop)),
            ("create new", EEXIST, fs.create_new(root).map(drop)),
            ("rename from", EBUSY, fs.rename(root, "/d/new")),
            ("rename to", EBUSY, fs.rename("/d", root)),
            ("rename new", EEXIST, fs.rename_new("/d", root)),
            ("exchange", EBUSY, fs.exchange("/d", root)),
        ] {
            assert_eq!(done.unwrap_err().errno(), errno, "{call} {root}");
        }
        fs.create_dir_all(root).unwrap();
    }
    assert!(fs.exists("/f").unwrap());
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
