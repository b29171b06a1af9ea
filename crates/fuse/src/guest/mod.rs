//! Guests of virtual machines, whose requests come by other ways than the kernel of this machine.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the guests of one file system, and how a request of one is answered |
//! | `init` | what is agreed upon with a guest |
//!
//! How requests come and answers go is not known here: they are bytes, as they are read from and
//! written to `/dev/fuse`. Nothing that a guest says is believed: see `service::guest`.

mod init;
#[cfg(test)]
mod tests;

use crate::answer::{Answerer, Notify};
use crate::error::MountError;
use crate::memory::{GiveBack, Giving, Pressure};
use crate::nodes::Nodes;
use crate::options::Options;
use crate::protocol::{
    Form, IN_HEADER, InHeader, OUT_HEADER, Opcode, OutHeader, ReadIn, Reply, Request,
};
use crate::service::{Errno, Node, Service, Shared};
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_format::Ino;
use extant_sync::{LockClass, Mutex, Rank};
use init::Wishes;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

static ANSWERERS: LockClass = LockClass::new("fuse guest", Rank::Leaf);

/// `FUSE_INIT` and `FUSE_DESTROY`: how a guest begins and ends to use the file system.
const INIT: u32 = 26;
const DESTROY: u32 = 38;

/// Bytes of a request before what it carries: the header, and the longest fixed part.
const HEAD: usize = IN_HEADER + 128;

/// A file system that guests of virtual machines use.
#[derive(Debug)]
pub struct Guests {
    fs: Arc<Fs>,
    options: Options,
    nodes: Arc<Nodes>,
    shared: Option<Arc<Shared>>,
    _giving: Giving,
}

/// One guest. Drop it when no request of it is under way any more and [`Guest::end`] was called.
#[derive(Debug)]
pub struct Guest {
    service: Arc<Service>,
    wishes: Wishes,
    answerer: Mutex<Option<Answerer>>,
}

/// How a request is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Treatment {
    /// What answers it.
    pub kind: RequestKind,
    /// It may take so long that others should not wait for it.
    pub takes_long: bool,
}

/// What answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// [`Guest::answer`], and there is no answer.
    Unanswered,
    /// [`Guest::answer`].
    Plain,
    /// [`Guest::answer`] or [`Guest::write`]. It carries `len` bytes of data for a file behind
    /// `begin` bytes.
    Write {
        /// Bytes before the data.
        begin: usize,
        /// Bytes of data.
        len: usize,
    },
    /// [`Guest::read`], piece by piece.
    Read {
        /// Bytes that are asked for.
        len: usize,
    },
}

/// The way to tell a guest something that it does not ask for: there is none.
#[derive(Debug)]
struct Untold;

impl Notify for Untold {
    fn attributes_changed(&self, _: Node) {}
}

impl Guests {
    /// Lets guests use `fs`: one at a time, or several, which see what the others change.
    /// `give_back` has free memory of the process given back to the system.
    ///
    /// # Errors
    /// [`MountError::Root`] when there is no root directory that can be read;
    /// [`MountError::Session`] when the system has no thread.
    pub fn new(
        fs: Arc<Fs>,
        options: &Options,
        several: bool,
        give_back: Option<GiveBack>,
        pressure: MemoryPressure,
    ) -> Result<Self, MountError> {
        match fs.with_inode(Ino::ROOT, Inode::is_dir) {
            Ok(true) => {}
            Ok(false) => return Err(MountError::Root("it is no directory".to_owned())),
            Err(e) => return Err(MountError::Root(e.to_string())),
        }
        let giving = Giving::start(&fs, pressure.0, give_back).map_err(MountError::Session)?;
        Ok(Self {
            fs,
            options: options.clone(),
            nodes: Arc::new(Nodes::new()),
            shared: several.then(|| Arc::new(Shared::new())),
            _giving: giving,
        })
    }

