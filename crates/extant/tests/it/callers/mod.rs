//! Permissions: the same operations by the same users under the kernel and here end in the same
//! way.

mod engine;
mod kernel;
mod rules;

use crate::support::Blank;
use engine::Engine;
use extant::{AclEntry, AclKind, AclWho, Caller, FileType};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use kernel::Kernel;

/// What a user may ask for, by paths below the root.
#[derive(Clone, Debug)]
enum Op {
    Stat(String),
    List(String),
    Access(String, u8),
    Open(String, Open),
    Create(String, u16),
    /// What is there is opened, and emptied if so.
    OpenOrCreate(String, u16, bool),
    Unnamed(String, u16),
    Mkdir(String, u16),
    Symlink(String),
    Mknod(String, FileType, u16),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String),
    Exchange(String, String),
    Whiteout(String, String),
    Chmod(String, u16),
    Chown(String, Option<u32>, Option<u32>),
    SetTimes(String),
    Touch(String),
    Write(String),
    Append(String),
    Truncate(String),
    Reserve(String),
    PunchHole(String),
    MakeZeros(String),
    PutIn(String),
    CopyRange(String, String),
    SetXattr(String, &'static str),
    RemoveXattr(String, &'static str),
    GetXattr(String, &'static str),
    ListXattrs(String),
    SetAcl(String, AclKind, Option<Vec<AclEntry>>),
    NoDump(String, bool),
    Immutable(String, bool),
    AppendOnly(String, bool),
}

#[derive(Clone, Copy, Debug)]
enum Open {
    Read,
    Write,
    Append,
    ReadWrite,
}

/// How much space operations reserve, empty or copy, and from where on: a block.
const LEN: u64 = 4096;

/// What an operation says: nothing, or what was found.
type Answer = Result<String, i32>;

/// What users see of a file.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: String,
    mode: u32,
    owners: (u32, u32),
    links: u64,
    /// Of regular files.
    size: Option<u64>,
    xattrs: Vec<(String, Vec<u8>)>,
}

impl Seen {
    fn line(&self) -> String {
        let (uid, gid) = self.owners;
        let xattrs: Vec<&str> = self.xattrs.iter().map(|(name, _)| name.as_str()).collect();
        format!("{:06o} {uid} {gid} {} {xattrs:?}", self.mode, self.path)
    }
}

const XATTRS: [&str; 5] = [
    "user.note",
    "trusted.note",
    "security.note",
    "security.capability",
    "user.other",
];

/// A value the kernel takes for the capabilities of a program.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

fn value_of(name: &str) -> &'static [u8] {
    match name {
        "security.capability" => &CAPABILITY,
        _ => b"value",
    }
}

fn callers(umask: u16) -> Vec<Caller> {
    [
        Caller::new(0, 0),
        Caller::new(1001, 1001),
        Caller::new(1001, 1001).groups([2001]),
        Caller::new(1002, 2001),
        Caller::new(1003, 1003).groups([2002, 2001]),
    ]
    .map(|caller| caller.umask(umask))
    .to_vec()
}

/// One file system under the kernel, an equal one here.
struct Both {
    kernel: Kernel,
    engine: Engine,
    image: Blank,
}

impl Both {
    fn new() -> Self {
        let image = Blank::new(16);
        let copy = image.path().with_extension("kernel");
        std::fs::copy(image.path(), &copy).unwrap();
        let mount = KernelMount::mount(&copy, Mode::ReadWrite, "");
        Self {
            kernel: Kernel::new(mount),
            engine: Engine::new(image.open_writable()),
            image,
        }
    }

    fn compare(&mut self, caller: &Caller, op: &Op) -> bool {
        let expected = self.kernel.run(caller, op);
        let found = self.engine.run(caller, op);
        if found != expected {
            let there: Vec<_> = self.kernel.look().iter().map(Seen::line).collect();
            let there = there.join("\n");
            panic!("{op:?} by {caller:?}: {found:?}, under the kernel {expected:?}\n{there}");
        }
        expected.is_ok()
    }

    fn assert_same(&self) {
        let (kernel, engine) = (self.kernel.look(), self.engine.look());
        for (found, expected) in engine.iter().zip(&kernel) {
            assert_eq!(found, expected);
        }
        assert_eq!(engine.len(), kernel.len());
    }

    fn finish(self) {
        self.assert_same();
        self.engine.close();
        self.image.check();
    }
}

fn pick_path(rng: &mut Rng) -> String {
    let mut path = format!("d{}", rng.below(4));
    if rng.one_in(10) {
        path = format!("{path}/n{}/../../d{}", rng.below(5), rng.below(4));
    }
    for (letter, names) in [("n", 5), ("m", 3)] {
        if rng.one_in(4) {
            break;
        }
        path.push_str(&format!("/{letter}{}", rng.below(names)));
    }
    path
}

