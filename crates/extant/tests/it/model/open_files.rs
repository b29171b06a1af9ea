//! Files that are kept open over many operations, whatever becomes of their names.
//!
//! While a file has a name, what is done to it through the open file is an operation on that name,
//! which the model knows. When the last name goes, its content is remembered here, and changes with
//! what is done to the file.

use extant::File;
use extant_testkit::model::{Op, State, Tag, tagged};

/// What is done to a file that is open.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Writes at a place.
    Write {
        offset: u64,
        len: u64,
    },
    /// Writes at the end.
    Append {
        len: u64,
    },
    /// Sets the size.
    Truncate {
        size: u64,
    },
    Fsync,
    Fdatasync,
    /// Reads at a place, perhaps past the end.
    Read {
        offset: u64,
        len: u64,
    },
}

impl Change {
    /// Gives the change as an operation on `path`, by which the file can be reached; `None` for
    /// what changes nothing.
    pub(super) fn on(self, path: &str, state: &State) -> Option<Op> {
        let path = path.to_owned();
        Some(match self {
            Change::Write { offset, len } => Op::Write { path, offset, len },
            Change::Append { len } => {
                let offset = state.size_of(&path)?;
                Op::Write { path, offset, len }
            }
            Change::Truncate { size } => Op::Truncate { path, size },
            Change::Fsync => Op::Fsync { path },
            Change::Fdatasync => Op::Fdatasync { path },
            Change::Read { .. } => return None,
        })
    }
}

/// A file that is open.
pub(super) struct Kept {
    pub(super) file: File,
    /// Which file of the model it is.
    pub(super) identity: u32,
    /// What is in it: up to date when it has no name, and before each step.
    content: Vec<u8>,
}

impl Kept {
    pub(super) fn new(file: File, identity: u32) -> Self {
        let content = Vec::new();
        Self {
            file,
            identity,
            content,
        }
    }

    /// Whether the file has a name.
    pub(super) fn is_named(&self, state: &State) -> bool {
        !state.paths_of(self.identity).is_empty()
    }

    /// Notes the content while there is a name by which it was compared with the model's.
    pub(super) fn note_content(&mut self, state: &State) {
        if self.is_named(state) {
            self.content = read(&self.file, 0, self.file.metadata().len());
        }
    }

    /// Does `change`; how many bytes were written.
    pub(super) fn perform(&self, change: Change, tag: Tag, size: u64) -> extant::Result<u64> {
        match change {
            Change::Write { offset, len } => {
                let bytes = tagged(tag, offset, len);
                self.file.write_at(&bytes, offset).map(|n| n as u64)
            }
            Change::Append { len } => {
                let (at, written) = self.file.append(&tagged(tag, size, len))?;
                assert_eq!(at, size, "where an append begins");
                Ok(written as u64)
            }
            Change::Truncate { size } => self.file.set_len(size).map(|()| 0),
            Change::Fsync => self.file.sync_all().map(|()| 0),
            Change::Fdatasync => self.file.sync_data().map(|()| 0),
            Change::Read { offset, len } => {
                let end = |at: u64| at.min(self.content.len() as u64) as usize;
                let expected = &self.content[end(offset)..end(offset + len)];
                assert!(
                    read(&self.file, offset, len) == expected,
                    "reading {offset}+{len} of an open file"
                );
                Ok(0)
            }
        }
    }

    /// Does `change` to a file without a name, and to what is remembered of it.
    pub(super) fn perform_nameless(&mut self, change: Change, tag: Tag) {
        let size = self.content.len() as u64;
        let done = self.perform(change, tag, size).unwrap();
        let offset = match change {
            Change::Write { offset, .. } => offset,
            Change::Append { .. } => size,
            Change::Truncate { size } => return self.content.resize(size as usize, 0),
            Change::Fsync | Change::Fdatasync | Change::Read { .. } => return,
        };
        let end = (offset + done) as usize;
        if self.content.len() < end {
            self.content.resize(end, 0);
        }
        self.content[offset as usize..end].copy_from_slice(&tagged(tag, offset, done));
    }

    /// Compares what only the open file can tell.
    pub(super) fn check(&self, state: &State) {
        let names = state.paths_of(self.identity).len();
        let meta = self.file.metadata();
        assert_eq!(meta.nlink() as usize, names, "links of an open file");
        if names == 0 {
            assert_eq!(meta.len(), self.content.len() as u64);
            let found = read(&self.file, 0, meta.len() + 1);
            assert!(found == self.content, "content of a file without a name");
        }
    }
}

/// Reads until the end, or until so many bytes are read.
fn read(file: &File, offset: u64, len: u64) -> Vec<u8> {
    let mut content = vec![0; len as usize];
    let mut done = 0;
    while done < content.len() {
        match file.read_at(&mut content[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) => panic!("{e}"),
        }
    }
    content.truncate(done);
    content
}
