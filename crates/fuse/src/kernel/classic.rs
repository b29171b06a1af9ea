//! Requests that are read from the device, one after the other by each thread.

use super::turn::Turn;
use super::{Device, LARGEST_TRANSFER};
use crate::answer::Answerer;
use crate::notifier::Notifier;
use crate::protocol::{IN_HEADER, OUT_HEADER, Opcode, OutHeader, Reply, Request};
use crate::service::{Errno, Node};
use crate::threads::WriteBackThread;
use std::io;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Memory for one message with the largest transfer, which comes to lie at the beginning of a page:
/// what goes to and from a device directly has to.
struct Message {
    bytes: Vec<u8>,
    begin: usize,
    /// Where that page begins.
    page: usize,
}

const PAGE: usize = 4096;
/// Bytes before the data of a write: the header, and the fixed part.
const BEFORE_DATA: usize = IN_HEADER + 40;
/// Names and attributes are shorter than transfers, but with what comes before them.
const MOST: usize = LARGEST_TRANSFER as usize + PAGE;

impl Message {
    /// Makes room with `before` bytes before a page.
    fn new(before: usize) -> Self {
        let bytes = vec![0; MOST + 2 * PAGE];
        let page = bytes.as_ptr().align_offset(PAGE) + PAGE;
        let begin = page - before;
        Self { bytes, begin, page }
    }

    fn whole(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.begin..).unwrap_or_default()
    }

    /// Lends the room from the page on: what is short is in one page, which the kernel has to find
    /// once.
    fn at_page(&mut self) -> &mut [u8] {
        self.bytes.get_mut(self.page..).unwrap_or_default()
    }
}

/// Answers what comes through `device`, until the mount is over, when it is this thread's `turn`.
///
/// # Errors
/// When the connection breaks off.
pub(super) fn run(
    device: &Arc<Device>,
    answerer: &Answerer,
    notifier: &Notifier,
    writeback: &WriteBackThread,
    mut turn: Turn<'_>,
) -> io::Result<()> {
    let mut incoming = Message::new(BEFORE_DATA);
    let mut outgoing = Message::new(OUT_HEADER);
    while let Some(len) = turn.next(device, incoming.whole())? {
        let bytes = incoming.whole().get(..len).unwrap_or_default();
        let Ok(request) = Request::parse(bytes, answerer.form()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the kernel sent what is no request",
            ));
        };
        turn.took(&request, answerer);
        if answerer.try_forget(&request) {
            turn.forgot(answerer);
            continue;
        }
        if answerer.waits_for_kernel(&request) {
            answer_when_written(device, answerer, notifier, writeback, bytes);
        } else {
            // What is read is transferred to a page, too.
            let outgoing = match request.opcode.map(|opcode| opcode.traits().reply) {
                Some(Reply::Data) => outgoing.whole(),
                _ => outgoing.at_page(),
            };
            answer(device, answerer, &request, outgoing);
        }
        if request.opcode == Some(Opcode::Destroy) {
            break;
        }
        turn.answered();
    }
    Ok(())
}

fn answer(device: &Device, answerer: &Answerer, request: &Request<'_>, outgoing: &mut [u8]) {
    let (head, body) = outgoing
        .split_at_mut_checked(OUT_HEADER)
        .unwrap_or_default();
    let (len, error) = match answerer.answer(request, body) {
        Ok(len) => (len, 0),
        Err(Errno(number)) => (0, -number),
    };
    let len = OUT_HEADER + len;
    let header = OutHeader {
        len: u32::try_from(len).unwrap_or(u32::MAX),
        error,
        unique: request.header.unique,
    };
    head.copy_from_slice(header.as_bytes());
    device.send(outgoing.get(..len).unwrap_or_default());
}

/// Answers in a thread of its own, after the kernel has written the file back. The kernel needs
/// answers of the other threads meanwhile, and all of them may be here at the same time.
fn answer_when_written(
    device: &Arc<Device>,
    answerer: &Answerer,
    notifier: &Notifier,
    writeback: &WriteBackThread,
    bytes: &[u8],
) {
    let (in_time, bytes) = (Arc::clone(device), bytes.to_vec());
    let (answerer, notifier) = (answerer.clone(), notifier.clone());
    let form = answerer.form();
    let unique = Request::parse(&bytes, form).map_or(0, |request| request.header.unique);
    let is_taken = writeback.run(move || {
        let Ok(request) = Request::parse(&bytes, form) else {
            return;
        };
        notifier.write_back(Node(request.header.node));
        let mut outgoing = vec![0; PAGE];
        answer(&in_time, &answerer, &request, &mut outgoing);
    });
    if !is_taken {
        tracing::error!("no thread for a file that becomes immutable");
        let header = OutHeader {
            len: OUT_HEADER as u32,
            error: -Errno::IO.0,
            unique,
        };
        device.send(header.as_bytes());
    }
}
