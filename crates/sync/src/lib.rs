//! Ranked locks, lock statistics, per-CPU shards and a read-mostly hash table.
