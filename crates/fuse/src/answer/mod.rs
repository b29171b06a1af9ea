//! One request of the kernel, answered by the [`Service`]: taken apart, passed on, and put into the
//! bytes of an answer.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | which request is which call, and all answers of a fixed form |
//! | `listing` | directories |
//! | `sealing` | `ioctl`, and what waits for the kernel to write a file back |
//! | `convert` | the engine's values as the kernel has them, and back |
//!
//! Files are neither opened nor closed here (files without a name excepted; `open` is answered with
//! ENOSYS, after which the kernel asks for neither): all that an open file needs is its inode,
//! which the kernel does not forget meanwhile. So making a small file costs a lookup, a `mknod`, a
//! look for capabilities and a write, and if the kernel checks permissions a look at the directory.
//!
//! Nothing here knows how requests come and answers go.

mod convert;
mod listing;
mod sealing;
#[cfg(test)]
mod tests;

pub(crate) use sealing::seals;

use crate::protocol::{
    AccessIn, AttrOut, CopyRangeIn, CreateIn, EntryOut, FallocateIn, Form, FsyncIn, GetXattrIn,
    LengthOut, LinkIn, LseekIn, LseekOut, Malformed, MkdirIn, MknodIn, Opcode, Open, OpenOut,
    ReadIn, Rename2In, RenameIn, Reply, Request, SetXattrIn, SetattrIn, StatfsOut, Takes, WriteIn,
    WriteOut, access, set, setxattr_flags, split_name, write_flags,
};
use crate::service::{
    Answer, Attributes, Changes, Credentials, Errno, Made, Node, Renaming, Service, Stamp, Writing,
};
use convert::{entry, statx, timestamp, ttl};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// How long words that nodes are forgotten may wait for more of them. Interrupts wait as long at
/// most, and so does the end of the mount.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Length from which a transfer may take as long as waking another thread does not matter.
const LONG_TRANSFER: u32 = 128 << 10;
/// Length from which a file takes long to be cut.
const MUCH: u64 = 64 << 20;
/// What is told of an open file: `FOPEN_DIRECT_IO`, `FOPEN_KEEP_CACHE`, `FOPEN_CACHE_DIR`,
/// `FOPEN_PARALLEL_DIRECT_WRITES`.
const DIRECT_IO: u32 = 1 << 0;
const KEEP_CACHE: u32 = 1 << 1;
const CACHE_DIR: u32 = 1 << 3;
const PARALLEL_WRITES: u32 = 1 << 6;
/// The data only, of `FUSE_FSYNC`.
const DATA_ONLY: u32 = 1;
/// The attribute that is a file's access control list.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The user ID of root.
const SUPERUSER: u32 = 0;
/// The most that is copied by one call, which nothing interrupts.
const MOST_COPIED: u64 = 1 << 30;

/// What was agreed upon with the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// It can do without opening files and directories.
    pub(crate) stateless: bool,
    /// It keeps no data of files that are read and written, which is said whenever one is opened.
    pub(crate) direct_io: bool,
    /// It gathers writes, not only those to mapped memory.
    pub(crate) writeback_cache: bool,
    /// It checks permissions. If not, only the superuser gets in.
    pub(crate) checks: bool,
    /// Others change the file system beside it.
    pub(crate) is_shared: bool,
    /// How it puts its requests.
    pub(crate) form: Form,
}

/// The way to tell the kernel something that it does not ask for.
pub(crate) trait Notify: fmt::Debug + Send + Sync {
    /// Tells that the attributes of an inode have changed in a way that the kernel does not expect.
    fn attributes_changed(&self, node: Node);
}

/// Why a request may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Long {
    /// It moves much data.
    Transfer,
    /// It waits for a commit, or changes much.
    Other,
}

/// Answers requests.
#[derive(Clone, Debug)]
pub(crate) struct Answerer {
    service: Arc<Service>,
    agreed: Agreed,
    notify: Arc<dyn Notify>,
}

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        tracing::error!("a request of the kernel was not what it says it is");
        Self::INVALID
    }
}

