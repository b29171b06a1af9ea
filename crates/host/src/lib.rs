//! Files of the host, by way of the C library, and threads that a forked process has as well.
//!
//! Internal to Extant: any version may change it. Programs use the crate `extant`.
//!
//! Programs such as `fakeroot` and `pseudo` let an ordinary user build a tree that has owners,
//! device nodes and capabilities: they stand in front of the C library and tell of a file what they
//! were told before. A system call made without that library goes past them. So code that takes
//! files in from the host with their owners, or puts them there, asks through the functions of this
//! crate.
//!
//! | module | owns |
//! |---|---|
//! | `calls` | the calls, each as safe as the descriptor and the name it is given |
//! | `pretence` | whether such a program is asked for, and whether this process hears it |
//! | `threads` | the threads of a process, and of those that are forked from it, with the feature of this name |
//!
//! # Invariants
//!
//! - What makes, removes, renames or describes a file goes through the C library, opening included:
//!   `pseudo` knows a descriptor by the call that opened it.
//! - Content is nobody's pretence: reading, writing and seeking need no function here.

mod calls;
mod pretence;
#[cfg(feature = "threads")]
mod threads;

pub use calls::{
    chmodat, chownat, euid, fchmod, fchown, fremovexattr, fsetxattr, has_no_xattrs, is_mount_point,
    lgetxattr, linkat, llistxattr, lremovexattr, lsetxattr, mkdirat, mknodat, open, openat,
    openat2, rename, renameat, rmdirat, statx, symlinkat, unlinkat,
};
/// What [`statx`] finds out.
pub use libc::statx as Statx;
pub use pretence::{is_pretended, refuse_if_unheard};
#[cfg(feature = "threads")]
pub use threads::side_by_side;
