//! File content, symbolic links, device nodes and counts.

use crate::support::{Image, content, pattern};
use extant_core::data::{self, Extent, Sink};
use extant_core::dir::Cookie;
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::{Error, ops};
use extant_testkit::oracle::{debugfs, debugfs_write, dumpe2fs_header};
use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// The ways a file's blocks can be mapped, and the sizes that change how.
const LAYOUTS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "4096", "-I", "1024"],
    &["-t", "ext4", "-b", "65536"],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
    &["-t", "ext3", "-b", "2048"],
    &["-t", "ext4", "-O", "^64bit,^metadata_csum,^flex_bg"],
    &["-t", "ext4", "-O", "^64bit,^metadata_csum,uninit_bg"],
    &[
        "-t",
        "ext4",
        "-O",
        "meta_bg,^resize_inode,metadata_csum_seed",
    ],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
];

fn plant(tree: &Path) {
    std::fs::write(tree.join("empty"), b"").unwrap();
    std::fs::write(tree.join("small"), b"some words").unwrap();
    std::fs::write(tree.join("large"), pattern(1, 3_000_001)).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9_000_000).unwrap();
    sparse
        .write_all_at(&pattern(2, 300_000), 1_234_567)
        .unwrap();
    sparse.write_all_at(b"end", 8_500_000).unwrap();
    symlink("small", tree.join("fast")).unwrap();
    symlink("x/".repeat(150), tree.join("slow")).unwrap();
    let mode = std::fs::Permissions::from_mode(0o4751);
    std::fs::set_permissions(tree.join("small"), mode).unwrap();
}

#[test]
fn content_is_what_was_put_in_whatever_the_layout() {
    for options in LAYOUTS {
        let image = Image::make(64, options, plant);
        let fs = image.open();
        let inode = |path| image.inode(&fs, path);
        assert_eq!(content(&fs, &inode("/empty")), b"", "{options:?}");
        assert_eq!(content(&fs, &inode("/small")), b"some words", "{options:?}");
        assert!(
            content(&fs, &inode("/large")) == pattern(1, 3_000_001),
            "{options:?}"
        );
        let mut sparse = vec![0; 9_000_000];
        sparse[1_234_567..][..300_000].copy_from_slice(&pattern(2, 300_000));
        sparse[8_500_000..][..3].copy_from_slice(b"end");
        assert!(content(&fs, &inode("/sparse")) == sparse, "{options:?}");
        assert_eq!(fs.read_link(&inode("/fast")).unwrap(), b"small");
        assert_eq!(
            fs.read_link(&inode("/slow")).unwrap(),
            "x/".repeat(150).as_bytes()
        );
        assert!(matches!(
            data::read_at(&fs, &inode("/"), 0, &mut [0]),
            Err(Error::IsADirectory)
        ));
    }
}

#[test]
fn content_inside_the_inode_is_read_to_its_last_byte() {
    let sizes = [1usize, 59, 60, 61, 100, 300];
    let options = ["-t", "ext4", "-O", "inline_data", "-I", "512"];
    let image = Image::make(16, &options, |tree| {
        for size in sizes {
            std::fs::write(tree.join(size.to_string()), pattern(9, size)).unwrap();
        }
        symlink("y".repeat(200), tree.join("link")).unwrap();
    });
    let fs = image.open();
    for size in sizes {
        let inode = image.inode(&fs, &format!("/{size}"));
        assert!(inode.is_inline(), "{size}");
        let expected = pattern(9, size);
        assert_eq!(content(&fs, &inode), expected);
        assert_eq!(streamed(&fs, &inode).bytes, expected);
        let mut tail = [0; 10];
        let len = data::read_at(&fs, &inode, size as u64 - 1, &mut tail).unwrap();
        assert_eq!((len, tail[0]), (1, expected[size - 1]));
        assert_eq!(data::seek_hole(&fs, &inode, 0).unwrap(), Some(size as u64));
        let pieces: Vec<_> = data::extents(&fs, &inode).map(Result::unwrap).collect();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].device_offset, None);
    }
    let link = image.inode(&fs, "/link");
    assert_eq!(fs.read_link(&link).unwrap(), "y".repeat(200).as_bytes());
}

#[test]
fn reads_at_any_offset_give_the_same_bytes() {
    let image = Image::make(64, &["-t", "ext4", "-b", "1024"], plant);
    let fs = image.open();
    let inode = image.inode(&fs, "/sparse");
    let whole = content(&fs, &inode);
    let seed = extant_testkit::rng::seed_from_env("reads_at_any_offset_give_the_same_bytes");
    let mut rng = extant_testkit::rng::Rng::new(seed);
    for _ in 0..2000 {
        let offset = rng.below(9_100_000);
        let mut buf = vec![0xcc; rng.below(70_000) as usize];
        let len = data::read_at(&fs, &inode, offset, &mut buf).unwrap();
        let expected = whole.get(offset as usize..).unwrap_or(&[]);
        let expected = &expected[..expected.len().min(buf.len())];
        assert!(&buf[..len] == expected, "offset {offset}, seed {seed}");
    }
}

