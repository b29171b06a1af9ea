//! From a connected socket to an export that takes requests.
//!
//! The fixed newstyle negotiation, one option after the other, since a client must have the answer
//! to one before it asks the next. Whatever a server sends is bounded: bytes of an answer, answers
//! to one option, and the time of the whole.

use super::address::{NbdAddress, NbdOptions};
use super::stream::{Stream, Timed};
use super::wire::{self, Fields, answer, handshake, info, option, spoken};
use std::io;
use std::time::Instant;

/// Most bytes of an answer to an option.
const MOST_BYTES: u32 = 64 << 10;
/// Most answers to one option.
const MOST_ANSWERS: usize = 256;
/// Longest name of an export, in bytes.
const LONGEST_NAME: usize = 4096;
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

/// Connects to a server and chooses the export.
///
/// # Errors
/// A clause that says why there is no connection.
pub(super) fn open(
    address: &NbdAddress,
    options: &NbdOptions,
) -> Result<(Stream, Export), Refusal> {
    if address.export.len() > LONGEST_NAME {
        return Err(Refusal::new(
            rustix::io::Errno::NAMETOOLONG,
            format!("names of exports have at most {LONGEST_NAME} bytes"),
        ));
    }
    let deadline = Instant::now() + options.connect_timeout;
    let stream = Stream::connect(address, deadline, options.answer_timeout)?;
    open_on(stream, address, options, deadline)
}

/// Negotiates over a connection that is there.
///
/// # Errors
/// Why there is no export at the other end.
pub(super) fn open_on(
    stream: Stream,
    address: &NbdAddress,
    options: &NbdOptions,
    deadline: Instant,
) -> Result<(Stream, Export), Refusal> {
    let flags = greet(&Timed {
        stream: &stream,
        deadline,
    })?;
    let stream = secure(stream, address, options, flags, deadline)?;
    let talk = Talk {
        timed: Timed {
            stream: &stream,
            deadline,
        },
        name: &address.export,
    };
    let export = talk.choose(flags)?;
    check(&export)?;
    Ok((stream, export))
}

/// Reads the greeting and answers it. Returns the flags that both sides have.
fn greet(timed: &Timed<'_>) -> Result<u16, Refusal> {
    let mut greeting = [0; 16];
    timed.read(&mut greeting)?;
    let mut fields = Fields(&greeting);
    let (first, second) = (fields.u64(), fields.u64());
    if first != Some(wire::GREETING) {
        return Err(Refusal::wrong("it is no NBD server"));
    }
    if second == Some(wire::OLDSTYLE) {
        return Err(Refusal::wrong(
            "the server negotiates in the old style, which names no exports: start it with the \
             newstyle negotiation",
        ));
    }
    if second != Some(wire::OPTIONS) {
        return Err(Refusal::wrong("the greeting of the server is wrong"));
    }
    let mut flags = [0; 2];
    timed.read(&mut flags)?;
    let flags = u16::from_be_bytes(flags) & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
    timed.write(&u32::from(flags).to_be_bytes())?;
    Ok(flags)
}

