//! From a connected socket to an export that takes requests.
//!
//! The fixed newstyle negotiation. Whatever a server sends is bounded: bytes of an answer, answers
//! to one option, and the time of the whole.
//!
//! # Two manners
//!
//! A server takes what a client says from a stream, in order, and answers in order. So all of it is
//! said at once, also before the greeting has come, and the answers are taken one after the other:
//! a round trip instead of four ([`Manner::AtOnce`]). Nothing is sent ahead that depends on an
//! answer: no request before the export is chosen, nothing after the wish for TLS. A server that
//! refuses structured replies and is asked for a context for them all the same refuses that too, or
//! its answer is not used.
//!
//! A server that ends the connection then, falls silent or answers something else is asked over
//! another connection, one option after the other ([`Manner::OneByOne`]). What had success with a
//! server is what is done from then on.

use super::address::{NbdAddress, NbdOptions};
use super::stream::{Stream, Timed};
use super::wire::{self, Fields, answer, handshake, info, option, spoken};
use std::io;
use std::sync::OnceLock;
use std::time::Instant;

/// Most bytes of an answer to an option.
const MOST_BYTES: u32 = 64 << 10;
/// Most answers to one option.
const MOST_ANSWERS: usize = 256;
/// Longest name of an export, in bytes.
const LONGEST_NAME: usize = 4096;
/// One part in this many of the time to connect is for a server that is told everything at once.
const AT_ONCE_SHARE: u32 = 3;
/// What a request may carry where the server says nothing, in bytes.
const USUAL_PAYLOAD: u32 = 32 << 20;

/// What a server says of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Export {
    /// Size in bytes.
    pub(super) size: u64,
    /// The flags of `wire::export`.
    pub(super) flags: u16,
    /// Whether replies come in chunks.
    pub(super) structured: bool,
    /// The number under which the server tells of `base:allocation`, if it does.
    pub(super) allocation: Option<u32>,
    /// Requests are multiples of this many bytes: a power of two.
    pub(super) smallest: u32,
    /// Requests of this many bytes cost no extra work: a power of two.
    pub(super) preferred: u32,
    /// Most bytes that a request carries: a multiple of `smallest`.
    pub(super) largest: u32,
}

impl Export {
    pub(super) fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Why there is no connection: a clause, and the error number that tells about the same.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) reason: String,
    pub(super) errno: i32,
}

impl Refusal {
    fn new(errno: rustix::io::Errno, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            errno: errno.raw_os_error(),
        }
    }

    /// The server does not keep to the protocol.
    fn wrong(reason: impl Into<String>) -> Self {
        Self::new(rustix::io::Errno::PROTO, reason)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        use rustix::io::Errno;
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                Self::new(Errno::TIMEDOUT, "the server does not answer in time")
            }
            io::ErrorKind::UnexpectedEof => Self::new(
                Errno::CONNRESET,
                "the server closed the connection while it was being set up",
            ),
            _ => Self {
                errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
                reason: error.to_string(),
            },
        }
    }
}

/// How a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Everything that does not depend on an answer, together.
    AtOnce,
    /// Nothing before the answer to what was asked before.
    OneByOne,
}

/// The manner in which a server has been asked with success.
#[derive(Debug, Default)]
pub(super) struct Manners(OnceLock<Manner>);

/// Why a negotiation ended.
enum Failure {
    /// The server would say so again.
    Refused(Refusal),
    /// Perhaps it was asked in the wrong manner.
    Lost(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Lost(refusal)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.into())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(refusal) | Failure::Lost(refusal) => refusal,
        }
    }
}

