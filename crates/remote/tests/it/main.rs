//! Objects seen from outside.

mod bad_servers;
mod chunk_stores;
mod disk_cache;
mod ext4;
mod reading;
mod server;
mod stores;
mod support;
mod web_servers;
