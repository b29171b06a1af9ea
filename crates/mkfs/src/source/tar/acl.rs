//! Access control lists: from the text in an archive to the value of the system call.
//!
//! The value is version 2 of Linux' `posix_acl_xattr`: a 32-bit version, then for each entry tag
//! and permissions of 16 bits and an id of 32, all little endian, ordered by tag and id.

use super::Checked;

/// The attribute of the list that says which users may use a file.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of the list that files get which are made in a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const NO_ID: u32 = u32::MAX;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Tag, id, permissions: in this order the kernel wants them sorted.
type AclEntry = (u16, u32, u16);

/// What an access list says in permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModeBits {
    /// Nine bits: of the owner, of the mask or, where there is none, the group, and of others.
    pub(super) mode: u16,
    /// Whether it says nothing else.
    pub(super) minimal: bool,
}

/// The permission bits in the value of an access list; `None` for what is no such value.
pub(super) fn mode_of(value: &[u8]) -> Option<ModeBits> {
    let entries = value.strip_prefix(&VERSION.to_le_bytes())?;
    if entries.len() % 8 != 0 {
        return None;
    }
    let permissions = |wanted: u16| {
        entries.chunks(8).find_map(|entry| {
            let (tag, bits) = (
                u16::from_le_bytes([entry[0], entry[1]]),
                u16::from_le_bytes([entry[2], entry[3]]),
            );
            (tag == wanted).then_some(bits & 7)
        })
    };
    let group = permissions(GROUP_OBJ)?;
    Some(ModeBits {
        mode: permissions(USER_OBJ)? << 6
            | permissions(MASK).unwrap_or(group) << 3
            | permissions(OTHER)?,
        minimal: entries.len() == 3 * 8,
    })
}

/// The value of an access list after `chmod(2)`: the bits of the owner, of the mask or, where there
/// is none, the group, and of others. `None` for what is no such value.
pub(crate) fn with_mode(value: &[u8], mode: u16) -> Option<Vec<u8>> {
    mode_of(value)?;
    let has_mask = entries(value).any(|(tag, _, _)| tag == MASK);
    let changed = entries(value).map(|(tag, id, perm)| {
        let perm = match tag {
            USER_OBJ => mode >> 6 & 7,
            MASK => mode >> 3 & 7,
            GROUP_OBJ if !has_mask => mode >> 3 & 7,
            OTHER => mode & 7,
            _ => perm,
        };
        (tag, id, perm)
    });
    Some(value_of(changed))
}

/// A list with other numbers of its users and groups, in the order that they have then.
///
/// # Errors
///
/// Those of the functions.
pub(crate) fn with_ids<E>(
    value: &[u8],
    user: impl Fn(u32) -> Result<u32, E>,
    group: impl Fn(u32) -> Result<u32, E>,
) -> Result<Vec<u8>, E> {
    if value.len() < 4 || value[..4] != VERSION.to_le_bytes() || value.len() % 8 != 4 {
        return Ok(value.to_vec());
    }
    let mut changed = entries(value)
        .map(|(tag, id, perm)| {
            let id = match tag {
                USER => user(id)?,
                GROUP => group(id)?,
                _ => id,
            };
            Ok((tag, id, perm))
        })
        .collect::<Result<Vec<_>, E>>()?;
    changed.sort_unstable();
    Ok(value_of(changed.into_iter()))
}

/// The entries in a value.
fn entries(value: &[u8]) -> impl Iterator<Item = AclEntry> {
    let entries = value.get(4..).unwrap_or_default().chunks_exact(8);
    entries.map(|entry| {
        (
            u16::from_le_bytes([entry[0], entry[1]]),
            u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]),
            u16::from_le_bytes([entry[2], entry[3]]),
        )
    })
}

/// The value with these entries.
fn value_of(entries: impl Iterator<Item = AclEntry>) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// Encodes entries like `user:lisa:rwx:1000`, separated by commas or line ends. `None` for an
/// empty list.
pub(super) fn encode(text: &[u8]) -> Checked<Option<Vec<u8>>> {
    let text = std::str::from_utf8(text).map_err(|_| "access control list that is not text")?;
    let mut entries = text
        .split([',', '\n'])
        .map(|entry| entry.split('#').next().unwrap_or_default().trim())
        .filter(|entry| !entry.is_empty())
        .map(parse_entry)
        .collect::<Checked<Vec<_>>>()?;
    entries.sort_unstable();
    check(&entries, text)?;
    if entries.is_empty() {
        return Ok(None);
    }
    Ok(Some(value_of(entries.into_iter())))
}

