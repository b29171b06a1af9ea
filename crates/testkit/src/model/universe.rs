//! Which operations to do: all of a small universe of names, or random ones by seed.

use super::{Node, Op, State};
use crate::rng::Rng;
use crate::tree::Time;

/// Nodes with numbers that fit the old form, and that do not; the major numbers are those that
/// nobody has.
const NODES: [Node; 3] = [Node::Socket, Node::Char(60, 70_000), Node::Block(60, 3)];

/// A few names, and everything that can be done with them.
#[derive(Debug, Clone)]
pub struct Universe {
    /// Paths where files, links and symlinks may be.
    pub files: Vec<String>,
    /// Paths where directories may be.
    pub dirs: Vec<String>,
    /// Places in files at which to write: offset and length.
    pub writes: Vec<(u64, u64)>,
    /// Ranges to reserve blocks for: offset and length, and whether the size stays.
    pub allocations: Vec<(u64, u64, bool)>,
    /// Ranges to make zeros of: offset and length, and whether the space stays.
    pub zeros: Vec<(u64, u64, bool)>,
    /// Ranges to take out of files or to put in: offset and length, multiples of 4096, and whether
    /// it is put in.
    pub shifts: Vec<(u64, u64, bool)>,
    /// Sizes to truncate to.
    pub sizes: Vec<u64>,
    /// Extended attributes: name, and length of the value. All of them together fit a block of 1
    /// KiB.
    pub xattrs: Vec<(String, usize)>,
    /// How often, in a hundred, a random operation is a sync.
    pub syncs: u64,
    /// Which operations are done at all.
    pub allows: fn(&Op) -> bool,
}

impl Universe {
    /// Two files in the root and one in each of two directories: small enough to do everything,
    /// large enough for most mistakes that a crash can bring to light (they need at most three
    /// operations).
    pub fn small() -> Universe {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Universe {
            files: own(&["f", "g", "a/f", "b/g"]),
            dirs: own(&["a", "b"]),
            writes: vec![(0, 4096), (4096, 9000), (1000, 100), (100_000, 4096)],
            allocations: vec![(0, 20_000, false), (6000, 100_000, true)],
            zeros: vec![(1000, 9000, false), (4096, 100_000, true)],
            shifts: vec![(0, 4096, false), (4096, 8192, true)],
            sizes: vec![0, 5000, 200_000],
            // The first fits inodes of 256 bytes beside nothing else, the others do not.
            xattrs: [("user.a", 60), ("user.a", 300), ("user.bb", 250)]
                .map(|(name, len)| (name.to_owned(), len))
                .to_vec(),
            syncs: 10,
            allows: |_| true,
        }
    }

    /// `files` names in each of `dirs` directories, two levels deep.
    pub fn wide(dirs: usize, files: usize) -> Universe {
        let small = Universe::small();
        let mut names: Vec<String> = (0..dirs).map(|n| format!("dir{n}")).collect();
        names.extend((0..dirs).map(|n| format!("dir{n}/sub")));
        let file = |dir: &String| {
            let dir = dir.clone();
            (0..files).map(move |n| format!("{dir}/file-{n}"))
        };
        Universe {
            files: names.iter().flat_map(file).collect(),
            dirs: names,
            writes: vec![
                (0, 100),
                (0, 4096),
                (0, 65_536),
                (4096, 9000),
                (12_288, 4096),
                (1 << 20, 10_000),
            ],
            allocations: vec![
                (0, 4096, false),
                (3000, 65_536, true),
                (100_000, 10_000, false),
            ],
            zeros: vec![
                (100, 50, false),
                (4096, 8192, false),
                (0, 65_536, true),
                (5000, 100_000, true),
            ],
            shifts: vec![
                (0, 4096, false),
                (4096, 8192, false),
                (8192, 65_536, false),
                (0, 4096, true),
                (8192, 32_768, true),
            ],
            sizes: vec![0, 1, 4096, 5000, 100_000, 2 << 20],
            ..small
        }
    }

    /// `files` names of more than 200 letters that begin with `dir` (`""`, or `"directory/"`), so
    /// that few fit a block, and what is done with names: beside that files are written and synced,
    /// but nothing else.
    pub fn long_names(dir: &str, files: usize) -> Universe {
        let name = |n: usize| format!("{dir}{n:03}-{}", "long".repeat(50 + n % 10));
        Universe {
            files: (0..files).map(name).collect(),
            dirs: (files..files + 4).map(name).collect(),
            writes: vec![(0, 100), (0, 4096)],
            syncs: 12,
            allows: |op| {
                !matches!(
                    op,
                    Op::Allocate { .. }
                        | Op::Zero { .. }
                        | Op::Shift { .. }
                        | Op::Truncate { .. }
                        | Op::SetXattr { .. }
                        | Op::RemoveXattr { .. }
                        | Op::Inherit { .. }
                )
            },
            ..Universe::small()
        }
    }

