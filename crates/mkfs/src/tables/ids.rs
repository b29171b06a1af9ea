//! Maps of owners' numbers: ranges that become other ranges.

use super::capabilities;
use super::error::{Parsed, TableError, TableResult};
use crate::source::edit::Editor;
use crate::source::tar::acl;
use crate::source::{NodeId, Tree};
use std::str::FromStr;

/// Numbers from one on become numbers from another one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    from: u32,
    to: u32,
    count: u32,
}

impl Range {
    fn map(self, id: u32) -> Option<u32> {
        let into = id
            .checked_sub(self.from)
            .filter(|into| *into < self.count)?;
        // That it fits was looked at when it was parsed.
        Some(self.to + into)
    }
}

/// A range of users, of groups, or of both: `FROM:TO:COUNT`, with `u:` or `g:` in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    range: Range,
    users: bool,
    groups: bool,
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (users, groups, numbers) = match text.split_once(':') {
            Some(("u", rest)) => (true, false, rest),
            Some(("g", rest)) => (false, true, rest),
            _ => (true, true, text),
        };
        let parsed = numbers
            .split(':')
            .map(|number| number.parse().ok())
            .collect::<Option<Vec<u32>>>();
        let Some([from, to, count]) = parsed.as_deref() else {
            return Err(format!(
                "{text:?} is no range: write FROM:TO:COUNT, such as 100000:0:65536"
            ));
        };
        let range = Range {
            from: *from,
            to: *to,
            count: *count,
        };
        let ends = |start: u32| u64::from(start) + u64::from(range.count) <= u64::from(u32::MAX);
        if range.count == 0 || !ends(range.from) || !ends(range.to) {
            return Err(format!(
                "{text:?} has no numbers, or some past {}",
                u32::MAX - 1
            ));
        }
        Ok(Self {
            range,
            users,
            groups,
        })
    }
}

/// Which numbers of users and groups become which. Without a range of users they stay, and so do
/// groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMap {
    users: Vec<Range>,
    groups: Vec<Range>,
}

impl IdMap {
    /// Puts ranges together.
    ///
    /// # Errors
    ///
    /// A sentence, where two ranges say what becomes of one number, or two numbers would become
    /// one.
    pub fn new(ranges: impl IntoIterator<Item = IdRange>) -> Result<Self, String> {
        let mut map = Self::default();
        for IdRange {
            range,
            users,
            groups,
        } in ranges
        {
            if users {
                map.users.push(range);
            }
            if groups {
                map.groups.push(range);
            }
        }
        disjoint("user", &map.users)?;
        disjoint("group", &map.groups)?;
        Ok(map)
    }

    /// Returns whether no number changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Changes the owners of all files, the users and groups in access control lists, and the user
    /// of capabilities that count for one user's namespace.
    ///
    /// # Errors
    ///
    /// [`TableError::File`] for a number that is in no range.
    pub fn apply(&self, tree: &mut Tree) -> TableResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut editor = Editor::new(tree);
        for id in editor.tree().ids() {
            if !editor.tree().is_given(id) {
                continue;
            }
            self.apply_to(&mut editor, id)?;
        }
        Ok(())
    }

    fn apply_to(&self, editor: &mut Editor<'_>, id: NodeId) -> TableResult<()> {
        let fail = |editor: &Editor<'_>, problem| TableError::File {
            path: super::path_of(editor.tree(), id),
            problem,
        };
        let node = editor.tree().node(id);
        let owners = self
            .user(node.uid)
            .and_then(|user| Ok((user, self.group(node.gid)?)));
        let (user, group) = owners.map_err(|problem| fail(editor, problem))?;
        editor.set_owners(id, Some(user), Some(group))?;
        let mut changed = Vec::new();
        for attribute in editor.tree().xattrs(id).iter() {
            let value = self
                .value(&attribute.name, &attribute.value)
                .map_err(|problem| fail(editor, problem))?;
            if let Some(value) = value.filter(|value| **value != *attribute.value) {
                changed.push((attribute.name.clone(), value));
            }
        }
        for (name, value) in changed {
            editor.set_xattr(id, &name, Some(&value), None)?;
        }
        Ok(())
    }

    /// The value of an attribute that has numbers in it.
    fn value(&self, name: &[u8], value: &[u8]) -> Parsed<Option<Box<[u8]>>> {
        match name {
            name if name == acl::ACCESS || name == acl::DEFAULT => {
                let mapped =
                    acl::with_ids(value, |user| self.user(user), |group| self.group(group));
                mapped.map(|value| Some(value.into_boxed_slice()))
            }
            name if name == capabilities::ATTRIBUTE => {
                capabilities::with_root(value, |user| self.user(user))
            }
            _ => Ok(None),
        }
    }

    fn user(&self, id: u32) -> Parsed<u32> {
        map("user", 'u', &self.users, id)
    }

    fn group(&self, id: u32) -> Parsed<u32> {
        map("group", 'g', &self.groups, id)
    }
}

fn map(what: &str, letter: char, ranges: &[Range], id: u32) -> Parsed<u32> {
    if ranges.is_empty() {
        return Ok(id);
    }
    let mapped = ranges.iter().find_map(|range| range.map(id));
    mapped.ok_or_else(|| {
        format!(
            "the {what} {id} is in no range of --map-ids: give one for it, such as \
             --map-ids {letter}:{id}:0:1"
        )
    })
}

/// No number is in two ranges, and none comes out of two.
fn disjoint(what: &str, ranges: &[Range]) -> Parsed<()> {
    for (index, a) in ranges.iter().enumerate() {
        for b in &ranges[..index] {
            let meet = |x: u32, y: u32| {
                u64::from(x) < u64::from(y) + u64::from(b.count)
                    && u64::from(y) < u64::from(x) + u64::from(a.count)
            };
            if meet(a.from, b.from) {
                return Err(format!(
                    "two ranges say what becomes of the {what} {}",
                    a.from.max(b.from)
                ));
            }
            if meet(a.to, b.to) {
                return Err(format!(
                    "two {what}s would become the {what} {}",
                    a.to.max(b.to)
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map_of(ranges: &[&str]) -> Result<IdMap, String> {
        let ranges = ranges.iter().map(|range| range.parse());
        IdMap::new(ranges.collect::<Result<Vec<IdRange>, _>>()?)
    }

    #[test]
    fn ranges_map_both_ways_of_saying() {
        let map = map_of(&["100000:0:1000", "u:5000:4000:1"]).unwrap();
        assert_eq!((map.user(100_999), map.group(100_000)), (Ok(999), Ok(0)));
        assert_eq!(map.user(5000), Ok(4000));
        assert!(map.user(101_000).is_err() && map.group(5000).is_err());
        let users = map_of(&["u:0:10:1"]).unwrap();
        assert_eq!((users.user(0), users.group(77)), (Ok(10), Ok(77)));
    }

    #[test]
    fn ranges_that_meet_or_do_not_fit_are_refused() {
        for wrong in [
            &["0:0"][..],
            &["0:0:0"],
            &["0:4294967295:1"],
            &["4294967000:0:1000"],
            &["x:0:1"],
            &["-1:0:1"],
            &["0:0:10", "5:100:10"],
            &["0:0:10", "100:9:10"],
        ] {
            assert!(map_of(wrong).is_err(), "{wrong:?}");
        }
        assert!(map_of(&["u:0:0:10", "g:0:0:10", "10:10:5"]).is_ok());
    }
}
