//! Mounted file systems, used by programs as any other.

mod confined;
mod crowd;
mod exercised;
mod linux;
mod nameless;
mod others;
mod raw;
mod support;
