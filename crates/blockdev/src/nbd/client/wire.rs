//! Numbers of the protocol, and how messages lie on the wire.
//!
//! Source: the NBD protocol document, `doc/proto.md` of the project NetworkBlockDevice/nbd. All
//! numbers are big-endian.

use rustix::io::Errno;
use std::io;

/// First half of a server's greeting.
pub(super) const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second half of the greeting of the newstyle negotiation; also begins every option.
pub(super) const OPTIONS: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Second half of the greeting of the negotiation that newstyle replaced in 2011.
pub(super) const OLDSTYLE: u64 = 0x0000_4202_8186_1253;
/// Begins the answer to an option.
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins a request.
pub(super) const REQUEST: u32 = 0x2560_9513;
/// Begins a simple reply.
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub(super) const CHUNK: u32 = 0x668e_33ef;

/// Flags of the handshake, the same from both sides.
pub(super) mod handshake {
    pub(in crate::nbd) const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub(in crate::nbd) const NO_ZEROES: u16 = 1 << 1;
}

/// What a client asks for before it uses an export.
pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    #[cfg(feature = "tls")]
    pub(in crate::nbd) const STARTTLS: u32 = 5;
    pub(in crate::nbd) const GO: u32 = 7;
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
    pub(in crate::nbd) const SET_META_CONTEXT: u32 = 10;
}

/// Types of answers to options.
pub(super) mod answer {
    pub(in crate::nbd) const ACK: u32 = 1;
    pub(in crate::nbd) const INFO: u32 = 3;
    pub(in crate::nbd) const META_CONTEXT: u32 = 4;
    pub(in crate::nbd) const ERROR: u32 = 1 << 31;
    pub(in crate::nbd) const UNSUPPORTED: u32 = ERROR + 1;
    pub(in crate::nbd) const POLICY: u32 = ERROR + 2;
    pub(in crate::nbd) const INVALID: u32 = ERROR + 3;
    pub(in crate::nbd) const PLATFORM: u32 = ERROR + 4;
    pub(in crate::nbd) const TLS_REQUIRED: u32 = ERROR + 5;
    pub(in crate::nbd) const UNKNOWN: u32 = ERROR + 6;
    pub(in crate::nbd) const SHUTDOWN: u32 = ERROR + 7;
    pub(in crate::nbd) const BLOCK_SIZE_REQUIRED: u32 = ERROR + 8;
    pub(in crate::nbd) const TOO_BIG: u32 = ERROR + 9;
}

/// Kinds of information about an export.
pub(super) mod info {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// What a server says that an export can do.
pub(super) mod export {
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1 << 0;
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd) const FLUSH: u16 = 1 << 2;
    pub(in crate::nbd) const FUA: u16 = 1 << 3;
    pub(in crate::nbd) const TRIM: u16 = 1 << 5;
    pub(in crate::nbd) const WRITE_ZEROES: u16 = 1 << 6;
    pub(in crate::nbd) const MULTI_CONN: u16 = 1 << 8;
}

/// Requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
    BlockStatus = 7,
}

impl Command {
    /// Whether the export may have other content, or less of it, afterwards.
    pub(super) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }

    /// Whether it is never sent again after it may have reached the server: a change, which may
    /// still be done later, and a flush, whose failure the server's system tells once.
    pub(super) fn happens_once(self) -> bool {
        self.changes() || self == Self::Flush
    }

    /// The verb for errors.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Disconnect => "leave",
            Self::Flush => "flush",
            Self::Trim => "discard",
            Self::WriteZeroes => "zero",
            Self::BlockStatus => "find data in",
        }
    }
}

/// Flag of a request: done when it is durable.
pub(super) const FUA: u16 = 1 << 0;

/// Chunks of structured replies.
pub(super) mod chunk {
    /// The flag of the last chunk of a reply.
    pub(in crate::nbd) const DONE: u16 = 1 << 0;
    pub(in crate::nbd) const NONE: u16 = 0;
    pub(in crate::nbd) const OFFSET_DATA: u16 = 1;
    pub(in crate::nbd) const OFFSET_HOLE: u16 = 2;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 5;
    /// The bit of all types that tell of errors.
    pub(in crate::nbd) const ERROR_BIT: u16 = 1 << 15;
    pub(in crate::nbd) const ERROR: u16 = ERROR_BIT + 1;
    pub(in crate::nbd) const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}

/// Flag of an extent of `base:allocation`: it reads as zeroes.
pub(super) const EXTENT_ZERO: u32 = 1 << 1;

/// The error of a server that is about to end.
pub(super) const ESHUTDOWN: u32 = 108;

/// Bytes of a request without its data.
pub(super) const REQUEST_LEN: usize = 28;

/// Puts a request together, without its data.
pub(super) fn request(
    flags: u16,
    command: Command,
    cookie: u64,
    offset: u64,
    len: u32,
) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[0..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&(command as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..28].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Takes numbers from the front of a message.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*now)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// What a server says in words, fit for a message: of bounded length, without characters that
/// command a terminal or turn the text around.
pub(super) fn spoken(text: &[u8]) -> String {
    const MOST: usize = 300;
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MOST)]);
    text.trim()
        .chars()
        .filter(|c| {
            !c.is_control() && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        })
        .take(MOST)
        .collect()
}

/// What an error of the server means, by its number and in its words.
pub(super) fn told(errno: u32, text: &str) -> io::Error {
    // Of numbers that the protocol does not name nothing is known.
    let errno = match errno {
        1 | 5 | 12 | 22 | 28 | 75 | 95 => errno.cast_signed(),
        _ => Errno::IO.raw_os_error(),
    };
    let known = io::Error::from_raw_os_error(errno);
    if text.is_empty() || errno != Errno::IO.raw_os_error() {
        known
    } else {
        io::Error::other(format!("{known}; the server says: {text}"))
    }
}
