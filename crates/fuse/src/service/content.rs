//! File data.

use super::{Answer, Credentials, Errno, Node, Service};
use extant_core::inode::Held;
use extant_core::ops::{self, Caller, FallocateMode, OpContext};
use extant_format::inode::InodeFlags;

/// Modes of `fallocate`.
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const COLLAPSE_RANGE: u32 = 0x08;
const ZERO_RANGE: u32 = 0x10;
const INSERT_RANGE: u32 = 0x20;

/// Ways of `lseek` that a file system answers.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// What goes past the engine's memory is aligned to this, so that the two never share a page.
const PAGE: u64 = 4096;

/// How data comes to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// The kernel kept it back, and looks at errors only, not at how much was written.
    pub(crate) from_cache: bool,
    /// The kernel noted when it took it, and tells.
    pub(crate) is_dated: bool,
    pub(crate) clear_set_ids: bool,
}

/// The user ID that stands for all that take set-ID bits away: it is nobody's number.
const ANYBODY: u32 = u32::MAX;

/// Makes the user that changes a file if the kernel wants set-ID bits taken away. The kernel does
/// not name the groups. This user counts as one of the file's: set-group-ID without the group's
/// right to execute gives nobody any rights.
fn anybody(held: &Held) -> Caller {
    Caller::new(ANYBODY, held.view().disk().gid)
}

/// Finds the owner, which pays for data that the kernel kept back: it does not name the writer any
/// more. That the owner is in the file's group nobody knows.
fn owner(held: &Held) -> Credentials {
    Credentials {
        uid: held.view().disk().uid,
        gid: ANYBODY,
    }
}

impl Service {
    /// Reads into `buf`; less than all of it only at the end of the file.
    pub(crate) fn read(&self, node: Node, offset: u64, buf: &mut [u8]) -> Answer<usize> {
        let held = self.hold(node)?;
        let direct = self.goes_past_memory(offset, buf.len());
        let read = if direct {
            ops::pread_direct(&self.fs, &held, offset, buf)
        } else {
            ops::pread(&self.fs, &held, offset, buf)
        };
        read.map_err(|e| self.met(e))
    }

    /// Writes all of `data`, or as much as there is room for: which is an error for data that was
    /// kept back.
    pub(crate) fn write(
        &self,
        caller: Credentials,
        node: Node,
        offset: u64,
        data: &[u8],
        how: Writing,
    ) -> Answer<usize> {
        let held = self.hold(node)?;
        let is_told = caller.is_known() && !how.from_cache;
        let _spending = self.spending_for(if is_told { caller } else { owner(&held) });
        self.nodes.mark(&held);
        let anybody = anybody(&held);
        // Nobody tells when it was that something was appended to what may only grow.
        let is_dated = how.is_dated && !held.view().flags().contains(InodeFlags::APPEND);
        let by = match how.clear_set_ids {
            true => self.fs.acting_for(&anybody),
            false if is_dated => OpContext::for_earlier(&self.fs),
            // The writer has lost what there was to lose, or wrote to mapped memory, which takes
            // nothing.
            false if how.from_cache => OpContext::for_mapped(&self.fs),
            false => (&self.fs).into(),
        };
        let mut written = self.write_some(by, &held, offset, data)?;
        while how.from_cache && written < data.len() {
            let rest = data.get(written..).unwrap_or_default();
            match self.write_some(by, &held, offset + written as u64, rest)? {
                0 => return Err(Errno::NO_SPACE),
                more => written += more,
            }
        }
        Ok(written)
    }

    fn write_some(
        &self,
        by: OpContext<'_>,
        held: &Held,
        offset: u64,
        data: &[u8],
    ) -> Answer<usize> {
        if self.goes_past_memory(offset, data.len()) {
            Ok(ops::pwrite_direct(by, held, offset, data)?)
        } else {
            Ok(ops::pwrite(by, held, offset, data)?)
        }
    }

    fn goes_past_memory(&self, offset: u64, len: usize) -> bool {
        self.direct_from
            .is_some_and(|least| len >= least && (offset | len as u64).is_multiple_of(PAGE))
    }

    /// Makes durable what was written, and tells of failures since.
    pub(crate) fn fsync(&self, node: Node, data_only: bool) -> Answer {
        let held = self.hold(node)?;
        let mark = self.nodes.mark(&held);
        if data_only {
            ops::fdatasync_file(&self.fs, &held, &mark)?
        } else {
            ops::fsync_file(&self.fs, &held, &mark)?
        }
        Ok(())
    }

    pub(crate) fn fallocate(
        &self,
        caller: Credentials,
        node: Node,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Answer {
        let held = self.hold(node)?;
        let anybody = anybody(&held);
        let by = self.changing_for(caller, &anybody);
        let mode = mode.cast_unsigned();
        let keep_size = mode & KEEP_SIZE != 0;
        match mode & !KEEP_SIZE {
            0 => {
                let mode = FallocateMode { keep_size };
                ops::fallocate(by, &held, offset, len, mode)?;
            }
            PUNCH_HOLE if keep_size => ops::punch_hole(by, &held, offset, len)?,
            ZERO_RANGE => ops::zero_range(by, &held, offset, len, keep_size)?,
            COLLAPSE_RANGE if !keep_size => ops::collapse_range(by, &held, offset, len)?,
            INSERT_RANGE if !keep_size => ops::insert_range(by, &held, offset, len)?,
            _ => return Err(Errno::NOT_SUPPORTED),
        }
        self.sync_inode(&held)
    }

    /// Finds where data or a hole begins at or after `offset`, in bytes.
    pub(crate) fn lseek(&self, node: Node, offset: i64, whence: i32) -> Answer<u64> {
        let held = self.hold(node)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NO_DEVICE)?;
        let found = match whence.cast_unsigned() {
            SEEK_DATA => ops::seek_data_live(&self.fs, &held, offset),
            SEEK_HOLE => ops::seek_hole_live(&self.fs, &held, offset),
            _ => return Err(Errno::INVALID),
        };
        found.map_err(|e| self.met(e))?.ok_or(Errno::NO_DEVICE)
    }

    pub(crate) fn copy_range(
        &self,
        caller: Credentials,
        (from, offset): (Node, u64),
        (to, to_offset): (Node, u64),
        len: u64,
    ) -> Answer<u64> {
        let (from, to) = (self.hold(from)?, self.hold(to)?);
        self.nodes.mark(&to);
        let anybody = anybody(&to);
        let by = self.changing_for(caller, &anybody);
        let copied = ops::copy_range(by, (&from, offset), (&to, to_offset), len)?;
        self.sync_inode(&to)?;
        Ok(copied)
    }

    /// Cuts or grows a file.
    pub(super) fn truncate(&self, caller: Credentials, held: &Held, size: u64) -> Answer {
        let anybody = anybody(held);
        let by = self.changing_for(caller, &anybody);
        Ok(ops::ftruncate(by, held, size)?)
    }

    /// Says for which user a file is changed, as far as that decides what programs lose: user 0
    /// leaves them set-ID bits.
    fn changing_for<'a>(&'a self, caller: Credentials, anybody: &'a Caller) -> OpContext<'a> {
        match caller.uid {
            0 => (&self.fs).into(),
            _ => self.fs.acting_for(anybody),
        }
    }
}
