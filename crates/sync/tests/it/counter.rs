//! Counters and shards.

use extant_sync::{PerCpu, ShardedCounter, cpu_hint, shard_count};
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn a_sharded_counter_loses_nothing() {
    let counter = ShardedCounter::new();
    let taken = std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for _ in 0..20_000 {
                    counter.add(3);
                    counter.dec();
                }
            });
        }
        let taker = s.spawn(|| (0..50).map(|_| counter.take()).sum::<i64>());
        taker.join().unwrap()
    });
    assert_eq!(taken + counter.sum(), 8 * 20_000 * 2);
}

#[test]
fn a_negative_sum_counts_as_nothing() {
    let counter = ShardedCounter::new();
    counter.dec();
    assert_eq!((counter.sum(), counter.count()), (-1, 0));
}

#[test]
fn every_hint_leads_to_a_shard() {
    let shards = PerCpu::new(|_| AtomicU64::new(0));
    assert_eq!(shards.len(), shard_count());
    for _ in 0..1000 {
        let _ = cpu_hint();
        shards.local().fetch_add(1, Ordering::Relaxed);
    }
    let sum: u64 = shards.iter().map(|s| s.load(Ordering::Relaxed)).sum();
    assert_eq!(sum, 1000);
    assert!(shards.get(shards.len()).is_none());
}
