//! Messages of a virtual machine monitor, and what comes with them.
//!
//! Numbers are in the byte order of the machine, as both ends are on one.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg,
    sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Regions of memory that one message tells of at most.
pub(crate) const REGIONS: usize = 8;
/// Bytes of a header, and of the longest message behind it that is known.
const HEADER: usize = 12;
const LONGEST: usize = 8 + REGIONS * 32;

/// The version of the protocol, in the flags of a message.
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
/// The message is a reply.
const IS_REPLY: u32 = 1 << 2;
/// One is wanted.
const NEEDS_REPLY: u32 = 1 << 3;
/// Instead of the number of a queue: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident $number:literal;)*) => {
        /// What a message asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    GetFeatures 1;
    SetFeatures 2;
    SetOwner 3;
    ResetOwner 4;
    SetMemTable 5;
    SetVringNum 8;
    SetVringAddr 9;
    SetVringBase 10;
    GetVringBase 11;
    SetVringKick 12;
    SetVringCall 13;
    SetVringErr 14;
    GetProtocolFeatures 15;
    SetProtocolFeatures 16;
    GetQueueNum 17;
    SetVringEnable 18;
    GetMaxMemSlots 36;
    AddMemReg 37;
    RemMemReg 38;
}

/// One message.
#[derive(Debug)]
pub(crate) struct Message {
    /// `None` for what nobody does here.
    pub(crate) kind: Option<Kind>,
    number: u32,
    pub(crate) needs_reply: bool,
    body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A message that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A part of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Where the guest has it.
    pub(crate) guest: u64,
    pub(crate) len: u64,
    /// Where the monitor has it.
    pub(crate) monitor: u64,
    /// Where in the file that comes with it.
    pub(crate) offset: u64,
}

/// Where the parts of a queue lie, for the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) index: u32,
    pub(crate) descriptors: u64,
    pub(crate) used: u64,
    pub(crate) available: u64,
}

impl Message {
    /// Receives a message; `None` when the other end is gone.
    ///
    /// # Errors
    /// When the connection breaks off, or what comes is no message.
    pub(crate) fn receive(stream: &mut UnixStream) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        let mut descriptors = Vec::new();
        let mut filled = 0;
        while filled < HEADER {
            // Descriptors come with the first byte.
            let rest = header.get_mut(filled..).unwrap_or_default();
            match receive_some(stream, rest, &mut descriptors)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => filled += len,
            }
        }
        let word = |at: usize| {
            let bytes = header.get(at..).and_then(<[u8]>::first_chunk::<4>);
            bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        let (number, flags, len) = (word(0), word(4), word(8) as usize);
        if flags & VERSION_MASK != VERSION || flags & IS_REPLY != 0 || len > LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "what came is no message of the vhost-user protocol",
            ));
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body)?;
        Ok(Some(Self {
            kind: Kind::of(number),
            number,
            needs_reply: flags & NEEDS_REPLY != 0,
            body,
            descriptors,
        }))
    }

    /// Replies with this.
    ///
    /// # Errors
    /// When the connection breaks off.
    pub(crate) fn reply(&self, stream: &UnixStream, body: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER + body.len());
        for word in [self.number, VERSION | IS_REPLY, body.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(body);
        send_all(stream, &bytes)
    }

    fn long(&self, at: usize) -> Result<u64, Malformed> {
        let bytes = self.body.get(at..).and_then(<[u8]>::first_chunk::<8>);
        bytes
            .map(|bytes| u64::from_ne_bytes(*bytes))
            .ok_or(Malformed)
    }

    fn word(&self, at: usize) -> Result<u32, Malformed> {
        let bytes = self.body.get(at..).and_then(<[u8]>::first_chunk::<4>);
        bytes
            .map(|bytes| u32::from_ne_bytes(*bytes))
            .ok_or(Malformed)
    }

    /// Reads one number.
    pub(crate) fn number(&self) -> Result<u64, Malformed> {
        self.long(0)
    }

    /// Reads the number of a queue, and what is said of it.
    pub(crate) fn state(&self) -> Result<(u32, u32), Malformed> {
        Ok((self.word(0)?, self.word(4)?))
    }

    /// Reads where a queue lies.
    pub(crate) fn addresses(&self) -> Result<Addresses, Malformed> {
        Ok(Addresses {
            index: self.word(0)?,
            descriptors: self.long(8)?,
            used: self.long(16)?,
            available: self.long(24)?,
        })
    }

    /// Takes the number of a queue, and the descriptor that comes with it, if one does.
    pub(crate) fn queue_descriptor(&mut self) -> Result<(u32, Option<OwnedFd>), Malformed> {
        let number = self.long(0)?;
        let queue = (number & 0xff) as u32;
        match (number & NO_DESCRIPTOR, self.descriptors.len()) {
            (0, 1) => Ok((queue, self.descriptors.pop())),
            (NO_DESCRIPTOR, 0) => Ok((queue, None)),
            _ => Err(Malformed),
        }
    }

    fn region(&self, at: usize) -> Result<Region, Malformed> {
        Ok(Region {
            guest: self.long(at)?,
            len: self.long(at + 8)?,
            monitor: self.long(at + 16)?,
            offset: self.long(at + 24)?,
        })
    }

    /// Takes all regions of the guest's memory, with the file that each lies in.
    pub(crate) fn regions(&mut self) -> Result<Vec<(Region, OwnedFd)>, Malformed> {
        let count = self.word(0)? as usize;
        if count != self.descriptors.len() || count > REGIONS {
            return Err(Malformed);
        }
        let regions: Result<Vec<_>, _> = (0..count).map(|i| self.region(8 + i * 32)).collect();
        Ok(regions?
            .into_iter()
            .zip(self.descriptors.drain(..))
            .collect())
    }

    /// Takes one region that comes or goes, with the file of one that comes.
    pub(crate) fn one_region(&mut self) -> Result<(Region, Option<OwnedFd>), Malformed> {
        Ok((self.region(8)?, self.descriptors.pop()))
    }
}

