//! A stream of bytes, taken apart into messages: a header, and content that is not looked at.

use super::ledger::Ledger;

/// Bytes of the longest header.
const LONGEST: usize = 64 << 10;

/// What a header says.
pub(super) enum Step {
    /// It has at least so many bytes in all, more than there are yet.
    More(usize),
    /// It is complete, and so many bytes of content follow.
    Content(u64),
}

/// What messages mean that go one way over one connection.
pub(super) trait Grammar: Send {
    /// Looks at the beginning of a message, at least one byte of it.
    ///
    /// # Errors
    /// What it is that is not known.
    fn step(&mut self, header: &[u8], ledger: &mut Ledger) -> Result<Step, String>;
}

/// One way over one connection.
pub(super) struct Messages {
    grammar: Box<dyn Grammar>,
    header: Vec<u8>,
    wanted: usize,
    content: u64,
    is_lost: bool,
}

impl Messages {
    pub(super) fn new(grammar: impl Grammar + 'static) -> Self {
        Self {
            grammar: Box::new(grammar),
            header: Vec::new(),
            wanted: 1,
            content: 0,
            is_lost: false,
        }
    }

    /// Takes what comes next, and enters what it means.
    ///
    /// # Errors
    /// What it is that is not known, once.
    pub(super) fn take(&mut self, mut bytes: &[u8], ledger: &mut Ledger) -> Result<(), String> {
        while !bytes.is_empty() && !self.is_lost {
            if self.content > 0 {
                let n = self.content.min(bytes.len() as u64);
                self.content -= n;
                bytes = bytes.get(n as usize..).unwrap_or_default();
                continue;
            }
            let n = (self.wanted - self.header.len()).min(bytes.len());
            let (some, rest) = bytes.split_at(n);
            self.header.extend_from_slice(some);
            bytes = rest;
            if self.header.len() < self.wanted {
                break;
            }
            match self.grammar.step(&self.header, ledger) {
                Ok(Step::More(wanted)) if self.header.len() < wanted && wanted <= LONGEST => {
                    self.wanted = wanted;
                }
                Ok(Step::Content(content)) => {
                    self.header.clear();
                    self.wanted = 1;
                    self.content = content;
                }
                Ok(Step::More(wanted)) => {
                    self.is_lost = true;
                    return Err(format!("a header of {wanted} bytes"));
                }
                Err(what) => {
                    self.is_lost = true;
                    return Err(what);
                }
            }
        }
        Ok(())
    }
}
