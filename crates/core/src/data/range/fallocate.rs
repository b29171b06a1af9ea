//! Reserving blocks for a range of a file.
//!
//! # How blocks are reserved
//!
//! Holes of the range are walked in order. A few at a time get blocks in the allocator, and one
//! handle makes these the file's as *unwritten*: they read as zeros, whatever they hold, until
//! something is written to them. So nothing goes to the device, and a crash shows either the hole
//! or zeros. Long ranges take many handles.
//!
//! # Invariants
//!
//! - The size never passes bytes that were not written or made zeros on the device: where blocks
//!   past the old end of the file hold data, it is made zeros first.
//! - What is there stays: neither content nor blocks that were reserved before change.

use crate::alloc::{FileRequest, Taken};
use crate::clock::now;
use crate::data::inline::outgrow_alone;
use crate::data::io::WriteOptions;
use crate::data::io::{blocks_of, check_changeable, size_limit};
use crate::data::range::zeros::zero_mapped;
use crate::data::reserve::preallocation;
use crate::data::times::stamp;
use crate::data::writeback::flusher;
use crate::data::writeback::write_back;
use crate::fs::Fs;
use crate::inode::{Held, Inode, LiveInode};
use crate::map::{self, MapGuard, Placer, Target, Walk};
use crate::{Error, Result, xattr};
use extant_format::extent::MAX_UNWRITTEN_LEN;
use extant_format::inode::InodeFlags;
use extant_format::{Lblk, Pblk};
use std::ops::Range;

/// Runs that one handle maps at most.
const MOST_RUNS: usize = 12;

/// How often space is looked for again before there is none: others may have been faster.
const RETRIES: u32 = 4;

/// How blocks are reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallocateMode {
    /// Leaves the size as it is, also when the range ends behind it (`FALLOC_FL_KEEP_SIZE`).
    pub keep_size: bool,
}

/// Reserves blocks for the `len` bytes from byte `offset` of a regular file on: what is a hole
/// reads as zeros as before, and writing there does not run out of space. The file grows if it ends
/// before, unless the mode says otherwise.
///
/// # Errors
/// [`Error::NoSpace`]: what was reserved before space ran out stays, and the size covers it.
/// [`Error::InvalidInput`] for an empty range, [`Error::FileTooLarge`] past what the map can reach,
/// [`Error::IsADirectory`] or [`Error::NotARegularFile`] for anything but a regular file,
/// [`Error::Unsupported`] for files mapped by indirect blocks, which cannot tell reserved blocks
/// from written ones; [`Error::ReadOnly`]; [`Error::Corrupt`] when the map breaks the format,
/// [`Error::Device`] when the device fails.
pub fn fallocate(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    mode: FallocateMode,
    options: WriteOptions<'_>,
) -> Result<()> {
    fs.journal()?;
    let attempt = || {
        let _alone = held.op().write();
        fallocate_alone(fs, held, offset, len, mode, options)
    };
    match attempt() {
        // What is promised to the data of other files for the worst case comes back when that is
        // written back.
        Err(Error::NoSpace) => {
            flusher::make_room(fs, held.live())?;
            attempt()
        }
        done => done,
    }
}

/// Reserves blocks as [`fallocate`] does. The caller holds `op` exclusively.
pub(in crate::data) fn fallocate_alone(
    fs: &Fs,
    held: &Held,
    offset: u64,
    len: u64,
    mode: FallocateMode,
    options: WriteOptions<'_>,
) -> Result<()> {
    check_changeable(&held.snapshot())?;
    if len == 0 {
        return Err(Error::InvalidInput("an empty range to reserve"));
    }
    outgrow_alone(fs, held)?;
    // What is only in memory gets its blocks first: then nobody else changes the map.
    write_back(fs, held.live())?;
    if let Some(file) = held.file_cache() {
        file.set_tail(u64::MAX);
    }
    let image = held.snapshot();
    if !image.flags().contains(InodeFlags::EXTENTS) {
        return Err(Error::Unsupported {
            features: "reserving space in files mapped by indirect blocks".to_owned(),
        });
    }
    let end = offset.checked_add(len);
    let end = end
        .filter(|&end| end <= size_limit(fs, &image))
        .ok_or(Error::FileTooLarge)?;
    let mut rest = Reservation {
        blocks: blocks_of(fs, &(offset..end)),
        end: (!mode.keep_size).then_some(end),
        is_dated: true,
    };
    xattr::take_away(fs, held, options.actor)?;
    rest.reserve(fs, held)
}

/// Reserves `blocks` behind the end of a file, of which nothing else changes: neither its size nor
/// its times. The caller holds `op` exclusively, and what is in memory has its blocks.
///
/// # Errors
/// As for [`fallocate`].
pub(in crate::data) fn reserve_behind(fs: &Fs, held: &Held, blocks: Range<u64>) -> Result<()> {
    let mut rest = Reservation {
        blocks,
        end: None,
        is_dated: false,
    };
    rest.reserve(fs, held)
}

/// What remains to be reserved.
struct Reservation {
    /// Blocks that were not looked at yet.
    blocks: Range<u64>,
    /// The size the file gets, unless it has more; `None` if it keeps what it has.
    end: Option<u64>,
    /// Whether the file is dated now.
    is_dated: bool,
}

/// Blocks for holes, in order.
struct Found<'f> {
    taken: Vec<Taken<'f>>,
    placer: Placer,
    places: Vec<(Lblk, Pblk, u32)>,
    /// Everything before this block has been seen to.
    upto: u64,
}