/// Sends bytes by the one call for that which a confined process has.
fn send_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let mut nothing = SendAncillaryBuffer::default();
        let slices = [IoSlice::new(bytes)];
        match sendmsg(stream, &slices, &mut nothing, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Receives some bytes, and the descriptors that come with them.
fn receive_some(
    stream: &UnixStream,
    into: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        let mut slices = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(stream, &mut slices, &mut ancillary, flags) {
            Ok(received) => {
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(files) = message {
                        descriptors.extend(files);
                    }
                }
                return Ok(received.bytes);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn sent(words: &[u32], body: &[u8]) -> io::Result<Option<Message>> {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(body);
        there.write_all(&bytes).unwrap();
        drop(there);
        Message::receive(&mut here)
    }

    #[test]
    fn messages_are_taken_apart() {
        let message = sent(&[2, 1 | 8, 8], &7_u64.to_ne_bytes()).unwrap().unwrap();
        assert_eq!(message.kind, Some(Kind::SetFeatures));
        assert!(message.needs_reply);
        assert_eq!(message.number(), Ok(7));
        assert_eq!(message.addresses(), Err(Malformed));
        let unknown = sent(&[4711, 1, 0], &[]).unwrap().unwrap();
        assert_eq!(unknown.kind, None);
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        assert!(sent(&[], &[]).unwrap().is_none());
        for (words, body) in [
            (&[1, 1][..], &[][..]),
            (&[1, 2, 0], &[]),
            (&[1, 1 | 4, 0], &[]),
            (&[1, 1, u32::MAX], &[]),
            (&[1, 1, 8], &[0; 7]),
        ] {
            assert!(sent(words, body).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_a_message_counts_is_there() {
        let mut message = Message {
            kind: Some(Kind::SetMemTable),
            number: 5,
            needs_reply: false,
            body: [9_u32, 0]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect(),
            descriptors: Vec::new(),
        };
        assert_eq!(message.regions().unwrap_err(), Malformed);
        message.body[0] = 1;
        assert_eq!(message.regions().unwrap_err(), Malformed);
        message.descriptors = vec![File::open("/dev/null").unwrap().into()];
        assert_eq!(message.regions().unwrap_err(), Malformed);
        message.body.extend([0; 32]);
        assert_eq!(message.regions().unwrap().len(), 1);
        let mut kick = Message {
            body: 0x103_u64.to_ne_bytes().to_vec(),
            ..message
        };
        assert_eq!(kick.queue_descriptor().unwrap().0, 3);
        kick.body = 3_u64.to_ne_bytes().to_vec();
        assert_eq!(kick.queue_descriptor().unwrap_err(), Malformed);
    }
}
