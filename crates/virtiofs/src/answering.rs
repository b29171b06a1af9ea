//! One request, from its pieces to its answer.

use crate::chain::{Chain, Nowhere};
use extant_fuse::{Guest, Refused, RequestKind, Treatment};
use vm_memory::GuestAddress;

/// Transfers of at least so many bytes go past the engine's memory, where they are aligned.
const LARGE: usize = 64 << 10;
/// The page of a guest.
const PAGE: usize = 4096;

/// Memory of one thread for what is copied. What is said lies so that the data of a write begins a
/// page, and the answer so that what follows its header does: what goes to and from a device
/// directly has to.
#[derive(Debug)]
pub(crate) struct Scratch {
    said: Aligned,
    answer: Aligned,
}

#[derive(Debug)]
struct Aligned {
    bytes: Vec<u8>,
    page: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0; Guest::LONGEST + 2 * PAGE];
        let page = bytes.as_ptr().align_offset(PAGE) + PAGE;
        // At most a page is lost to each side.
        let page = page.min(2 * PAGE);
        Self { bytes, page }
    }

    /// Lends room that begins `before` bytes before a page, for the longest message at most.
    fn before_page(&mut self, before: usize) -> &mut [u8] {
        let begin = self.page.saturating_sub(before);
        let room = self.bytes.get_mut(begin..).unwrap_or_default();
        let len = room.len().min(Guest::LONGEST);
        room.get_mut(..len).unwrap_or_default()
    }
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            said: Aligned::new(),
            answer: Aligned::new(),
        }
    }
}

/// The beginning of what is said, as far as it decides how a request is answered.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: [u8; Guest::REQUEST_HEAD],
    len: usize,
    pub(crate) treatment: Treatment,
}

