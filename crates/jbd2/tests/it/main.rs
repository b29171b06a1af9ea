//! The journal as a reader meets it: logs made here, and logs the kernel left behind.

mod damage;
mod kernel;
mod replay;
mod synthetic;
