//! What is to be made, removed and set, from what differs.
//!
//! Names of one file of the image are names of one file of the host afterwards. The file that is
//! there stays if one of them is right; otherwise one is made.

use super::place::Host;
use super::{Change, SyncOptions, SyncReport, Told};
use crate::compare::{Difference, Report as Compared, What, Which};
use crate::export::{Described, Top, path_of, split};
use crate::path::LastLink;
use crate::{Cause, Error, FileType, Filesystem, Result};
use extant_format::Ino;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where checkers put what they find.
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Attributes that a system gives its files by itself.
const OF_THE_SYSTEM: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];

/// What is there where something comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Old {
    Nothing,
    /// No directory.
    File,
    Directory,
}

/// What is to be done.
#[derive(Default)]
pub(super) struct Steps {
    /// What is made anew, each with all that is below it.
    pub(super) tops: Vec<Top>,
    /// What is there, of each of them.
    pub(super) old: Vec<Old>,
    /// Names that stay, of files that may get more of them.
    pub(super) stays: HashMap<Ino, Vec<u8>>,
    /// Names that go, with all that is below them.
    pub(super) removals: Vec<Vec<u8>>,
    /// Files that get what else the image has.
    pub(super) described: Vec<Described>,
}

impl Steps {
    /// Names that stand for something else before.
    pub(super) fn replaced(&self) -> u64 {
        self.old.iter().filter(|old| **old != Old::Nothing).count() as u64
    }

    /// Says what is to be done.
    pub(super) fn tell(&self, told: Told<'_>) {
        let tell = |change, below: &[u8]| told(change, &Path::new("/").join(path_of(below)));
        for removal in &self.removals {
            tell(Change::Remove, removal);
        }
        for (top, old) in self.tops.iter().zip(&self.old) {
            let change = match old {
                Old::Nothing => Change::Add,
                Old::File | Old::Directory => Change::Replace,
            };
            tell(change, &top.below);
        }
        for file in &self.described {
            tell(Change::Describe, &file.below);
        }
    }

    /// Removes nothing.
    pub(super) fn give_up_removals(&mut self, report: &mut SyncReport) {
        report.is_removal_left |= !self.removals.is_empty();
        self.removals.clear();
        report.removed = 0;
    }
}

