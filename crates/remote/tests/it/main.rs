//! Objects seen from outside.

mod bad_servers;
mod reading;
mod server;
mod support;
