//! Whether whoever mounts may do everything to files, so that checking what he does is work for nothing.
//!
//! The kernel checks modes with attributes that it asks for again after each change of a directory: one request more for
//! every file that is made or removed. Where only the superuser gets in, nothing comes of it.

use rustix::thread::{CapabilitySet, capabilities};

/// What makes a user exempt from checks of owner, mode and access control lists.
const EXEMPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Users that a user namespace has if it is the first: all.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// Whether this process is the superuser, with his rights, and not of a user namespace only.
pub(crate) fn is_superuser() -> bool {
    let has_all_users = std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(ALL_USERS));
    rustix::process::geteuid().is_root()
        && has_all_users
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(EXEMPT))
}
