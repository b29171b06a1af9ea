//! ext4 images from C: the functions of `include/extant.h`.
//!
//! Part of the API is the header; the Rust items behind it are internal (`docs/dev/api.md`).
//!
//! | module | owns |
//! |---|---|
//! | `abi` | the functions that C calls: each decodes, calls the `extant` crate once, and encodes |
//! | `call` | what a failure becomes: a negative errno, and a sentence for the thread |
//! | `pointers` | from what C passes to what Rust may use |
//! | `types` | what is behind the handles, and the structures both sides know |
//!
//! # Conventions
//!
//! Functions return 0 or a count, or a negative Linux error number; `extant_message` then has a
//! sentence for the calling thread. A panic does not cross into C: it becomes `EIO`. Handles may be
//! used by any number of threads at once, except directories, which are used by one at a time, and
//! except while they are being closed.
//!
//! The header is written by hand and kept in step with `abi` and `types` by a test.

mod abi;
mod call;
mod pointers;
mod types;

pub use abi::*;
pub use types::{Dir, Entry, File, Fs, Mended, Options, Space, Stat, Time};