impl Reservation {
    /// Reserves all of it. `op` is held exclusively.
    fn reserve(&mut self, fs: &Fs, held: &Held) -> Result<()> {
        let mut retries = 0;
        loop {
            match self.step(fs, held, &held.snapshot()) {
                Ok(()) if self.blocks.is_empty() => return Ok(()),
                Ok(()) => retries = 0,
                Err(Error::NoSpace) if retries < RETRIES && self.make_room(fs)? => retries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Tells whether there may be more space than there was: what others kept ready has come back,
    /// or what was freed, with a commit.
    fn make_room(&self, fs: &Fs) -> Result<bool> {
        let wanted = self.blocks.end - self.blocks.start;
        if fs.alloc()?.discard_preallocations(wanted) > 0 {
            return Ok(true);
        }
        let pending = fs.is_space_pending();
        if pending {
            fs.commit(fs.journal()?.running())?;
        }
        Ok(pending)
    }

    /// Reserves a first part, at least one block, with one handle. `op` is held exclusively, and
    /// `image` is the newest: only holders of `op` change map and size.
    fn step(&mut self, fs: &Fs, held: &Held, image: &Inode) -> Result<()> {
        let _stay = held.pages().read();
        let found = self.find(fs, held, image)?;
        let log2 = fs.block_size().log2();
        let upto = found.upto;
        let size = self
            .end
            .map_or(0, |end| end.min(upto.saturating_mul(1 << log2)));
        let (time, is_dated) = (now(), self.is_dated);
        let also = |inode: &mut Inode| {
            let disk = inode.disk_mut();
            disk.size = disk.size.max(size);
            if is_dated {
                stamp(disk, time, WriteOptions::default());
            }
        };
        if found.places.is_empty() {
            let handle = fs.start(1)?;
            held.live().update(&handle, also)?;
        } else {
            let runs = found.places.len() as u32;
            let handle = fs.start(map::insert_credits(image, runs))?;
            let guard = MapGuard::lock(held.live());
            let edit = |tree: &mut map::Tree<'_>| {
                let mut places = found.places.iter();
                places.try_for_each(|&(lblk, pblk, len)| tree.insert(lblk, pblk, len, true))
            };
            map::change(&handle, held.live(), &guard, found.taken, edit, also)?;
        }
        self.blocks.start = upto;
        Ok(())
    }

    /// Takes blocks for the first holes, and makes zeros of data past the end of the file where the
    /// file is going to grow over it.
    fn find<'f>(&self, fs: &'f Fs, held: &Held, image: &Inode) -> Result<Found<'f>> {
        let log2 = fs.block_size().log2();
        let size = image.size();
        let grows = self.end.is_some_and(|end| end > size);
        let first = if grows {
            self.blocks.start.min(size >> log2)
        } else {
            self.blocks.start
        };
        let mut found = Found {
            taken: Vec::new(),
            placer: Placer::new(fs),
            places: Vec::new(),
            upto: 0,
        };
        let mut walk = Walk::over(first..self.blocks.end);
        while let Some(run) = walk.next(fs, image)? {
            let start = u64::from(run.lblk.get()).max(self.blocks.start);
            match run.target {
                Target::Written(_) if grows && run.end() << log2 > size => {
                    let from = size.max(u64::from(run.lblk.get()) << log2);
                    let failures = fs.flush_failures();
                    zero_mapped(fs, image, from..run.end() << log2)?;
                    held.note_data(fs, failures);
                }
                Target::Hole if start < run.end() => {
                    let hole = start..run.end();
                    let size = self.end.unwrap_or(0).max(size);
                    if !found.take(fs, held, image, size, hole, self.blocks.start)? {
                        return Ok(found);
                    }
                }
                _ => {}
            }
        }
        found.upto = self.blocks.end;
        Ok(found)
    }
}

impl<'f> Found<'f> {
    /// Takes blocks for `hole`. Returns whether there are enough and one handle can map them. Gets
    /// further than block `first` in any case.
    fn take(
        &mut self,
        fs: &'f Fs,
        live: &LiveInode,
        image: &Inode,
        size: u64,
        hole: Range<u64>,
        first: u64,
    ) -> Result<bool> {
        let mut next = hole.start;
        while next < hole.end {
            self.upto = next;
            if self.places.len() == MOST_RUNS {
                return Ok(false);
            }
            let len = (hole.end - next).min(MAX_UNWRITTEN_LEN.into()) as u32;
            let lblk = Lblk::new(next as u32);
            let read = |logical| map::cluster_of(fs, image, logical);
            if let Some((pblk, here)) = self.placer.given(lblk.get(), read)? {
                let here = here.min(len);
                self.places.push((lblk, pblk, here));
                next += u64::from(here);
                continue;
            }
            let len = match fs.admissible(image, len, &self.taken) {
                Ok(len) => len,
                Err(Error::QuotaExceeded) if next > first => return Ok(false),
                Err(e) => return Err(e),
            };
            let ask = FileRequest {
                lblk,
                len: self.placer.contiguous_len(lblk.get(), len),
                size,
                reserved: false,
                no_prealloc: false,
                privileged: false,
            };
            let taken = match preallocation::take_for(fs, live, &ask) {
                Ok(taken) => taken,
                Err(Error::NoSpace) if next > first => return Ok(false),
                Err(e) => return Err(e),
            };
            let start = taken.start();
            let (pblk, here) = self.placer.give(lblk.get(), start, taken.clusters());
            let here = here.min(len);
            self.places.push((lblk, pblk, here));
            next += u64::from(here);
            self.taken.push(taken);
        }
        self.upto = next;
        Ok(true)
    }
}
