//! Large directories that were made lately: a lookup reads a few blocks, one after the other, and
//! all blocks of a directory are made together.

use extant_format::Ino;
use extant_sync::{LockClass, Mutex, Rank};
use std::collections::VecDeque;
use std::sync::Arc;

static MAKING: LockClass = LockClass::new("making of planned directories", Rank::ImageFormat);
static KEPT: LockClass = LockClass::new("planned directories", Rank::Leaf);

/// A directory of at most this many bytes is made anew each time.
const SMALL: usize = 64 << 10;
/// Bytes that are kept at most, beside the one directory that was used last.
const MOST: usize = 32 << 20;

/// What is made together: a directory from one of its blocks on.
type Key = (Ino, u32);

/// Directories as they are on the device, the one that was used last in front.
#[derive(Debug)]
pub(super) struct Directories {
    kept: Mutex<Kept>,
    /// Held where a large one is made: however many threads need some, memory is for one more than
    /// is kept.
    making: Mutex<()>,
}

type Kept = VecDeque<(Key, Arc<Vec<u8>>)>;

impl Directories {
    pub(super) fn new() -> Self {
        Self {
            kept: Mutex::new(&KEPT, VecDeque::new()),
            making: Mutex::new(&MAKING, ()),
        }
    }

    /// The bytes of a run of a directory, so many as `len` says, which `make` makes.
    ///
    /// # Errors
    /// Those of `make`.
    pub(super) fn get<E>(
        &self,
        key: Key,
        len: usize,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<Vec<u8>>, E> {
        if len <= SMALL {
            return make().map(Arc::new);
        }
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        let _making = self.making.lock();
        // Another thread may have made it meanwhile.
        if let Some(found) = self.find(key) {
            return Ok(found);
        }
        let made = Arc::new(make()?);
        self.keep(key, Arc::clone(&made));
        Ok(made)
    }

    fn find(&self, key: Key) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|(other, _)| *other == key)?;
        let found = kept.remove(index)?;
        let bytes = Arc::clone(&found.1);
        kept.push_front(found);
        Some(bytes)
    }

    fn keep(&self, key: Key, bytes: Arc<Vec<u8>>) {
        let mut kept = self.kept.lock();
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
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn large_ones_are_made_once_until_others_need_the_room() {
        let directories = Directories::new();
        let get = |ino: u32, len: usize| {
            let mut is_made = false;
            let bytes = directories.get((Ino::new(ino), 0), len, || {
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

    #[test]
    fn large_ones_that_many_threads_need_are_made_once_and_one_at_a_time() {
        const THREADS: u32 = 8;
        const DIRECTORIES: u32 = 2;
        let directories = Directories::new();
        let (made, at_a_time) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (directories, made, at_a_time) = (&directories, &made, &at_a_time);
                scope.spawn(move || {
                    let key = (Ino::new(1 + number % DIRECTORIES), 0);
                    let bytes = directories.get(key, SMALL + 1, || {
                        let others = at_a_time.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(others, 0, "made at a time");
                        thread::sleep(Duration::from_millis(20));
                        at_a_time.fetch_sub(1, Ordering::SeqCst);
                        made.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, ()>(vec![key.0.get() as u8; SMALL + 1])
                    });
                    assert!(bytes.unwrap().iter().all(|&b| u32::from(b) == key.0.get()));
                });
            }
        });
        assert_eq!(made.into_inner(), DIRECTORIES);
    }
}
