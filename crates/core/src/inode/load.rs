//! The way from a number to a checked [`Inode`].

use super::encode::XATTR_MAGIC;
use super::orphan::Membership;
use super::{Held, Inode, InodeId, LiveInode, Metadata};
use crate::fs::Fs;
use crate::meta::BlockRef;
use crate::meta::Seq;
use crate::{Error, InPlace, Place, Result};
use extant_format::inode::rules::Inline;
use extant_format::inode::{FileType, Inode as DiskInode, InodeFlags, MAP_BYTES, are_sound};
use extant_format::{Expected, FormatError, Ino, Pblk, Structure};
use extant_sync::pin;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of an inode table that are read at once.
pub(super) const READAHEAD_BYTES: u32 = 64 << 10;
/// Bytes of one that are read at once where a request is a message to a server: those at hand, and
/// as much again twice behind them, since a directory's files mostly get inodes behind its own.
const SERVED_READAHEAD_BYTES: u32 = 3 * READAHEAD_BYTES;
/// Bytes of one that are read with the block of a new inode, where each request takes a round trip.
const FAR_READAHEAD_BYTES: u32 = 512 << 10;

/// Whether an inode must have a name to be loaded.
#[derive(Clone, Copy)]
enum Names {
    Needed,
    Lost,
}

