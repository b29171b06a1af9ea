//! A model of a file system that knows which states are legal after a crash.
//!
//! | module | owns |
//! |---|---|
//! | `op` | the operations, as values |
//! | `tag` | file content that says which write it came from |
//! | `shift` | where bytes are after a range was taken out of a file or put in |
//! | `state` | the tree after some operations, and the error each operation gives when it is refused |
//! | `data` | what was written to one file, and which bytes are legal at a place |
//! | `history` | what was done, in lanes of one thread each, and how it ended |
//! | `found` | a recovered tree, with content |
//! | `compare` | one state beside one recovered tree |
//! | `judge` | whether any legal state fits what was recovered, and a sentence if none does |
//! | `mounted` | operations done by the kernel |
//! | `acl` | the one access control list there is, and what is inherited of it |
//! | `xattr` | values of extended attributes |
//! | `universe` | which operations to do: all of a small universe, or random ones by seed |
//!
//! # What is promised
//!
//! - Metadata operations are journaled in order. After recovery the tree is what some prefix of the
//!   operations made; with several threads, a prefix of some order that agrees with what ended
//!   before what began. So a rename is there or not, never in part.
//! - `fsync` makes durable what was written to the file, and every operation up to the last one
//!   that changed its inode (`fdatasync`: its size or mapping), together with everything that ended
//!   before that one began. `syncfs` does so for all that ended before it began.
//! - Overwrites of mapped blocks are not journaled: a sector holds any version written since the
//!   last durable one. Nothing else is ever there: zeros only where the file may still have a hole,
//!   no content of another file, of an earlier life of the file, or from beyond a truncation.
//! - A write may be there in part: its size is then somewhere between before and after.
//!
//! # How a test uses it
//!
//! Each thread owns a [`Lane`] (all of the tree, or all paths with one prefix) and runs [`Op`]s
//! through [`Lane::run`], which sets marks on the crash device and compares the result with what
//! the model expects. Afterwards a [`Judge`] of the [`History`] looks at each crash image's tree.

mod acl;
mod compare;
mod data;
mod found;
mod history;
mod judge;
mod mounted;
mod op;
mod shift;
mod state;
mod tag;
mod universe;
mod xattr;

pub use acl::{DEFAULT_ACL, default_acl};
pub use found::{Found, FoundKind, Recovered};
pub use history::{DataPromise, History, Lane, Outcome};
pub use judge::{Illegal, Judge};
pub use mounted::perform_mounted;
pub use op::{Node, Op};
pub use state::State;
pub use tag::{Tag, tagged};
pub use universe::Universe;
pub use xattr::xattr_value;
