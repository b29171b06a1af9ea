//! Operations by users through the library.

use super::{Answer, LEN, Op, Open, Seen, value_of};
use extant::{
    Acl, Caller, DeviceNumber, File, FileFlags, FileType, Filesystem, OpenOptions, RenameFlags,
    Result, Timestamp,
};
use rustix::io::Errno;

pub(super) struct Engine {
    fs: Filesystem,
}

impl Engine {
    pub(super) fn new(fs: Filesystem) -> Self {
        Self { fs }
    }

    pub(super) fn close(self) {
        self.fs.close().unwrap();
    }

    pub(super) fn run(&self, caller: &Caller, op: &Op) -> Answer {
        let fs = self.fs.on_behalf_of(caller.clone());
        if let Some(answer) = xattrs(&fs, op) {
            return answer;
        }
        run(&fs, op).map_err(|e| e.errno()).map(|()| String::new())
    }

    /// All files, in order of their paths.
    pub(super) fn look(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        for entry in self.fs.walk("/").unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().to_str().unwrap().trim_start_matches('/');
            if path.is_empty() || path == "lost+found" {
                continue;
            }
            let found = entry.metadata();
            let named =
                |(name, value): (std::ffi::OsString, _)| (name.into_string().unwrap(), value);
            let mut xattrs: Vec<_> = entry.xattrs().unwrap().into_iter().map(named).collect();
            xattrs.sort();
            all.push(Seen {
                path: path.to_owned(),
                mode: found.mode().bits().into(),
                owners: (found.uid(), found.gid()),
                links: found.nlink().into(),
                size: (found.file_type() == FileType::Regular).then(|| found.len()),
                xattrs,
            });
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

/// What has an answer beyond that it was done.
fn xattrs(fs: &Filesystem, op: &Op) -> Option<Answer> {
    Some(match op {
        Op::GetXattr(path, name) => match fs.get_xattr(path, name) {
            Ok(Some(value)) => Ok(format!("{value:?}")),
            Ok(None) => Err(Errno::NODATA.raw_os_error()),
            Err(e) => Err(e.errno()),
        },
        Op::ListXattrs(path) => fs
            .list_xattrs(path)
            .map_err(|e| e.errno())
            .map(|mut names| {
                names.sort();
                format!("{names:?}")
            }),
        _ => return None,
    })
}

fn run(fs: &Filesystem, op: &Op) -> Result<()> {
    match op {
        Op::Stat(path) => fs.symlink_metadata(path).map(drop),
        Op::List(path) => fs.read_dir(path).map(drop),
        Op::Access(path, wanted) => fs.access(path, *wanted),
        Op::Open(path, how) => {
            let mut options = OpenOptions::new();
            match how {
                Open::Read => options.read(true),
                Open::Write => options.write(true),
                Open::Append => options.append(true),
                Open::ReadWrite => options.read(true).write(true),
            };
            options.open(fs, path).map(drop)
        }
        Op::Create(path, mode) => {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(*mode);
            options.open(fs, path).map(drop)
        }
        Op::OpenOrCreate(path, mode, empties) => {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(*empties);
            options.mode(*mode).open(fs, path).map(drop)
        }
        Op::Unnamed(path, mode) => fs.create_unnamed(path, *mode).map(drop),
        Op::Mkdir(path, mode) => fs.create_dir_with(path, *mode),
        Op::Symlink(path) => fs.symlink("nowhere", path),
        Op::Mknod(path, file_type, mode) => {
            let device = DeviceNumber { major: 1, minor: 3 };
            fs.create_special(path, *file_type, device, *mode)
        }
        Op::Link(from, to) => fs.hard_link(from, to),
        Op::Unlink(path) => fs.remove_file(path),
        Op::Rmdir(path) => fs.remove_dir(path),
        Op::Rename(from, to) => fs.rename(from, to),
        Op::Exchange(from, to) => fs.exchange(from, to),
        Op::Whiteout(from, to) => {
            let flags = RenameFlags {
                whiteout: true,
                ..RenameFlags::default()
            };
            fs.rename_with(from, to, flags)
        }
        Op::Chmod(path, mode) => fs.set_permissions(path, *mode),
        Op::Chown(path, uid, gid) => fs.set_owner(path, *uid, *gid),
        Op::SetTimes(path) => {
            let time = Some(Timestamp {
                secs: 1_000_000,
                nanos: 5,
            });
            fs.set_times(path, time, time)
        }
        Op::Touch(path) => fs.touch(path),
        Op::Write(path) => {
            let file = OpenOptions::new().write(true).open(fs, path)?;
            file.write_all_at(b"more", 0)
        }
        Op::Append(path) => {
            let file = OpenOptions::new().append(true).open(fs, path)?;
            file.append(b"more").map(drop)
        }
        Op::Reserve(path) => open_to_write(fs, path)?.allocate(0, LEN),
        Op::PunchHole(path) => open_to_write(fs, path)?.punch_hole(0, LEN),
        Op::MakeZeros(path) => open_to_write(fs, path)?.zero_range(0, LEN),
        Op::PutIn(path) => open_to_write(fs, path)?.insert_range(0, LEN),
        Op::CopyRange(from, to) => {
            let from = OpenOptions::new().read(true).open(fs, from)?;
            let to = open_to_write(fs, to)?;
            from.copy_range(0, &to, LEN, LEN).map(drop)
        }
        Op::Truncate(path) => OpenOptions::new().write(true).open(fs, path)?.set_len(100),
        Op::SetXattr(path, name) => fs.set_xattr(path, name, value_of(name)),
        Op::RemoveXattr(path, name) => fs.remove_xattr(path, name),
        Op::SetAcl(path, kind, list) => {
            let list = list.clone().map(|list| Acl::new(list).unwrap());
            fs.set_acl(path, *kind, list.as_ref())
        }
        Op::NoDump(path, on) => set_flag(fs, path, FileFlags::NO_DUMP, *on),
        Op::Immutable(path, on) => set_flag(fs, path, FileFlags::IMMUTABLE, *on),
        Op::AppendOnly(path, on) => set_flag(fs, path, FileFlags::APPEND, *on),
        Op::GetXattr(..) | Op::ListXattrs(..) => unreachable!("answered above"),
    }
}

fn open_to_write(fs: &Filesystem, path: &str) -> Result<File> {
    OpenOptions::new().write(true).open(fs, path)
}

/// A program that sets a flag opens the file before.
fn set_flag(fs: &Filesystem, path: &str, flag: FileFlags, on: bool) -> Result<()> {
    if fs.symlink_metadata(path)?.is_dir() {
        drop(fs.read_dir(path)?)
    } else {
        drop(OpenOptions::new().read(true).open(fs, path)?)
    }
    if on {
        fs.set_flags(path, flag, FileFlags::empty())
    } else {
        fs.set_flags(path, FileFlags::empty(), flag)
    }
}
