//! What commits carry besides whole blocks of metadata.
//!
//! Metadata that lies in memory in a form of its own (inodes, groups, the orphan file, quota files,
//! the superblock) takes part in a commit through a [`LogItem`], one for each kind. So the journal
//! knows none of them, and what belongs to a kind stays in its room. An operation that changes such
//! metadata registers it under its handle, in lists of the kind's own or by number: see
//! [`Handle::touch_number`](super::Handle::touch_number).
//!
//! A commit calls, for each kind, in the order of the list:
//!
//! | step | when | what it may do |
//! |---|---|---|
//! | [`LogItem::capture`] | the gate is closed and no handle is inside | take references, copy nothing, never wait |
//! | [`CapturedItem::encode`] | handles run again | make images of blocks, read the device |
//! | [`LogItem::committed`] | the images are durable | hand back what waited for that |
//!
//! These are a few virtual calls per commit and none per operation.

use super::queue::{Bytes, Image};
use super::touched::Touched;
use super::{Seal, Seq};
use crate::meta::{BlockRef, Cache};
use crate::{Error, InPlace, Place, Result};
use extant_format::{Expected, FormatError, Pblk, Structure};
use std::collections::HashSet;
use std::sync::Arc;

/// A list of numbers that handles register, one for each kind that is registered so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberList(pub(super) usize);

/// How many such lists there are.
pub(super) const NUMBER_LISTS: usize = 2;

impl NumberList {
    /// The list of the allocator.
    pub(crate) const FIRST: Self = Self(0);
    /// A list for one kind of the layers above.
    pub const SECOND: Self = Self(1);
}

/// Numbers that the transaction's handles registered, by list. A kind takes its own.
#[derive(Debug, Default)]
pub struct Numbers([Vec<u32>; NUMBER_LISTS]);

impl Numbers {
    pub(super) fn of(touched: &mut Touched) -> Self {
        Self(std::mem::take(&mut touched.numbers))
    }

    /// Takes the numbers of a list, in no order. Each is there once if handles registered it once.
    pub fn take(&mut self, list: NumberList) -> Vec<u32> {
        std::mem::take(&mut self.0[list.0])
    }
}

/// One kind of metadata, as a commit sees it.
pub trait LogItem {
    /// Whether something is registered in lists of the kind's own.
    fn has_changes(&self) -> bool {
        false
    }

    /// Takes references to what transaction `seq` changed. Nobody changes anything meanwhile, and
    /// everybody waits: it copies nothing and never waits. `None` where nothing changed.
    ///
    /// # Errors
    /// When something registered has no state to capture, which is a defect. The journal stops
    /// then.
    fn capture(
        &self,
        seq: Seq,
        numbers: &mut Numbers,
    ) -> Result<Option<Box<dyn CapturedItem + '_>>>;

    /// Hands back what waited for transaction `seq`, which is durable now. Blocks that it revoked
    /// are not written home any more.
    fn committed(&self, seq: Seq) {
        let _ = seq;
    }
}

/// What a kind captured of a transaction.
pub trait CapturedItem {
    /// Adds the images of the blocks that changed. Calls for different transactions come in the
    /// order of the transactions.
    ///
    /// # Errors
    /// When something does not fit the format, or a block that was in memory has to be read again
    /// and the device fails. The transaction cannot be committed then.
    fn encode(self: Box<Self>, seq: Seq, images: &mut Images) -> Result<()>;
}

/// The kinds, in the order in which they are captured and encoded.
pub(crate) type LogItems<'a> = [&'a dyn LogItem];

/// The images of a transaction while it is being encoded.
#[derive(Debug, Default)]
pub struct Images(Vec<Image>);

impl Images {
    /// Completes the images of `blocks` with their checksums.
    pub(super) fn of_blocks(cache: &Cache, blocks: &[BlockRef]) -> Result<Self> {
        let mut images = Vec::with_capacity(blocks.len());
        for block in blocks {
            images.push(complete(cache, block)?);
        }
        Ok(Self(images))
    }

    /// Adds images that are in the cache and complete.
    pub fn add_cached(&mut self, blocks: impl IntoIterator<Item = BlockRef>) {
        self.0.extend(blocks.into_iter().map(|image| Image {
            block: image.block(),
            bytes: Bytes::Cached(image),
        }));
    }

    /// Adds images that are in the cache and complete, in place of those that are there of the same
    /// blocks.
    pub fn replace_cached(&mut self, blocks: Vec<BlockRef>) {
        if !blocks.is_empty() {
            let changed: HashSet<Pblk> = blocks.iter().map(BlockRef::block).collect();
            self.0.retain(|image| !changed.contains(&image.block));
            self.add_cached(blocks);
        }
    }

    /// Adds the complete content of a block.
    pub fn add(&mut self, block: Pblk, bytes: Arc<[u8]>) {
        self.0.push(Image {
            block,
            bytes: Bytes::Own(bytes),
        });
    }

    /// The images, ascending by block.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when two kinds of metadata are in one block.
    pub(super) fn sorted(self) -> Result<Vec<Image>> {
        let mut images = self.0;
        images.sort_unstable_by_key(|image| image.block);
        let same = |pair: &&[Image]| pair[0].block == pair[1].block;
        if let Some(twice) = images.windows(2).find(same) {
            let block = twice[0].block;
            let expected = Expected::Said("one kind of metadata in each block");
            let what = Structure::JournalBlock;
            let source = FormatError::new(what, "kinds of metadata", 2, expected);
            return Err(Error::corrupt(Place::Block(block), source));
        }
        Ok(images)
    }
}

/// An image with its checksum.
fn complete(cache: &Cache, image: &BlockRef) -> Result<Image> {
    let block = image.block();
    let seal: Seal = image.seal();
    let bytes = if seal.is_plain() {
        Bytes::Cached(image.clone())
    } else {
        let mut copy = cache.content_of(image);
        seal.complete(block, &mut copy)
            .in_place(Place::Block(block))?;
        Bytes::Sealed(Arc::new(copy))
    };
    Ok(Image { block, bytes })
}