    /// Returns every operation there is, most of which are refused in any one state.
    pub fn all(&self) -> Vec<Op> {
        let mut all = vec![Op::Syncfs];
        for path in &self.dirs {
            all.extend([
                Op::Mkdir {
                    path: path.clone(),
                    mode: 0o750,
                },
                Op::Rmdir { path: path.clone() },
                Op::Fsync { path: path.clone() },
                Op::Chmod {
                    path: path.clone(),
                    mode: 0o711,
                },
            ]);
            all.extend(self.on_xattrs(path));
            for on in [true, false] {
                let path = || path.clone();
                all.push(Op::NoDump { path: path(), on });
                all.push(Op::Inherit { path: path(), on });
            }
        }
        for path in &self.files {
            all.extend(self.on_file(path));
        }
        let both = || self.files.iter().chain(&self.dirs);
        for from in both() {
            for to in both().filter(|to| *to != from) {
                let (from, to) = (from.clone(), to.clone());
                all.push(Op::Rename {
                    from: from.clone(),
                    to: to.clone(),
                });
                all.push(Op::RenameNew {
                    from: from.clone(),
                    to: to.clone(),
                });
                // The same the other way round.
                if from < to {
                    all.push(Op::Whiteout {
                        from: from.clone(),
                        to: to.clone(),
                    });
                    all.push(Op::Exchange { from, to });
                }
            }
        }
        for from in &self.files {
            for to in self.files.iter().filter(|to| *to != from) {
                let (from, to) = (from.clone(), to.clone());
                all.push(Op::Link { from, to });
            }
        }
        all.retain(self.allows);
        all
    }

    /// Everything that can be done with one file.
    fn on_file(&self, path_of: &str) -> Vec<Op> {
        let path = || path_of.to_owned();
        let mut all = vec![
            Op::Create {
                path: path(),
                mode: 0o640,
            },
            Op::Temporary {
                path: path(),
                mode: 0o620,
            },
            Op::Symlink {
                path: path(),
                target: "somewhere/else".to_owned(),
            },
            // Too long for the inode: it needs a block.
            Op::Symlink {
                path: path(),
                target: "far/".repeat(40),
            },
            Op::Mknod {
                path: path(),
                mode: 0o660,
                node: NODES[path_of.len() % NODES.len()],
            },
            Op::NoDump {
                path: path(),
                on: true,
            },
            Op::NoDump {
                path: path(),
                on: false,
            },
            Op::Unlink { path: path() },
            Op::Chmod {
                path: path(),
                mode: 0o604,
            },
            Op::Chown {
                path: path(),
                uid: 1000,
                gid: 70_000,
            },
            Op::Utimens {
                path: path(),
                mtime: Time::new(1_000_000_000, 123_456_789),
            },
            Op::Fsync { path: path() },
            Op::Fdatasync { path: path() },
        ];
        let writes = self.writes.iter();
        all.extend(writes.map(|&(offset, len)| Op::Write {
            path: path(),
            offset,
            len,
        }));
        let allocations = self.allocations.iter();
        all.extend(allocations.map(|&(offset, len, keep)| Op::Allocate {
            path: path(),
            offset,
            len,
            keep,
        }));
        let zeros = self.zeros.iter();
        all.extend(zeros.map(|&(offset, len, keeps_space)| Op::Zero {
            path: path(),
            offset,
            len,
            keeps_space,
        }));
        let shifts = self.shifts.iter();
        all.extend(shifts.map(|&(offset, len, insert)| Op::Shift {
            path: path(),
            offset,
            len,
            insert,
        }));
        let sizes = self.sizes.iter();
        all.extend(sizes.map(|&size| Op::Truncate { path: path(), size }));
        all.extend(self.on_xattrs(path_of));
        all
    }

    /// Everything that can be done with the extended attributes of one file or directory.
    fn on_xattrs(&self, path: &str) -> Vec<Op> {
        let set = |(name, len): &(String, usize)| Op::SetXattr {
            path: path.to_owned(),
            name: name.clone(),
            len: *len,
        };
        let mut all: Vec<Op> = self.xattrs.iter().map(set).collect();
        let mut names: Vec<&String> = self.xattrs.iter().map(|(name, _)| name).collect();
        names.dedup();
        all.extend(names.into_iter().map(|name| Op::RemoveXattr {
            path: path.to_owned(),
            name: name.clone(),
        }));
        all
    }

    /// Returns every operation that is not refused in `state`.
    pub fn possible(&self, state: &State) -> Vec<Op> {
        let works = |op: &Op| state.clone().apply(op).is_ok();
        self.all().into_iter().filter(works).collect()
    }