fn pick_mode(rng: &mut Rng) -> u16 {
    let special = *rng.pick(&[0, 0, 0, 0o1000, 0o2000, 0o4000, 0o6000, 0o7000]);
    let permissions = *rng.pick(&[
        0o777, 0o777, 0o755, 0o775, 0o770, 0o700, 0o711, 0o733, 0o666, 0o644, 0o070, 0o007, 0o555,
        0o000,
    ]);
    special | permissions
}

fn pick_list(rng: &mut Rng) -> Vec<AclEntry> {
    let mut entry = |who| AclEntry {
        who,
        permissions: *rng.pick(&[0, 1, 4, 5, 6, 7, 7]),
    };
    vec![
        entry(AclWho::Owner),
        entry(AclWho::User(1002)),
        entry(AclWho::Group),
        entry(AclWho::NamedGroup(2001)),
        entry(AclWho::Mask),
        entry(AclWho::Other),
    ]
}

fn pick_op(rng: &mut Rng) -> Op {
    let path = pick_path(rng);
    let flag = rng.one_in(3);
    let xattr = *rng.pick(&XATTRS);
    let ids = [None, Some(0), Some(1001), Some(1002)];
    let gids = [None, Some(1001), Some(1003), Some(2001), Some(2002)];
    match rng.below(72) {
        0..=1 => Op::Stat(path),
        2..=3 => Op::List(path),
        4..=6 => Op::Access(path, rng.between(1, 7) as u8),
        7..=9 => {
            let how = [Open::Read, Open::Write, Open::Append, Open::ReadWrite];
            Op::Open(path, *rng.pick(&how))
        }
        10..=14 => Op::Create(path, pick_mode(rng)),
        15..=19 => Op::Mkdir(path, pick_mode(rng)),
        20 => Op::Symlink(path),
        21 => {
            let kinds = [
                FileType::Fifo,
                FileType::Socket,
                FileType::Regular,
                FileType::CharDevice,
                FileType::BlockDevice,
            ];
            Op::Mknod(path, *rng.pick(&kinds), pick_mode(rng))
        }
        22..=23 => Op::Link(path, pick_path(rng)),
        24..=26 => Op::Unlink(path),
        27..=28 => Op::Rmdir(path),
        29..=31 => Op::Rename(path, pick_path(rng)),
        32 => Op::Exchange(path, pick_path(rng)),
        33 => Op::Whiteout(path, pick_path(rng)),
        34..=38 => Op::Chmod(path, pick_mode(rng)),
        39..=42 => Op::Chown(path, *rng.pick(&ids), *rng.pick(&gids)),
        43 => Op::SetTimes(path),
        44 => Op::Touch(path),
        45..=46 => Op::Write(path),
        47..=48 => Op::Truncate(path),
        49..=51 => Op::SetXattr(path, xattr),
        52 => Op::RemoveXattr(path, xattr),
        53 => Op::GetXattr(path, xattr),
        54 => Op::ListXattrs(path),
        55..=56 => {
            let kind = *rng.pick(&[AclKind::Access, AclKind::Default]);
            Op::SetAcl(path, kind, (!flag).then(|| pick_list(rng)))
        }
        57 => Op::NoDump(path, !flag),
        58 => Op::Immutable(path, flag),
        59 => Op::AppendOnly(path, flag),
        60..=63 => Op::OpenOrCreate(path, pick_mode(rng), flag),
        64 => Op::Unnamed(path, pick_mode(rng)),
        65..=66 => Op::Append(path),
        67 => Op::Reserve(path),
        68 => Op::PunchHole(path),
        69 => Op::MakeZeros(path),
        70 => Op::PutIn(path),
        _ => Op::CopyRange(path, pick_path(rng)),
    }
}

/// Whether something else than the file system answers under the kernel: a device, or policy of the
/// system, by which links are not made to files of others, nor symbolic links of others followed.
fn is_not_ours(kernel: &Kernel, caller: &Caller, op: &Op) -> bool {
    match op {
        Op::Link(from, _) => {
            caller.uid != 0 && kernel.owner(from).is_some_and(|uid| uid != caller.uid)
        }
        Op::Open(path, Open::Read) => !matches!(kernel.kind(path), None | Some(FileType::Regular)),
        Op::OpenOrCreate(path, ..) => {
            let known = [None, Some(FileType::Regular), Some(FileType::Directory)];
            let others = kernel.owner(path).is_some_and(|uid| uid != caller.uid);
            others || !known.contains(&kernel.kind(path))
        }
        // Directories are opened with other calls here.
        Op::CopyRange(from, to) => [from, to].into_iter().any(|path| {
            let known = [None, Some(FileType::Regular)];
            !known.contains(&kernel.kind(path))
        }),
        Op::Open(path, _)
        | Op::Append(path)
        | Op::Reserve(path)
        | Op::PunchHole(path)
        | Op::MakeZeros(path)
        | Op::PutIn(path)
        | Op::Unnamed(path, _)
        | Op::Write(path)
        | Op::Truncate(path)
        | Op::List(path)
        | Op::Chmod(path, _)
        | Op::Access(path, _)
        | Op::SetAcl(path, ..)
        | Op::NoDump(path, _)
        | Op::Immutable(path, _)
        | Op::AppendOnly(path, _) => {
            let known = [None, Some(FileType::Regular), Some(FileType::Directory)];
            !known.contains(&kernel.kind(path))
        }
        _ => false,
    }
}