#[test]
fn metadata_is_what_was_put_in() {
    let image = Image::make(16, &["-t", "ext4", "-b", "4096"], plant);
    debugfs_write(&image.path(), &["mknod tty c 4 64", "mknod pipe p"]);
    let fs = image.open();
    let stat = ops::stat(&fs, &image.inode(&fs, "/small"));
    assert_eq!(stat.mode.bits(), 0o104_751);
    assert_eq!((stat.size, stat.links, stat.sectors), (10, 1, 8));
    assert_eq!(stat.flags.lsattr(), "--------------e-------");
    assert!(stat.crtime.is_some());
    let tty = ops::stat(&fs, &image.inode(&fs, "/tty"));
    assert_eq!(tty.file_type, FileType::CharDevice);
    assert_eq!(tty.device.map(|d| (d.major, d.minor)), Some((4, 64)));
    let pipe = image.inode(&fs, "/pipe");
    assert_eq!(pipe.file_type(), FileType::Fifo);
    assert!(matches!(
        data::read_at(&fs, &pipe, 0, &mut [0]),
        Err(Error::NotARegularFile)
    ));
}

#[test]
fn space_is_counted_as_dumpe2fs_counts_it() {
    for options in LAYOUTS {
        let image = Image::make(64, options, plant);
        let dump = dumpe2fs_header(&image.path());
        let counts = image.open().statfs().unwrap();
        assert_eq!(counts.free, dump.number("Free blocks"), "{options:?}");
        assert_eq!(
            counts.free_inodes,
            dump.number("Free inodes"),
            "{options:?}"
        );
        assert_eq!(counts.inodes, dump.number("Inode count"), "{options:?}");
        assert!(counts.blocks < dump.number("Block count"), "{options:?}");
    }
}

#[test]
fn a_walk_over_all_inodes_finds_exactly_those_in_use() {
    for options in LAYOUTS {
        let image = Image::make(64, options, plant);
        let fs = image.open();
        let first = fs.superblock().first_ino();
        let mut found: Vec<_> = fs
            .inodes()
            .map(|(ino, inode)| (ino, inode.unwrap()))
            .filter(|(ino, _)| *ino >= first)
            .collect();
        // lost+found and what was planted.
        assert_eq!(found.len(), 7, "{options:?}: {found:?}");
        found.retain(|(_, inode)| inode.file_type() == FileType::Regular);
        assert_eq!(found.len(), 4);
        for (ino, inode) in &found {
            assert_eq!(fs.inode(*ino).unwrap().disk(), inode.disk());
        }
    }
}

/// Puts a file together again from its stream.
#[derive(Default)]
struct Collect {
    bytes: Vec<u8>,
    holes: u64,
}

impl Sink for Collect {
    type Error = Infallible;

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Infallible> {
        assert_eq!(offset, self.bytes.len() as u64, "in order, without gaps");
        self.bytes.extend(bytes);
        Ok(())
    }

    fn hole(&mut self, offset: u64, len: u64) -> Result<(), Infallible> {
        assert_eq!(offset, self.bytes.len() as u64, "in order, without gaps");
        assert!(len > 0);
        self.holes += len;
        self.bytes.resize((offset + len) as usize, 0);
        Ok(())
    }
}

fn streamed(fs: &Fs, inode: &Inode) -> Collect {
    let mut sink = Collect::default();
    let Ok(()) = data::stream(fs, inode, &mut sink).unwrap();
    sink
}

#[test]
fn a_stream_gives_the_content_with_its_holes() {
    let image = Image::make(64, &["-t", "ext4"], |tree| {
        plant(tree);
        std::fs::write(tree.join("huge"), pattern(3, 20_000_003)).unwrap();
    });
    let fs = image.open();
    for path in ["/empty", "/small", "/large", "/sparse", "/huge"] {
        let inode = image.inode(&fs, path);
        let stream = streamed(&fs, &inode);
        assert!(stream.bytes == content(&fs, &inode), "{path}");
        assert_eq!(stream.holes > 8_000_000, path == "/sparse", "{path}");
    }
    let huge = image.inode(&fs, "/huge");
    struct Full;
    impl Sink for Full {
        type Error = &'static str;
        fn data(&mut self, _: u64, _: &[u8]) -> Result<(), &'static str> {
            Err("full")
        }
    }
    assert_eq!(data::stream(&fs, &huge, &mut Full).unwrap(), Err("full"));
}

