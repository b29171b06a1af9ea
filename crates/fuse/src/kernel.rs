//! The kernel's side: requests as the `fuser` crate decodes them, answered by the [`Service`].
//!
//! With what converts values for it, the only file that knows `fuser`. What it does not pass on cannot be answered:
//! `O_TMPFILE`, `syncfs`, and birth times in `statx`.
//!
//! Files are neither opened nor closed here (`open` and `flush` are answered with ENOSYS, after which the kernel asks
//! for neither): all that an open file needs is its inode, which the kernel does not forget meanwhile. So making a
//! small file costs a lookup, a `mknod` and a write.

mod convert;
mod sealing;

use crate::metrics::Request as Timing;
use crate::options::Options;
use crate::sandbox::has_walls;
use crate::service::{
    Answer, Asker, Attributes, Changes, Errno, Made, Node, Renaming, Service, Writing,
};
use convert::{FOREVER, attr, kind, nothing, own_attr, stamp, timestamp, ttl};
use fuser::{
    AccessFlags, BackgroundSession, BsdFileFlags, Config, CopyFileRangeFlags, FileAttr, FileHandle,
    Filesystem, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, MountOption,
    Notifier, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, Session, SessionACL, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::{ControlFlow, Deref};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Largest transfer that is asked for: what the kernel allows unless told otherwise.
const LARGEST_TRANSFER: u32 = 1 << 20;
/// Transfers in the background at once.
const BACKGROUND: u16 = 64;

thread_local! {
    /// What a thread reads file data into.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A mount whose requests wait to be answered.
#[derive(Debug)]
pub(crate) struct Channel {
    session: Session<Adapter>,
    service: Late,
}

/// A session with the kernel, in threads of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    session: BackgroundSession,
}

impl Channel {
    /// Mounts.
    ///
    /// # Errors
    /// When the system does not mount, or the kernel speaks no protocol that this knows.
    pub(crate) fn open(image: &Path, point: &Path, options: &Options) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = mount_options(image, options);
        config.acl = match options.allow_other {
            true => SessionACL::All,
            false => SessionACL::Owner,
        };
        config.n_threads = Some(options.thread_count());
        // One for each thread, where threads may open it once their process is confined.
        config.clone_fd = has_walls();
        let service = Late::default();
        let adapter = Adapter {
            service: service.clone(),
            options: options.clone(),
            stateless: false,
            gathers: false,
        };
        let session = Session::new(adapter, point, &config)?;
        Ok(Self { session, service })
    }

    /// Answers from now on.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn serve(self, service: Arc<Service>) -> io::Result<Connection> {
        // Set nowhere else.
        let _ = self.service.0.set(Served {
            service,
            kernel: self.session.notifier(),
        });
        let session = self.session.spawn()?;
        Ok(Connection { session })
    }
}

impl Connection {
    /// Waits until the kernel has given the mount up.
    pub(crate) fn wait(self) -> io::Result<()> {
        self.session.join()
    }
}

fn mount_options(image: &Path, options: &Options) -> Vec<MountOption> {
    let source = image.to_string_lossy();
    let source = match rustix::process::geteuid().is_root() {
        true => source.into_owned(),
        // The helper gets it as an option, which a comma or a backslash would end.
        false => source.replace('\\', "\\\\").replace(',', "\\,"),
    };
    let mut list = vec![
        MountOption::FSName(source),
        MountOption::CUSTOM("subtype=extant".to_owned()),
        MountOption::DefaultPermissions,
    ];
    let flags = [
        (options.read_only, MountOption::RO),
        (options.dev, MountOption::Dev),
        (options.suid, MountOption::Suid),
        (!options.exec, MountOption::NoExec),
        (options.dirsync, MountOption::DirSync),
        (options.sync, MountOption::Sync),
    ];
    list.extend(
        flags
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, flag)| flag),
    );
    list
}

/// Answers what the kernel asks.
#[derive(Debug)]
struct Adapter {
    service: Late,
    options: Options,
    /// The kernel can do without opening files.
    stateless: bool,
    /// The kernel keeps writes back.
    gathers: bool,
}

/// What answers, once there is something to answer with.
#[derive(Clone, Debug, Default)]
struct Late(Arc<OnceLock<Served>>);

#[derive(Debug)]
struct Served {
    service: Arc<Service>,
    /// What the kernel is told without being asked.
    kernel: Notifier,
}

impl Late {
    fn served(&self) -> &Served {
        self.0
            .get()
            .expect("a session is started with what answers")
    }
}

impl Deref for Late {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.served().service
    }
}

impl From<Errno> for fuser::Errno {
    fn from(e: Errno) -> Self {
        Self::from_i32(e.0)
    }
}

fn asker(request: &Request) -> Asker {
    Asker {
        uid: request.uid(),
        gid: request.gid(),
    }
}

fn node(number: INodeNo) -> Node {
    Node(number.0)
}

fn send_entry(answer: Answer<Attributes>, reply: ReplyEntry) {
    match answer {
        Ok(found) => {
            let generation = Generation(found.metadata.generation.into());
            reply.entry(&ttl(&found), &attr(&found), generation);
        }
        Err(e) => reply.error(e.into()),
    }
}

