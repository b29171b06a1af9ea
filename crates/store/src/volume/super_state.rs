//! The superblock of a file system open for writing: counts, the head of the orphan list, errors.
//!
//! The counts belong to the allocator and the head of the list to the orphans: both change only
//! under a handle, and are exact when commit asks for them with handles drained. Errors lie here,
//! under a lock that is a leaf of the order.
//!
//! The journal writes the superblock like any other block of metadata, also when it is marked as in
//! use: it has two sectors, its checksum lies in the second, and a crash may leave one of each. The
//! log has an image of it then, from which it is restored: see `torn`.
//!
//! Two things go past the log. One is the mark as clean, when all else is home: the last
//! transaction, which is in the log until that is durable, has the superblock as it was before.
//!
//! The other is the record of the error that stopped the journal. That is what was
//! committed last, never with counts of a transaction that may not happen. Should the machine stop
//! within that very write, and no transaction in the log hold the superblock, its checksum is
//! wrong, and a backup has to help: as under Linux.

use super::Label;
use crate::{Error, Place, Result};
use extant_blockdev::SharedDevice;
use extant_format::features::{Compat, RoCompat};
use extant_format::superblock::{
    RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock,
};
use extant_format::{BlockSize, Ino, Pblk};
use extant_sync::{LockClass, Mutex, Rank};
use std::sync::atomic::{AtomicBool, Ordering};

static FIELDS: LockClass = LockClass::new("superblock fields", Rank::Leaf);

/// What the superblock repeats of others: exact when no handle is inside.
#[derive(Clone, Copy, Debug)]
pub struct SuperCounts {
    /// Free blocks.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u32,
    /// The first inode of the list of orphans.
    pub orphan_head: Option<Ino>,
    /// Whether nothing is noted in the orphan file, if there is one.
    pub is_orphan_file_empty: bool,
}

/// What the superblock says now, and what it said at the last commit.
#[derive(Debug)]
pub struct SuperState {
    fields: Mutex<Fields>,
    /// It has changed since it was captured last. What changes is stored before this is set, and a
    /// capture takes this back before it looks: so a caller without a handle, which finds it set,
    /// is in that capture or has the flag set again for the next one.
    touched: AtomicBool,
    /// The block that holds the superblock.
    block: Pblk,
    /// Where it lies there.
    offset: usize,
    /// The block around it: a boot loader may be there.
    around: Box<[u8]>,
}

#[derive(Debug)]
struct Fields {
    /// As the last commit, or opening, left it.
    committed: Superblock,
    /// As the commit that is under way has it.
    captured: Option<Superblock>,
    errors: Errors,
    /// The file system is being closed: the next commit says that it is clean.
    clean_at_commit: bool,
    /// It was not when it was opened, and needs a check.
    found_unclean: bool,
    /// Features that files need by now.
    needed: RoCompat,
    /// What it is called from the next commit on.
    label: Option<Label>,
}

/// Errors seen since opening, and what was on record then.
#[derive(Clone, Debug)]
struct Errors {
    count_before: u32,
    had_first: bool,
    count: u32,
    first: Option<Seen>,
    last: Option<Seen>,
}

/// One of them.
#[derive(Clone, Debug)]
struct Seen {
    time: u64,
    ino: u32,
    block: u64,
    what: [u8; 32],
    code: u8,
}

