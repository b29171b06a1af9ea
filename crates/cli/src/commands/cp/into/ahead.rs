//! Files of the host that a thread looks at while an image far away is being opened: opening takes
//! round trips, and the plan needs nothing of the image to know what there is to copy.
//!
//! The plan comes to the files in the same order, and takes what was found. What this one did not
//! come to, the plan looks at itself.

use super::plan::names_in;
use crate::commands::cp::rules::Exclusion;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Files that are looked at before the plan takes the first.
const MOST: usize = 1 << 14;

/// What was found at a path.
pub(super) struct Seen {
    path: PathBuf,
    /// What it is, and no link that leads there.
    pub(super) found: io::Result<Metadata>,
    /// What is in it, if it is a directory.
    pub(super) names: Option<io::Result<Vec<OsString>>>,
}

/// What a thread finds at some paths and below them.
pub(super) struct Ahead {
    seen: Receiver<Seen>,
    /// What the plan has not come to yet.
    next: Option<Seen>,
}

impl Ahead {
    /// Begins to look at `roots` and what is below them, without following links. What is left out
    /// is not gone into. `None` if the system has no thread.
    pub(super) fn begin(roots: Vec<PathBuf>, exclusion: Exclusion) -> Option<Self> {
        let (found, seen) = sync_channel(MOST);
        let walk = move || {
            for root in roots {
                if look_below(root, &exclusion, &found).is_none() {
                    return;
                }
            }
        };
        // It ends when nobody takes what it finds any more.
        let begun = thread::Builder::new()
            .name("extant-plan".to_owned())
            .spawn(walk);
        begun.ok().map(|_| Self { seen, next: None })
    }

    /// What was found at a path, if that is the next one.
    pub(super) fn take(&mut self, path: &Path) -> Option<Seen> {
        let seen = self.next.take().or_else(|| self.seen.recv().ok())?;
        if seen.path == path {
            return Some(seen);
        }
        self.next = Some(seen);
        None
    }
}

/// Looks at a path and what is below it, in the order of the plan. `None` when nobody takes it.
fn look_below(root: PathBuf, exclusion: &Exclusion, found: &SyncSender<Seen>) -> Option<()> {
    // With the names from the root on, where patterns ask for them.
    let mut rest = vec![(root, Vec::new())];
    while let Some((path, names)) = rest.pop() {
        let looked = path.symlink_metadata();
        let is_dir = looked.as_ref().is_ok_and(Metadata::is_dir);
        let parts: Vec<&[u8]> = names
            .iter()
            .map(|name: &OsString| name.as_bytes())
            .collect();
        let is_left_out = if parts.is_empty() {
            exclusion.has_source(&path, is_dir)
        } else {
            exclusion.has(&parts, is_dir)
        };
        let below = (is_dir && !is_left_out).then(|| names_in(&path));
        if let Some(Ok(below)) = &below {
            rest.extend(below.iter().rev().map(|name| {
                let names = if exclusion.is_empty() {
                    Vec::new()
                } else {
                    [&names[..], std::slice::from_ref(name)].concat()
                };
                (path.join(name), names)
            }));
        }
        let seen = Seen {
            path,
            found: looked,
            names: below,
        };
        found.send(seen).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_the_order_of_the_plan_and_what_is_left_out_is_not_gone_into() {
        let dir = tempfile::TempDir::new().expect("a directory");
        let root = dir.path().join("root");
        for below in ["b/c", "a", "b/left"] {
            std::fs::create_dir_all(root.join(below)).expect("a directory");
        }
        for below in ["b/c/file", "a/file", "b/left/file", "z"] {
            std::fs::write(root.join(below), below).expect("a file");
        }
        let exclusion = Exclusion::new(&["left".into()]).expect("a pattern");
        let mut ahead = Ahead::begin(vec![root.clone()], exclusion).expect("a thread");
        let expected = ["", "a", "a/file", "b", "b/c", "b/c/file", "b/left", "z"];
        for below in expected {
            let path = if below.is_empty() {
                root.clone()
            } else {
                root.join(below)
            };
            assert!(ahead.take(&root.join("elsewhere")).is_none());
            let seen = ahead.take(&path).expect("the next one");
            let is_entered = seen.found.expect("it is there").is_dir() && below != "b/left";
            assert_eq!(seen.names.is_some(), is_entered, "{below}");
        }
        assert!(ahead.take(&root).is_none(), "no more");
    }

    #[test]
    fn what_is_not_there_is_told_to_the_plan() {
        let path = PathBuf::from("/no/such/file");
        let mut ahead = Ahead::begin(vec![path.clone()], Exclusion::default()).expect("a thread");
        let seen = ahead.take(&path).expect("the next one");
        assert!(seen.found.is_err() && seen.names.is_none());
    }
}
