//! Options, until a client has chosen the export.

use crate::server::Shared;
use crate::wire::{self, answer, export, info, option};
use std::io::{self, Read, Write};

/// Most bytes of an option.
const MOST_BYTES: u32 = 16 << 10;
/// Most options of one client.
const MOST_OPTIONS: usize = 64;
/// The number under which `base:allocation` is told.
pub(crate) const ALLOCATION: u32 = 1;
/// Its name.
const CONTEXT: &[u8] = b"base:allocation";

/// What was settled.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settled {
    pub(crate) structured: bool,
    pub(crate) allocation: bool,
}

/// A client that breaks the protocol.
pub(crate) fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What a device can do, as flags of an export.
pub(crate) fn flags(shared: &Shared) -> u16 {
    let always = export::HAS_FLAGS | export::FLUSH | export::MULTI_CONN;
    if shared.is_read_only {
        always | export::READ_ONLY
    } else {
        always | export::FUA | export::TRIM | export::WRITE_ZEROES
    }
}

/// Negotiates. `None` when the client leaves.
///
/// # Errors
/// Those of the stream, and that the client breaks the protocol.
pub(crate) fn negotiate(
    stream: &mut (impl Read + Write),
    shared: &Shared,
) -> io::Result<Option<Settled>> {
    let mut greeting = wire::GREETING.to_vec();
    greeting.extend(wire::OPTIONS.to_be_bytes());
    greeting.extend(((wire::FIXED_NEWSTYLE | wire::NO_ZEROES) as u16).to_be_bytes());
    stream.write_all(&greeting)?;
    let client = u32::from_be_bytes(take(stream)?);
    if client & !(wire::FIXED_NEWSTYLE | wire::NO_ZEROES) != 0 {
        return Err(wrong("unknown flags of a client"));
    }
    let mut settled = Settled::default();
    for _ in 0..MOST_OPTIONS {
        if u64::from_be_bytes(take(stream)?) != wire::OPTIONS {
            return Err(wrong("an option begins with a wrong number"));
        }
        let asked = u32::from_be_bytes(take(stream)?);
        let len = u32::from_be_bytes(take(stream)?);
        if len > MOST_BYTES {
            if asked != option::EXPORT_NAME {
                reply(stream, asked, answer::TOO_BIG, b"the option is too long")?;
            }
            return Err(wrong("an option that is too long"));
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match asked {
            option::EXPORT_NAME => {
                if data != shared.name.as_bytes() {
                    return Err(wrong("an export that is not served"));
                }
                let mut message = shared.size.to_be_bytes().to_vec();
                message.extend(export_flags(shared, settled).to_be_bytes());
                if client & wire::NO_ZEROES == 0 {
                    message.resize(message.len() + 124, 0);
                }
                stream.write_all(&message)?;
                return Ok(Some(settled));
            }
            option::ABORT => {
                reply(stream, asked, answer::ACK, &[])?;
                return Ok(None);
            }
            option::LIST => {
                if !data.is_empty() {
                    reply(
                        stream,
                        asked,
                        answer::INVALID,
                        b"a list is asked for without data",
                    )?;
                    continue;
                }
                let entry = counted(shared.name.as_bytes());
                reply(stream, asked, answer::SERVER, &entry)?;
                reply(stream, asked, answer::ACK, &[])?;
            }
            option::STRUCTURED_REPLY => {
                if data.is_empty() {
                    settled.structured = true;
                    reply(stream, asked, answer::ACK, &[])?;
                } else {
                    reply(
                        stream,
                        asked,
                        answer::INVALID,
                        b"this is asked for without data",
                    )?;
                }
            }
            option::INFO | option::GO => {
                if tell(stream, shared, settled, asked, &data)? && asked == option::GO {
                    return Ok(Some(settled));
                }
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                contexts(stream, shared, &mut settled, asked, &data)?;
            }
            _ => reply(
                stream,
                asked,
                answer::UNSUPPORTED,
                b"this server does not do that",
            )?,
        }
    }
    Err(wrong("more options than anybody needs"))
}

fn export_flags(shared: &Shared, settled: Settled) -> u16 {
    flags(shared) | if settled.structured { export::DF } else { 0 }
}

fn reply(stream: &mut impl Write, asked: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(20 + data.len());
    message.extend(wire::OPTION_REPLY.to_be_bytes());
    message.extend(asked.to_be_bytes());
    message.extend(kind.to_be_bytes());
    message.extend((data.len() as u32).to_be_bytes());
    message.extend(data);
    stream.write_all(&message)
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Takes a number of bytes, and as many bytes, from the front.
fn split<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    let (now, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    *data = rest;
    Some(now)
}

/// Tells of the export, if it is the one. Returns whether it is.
fn tell(
    stream: &mut impl Write,
    shared: &Shared,
    settled: Settled,
    asked: u32,
    mut data: &[u8],
) -> io::Result<bool> {
    let name = split(&mut data);
    let wanted = data.split_first_chunk::<2>().filter(|(count, wanted)| {
        // Of two bytes each.
        wanted.len() == 2 * usize::from(u16::from_be_bytes(**count))
    });
    let (Some(name), Some((_, wanted))) = (name, wanted) else {
        reply(
            stream,
            asked,
            answer::INVALID,
            b"the request cannot be read",
        )?;
        return Ok(false);
    };
    if name != shared.name.as_bytes() {
        reply(stream, asked, answer::UNKNOWN, b"this export is not served")?;
        return Ok(false);
    }
    let mut message = info::EXPORT.to_be_bytes().to_vec();
    message.extend(shared.size.to_be_bytes());
    message.extend(export_flags(shared, settled).to_be_bytes());
    reply(stream, asked, answer::INFO, &message)?;
    for kind in wanted.chunks_exact(2) {
        let kind = u16::from_be_bytes([kind[0], kind[1]]);
        let mut message = kind.to_be_bytes().to_vec();
        match kind {
            info::NAME => message.extend(shared.name.as_bytes()),
            info::BLOCK_SIZE => {
                for bytes in [1, shared.preferred, shared.limits.payload] {
                    message.extend(bytes.to_be_bytes());
                }
            }
            _ => continue,
        }
        reply(stream, asked, answer::INFO, &message)?;
    }
    reply(stream, asked, answer::ACK, &[])?;
    Ok(true)
}

/// Lists or sets what is told of extents.
fn contexts(
    stream: &mut impl Write,
    shared: &Shared,
    settled: &mut Settled,
    asked: u32,
    mut data: &[u8],
) -> io::Result<()> {
    let sets = asked == option::SET_META_CONTEXT;
    if sets {
        settled.allocation = false;
    }
    if sets && !settled.structured {
        let text = b"structured replies must be settled first";
        return reply(stream, asked, answer::INVALID, text);
    }
    let name = split(&mut data);
    let count = data.split_first_chunk::<4>();
    let (Some(name), Some((count, mut queries))) = (name, count) else {
        return reply(
            stream,
            asked,
            answer::INVALID,
            b"the request cannot be read",
        );
    };
    if name != shared.name.as_bytes() {
        return reply(stream, asked, answer::UNKNOWN, b"this export is not served");
    }
    let count = u32::from_be_bytes(*count);
    // All there are, where a client that wants a list has no question.
    let mut is_wanted = !sets && count == 0;
    for _ in 0..count {
        let Some(query) = split(&mut queries) else {
            return reply(
                stream,
                asked,
                answer::INVALID,
                b"the request cannot be read",
            );
        };
        is_wanted |= query == CONTEXT || (!sets && query == b"base:");
    }
    if !queries.is_empty() {
        return reply(
            stream,
            asked,
            answer::INVALID,
            b"the request cannot be read",
        );
    }
    if is_wanted {
        let number = if sets { ALLOCATION } else { 0 };
        let entry = [&number.to_be_bytes()[..], CONTEXT].concat();
        reply(stream, asked, answer::META_CONTEXT, &entry)?;
        settled.allocation |= sets;
    }
    reply(stream, asked, answer::ACK, &[])
}