/// Connects to a server and chooses the export.
///
/// # Errors
/// A clause that says why there is no connection.
pub(super) fn open(
    address: &NbdAddress,
    options: &NbdOptions,
    manners: &Manners,
) -> Result<(Stream, Export), Refusal> {
    if address.export.len() > LONGEST_NAME {
        return Err(Refusal::new(
            rustix::io::Errno::NAMETOOLONG,
            format!("names of exports have at most {LONGEST_NAME} bytes"),
        ));
    }
    let deadline = Instant::now() + options.connect_timeout;
    let known = manners.0.get();
    if known != Some(&Manner::OneByOne) {
        let stream = Stream::connect(address, deadline, options.answer_timeout)?;
        let soon = Instant::now() + options.connect_timeout / AT_ONCE_SHARE;
        let soon = if known.is_none() { soon } else { deadline };
        match negotiate(stream, address, options, soon, Manner::AtOnce) {
            Ok(found) => {
                let _ = manners.0.set(Manner::AtOnce);
                return Ok(found);
            }
            Err(Failure::Lost(_)) if known.is_none() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    let stream = Stream::connect(address, deadline, options.answer_timeout)?;
    let found = negotiate(stream, address, options, deadline, Manner::OneByOne)?;
    let _ = manners.0.set(Manner::OneByOne);
    Ok(found)
}

/// Negotiates over a connection that is there, and the only one.
///
/// # Errors
/// Why there is no export at the other end.
pub(super) fn open_on(
    stream: Stream,
    address: &NbdAddress,
    options: &NbdOptions,
    deadline: Instant,
) -> Result<(Stream, Export), Refusal> {
    Ok(negotiate(
        stream,
        address,
        options,
        deadline,
        Manner::OneByOne,
    )?)
}

fn negotiate(
    stream: Stream,
    address: &NbdAddress,
    options: &NbdOptions,
    deadline: Instant,
    manner: Manner,
) -> Result<(Stream, Export), Failure> {
    let first = Talk {
        timed: Timed {
            stream: &stream,
            deadline,
        },
        name: &address.export,
        manner,
    };
    let flags = if manner == Manner::AtOnce && !address.tls {
        let wanted = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
        let mut message = u32::from(wanted).to_be_bytes().to_vec();
        first.add_all(&mut message);
        first.timed.write(&message)?;
        if greeting(&first.timed)? != wanted {
            return Err(Failure::Lost(Refusal::wrong("the server is too old")));
        }
        wanted
    } else {
        greet(&first.timed)?
    };
    let stream = secure(stream, address, options, flags, deadline)?;
    let talk = Talk {
        timed: Timed {
            stream: &stream,
            deadline,
        },
        name: &address.export,
        manner,
    };
    if manner == Manner::AtOnce && address.tls {
        let mut message = Vec::new();
        talk.add_all(&mut message);
        talk.timed.write(&message)?;
    }
    let export = talk.choose(flags)?;
    check(&export).map_err(Failure::Refused)?;
    Ok((stream, export))
}

/// Reads the greeting and answers it. Returns the flags that both sides have.
fn greet(timed: &Timed<'_>) -> Result<u16, Failure> {
    let flags = greeting(timed)?;
    timed.write(&u32::from(flags).to_be_bytes())?;
    Ok(flags)
}

/// Reads the greeting. Returns those of its flags that are known here.
fn greeting(timed: &Timed<'_>) -> Result<u16, Failure> {
    let wrong = |reason| Failure::Refused(Refusal::wrong(reason));
    let mut greeting = [0; 16];
    timed.read(&mut greeting)?;
    let mut fields = Fields(&greeting);
    let (first, second) = (fields.u64(), fields.u64());
    if first != Some(wire::GREETING) {
        return Err(wrong("it is no NBD server"));
    }
    if second == Some(wire::OLDSTYLE) {
        return Err(wrong(
            "the server negotiates in the old style, which names no exports: start it with the \
             newstyle negotiation",
        ));
    }
    if second != Some(wire::OPTIONS) {
        return Err(wrong("the greeting of the server is wrong"));
    }
    let mut flags = [0; 2];
    timed.read(&mut flags)?;
    Ok(u16::from_be_bytes(flags) & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES))
}

#[cfg(not(feature = "tls"))]
fn secure(
    stream: Stream,
    address: &NbdAddress,
    _options: &NbdOptions,
    _flags: u16,
    _deadline: Instant,
) -> Result<Stream, Failure> {
    if address.tls {
        return Err(Failure::Refused(Refusal::new(
            rustix::io::Errno::OPNOTSUPP,
            "this program was built without TLS (its feature `tls`)",
        )));
    }
    Ok(stream)
}

/// Goes over to TLS, if that is wanted.
#[cfg(feature = "tls")]
fn secure(
    mut stream: Stream,
    address: &NbdAddress,
    options: &NbdOptions,
    flags: u16,
    deadline: Instant,
) -> Result<Stream, Failure> {
    if !address.tls {
        return Ok(stream);
    }
    if flags & handshake::FIXED_NEWSTYLE == 0 {
        return Err(Failure::Refused(Refusal::wrong(
            "the server is too old for TLS",
        )));
    }
    let session = super::tls::Session::new(address, options.certificates.as_deref())
        .map_err(|reason| Failure::Refused(Refusal::new(rustix::io::Errno::ACCESS, reason)))?;
    let talk = Talk {
        timed: Timed {
            stream: &stream,
            deadline,
        },
        name: &address.export,
        manner: Manner::OneByOne,
    };
    talk.ask(option::STARTTLS, &[])?;
    match talk.answer(option::STARTTLS)? {
        Answer::Ack => {}
        Answer::Refused(answer::UNSUPPORTED | answer::POLICY, text) => {
            return Err(Failure::Refused(Refusal::new(
                rustix::io::Errno::OPNOTSUPP,
                format!("the server takes no TLS connections{}", in_words(&text)),
            )));
        }
        Answer::Refused(code, text) => {
            return Err(Failure::Refused(talk.refused(code, &text)));
        }
        Answer::Other(..) => {
            return Err(Failure::Refused(Refusal::wrong(
                "the answer about TLS is wrong",
            )));
        }
    }
    stream.begin_tls(session);
    let timed = Timed {
        stream: &stream,
        deadline,
    };
    loop {
        // What is wrong here is so in whichever manner the rest is said.
        match stream
            .shake_hands()
            .map_err(|e| Failure::Refused(e.into()))?
        {
            super::tls::Shaking::Done => break,
            super::tls::Shaking::ToRead => timed.wait(true, false)?,
            super::tls::Shaking::ToWrite => timed.wait(false, true)?,
        }
    }
    Ok(stream)
}

/// One answer to an option.
enum Answer {
    Ack,
    Refused(u32, String),
    Other(u32, Vec<u8>),
}

/// Options and answers.
struct Talk<'a> {
    timed: Timed<'a>,
    name: &'a str,
    manner: Manner,
}