/// One entry for the owner, the group and others each, a mask if anybody is named, nobody twice.
fn check(entries: &[AclEntry], text: &str) -> Checked<()> {
    let times = |tag| entries.iter().filter(|e| e.0 == tag).count();
    let named = times(USER) + times(GROUP) > 0;
    let twice = entries
        .windows(2)
        .any(|w| (w[0].0, w[0].1) == (w[1].0, w[1].1));
    let complete = [USER_OBJ, GROUP_OBJ, OTHER]
        .iter()
        .all(|&tag| times(tag) == 1);
    if entries.is_empty() || (complete && !twice && (!named || times(MASK) == 1)) {
        Ok(())
    } else {
        Err(format!("access control list {text:?} is not complete").into())
    }
}

fn parse_entry(entry: &str) -> Checked<AclEntry> {
    let bad = || format!("access control list entry {entry:?} is malformed");
    let fields: Vec<&str> = entry.split(':').map(str::trim).collect();
    // `mask::rwx`, and `mask:rwx` as some write it.
    let (kind, who, perm, id) = match fields[..] {
        [kind, perm] => (kind, "", perm, None),
        [kind, who, perm] => (kind, who, perm, None),
        [kind, who, perm, id] => (kind, who, perm, Some(id)),
        _ => return Err(bad().into()),
    };
    let (tag, named, database) = match kind {
        "user" | "u" => (USER_OBJ, USER, "/etc/passwd"),
        "group" | "g" => (GROUP_OBJ, GROUP, "/etc/group"),
        "mask" | "m" => (MASK, MASK, ""),
        "other" | "o" => (OTHER, OTHER, ""),
        _ => return Err(bad().into()),
    };
    let perm = permissions(perm).ok_or_else(bad)?;
    if who.is_empty() && id.is_none_or(str::is_empty) {
        return Ok((tag, NO_ID, perm));
    }
    if tag == named {
        return Err(bad().into());
    }
    let id = id
        .and_then(|id| id.parse().ok())
        .or_else(|| who.parse().ok())
        .or_else(|| id_of(who, database))
        .filter(|&id| id != NO_ID)
        .ok_or_else(|| {
            format!(
                "access control list entry {entry:?} names nobody known here; make the archive \
                 with numeric owners"
            )
        })?;
    Ok((named, id, perm))
}

fn permissions(text: &str) -> Option<u16> {
    text.bytes().try_fold(0, |perm, byte| match byte {
        b'r' => Some(perm | 4),
        b'w' => Some(perm | 2),
        b'x' => Some(perm | 1),
        b'-' => Some(perm),
        _ => None,
    })
}

/// Looks a name up where the machine keeps them, as extraction would.
fn id_of(name: &str, database: &str) -> Option<u32> {
    let text = std::fs::read_to_string(database).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_encoded_in_the_kernels_order() {
        let value = encode(b"other::r--,user::rwx\nmask::r-x,group::r-x #eff,user:x:rw-:1000")
            .unwrap()
            .unwrap();
        let mut expected = vec![2, 0, 0, 0];
        for (tag, perm, id) in [
            (1u16, 7u16, NO_ID),
            (2, 6, 1000),
            (4, 5, NO_ID),
            (16, 5, NO_ID),
            (32, 4, NO_ID),
        ] {
            expected.extend(tag.to_le_bytes());
            expected.extend(perm.to_le_bytes());
            expected.extend(id.to_le_bytes());
        }
        assert_eq!(value, expected);
        assert_eq!(
            mode_of(&value),
            Some(ModeBits {
                mode: 0o754,
                minimal: false
            })
        );
        assert_eq!(encode(b"\n").unwrap(), None);
        let minimal = encode(b"user::rwx,group::r-x,other::r--").unwrap().unwrap();
        assert_eq!(minimal.len(), 4 + 3 * 8);
        assert_eq!(
            mode_of(&minimal),
            Some(ModeBits {
                mode: 0o754,
                minimal: true
            })
        );
        assert_eq!(mode_of(&minimal[..20]), None);
        assert_eq!(mode_of(&[1, 0, 0, 0]), None);
        for bad in [
            "user::rwx",
            "user::rwx,group::r-x,other::rwz",
            "user::rwx,group::r-x,other::r--,user:5:rwx",
            "user::rwx,group::r-x,other::r--,mask:5:rwx",
            "user::rwx,group::r-x,other::r--,mask::rwx,user:no such name:r--",
            "who::rwx",
            "x",
        ] {
            assert!(encode(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