impl Fs {
    /// The inode of this number.
    ///
    /// # Errors
    /// [`Error::Stale`] when the inode is not in use, [`Error::Corrupt`] when the number or the
    /// record is wrong, [`Error::Device`] when reading fails.
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let live = self.live_inode(ino)?;
        let image = live.snapshot();
        if image.disk.links == 0 && (live.is_leaving() || live.holds() == 0) {
            return Err(Error::Stale);
        }
        Ok(live.ahead(&image).map_or(image, Arc::new))
    }

    /// The inode of this number, which a directory gives a name.
    ///
    /// # Errors
    /// As for [`Fs::inode`]; [`Error::Corrupt`] also for what no name can stand for: the file
    /// system's own inodes, and those that hold the value of an attribute.
    pub fn named_inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.check_number_named(ino)?;
        let inode = self.inode(ino)?;
        self.check_content_named(&inode)?;
        Ok(inode)
    }

    /// Tells number and generation alone of an inode that [`Fs::named_inode`] gives.
    ///
    /// # Errors
    /// As for [`Fs::named_inode`].
    pub(crate) fn named_id(&self, ino: Ino) -> Result<InodeId> {
        self.check_number_named(ino)?;
        self.with_inode(ino, |inode| {
            self.check_content_named(inode).map(|()| inode.id())
        })?
    }

    fn check_number_named(&self, ino: Ino) -> Result<()> {
        if self.inode_rules().may_have_names(ino) {
            return Ok(());
        }
        let expected = Expected::Said("one that can have a name, not one of the file system's own");
        let source = FormatError::new(Structure::DirEntry, "inode", ino.get().into(), expected);
        Err(Error::corrupt(Place::Inode(ino), source))
    }

    fn check_content_named(&self, inode: &Inode) -> Result<()> {
        if !inode.flags().contains(InodeFlags::EA_INODE) {
            return Ok(());
        }
        let expected = Expected::Said("no value of an attribute, as it has a name");
        let found = inode.flags().bits().into();
        let source = FormatError::new(Structure::Inode, "flags", found, expected);
        Err(Error::corrupt(Place::Inode(inode.ino()), source))
    }

    /// Refuses a file system whose root is no directory, or cannot be loaded.
    ///
    /// # Errors
    /// [`Error::Corrupt`] says what is wrong with it, [`Error::Device`] when reading fails.
    pub(crate) fn check_root(&self) -> Result<()> {
        let wrong = |field, found, said| {
            let source = FormatError::new(Structure::Inode, field, found, Expected::Said(said));
            Error::corrupt(Place::Inode(Ino::ROOT), source)
        };
        match self.inode(Ino::ROOT) {
            Ok(root) if root.is_dir() => Ok(()),
            Ok(root) => {
                let mode = root.disk().mode.bits().into();
                Err(wrong("mode", mode, "a directory, as this is the root"))
            }
            Err(Error::Stale) => Err(wrong("links", 0, "some, as this is the root")),
            Err(e) => Err(e),
        }
    }

    /// Takes hold of the inode of this number.
    ///
    /// # Errors
    /// As for [`Fs::inode`].
    pub fn hold(&self, ino: Ino) -> Result<Held> {
        loop {
            let is_unnamed = |live: &LiveInode| live.image(&pin()).disk.links == 0;
            match LiveInode::try_hold(self.live_inode(ino)?) {
                // Without a name only its holders can have it.
                Ok(held) if is_unnamed(&held) && held.holds() == 1 => return Err(Error::Stale),
                Ok(held) => return Ok(held),
                Err(live) if is_unnamed(&live) => return Err(Error::Stale),
                // Being forgotten: it is gone in a moment, or stays.
                Err(_) => extant_sync::thread::yield_now(),
            }
        }
    }

    /// Takes hold of an inode that is in memory and not on its way out. It may have no names.
    pub(crate) fn hold_in_memory(&self, ino: Ino) -> Option<Held> {
        LiveInode::try_hold(self.inode_table().get_live(ino)?).ok()
    }

    /// Takes hold of this very inode.
    ///
    /// # Errors
    /// As for [`Fs::inode`]; [`Error::Stale`] also when the number is another inode's by now.
    pub fn hold_same(&self, id: InodeId) -> Result<Held> {
        let held = self.hold(id.ino)?;
        // What is held keeps its number.
        if held.id() == id {
            Ok(held)
        } else {
            Err(Error::Stale)
        }
    }

    /// The inode of this number, loaded if it is not in memory.
    fn live_inode(&self, ino: Ino) -> Result<Arc<LiveInode>> {
        let table = self.inode_table();
        loop {
            if let Some(live) = table.get_live(ino) {
                return Ok(live);
            }
            let turn = table.turn(ino);
            let loaded = Arc::new(self.load_inode(ino, Names::Needed)?);
            if let Some(live) = table.insert(loaded, turn) {
                return Ok(live);
            }
        }
    }

    /// An inode that may have no names any more: one that a crash left as an orphan. It comes as
    /// one of the list, whose link its record holds.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the number or the record is wrong, [`Error::Device`] when reading
    /// fails.
    pub(crate) fn load_orphan(&self, ino: Ino) -> Result<LiveInode> {
        self.load_inode(ino, Names::Lost)
    }

    /// The block of the inode table that holds the record of an inode.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn inode_table_block(&self, live: &LiveInode) -> Result<BlockRef> {
        let place = Place::InodeBlock(live.ino(), live.home());
        self.metadata(live.home(), place, Structure::Inode, None, |_| Ok(()))
    }

    /// Whether the running transaction `seq` has registered a record of this block of the inode
    /// table, and so keeps this image of it in memory.
    #[inline]
    pub(crate) fn keeps_records_of(&self, block: Pblk, seq: Seq) -> bool {
        let guard = pin();
        let found = self.cache().peek(block, &guard);
        // The commit of the transaction before makes images while this one runs: what is kept may
        // be the one it replaced.
        found.is_some_and(|found| found.has_records_of(seq) && found.seq().next() != seq)
    }

    /// Looks at an inode without taking part in its ownership: when it is in memory, no shared
    /// memory is written. `look` must not wait for the device.
    ///
    /// # Errors
    /// As for [`Fs::inode`].
    pub fn with_inode<R>(&self, ino: Ino, look: impl FnOnce(&Inode) -> R) -> Result<R> {
        {
            let guard = pin();
            if let Some(live) = self.inode_table().peek(ino, &guard) {
                live.flush_dir_time();
                let inode = live.image(&guard);
                if inode.disk.links > 0 {
                    return Ok(match live.ahead(inode) {
                        Some(ahead) => look(&ahead),
                        None => look(inode),
                    });
                }
            }
        }
        Ok(look(&*self.inode(ino)?))
    }

    /// Looks at this very inode, as [`Fs::with_inode`] does.
    ///
    /// # Errors
    /// As for [`Fs::hold_same`].
    pub fn with_same<R>(&self, id: InodeId, look: impl FnOnce(&Inode) -> R) -> Result<R> {
        let same = |inode: &Inode| (inode.id() == id).then(|| look(inode));
        self.with_inode(id.ino, same)?.ok_or(Error::Stale)
    }

    /// Whether this very inode, which is not looked at further, is a directory.
    ///
    /// # Errors
    /// As for [`Fs::with_same`].
    pub(crate) fn is_same_dir(&self, id: InodeId) -> Result<bool> {
        {
            let guard = pin();
            if let Some(live) = self.inode_table().peek(id.ino, &guard) {
                let inode = live.image(&guard);
                if inode.disk.links > 0 && inode.id() == id {
                    return Ok(inode.is_dir());
                }
            }
        }
        self.with_same(id, Inode::is_dir)
    }

    /// Where the record of an inode lies: its block and the offset in it.
    ///
    /// # Errors
    /// When there is no such inode, or its group's descriptor is wrong.
    pub fn locate_inode(&self, ino: Ino) -> Result<(Pblk, usize)> {
        let at = self
            .geometry()
            .locate_inode(ino)
            .in_place(Place::Inode(ino))?;
        let table = match self
            .alloc_if_any()
            .and_then(|alloc| alloc.known_inode_table(at.group))
        {
            Some(table) => table,
            None => self.group(at.group)?.inode_table,
        };
        let block = Pblk::new(table.get().saturating_add(at.table_block.into()));
        Ok((block, at.offset as usize))
    }

    fn load_inode(&self, ino: Ino, names: Names) -> Result<LiveInode> {
        let (block, offset) = self.locate_inode(ino)?;
        self.read_inodes_around(ino, block)?;
        let place = Place::InodeBlock(ino, block);
        // The block belongs to many inodes; each record is checked when it is parsed.
        let bytes = self.metadata(block, place, Structure::Inode, None, |_| Ok(()))?;
        let slot = bytes.get(offset..).unwrap_or(&[]);
        match names {
            Names::Needed => {
                let inode = self.parse_inode(ino, slot)?;
                Ok(LiveInode::new(Arc::new(inode), block))
            }
            Names::Lost => {
                let mut record = self.parse_record(ino, slot)?;
                // The link of the list is kept apart from the record.
                let next = std::mem::take(&mut record.dtime);
                let inode = self.check_inode(ino, record, slot)?;
                let live = LiveInode::new(Arc::new(inode), block);
                live.set_membership(Membership::List { next, at: 0 });
                Ok(live)
            }
        }
    }

    /// Brings the neighbours of an inode's block into memory with it: a look at one inode of a
    /// directory is usually followed by one at the next.
    pub(crate) fn read_inodes_around(&self, ino: Ino, block: Pblk) -> Result<()> {
        if self.cache().peek(block, &pin()).is_some() {
            return Ok(());
        }
        // The file system's own have few neighbours, which lie in the same block.
        let is_served = self.device().is_served();
        if ino < self.superblock().first_ino() && !is_served {
            return Ok(());
        }
        // The root's neighbours are such, too.
        if ino == Ino::ROOT || !is_served {
            return self.read_inode_window(ino, block, READAHEAD_BYTES);
        }
        let range = self.served_window(ino, block)?;
        self.cache().prefetch_all(range.map(Pblk::new).collect());
        Ok(())
    }

    /// The blocks that come with that of an inode where a request is a message to a server.
    ///
    /// # Errors
    /// When there is no such inode, or its group's descriptor is wrong.
    pub(crate) fn inode_blocks_around(&self, ino: Ino) -> Result<Range<u64>> {
        let (block, _) = self.locate_inode(ino)?;
        self.served_window(ino, block)
    }

    fn served_window(&self, ino: Ino, block: Pblk) -> Result<Range<u64>> {
        let table = self.inode_table_around(ino, block)?;
        let chunk = u64::from(READAHEAD_BYTES >> self.block_size().log2()).max(1);
        let more = u64::from(SERVED_READAHEAD_BYTES >> self.block_size().log2()).max(1);
        let first = block.get() / chunk * chunk;
        Ok(first.max(table.start)..first.saturating_add(more).min(table.end))
    }

    /// The aligned window of so many bytes that the block of an inode is in, as far as it lies in
    /// the inode table.
    ///
    /// # Errors
    /// When there is no such inode.
    pub(super) fn table_window(&self, ino: Ino, block: Pblk, bytes: u32) -> Result<Range<u64>> {
        let table = self.inode_table_around(ino, block)?;
        let window = u64::from(bytes >> self.block_size().log2()).max(1);
        let aligned = block.get() / window * window;
        let end = aligned.saturating_add(window);
        Ok(aligned.max(table.start)..end.min(table.end))
    }

    /// The blocks of the inode table that the block of an inode is in.
    #[inline]
    fn inode_table_around(&self, ino: Ino, block: Pblk) -> Result<Range<u64>> {
        let at = self
            .geometry()
            .locate_inode(ino)
            .in_place(Place::Inode(ino))?;
        let first = block.get().saturating_sub(at.table_block.into());
        Ok(first..first.saturating_add(self.geometry().inode_table_blocks().into()))
    }

    #[inline]
    fn read_inode_window(&self, ino: Ino, block: Pblk, bytes: u32) -> Result<()> {
        let table = self.inode_table_around(ino, block)?;
        let window = bytes >> self.block_size().log2();
        self.prefetch_around(block, window, table);
        Ok(())
    }

    /// Brings the block into memory that gets the record of a new inode, with neighbours: the next
    /// ones are mostly made beside it.
    pub(crate) fn read_new_inodes_around(&self, ino: Ino, block: Pblk) -> Result<()> {
        if self.cache().peek(block, &pin()).is_some() {
            return Ok(());
        }
        let bytes = if self.device().in_flight() > 1 {
            FAR_READAHEAD_BYTES
        } else {
            READAHEAD_BYTES
        };
        self.read_inode_window(ino, block, bytes)
    }

    /// Reads an inode from its slot of the inode table.
    #[inline]
    pub(super) fn parse_inode(&self, ino: Ino, slot: &[u8]) -> Result<Inode> {
        let disk = self.parse_record(ino, slot)?;
        self.check_named(ino, disk, slot)
    }

    /// Reads an inode that a directory gives a name from its slot of the inode table.
    ///
    /// # Errors
    /// As for [`Fs::named_inode`].
    pub(super) fn parse_named_inode(&self, ino: Ino, slot: &[u8]) -> Result<Inode> {
        self.check_number_named(ino)?;
        let inode = self.parse_inode(ino, slot)?;
        self.check_content_named(&inode)?;
        Ok(inode)
    }

    /// Parses the record in a slot whose checksum is known to be right.
    #[inline]
    pub(super) fn parse_sound_inode(&self, ino: Ino, slot: &[u8]) -> Result<Inode> {
        let context = self.inode_context(ino);
        let disk = DiskInode::parse_sound(slot, &context).in_place(Place::Inode(ino))?;
        self.check_named(ino, disk, slot)
    }

    #[inline]
    fn check_named(&self, ino: Ino, disk: DiskInode, slot: &[u8]) -> Result<Inode> {
        // A free inode keeps its old type: what tells is that nothing names it.
        if disk.links == 0 {
            return Err(Error::Stale);
        }
        self.check_inode(ino, disk, slot)
    }

    /// Which of the slots of the inode table have the right checksum, looked at together: most that
    /// have. The others are to be read one by one.
    #[inline]
    pub(super) fn sound_slots<const N: usize>(
        &self,
        slots: [&[u8]; N],
        inos: [Ino; N],
    ) -> [bool; N] {
        are_sound(slots, inos, &self.inode_context(Ino::default()))
    }

    /// What `stat` reports about an inode, straight from its slot of the inode table.
    pub(super) fn stat_slot(&self, ino: Ino, slot: &[u8]) -> Result<Metadata> {
        let disk = self.parse_record(ino, slot)?;
        self.stat_record(ino, &disk)
    }

    /// What `stat` reports about an inode whose slot is known to have the right checksum, if a few
    /// looks tell that nothing is wrong with it; the others are for
    /// [`stat_unusual_slot`](Self::stat_unusual_slot).
    // Into the caller: most of the record is not looked at. No error, so that what is found need
    // not be in memory.
    #[inline(always)]
    pub(super) fn stat_plain_slot(&self, ino: Ino, slot: &[u8]) -> Option<Metadata> {
        let disk = DiskInode::parse_sound(slot, &self.inode_context(ino)).ok()?;
        if disk.links == 0 || !self.inode_rules().is_plain(ino, &disk, Inline::Unknown) {
            return None;
        }
        let file_type = disk.file_type()?;
        Some(Metadata::of(ino, file_type, &disk, self.block_size()))
    }

    /// What `stat` reports about any inode whose slot is known to have the right checksum.
    // Reads the slot again, so that nobody keeps the whole record for this.
    #[inline(never)]
    pub(super) fn stat_unusual_slot(&self, ino: Ino, slot: &[u8]) -> Result<Metadata> {
        match DiskInode::parse_sound(slot, &self.inode_context(ino)) {
            Ok(disk) => self.stat_record(ino, &disk),
            Err(e) => Err(Error::corrupt(Place::Inode(ino), e)),
        }
    }

    fn stat_record(&self, ino: Ino, disk: &DiskInode) -> Result<Metadata> {
        if disk.links == 0 {
            return Err(Error::Stale);
        }
        let file_type = self.checked_type(ino, disk)?;
        if !self.inode_rules().is_suspect(disk) {
            return Ok(Metadata::of(ino, file_type, disk, self.block_size()));
        }
        let mut disk = disk.clone();
        self.inode_rules().as_read(&mut disk, Inline::Unknown);
        Ok(Metadata::of(ino, file_type, &disk, self.block_size()))
    }

    #[inline]
    fn parse_record(&self, ino: Ino, slot: &[u8]) -> Result<DiskInode> {
        DiskInode::parse(slot, &self.inode_context(ino)).in_place(Place::Inode(ino))
    }

    /// Makes an inode of its record, whether or not anything names it.
    // Into the caller: a record is long to move.
    #[inline(always)]
    fn check_inode(&self, ino: Ino, mut disk: DiskInode, slot: &[u8]) -> Result<Inode> {
        let context = self.inode_context(ino);
        let region = disk.xattr_region(slot, context.inode_size);
        let xattrs = if region.starts_with(&XATTR_MAGIC) {
            region
        } else {
            &[]
        };
        let inline = if disk.flags.contains(InodeFlags::INLINE_DATA) {
            self.inline_of(ino, xattrs)?
        } else {
            Inline::Missing
        };
        let file_type = self.judged_type(ino, &disk, inline)?;
        self.inode_rules().as_read(&mut disk, inline);
        Ok(Inode {
            ino,
            file_type,
            seed: context.inode_seed(disk.generation),
            xattrs: xattrs.into(),
            disk,
            fresh: false,
            freed: false,
            values: 0,
        })
    }

    /// What lies in the inode, by the attribute that inline data has.
    fn inline_of(&self, ino: Ino, xattrs: &[u8]) -> Result<Inline> {
        if xattrs.is_empty() {
            return Ok(Inline::Missing);
        }
        let rest = self.inline_value(ino, xattrs)?;
        Ok(match rest {
            Some(rest) => Inline::Stored((MAP_BYTES + rest.len()) as u64),
            None => Inline::Missing,
        })
    }

    /// The type of an inode with this record, if it can be right as far as the record alone tells.
    #[inline]
    pub(crate) fn checked_type(&self, ino: Ino, disk: &DiskInode) -> Result<FileType> {
        self.judged_type(ino, disk, Inline::Unknown)
    }

    #[inline]
    fn judged_type(&self, ino: Ino, disk: &DiskInode, inline: Inline) -> Result<FileType> {
        if self.inode_rules().is_plain(ino, disk, inline)
            && let Some(file_type) = disk.file_type()
        {
            return Ok(file_type);
        }
        // A copy, so that the record need not be in memory for this.
        self.unusual_type(ino, disk.clone(), inline)
    }

    #[inline(never)]
    fn unusual_type(&self, ino: Ino, disk: DiskInode, inline: Inline) -> Result<FileType> {
        let place = Place::Inode(ino);
        if let Some(source) = self.inode_rules().refusal(ino, &disk, inline) {
            return Err(Error::corrupt(place, source));
        }
        // Reserved numbers need none.
        disk.file_type().ok_or_else(|| {
            let expected = Expected::Said("a known file type");
            let mode = u64::from(disk.mode.bits());
            Error::corrupt(
                place,
                FormatError::new(Structure::Inode, "mode", mode, expected),
            )
        })
    }
}
