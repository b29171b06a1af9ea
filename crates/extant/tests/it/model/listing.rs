//! Listings that go on while names come and go.

use extant::Filesystem;
use extant_core::ops::{self, Cookie};
use extant_format::Ino;
use extant_testkit::model::State;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// A listing of a directory that is under way.
pub(super) struct Listing {
    ino: Ino,
    /// Which directory of the model it is.
    identity: u32,
    next: Cookie,
    /// Names that were listed, in this order.
    listed: Vec<String>,
    /// Names that the directory had all the time.
    always: BTreeSet<String>,
    /// Names that it had at some time.
    ever: BTreeSet<String>,
}

impl Listing {
    /// Begins to list the directory of this number.
    pub(super) fn begin(ino: Ino, identity: u32, state: &State) -> Option<Self> {
        let names = state.names_in(identity)?;
        Some(Self {
            ino,
            identity,
            next: Cookie::START,
            listed: Vec::new(),
            always: names.clone(),
            ever: names,
        })
    }

    /// Notes which names there are now; whether the directory is still there.
    pub(super) fn note(&mut self, state: &State) -> bool {
        let Some(names) = state.names_in(self.identity) else {
            return false;
        };
        self.always.retain(|name| names.contains(name));
        self.ever.extend(names);
        true
    }

    /// Lists at most so many names more, none twice that stayed; whether there may be others.
    pub(super) fn go_on(&mut self, fs: &Filesystem, most: usize) -> bool {
        let engine = fs.engine();
        let dir = engine.inode(self.ino).unwrap();
        let mut left = most;
        let stopped = ops::readdir(engine, &dir, self.next, |entry| {
            let name = String::from_utf8(entry.name.to_vec()).unwrap();
            self.next = entry.next;
            if !matches!(&*name, "." | ".." | "lost+found") {
                self.listed.push(name);
            }
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        let mut seen = BTreeSet::new();
        for name in &self.listed {
            assert!(self.ever.contains(name), "{name} is listed and never was");
            let again = !seen.insert(name);
            let stayed = self.always.contains(name);
            assert!(!(again && stayed), "{name} is listed twice");
        }
        stopped.unwrap().is_some()
    }

    /// Requires all names that stayed.
    pub(super) fn end(self) {
        let listed: BTreeSet<_> = self.listed.iter().cloned().collect();
        let missing: Vec<_> = self.always.difference(&listed).collect();
        assert!(missing.is_empty(), "not listed: {missing:?}");
    }
}
