//! What has come and not left, counted by CPU.

use extant_sync::atomic::{AtomicBool, Ordering};
use extant_sync::model::exhaust;
use extant_sync::{PendingSum, ShardedCounter, cpu_hint, thread};
use std::sync::Arc;

/// Something stays; something else comes on one CPU, is handed over and leaves on the other one.
fn handed_over<C: Send + Sync + 'static>(
    counter: C,
    come: fn(&C, u32),
    leave: fn(&C, u32),
    sum: fn(&C) -> i64,
) {
    let counter = Arc::new(counter);
    come(&counter, 3);
    let is_there = Arc::new(AtomicBool::new(false));
    let coming = {
        let (counter, is_there) = (counter.clone(), is_there.clone());
        thread::spawn(move || {
            come(&counter, 5);
            is_there.store(true, Ordering::Release);
        })
    };
    let leaving = {
        let counter = counter.clone();
        thread::spawn(move || {
            // The other CPU.
            let _ = cpu_hint();
            let left = is_there.load(Ordering::Acquire);
            if left {
                leave(&counter, 5);
            }
            left
        })
    };
    let found = sum(&counter);
    assert!((3..=8).contains(&found), "{found} are pending");
    coming.join().unwrap();
    let left = leaving.join().unwrap();
    assert_eq!(sum(&counter), if left { 3 } else { 8 });
}

#[test]
fn what_is_there_is_never_counted_as_less() {
    exhaust("pending", None, || {
        handed_over(
            PendingSum::new(),
            PendingSum::come,
            PendingSum::leave,
            PendingSum::sum,
        );
    });
}

/// Why one sum does not do.
#[test]
#[should_panic(expected = "are pending")]
fn one_sum_that_grows_and_shrinks_is_counted_as_less() {
    exhaust("one sum", None, || {
        handed_over(
            ShardedCounter::new(),
            |counter, n| counter.add(n.into()),
            |counter, n| counter.add(-i64::from(n)),
            ShardedCounter::sum,
        );
    });
}
