//! Names of attributes: the well-known prefix is stored as a one-byte index.

use alloc::vec::Vec;

/// Index of `user.` attributes.
pub const USER: u8 = 1;
/// Index of the access control list, `system.posix_acl_access`.
pub const ACL_ACCESS: u8 = 2;
/// Index of a directory's default access control list, `system.posix_acl_default`.
pub const ACL_DEFAULT: u8 = 3;
/// Index of `trusted.` attributes.
pub const TRUSTED: u8 = 4;
/// Index of Lustre's own attributes, which have no name under Linux.
pub const LUSTRE: u8 = 5;
/// Index of `security.` attributes.
pub const SECURITY: u8 = 6;
/// Index of `system.` attributes.
pub const SYSTEM: u8 = 7;
/// Index of rich access control lists.
pub const RICHACL: u8 = 8;
/// Index of the encryption context, which is not shown to programs.
pub const ENCRYPTION: u8 = 9;
/// Index of GNU/Hurd's attributes.
pub const HURD: u8 = 10;

/// The attribute that holds the part of a file's content that does not fit `i_block`.
pub const INLINE_DATA: AttributeName<'static> = AttributeName {
    index: SYSTEM,
    suffix: b"data",
};

/// Prefixes that stand for a whole name come first: `system.` is a prefix of them.
const PREFIXES: [(u8, &[u8], bool); 8] = [
    (ACL_ACCESS, b"system.posix_acl_access", true),
    (ACL_DEFAULT, b"system.posix_acl_default", true),
    (RICHACL, b"system.richacl", true),
    (USER, b"user.", false),
    (TRUSTED, b"trusted.", false),
    (SECURITY, b"security.", false),
    (SYSTEM, b"system.", false),
    (HURD, b"gnu.", false),
];

/// A name as stored: the index of its prefix, and what follows the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributeName<'a> {
    /// Index of the prefix.
    pub index: u8,
    /// The rest of the name; empty where the index says all.
    pub suffix: &'a [u8],
}

impl AttributeName<'_> {
    /// Returns the order attributes have in a block: by index, then by length of the rest, then by
    /// its bytes.
    #[must_use]
    pub fn block_order(&self, other: &Self) -> core::cmp::Ordering {
        (self.index, self.suffix.len(), self.suffix).cmp(&(
            other.index,
            other.suffix.len(),
            other.suffix,
        ))
    }
}

/// Returns the stored form of a full name (`user.comment`), or `None` for a name with an unknown
/// prefix, nothing behind the prefix, or more than 255 bytes behind it.
#[must_use]
pub fn split_name(full: &[u8]) -> Option<AttributeName<'_>> {
    PREFIXES.iter().find_map(|&(index, prefix, whole)| {
        let suffix = full.strip_prefix(prefix)?;
        let good = if whole {
            suffix.is_empty()
        } else {
            (1..=super::NAME_MAX).contains(&suffix.len()) && !suffix.contains(&0)
        };
        good.then_some(AttributeName { index, suffix })
    })
}

/// Returns the full name of a stored one, or `None` for attributes that have no name outside the
/// file system (the encryption context, Lustre's, unknown indexes).
#[must_use]
pub fn full_name(name: &AttributeName<'_>) -> Option<Vec<u8>> {
    let (_, prefix, whole) = PREFIXES.iter().find(|p| p.0 == name.index)?;
    (*whole == name.suffix.is_empty()).then(|| [prefix, name.suffix].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_and_join() {
        for (full, index, suffix) in [
            (&b"user.a.b"[..], USER, &b"a.b"[..]),
            (b"system.posix_acl_access", ACL_ACCESS, b""),
            (b"system.posix_acl_default", ACL_DEFAULT, b""),
            (b"system.data", SYSTEM, b"data"),
            (b"security.selinux", SECURITY, b"selinux"),
            (b"trusted.x", TRUSTED, b"x"),
        ] {
            let name = split_name(full).unwrap();
            assert_eq!(name, AttributeName { index, suffix });
            assert_eq!(full_name(&name).unwrap(), full);
        }
    }

    #[test]
    fn names_without_a_stored_form_are_refused() {
        assert_eq!(split_name(b"user."), None);
        assert_eq!(split_name(b"users.x"), None);
        assert_eq!(split_name(b"btrfs.compression"), None);
        assert_eq!(split_name(&[b"user.", &[b'x'; 256][..]].concat()), None);
        let context = AttributeName {
            index: ENCRYPTION,
            suffix: b"c",
        };
        assert_eq!(full_name(&context), None);
    }
}
