//! Objects seen from outside.

mod bad_servers;
mod disk_cache;
mod reading;
mod server;
mod support;
