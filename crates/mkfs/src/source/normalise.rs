//! Owners and times that are the same wherever and whenever an image is made.

use std::str::FromStr;

use super::model::{NodeId, Timestamp, Tree};

/// An owner to give to every file: a user, and a group if it is to change too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number; `None` leaves the group as it is.
    pub gid: Option<u32>,
}

impl FromStr for Owner {
    type Err = String;

    /// Parses `UID` or `UID:GID`, decimal.
    fn from_str(text: &str) -> Result<Self, String> {
        let id = |part: &str| {
            part.parse::<u32>()
                .ok()
                .filter(|&id| id != u32::MAX)
                .ok_or_else(|| format!("{part:?} is not a number from 0 to {}", u32::MAX - 1))
        };
        Ok(match text.split_once(':') {
            Some((uid, gid)) => Self {
                uid: id(uid)?,
                gid: Some(id(gid)?),
            },
            None => Self {
                uid: id(text)?,
                gid: None,
            },
        })
    }
}

/// What happens to the times of every file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimePolicy {
    /// They stay as the source has them.
    #[default]
    Keep,
    /// All four become this.
    Set(Timestamp),
    /// `SOURCE_DATE_EPOCH`: a modification time later than this becomes this; access, change
    /// and creation time, which no two copies of a tree share, become the modification time.
    Clamp(Timestamp),
}

/// Changes made to a whole tree before it is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Normalisation {
    /// Owner of every file.
    pub owner: Option<Owner>,
    /// Times of every file.
    pub times: TimePolicy,
    /// Owner of the root directory, stronger than `owner`.
    pub root_owner: Option<Owner>,
    /// Permission bits of the root directory.
    pub root_mode: Option<u16>,
}

impl Tree {
    /// Applies a normalisation. Reading files later still compares them with what the scan saw.
    ///
    /// Of a tree over a file system, what is there already stays as it is.
    pub fn normalise(&mut self, how: &Normalisation) {
        let over = self.over.take();
        let given = |id: NodeId| {
            let stands = over.as_ref().and_then(|over| over.standing.get(&id));
            stands.is_none_or(|stands| stands.is_described)
        };
        if let Some(owner) = how.owner {
            self.rows.set_owners(owner.uid, owner.gid, given);
        }
        if given(NodeId::ROOT) {
            self.rows.change_root(|uid, gid, mode| {
                if let Some(owner) = how.root_owner.or(how.owner) {
                    *uid = owner.uid;
                    *gid = owner.gid.unwrap_or(*gid);
                }
                if let Some(bits) = how.root_mode {
                    *mode = (*mode & !0o7777) | (bits & 0o7777);
                }
            });
        }
        match how.times {
            TimePolicy::Keep => {}
            TimePolicy::Set(time) => self.rows.set_times(given, |_| time),
            TimePolicy::Clamp(latest) => self.rows.set_times(given, |mtime| mtime.min(latest)),
        }
        self.over = over;
    }
}