    /// Begins with one more guest.
    #[must_use]
    pub fn join(&self) -> Guest {
        let (fs, nodes) = (Arc::clone(&self.fs), Arc::clone(&self.nodes));
        let service = Service::for_guest(fs, &self.options, nodes, self.shared.clone());
        let writeback = self.options.uses_writeback_cache() && !self.options.read_only;
        Guest {
            service: Arc::new(service),
            wishes: Wishes {
                is_shared: self.shared.is_some(),
                // One would not see what the others keep back.
                writeback_cache: writeback && self.shared.is_none(),
                direct_io: self.options.direct_io,
            },
            answerer: Mutex::new(&ANSWERERS, None),
        }
    }
}

/// What tells how short of memory the system is. Opened before a process is confined.
#[derive(Debug, Default)]
pub struct MemoryPressure(Pressure);

impl MemoryPressure {
    /// Opens it; nothing where the kernel does not say.
    #[must_use]
    pub fn open() -> Self {
        Self(Pressure::open())
    }
}

/// Why a request is refused: an error number of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(Errno);

impl Refused {
    /// What was said makes no sense.
    pub const INVALID: Self = Self(Errno::INVALID);
}

/// Puts the header of an answer before `len` bytes, and returns the length of both.
fn put_header(out: &mut [u8], unique: u64, answered: Result<usize, Errno>) -> usize {
    let (len, error) = match answered {
        Ok(len) => (len, 0),
        Err(Errno(number)) => (0, -number),
    };
    let len = OUT_HEADER + len;
    let header = OutHeader {
        len: u32::try_from(len).unwrap_or(u32::MAX),
        error,
        unique,
    };
    match header.write_to_prefix(out) {
        Ok(()) => len,
        Err(_) => 0,
    }
}

impl Guest {
    /// Bytes of the header of an answer.
    pub const ANSWER_HEADER: usize = OUT_HEADER;
    /// Bytes of a request that [`Guest::treatment`] looks at, if there are so many.
    pub const REQUEST_HEAD: usize = HEAD;
    /// The longest request and the longest answer, in bytes: a transfer, and what comes before it.
    pub const LONGEST: usize = crate::kernel::LARGEST_TRANSFER as usize + 4096;

    fn answerer(&self) -> Option<Answerer> {
        self.answerer.lock().clone()
    }

    /// Says how a request that begins with `head` is to be answered; `None` for what has no header.
    #[must_use]
    pub fn treatment(&self, head: &[u8]) -> Option<Treatment> {
        let header = InHeader::read_from_prefix(head).ok()?.0;
        let answerer = self.answerer();
        let form = answerer.as_ref().map_or(Form::default(), Answerer::form);
        let body = head.get(IN_HEADER..).unwrap_or_default();
        let request = Request::from_parts(header, body, &[], form);
        let kind = match request.opcode {
            Some(Opcode::Read) => match request.fixed::<ReadIn>() {
                Ok(args) => RequestKind::Read {
                    len: args.size as usize,
                },
                Err(_) => RequestKind::Plain,
            },
            Some(Opcode::Write) => {
                let begin = IN_HEADER + size_of::<crate::protocol::WriteIn>();
                RequestKind::Write {
                    begin,
                    len: (header.len as usize).saturating_sub(begin),
                }
            }
            Some(opcode) if opcode.traits().reply == Reply::Never => RequestKind::Unanswered,
            _ => RequestKind::Plain,
        };
        let may_take_long = |answerer: &Answerer| answerer.may_take_long(&request).is_some();
        Some(Treatment {
            kind,
            takes_long: header.opcode == DESTROY || answerer.as_ref().is_some_and(may_take_long),
        })
    }

    /// Answers a whole request. Returns the length of the answer, which is at the beginning of
    /// `out`; 0 if there is none, or no room for its header.
    #[must_use]
    pub fn answer(&self, request: &[u8], out: &mut [u8]) -> usize {
        self.answer_parts(request, &[], out)
    }

    /// Answers a request to write, of which what comes before the data is in `head`, and the data
    /// in `data`.
    #[must_use]
    pub fn write(&self, head: &[u8], data: &[u8], out: &mut [u8]) -> usize {
        self.answer_parts(head, data, out)
    }

