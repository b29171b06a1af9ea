//! The checkpoint queue: the newest committed image of every block that is not home yet.
//!
//! # Invariants
//!
//! - Only committed images are here, and of each block only the newest.
//! - Reads that miss the cache get their blocks from here before they ask the device.
//! - When [`Queue::drop_images`] returns, no write of the dropped blocks is under way and none will
//!   begin: their addresses may get another use.

use crate::journal::Seq;
use crate::meta::{BlockRef, Content, Overlay};
use extant_format::Pblk;
use extant_sync::{Condvar, LockClass, Mutex, Rank, RcuMap, pin};
use std::ops::Deref;
use std::sync::Arc;

static BUCKET: LockClass = LockClass::new("checkpoint bucket", Rank::CacheBucket);
static WRITING: LockClass = LockClass::new("checkpoint writes", Rank::Leaf);

/// Buckets of the map: many commits insert, one checkpoint removes.
const BUCKETS: usize = 256;

/// The bytes of an image.
#[derive(Clone, Debug)]
pub(super) enum Bytes {
    /// What commit encoded.
    Own(Arc<[u8]>),
    /// A completed copy.
    Sealed(Arc<Content>),
    /// The image in the cache, which needs no checksum.
    Cached(BlockRef),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Sealed(content) => content,
            Self::Cached(block) => block.bytes(),
        }
    }
}

/// A block's content, complete, as a transaction left it.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub(super) block: Pblk,
    pub(super) bytes: Bytes,
}

#[derive(Debug)]
struct Queued {
    seq: Seq,
    bytes: Bytes,
}

/// The images on their way home.
#[derive(Debug)]
pub(super) struct Queue {
    images: RcuMap<Pblk, Queued>,
    /// Blocks being written home right now, ascending.
    writing: Mutex<Vec<Pblk>>,
    written: Condvar,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            images: RcuMap::new(&BUCKET, BUCKETS),
            writing: Mutex::new(&WRITING, Vec::new()),
            written: Condvar::new(),
        }
    }

    /// Takes the images of transaction `seq`, which has been committed, in place of older ones.
    pub(super) fn insert(&self, seq: Seq, images: Vec<Image>) {
        for Image { block, bytes } in images {
            self.images.replace(block, Queued { seq, bytes }, &pin());
        }
    }

    /// Forgets the images of blocks that are metadata no longer, and waits for writes of them.
    pub(super) fn drop_images(&self, blocks: &[Pblk]) {
        for block in blocks {
            self.images.remove(block, &pin());
        }
        let mut writing = self.writing.lock();
        while blocks.iter().any(|b| writing.binary_search(b).is_ok()) {
            self.written.wait(&mut writing);
        }
    }

    /// How many blocks wait.
    pub(super) fn len(&self) -> usize {
        self.images.len()
    }

    /// The blocks that wait, ascending.
    pub(super) fn blocks(&self) -> Vec<Pblk> {
        let mut blocks: Vec<Pblk> = Vec::with_capacity(self.images.len());
        for bucket in 0..self.images.bucket_count() {
            let guard = pin();
            blocks.extend(
                self.images
                    .iter_buckets(bucket..bucket + 1, &guard)
                    .map(|(block, _)| *block),
            );
        }
        blocks.sort_unstable();
        // A resize of a bucket never shows a key twice; a change of its value meanwhile may.
        blocks.dedup();
        blocks
    }

    /// The images of those of `blocks` (ascending) that still wait. Until the batch is dropped, a
    /// thread that drops one of them waits.
    pub(super) fn begin(&self, blocks: &[Pblk]) -> Batch<'_> {
        let mut writing = self.writing.lock();
        let mut images = Vec::with_capacity(blocks.len());
        let mut seqs = Vec::with_capacity(blocks.len());
        for block in blocks {
            let guard = pin();
            if let Some(found) = self.images.get(block, &guard) {
                writing.push(*block);
                seqs.push((*block, found.seq));
                images.push(Image {
                    block: *block,
                    bytes: found.bytes.clone(),
                });
            }
        }
        Batch {
            queue: self,
            images,
            seqs,
        }
    }

    /// Forgets images that have been written home, unless newer ones came meanwhile.
    pub(super) fn remove(&self, written: &[(Pblk, Seq)]) {
        for (block, seq) in written {
            self.images
                .remove_if(block, |found| found.seq == *seq, &pin());
        }
    }
}

impl Overlay for Queue {
    fn image(&self, block: Pblk) -> Option<Arc<[u8]>> {
        let guard = pin();
        self.images
            .get(&block, &guard)
            .map(|found| match &found.bytes {
                Bytes::Own(bytes) => Arc::clone(bytes),
                other => other[..].into(),
            })
    }
}

/// Images being written home.
pub(super) struct Batch<'q> {
    queue: &'q Queue,
    pub(super) images: Vec<Image>,
    /// Which transaction each image is of.
    pub(super) seqs: Vec<(Pblk, Seq)>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.queue.writing.lock().clear();
        self.queue.written.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(block: u64, fill: u8) -> Image {
        Image {
            block: Pblk::new(block),
            bytes: Bytes::Own(vec![fill; 16].into()),
        }
    }

    #[test]
    fn only_the_newest_image_waits_and_a_newer_one_survives_the_write_of_an_older() {
        let queue = Queue::new();
        queue.insert(Seq::new(1), vec![image(5, 1), image(3, 1)]);
        let blocks = queue.blocks();
        assert_eq!(blocks, [Pblk::new(3), Pblk::new(5)]);
        let batch = queue.begin(&blocks);
        queue.insert(Seq::new(2), vec![image(5, 2)]);
        let written = batch.seqs.clone();
        drop(batch);
        queue.remove(&written);
        assert_eq!(queue.blocks(), [Pblk::new(5)]);
        assert_eq!(queue.image(Pblk::new(5)).unwrap()[0], 2);
        assert!(queue.image(Pblk::new(3)).is_none());
    }

    #[test]
    fn a_block_gets_no_other_use_while_it_is_being_written_home() {
        let queue = Queue::new();
        queue.insert(Seq::new(1), vec![image(5, 1), image(7, 1)]);
        let batch = queue.begin(&[Pblk::new(5)]);
        queue.drop_images(&[Pblk::new(7)]);
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| queue.drop_images(&[Pblk::new(5)]));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!dropping.is_finished());
            drop(batch);
            dropping.join().unwrap();
        });
        assert!(queue.begin(&[Pblk::new(5)]).images.is_empty());
        assert_eq!(queue.len(), 0);
    }
}
