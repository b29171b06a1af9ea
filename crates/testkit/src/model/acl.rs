//! The one access control list there is, and what is inherited of it.

/// The name of the attribute with what a directory hands down.
pub const DEFAULT_ACL: &str = "system.posix_acl_default";
/// The name of the attribute with what a file was handed down.
pub(super) const ACCESS_ACL: &str = "system.posix_acl_access";

/// What entries of a list are for.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
/// The id of entries that need none.
const NOBODY: u32 = u32::MAX;
/// What the list gives to others at most.
const FOR_OTHERS: u16 = 4;

/// Returns the list that [`Op::Inherit`](super::Op::Inherit) gives a directory, in the form of the
/// system calls: everything to the owner, reading and writing to user 1000, reading and searching
/// to the group, reading to others.
pub fn default_acl() -> Vec<u8> {
    list(7, 7, FOR_OTHERS)
}

/// The mode of what is made with this one in a directory that has the list.
pub(super) fn inherited_mode(mode: u16) -> u16 {
    mode & !0o777 | mode & (0o770 | FOR_OTHERS)
}

/// The list of what was made in a directory that has the list, and has this mode: owner, mask and
/// others follow it.
pub(super) fn access_acl(mode: u16) -> Vec<u8> {
    list(mode >> 6 & 7, mode >> 3 & 7, mode & 7)
}

fn list(owner: u16, mask: u16, others: u16) -> Vec<u8> {
    let entries = [
        (OWNER, owner, NOBODY),
        (USER, 6, 1000),
        (GROUP, 5, NOBODY),
        (MASK, mask, NOBODY),
        (OTHERS, others, NOBODY),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