#[test]
fn holes_are_found_where_nothing_was_written() {
    for options in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext2", "-b", "4096"],
    ] {
        let image = Image::make(64, options, plant);
        let fs = image.open();
        let inode = image.inode(&fs, "/sparse");
        let data = |from| data::seek_data(&fs, &inode, from).unwrap();
        let hole = |from| data::seek_hole(&fs, &inode, from).unwrap();
        let start = 1_234_567 / 4096 * 4096;
        let end = (1_234_567u64 + 300_000).div_ceil(4096) * 4096;
        assert_eq!(data(0), Some(start));
        assert_eq!(data(start + 5), Some(start + 5));
        assert_eq!(hole(0), Some(0));
        assert_eq!(hole(start), Some(end));
        let last = 8_500_000 / 4096 * 4096;
        assert_eq!(data(end), Some(last));
        assert_eq!(hole(last), Some(last + 4096));
        assert_eq!(data(last + 4096), None);
        assert_eq!(hole(9_000_000), None);
        let large = image.inode(&fs, "/large");
        assert_eq!(data::seek_hole(&fs, &large, 7).unwrap(), Some(3_000_001));
    }
}

#[test]
fn pieces_lie_where_debugfs_says() {
    for options in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext2", "-b", "4096"],
    ] {
        let image = Image::make(64, options, plant);
        let fs = image.open();
        let pieces: Vec<Extent> = data::extents(&fs, &image.inode(&fs, "/sparse"))
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(!pieces.is_empty());
        for piece in &pieces {
            let mut at = piece.offset;
            while at < piece.offset + piece.len {
                let block = debugfs(&image.path(), &format!("bmap /sparse {}", at / 4096));
                let expected: u64 = block.trim().parse().unwrap();
                let device_offset = piece.device_offset.unwrap() + (at - piece.offset);
                assert_eq!(device_offset, expected * 4096);
                at += 4096 * 20;
            }
        }
    }
}

#[test]
fn many_threads_read_at_once() {
    let image = Image::make(64, &["-t", "ext4", "-b", "1024"], plant);
    let fs = image.open();
    let inos = ["/large", "/sparse", "/small"].map(|path| image.ino(path));
    let expected = inos.map(|ino| content(&fs, &fs.inode(ino).unwrap()));
    let fresh = image.open();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for (ino, expected) in inos.iter().zip(&expected) {
                    let inode = fresh.inode(*ino).unwrap();
                    assert!(content(&fresh, &inode) == *expected);
                }
            });
        }
    });
}

#[test]
fn inodes_that_are_not_there_are_refused() {
    let image = Image::make(16, &["-t", "ext4", "-b", "4096"], plant);
    let fs = image.open();
    let count = fs.geometry().inodes_count();
    let error = |ino| fs.inode(extant_format::Ino::new(ino)).unwrap_err();
    assert!(matches!(error(count), Error::Stale));
    assert!(error(0).is_corruption());
    assert_eq!(
        error(count + 1).to_string(),
        format!(
            "inode {} is corrupt: superblock: inode is {}, expected 1 to {count}",
            count + 1,
            count + 1
        )
    );
}

#[test]
fn operations_lead_from_the_root_to_everything() {
    let image = Image::make(16, &["-t", "ext4", "-b", "4096"], plant);
    debugfs_write(&image.path(), &["ea_set small user.note words"]);
    let fs = image.open();
    let root = fs.inode(extant_format::Ino::ROOT).unwrap();
    let small = ops::lookup(&fs, &root, b"small").unwrap();
    assert_eq!(ops::stat_of(&fs, small.ino()).unwrap().size, 10);
    assert_eq!(ops::getxattr(&fs, &small, b"user.note").unwrap(), b"words");
    assert_eq!(ops::listxattr(&fs, &small).unwrap(), [b"user.note"]);
    let mut buf = [0; 4];
    assert_eq!(ops::read(&fs, &small, 5, &mut buf).unwrap(), 4);
    assert_eq!(&buf, b"word");
    let fast = ops::lookup(&fs, &root, b"fast").unwrap();
    assert_eq!(ops::readlink(&fs, &fast).unwrap(), b"small");
    let mut names = Vec::new();
    ops::readdir(&fs, &root, Cookie::START, |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::<()>::Continue(())
    })
    .unwrap();
    names.sort();
    let expected: [&[u8]; 9] = [
        b".",
        b"..",
        b"empty",
        b"fast",
        b"large",
        b"lost+found",
        b"slow",
        b"small",
        b"sparse",
    ];
    assert_eq!(names, expected);
    let error = |dir, name: &[u8]| ops::lookup(&fs, dir, name).unwrap_err();
    assert!(matches!(error(&root, b"nothing"), Error::NotFound));
    assert!(matches!(error(&root, &[b'n'; 256]), Error::NameTooLong));
    assert!(matches!(error(&small, b"x"), Error::NotADirectory));
}
