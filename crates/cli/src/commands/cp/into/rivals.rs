//! Sources of which several want one place.
//!
//! With `-n` the first has it, with `-u` the newest. Without them what is named itself is refused
//! where something was just made, and of what is below directories the last has it, as if one
//! source were copied after the other: it is made after all else, and in order.

use super::plan::{Identity, Node};
use extant::Timestamp;
use extant::export::Existing;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What is planned for a place.
struct Planned {
    identity: Identity,
    modified: Timestamp,
    /// Its number among what is made late; zero if it is not.
    late: usize,
}

/// When a file is made.
pub(super) enum Turn {
    /// With all others, by any thread.
    Any,
    /// After all others, in order of the numbers, which begin with one.
    Late(usize),
    /// Not at all: what has its place stays.
    Never,
    /// Not at all, which is an error.
    Refused,
}

/// What is planned so far, where two sources may meet.
#[derive(Default)]
pub(super) struct Rivals {
    /// `None` where they cannot.
    planned: Option<HashMap<PathBuf, Planned>>,
    existing: Existing,
    /// How many are made late.
    last: usize,
}

impl Rivals {
    /// What meets where sources go to these places.
    pub(super) fn of(mut places: Vec<PathBuf>, existing: Existing) -> Self {
        places.sort();
        let may_meet = places.windows(2).any(|pair| pair[1].starts_with(&pair[0]));
        Self {
            planned: may_meet.then(HashMap::new),
            existing,
            ..Self::default()
        }
    }

    /// When a file is made that is planned next.
    pub(super) fn turn(&mut self, node: &Node, identity: &Identity) -> Turn {
        let Some(planned) = &mut self.planned else {
            return Turn::Any;
        };
        let this = Planned {
            identity: identity.clone(),
            modified: node.modified,
            late: 0,
        };
        let Some(there) = planned.get_mut(&node.to) else {
            planned.insert(node.to.clone(), this);
            return Turn::Any;
        };
        if there.identity == this.identity {
            return Turn::Never;
        }
        match self.existing {
            Existing::Keep => return Turn::Never,
            Existing::KeepNewer if there.modified >= this.modified => return Turn::Never,
            Existing::KeepNewer => {}
            _ if node.parent.is_none() => return Turn::Refused,
            _ => {}
        }
        self.last += 1;
        *there = Planned {
            late: self.last,
            ..this
        };
        Turn::Late(self.last)
    }

    /// When a file is made at a place, as a number that is zero unless it is late; `None` if
    /// another one is planned there by now.
    pub(super) fn late_at(&self, place: &Path, identity: &Identity) -> Option<usize> {
        let Some(planned) = &self.planned else {
            return Some(0);
        };
        let there = planned.get(place)?;
        (there.identity == *identity).then_some(there.late)
    }

    /// The number of what is made late next.
    pub(super) fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }
}