    /// Returns a random operation; one in twenty may be refused in `state`.
    pub fn random(&self, rng: &mut Rng, state: &State) -> Op {
        let may_fail = rng.one_in(20);
        // Some name is always free or taken, so this ends.
        for _ in 0..64 {
            let op = self.any(rng, state);
            if (self.allows)(&op) && (may_fail || state.clone().apply(&op).is_ok()) {
                return op;
            }
        }
        Op::Syncfs
    }

    fn any(&self, rng: &mut Rng, state: &State) -> Op {
        // What is there is more telling than what may be.
        let there = |rng: &mut Rng| match state.paths() {
            paths if paths.is_empty() || rng.one_in(8) => rng.pick(&self.files).clone(),
            paths => rng.pick(&paths).clone(),
        };
        let name = |rng: &mut Rng| {
            if rng.one_in(4) {
                rng.pick(&self.dirs).clone()
            } else {
                rng.pick(&self.files).clone()
            }
        };
        if rng.below(100) < self.syncs {
            let path = there(rng);
            return match rng.below(4) {
                0 => Op::Syncfs,
                1 => Op::Fdatasync { path },
                _ => Op::Fsync { path },
            };
        }
        match rng.below(104) {
            100..102 => Op::Mknod {
                path: rng.pick(&self.files).clone(),
                mode: 0o600 + rng.below(64) as u16,
                node: *rng.pick(&NODES),
            },
            102..103 => Op::NoDump {
                path: there(rng),
                on: !rng.one_in(3),
            },
            103..104 => Op::Inherit {
                path: there(rng),
                on: !rng.one_in(3),
            },
            0..12 => Op::Mkdir {
                path: rng.pick(&self.dirs).clone(),
                mode: 0o700 + rng.below(64) as u16,
            },
            12..28 => Op::Create {
                path: rng.pick(&self.files).clone(),
                mode: 0o600 + rng.below(64) as u16,
            },
            28..32 => Op::Symlink {
                path: rng.pick(&self.files).clone(),
                target: "over/there/".repeat(rng.between(1, 20) as usize),
            },
            32..40 => Op::Link {
                from: there(rng),
                to: rng.pick(&self.files).clone(),
            },
            40..50 => Op::Unlink { path: there(rng) },
            50..53 => Op::Rmdir { path: there(rng) },
            53..60 => Op::Rename {
                from: there(rng),
                to: name(rng),
            },
            60..62 => Op::RenameNew {
                from: there(rng),
                to: name(rng),
            },
            62..63 => Op::Whiteout {
                from: there(rng),
                to: name(rng),
            },
            63..64 => Op::Exchange {
                from: there(rng),
                to: there(rng),
            },
            64..65 => Op::Temporary {
                path: rng.pick(&self.files).clone(),
                mode: 0o600 + rng.below(64) as u16,
            },
            65..85 => {
                let path = there(rng);
                let &(offset, len) = rng.pick(&self.writes);
                match state.size_of(&path) {
                    Some(size) if rng.one_in(3) => Op::Write {
                        path,
                        offset: size,
                        len,
                    },
                    _ => Op::Write { path, offset, len },
                }
            }
            85..89 => Op::Truncate {
                path: there(rng),
                size: *rng.pick(&self.sizes),
            },
            89..90 => {
                let path = there(rng);
                let &(offset, len, keeps_space) = rng.pick(&self.zeros);
                Op::Zero {
                    path,
                    offset,
                    len,
                    keeps_space,
                }
            }
            90..92 => {
                let path = there(rng);
                let &(offset, len, keep) = rng.pick(&self.allocations);
                Op::Allocate {
                    path,
                    offset,
                    len,
                    keep,
                }
            }
            92..93 if !self.xattrs.is_empty() => {
                let (name, len) = rng.pick(&self.xattrs).clone();
                let path = there(rng);
                if rng.one_in(3) {
                    Op::RemoveXattr { path, name }
                } else {
                    Op::SetXattr { path, name, len }
                }
            }
            92..94 => Op::Chmod {
                path: there(rng),
                mode: rng.below(512) as u16,
            },
            94..95 => {
                let path = there(rng);
                let &(offset, len, insert) = rng.pick(&self.shifts);
                Op::Shift {
                    path,
                    offset,
                    len,
                    insert,
                }
            }
            95..97 => Op::Chown {
                path: there(rng),
                uid: rng.below(100_000) as u32,
                gid: rng.below(100) as u32,
            },
            _ => Op::Utimens {
                path: there(rng),
                mtime: Time::new(
                    rng.below(1 << 33).cast_signed(),
                    rng.below(1_000_000_000) as u32,
                ),
            },
        }
    }
}