/// Adds an option to what is sent.
fn add_option(message: &mut Vec<u8>, option: u32, data: &[u8]) {
    message.extend_from_slice(&wire::OPTIONS.to_be_bytes());
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&(data.len() as u32).to_be_bytes());
    message.extend_from_slice(data);
}

/// Bytes with how many they are in front.
fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

impl Talk<'_> {
    fn ask(&self, option: u32, data: &[u8]) -> Result<(), Failure> {
        let mut message = Vec::with_capacity(16 + data.len());
        add_option(&mut message, option, data);
        Ok(self.timed.write(&message)?)
    }

    /// Adds all options that [`Talk::choose`] takes the answers to.
    fn add_all(&self, message: &mut Vec<u8>) {
        add_option(message, option::STRUCTURED_REPLY, &[]);
        add_option(message, option::SET_META_CONTEXT, &self.context());
        add_option(message, option::GO, &self.go());
    }

    /// The data of the option that asks for the context of holes.
    fn context(&self) -> Vec<u8> {
        let parts = [
            counted(self.name.as_bytes()),
            1_u32.to_be_bytes().to_vec(),
            counted(b"base:allocation"),
        ];
        parts.concat()
    }

    /// The data of the option that chooses the export.
    fn go(&self) -> Vec<u8> {
        let parts = [
            counted(self.name.as_bytes()),
            1_u16.to_be_bytes().to_vec(),
            info::BLOCK_SIZE.to_be_bytes().to_vec(),
        ];
        parts.concat()
    }

    fn answer(&self, option: u32) -> Result<Answer, Failure> {
        let mut head = [0; 20];
        self.timed.read(&mut head)?;
        let mut fields = Fields(&head);
        let magic = fields.u64();
        let (Some(about), Some(code), Some(len)) = (fields.u32(), fields.u32(), fields.u32())
        else {
            return Err(Refusal::wrong("an answer of the server is wrong").into());
        };
        if magic != Some(wire::OPTION_REPLY) || about != option {
            return Err(Refusal::wrong("the server answers what was not asked").into());
        }
        if len > MOST_BYTES {
            let reason =
                format!("the server announces an answer of {len} bytes, more than there can be");
            return Err(Refusal::wrong(reason).into());
        }
        let mut data = vec![0; len as usize];
        self.timed.read(&mut data)?;
        Ok(match code {
            answer::ACK => Answer::Ack,
            code if code & answer::ERROR != 0 => Answer::Refused(code, spoken(&data)),
            code => Answer::Other(code, data),
        })
    }

    /// Asks an option, if that was not done, and gives what comes before the acknowledgement to
    /// `told`. `false` if the server does not do this.
    fn settle(
        &self,
        option: u32,
        data: &[u8],
        told: impl FnMut(u32, &[u8]) -> Result<(), Refusal>,
    ) -> Result<bool, Failure> {
        if self.manner == Manner::OneByOne {
            self.ask(option, data)?;
        }
        match self.hear(option, told)? {
            None => Ok(true),
            Some((answer::UNSUPPORTED, _)) => Ok(false),
            // This can be done without; whether there is an export, `GO` says.
            Some((answer::INVALID | answer::PLATFORM | answer::TOO_BIG, _))
                if option != option::GO =>
            {
                Ok(false)
            }
            Some((code, text)) => {
                // Good manners; what becomes of it does not matter.
                let _ = self.ask(option::ABORT, &[]);
                Err(Failure::Refused(self.refused(code, &text)))
            }
        }
    }

    /// Takes the answers to an option that was asked, and gives those before the last to `told`.
    /// Returns the error that ends them, if one does.
    fn hear(
        &self,
        option: u32,
        mut told: impl FnMut(u32, &[u8]) -> Result<(), Refusal>,
    ) -> Result<Option<(u32, String)>, Failure> {
        for _ in 0..MOST_ANSWERS {
            match self.answer(option)? {
                Answer::Ack => return Ok(None),
                Answer::Refused(code, text) => return Ok(Some((code, text))),
                Answer::Other(code, data) => told(code, &data)?,
            }
        }
        Err(Refusal::wrong("the server does not come to an end").into())
    }

    /// What an error about an option means.
    fn refused(&self, code: u32, text: &str) -> Refusal {
        use rustix::io::Errno;
        let name = match self.name {
            "" => "the default export".to_owned(),
            name => format!("the export `{name}`"),
        };
        let (errno, reason) = match code {
            answer::UNKNOWN => (Errno::NOENT, format!("the server does not have {name}")),
            answer::POLICY => (
                Errno::ACCESS,
                format!("the server's rules do not allow {name}"),
            ),
            answer::TLS_REQUIRED => (
                Errno::ACCESS,
                "the server takes TLS connections only: name it as nbds://".to_owned(),
            ),
            answer::SHUTDOWN => (
                Errno::CONNREFUSED,
                "the server is about to end: try again when it is back".to_owned(),
            ),
            answer::BLOCK_SIZE_REQUIRED => (
                Errno::INVAL,
                format!("the server has limits for {name} that it does not tell"),
            ),
            answer::PLATFORM => (
                Errno::OPNOTSUPP,
                "the server's platform cannot do this".to_owned(),
            ),
            answer::TOO_BIG | answer::INVALID => (
                Errno::INVAL,
                format!("the server does not accept the request for {name}"),
            ),
            code => (
                Errno::PROTO,
                format!("the server refuses {name} with the unknown code {code:#x}"),
            ),
        };
        Refusal::new(errno, reason + &in_words(text))
    }

    /// Chooses the export, in the best way that the server knows.
    fn choose(&self, flags: u16) -> Result<Export, Failure> {
        let mut chosen = Export {
            size: 0,
            flags: 0,
            structured: false,
            allocation: None,
            smallest: 1,
            preferred: 4096,
            largest: USUAL_PAYLOAD,
        };
        if flags & handshake::FIXED_NEWSTYLE == 0 {
            return self.choose_by_name(chosen, flags);
        }
        chosen.structured = self.settle(option::STRUCTURED_REPLY, &[], |_, _| Ok(()))?;
        let mut allocation = None;
        let told = |code, data: &[u8]| {
            let number = Fields(data).u32();
            if code == answer::META_CONTEXT && data.get(4..) == Some(b"base:allocation") {
                allocation = number;
            }
            Ok(())
        };
        if chosen.structured {
            self.settle(option::SET_META_CONTEXT, &self.context(), told)?;
            chosen.allocation = allocation;
        } else if self.manner == Manner::AtOnce {
            // It goes with structured replies, and was asked for before it was known that there are
            // none.
            self.hear(option::SET_META_CONTEXT, told)?;
        }
        let mut found = None;
        let told = |code, data: &[u8]| {
            let mut fields = Fields(data);
            match (code, fields.u16()) {
                (answer::INFO, Some(info::EXPORT)) => found = fields.u64().zip(fields.u16()),
                (answer::INFO, Some(info::BLOCK_SIZE)) => {
                    let sizes = (fields.u32(), fields.u32(), fields.u32());
                    let (Some(smallest), Some(preferred), Some(largest)) = sizes else {
                        return Err(Refusal::wrong("the server's limits cannot be read"));
                    };
                    (chosen.smallest, chosen.preferred, chosen.largest) =
                        (smallest, preferred, largest);
                }
                _ => {}
            }
            Ok(())
        };
        if !self.settle(option::GO, &self.go(), told)? {
            // Without what was settled: such servers know none of it.
            return self.choose_by_name(chosen, flags);
        }
        let Some((size, flags)) = found else {
            return Err(Failure::Refused(Refusal::wrong(
                "the server does not say how large the export is",
            )));
        };
        Ok(Export {
            size,
            flags,
            ..chosen
        })
    }

    /// Chooses the export in the way that all servers know, and that tells no reason.
    fn choose_by_name(&self, chosen: Export, flags: u16) -> Result<Export, Failure> {
        self.ask(option::EXPORT_NAME, self.name.as_bytes())?;
        let mut head = [0; 10];
        self.timed.read(&mut head).map_err(|error| {
            Failure::Refused(match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    self.refused(answer::UNKNOWN, "it closed the connection")
                }
                _ => error.into(),
            })
        })?;
        if flags & handshake::NO_ZEROES == 0 {
            self.timed.read(&mut [0; 124])?;
        }
        let mut fields = Fields(&head);
        let (size, flags) = fields.u64().zip(fields.u16()).unwrap_or_default();
        Ok(Export {
            size,
            flags,
            ..chosen
        })
    }
}

fn in_words(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(" (it says: {text})")
    }
}

/// Refuses numbers that nothing can be done with.
fn check(export: &Export) -> Result<(), Refusal> {
    let Export {
        size,
        smallest,
        preferred,
        largest,
        ..
    } = *export;
    if size > i64::MAX as u64 {
        return Err(Refusal::wrong(format!(
            "the server says that the export has {size} bytes, which cannot be"
        )));
    }
    let fits = smallest.is_power_of_two()
        && smallest <= 64 << 10
        && preferred.is_power_of_two()
        && preferred >= smallest
        && largest >= smallest
        && (largest == u32::MAX || largest.is_multiple_of(smallest));
    if !fits {
        return Err(Refusal::wrong(format!(
            "the server's limits of requests make no sense: at least {smallest}, rather \
             {preferred}, at most {largest} bytes"
        )));
    }
    if !size.is_multiple_of(smallest.into()) {
        return Err(Refusal::wrong(format!(
            "the export has {size} bytes, which its requests, multiples of {smallest} bytes, do \
             not reach"
        )));
    }
    if !export.can(wire::export::HAS_FLAGS) && export.flags != 0 {
        return Err(Refusal::wrong("the flags of the export are wrong"));
    }
    Ok(())
}
