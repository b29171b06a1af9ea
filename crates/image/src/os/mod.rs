//! What differs between systems: bytes of paths, and files that are open already.
//!
//! | file | owns |
//! |---|---|
//! | `unix.rs` | paths that are bytes |
//! | `elsewhere.rs` | paths that are text, of which one that is no Unicode is refused |
//! | `descriptor.rs` | files that are open already, on Linux |
//! | `closed.rs` | other systems, where they are refused |

#[cfg(not(target_os = "linux"))]
mod closed;
#[cfg(target_os = "linux")]
mod descriptor;
#[cfg(not(unix))]
mod elsewhere;
#[cfg(unix)]
mod unix;

#[cfg(not(target_os = "linux"))]
pub(crate) use closed::{is_regular_file, open};
#[cfg(target_os = "linux")]
pub(crate) use descriptor::{is_regular_file, open};
#[cfg(not(unix))]
pub(crate) use elsewhere::{bytes, os};
#[cfg(unix)]
pub(crate) use unix::{bytes, os};
