//! Operations by users under the kernel: each in a thread that is that user.

use super::{Answer, LEN, Op, Open, Seen, value_of};
use extant::{Acl, AclKind, Caller, FileType};
use extant_testkit::mount::KernelMount;
use rustix::fs::{
    self, Access, AtFlags, CWD, FallocateFlags, FileType as Kind, Gid, IFlags, Mode, OFlags,
    RenameFlags, Timespec, Timestamps, UTIME_NOW, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(super) struct Kernel {
    mount: KernelMount,
    umask: u16,
}

impl Kernel {
    pub(super) fn new(mount: KernelMount) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = u16::from_str_radix(umask.unwrap().trim(), 8).unwrap();
        Self { mount, umask }
    }

    /// The umask of this process, which cannot be another for one thread.
    pub(super) fn umask(&self) -> u16 {
        self.umask
    }

    pub(super) fn owner(&self, path: &str) -> Option<u32> {
        let found = std::fs::symlink_metadata(self.mount.join(path));
        found.ok().map(|found| found.uid())
    }

    pub(super) fn kind(&self, path: &str) -> Option<FileType> {
        let kind = std::fs::symlink_metadata(self.mount.join(path))
            .ok()?
            .file_type();
        Some(match kind {
            _ if kind.is_dir() => FileType::Directory,
            _ if kind.is_file() => FileType::Regular,
            _ if kind.is_symlink() => FileType::Symlink,
            _ => FileType::Fifo,
        })
    }

    pub(super) fn run(&self, caller: &Caller, op: &Op) -> Answer {
        let root = self.mount.path();
        std::thread::scope(|scope| {
            let one = scope.spawn(move || {
                become_user(caller);
                run(root, op).map_err(Errno::raw_os_error)
            });
            one.join().expect("the operation ends")
        })
    }

    /// All files, in order of their paths.
    pub(super) fn look(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        look_below(self.mount.path(), Path::new(""), &mut all);
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

fn become_user(caller: &Caller) {
    let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(caller.gid));
    let groups: Vec<Gid> = caller
        .groups
        .iter()
        .map(|&gid| Gid::from_raw(gid))
        .collect();
    rustix::thread::set_thread_groups(&groups).unwrap();
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

fn run(root: &Path, op: &Op) -> Result<String> {
    let at = |path: &str| -> PathBuf { root.join(path) };
    let mode = |bits: u16| Mode::from_raw_mode(bits.into());
    let open = |path: &str, flags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        fs::open(at(path), flags, Mode::empty())
    };
    match op {
        Op::Stat(path) => {
            fs::lstat(at(path))?;
        }
        Op::List(path) => {
            open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        }
        Op::Access(path, wanted) => {
            fs::accessat(
                CWD,
                at(path),
                Access::from_bits_truncate((*wanted).into()),
                AtFlags::empty(),
            )?;
        }
        Op::Open(path, how) => {
            let flags = match how {
                Open::Read => OFlags::RDONLY,
                Open::Write => OFlags::WRONLY,
                Open::Append => OFlags::WRONLY | OFlags::APPEND,
                Open::ReadWrite => OFlags::RDWR,
            };
            open(path, flags)?;
        }
        Op::Create(path, bits) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            fs::open(at(path), flags, mode(*bits))?;
        }
        Op::OpenOrCreate(path, bits, empties) => {
            let mut flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            flags.set(OFlags::TRUNC, *empties);
            fs::open(at(path), flags, mode(*bits))?;
        }
        Op::Unnamed(path, bits) => {
            let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
            fs::open(at(path), flags, mode(*bits))?;
        }
        Op::Mkdir(path, bits) => fs::mkdir(at(path), mode(*bits))?,
        Op::Symlink(path) => fs::symlink("nowhere", at(path))?,
        Op::Mknod(path, file_type, bits) => {
            let kind = match file_type {
                FileType::Fifo => Kind::Fifo,
                FileType::Socket => Kind::Socket,
                FileType::CharDevice => Kind::CharacterDevice,
                FileType::BlockDevice => Kind::BlockDevice,
                _ => Kind::RegularFile,
            };
            fs::mknodat(CWD, at(path), kind, mode(*bits), fs::makedev(1, 3))?;
        }
        Op::Link(from, to) => fs::link(at(from), at(to))?,
        Op::Unlink(path) => fs::unlink(at(path))?,
        Op::Rmdir(path) => fs::rmdir(at(path))?,
        Op::Rename(from, to) => fs::rename(at(from), at(to))?,
        Op::Exchange(from, to) => {
            fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE)?;
        }
        Op::Whiteout(from, to) => {
            fs::renameat_with(CWD, at(from), CWD, at(to), RenameFlags::WHITEOUT)?;
        }
        Op::Chmod(path, bits) => fs::chmod(at(path), mode(*bits))?,
        Op::Chown(path, uid, gid) => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            fs::chownat(CWD, at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Op::SetTimes(path) => set_times(&at(path), 5, 6)?,
        Op::Touch(path) => set_times(&at(path), UTIME_NOW, UTIME_NOW)?,
        Op::Write(path) => {
            rustix::io::write(open(path, OFlags::WRONLY)?, b"more")?;
        }
        Op::Append(path) => {
            let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
            rustix::io::write(file, b"more")?;
        }
        Op::Reserve(path) => reserve(open(path, OFlags::WRONLY)?, FallocateFlags::empty())?,
        Op::PunchHole(path) => {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            reserve(open(path, OFlags::WRONLY)?, how)?;
        }
        Op::MakeZeros(path) => reserve(open(path, OFlags::WRONLY)?, FallocateFlags::ZERO_RANGE)?,
        Op::PutIn(path) => reserve(open(path, OFlags::WRONLY)?, FallocateFlags::INSERT_RANGE)?,
        Op::CopyRange(from, to) => {
            let (from, to) = (open(from, OFlags::RDONLY)?, open(to, OFlags::WRONLY)?);
            let (mut at, mut to_at) = (0, LEN);
            fs::copy_file_range(from, Some(&mut at), to, Some(&mut to_at), LEN as usize)?;
        }
        Op::Truncate(path) => fs::ftruncate(open(path, OFlags::WRONLY)?, 100)?,
        Op::SetXattr(path, name) => {
            fs::lsetxattr(at(path), *name, value_of(name), XattrFlags::empty())?;
        }
        Op::RemoveXattr(path, name) => fs::lremovexattr(at(path), *name)?,
        Op::GetXattr(path, name) => {
            let mut value = [0; 100];
            let len = fs::lgetxattr(at(path), *name, &mut value)?;
            return Ok(format!("{:?}", &value[..len]));
        }
        Op::ListXattrs(path) => return Ok(format!("{:?}", names_of(&at(path))?)),
        Op::SetAcl(path, kind, list) => {
            let name = match kind {
                AclKind::Access => "system.posix_acl_access",
                AclKind::Default => "system.posix_acl_default",
            };
            let Some(list) = list else {
                // What is not there is removed all the same.
                return match fs::removexattr(at(path), name) {
                    Err(Errno::NODATA) => Ok(String::new()),
                    removed => removed.map(|()| String::new()),
                };
            };
            let list = Acl::new(list.clone()).unwrap().encode_syscall();
            fs::setxattr(at(path), name, &list, XattrFlags::empty())?;
        }
        Op::NoDump(path, on) => set_flag(&open(path, OFlags::RDONLY)?, IFlags::NODUMP, *on)?,
        Op::Immutable(path, on) => set_flag(&open(path, OFlags::RDONLY)?, IFlags::IMMUTABLE, *on)?,
        Op::AppendOnly(path, on) => set_flag(&open(path, OFlags::RDONLY)?, IFlags::APPEND, *on)?,
    }
    Ok(String::new())
}

