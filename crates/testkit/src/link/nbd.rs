//! What clients and servers of NBD say: the fixed newstyle negotiation, requests, and simple and
//! structured replies.
//!
//! Source: the NBD protocol document, `doc/proto.md` of the project NetworkBlockDevice/nbd.

use super::ledger::Ledger;
use super::lock;
use super::messages::{Grammar, Messages, Step};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

/// The first half of what begins an option, `IHAV`.
const OPTION: u32 = u32::from_be_bytes(*b"IHAV");
/// The first half of what begins an answer to an option.
const OPTION_REPLY: u32 = 0x0003_e889;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;

const OPT_EXPORT_NAME: u32 = 1;
const OPT_STARTTLS: u32 = 5;

/// Answers to an option that others follow: SERVER, INFO, META_CONTEXT.
const NOT_LAST: [u32; 3] = [2, 3, 4];

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

/// The flag of the last chunk of a structured reply.
const DONE: u16 = 1;

/// What was asked over a connection and is not answered.
#[derive(Default)]
struct Pending {
    /// The chains of options.
    options: VecDeque<u64>,
    /// By cookies: the chain, and the bytes of data of a simple reply without an error.
    requests: HashMap<u64, (u64, u64)>,
}

/// The two ways over a connection that ended the chain `base`.
pub(super) fn conversation(base: u64) -> (Messages, Messages) {
    let pending = Arc::default();
    let client = Client {
        base,
        pending: Arc::clone(&pending),
        has_begun: false,
    };
    let server = Server {
        base,
        pending,
        has_begun: false,
    };
    (Messages::new(client), Messages::new(server))
}

struct Client {
    base: u64,
    pending: Arc<Mutex<Pending>>,
    has_begun: bool,
}

struct Server {
    base: u64,
    pending: Arc<Mutex<Pending>>,
    has_begun: bool,
}

fn number<const N: usize>(header: &[u8], at: usize) -> Option<[u8; N]> {
    header.get(at..at + N)?.try_into().ok()
}

fn u16_at(header: &[u8], at: usize) -> u16 {
    number(header, at).map_or(0, u16::from_be_bytes)
}

fn u32_at(header: &[u8], at: usize) -> u32 {
    number(header, at).map_or(0, u32::from_be_bytes)
}

fn u64_at(header: &[u8], at: usize) -> u64 {
    number(header, at).map_or(0, u64::from_be_bytes)
}

impl Grammar for Client {
    fn step(&mut self, header: &[u8], ledger: &mut Ledger) -> Result<Step, String> {
        if header.len() < 4 {
            return Ok(Step::More(4));
        }
        if !self.has_begun {
            // Its flags.
            self.has_begun = true;
            return Ok(Step::Content(0));
        }
        let mut pending = lock(&self.pending);
        match u32_at(header, 0) {
            OPTION if header.len() < 16 => Ok(Step::More(16)),
            OPTION => match u32_at(header, 8) {
                option @ (OPT_EXPORT_NAME | OPT_STARTTLS) => {
                    Err(format!("option {option} of NBD, which is not counted"))
                }
                _ => {
                    pending.options.push_back(ledger.greeted(self.base));
                    Ok(Step::Content(u32_at(header, 12).into()))
                }
            },
            REQUEST if header.len() < 28 => Ok(Step::More(28)),
            REQUEST => {
                let len = u64::from(u32_at(header, 24));
                let command = u16_at(header, 6);
                if command != DISCONNECT {
                    let data = if command == READ { len } else { 0 };
                    let asked = (ledger.asked(self.base), data);
                    pending.requests.insert(u64_at(header, 8), asked);
                }
                Ok(Step::Content(if command == WRITE { len } else { 0 }))
            }
            other => Err(format!("a request of NBD that begins with {other:#x}")),
        }
    }
}

impl Grammar for Server {
    fn step(&mut self, header: &[u8], ledger: &mut Ledger) -> Result<Step, String> {
        if !self.has_begun {
            if header.len() < 18 {
                return Ok(Step::More(18));
            }
            if !header.starts_with(b"NBDMAGICIHAVEOPT") {
                return Err("the server does not speak the newstyle of NBD".to_owned());
            }
            self.has_begun = true;
            ledger.answered(self.base + 1);
            return Ok(Step::Content(0));
        }
        if header.len() < 4 {
            return Ok(Step::More(4));
        }
        let mut pending = lock(&self.pending);
        match u32_at(header, 0) {
            OPTION_REPLY if header.len() < 20 => Ok(Step::More(20)),
            OPTION_REPLY => {
                let chain = pending.options.front().copied();
                let Some(chain) = chain else {
                    return Err("an answer to an option that was not asked for".to_owned());
                };
                ledger.answered(chain);
                if !NOT_LAST.contains(&u32_at(header, 12)) {
                    pending.options.pop_front();
                }
                Ok(Step::Content(u32_at(header, 16).into()))
            }
            SIMPLE_REPLY if header.len() < 16 => Ok(Step::More(16)),
            SIMPLE_REPLY => {
                let Some((chain, data)) = pending.requests.remove(&u64_at(header, 8)) else {
                    return Err("a reply to a request that was not made".to_owned());
                };
                ledger.answered(chain);
                ledger.done();
                let failed = u32_at(header, 4) != 0;
                Ok(Step::Content(if failed { 0 } else { data }))
            }
            CHUNK if header.len() < 20 => Ok(Step::More(20)),
            CHUNK => {
                let cookie = u64_at(header, 8);
                let Some(&(chain, _)) = pending.requests.get(&cookie) else {
                    return Err("a part of a reply to a request that was not made".to_owned());
                };
                ledger.answered(chain);
                if u16_at(header, 4) & DONE != 0 {
                    pending.requests.remove(&cookie);
                    ledger.done();
                }
                Ok(Step::Content(u32_at(header, 16).into()))
            }
            other => Err(format!("a reply of NBD that begins with {other:#x}")),
        }
    }
}
