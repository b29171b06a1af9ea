//! Listing many directories one after the other.

use super::readdir::readdir;
use crate::Result;
use crate::dir::{Cookie, Entry, readdir_around};
use crate::fs::Fs;
use crate::inode::TableWindow;
use extant_format::Ino;
use std::ops::ControlFlow;

/// Lists directories by their inode numbers, for a walk that wants names and no more.
///
/// On a file system that is open for reading, and whose device keeps what was read, this goes
/// around the caches: of each directory the record and the blocks are read into memory that the
/// next one uses again. Elsewhere it is [`readdir`].
///
/// It belongs to one file system: what it has in memory is taken for that of the next call.
#[derive(Debug, Default)]
pub struct DirReader {
    table: TableWindow,
    blocks: Vec<u8>,
}

impl DirReader {
    /// Calls `visit` with the entries of a directory, `.` and `..` among them, in the order they
    /// are stored in, until it breaks. Returns the value it broke with.
    ///
    /// # Errors
    /// As for [`Fs::named_inode`], which the root need not have, and [`readdir`].
    pub fn list<B>(
        &mut self,
        fs: &Fs,
        dir: Ino,
        visit: impl FnMut(Entry<'_>) -> ControlFlow<B>,
    ) -> Result<Option<B>> {
        if dir == Ino::ROOT {
            return readdir(fs, &*fs.inode(dir)?, Cookie::START, visit);
        }
        if fs.journal().is_ok() || !fs.device().keeps_what_is_read() {
            return readdir(fs, &*fs.named_inode(dir)?, Cookie::START, visit);
        }
        let inode = self.table.named_inode(fs, dir)?;
        readdir_around(fs, &inode, &mut self.blocks, visit)
    }
}
