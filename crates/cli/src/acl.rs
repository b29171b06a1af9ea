//! Access control lists as text, as `setfacl` takes them.

use crate::owner::OwnerSpec;
use extant::{Acl, AclEntry, AclWho, Filesystem};

/// An entry to set, before names are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    who: Who,
    permissions: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Who {
    Known(AclWho),
    User(OwnerSpec),
    Group(OwnerSpec),
}

impl Change {
    /// Parses `u:NAME:rwx,g::r-x,m::rx,o::0` and the like.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(Self::parse).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no entry of an access control list: write u:USER:rwx, g:GROUP:rwx, \
                 u::rwx, g::rwx, m::rwx or o::rwx"
            )
        };
        let parts: Vec<&str> = text.trim().split(':').collect();
        let (tag, name, permissions) = match parts.as_slice() {
            [tag, name, permissions] => (*tag, *name, *permissions),
            [tag @ ("m" | "mask" | "o" | "other"), permissions] => (*tag, "", *permissions),
            _ => return Err(wrong()),
        };
        let who = match (tag, name) {
            ("u" | "user", "") => Who::Known(AclWho::Owner),
            ("u" | "user", name) => Who::User(OwnerSpec::parse(name)?),
            ("g" | "group", "") => Who::Known(AclWho::Group),
            ("g" | "group", name) => Who::Group(OwnerSpec::parse(&format!(":{name}"))?),
            ("m" | "mask", "") => Who::Known(AclWho::Mask),
            ("o" | "other", "") => Who::Known(AclWho::Other),
            _ => return Err(wrong()),
        };
        let permissions = parse_permissions(permissions).ok_or_else(wrong)?;
        Ok(Self { who, permissions })
    }

    /// The entry, by the image's own names.
    pub(crate) fn look_up(&self, fs: &Filesystem) -> Result<AclEntry, String> {
        let missing = || "a user or group was expected".to_owned();
        let who = match &self.who {
            Who::Known(who) => *who,
            Who::User(spec) => AclWho::User(spec.look_up(fs)?.uid.ok_or_else(missing)?),
            Who::Group(spec) => AclWho::NamedGroup(spec.look_up(fs)?.gid.ok_or_else(missing)?),
        };
        Ok(AclEntry {
            who,
            permissions: self.permissions,
        })
    }
}

fn parse_permissions(text: &str) -> Option<u8> {
    if let [digit @ b'0'..=b'7'] = text.as_bytes() {
        return Some(digit - b'0');
    }
    text.bytes().try_fold(0, |bits, letter| match letter {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

/// The list that says what these permission bits say.
pub(crate) fn of_mode(permissions: u16) -> Acl {
    let entry = |who, shift: u16| AclEntry {
        who,
        permissions: (permissions >> shift & 7) as u8,
    };
    let entries = vec![
        entry(AclWho::Owner, 6),
        entry(AclWho::Group, 3),
        entry(AclWho::Other, 0),
    ];
    Acl::new(entries).expect("owner, group and others make a list")
}

/// A list with entries changed or added. Where a user or group is named and no mask is given, the
/// mask becomes all that anybody but owner and others has, as with `setfacl -m`.
pub(crate) fn changed(acl: &Acl, changes: &[AclEntry]) -> Result<Acl, String> {
    let mut entries = acl.entries().to_vec();
    for change in changes {
        entries.retain(|entry| entry.who != change.who);
        entries.push(*change);
    }
    let masks = |entry: &AclEntry| entry.who == AclWho::Mask;
    let is_masked =
        |who: AclWho| matches!(who, AclWho::User(_) | AclWho::Group | AclWho::NamedGroup(_));
    let is_named = |who: AclWho| matches!(who, AclWho::User(_) | AclWho::NamedGroup(_));
    let needs_mask = entries
        .iter()
        .any(|entry| is_named(entry.who) || masks(entry));
    if needs_mask && !changes.iter().any(masks) {
        entries.retain(|entry| !masks(entry));
        let all = entries.iter().filter(|entry| is_masked(entry.who));
        let permissions = all.fold(0, |bits, entry| bits | entry.permissions);
        entries.push(AclEntry {
            who: AclWho::Mask,
            permissions,
        });
    }
    entries.sort_by_key(|entry| match entry.who {
        AclWho::Owner => (0, 0),
        AclWho::User(id) => (1, id),
        AclWho::Group => (2, 0),
        AclWho::NamedGroup(id) => (3, id),
        AclWho::Mask => (4, 0),
        AclWho::Other => (5, 0),
    });
    Acl::new(entries).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_the_mask_follows() {
        assert!(Change::parse("u:1:8").is_err());
        assert!(Change::parse("x::r").is_err());
        let parse = |text| Change::parse(text).unwrap().permissions;
        assert_eq!(parse("m:rx"), 5);
        assert_eq!(parse("o::6"), 6);
        let named = AclEntry {
            who: AclWho::User(7),
            permissions: 6,
        };
        let acl = changed(&of_mode(0o751), &[named]).unwrap();
        let text = "user::rwx\nuser:7:rw-\ngroup::r-x\nmask::rwx\nother::--x";
        assert_eq!(acl.to_string(), text);
    }
}
