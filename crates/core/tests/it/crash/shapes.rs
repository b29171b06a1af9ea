//! File systems to begin with, and what is in them before the run.

use super::engine::Extant;
use extant_testkit::crash::Content;
use extant_testkit::model::{Lane, Op, Universe};
use extant_testkit::oracle::{debugfs, dumpe2fs, dumpe2fs_header, mke2fs};
use extant_testkit::sweep::{Prepared, Script};
use std::os::unix::fs::FileExt;

/// How a file system is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) kib: u64,
    pub(crate) block_size: u64,
    /// Options of mke2fs beside block size and size of the journal.
    pub(crate) options: &'static [&'static str],
}

/// Blocks of 1 KiB: the log, the smallest there may be, is 1 MiB and wraps soon.
pub(crate) const SMALL_BLOCKS: Shape = Shape {
    name: "1 KiB blocks",
    kib: 6 << 10,
    block_size: 1024,
    options: &["-O", "^resize_inode"],
};
/// The default, small.
pub(crate) const DEFAULT: Shape = Shape {
    name: "4 KiB blocks",
    kib: 16 << 10,
    block_size: 4096,
    options: &["-O", "^resize_inode"],
};
/// Neither checksums nor 64-bit fields, and several groups.
pub(crate) const PLAIN: Shape = Shape {
    name: "no checksums",
    kib: 12 << 10,
    block_size: 1024,
    options: &["-O", "^metadata_csum,^64bit,^resize_inode", "-g", "4096"],
};
/// Orphans in a file of their own.
pub(crate) const ORPHAN_FILE: Shape = Shape {
    name: "orphan file",
    kib: 12 << 10,
    block_size: 2048,
    options: &["-O", "orphan_file,metadata_csum_seed,^flex_bg"],
};

/// Clusters of four blocks.
pub(crate) const CLUSTERS: Shape = Shape {
    name: "clusters",
    kib: 16 << 10,
    block_size: 1024,
    options: &["-O", "bigalloc,^resize_inode", "-C", "4096"],
};

/// Groups that nobody has used yet: neither bitmaps nor tables of inodes are there before somebody
/// does.
pub(crate) const GROUPS: Shape = Shape {
    name: "unused groups",
    kib: 12 << 10,
    block_size: 1024,
    options: &[
        "-O",
        "^resize_inode",
        "-g",
        "2048",
        "-E",
        "lazy_itable_init=1",
    ],
};

pub(crate) const SHAPES: [Shape; 4] = [SMALL_BLOCKS, DEFAULT, PLAIN, ORPHAN_FILE];

impl Shape {
    /// A new file system.
    pub(crate) fn content(&self) -> Content {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let block_size = self.block_size.to_string();
        let journal = format!("size={}", (1024 * self.block_size) >> 20);
        let mut options = vec!["-t", "ext4", "-b", &block_size, "-N", "128"];
        let journaled = !self.options.iter().any(|o| o.contains("^has_journal"));
        if journaled {
            options.extend(["-J", &journal]);
        }
        options.extend(self.options);
        mke2fs(&path, self.kib << 10, &options);
        // It leaves the journal out where it finds no room for one.
        let made = dumpe2fs_header(&path);
        assert_eq!(made.has_feature("has_journal"), journaled, "{self:?}");
        Content::of_file(&path)
    }

    /// A new file system and one lane that owns it.
    pub(crate) fn empty(&self) -> Prepared {
        self.beginning_with(self.content())
    }

    /// One lane that owns a file system of this shape.
    pub(crate) fn beginning_with(&self, content: Content) -> Prepared {
        self.with_block_size(Prepared::new(content))
    }

    /// Lanes for so many threads, each in a directory of its own.
    pub(crate) fn lanes(&self, engine: &Extant, lanes: u16) -> Prepared {
        let made = Prepared::with_lanes(engine, self.content(), lanes);
        self.with_block_size(made.unwrap_or_else(|e| panic!("{}: {e}", self.name)))
    }