fn reserve(file: OwnedFd, how: FallocateFlags) -> Result<()> {
    fs::fallocate(file, how, 0, LEN)
}

fn set_times(path: &Path, atime: i64, mtime: i64) -> Result<()> {
    let time = |nanos: i64| Timespec {
        tv_sec: 1_000_000,
        tv_nsec: nanos,
    };
    let times = Timestamps {
        last_access: time(atime),
        last_modification: time(mtime),
    };
    fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn set_flag(file: &impl rustix::fd::AsFd, flag: IFlags, on: bool) -> Result<()> {
    let mut flags = fs::ioctl_getflags(file)?;
    flags.set(flag, on);
    fs::ioctl_setflags(file, flags)
}

fn names_of(path: &Path) -> Result<Vec<String>> {
    let mut names = [0_u8; 1000];
    let len = fs::llistxattr(path, &mut names)?;
    let mut names: Vec<String> = names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect();
    names.sort();
    Ok(names)
}

fn look_below(root: &Path, dir: &Path, all: &mut Vec<Seen>) {
    for entry in std::fs::read_dir(root.join(dir)).unwrap() {
        let path = dir.join(entry.unwrap().file_name());
        if path.as_os_str().as_bytes() == b"lost+found" {
            continue;
        }
        let full = root.join(&path);
        let found = std::fs::symlink_metadata(&full).unwrap();
        let xattrs = names_of(&full).unwrap().into_iter().map(|name| {
            let mut value = [0; 1000];
            let len = fs::lgetxattr(&full, name.as_str(), &mut value).unwrap();
            (name, value[..len].to_vec())
        });
        all.push(Seen {
            path: path.to_str().unwrap().to_owned(),
            mode: found.permissions().mode(),
            owners: (found.uid(), found.gid()),
            links: found.nlink(),
            size: found.is_file().then_some(found.len()),
            xattrs: xattrs.collect(),
        });
        if found.is_dir() {
            look_below(root, &path, all);
        }
    }
}
