//! What clients and servers of HTTP/1.1 say: requests without content or with a length, and answers
//! in their order.
//!
//! Source: RFC 9112.

use super::ledger::Ledger;
use super::lock;
use super::messages::{Grammar, Messages, Step};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// What was asked over a connection and is not answered: the chain, and whether the answer is a
/// header alone.
type Pending = VecDeque<(u64, bool)>;

/// The two ways over a connection that ended the chain `base`.
pub(super) fn conversation(base: u64) -> (Messages, Messages) {
    let pending = Arc::default();
    let client = Client {
        base,
        pending: Arc::clone(&pending),
    };
    (Messages::new(client), Messages::new(Server { pending }))
}

struct Client {
    base: u64,
    pending: Arc<Mutex<Pending>>,
}

struct Server {
    pending: Arc<Mutex<Pending>>,
}

/// The first line and the fields of a header that is complete.
fn lines(header: &[u8]) -> Option<(String, Vec<(String, String)>)> {
    let text = String::from_utf8_lossy(header.strip_suffix(b"\r\n\r\n")?);
    let mut lines = text.split("\r\n");
    let first = lines.next()?.to_owned();
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Some((first, lines.filter_map(field).collect()))
}

/// Bytes of content, if the fields say how many.
fn length(fields: &[(String, String)]) -> Result<Option<u64>, String> {
    if fields.iter().any(|(name, _)| name == "transfer-encoding") {
        return Err("content of HTTP without a length".to_owned());
    }
    match fields.iter().find(|(name, _)| name == "content-length") {
        None => Ok(None),
        Some((_, value)) => match value.parse() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) => Err(format!("a content of HTTP of {value} bytes")),
        },
    }
}

impl Grammar for Client {
    fn step(&mut self, header: &[u8], ledger: &mut Ledger) -> Result<Step, String> {
        let Some((first, fields)) = lines(header) else {
            return Ok(Step::More(header.len() + 1));
        };
        if !first.ends_with(" HTTP/1.1") {
            return Err(format!("a request of HTTP that begins with {first}"));
        }
        let is_head = first.starts_with("HEAD ");
        let chain = ledger.asked(self.base);
        lock(&self.pending).push_back((chain, is_head));
        Ok(Step::Content(length(&fields)?.unwrap_or(0)))
    }
}

impl Grammar for Server {
    fn step(&mut self, header: &[u8], ledger: &mut Ledger) -> Result<Step, String> {
        let Some((first, fields)) = lines(header) else {
            return Ok(Step::More(header.len() + 1));
        };
        let status = first.split(' ').nth(1).unwrap_or_default();
        if !first.starts_with("HTTP/1.1 ") || status.len() != 3 {
            return Err(format!("an answer of HTTP that begins with {first}"));
        }
        if status.starts_with('1') {
            return Ok(Step::Content(0));
        }
        let Some((chain, is_head)) = lock(&self.pending).pop_front() else {
            return Err("an answer of HTTP to no request".to_owned());
        };
        ledger.answered(chain);
        ledger.done();
        if is_head || matches!(status, "204" | "304") {
            return Ok(Step::Content(0));
        }
        match length(&fields)? {
            Some(bytes) => Ok(Step::Content(bytes)),
            None => Err("an answer of HTTP without a length".to_owned()),
        }
    }
}
