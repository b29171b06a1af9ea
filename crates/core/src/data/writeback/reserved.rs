//! Reserved space that is written in parts when there is no room for the map of the parts.
//!
//! A part that is written makes two or three extents of a reserved one, and these may need a block
//! for the tree. On a file system that is full there is none. Then all of the extent becomes data:
//! what nobody has written of it is made zeros on the device, and the tree needs no more than
//! before. So writing to reserved space never runs out of it.

use crate::Result;
use crate::data::io::WriteIo;
use crate::data::io::device_offset;
use crate::data::writeback::{WritebackRun, WritebackState};
use crate::inode::Inode;
use crate::map::{self, MapGuard, NewRuns, Target};
use extant_format::extent::MAX_UNWRITTEN_LEN;
use extant_format::{Lblk, Pblk};
use std::ops::Range;

impl WriteIo<'_> {
    /// Makes data of the whole of each reserved extent that one of `pieces`, which are written,
    /// lies in. Returns whether there was any. Others are kept from writing the file back.
    pub(in crate::data) fn convert_whole(&self, pieces: &[WritebackRun]) -> Result<bool> {
        let mut any = false;
        for piece in pieces
            .iter()
            .filter(|piece| piece.kind == WritebackState::Unwritten)
        {
            let mut at = piece.lblk;
            while at < piece.end() {
                let image = self.live.snapshot();
                at = match self.reserved_around(&image, at)? {
                    // One before lay in the same.
                    Err(next) => next,
                    Ok((mut whole, pblk)) => {
                        // No data past the end of the file.
                        let blocks = self.fs.block_size().blocks_for(self.live.live_size());
                        whole.end = whole.end.min(blocks).max(at + 1);
                        self.clear_unwritten(&whole, pblk, pieces)?;
                        self.convert(&image, &whole)?;
                        any = true;
                        whole.end
                    }
                };
            }
        }
        Ok(any)
    }

    /// Returns the reserved extent that block `lblk` lies in, and where that begins on the device;
    /// or the next block that may lie in one.
    fn reserved_around(
        &self,
        image: &Inode,
        lblk: u64,
    ) -> Result<std::result::Result<(Range<u64>, Pblk), u64>> {
        // None is longer, so one that ends behind `lblk` begins behind this.
        let mut at = lblk.saturating_sub(u64::from(MAX_UNWRITTEN_LEN) - 1);
        loop {
            let run = map::lookup(self.fs, image, Lblk::new(at as u32))?;
            if run.end() <= lblk {
                at = run.end();
                continue;
            }
            return Ok(match run.target {
                Target::Unwritten(pblk) => Ok((at..run.end(), pblk)),
                Target::Written(_) | Target::Hole => Err(run.end()),
            });
        }
    }

    /// Makes zeros of what no piece has written of a reserved extent.
    fn clear_unwritten(
        &self,
        whole: &Range<u64>,
        pblk: Pblk,
        pieces: &[WritebackRun],
    ) -> Result<()> {
        let failures = self.fs.flush_failures();
        let clear = |from: u64, to: u64| -> Result<()> {
            if from >= to {
                return Ok(());
            }
            let offset = device_offset(self.fs, pblk, (from - whole.start) << self.log2)?;
            self.fs.device().zero(offset, (to - from) << self.log2)?;
            Ok(())
        };
        let mut at = whole.start;
        for piece in pieces
            .iter()
            .filter(|piece| piece.kind == WritebackState::Unwritten)
        {
            if piece.end() <= whole.start || piece.lblk >= whole.end {
                continue;
            }
            clear(at, piece.lblk)?;
            at = piece.end();
        }
        clear(at, whole.end)?;
        self.live.note_data(self.fs, failures);
        Ok(())
    }

    fn convert(&self, image: &Inode, whole: &Range<u64>) -> Result<()> {
        let one = NewRuns {
            runs: 1,
            leaves: 1,
            ..NewRuns::default()
        };
        let credits = map::insert_many_credits(self.fs, image, one);
        let handle = self.fs.start(credits)?;
        let guard = MapGuard::lock(self.live);
        let edit = |tree: &mut map::Tree<'_>| tree.convert(whole);
        let end = (whole.end << self.log2).min(self.live.live_size());
        let also = |inode: &mut Inode| {
            let disk = inode.disk_mut();
            disk.size = disk.size.max(end);
        };
        map::change(&handle, self.live, &guard, Vec::new(), edit, also)
    }
}
