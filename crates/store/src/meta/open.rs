//! Blocks that change often and a little at a time.
//!
//! A change of a block makes another image of all of it, which readers find without a lock. Where a
//! transaction changes one block over and over that is much to copy, and on several CPUs each copy
//! has to come from the caches of another. So from its second change on in one transaction such a
//! block is *open*: it has a draft, which is changed in place, and which becomes the next image
//! when somebody asks the cache for the block, or when the transaction ends. A change then touches
//! what it reads and writes and no more.
//!
//! # Invariants
//!
//! - The draft, and whether there is one, changes under the lock of the block.
//! - While there is a draft, the image in the cache that it was made of says so. It is of the
//!   running transaction, so the block is registered there and the image stays in the cache until
//!   then.
//! - The thread that takes the draft away puts an image of it into the cache before the lock is
//!   free.

use super::{BlockRef, Cache};
use crate::Result;
use crate::meta::Seq;
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::ops::Deref;
use std::sync::Arc;

static LEAF: LockClass = LockClass::new("directory leaf", Rank::BufferContent);

/// The lock of a block that may be changed in place.
#[derive(Debug)]
#[repr(align(64))]
pub struct OpenBlock {
    state: Mutex<State>,
    /// Whether it is the lock of one block only, which then may be open.
    may_open: bool,
}

#[derive(Debug, Default)]
struct State {
    draft: Option<Draft>,
    /// How often the image changed while the lock was held.
    images: u32,
    note: u32,
}

#[derive(Debug)]
struct Draft {
    data: Box<[u8]>,
    /// The transaction it is of.
    seq: Seq,
    /// The image it was made of.
    base: BlockRef,
}

/// A block whose lock is held.
#[derive(Debug)]
#[must_use]
pub struct LockedBlock<'a> {
    cache: &'a Cache,
    block: &'a Arc<OpenBlock>,
    state: MutexGuard<'a, State>,
    /// The newest image, if there is no draft.
    image: Option<BlockRef>,
}

impl Default for OpenBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenBlock {
    /// The lock of one block.
    pub fn new() -> Self {
        Self {
            state: Mutex::new(&LEAF, State::default()),
            may_open: true,
        }
    }

    /// A lock that several blocks share. They are never open, and nothing can be noted about them.
    pub fn shared() -> Self {
        Self {
            may_open: false,
            ..Self::new()
        }
    }

    /// Locks the block, of which `load` returns the newest image. The lock is not held meanwhile.
    ///
    /// The caller sees to it that the block changes in no other way.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn lock<'a>(
        self: &'a Arc<Self>,
        cache: &'a Cache,
        load: impl Fn() -> Result<BlockRef>,
    ) -> Result<LockedBlock<'a>> {
        let locked = |state, image| LockedBlock {
            cache,
            block: self,
            state,
            image,
        };
        let mut state = self.state.lock();
        loop {
            if state.draft.is_some() {
                return Ok(locked(state, None));
            }
            let images = state.images;
            drop(state);
            let image = load()?;
            state = self.state.lock();
            if state.images == images && state.draft.is_none() {
                return Ok(locked(state, Some(image)));
            }
        }
    }

    /// Calls `read` with the draft, if there is one, and otherwise returns it.
    pub fn with_draft<R, F: FnOnce(&[u8]) -> R>(&self, read: F) -> Result<R, F> {
        match &self.state.lock().draft {
            Some(draft) => Ok(read(&draft.data)),
            None => Err(read),
        }
    }

    /// Forgets what was noted: the caller has laid out the block anew.
    pub fn forget_note(&self) {
        self.state.lock().note = 0;
    }

    /// Makes the draft the image of the block, and returns it; `None` if there is none (any more).
    pub(super) fn publish(&self, cache: &Cache) -> Option<BlockRef> {
        self.state.lock().publish(cache)
    }

    /// Gives up the draft: the block is no metadata any more.
    pub(super) fn discard(&self) {
        let mut state = self.state.lock();
        state.draft = None;
        state.images = state.images.wrapping_add(1);
    }
}

impl State {
    fn publish(&mut self, cache: &Cache) -> Option<BlockRef> {
        let Draft { data, base, .. } = self.draft.take()?;
        self.images = self.images.wrapping_add(1);
        Some(cache.publish_image(base.block(), data, base.seq(), base.seal(), Some(&base)))
    }
}

impl LockedBlock<'_> {
    /// The draft, for a change in transaction `seq`, if the block is open or now becomes so.
    ///
    /// # Errors
    /// Otherwise the newest image: the caller makes another one and calls
    /// [`LockedBlock::set_image`].
    pub(crate) fn draft(&mut self, seq: Seq) -> Result<&mut [u8], Option<BlockRef>> {
        if self
            .state
            .draft
            .as_ref()
            .is_some_and(|draft| draft.seq != seq)
        {
            // Left only where an earlier transaction could not be captured.
            self.image = self.state.publish(self.cache);
        }
        if let Some(image) = &self.image {
            if !self.block.may_open || image.seq() != seq || !image.set_open(self.block) {
                return Err(self.image.clone());
            }
            self.state.draft = Some(Draft {
                data: self.cache.copy_of(image),
                seq,
                base: image.clone(),
            });
            self.image = None;
        }
        match &mut self.state.draft {
            Some(draft) => Ok(&mut draft.data),
            None => Err(None),
        }
    }

    /// Notes that the block has another image.
    pub(crate) fn set_image(&mut self, image: BlockRef) {
        self.state.images = self.state.images.wrapping_add(1);
        self.image = Some(image);
    }

    /// A number that is kept with the block, 0 at first.
    pub fn note(&self) -> u32 {
        self.state.note
    }

    /// Keeps another number.
    pub fn set_note(&mut self, note: u32) {
        if self.block.may_open {
            self.state.note = note;
        }
    }
}

impl Deref for LockedBlock<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.state.draft {
            Some(draft) => &draft.data,
            None => self.image.as_deref().unwrap_or_default(),
        }
    }
}
