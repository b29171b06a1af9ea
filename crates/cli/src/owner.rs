//! Owners as text: numbers, or names that the image knows.

use crate::args::NewOwner;
use crate::failure::{Failure, Outcome};
use extant::Filesystem;
use std::path::Path;

/// Files of users and groups larger than this are not looked into: an image may be hostile.
const MOST_BYTES: u64 = 16 << 20;

/// An owner to give: what is `None` stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// The owner that what is made gets, if one is asked for.
#[derive(Debug)]
pub(crate) struct Giving(Option<OwnerSpec>);

impl Giving {
    /// Reads the options.
    pub(crate) fn of(args: &NewOwner) -> Outcome<Self> {
        let spec = OwnerSpec::of_options(args.owner.as_deref(), args.group.as_deref());
        spec.map(Self).map_err(Failure::usage)
    }

    pub(crate) const fn is_asked_for(&self) -> bool {
        self.0.is_some()
    }

    /// The owner by the image's own files: asked before anything is made.
    pub(crate) fn look_up(&self, fs: &Filesystem) -> Outcome<Option<Owner>> {
        let found = self.0.as_ref().map(|spec| spec.look_up(fs)).transpose();
        found.map_err(Failure::new)
    }
}

impl Owner {
    /// Gives a new file to the owner; a change of owner takes set-ID bits away, which it has after
    /// that by its permissions, where these are given.
    pub(crate) fn give(
        self,
        fs: &Filesystem,
        path: &Path,
        permissions: Option<u16>,
    ) -> extant::Result<()> {
        fs.set_owner(path, self.uid, self.gid)?;
        match permissions {
            Some(permissions) => fs.set_permissions(path, permissions),
            None => Ok(()),
        }
    }
}

/// What the command line asks for, before names are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSpec {
    user: Option<Id>,
    group: Group,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Id {
    Number(u32),
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Group {
    Kept,
    /// `USER:` means the user's own.
    OfUser,
    Given(Id),
}

impl OwnerSpec {
    /// Parses `USER`, `USER:GROUP`, `USER:` and `:GROUP`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (user, group) = match text.split_once(':') {
            None => (text, None),
            Some((user, group)) => (user, Some(group)),
        };
        let user = match user {
            "" => None,
            user => Some(Id::parse(user)?),
        };
        let group = match (group, &user) {
            (None, _) => Group::Kept,
            (Some(""), Some(_)) => Group::OfUser,
            (Some(""), None) => {
                return Err("an owner is empty: write USER, USER:GROUP or :GROUP".into());
            }
            (Some(group), _) => Group::Given(Id::parse(group)?),
        };
        if user.is_none() && group == Group::Kept {
            return Err("an owner is empty: write USER, USER:GROUP or :GROUP".into());
        }
        Ok(Self { user, group })
    }

    /// Reads the values of `--owner` and `--group`.
    pub(crate) fn of_options(
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Option<Self>, String> {
        let text = match (owner, group) {
            (None, None) => return Ok(None),
            (Some(owner), None) => owner.to_owned(),
            (None, Some(group)) => format!(":{group}"),
            (Some(owner), Some(_)) if owner.contains(':') => {
                return Err(format!("--owner {owner} says a group, and so does --group"));
            }
            (Some(owner), Some(group)) => format!("{owner}:{group}"),
        };
        Self::parse(&text).map(Some)
    }

    /// The numbers, by the image's own files.
    pub(crate) fn look_up(&self, fs: &Filesystem) -> Result<Owner, String> {
        let mut own_group = None;
        let uid = match &self.user {
            None => None,
            Some(Id::Number(uid)) => {
                if self.group == Group::OfUser {
                    let found = entry(fs, "/etc/passwd", |fields| {
                        fields.get(2).and_then(|id| number(id)) == Some(*uid)
                    })?;
                    own_group = found.and_then(|fields| fields.get(3).and_then(|id| number(id)));
                }
                Some(*uid)
            }
            Some(Id::Name(name)) => {
                let found = named(fs, "/etc/passwd", name)?;
                let fields = found.ok_or_else(|| unknown("user", name, "/etc/passwd"))?;
                own_group = fields.get(3).and_then(|id| number(id));
                let uid = fields.get(2).and_then(|id| number(id));
                Some(uid.ok_or_else(|| unknown("user", name, "/etc/passwd"))?)
            }
        };
        let gid = match &self.group {
            Group::Kept => None,
            Group::OfUser => Some(own_group.ok_or_else(|| {
                "the image's /etc/passwd does not say which group the user has: give its number"
                    .to_owned()
            })?),
            Group::Given(Id::Number(gid)) => Some(*gid),
            Group::Given(Id::Name(name)) => {
                let fields = named(fs, "/etc/group", name)?;
                let gid = fields.and_then(|fields| fields.get(2).and_then(|id| number(id)));
                Some(gid.ok_or_else(|| unknown("group", name, "/etc/group"))?)
            }
        };
        Ok(Owner { uid, gid })
    }
}

impl Id {
    fn parse(text: &str) -> Result<Self, String> {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Name(text.to_owned()));
        }
        number(text)
            .map(Self::Number)
            .ok_or_else(|| format!("{text} is not a number from 0 to {}", u32::MAX - 1))
    }
}

/// A user or group number; the highest means "none" to the kernel.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

fn unknown(what: &str, name: &str, path: &str) -> String {
    format!("the image's {path} has no {what} {name:?}: give a number")
}

fn named(fs: &Filesystem, path: &str, name: &str) -> Result<Option<Vec<String>>, String> {
    entry(fs, path, |fields| fields.first() == Some(&name))
}

/// The fields of the first line of a file of users or groups that fits.
fn entry(
    fs: &Filesystem,
    path: &str,
    fits: impl Fn(&[&str]) -> bool,
) -> Result<Option<Vec<String>>, String> {
    let path = Path::new(path);
    let failed =
        |e: extant::Error| format!("names cannot be looked up in the image: {e}. Give numbers");
    let size = fs.metadata(path).map_err(failed)?.len();
    if size > MOST_BYTES {
        return Err(format!(
            "the image's {} is too large to look names up in: give numbers",
            path.display()
        ));
    }
    let content = fs.read(path).map_err(failed)?;
    let text = String::from_utf8_lossy(&content);
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = lines.find(|fields| fits(fields));
    Ok(found.map(|fields| fields.into_iter().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> (Option<Id>, Group) {
        let spec = OwnerSpec::parse(text).expect(text);
        (spec.user, spec.group)
    }

    #[test]
    fn users_and_groups_are_told_apart() {
        let name = |name: &str| Id::Name(name.to_owned());
        assert_eq!(numbers("0"), (Some(Id::Number(0)), Group::Kept));
        assert_eq!(
            numbers("1:2"),
            (Some(Id::Number(1)), Group::Given(Id::Number(2)))
        );
        assert_eq!(numbers(":adm"), (None, Group::Given(name("adm"))));
        assert_eq!(numbers("www:"), (Some(name("www")), Group::OfUser));
        for wrong in ["", ":", "4294967295", "99999999999"] {
            assert!(OwnerSpec::parse(wrong).is_err(), "{wrong}");
        }
    }
}
