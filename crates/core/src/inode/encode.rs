//! Records of inodes into blocks of the inode table, once per commit.

use super::{FileType, Inode, LiveInode};
use crate::fs::Fs;
use crate::meta::BlockRef;
use crate::meta::{Seal, Seq};
use crate::quota::Tally;
use crate::{Error, InPlace, Place, Result};
use extant_format::Pblk;
use extant_format::inode::rules;
use extant_sync::{LockClass, Mutex, PerCpu, Rank, pin};
use std::sync::Arc;

static REGISTERED: LockClass = LockClass::new("registered inodes", Rank::JournalRunning);

/// The magic number in front of extended attributes inside an inode.
pub(super) const XATTR_MAGIC: [u8; 4] = 0xea02_0000_u32.to_le_bytes();

/// Inodes that are looked at before the first of them is captured.
const TOGETHER: usize = 32;

/// An inode whose record changes.
#[derive(Debug)]
pub(crate) struct RegisteredInode {
    // Kept beyond its capture only so that it is let go of when handles are running again.
    live: Arc<LiveInode>,
    /// The block of the inode table that holds the record, which stays in memory so; `None` if it
    /// is kept with another inode of the transaction.
    _block: Option<BlockRef>,
    /// The record to encode, once it was captured.
    image: Option<Arc<Inode>>,
}

/// The inodes that the running transaction has changed, in per-CPU lists.
#[derive(Debug)]
pub(crate) struct RegisteredInodes(PerCpu<Mutex<Vec<RegisteredInode>>>);

impl RegisteredInodes {
    pub(crate) fn new() -> Self {
        Self(PerCpu::new(|_| Mutex::new(&REGISTERED, Vec::new())))
    }

    /// Adds an inode. The caller is within a handle.
    #[inline]
    pub(crate) fn push(&self, inode: RegisteredInode) {
        self.0.local().lock().push(inode);
    }

    /// Whether there are any.
    pub(crate) fn has_any(&self) -> bool {
        self.0.iter().any(|list| !list.lock().is_empty())
    }

    /// Takes the lists of all CPU shards. No handle is inside.
    pub(crate) fn take(&self) -> Vec<Vec<RegisteredInode>> {
        let lists = self.0.iter();
        lists
            .map(|list| std::mem::take(&mut *list.lock()))
            .collect()
    }
}

impl RegisteredInode {
    pub(crate) fn new(live: Arc<LiveInode>, block: Option<BlockRef>) -> Self {
        Self {
            live,
            _block: block,
            image: None,
        }
    }
}

/// Captures the records of registered inodes as of now, for [`Fs::encode_inodes`]. The caller has
/// drained the handles. Nothing is allocated: everybody waits.
pub(crate) fn capture_inodes(registered: &mut [RegisteredInode]) {
    for some in registered.chunks_mut(TOGETHER) {
        // The memory of many comes in at the same time, where taking references one by one would
        // wait for that of each.
        let guard = pin();
        let sizes = some.iter().map(|inode| inode.live.image(&guard).size());
        std::hint::black_box(sizes.max());
        for inode in some {
            inode.image = Some(inode.live.capture(&guard));
        }
    }
}

impl RegisteredInode {
    /// Whether it was captured as a file that needs the feature `large_file`.
    pub(crate) fn is_large(&self) -> bool {
        self.image.as_ref().is_some_and(|image| {
            image.file_type() == FileType::Regular && image.size() >= rules::LARGE
        })
    }
}

impl Fs {
    /// What the captured inodes change of what their owners use. Called once for each commit, in
    /// their order, with everything that was registered.
    pub(crate) fn tally_usage(&self, captured: &[Vec<RegisteredInode>]) -> Tally {
        let mut tally = Tally::default();
        for inode in captured.iter().flatten() {
            if let Some(image) = &inode.image {
                inode.live.count(self, image, &mut tally);
            }
        }
        tally
    }

    /// Encodes the captured inodes that transaction `seq` changed into new images of their blocks,
    /// which become the newest ones; returns those. Called once for each commit, in their order,
    /// with everything that was registered.
    ///
    /// # Errors
    /// When a block cannot be read, or a record does not fit the format. Nothing may be committed
    /// then: some blocks have new images.
    pub(crate) fn encode_inodes(
        &self,
        captured: &[Vec<RegisteredInode>],
        seq: Seq,
    ) -> Result<Vec<BlockRef>> {
        let mut records = Vec::with_capacity(captured.iter().map(Vec::len).sum());
        for inode in captured.iter().flatten() {
            let image = inode.image.as_deref();
            let image = image.ok_or(Error::Internal("an inode that was not captured"))?;
            let order = (inode.live.home(), image.ino(), !image.is_freed());
            records.push((order, image));
        }
        // A number that was freed and used again comes twice: what lives counts, so it is last. A
        // stable sort makes use of what is in order already, as inodes mostly are that one thread
        // made or removed.
        records.sort_by_key(|(order, _)| *order);
        let mut images = Vec::new();
        for group in records.chunk_by(|a, b| a.0.0 == b.0.0) {
            if let Some(&((block, ..), _)) = group.first() {
                let inodes = group.iter().map(|(_, image)| *image);
                images.push(self.encode_block(block, inodes, seq)?);
            }
        }
        Ok(images)
    }

    fn encode_block<'a>(
        &self,
        block: Pblk,
        inodes: impl Iterator<Item = &'a Inode>,
        seq: Seq,
    ) -> Result<BlockRef> {
        // Only commits change blocks of the inode table, one after the other.
        let old = self.cache().read(block)?;
        let mut data = self.cache().copy_of(&old);
        for inode in inodes {
            self.encode_inode(inode, &mut data)?;
        }
        Ok(self
            .cache()
            .publish_image(block, data, seq, Seal::Plain, Some(&old)))
    }

    fn encode_inode(&self, inode: &Inode, block: &mut [u8]) -> Result<()> {
        let context = self.inode_context(inode.ino());
        let place = Place::Inode(inode.ino());
        let at = self.geometry().locate_inode(inode.ino()).in_place(place)?;
        let slot = block
            .get_mut(at.offset as usize..)
            .and_then(|rest| rest.get_mut(..usize::from(context.inode_size)))
            .unwrap_or_default();
        if inode.is_fresh() {
            // Nothing of the inode that had the number before.
            slot.fill(0);
        }
        let range = inode.disk().xattr_range(context.inode_size);
        put_xattrs(
            slot.get_mut(range).unwrap_or_default(),
            inode.xattr_region(),
        );
        // Last: the checksum covers the attributes.
        inode.disk().encode(slot, &context).in_place(place)
    }
}

/// Puts attributes in their place. Where there are none, other bytes stay as they are.
fn put_xattrs(region: &mut [u8], xattrs: &[u8]) {
    if xattrs.is_empty() {
        if region.starts_with(&XATTR_MAGIC) {
            region.fill(0);
        }
        return;
    }
    let len = xattrs.len().min(region.len());
    if let (Some(to), Some(from)) = (region.get_mut(..len), xattrs.get(..len)) {
        to.copy_from_slice(from);
    }
    if let Some(rest) = region.get_mut(len..) {
        rest.fill(0);
    }
}