    /// A few files and directories, which every operation of the small universe can be tried on.
    pub(crate) fn filled(&self, engine: &Extant) -> Prepared {
        let path = |name: &str| name.to_owned();
        let mkdir = |name| Op::Mkdir {
            path: path(name),
            mode: 0o755,
        };
        let create = |name| Op::Create {
            path: path(name),
            mode: 0o644,
        };
        let write = |name, offset, len| Op::Write {
            path: path(name),
            offset,
            len,
        };
        let ops = vec![
            mkdir("a"),
            create("f"),
            write("f", 0, 9000),
            create("a/f"),
            write("a/f", 4096, 5000),
            Op::Link {
                from: path("f"),
                to: path("g"),
            },
        ];
        let made = self.empty().done(engine, &Script::one(ops));
        made.unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Lanes for so many threads in one directory.
    pub(crate) fn lanes_together(&self, engine: &Extant, lanes: u16) -> Prepared {
        let made = Prepared::with_lanes_together(engine, self.content(), lanes);
        self.with_block_size(made.unwrap_or_else(|e| panic!("{}: {e}", self.name)))
    }

    /// A directory `d` with so many of the [`long_names`](Universe::long_names).
    pub(crate) fn with_names(&self, engine: &Extant, names: usize) -> Prepared {
        let mut ops = vec![Op::Mkdir {
            path: "d".to_owned(),
            mode: 0o755,
        }];
        let files = Universe::long_names("d/", names).files;
        ops.extend(
            files
                .into_iter()
                .map(|path| Op::Create { path, mode: 0o644 }),
        );
        let made = self.empty().done(engine, &Script::one(ops));
        made.unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Two files in a directory, each of them in many pieces with holes between them.
    pub(crate) fn in_pieces(&self, engine: &Extant) -> Prepared {
        let mut ops = vec![Op::Mkdir {
            path: "dir0".to_owned(),
            mode: 0o755,
        }];
        for path in ["dir0/file-0", "dir0/file-1"] {
            let path = || path.to_owned();
            ops.push(Op::Create {
                path: path(),
                mode: 0o644,
            });
            ops.extend((0..24).map(|piece| Op::Write {
                path: path(),
                offset: piece * 8192,
                len: 1024,
            }));
        }
        let made = self.empty().done(engine, &Script::one(ops));
        made.unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    fn with_block_size(&self, made: Prepared) -> Prepared {
        let lanes = made.lanes.into_iter();
        let with_block_size = |lane: Lane| lane.block_size(self.block_size);
        Prepared {
            lanes: lanes.map(with_block_size).collect(),
            ..made
        }
    }
}

/// `content` of blocks of 1 KiB whose next transaction has this number.
pub(crate) fn with_first_tid(content: &Content, tid: u32) -> Content {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    content.write_to(&path).unwrap();
    let blocks = debugfs(&path, "blocks <8>");
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // The field of the log's superblock; mke2fs leaves no checksum there.
    file.write_all_at(&tid.to_be_bytes(), first * 1024 + 0x18)
        .unwrap();
    Content::of_file(&path)
}

/// The number of the next transaction of an image of blocks of 1 KiB.
pub(crate) fn next_tid(content: &Content) -> u32 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    content.write_to(&path).unwrap();
    let header = dumpe2fs_header(&path);
    let number = header.field("Journal sequence");
    u32::from_str_radix(number.trim_start_matches("0x"), 16).unwrap()
}

/// How many groups have a table of inodes that nobody has used.
pub(crate) fn unused_groups(content: &Content) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    content.write_to(&path).unwrap();
    let groups = dumpe2fs(&path).groups;
    let unused = groups.iter().filter(|g| g.flags.contains("INODE_UNINIT"));
    unused.count()
}

/// A file system of the first kind on which there is little room.
pub(crate) fn nearly_full(engine: &Extant) -> Prepared {
    let shape = Shape {
        name: "full",
        kib: 2200,
        ..SMALL_BLOCKS
    };
    let path = || "filler".to_owned();
    let fill = vec![
        Op::Create {
            path: path(),
            mode: 0o600,
        },
        Op::Write {
            path: path(),
            offset: 0,
            len: 500 << 10,
        },
    ];
    let filled = shape.empty().done(engine, &Script::one(fill));
    filled.unwrap_or_else(|e| panic!("{e}"))
}