    fn answer_parts(&self, before: &[u8], data: &[u8], out: &mut [u8]) -> usize {
        let Ok((header, body)) = InHeader::read_from_prefix(before) else {
            return 0;
        };
        let unique = header.unique;
        if header.len as usize != before.len() + data.len() {
            return put_header(out, unique, Err(Errno::INVALID));
        }
        match header.opcode {
            INIT => return self.begin(unique, body, out),
            DESTROY => return put_header(out, unique, self.leave().map(|()| 0)),
            _ => {}
        }
        // Before it has begun it knows nothing.
        let Some(answerer) = self.answerer() else {
            return put_header(out, unique, Err(Errno::IO));
        };
        let request = if data.is_empty() {
            match Request::parse(before, answerer.form()) {
                Ok(request) => request,
                Err(_) => return put_header(out, unique, Err(Errno::INVALID)),
            }
        } else {
            Request::from_parts(header, body, data, answerer.form())
        };
        if answerer.try_forget(&request) {
            return 0;
        }
        let Some((_, room)) = out.split_at_mut_checked(OUT_HEADER) else {
            return 0;
        };
        let answered = answerer.answer(&request, room);
        put_header(out, unique, answered)
    }

    /// Carries out a part of a request to read: what follows its first `done` bytes goes to `into`.
    /// Returns how much that was, which is less than there is room for at the end of the file only.
    ///
    /// # Errors
    /// Those of reading.
    pub fn read(&self, request: &[u8], done: usize, into: &mut [u8]) -> Result<usize, Refused> {
        let answerer = self.answerer().ok_or(Refused(Errno::IO))?;
        let invalid = |_| Refused(Errno::INVALID);
        let (header, body) =
            InHeader::read_from_prefix(request).map_err(|_| Refused(Errno::INVALID))?;
        let (mut args, _) = ReadIn::read_from_prefix(body).map_err(|_| Refused(Errno::INVALID))?;
        let left = (args.size as usize).saturating_sub(done);
        let len = into.len().min(left);
        args.size = u32::try_from(len).map_err(invalid)?;
        args.offset = args.offset.saturating_add(done as u64);
        let into = into.get_mut(..len).unwrap_or_default();
        let part = Request::from_parts(header, args.as_bytes(), &[], answerer.form());
        answerer.answer(&part, into).map_err(Refused)
    }

    /// Makes the header of the answer to a request, behind which as many bytes follow.
    #[must_use]
    pub fn header(request: &[u8], answered: Result<usize, Refused>) -> [u8; OUT_HEADER] {
        let mut bytes = [0; OUT_HEADER];
        if let Ok((header, _)) = InHeader::read_from_prefix(request) {
            put_header(&mut bytes, header.unique, answered.map_err(|Refused(e)| e));
        }
        bytes
    }

    /// Begins anew: a guest that was started again knows nothing of before.
    fn begin(&self, unique: u64, body: &[u8], out: &mut [u8]) -> usize {
        let Some((answer, agreed)) = init::agree(body, self.wishes) else {
            return put_header(out, unique, Err(Errno::INVALID));
        };
        self.service.forget_all();
        let notify: Arc<dyn Notify> = Arc::new(Untold);
        *self.answerer.lock() = agreed
            .map(|agreed| Answerer::new(Arc::clone(&self.service), agreed, Arc::clone(&notify)));
        let written = out
            .get_mut(OUT_HEADER..)
            .ok_or(Errno::IO)
            .and_then(|room| answer.write_to_prefix(room).map_err(|_| Errno::IO));
        put_header(out, unique, written.map(|()| size_of_val(&answer)))
    }

    /// Makes everything durable for a guest that unmounts.
    fn leave(&self) -> Result<(), Errno> {
        let had_begun = self.answerer.lock().take().is_some();
        self.service.forget_all();
        if had_begun {
            self.service.syncfs_if_open()?;
        }
        Ok(())
    }

    /// Ends with this guest: answers nothing any more, waits for what is under way, and forgets
    /// what it knew.
    pub fn end(&self) {
        *self.answerer.lock() = None;
        self.service.finish();
    }
}