pub(super) struct Planner<'a> {
    fs: &'a Filesystem,
    /// The directory of the image.
    start: &'a Path,
    host: &'a Host<'a>,
    options: &'a SyncOptions<'a>,
    /// Whether everything could be read.
    has_all: bool,
    steps: Steps,
    /// Files that get what else the image has, with the attributes that go.
    described: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    is_root: bool,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        fs: &'a Filesystem,
        start: &'a Path,
        host: &'a Host<'a>,
        options: &'a SyncOptions<'a>,
        has_all: bool,
    ) -> Self {
        Self {
            fs,
            start,
            host,
            options,
            has_all,
            steps: Steps::default(),
            described: BTreeMap::new(),
            is_root: extant_host::euid() == 0,
        }
    }

    /// Plans what follows from differences.
    pub(super) fn differences(
        &mut self,
        all: Vec<Difference>,
        compared: &Compared,
        report: &mut SyncReport,
    ) -> Result<()> {
        let mut by_path: Vec<(Vec<u8>, Vec<What>)> = Vec::new();
        for Difference { path, what, .. } in all {
            let below = path.strip_prefix("/").unwrap_or(&path);
            let below = below.as_os_str().as_bytes();
            match by_path.last_mut() {
                Some((last, whats)) if *last == below => whats.push(what),
                _ => by_path.push((below.to_vec(), vec![what])),
            }
        }
        let anew = by_path.iter();
        let anew: HashSet<&[u8]> = anew
            .filter(|(_, whats)| whats.iter().any(is_of_the_file))
            .map(|(below, _)| below.as_slice())
            .collect();
        // What stays is what further names of the image's file are given to.
        for ((_, number), path) in compared.first_names() {
            let below = path.strip_prefix("/").unwrap_or(path).as_os_str();
            let ino = u32::try_from(number).unwrap_or(0);
            if !anew.contains(below.as_bytes()) {
                let below = below.as_bytes().to_vec();
                self.steps.stays.insert(Ino::new(ino), below);
            }
        }
        for (below, whats) in by_path {
            self.path(below, &whats, report)?;
        }
        Ok(())
    }

    /// Plans what follows from the differences of one path.
    fn path(&mut self, below: Vec<u8>, whats: &[What], report: &mut SyncReport) -> Result<()> {
        for what in whats {
            match what {
                What::OnlyIn(Which::First, _) => return self.make(below, Old::Nothing),
                What::OnlyIn(Which::Second, kind) => {
                    self.remove(below, *kind, report);
                    return Ok(());
                }
                What::Kind(_, there) => {
                    if *there != FileType::Directory {
                        return self.make_over(below, report);
                    }
                    let why = match self.host.what_is_in(&below, &mut report.copied) {
                        _ if self.host.is_spared(&below) => IN_USE,
                        Some(found) if found.is_empty => {
                            return self.make(below, Old::Directory);
                        }
                        Some(found) if !found.kept.is_empty() => {
                            "is a directory with files that are left alone, and the image has \
                             something else there: move them away, or exclude the directory as well"
                        }
                        Some(_) if self.options.delete => return self.make(below, Old::Directory),
                        Some(_) => {
                            "is a directory with files, and the image has something else there: \
                             have what the image does not have removed (--delete) to have it \
                             replaced"
                        }
                        // What is wrong with it is said.
                        None => return Ok(()),
                    };
                    self.refuse(&below, why, report);
                    return Ok(());
                }
                _ => {}
            }
        }
        if whats.iter().any(is_of_the_file) {
            return self.make_over(below, report);
        }
        self.describe(below, whats, report);
        Ok(())
    }

    /// Plans to make something in the place of what is no directory.
    fn make_over(&mut self, below: Vec<u8>, report: &mut SyncReport) -> Result<()> {
        if self.host.is_spared(&below) {
            self.refuse(&below, IN_USE, report);
            return Ok(());
        }
        if !self.host.is_part(&below, &mut report.copied) {
            return Ok(());
        }
        self.make(below, Old::File)
    }

    /// Plans to make what the image has at a path, with all that is below it.
    fn make(&mut self, below: Vec<u8>, old: Old) -> Result<()> {
        let path = self.start.join(path_of(&below));
        let inode = self.fs.inode(&path, LastLink::Keep)?;
        self.touch(split(&below).0);
        self.steps.tops.push(Top { below, inode });
        self.steps.old.push(old);
        Ok(())
    }

    /// Notes that names of a directory change, and its times with them.
    fn touch(&mut self, dir: &[u8]) {
        self.described.entry(dir.to_vec()).or_default();
        // The stage is made there.
        self.described.entry(Vec::new()).or_default();
    }

    /// Plans to take a name away.
    fn remove(&mut self, below: Vec<u8>, kind: FileType, report: &mut SyncReport) {
        let is_of_checkers = below == LOST_AND_FOUND && kind == FileType::Directory;
        if !self.options.delete || is_of_checkers {
            return;
        }
        if self.host.is_spared(&below) {
            self.spare(&below, report);
            return;
        }
        if !self.has_all {
            report.is_removal_left = true;
            return;
        }
        let parent = split(&below).0.to_vec();
        if kind == FileType::Directory {
            let Some(found) = self.host.what_is_in(&below, &mut report.copied) else {
                return;
            };
            for spared in &found.spared {
                self.spare(spared, report);
            }
            if !found.kept.is_empty() {
                self.steps.removals.extend(found.goes);
                return;
            }
        } else if !self.host.is_part(&below, &mut report.copied) {
            return;
        }
        self.touch(&parent);
        self.steps.removals.push(below);
    }

    fn spare(&self, below: &[u8], report: &mut SyncReport) {
        if report.spared.len() < super::MOST_SPARED {
            report.spared.push(self.host.path_of(below));
        }
    }

    /// Plans to give a file what else the image has, as far as it can be given.
    fn describe(&mut self, below: Vec<u8>, whats: &[What], report: &mut SyncReport) {
        let is_given = |what: &What| matches!(what, What::Owner(..)) && !self.is_root;
        let keeps_no_owner = whats.iter().any(is_given);
        let mut gone = Vec::new();
        let mut is_worth_it = false;
        for what in whats {
            match what {
                What::Owner(..) if keeps_no_owner => report.copied.owners_not_kept += 1,
                // The owner's powers are not for the owner that it has instead.
                What::Mode(one, other) if keeps_no_owner && (one ^ other) & 0o1777 == 0 => {}
                What::Xattr(name, None, Some(_)) => {
                    let name = name.as_bytes();
                    if !OF_THE_SYSTEM.contains(&name) {
                        gone.push(name.to_vec());
                        is_worth_it = true;
                    }
                }
                What::Xattr(name, Some(_), _)
                    if !self.is_root && is_privileged(name.as_bytes()) =>
                {
                    report.copied.xattrs_not_kept += 1;
                }
                _ => is_worth_it = true,
            }
        }
        if is_worth_it {
            self.described.insert(below, gone);
        }
    }

    fn refuse(&self, below: &[u8], why: &'static str, report: &mut SyncReport) {
        let refused = Error::new(self.host.path_of(below), Cause::NotKept(why));
        report.copied.problem(refused);
    }

    /// The steps, once all differences were gone through.
    pub(super) fn finish(mut self, report: &mut SyncReport) -> Steps {
        // Directories after what is below them, against the order of paths.
        for (below, gone) in self.described.into_iter().rev() {
            let path = self.start.join(path_of(&below));
            match self.fs.inode(&path, LastLink::Keep) {
                Ok(inode) => self.steps.described.push(Described { below, inode, gone }),
                Err(e) => report.copied.problem(e),
            }
        }
        if report.copied.problem_count > 0 {
            self.steps.give_up_removals(report);
        }
        self.steps
    }
}

const IN_USE: &str = "is an image in use, and the image has something else there";

/// Attributes that only root sets.
fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

/// Whether a difference is one of the file itself, so that another one takes its place.
fn is_of_the_file(what: &What) -> bool {
    matches!(
        what,
        What::Content { .. }
            | What::Target(..)
            | What::Device(..)
            | What::Link(..)
            | What::Kind(..)
            | What::OnlyIn(..)
    )
}
