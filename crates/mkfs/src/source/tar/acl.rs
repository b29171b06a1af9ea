//! Access control lists: from the text in an archive to the value of the system call.
//!
//! The value is version 2 of Linux' `posix_acl_xattr`: a 32-bit version, then for each entry tag
//! and permissions of 16 bits and an id of 32, all little endian, ordered by tag and id.

use super::Checked;

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

/// Encodes entries like `user:lisa:rwx:1000`, separated by commas or line ends. `None` for an
/// empty list, and for an access list that says no more than the permission bits do: Linux does
/// not store such a list either.
pub(super) fn encode(text: &[u8], is_access: bool) -> Checked<Option<Vec<u8>>> {
    let text = std::str::from_utf8(text).map_err(|_| "access control list that is not text")?;
    let mut entries = text
        .split([',', '\n'])
        .map(|entry| entry.split('#').next().unwrap_or_default().trim())
        .filter(|entry| !entry.is_empty())
        .map(parse_entry)
        .collect::<Checked<Vec<_>>>()?;
    entries.sort_unstable();
    check(&entries, text)?;
    if entries.is_empty() || (is_access && entries.len() == 3) {
        return Ok(None);
    }
    let mut value = VERSION.to_le_bytes().to_vec();
    for &(tag, id, perm) in &entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(Some(value))
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
        let value = encode(
            b"other::r--,user::rwx\nmask::r-x,group::r-x #eff,user:x:rw-:1000",
            true,
        )
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
        assert_eq!(encode(b"\n", false).unwrap(), None);
        let minimal = b"user::rwx,group::r-x,other::r--";
        assert_eq!(encode(minimal, true).unwrap(), None);
        assert_eq!(encode(minimal, false).unwrap().unwrap().len(), 4 + 3 * 8);
        for bad in [
            "user::rwx",
            "user::rwx,group::r-x,other::rwz",
            "user::rwx,group::r-x,other::r--,user:5:rwx",
            "user::rwx,group::r-x,other::r--,mask:5:rwx",
            "user::rwx,group::r-x,other::r--,mask::rwx,user:no such name:r--",
            "who::rwx",
            "x",
        ] {
            assert!(encode(bad.as_bytes(), true).is_err(), "{bad}");
        }
    }
}
