//! The biased lock: readers in the table against writers that end the bias.

use extant_sync::model::exhaust;
use extant_sync::{BiasedRwLock, LockClass, Rank, thread};
use loom::cell::UnsafeCell;
use std::sync::Arc;

static CLASS: LockClass = LockClass::new("biased", Rank::InodeOp);

struct Guarded {
    lock: BiasedRwLock<()>,
    state: UnsafeCell<()>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: BiasedRwLock::new(&CLASS, ()),
            state: UnsafeCell::new(()),
        })
    }

    fn read(&self) {
        let _guard = self.lock.read();
        self.state.with(|_| ());
    }

    fn write(&self) {
        let _guard = self.lock.write();
        self.state.with_mut(|_| ());
    }
}

fn start(
    guarded: &Arc<Guarded>,
    body: impl FnOnce(&Guarded) + Send + 'static,
) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || body(&guarded))
}

#[test]
fn a_writer_that_ends_the_bias_meets_no_visible_reader() {
    exhaust(
        "a_writer_that_ends_the_bias_meets_no_visible_reader",
        Some(3),
        || {
            let guarded = Guarded::new();
            let reader = start(&guarded, Guarded::read);
            guarded.write();
            reader.join().unwrap();
        },
    );
}

#[test]
fn two_readers_and_a_writer_exclude_as_they_should() {
    exhaust(
        "two_readers_and_a_writer_exclude_as_they_should",
        Some(2),
        || {
            let guarded = Guarded::new();
            let readers = [(); 2].map(|()| start(&guarded, Guarded::read));
            guarded.write();
            for reader in readers {
                reader.join().unwrap();
            }
        },
    );
}

#[test]
fn the_bias_that_returns_hides_no_reader() {
    exhaust("the_bias_that_returns_hides_no_reader", Some(2), || {
        let guarded = Guarded::new();
        guarded.write();
        // In a model the second reader below begins the bias, the third is in the table.
        let reader = start(&guarded, |g| {
            g.read();
            g.read();
            g.read();
        });
        guarded.write();
        reader.join().unwrap();
    });
}

#[test]
fn an_attempt_to_write_leaves_readers_alone() {
    exhaust("an_attempt_to_write_leaves_readers_alone", Some(3), || {
        let guarded = Guarded::new();
        let reader = start(&guarded, Guarded::read);
        if let Some(_guard) = guarded.lock.try_write() {
            guarded.state.with_mut(|_| ());
        }
        reader.join().unwrap();
        assert!(guarded.lock.try_write().is_some());
    });
}