fn caller(request: &Request<'_>) -> Credentials {
    Credentials {
        uid: request.header.uid,
        gid: request.header.gid,
    }
}

fn node(request: &Request<'_>) -> Node {
    Node(request.header.node)
}

fn opened(flags: u32) -> OpenOut {
    OpenOut {
        flags,
        ..OpenOut::default()
    }
}

/// Puts a record at the beginning of an answer.
fn put<T: IntoBytes + Immutable>(out: &mut [u8], record: &T) -> Answer<usize> {
    record.write_to_prefix(out).map_err(|_| Errno::IO)?;
    Ok(size_of::<T>())
}

/// Puts bytes there.
fn put_bytes(out: &mut [u8], bytes: &[u8]) -> Answer<usize> {
    let into = out.get_mut(..bytes.len()).ok_or(Errno::IO)?;
    into.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Cuts a length to the 32 bits of an answer.
fn short(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Tells whether a direct write is to be durable when it is answered, and then whether the data
/// only. After one by `O_DIRECT` that a program waits for the kernel asks for that itself, as after
/// all others; after an asynchronous one, and with `direct_io`, it does not.
fn durability(args: &WriteIn) -> Option<bool> {
    let flags = args.flags.cast_signed();
    let is_direct = args.write_flags & write_flags::LOCK_OWNER != 0;
    (is_direct && flags & libc::O_DSYNC != 0).then_some(flags & libc::O_SYNC != libc::O_SYNC)
}

/// Tells whether a transfer is long, or made durable.
fn long_transfer(request: &Request<'_>) -> Option<Long> {
    let size = match request.opcode {
        Some(Opcode::Write) => {
            let args: WriteIn = request.fixed().ok()?;
            if durability(&args).is_some() {
                return Some(Long::Other);
            }
            args.size
        }
        _ => request.fixed::<ReadIn>().ok()?.size,
    };
    (size >= LONG_TRANSFER).then_some(Long::Transfer)
}

/// Tells whether the data only is to be made durable.
fn data_only(request: &Request<'_>) -> Answer<bool> {
    let FsyncIn { flags, .. } = request.fixed()?;
    Ok(flags & DATA_ONLY != 0)
}

/// Makes an answer without a body.
fn done(answered: Answer) -> Answer<usize> {
    answered.map(|()| 0)
}

/// Refuses what is not [open](Open) to the user of a request. Where the kernel checks nothing,
/// nobody asks but the superuser, or the `user` who is taken for the superuser. A process that has
/// that user's ID and acts for another one, as servers of files do, is refused names and rights, as
/// far as it is asked for: what that other user may do is not known here. Content is not asked for
/// by the process that opens a file, so that this is no protection.
fn check(opcode: Opcode, request: &Request<'_>, user: u32) -> Answer {
    if [SUPERUSER, user].contains(&request.header.uid) {
        return Ok(());
    }
    let is_open = match opcode.traits().open {
        Open::ToAll => true,
        Open::ToRoot => false,
        // The kernel sets times of writing in the name of the user that made it do so.
        Open::ByArguments => request.fixed::<SetattrIn>()?.valid & set::BY_OWNERS == 0,
    };
    is_open.then_some(()).ok_or(Errno::ACCESS)
}

impl Answerer {
    pub(crate) fn new(service: Arc<Service>, agreed: Agreed, notify: Arc<dyn Notify>) -> Self {
        Self {
            service,
            agreed,
            notify,
        }
    }

    /// Returns how the kernel puts its requests.
    pub(crate) fn form(&self) -> Form {
        self.agreed.form
    }

    /// Counts a request that came through io_uring.
    pub(crate) fn came_through_ring(&self) {
        self.service.came_through_ring();
    }

    /// Notes that forgotten nodes are read after a [`PAUSE`].
    pub(crate) fn forgets_later(&self) {
        self.service.forgets_later();
    }

    /// Tells whether any request came through io_uring.
    pub(crate) fn uses_rings(&self) -> bool {
        self.service.uses_rings()
    }

    /// Tells whether a request may take so long that others should not wait for it, and why.
    pub(crate) fn may_take_long(&self, request: &Request<'_>) -> Option<Long> {
        match request.opcode?.traits().takes {
            Takes::Short => None,
            Takes::Long => Some(Long::Other),
            Takes::ByLength => long_transfer(request),
            Takes::ByArguments if self.changes_much(request) => Some(Long::Other),
            Takes::ByArguments | Takes::BySync => self.service.syncs().then_some(Long::Other),
        }
    }

    /// Tells whether a request cuts a file that is large, or makes another kind of map of it, or
    /// goes through all groups.
    fn changes_much(&self, request: &Request<'_>) -> bool {
        match request.opcode {
            Some(Opcode::Setattr) => self.cuts_much(request),
            Some(Opcode::Ioctl) => sealing::may_take_long(request),
            _ => false,
        }
    }

    /// Tells whether a request sets the size of a file that is large.
    fn cuts_much(&self, request: &Request<'_>) -> bool {
        let sets_size = |args: SetattrIn| args.valid & set::SIZE != 0;
        let found = |s: &Service| s.getattr(node(request));
        request.fixed().is_ok_and(sets_size)
            && self
                .service
                .inspect(Opcode::Setattr, found)
                .is_ok_and(|found| found.metadata.size >= MUCH)
    }

    /// Tells whether a request is to be answered after the kernel has written the file back, which
    /// needs answers of all others meanwhile.
    pub(crate) fn waits_for_kernel(&self, request: &Request<'_>) -> bool {
        let can_be_sealed = |s: &Service| s.can_be_sealed(node(request));
        // Without gathering writes it keeps those of memory that files are mapped to.
        seals(request) && self.service.inspect(Opcode::Ioctl, can_be_sealed) != Ok(false)
    }

    /// Does what a request asks that gets no answer; `false` for all others.
    pub(crate) fn try_forget(&self, request: &Request<'_>) -> bool {
        let Some(opcode) = request.opcode else {
            return false;
        };
        if opcode.traits().reply != Reply::Never {
            return false;
        }
        let mut nodes = request.forgotten();
        let mut forget = || {
            self.service.admit(opcode, caller(request), || {
                for one in nodes.by_ref() {
                    self.service.forget(Node(one.node), one.lookups);
                }
                Ok(())
            })
        };
        // One that panics does not keep the others.
        while forget() == Err(Errno::IO) {}
        true
    }

    /// Answers a request: returns the bytes of the answer's body, which is at the beginning of
    /// `out`.
    ///
    /// # Errors
    /// The error number that is to be the answer.
    pub(crate) fn answer(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let answered = self.answer_now(request, out);
        if answered == Err(Errno::NO_SPACE)
            && self.may_be_tried_again(request)
            && self.service.has_unread_forgets(2 * PAUSE)
        {
            // What was removed just before is about to leave room.
            std::thread::sleep(2 * PAUSE);
            return self.answer_now(request, out);
        }
        answered
    }

    /// Tells whether a request that found no space has done nothing, so that it may be done once
    /// more: not what is made durable behind the change.
    fn may_be_tried_again(&self, request: &Request<'_>) -> bool {
        let has_done_nothing = request.opcode.is_some_and(|opcode| opcode.traits().repeats);
        has_done_nothing && !self.service.syncs()
    }

    /// Checks and admits a request, once: whatever it does happens inside.
    fn answer_now(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let opcode = request.opcode.ok_or(Errno::NO_SYSCALL)?;
        if !self.agreed.checks {
            check(opcode, request, self.service.owner())?;
        }
        let dispatch = || self.dispatch(opcode, request, out);
        self.service.admit(opcode, caller(request), dispatch)
    }

    fn dispatch(&self, opcode: Opcode, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let service = &self.service;
        let node = node(request);
        match opcode {
            Opcode::Lookup => self.lookup(request, out),
            Opcode::Getattr => put_attr(out, &service.getattr(node)?),
            Opcode::Statx => put(out, &statx(&service.getattr(node)?)),
            Opcode::Setattr => self.setattr(request, out),
            Opcode::Readlink => put_bytes(out, &service.readlink(node)?),
            Opcode::Symlink => self.symlink(request, out),
            Opcode::Mknod => self.mknod(request, out),
            Opcode::Mkdir => self.mkdir(request, out),
            Opcode::Tmpfile => self.tmpfile(request, out),
            Opcode::Unlink => done(service.unlink(node, request.name()?)),
            Opcode::Rmdir => done(service.rmdir(node, request.name()?)),
            Opcode::Rename => {
                let RenameIn { new_parent } = request.fixed()?;
                self.rename(request, Node(new_parent), 0)
            }
            Opcode::Rename2 => {
                let args: Rename2In = request.fixed()?;
                self.rename(request, Node(args.new_parent), args.flags)
            }
            Opcode::Link => self.link(request, out),
            Opcode::Open if self.agreed.stateless && !self.agreed.direct_io => {
                Err(Errno::NO_SYSCALL)
            }
            Opcode::Open => put(out, &self.opened()),
            Opcode::Opendir if self.agreed.stateless => Err(Errno::NO_SYSCALL),
            Opcode::Opendir if self.agreed.is_shared => put(out, &opened(0)),
            Opcode::Opendir => put(out, &opened(KEEP_CACHE | CACHE_DIR)),
            Opcode::Read => self.read(request, out),
            Opcode::Write => self.write(request, out),
            Opcode::Fsync => done(service.fsync(node, data_only(request)?)),
            Opcode::Fsyncdir => done(service.fsyncdir(node, data_only(request)?)),
            Opcode::Readdir => self.readdir(request, out),
            Opcode::Readdirplus => self.readdirplus(request, out),
            Opcode::Statfs => self.statfs(request, out),
            Opcode::Setxattr => self.setxattr(request),
            Opcode::Getxattr => {
                let GetXattrIn { size, .. } = request.fixed()?;
                xattr(&service.getxattr(node, request.name()?)?, size, out)
            }
            Opcode::Listxattr => {
                let GetXattrIn { size, .. } = request.fixed()?;
                xattr(&service.listxattr(caller(request), node)?, size, out)
            }
            Opcode::Removexattr => done(service.removexattr(node, request.name()?)),
            Opcode::Access => self.access(request),
            // Told of files that were made without a name, and with `direct_io` of all: nothing
            // here keeps them open.
            Opcode::Release | Opcode::Releasedir => Ok(0),
            Opcode::Ioctl => self.ioctl(request, out),
            Opcode::Fallocate => self.fallocate(request),
            Opcode::Lseek => self.lseek(request, out),
            Opcode::CopyFileRange => {
                let size = short(self.copy_range(request)?);
                put(out, &WriteOut { size, padding: 0 })
            }
            Opcode::CopyFileRange64 => {
                let len = self.copy_range(request)?;
                put(out, &LengthOut { len })
            }
            Opcode::Syncfs => done(service.syncfs()),
            Opcode::Destroy => {
                service.farewell().wait_closed();
                Ok(0)
            }
            // They get no answer.
            Opcode::Forget | Opcode::BatchForget => Err(Errno::INVALID),
        }
    }

    /// Checks what the superuser may do: all, but start what nobody may start, and write to what is
    /// immutable. Not asked for where the kernel checks.
    fn access(&self, request: &Request<'_>) -> Answer<usize> {
        let AccessIn { mask, .. } = request.fixed()?;
        let found = self.service.access(node(request))?;
        if mask & access::EXECUTE != 0 && !found.executable {
            return Err(Errno::ACCESS);
        }
        if mask & access::WRITE != 0 && found.immutable {
            return Err(Errno::NOT_PERMITTED);
        }
        Ok(0)
    }

    fn lookup(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let name = request.name()?;
        match self.service.lookup(node(request), name)? {
            Some(found) => put(out, &entry(&found)),
            None => put(out, &EntryOut::nothing(self.service.nothing_stays())),
        }
    }

    fn setattr(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: SetattrIn = request.fixed()?;
        let has = |bit| args.valid & bit != 0;
        let stamp = |bit, now, secs, nanos| {
            has(bit).then(|| {
                if has(now) {
                    Stamp::Now
                } else {
                    Stamp::At(timestamp(secs, nanos))
                }
            })
        };
        let changes = Changes {
            mode: has(set::MODE).then_some(args.mode),
            uid: has(set::UID).then_some(args.uid),
            gid: has(set::GID).then_some(args.gid),
            size: has(set::SIZE).then_some(args.size),
            atime: stamp(set::ATIME, set::ATIME_NOW, args.atime, args.atime_nanos),
            mtime: stamp(set::MTIME, set::MTIME_NOW, args.mtime, args.mtime_nanos),
            ctime: has(set::CTIME).then(|| timestamp(args.ctime, args.ctime_nanos)),
        };
        let mut caller = caller(request);
        if !caller.is_known() && !has(set::KILL_SET_IDS) {
            // That much the kernel says of somebody whom it does not name.
            caller.uid = SUPERUSER;
        }
        let found = self.service.setattr(caller, node(request), changes)?;
        put_attr(out, &found)
    }

    fn symlink(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let (name, target) = request.names()?;
        let (target, _) = split_name(target)?;
        let caller = caller(request);
        let made = self.service.symlink(caller, node(request), name, target)?;
        put(out, &entry(&made))
    }

    fn mknod(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: MknodIn = request.fixed()?;
        let name = request.name()?;
        let made = Made {
            mode: args.mode,
            umask: args.umask,
            device: args.device,
        };
        let caller = caller(request);
        let made = self.service.mknod(caller, node(request), name, made)?;
        put(out, &entry(&made))
    }

    fn mkdir(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: MkdirIn = request.fixed()?;
        let name = request.name()?;
        let made = Made {
            mode: args.mode,
            umask: args.umask,
            device: 0,
        };
        let caller = caller(request);
        let made = self.service.mkdir(caller, node(request), name, made)?;
        put(out, &entry(&made))
    }

    fn tmpfile(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: CreateIn = request.fixed()?;
        let made = Made {
            mode: args.mode,
            umask: args.umask,
            device: 0,
        };
        let caller = caller(request);
        let made = self.service.tmpfile(caller, node(request), made)?;
        let len = put(out, &entry(&made))?;
        Ok(len + put(out.get_mut(len..).ok_or(Errno::IO)?, &self.opened())?)
    }

    fn rename(&self, request: &Request<'_>, new_parent: Node, flags: u32) -> Answer<usize> {
        let (name, rest) = request.names()?;
        let (new_name, _) = split_name(rest)?;
        let how = Renaming::from_flags(flags)?;
        let (from, to) = ((node(request), name), (new_parent, new_name));
        self.service.rename(from, to, how)?;
        Ok(0)
    }

    fn link(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let LinkIn { target } = request.fixed()?;
        let name = request.name()?;
        let linked = self.service.link(Node(target), node(request), name)?;
        put(out, &entry(&linked))
    }

    /// Makes the answer about a file that was opened.
    fn opened(&self) -> OpenOut {
        opened(if self.agreed.direct_io {
            DIRECT_IO | PARALLEL_WRITES
        } else if self.agreed.is_shared {
            // What the kernel has of it may be older than what another guest wrote.
            0
        } else {
            KEEP_CACHE
        })
    }

    fn read(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: ReadIn = request.fixed()?;
        let into = out.get_mut(..args.size as usize).ok_or(Errno::INVALID)?;
        self.service.read(node(request), args.offset, into)
    }

    fn write(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let args: WriteIn = request.fixed()?;
        let data = request.rest().get(..args.size as usize);
        let data = data.ok_or(Malformed)?;
        let from_cache = args.write_flags & write_flags::CACHE != 0;
        let how = Writing {
            from_cache,
            is_dated: from_cache && self.agreed.writeback_cache,
            clear_set_ids: args.write_flags & write_flags::KILL_SET_IDS != 0,
        };
        let caller = caller(request);
        let written = self
            .service
            .write(caller, node(request), args.offset, data, how)?;
        if let Some(data_only) = durability(&args) {
            self.service.fsync(node(request), data_only)?;
        }
        // No more than there was, which came with a length of 32 bits.
        let size = short(written as u64);
        put(out, &WriteOut { size, padding: 0 })
    }

    fn statfs(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let found = self.service.statfs(node(request))?;
        let answer = StatfsOut {
            blocks: found.blocks,
            free: found.free,
            available: found.available,
            inodes: found.inodes,
            free_inodes: found.free_inodes,
            block_size: found.block_size.bytes(),
            name_len: found.name_len,
            fragment_size: found.block_size.bytes(),
            ..StatfsOut::default()
        };
        put(out, &answer)
    }

    fn setxattr(&self, request: &Request<'_>) -> Answer<usize> {
        let args: SetXattrIn = request.fixed()?;
        let (name, value) = request.names()?;
        let value = value.get(..args.size as usize).ok_or(Malformed)?;
        // The kernel checks groups only where it checks at all.
        let flags = request.setxattr_extension().flags;
        // The kernel sets the flag for default lists as well, which say nothing of the mode.
        let from_outside = name == ACCESS_LIST && flags & setxattr_flags::KILL_SET_GID != 0;
        if from_outside {
            self.service
                .set_access_list_from_outside(node(request), value)?;
        } else {
            self.service
                .setxattr(node(request), name, value, args.flags)?;
        }
        if !self.agreed.checks && name == ACCESS_LIST {
            // It says the mode, too, which a kernel that does not check takes no notice of.
            self.notify.attributes_changed(node(request));
        }
        Ok(0)
    }

    fn fallocate(&self, request: &Request<'_>) -> Answer<usize> {
        let args: FallocateIn = request.fixed()?;
        let range = (args.offset, args.len);
        let caller = caller(request);
        self.service
            .fallocate(caller, node(request), range, args.mode)?;
        Ok(0)
    }

    fn lseek(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        if self.agreed.writeback_cache || !self.service.tells_holes() {
            // It does not ask for data that it keeps back, of mapped memory if it gathers none:
            // told that there is no such call, it takes all for data.
            return Err(Errno::NO_SYSCALL);
        }
        let args: LseekIn = request.fixed()?;
        let offset = self
            .service
            .lseek(node(request), args.offset, args.whence)?;
        put(out, &LseekOut { offset })
    }

    fn copy_range(&self, request: &Request<'_>) -> Answer<u64> {
        let args: CopyRangeIn = request.fixed()?;
        let (from, to) = (
            (node(request), args.offset),
            (Node(args.to), args.to_offset),
        );
        let caller = caller(request);
        self.service
            .copy_range(caller, from, to, args.len.min(MOST_COPIED))
    }
}

fn put_attr(out: &mut [u8], found: &Attributes) -> Answer<usize> {
    let stays = ttl(found);
    let answer = AttrOut {
        attr_secs: stays.as_secs(),
        attr_nanos: stays.subsec_nanos(),
        unused: 0,
        attr: convert::own_attr(found),
    };
    put(out, &answer)
}

/// Answers with an attribute's value or the list of names, or, where `size` is 0, with its length
/// in bytes.
fn xattr(value: &[u8], size: u32, out: &mut [u8]) -> Answer<usize> {
    match size {
        0 => {
            let size = short(value.len() as u64);
            // The kernel reads the first 32 bits, and pads.
            put(out, &WriteOut { size, padding: 0 })
        }
        _ if value.len() > size as usize => Err(Errno::RANGE),
        _ => put_bytes(out, value),
    }
}