impl SuperState {
    /// The state of a file system whose superblock is `superblock`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(device: &SharedDevice, superblock: Superblock) -> Result<Self> {
        let size = superblock.block_size();
        let (block, offset) = place(size);
        let mut around = vec![0; size.len()].into_boxed_slice();
        let at = size.offset_of(block).unwrap_or(0);
        device.read_at(at, &mut around)?;
        let fields = Fields {
            errors: Errors {
                count_before: superblock.error_count(),
                had_first: superblock.first_error().is_some(),
                count: 0,
                first: None,
                last: None,
            },
            committed: superblock,
            captured: None,
            clean_at_commit: false,
            found_unclean: false,
            needed: RoCompat::empty(),
            label: None,
        };
        Ok(Self {
            fields: Mutex::new(&FIELDS, fields),
            touched: AtomicBool::new(false),
            block,
            offset,
            around,
        })
    }

    /// The block that holds the superblock.
    pub fn block(&self) -> Pblk {
        self.block
    }

    /// Registers the superblock in the running transaction, or in the one after it when the caller
    /// has no handle.
    #[inline]
    pub fn touch(&self) {
        // Read by every operation that allocates, so it is written once for each transaction only.
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Release);
        }
    }

    /// Whether the next commit says that the file system is clean.
    pub fn is_clean_at_commit(&self) -> bool {
        self.fields.lock().clean_at_commit
    }

    /// Whether the superblock changed since it was captured last.
    pub fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Acquire)
    }

    /// Captures the superblock of this moment, which must be one without handles. It counts as
    /// committed from `SuperState::set_committed` on.
    pub fn capture(&self, now_is: &SuperCounts) -> Superblock {
        self.touched.store(false, Ordering::Relaxed);
        let mut fields = self.fields.lock();
        let mut superblock = fields.committed.clone();
        superblock.set_orphan_list_head(now_is.orphan_head);
        superblock.set_free_blocks_count(now_is.free_blocks);
        superblock.set_free_inodes_count(now_is.free_inodes);
        superblock.set_write_time(now());
        if fields.clean_at_commit {
            superblock.set_needs_recovery(false);
            if !fields.found_unclean {
                let state = superblock.state() | State::CLEAN;
                superblock.set_state(state);
            }
            if now_is.is_orphan_file_empty {
                superblock.set_orphan_present(false);
            }
        }
        if !superblock.features().ro_compat.contains(fields.needed) {
            // No other field depends on them.
            superblock = superblock
                .with(|raw| {
                    let bits = raw.feature_ro_compat.get() | fields.needed.bits();
                    raw.feature_ro_compat.set(bits);
                })
                .unwrap_or(superblock);
        }
        if let Some(label) = &fields.label {
            superblock = label.in_superblock(&superblock);
        }
        let superblock = fields.errors.store(&superblock);
        fields.captured = Some(superblock.clone());
        superblock
    }

    /// What the file system is called.
    pub fn label(&self) -> Vec<u8> {
        let fields = self.fields.lock();
        match &fields.label {
            Some(label) => label.bytes(),
            None => fields.committed.label().to_vec(),
        }
    }

    /// Has it called that from the next commit on that has the superblock.
    pub fn set_label(&self, label: Label) {
        self.fields.lock().label = Some(label);
    }

    /// A file needs a feature on which no other field depends: `large_file`, or `verity`. The file
    /// system has it from the next commit on. Returns whether it had it not, and nobody has noted
    /// it before.
    pub fn note_ro_compat(&self, feature: RoCompat) -> bool {
        let is_new = {
            let mut fields = self.fields.lock();
            let known = fields.needed | fields.committed.features().ro_compat;
            fields.needed |= feature;
            !known.contains(feature)
        };
        if is_new {
            self.touch();
        }
        is_new
    }

    /// The block with `superblock` in it, as it is stored.
    pub fn encode(&self, superblock: &Superblock) -> Box<[u8]> {
        let mut block = self.around.clone();
        if let Some(place) = block.get_mut(self.offset..self.offset + SUPERBLOCK_LEN) {
            place.copy_from_slice(&superblock.encode());
        }
        block
    }

    /// Notes that the superblock captured last is durable, if it was captured since the last call.
    pub(crate) fn set_committed(&self) {
        let mut fields = self.fields.lock();
        if let Some(superblock) = fields.captured.take() {
            fields.committed = superblock;
        }
    }

    /// Remembers an error, to be recorded with the next commit or by
    /// [`SuperState::write_errors`].
    pub(crate) fn note_error(&self, error: &Error) {
        let seen = Seen::of(error);
        let mut fields = self.fields.lock();
        let errors = &mut fields.errors;
        errors.count = errors.count.saturating_add(1);
        errors.first.get_or_insert_with(|| seen.clone());
        errors.last = Some(seen);
    }

    /// Writes the superblock with the errors seen, past the log. Does not flush.
    pub(crate) fn write_errors(&self, device: &SharedDevice) -> Result<()> {
        let (superblock, errors) = {
            let fields = self.fields.lock();
            (fields.committed.clone(), fields.errors.clone())
        };
        let bytes = errors.store(&superblock).encode();
        Ok(device.write_at(SUPERBLOCK_OFFSET, &bytes)?)
    }

    /// The file system was not marked as clean when it was opened: it is not to be when it is
    /// closed, until it has been checked.
    pub fn note_found_unclean(&self) {
        self.fields.lock().found_unclean = true;
    }

    /// Makes the superblock say from now on that the file system is clean, if it was when it was
    /// opened. Everything committed is home, and there will be no more changes.
    pub fn mark_clean(&self) {
        self.fields.lock().clean_at_commit = true;
    }

    /// Makes the superblock say from now on that the file system is in use.
    pub fn mark_dirty(&self) {
        let mut fields = self.fields.lock();
        fields.clean_at_commit = false;
        fields.committed = mark_in_use(&fields.committed);
    }
}

impl Errors {
    /// `superblock` with these errors added to those it remembers.
    fn store(&self, superblock: &Superblock) -> Superblock {
        let (Some(first), Some(last)) = (&self.first, &self.last) else {
            return superblock.clone();
        };
        let changed = superblock.with(|raw| {
            if !self.had_first {
                raw.first_error_time.set(first.time as u32);
                raw.first_error_time_hi = (first.time >> 32) as u8;
                raw.first_error_ino.set(first.ino);
                raw.first_error_block.set(first.block);
                raw.first_error_func = first.what;
                raw.first_error_line.set(0);
                raw.first_error_errcode = first.code;
            }
            raw.last_error_time.set(last.time as u32);
            raw.last_error_time_hi = (last.time >> 32) as u8;
            raw.last_error_ino.set(last.ino);
            raw.last_error_block.set(last.block);
            raw.last_error_func = last.what;
            raw.last_error_line.set(0);
            raw.last_error_errcode = last.code;
            raw.error_count
                .set(self.count_before.saturating_add(self.count));
            raw.state.set(raw.state.get() | State::ERRORS.bits());
        });
        // None of these fields is checked against others.
        changed.unwrap_or_else(|_| superblock.clone())
    }
}

