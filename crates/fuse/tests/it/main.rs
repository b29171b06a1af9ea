//! Mounted file systems, used by programs as any other.

mod agreeing;
mod confined;
mod crowd;
mod exercised;
mod handles;
mod linux;
mod nameless;
mod others;
mod raw;
mod shown;
mod support;