#[test]
fn random_operations_by_several_users_end_as_under_the_kernel() {
    require!(KernelExt4);
    let seed = seed_from_env("callers");
    let rng = &mut Rng::new(seed);
    let mut both = Both::new();
    let callers = callers(both.kernel.umask());
    let root = &callers[0];
    for i in 0..4 {
        assert!(both.compare(root, &Op::Mkdir(format!("d{i}"), 0o777)));
        let mode = *rng.pick(&[0o777, 0o1777, 0o2777, 0o3777]);
        assert!(both.compare(root, &Op::Chmod(format!("d{i}"), mode)));
    }
    for step in 0..1500 {
        let caller = rng.pick(&callers).clone();
        let op = pick_op(rng);
        if is_not_ours(&both.kernel, &caller, &op) {
            continue;
        }
        both.compare(&caller, &op);
        // What everybody is shut out of teaches nothing.
        if step % 50 == 0 {
            let top = format!("d{}", rng.below(4));
            let repairs = [
                Op::Immutable(top.clone(), false),
                Op::AppendOnly(top.clone(), false),
                Op::Unlink(top.clone()),
                Op::Mkdir(top.clone(), 0o777),
                Op::Chown(top.clone(), Some(1001), Some(2001)),
                Op::Chmod(top, 0o777),
            ];
            for op in &repairs {
                if !is_not_ours(&both.kernel, root, op) {
                    both.compare(root, op);
                }
            }
            both.assert_same();
        }
    }
    both.finish();
}

/// What a user may do in a directory of his own. Each of these is done, so that what others are
/// refused is not refused to all.
#[test]
fn every_operation_is_done_by_who_may() {
    require!(KernelExt4);
    let mut both = Both::new();
    let root = Caller::new(0, 0).umask(both.kernel.umask());
    let user = Caller::new(1001, 1001).umask(both.kernel.umask());
    assert!(both.compare(&root, &Op::Mkdir("d".to_owned(), 0o755)));
    assert!(both.compare(&root, &Op::Chown("d".to_owned(), Some(1001), Some(1001))));
    let path = |name: &str| format!("d/{name}");
    let (file, other, dir) = (path("file"), path("other"), path("dir"));
    let list = vec![
        (AclWho::Owner, 7),
        (AclWho::User(1002), 5),
        (AclWho::Group, 5),
        (AclWho::Mask, 7),
        (AclWho::Other, 0),
    ];
    let list = list
        .into_iter()
        .map(|(who, permissions)| AclEntry { who, permissions })
        .collect();
    let steps = [
        Op::Create(file.clone(), 0o755),
        Op::OpenOrCreate(other.clone(), 0o644, false),
        Op::Mkdir(dir.clone(), 0o755),
        Op::Stat(path("dir/../file")),
        Op::List(dir.clone()),
        Op::Access(file.clone(), 7),
        Op::Write(file.clone()),
        Op::Append(file.clone()),
        Op::Open(file.clone(), Open::ReadWrite),
        Op::CopyRange(file.clone(), other.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::Reserve(file.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::PunchHole(file.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::MakeZeros(file.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::PutIn(file.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::Truncate(file.clone()),
        Op::Chmod(file.clone(), 0o6755),
        Op::OpenOrCreate(file.clone(), 0, true),
        // Now it is empty, which makes no difference.
        Op::Chmod(file.clone(), 0o6755),
        Op::OpenOrCreate(file.clone(), 0, true),
        Op::Unnamed(dir.clone(), 0o600),
        Op::SetTimes(file.clone()),
        Op::Touch(file.clone()),
        Op::Chown(file.clone(), None, Some(1001)),
        Op::SetXattr(file.clone(), "user.note"),
        Op::GetXattr(file.clone(), "user.note"),
        Op::ListXattrs(file.clone()),
        Op::RemoveXattr(file.clone(), "user.note"),
        Op::SetAcl(file.clone(), AclKind::Access, Some(list)),
        Op::NoDump(file.clone(), true),
        Op::Symlink(path("symlink")),
        Op::Mknod(path("pipe"), FileType::Fifo, 0o644),
        Op::Link(file.clone(), path("link")),
        Op::Rename(file, path("moved")),
        Op::Exchange(path("moved"), other.clone()),
        Op::Whiteout(other, path("away")),
        Op::Unlink(path("link")),
        Op::Rmdir(dir),
    ];
    for op in &steps {
        assert!(both.compare(&user, op), "{op:?}");
        both.assert_same();
    }
    both.finish();
}
