//! Whether the user of a mount may do everything to files, so that checking what this user does is
//! work for nothing.
//!
//! The kernel checks modes with attributes that it asks for again after each change of a directory:
//! one request more for every file that is made or removed. Where only the superuser gets in, and
//! nobody acts for others there, nothing comes of it.

use rustix::thread::{CapabilitySet, capabilities};
use std::os::unix::fs::MetadataExt;

/// What makes a user exempt from checks of owner, mode and access control lists.
const EXEMPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// The number of the first user namespace (`PROC_USER_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Tells whether this process is in the first user namespace, whose root is the machine's.
pub(crate) fn is_first_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/user")
        .is_ok_and(|namespace| namespace.ino() == FIRST_NAMESPACE)
}

/// Tells whether this process is the superuser, with all rights, and not of another user namespace
/// than the first: there the kernel passes access control lists on only if it checks them.
pub(crate) fn is_superuser() -> bool {
    // The kernel lets the real user in.
    rustix::process::getuid().is_root()
        && rustix::process::geteuid().is_root()
        && is_first_namespace()
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(EXEMPT))
}