#[cfg(not(feature = "tls"))]
fn secure(
    stream: Stream,
    address: &NbdAddress,
    _options: &NbdOptions,
    _flags: u16,
    _deadline: Instant,
) -> Result<Stream, Refusal> {
    if address.tls {
        return Err(Refusal::new(
            rustix::io::Errno::OPNOTSUPP,
            "this program was built without TLS (its feature `tls`)",
        ));
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
) -> Result<Stream, Refusal> {
    if !address.tls {
        return Ok(stream);
    }
    if flags & handshake::FIXED_NEWSTYLE == 0 {
        return Err(Refusal::wrong("the server is too old for TLS"));
    }
    let session = super::tls::Session::new(address, options.certificates.as_deref())
        .map_err(|reason| Refusal::new(rustix::io::Errno::ACCESS, reason))?;
    let talk = Talk {
        timed: Timed {
            stream: &stream,
            deadline,
        },
        name: &address.export,
    };
    talk.ask(option::STARTTLS, &[])?;
    match talk.answer(option::STARTTLS)? {
        Answer::Ack => {}
        Answer::Refused(answer::UNSUPPORTED | answer::POLICY, text) => {
            return Err(Refusal::new(
                rustix::io::Errno::OPNOTSUPP,
                format!("the server takes no TLS connections{}", in_words(&text)),
            ));
        }
        Answer::Refused(code, text) => return Err(talk.refused(code, &text)),
        Answer::Other(..) => return Err(Refusal::wrong("the answer about TLS is wrong")),
    }
    stream.begin_tls(session);
    let timed = Timed {
        stream: &stream,
        deadline,
    };
    loop {
        match stream.shake_hands()? {
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
}

impl Talk<'_> {
    fn ask(&self, option: u32, data: &[u8]) -> Result<(), Refusal> {
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend_from_slice(&wire::OPTIONS.to_be_bytes());
        message.extend_from_slice(&option.to_be_bytes());
        message.extend_from_slice(&(data.len() as u32).to_be_bytes());
        message.extend_from_slice(data);
        Ok(self.timed.write(&message)?)
    }

    fn answer(&self, option: u32) -> Result<Answer, Refusal> {
        let mut head = [0; 20];
        self.timed.read(&mut head)?;
        let mut fields = Fields(&head);
        let magic = fields.u64();
        let (Some(about), Some(code), Some(len)) = (fields.u32(), fields.u32(), fields.u32())
        else {
            return Err(Refusal::wrong("an answer of the server is wrong"));
        };
        if magic != Some(wire::OPTION_REPLY) || about != option {
            return Err(Refusal::wrong("the server answers what was not asked"));
        }
        if len > MOST_BYTES {
            return Err(Refusal::wrong(format!(
                "the server announces an answer of {len} bytes, more than there can be"
            )));
        }
        let mut data = vec![0; len as usize];
        self.timed.read(&mut data)?;
        Ok(match code {
            answer::ACK => Answer::Ack,
            code if code & answer::ERROR != 0 => Answer::Refused(code, spoken(&data)),
            code => Answer::Other(code, data),
        })
    }

    /// Asks an option, and gives what comes before the acknowledgement to `told`. `false` if the
    /// server does not do this.
    fn settle(
        &self,
        option: u32,
        data: &[u8],
        mut told: impl FnMut(u32, &[u8]) -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        self.ask(option, data)?;
        for _ in 0..MOST_ANSWERS {
            match self.answer(option)? {
                Answer::Ack => return Ok(true),
                Answer::Refused(answer::UNSUPPORTED, _) => return Ok(false),
                // This can be done without; whether there is an export, `GO` says.
                Answer::Refused(answer::INVALID | answer::PLATFORM | answer::TOO_BIG, _)
                    if option != option::GO =>
                {
                    return Ok(false);
                }
                Answer::Refused(code, text) => {
                    // Good manners; what becomes of it does not matter.
                    let _ = self.ask(option::ABORT, &[]);
                    return Err(self.refused(code, &text));
                }
                Answer::Other(code, data) => told(code, &data)?,
            }
        }
        Err(Refusal::wrong("the server does not come to an end"))
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
    fn choose(&self, flags: u16) -> Result<Export, Refusal> {
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
        let name = self.name.as_bytes();
        let counted = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        if chosen.structured {
            let question = [
                counted(name),
                1_u32.to_be_bytes().to_vec(),
                counted(b"base:allocation"),
            ];
            self.settle(
                option::SET_META_CONTEXT,
                &question.concat(),
                |code, data| {
                    let number = Fields(data).u32();
                    if code == answer::META_CONTEXT && data.get(4..) == Some(b"base:allocation") {
                        chosen.allocation = number;
                    }
                    Ok(())
                },
            )?;
        }
        let question = [
            counted(name),
            1_u16.to_be_bytes().to_vec(),
            info::BLOCK_SIZE.to_be_bytes().to_vec(),
        ];
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
        if !self.settle(option::GO, &question.concat(), told)? {
            // Without what was settled: such servers know none of it.
            return self.choose_by_name(chosen, flags);
        }
        let Some((size, flags)) = found else {
            return Err(Refusal::wrong(
                "the server does not say how large the export is",
            ));
        };
        Ok(Export {
            size,
            flags,
            ..chosen
        })
    }

    /// Chooses the export in the way that all servers know, and that tells no reason.
    fn choose_by_name(&self, chosen: Export, flags: u16) -> Result<Export, Refusal> {
        self.ask(option::EXPORT_NAME, self.name.as_bytes())?;
        let mut head = [0; 10];
        self.timed
            .read(&mut head)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    self.refused(answer::UNKNOWN, "it closed the connection")
                }
                _ => error.into(),
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
