//! The tree of directories, and link counts.

use crate::dir::Names;
use crate::inode_table::{InodeTable, Summary};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place};
use extant_format::Ino;
use extant_format::features::RoCompat;

/// More subdirectories than this are not counted: the link count is 1 then.
pub(crate) const LINKS_MAX: u64 = 65_000;

/// Checks that every directory has one name and hangs from the root, and that link counts are
/// right. Returns the directories with their parents, ascending.
pub(crate) fn check(
    volume: &Volume,
    table: &InodeTable,
    names: &mut Names,
    dirs: &[Ino],
) -> Vec<(Ino, Ino)> {
    let sink = &mut names.sink;
    if !table.get(Ino::ROOT).is_dir() {
        let text = "inode 2 is not a directory";
        sink.say(Code::RootMissing, Place::ino(Ino::ROOT), text);
    }
    let mut parents: Vec<(Ino, Ino)> = names.parents.drain().collect();
    parents.sort_unstable();
    dotdots(&names.dotdots, &parents, sink);
    tree(table, dirs, &parents, sink);
    let has_links = volume.has_ro_compat(RoCompat::DIR_NLINK);
    for (ino, summary) in table.in_use() {
        if summary.is_nameless() || summary.is_ea_inode() || summary.kind == 0 {
            continue;
        }
        let counted = names.counts.get(ino);
        let place = Place::ino(ino);
        if counted == 0 && summary.is_orphan() {
            continue;
        }
        if counted == 0 && !summary.is_dir() {
            sink.say(Code::InodeUnattached, place, "the inode has no name");
            continue;
        }
        if summary.is_dir() && counted > LINKS_MAX && !has_links {
            let text = format!("{counted} links of a directory need the feature dir_nlink");
            sink.say(Code::LinkCount, place, text);
        } else if let Some(expected) = links_wanted(summary, counted, has_links) {
            let what = "link count";
            sink.number(Code::LinkCount, place, what, summary.links, expected);
        }
    }
    if !names.lost_found {
        let text = "the root has no directory lost+found";
        sink.say(Code::LostFound, Place::FILE_SYSTEM, text);
    }
    parents
}

/// The link count that an inode with so many names should have, if it has another.
pub(crate) fn links_wanted(summary: Summary, counted: u64, has_links: bool) -> Option<u64> {
    // An indexed directory whose count was too large once keeps the 1.
    if summary.is_indexed() && has_links && summary.links == 1 && counted > 1 {
        return None;
    }
    let expected = if summary.is_dir() && has_links && counted > LINKS_MAX {
        1
    } else {
        counted
    };
    let waits = summary.is_orphan() && summary.links == 0;
    (u64::from(summary.links) != expected && !waits).then_some(expected)
}

pub(crate) fn parent_of(parents: &[(Ino, Ino)], child: Ino) -> Option<Ino> {
    let at = parents.binary_search_by_key(&child, |(child, _)| *child);
    at.ok().and_then(|at| parents.get(at)).map(|pair| pair.1)
}

fn dotdots(dotdots: &[(Ino, Ino)], parents: &[(Ino, Ino)], sink: &mut Sink) {
    for &(dir, found) in dotdots {
        let expected = match dir {
            Ino::ROOT => Some(Ino::ROOT),
            _ => parent_of(parents, dir),
        };
        if let Some(expected) = expected
            && expected != found
        {
            let what = "the directory's entry for its parent";
            sink.number(
                Code::DirDotDot,
                Place::ino(dir),
                what,
                found.get(),
                expected.get(),
            );
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    OnTheWay,
    Done,
}

/// Follows every directory up to the root. `dirs` are all directories, ascending.
fn tree(table: &InodeTable, dirs: &[Ino], parents: &[(Ino, Ino)], sink: &mut Sink) {
    let mut states = vec![State::Unknown; dirs.len()];
    let mut way = Vec::new();
    for start in 0..dirs.len() {
        let mut at = start;
        loop {
            match states[at] {
                State::Done => break,
                State::OnTheWay => {
                    let text = "the directory contains itself";
                    sink.say(Code::DirLoop, Place::ino(dirs[at]), text);
                    break;
                }
                State::Unknown => {}
            }
            states[at] = State::OnTheWay;
            way.push(at);
            let dir = dirs[at];
            if dir == Ino::ROOT {
                break;
            }
            let Some(parent) = parent_of(parents, dir) else {
                if !table.get(dir).is_orphan() {
                    sink.say(
                        Code::DirUnattached,
                        Place::ino(dir),
                        "the directory has no name",
                    );
                }
                break;
            };
            match dirs.binary_search(&parent) {
                Ok(next) => at = next,
                Err(_) => break,
            }
        }
        for at in way.drain(..) {
            states[at] = State::Done;
        }
    }
}
