//! POSIX access control lists as ext4 stores them.
//!
//! Three forms: on disk (version 1; entries without an id take four bytes), as the `xattr` system
//! calls carry them (version 2; every entry has an id and takes eight), and as text
//! (`user:1000:rw-`). [`Acl`] is the typed one between them.
//!
//! # Invariant
//! An [`Acl`] is valid in the sense of POSIX.1e draft 17: owner, group and others exactly once,
//! in the standard order, and a mask if anybody is named.

use crate::bytes::{le16, le32};
use crate::error::{Expected, FormatError, FormatResult, Structure};
use alloc::vec::Vec;
use core::fmt;

/// The version of the on-disk form.
const DISK_VERSION: u32 = 1;
/// The version of the form system calls carry.
const SYSCALL_VERSION: u32 = 2;
/// The id of entries that have none, in the system calls' form.
const NO_ID: u32 = u32::MAX;

/// The users that an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AclWho {
    /// The file's owner.
    Owner,
    /// A user, by id.
    User(u32),
    /// The file's group.
    Group,
    /// A group, by id.
    NamedGroup(u32),
    /// The most that named users and all groups get.
    Mask,
    /// Everybody else.
    Other,
}

impl AclWho {
    const fn tag(self) -> u16 {
        match self {
            Self::Owner => 0x01,
            Self::User(_) => 0x02,
            Self::Group => 0x04,
            Self::NamedGroup(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    const fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::NamedGroup(id) => Some(id),
            _ => None,
        }
    }

    const fn has_id(tag: u16) -> bool {
        matches!(tag, 0x02 | 0x08)
    }

    fn from_tag(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 => Self::User(id),
            0x04 => Self::Group,
            0x08 => Self::NamedGroup(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

/// One entry: the users that it is about, and what they may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// The users that it is about.
    pub who: AclWho,
    /// Permission bits: read 4, write 2, execute 1.
    pub permissions: u8,
}

/// A valid access control list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

fn broken(field: &'static str, at: usize, found: u64, expected: Expected) -> FormatError {
    FormatError::new(Structure::Acl, field, found, expected).at(at)
}

impl Acl {
    /// Makes a list of these entries.
    ///
    /// # Errors
    /// When they do not make a valid list in the standard order.
    pub fn new(entries: Vec<AclEntry>) -> FormatResult<Self> {
        let order = Expected::Said("owner, users, group, groups, mask, others, in this order");
        // The next place in the order: 0 owner, 1 users, 2 groups, 3 others, 4 end.
        let mut place = 0;
        let mut named = false;
        let mut masked = false;
        for (i, entry) in entries.iter().enumerate() {
            let bits = u64::from(entry.permissions);
            if bits > 7 {
                return Err(broken("perm", i, bits, Expected::AtMost(7)));
            }
            place = match (entry.who, place) {
                (AclWho::Owner, 0) => 1,
                (AclWho::User(_), 1) => 1,
                (AclWho::Group, 1) => 2,
                (AclWho::NamedGroup(_), 2) => 2,
                (AclWho::Mask, 2) => 3,
                (AclWho::Other, 2 | 3) => 4,
                _ => return Err(broken("tag", i, u64::from(entry.who.tag()), order)),
            };
            named |= entry.who.id().is_some();
            masked |= entry.who == AclWho::Mask;
        }
        if place != 4 {
            let found = entries.len() as u64;
            return Err(broken("entries", entries.len(), found, order));
        }
        if named && !masked {
            let expected = Expected::Said("a mask where users or groups are named");
            return Err(broken("entries", 0, entries.len() as u64, expected));
        }
        Ok(Self { entries })
    }

    /// Returns the entries, in the standard order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// Reads the on-disk form.
    ///
    /// # Errors
    /// When the version is unknown, an entry is cut short or unknown, or the list is not valid.
    pub fn decode_disk(bytes: &[u8]) -> FormatResult<Self> {
        let mut entries = Vec::new();
        let mut at = version_checked(bytes, DISK_VERSION)?;
        while at < bytes.len() {
            let tag = le16(bytes, at);
            let len = if AclWho::has_id(tag) { 8 } else { 4 };
            if bytes.len() - at < len {
                return Err(FormatError::short(Structure::Acl, bytes.len() - at, len).at(at));
            }
            entries.push(entry(tag, le16(bytes, at + 2), le32(bytes, at + 4), at)?);
            at += len;
        }
        Self::new(entries)
    }

    /// Writes the on-disk form.
    #[must_use]
    pub fn encode_disk(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + 8 * self.entries.len());
        bytes.extend_from_slice(&DISK_VERSION.to_le_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.who.tag().to_le_bytes());
            bytes.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
            if let Some(id) = entry.who.id() {
                bytes.extend_from_slice(&id.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads the form the `xattr` system calls and tar archives carry.
    ///
    /// # Errors
    /// When the version is unknown, an entry is cut short or unknown, or the list is not valid.
    pub fn decode_syscall(bytes: &[u8]) -> FormatResult<Self> {
        let mut entries = Vec::new();
        let mut at = version_checked(bytes, SYSCALL_VERSION)?;
        while at < bytes.len() {
            if bytes.len() - at < 8 {
                return Err(FormatError::short(Structure::Acl, bytes.len() - at, 8).at(at));
            }
            let (tag, perm) = (le16(bytes, at), le16(bytes, at + 2));
            entries.push(entry(tag, perm, le32(bytes, at + 4), at)?);
            at += 8;
        }
        Self::new(entries)
    }

    /// Writes the form the `xattr` system calls and tar archives carry.
    #[must_use]
    pub fn encode_syscall(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 + 8 * self.entries.len());
        bytes.extend_from_slice(&SYSCALL_VERSION.to_le_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.who.tag().to_le_bytes());
            bytes.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
            bytes.extend_from_slice(&entry.who.id().unwrap_or(NO_ID).to_le_bytes());
        }
        bytes
    }

    /// Returns the nine permission bits of the mode that go with this list: the group bits show the
    /// mask where there is one.
    #[must_use]
    pub fn mode_bits(&self) -> u16 {
        let bits = |who| {
            let found = self.entries.iter().find(|e| e.who == who);
            found.map(|e| u16::from(e.permissions))
        };
        let group = bits(AclWho::Mask).or(bits(AclWho::Group)).unwrap_or(0);
        bits(AclWho::Owner).unwrap_or(0) << 6 | group << 3 | bits(AclWho::Other).unwrap_or(0)
    }

    /// Returns whether the list says no more than mode bits do, and so need not be stored.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }
}

fn version_checked(bytes: &[u8], version: u32) -> FormatResult<usize> {
    if bytes.len() < 4 {
        return Err(FormatError::short(Structure::Acl, bytes.len(), 4));
    }
    let found = le32(bytes, 0);
    if found == version {
        Ok(4)
    } else {
        let expected = Expected::Exactly(u64::from(version));
        Err(broken("version", 0, u64::from(found), expected))
    }
}

fn entry(tag: u16, permissions: u16, id: u32, at: usize) -> FormatResult<AclEntry> {
    let known = Expected::Said("a known tag: 1, 2, 4, 8, 16 or 32");
    let who = AclWho::from_tag(tag, id).ok_or(broken("tag", at, u64::from(tag), known))?;
    if permissions > 7 {
        let found = u64::from(permissions);
        return Err(broken("perm", at + 2, found, Expected::AtMost(7)));
    }
    Ok(AclEntry {
        who,
        permissions: permissions as u8,
    })
}

impl fmt::Display for AclEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.who {
            AclWho::Owner => f.write_str("user::")?,
            AclWho::User(id) => write!(f, "user:{id}:")?,
            AclWho::Group => f.write_str("group::")?,
            AclWho::NamedGroup(id) => write!(f, "group:{id}:")?,
            AclWho::Mask => f.write_str("mask::")?,
            AclWho::Other => f.write_str("other::")?,
        }
        for (bit, letter) in [(4, "r"), (2, "w"), (1, "x")] {
            f.write_str(if self.permissions & bit != 0 {
                letter
            } else {
                "-"
            })?;
        }
        Ok(())
    }
}

/// The long text form, one entry a line, as `getfacl -n` shows it.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, entry) in self.entries.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn acl(users: &[(u32, u8)], groups: &[(u32, u8)], perms: [u8; 4]) -> Acl {
        let entry = |who, permissions| AclEntry { who, permissions };
        let mut list = vec![entry(AclWho::Owner, perms[0])];
        list.extend(users.iter().map(|&(id, p)| entry(AclWho::User(id), p)));
        list.push(entry(AclWho::Group, perms[1]));
        list.extend(
            groups
                .iter()
                .map(|&(id, p)| entry(AclWho::NamedGroup(id), p)),
        );
        if !users.is_empty() || !groups.is_empty() {
            list.push(entry(AclWho::Mask, perms[2]));
        }
        list.push(entry(AclWho::Other, perms[3]));
        Acl::new(list).unwrap()
    }

    #[test]
    fn a_list_reads_as_text_and_as_mode_bits() {
        let list = acl(&[(1000, 6)], &[], [7, 5, 6, 0]);
        assert_eq!(
            list.to_string(),
            "user::rwx\nuser:1000:rw-\ngroup::r-x\nmask::rw-\nother::---"
        );
        assert_eq!(list.mode_bits(), 0o760);
        assert!(!list.is_minimal());
        assert!(acl(&[], &[], [6, 4, 0, 4]).is_minimal());
    }

    #[test]
    fn a_list_without_mask_or_out_of_order_is_refused() {
        let entry = |who, permissions| AclEntry { who, permissions };
        let owner = entry(AclWho::Owner, 7);
        let (user, group) = (entry(AclWho::User(1), 7), entry(AclWho::Group, 7));
        let (mask, other) = (entry(AclWho::Mask, 7), entry(AclWho::Other, 7));
        assert!(Acl::new(vec![owner, group, other]).is_ok());
        assert!(Acl::new(vec![owner, user, group, mask, other]).is_ok());
        for bad in [
            vec![],
            vec![owner, group],
            vec![owner, user, group, other],
            vec![owner, group, user, mask, other],
            vec![owner, group, other, other],
            vec![owner, group, entry(AclWho::Other, 8)],
        ] {
            assert!(Acl::new(bad).is_err());
        }
    }

    proptest! {
        #[test]
        fn both_encodings_read_back(
            users in prop::collection::vec((any::<u32>(), 0u8..8), 0..5),
            groups in prop::collection::vec((any::<u32>(), 0u8..8), 0..5),
            perms in prop::array::uniform4(0u8..8),
        ) {
            let list = acl(&users, &groups, perms);
            prop_assert_eq!(&Acl::decode_disk(&list.encode_disk()).unwrap(), &list);
            prop_assert_eq!(&Acl::decode_syscall(&list.encode_syscall()).unwrap(), &list);
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80), tame: bool) {
            let mut bytes = bytes;
            if tame {
                for b in &mut bytes { *b &= 0x27; }
            }
            for version in [1u32, 2] {
                if bytes.len() >= 4 {
                    bytes[..4].copy_from_slice(&version.to_le_bytes());
                }
                if let Ok(list) = Acl::decode_disk(&bytes) {
                    prop_assert_eq!(list.encode_disk(), bytes.clone());
                }
                let _ = Acl::decode_syscall(&bytes);
            }
        }
    }
}