impl Head {
    /// Looks at a request; `None` for what has no header, which gets no answer.
    pub(crate) fn of(chain: &Chain, guest: &Guest) -> Option<Self> {
        let mut bytes = [0; Guest::REQUEST_HEAD];
        let len = chain.copy_from(0, &mut bytes).ok()?;
        let treatment = guest.treatment(bytes.get(..len)?)?;
        Some(Self {
            bytes,
            len,
            treatment,
        })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// Answers a request. Returns how many bytes of the room for the answer were filled.
pub(crate) fn answer(
    mut chain: Chain,
    head: &Head,
    guest: &Guest,
    scratch: &mut Scratch,
) -> (u16, u32) {
    let number = chain.head();
    let has_room = chain.room.len() >= Guest::ANSWER_HEADER;
    let filled = match head.treatment.kind {
        RequestKind::Unanswered => plain(&chain, guest, scratch),
        // Nobody would learn what became of it.
        _ if !has_room => Ok(0),
        RequestKind::Read { len } => read(&mut chain, head, len, guest, scratch),
        RequestKind::Write { begin, len } => write(&chain, head, (begin, len), guest, scratch),
        _ => plain(&chain, guest, scratch),
    };
    // An answer for which there is no memory is none.
    let filled = filled.unwrap_or(0);
    (number, u32::try_from(filled).unwrap_or(u32::MAX))
}

/// Tells a guest that its request makes no sense.
fn refuse(chain: &Chain, said: &[u8]) -> Result<usize, Nowhere> {
    let header = Guest::header(said, Err(Refused::INVALID));
    chain.copy_to(0, &header)?;
    Ok(header.len())
}

/// Answers a request that is copied.
fn plain(chain: &Chain, guest: &Guest, scratch: &mut Scratch) -> Result<usize, Nowhere> {
    let Scratch { said, answer } = scratch;
    let said = said.before_page(0);
    let len = chain.copy_from(0, said)?;
    let said = said.get(..len).unwrap_or_default();
    if len < chain.said.len() {
        return refuse(chain, said);
    }
    let answer = answer.before_page(Guest::ANSWER_HEADER);
    let room = answer.len().min(chain.room.len());
    let answer = answer.get_mut(..room).unwrap_or_default();
    let filled = guest.answer(said, answer);
    chain.copy_to(0, answer.get(..filled).unwrap_or_default())?;
    Ok(filled)
}

/// Answers a request to write. What is large and lies in one piece goes from there to the device.
fn write(
    chain: &Chain,
    head: &Head,
    (begin, len): (usize, usize),
    guest: &Guest,
    scratch: &mut Scratch,
) -> Result<usize, Nowhere> {
    let Scratch { said, answer } = scratch;
    if chain.said.len() != begin + len || begin + len > Guest::LONGEST {
        return refuse(chain, head.bytes());
    }
    let answer = answer.before_page(Guest::ANSWER_HEADER);
    let room = answer.len().min(chain.room.len());
    let answer = answer.get_mut(..room).unwrap_or_default();
    let data = chain.said.part(begin, len);
    let straight = match data.as_slice() {
        [one] if len >= LARGE => chain.lend(*one),
        _ => None,
    };
    let filled = match straight {
        Some(data) => {
            let before = head.bytes().get(..begin).unwrap_or_default();
            guest.write(before, data, answer)
        }
        None => {
            let said = said.before_page(begin);
            let len = chain.copy_from(0, said)?;
            guest.answer(said.get(..len).unwrap_or_default(), answer)
        }
    };
    chain.copy_to(0, answer.get(..filled).unwrap_or_default())?;
    Ok(filled)
}

/// Answers a request to read. Data goes straight to the guest's memory, unless that is large and in
/// many small pieces: to read it in one piece and copy it is quicker then.
fn read(
    chain: &mut Chain,
    head: &Head,
    len: usize,
    guest: &Guest,
    scratch: &mut Scratch,
) -> Result<usize, Nowhere> {
    let said = head.bytes();
    let room = chain.room.len() - Guest::ANSWER_HEADER;
    if len > room || len > Guest::LONGEST {
        return refuse(chain, said);
    }
    let pieces = chain.room.part(Guest::ANSWER_HEADER, len);
    let is_scattered = len >= LARGE && pieces.iter().any(|(_, len)| *len < LARGE.min(len / 4));
    let read = if is_scattered {
        let into = scratch.answer.before_page(0);
        let into = into.get_mut(..len).unwrap_or_default();
        let read = guest.read(said, 0, into);
        if let Ok(read) = read {
            let data = into.get(..read).unwrap_or_default();
            chain.copy_to(Guest::ANSWER_HEADER, data)?;
        }
        read
    } else {
        read_pieces(chain, &pieces, said, guest, &mut scratch.answer)?
    };
    chain.copy_to(0, &Guest::header(said, read))?;
    Ok(Guest::ANSWER_HEADER + read.unwrap_or(0))
}

fn read_pieces(
    chain: &mut Chain,
    pieces: &[(GuestAddress, usize)],
    said: &[u8],
    guest: &Guest,
    scratch: &mut Aligned,
) -> Result<Result<usize, Refused>, Nowhere> {
    let mut done = 0;
    for &piece in pieces {
        let read = if let Some(into) = chain.lend_mut(piece) {
            guest.read(said, done, into)
        } else {
            // It may lie in several regions of the guest's memory.
            chain.has(piece)?;
            let into = scratch.before_page(0);
            let into = into.get_mut(..piece.1).unwrap_or_default();
            let read = guest.read(said, done, into);
            let data = into.get(..read.unwrap_or(0)).unwrap_or_default();
            chain.copy_to(Guest::ANSWER_HEADER + done, data)?;
            read
        };
        match read {
            Ok(read) => {
                done += read;
                if read < piece.1 {
                    break;
                }
            }
            // What was read before a failure counts; the next request meets it first.
            Err(e) if done == 0 => return Ok(Err(e)),
            Err(_) => break,
        }
    }
    Ok(Ok(done))
}
