//! Mounted file systems, used by programs as any other.

mod attributes;
mod coherence;
mod concurrency;
mod direct_reads;
mod examples;
mod handles;
mod linux;
mod other_users;
mod random_file;
mod refused_rings;
mod sandbox;
mod slow_transfers;
mod support;
mod syscalls;
mod unlinked_files;
mod views;