/// Error codes of the superblock's records.
mod code {
    pub(crate) const UNKNOWN: u8 = 1;
    pub(crate) const IO: u8 = 2;
    pub(crate) const BAD_CHECKSUM: u8 = 4;
    pub(crate) const CORRUPTED: u8 = 5;
    pub(crate) const NO_SPACE: u8 = 6;
}

impl Seen {
    fn of(error: &Error) -> Self {
        let (mut ino, mut block) = (0, 0);
        let (what, code) = match error {
            Error::Corrupt { place, source } => {
                match *place {
                    Place::Inode(i) | Place::FileBlock(i, _) => ino = i.get(),
                    Place::InodeBlock(i, b) => (ino, block) = (i.get(), b.get()),
                    Place::Block(b) => block = b.get(),
                    _ => {}
                }
                let bad_sum = source.is_checksum();
                let code = if bad_sum {
                    code::BAD_CHECKSUM
                } else {
                    code::CORRUPTED
                };
                ("extant_corrupt_metadata", code)
            }
            Error::BlockOutOfRange { block: b, .. } => {
                block = b.get();
                ("extant_block_out_of_range", code::CORRUPTED)
            }
            Error::Log(_) => ("extant_journal_write", code::IO),
            Error::Device(_) => ("extant_metadata_write", code::IO),
            Error::NoSpace => ("extant", code::NO_SPACE),
            _ => ("extant", code::UNKNOWN),
        };
        let mut name = [0; 32];
        for (to, from) in name.iter_mut().zip(what.bytes()) {
            *to = from;
        }
        Self {
            time: now(),
            ino,
            block,
            what: name,
            code,
        }
    }
}

/// Carries the errors that `before` remembers over to `after`, in which replay may have put an
/// older record: errors are recorded past the log.
pub fn keep_errors(before: &Superblock, after: &Superblock) -> Superblock {
    if before.error_count() <= after.error_count() {
        return after.clone();
    }
    let from: &RawSuperblock = before.raw();
    let changed = after.with(|raw| {
        raw.first_error_time = from.first_error_time;
        raw.first_error_time_hi = from.first_error_time_hi;
        raw.first_error_ino = from.first_error_ino;
        raw.first_error_block = from.first_error_block;
        raw.first_error_func = from.first_error_func;
        raw.first_error_line = from.first_error_line;
        raw.first_error_errcode = from.first_error_errcode;
        raw.last_error_time = from.last_error_time;
        raw.last_error_time_hi = from.last_error_time_hi;
        raw.last_error_ino = from.last_error_ino;
        raw.last_error_block = from.last_error_block;
        raw.last_error_func = from.last_error_func;
        raw.last_error_line = from.last_error_line;
        raw.last_error_errcode = from.last_error_errcode;
        raw.error_count = from.error_count;
        raw.state.set(raw.state.get() | State::ERRORS.bits());
    });
    changed.unwrap_or_else(|_| after.clone())
}

/// The superblock of a file system that is opened.
pub fn mark_open(superblock: &Superblock) -> Superblock {
    let mut marked = mark_in_use(superblock);
    marked.set_mount_time(now());
    marked.set_write_time(now());
    let marked = marked
        .with(|raw| {
            let count = raw.mnt_count.get().saturating_add(1);
            raw.mnt_count.set(count);
        })
        .unwrap_or(marked);
    debug_assert!(
        marked.has_ro_compat(RoCompat::ORPHAN_PRESENT) || !marked.has_compat(Compat::ORPHAN_FILE)
    );
    marked
}

/// The superblock of a file system in use: after a crash its journal waits for replay, or, without
/// a journal, it needs a check.
fn mark_in_use(superblock: &Superblock) -> Superblock {
    let mut marked = superblock.clone();
    let has_journal = marked.has_compat(Compat::HAS_JOURNAL);
    if has_journal {
        marked.set_needs_recovery(true);
    } else {
        let state = marked.state() - State::CLEAN;
        marked.set_state(state);
    }
    if marked.has_compat(Compat::ORPHAN_FILE) {
        marked.set_orphan_present(true);
    }
    marked
}

/// The block with the superblock, and the superblock's offset in it.
pub fn place(size: BlockSize) -> (Pblk, usize) {
    let bytes = u64::from(size.bytes());
    let block = Pblk::new(SUPERBLOCK_OFFSET / bytes);
    (block, (SUPERBLOCK_OFFSET % bytes) as usize)
}

/// Seconds since 1970.
fn now() -> u64 {
    crate::clock::seconds()
}