fn send_attr(answer: Answer<Attributes>, reply: ReplyAttr) {
    match answer {
        Ok(found) => reply.attr(&ttl(&found), &own_attr(&found)),
        Err(e) => reply.error(e.into()),
    }
}

fn send_empty(answer: Answer, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e.into()),
    }
}

/// Sends an attribute's value or the list of names, or how long it is.
fn send_xattr(answer: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE.into()),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(e.into()),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        let writeback = InitFlags::FUSE_WRITEBACK_CACHE;
        self.gathers =
            self.options.gathers_writes() && !self.options.read_only && offered.contains(writeback);
        wanted.set(writeback, self.gathers);
        self.stateless =
            offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        // What the kernel does not offer was left out.
        let _ = config.add_capabilities(wanted & offered);
        // What is not allowed stays as it is.
        let _ = config.set_max_write(LARGEST_TRANSFER);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _timed = self.service.time(Timing::Lookup);
        match self
            .service
            .ask(|s| s.lookup(node(parent), name.as_bytes()))
        {
            Ok(Some(found)) => send_entry(Ok(found), reply),
            Ok(None) => {
                let ttl = match self.service.folds_names() {
                    true => Duration::ZERO,
                    false => FOREVER,
                };
                reply.entry(&ttl, &nothing(), Generation(0));
            }
            Err(e) => reply.error(e.into()),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        let _timed = self.service.time(Timing::Forget);
        // There is no answer to this.
        let _ = self.service.ask(|s| {
            s.forget(node(ino), lookups);
            Ok(())
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _timed = self.service.time(Timing::Getattr);
        send_attr(self.service.ask(|s| s.getattr(node(ino))), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _timed = self.service.time(Timing::Setattr);
        let changes = Changes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(stamp),
            mtime: mtime.map(stamp),
            ctime: ctime.map(timestamp),
        };
        let answer = self.service.ask_for(asker(request), |s| {
            s.setattr(asker(request), node(ino), changes)
        });
        send_attr(answer, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let _timed = self.service.time(Timing::Readlink);
        match self.service.ask(|s| s.readlink(node(ino))) {
            Ok(target) => reply.data(&target),
            Err(e) => reply.error(e.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _timed = self.service.time(Timing::Mknod);
        let made = Made {
            mode,
            umask,
            device,
        };
        let name = name.as_bytes();
        let answer = self.service.ask_for(asker(request), |s| {
            s.mknod(asker(request), node(parent), name, made)
        });
        send_entry(answer, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _timed = self.service.time(Timing::Mkdir);
        let made = Made {
            mode,
            umask,
            device: 0,
        };
        let name = name.as_bytes();
        let answer = self.service.ask_for(asker(request), |s| {
            s.mkdir(asker(request), node(parent), name, made)
        });
        send_entry(answer, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _timed = self.service.time(Timing::Unlink);
        send_empty(
            self.service
                .ask(|s| s.unlink(node(parent), name.as_bytes())),
            reply,
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _timed = self.service.time(Timing::Rmdir);
        send_empty(
            self.service.ask(|s| s.rmdir(node(parent), name.as_bytes())),
            reply,
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _timed = self.service.time(Timing::Symlink);
        let target = target.as_os_str().as_bytes();
        let name = name.as_bytes();
        let answer = self.service.ask_for(asker(request), |s| {
            s.symlink(asker(request), node(parent), name, target)
        });
        send_entry(answer, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _timed = self.service.time(Timing::Rename);
        let from = (node(parent), name.as_bytes());
        let to = (node(new_parent), new_name.as_bytes());
        let renamed = Renaming::from_flags(flags.bits()).and_then(|how| {
            self.service
                .ask_for(asker(request), |s| s.rename(from, to, how))
        });
        send_empty(renamed, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _timed = self.service.time(Timing::Link);
        let name = new_name.as_bytes();
        send_entry(
            self.service.ask_for(asker(request), |s| {
                s.link(node(ino), node(new_parent), name)
            }),
            reply,
        );
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.stateless {
            true => reply.error(Errno::NO_SYSCALL.into()),
            false => reply.opened(FileHandle(0), fuser::FopenFlags::FOPEN_KEEP_CACHE),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        // The kernel makes the file with `mknod` and opens it then.
        reply.error(Errno::NO_SYSCALL.into());
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _timed = self.service.time(Timing::Read);
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            // As long as asked for.
            let into = buffer.get_mut(..size).unwrap_or_default();
            match self.service.ask(|s| s.read(node(ino), offset, into)) {
                Ok(read) => reply.data(into.get(..read).unwrap_or_default()),
                Err(e) => reply.error(e.into()),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _timed = self.service.time(Timing::Write);
        let kept_back = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let how = Writing {
            kept_back,
            is_dated: kept_back && self.gathers,
            clear_set_ids: flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        match self
            .service
            .ask(|s| s.write(asker(request), node(ino), offset, data, how))
        {
            // No more than there was, which came with a length of 32 bits.
            Ok(written) => reply.written(u32::try_from(written).unwrap_or(u32::MAX)),
            Err(e) => reply.error(e.into()),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::NO_SYSCALL.into());
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let _timed = self.service.time(Timing::Fsync);
        send_empty(self.service.ask(|s| s.fsync(node(ino), data_only)), reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = fuser::FopenFlags::FOPEN_CACHE_DIR | fuser::FopenFlags::FOPEN_KEEP_CACHE;
        match self.stateless {
            true => reply.error(Errno::NO_SYSCALL.into()),
            false => reply.opened(FileHandle(0), flags),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _timed = self.service.time(Timing::Readdir);
        let mut is_empty = true;
        let listed = self.service.ask(|s| {
            s.readdir(node(ino), offset, |entry| {
                let name = OsStr::from_bytes(entry.name);
                if reply.add(INodeNo(entry.ino), entry.next, kind(entry.file_type), name) {
                    return ControlFlow::Break(());
                }
                is_empty = false;
                ControlFlow::Continue(())
            })
        });
        match listed {
            // What was found before a failure counts; the next call meets it first.
            Err(e) if is_empty => reply.error(e.into()),
            _ => reply.ok(),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _timed = self.service.time(Timing::Readdir);
        let mut is_empty = true;
        let listed = self.service.ask(|s| {
            s.readdir(node(ino), offset, |entry| {
                let name = OsStr::from_bytes(entry.name);
                let is_dots = matches!(entry.name, b"." | b"..");
                let found = self.service.listed(entry.ino).filter(|_| !is_dots);
                let (ttl, generation, attr) = match &found {
                    Some(found) => (ttl(found), found.metadata.generation, attr(found)),
                    // Without a node the kernel shows it, and asks again before it uses it.
                    None => {
                        let attr = FileAttr {
                            kind: kind(entry.file_type),
                            ..nothing()
                        };
                        (Duration::ZERO, 0, attr)
                    }
                };
                let generation = Generation(generation.into());
                if reply.add(
                    INodeNo(entry.ino),
                    entry.next,
                    name,
                    &ttl,
                    &attr,
                    generation,
                ) {
                    return ControlFlow::Break(());
                }
                is_empty = false;
                if found.is_some() {
                    self.service.remember(entry.ino);
                }
                ControlFlow::Continue(())
            })
        });
        match listed {
            // What was found before a failure counts; the next call meets it first.
            Err(e) if is_empty => reply.error(e.into()),
            _ => reply.ok(),
        }
    }

    fn fsyncdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _timed = self.service.time(Timing::Fsync);
        send_empty(
            self.service.ask(|s| s.fsyncdir(node(ino), data_only)),
            reply,
        );
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _timed = self.service.time(Timing::Statfs);
        match self.service.ask(|s| s.statfs(node(ino))) {
            Ok(found) => reply.statfs(
                found.blocks,
                found.free,
                found.available,
                found.inodes,
                found.free_inodes,
                found.block_size.bytes(),
                found.name_len,
                found.block_size.bytes(),
            ),
            Err(e) => reply.error(e.into()),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _timed = self.service.time(Timing::Xattr);
        let name = name.as_bytes();
        send_empty(
            self.service.ask_for(asker(request), |s| {
                s.setxattr(node(ino), name, value, flags)
            }),
            reply,
        );
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _timed = self.service.time(Timing::Xattr);
        let value = self.service.ask(|s| s.getxattr(node(ino), name.as_bytes()));
        send_xattr(value, size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _timed = self.service.time(Timing::Xattr);
        let names = self.service.ask(|s| s.listxattr(asker(request), node(ino)));
        send_xattr(names, size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _timed = self.service.time(Timing::Xattr);
        send_empty(
            self.service.ask_for(asker(request), |s| {
                s.removexattr(node(ino), name.as_bytes())
            }),
            reply,
        );
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions.
        reply.ok();
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        command: u32,
        input: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let asker = asker(request);
        let asked = sealing::Asked::new(asker, ino, command, input);
        match self.gathers && asked.seals() {
            true => asked.answer_when_written(self.service.clone(), reply),
            false => asked.answer(&self.service, reply),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _timed = self.service.time(Timing::Fallocate);
        let answer = self.service.ask_for(asker(request), |s| {
            s.fallocate(asker(request), node(ino), (offset, length), mode)
        });
        send_empty(answer, reply);
    }

    fn lseek(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _timed = self.service.time(Timing::Lseek);
        if self.gathers {
            // It does not ask for data that it keeps back: told that there is no such call, it takes all for data.
            return reply.error(Errno::NO_SYSCALL.into());
        }
        match self.service.ask(|s| s.lseek(node(ino), offset, whence)) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(e) => reply.error(e.into()),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _: FileHandle,
        offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _timed = self.service.time(Timing::CopyRange);
        // The answer has room for 32 bits.
        let len = len.min(1 << 30);
        let (from, to) = ((node(from), offset), (node(to), to_offset));
        match self.service.ask_for(asker(request), |s| {
            s.copy_range(asker(request), from, to, len)
        }) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(e) => reply.error(e.into()),
        }
    }
}
