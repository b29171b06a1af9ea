//! Large directories that were made lately: a lookup reads a few blocks, one after the other, and
//! all blocks of a directory are made together.

use extant_format::Ino;
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::VecDeque;
use std::sync::Arc;

static KEPT: LockClass = LockClass::new("planned directories", Rank::Leaf);

/// A directory of at most this many bytes is made anew each time.
const SMALL: usize = 64 << 10;
/// Bytes that are kept at most, beside the one directory that was used last.
const MOST: usize = 32 << 20;

/// What is made together: a directory from one of its blocks on.
type Key = (Ino, u32);

/// Directories as they are on the device, the one that was used last in front.
#[derive(Debug)]
pub(super) struct Directories(Mutex<VecDeque<(Key, Arc<Vec<u8>>)>>);

impl Directories {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&KEPT, VecDeque::new()))
    }

    /// The bytes of a run of a directory, which `make` makes.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn get<E>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<Vec<u8>>, E> {
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        // Two threads may make the same one; what they make is equal.
        let made = Arc::new(make()?);
        if made.len() > SMALL {
            self.keep(key, Arc::clone(&made));
        }
        Ok(made)
    }

    fn find(&self, key: Key) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.0.lock();
        let index = kept.iter().position(|(other, _)| *other == key)?;
        let found = kept.remove(index)?;
        let bytes = Arc::clone(&found.1);
        kept.push_front(found);
        Some(bytes)
    }

    fn keep(&self, key: Key, bytes: Arc<Vec<u8>>) {
        let mut kept = self.0.lock();
        kept.retain(|(other, _)| *other != key);
        kept.push_front((key, bytes));
        let mut sum: usize = kept.iter().map(|(_, bytes)| bytes.len()).sum();
        while kept.len() > 1 && sum > MOST {
            sum -= kept.pop_back().map_or(0, |(_, bytes)| bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_ones_are_made_once_until_others_need_the_room() {
        let directories = Directories::new();
        let get = |ino: u32, len: usize| {
            let mut is_made = false;
            let bytes = directories.get((Ino::new(ino), 0), || {
                is_made = true;
                Ok::<_, ()>(vec![ino as u8; len])
            });
            assert_eq!(bytes.unwrap().len(), len);
            is_made
        };
        assert!(get(1, SMALL) && get(1, SMALL));
        assert!(get(2, MOST / 2) && !get(2, MOST / 2));
        assert!(get(3, MOST / 2) && !get(2, MOST / 2));
        // The one that was not used for longest goes.
        assert!(get(4, SMALL + 1) && !get(2, MOST / 2) && get(3, MOST / 2));
        // Even one that is larger than all the room is there for the next look.
        assert!(get(5, 2 * MOST) && !get(5, 2 * MOST) && get(2, MOST / 2));
    }
}
