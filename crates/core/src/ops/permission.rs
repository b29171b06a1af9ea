//! Who may do what: mode bits and access control lists.
//!
//! Nothing else here asks: an adapter that acts for others asks before it calls an operation.
//!
//! Not here, and left to the adapter: the sticky bit (who may remove or rename in such a directory), who may change mode,
//! owners, times and flags, that a group's bit for set-group-ID goes when somebody outside the group changes the mode, and
//! capabilities other than those user 0 has.

use crate::fs::Fs;
use crate::inode::{FileType, Held, Mode};
use crate::xattr::{self, AclKind};
use crate::{Error, Result};
use extant_format::acl::{Acl, AclWho};

/// Whom something is done for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user; 0 may do everything but execute what nobody may.
    pub uid: u32,
    /// The group, and then the supplementary ones.
    pub groups: Vec<u32>,
}

/// What somebody wants to do: read 4, write 2, execute or search 1, in any combination.
pub type Wanted = u8;

const EXECUTE: Wanted = 1;

/// Refuses what the mode and the access control list of an inode do not allow `caller`.
///
/// # Errors
/// [`Error::PermissionDenied`]; [`Error::Corrupt`] when the list is broken.
pub fn permission(fs: &Fs, inode: &Held, caller: &Caller, wanted: Wanted) -> Result<()> {
    let image = inode.snapshot();
    let disk = image.disk();
    let owners = (disk.uid, disk.gid);
    let file_type = image.file_type();
    // The list is asked only when somebody else than the owner comes.
    let acl = match caller.uid == 0 || caller.uid == disk.uid {
        true => None,
        false => {
            let _shared = inode.op().read();
            xattr::acl(fs, &inode.snapshot(), AclKind::Access)?
        }
    };
    match allows(file_type, disk.mode, owners, acl.as_ref(), caller, wanted) {
        true => Ok(()),
        false => Err(Error::PermissionDenied),
    }
}

/// Whether a file with this mode, these owners (user and group) and this list allows it.
fn allows(
    file_type: FileType,
    mode: Mode,
    (uid, gid): (u32, u32),
    acl: Option<&Acl>,
    caller: &Caller,
    wanted: Wanted,
) -> bool {
    let bits = mode.permissions();
    let wanted = wanted & 7;
    if caller.uid == 0 {
        let executable = file_type == FileType::Directory || bits & 0o111 != 0;
        return wanted & EXECUTE == 0 || executable;
    }
    let has = |permissions: u16| permissions & u16::from(wanted) == u16::from(wanted);
    if caller.uid == uid {
        return has(bits >> 6 & 7);
    }
    let is_in = |group: u32| caller.groups.contains(&group);
    let Some(acl) = acl else {
        return has(match is_in(gid) {
            true => bits >> 3 & 7,
            false => bits & 7,
        });
    };
    let entries = acl.entries();
    let mask = entries.iter().find(|entry| entry.who == AclWho::Mask);
    let masked =
        |permissions: u8| has((permissions & mask.map_or(7, |mask| mask.permissions)).into());
    let user = entries.iter().find(|e| e.who == AclWho::User(caller.uid));
    if let Some(user) = user {
        return masked(user.permissions);
    }
    let mut groups = entries.iter().filter(|entry| match entry.who {
        AclWho::Group => is_in(gid),
        AclWho::NamedGroup(group) => is_in(group),
        _ => false,
    });
    let first = groups.next();
    match first {
        // One of the groups must allow all of it.
        Some(first) => masked(first.permissions) || groups.any(|e| masked(e.permissions)),
        None => has(bits & 7),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_format::acl::AclEntry;

    fn asks(uid: u32, groups: &[u32], mode: u16, acl: Option<&Acl>) -> String {
        let caller = Caller {
            uid,
            groups: groups.to_vec(),
        };
        let mode = Mode::new(FileType::Regular, mode);
        let one = |wanted, letter| match allows(
            FileType::Regular,
            mode,
            (10, 20),
            acl,
            &caller,
            wanted,
        ) {
            true => letter,
            false => '-',
        };
        [one(4, 'r'), one(2, 'w'), one(1, 'x')].iter().collect()
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        assert_eq!(asks(10, &[20], 0o077, None), "---");
        assert_eq!(asks(11, &[20], 0o706, None), "---");
        assert_eq!(asks(11, &[21], 0o706, None), "rw-");
        assert_eq!(asks(0, &[], 0o000, None), "rw-");
        assert_eq!(asks(0, &[], 0o001, None), "rwx");
    }

    #[test]
    fn a_list_names_users_and_groups_under_its_mask() {
        let entry = |who, permissions| AclEntry { who, permissions };
        let acl = Acl::new(vec![
            entry(AclWho::Owner, 7),
            entry(AclWho::User(11), 7),
            entry(AclWho::User(12), 0),
            entry(AclWho::Group, 4),
            entry(AclWho::NamedGroup(30), 2),
            entry(AclWho::Mask, 6),
            entry(AclWho::Other, 1),
        ])
        .unwrap();
        let ask = |uid, groups: &[u32]| asks(uid, groups, 0o761, Some(&acl));
        assert_eq!(ask(10, &[]), "rwx");
        assert_eq!(ask(11, &[]), "rw-");
        assert_eq!(ask(12, &[20]), "---");
        assert_eq!(ask(13, &[20]), "r--");
        assert_eq!(ask(13, &[30, 20]), "rw-");
        assert_eq!(ask(13, &[31]), "--x");
    }
}
