//! Making a directory of the host like one of an image, by changing what differs only.
//!
//! | file | owns |
//! |---|---|
//! | `plan` | what is to be made, removed and set, from what differs |
//! | `place` | the directory of the host: names come to it and go, each by the descriptor of its directory |
//!
//! # Invariants
//!
//! - All that is new is made in a directory of its own, [`STAGE`], and put in its place by renaming
//!   once it is complete. What fails before leaves the files of the host as they were.
//! - A name stands for its old file or for its new one at any time.
//! - Nothing is taken away if anything that the image has does not come in its place.
//! - Every name is reached from the descriptor of the directory, and no symbolic link is passed.
//! - What is excluded or spared stays, wherever it lies, and so does what another file system
//!   holds.

mod place;
mod plan;

use crate::compare::{Aspects, CompareOptions, Difference, Exclude, Side, compare};
use crate::export::{ExportOptions, Preserve, Report, Staging, count, path_of, to_directory};
use crate::path::LastLink;
use crate::{Cause, Error, Filesystem, Result};
use place::{Host, cannot};
use plan::{Old, Planner, Steps};
use rustix::io::Errno;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The name of the directory in which what is new is made, in the one that is changed.
pub const STAGE: &str = ".extant-sync";

/// Names that were spared are kept up to this many.
const MOST_SPARED: usize = 1000;

/// What becomes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// It is made, with all that is below it.
    Add,
    /// It stands for another file, which is made anew.
    Replace,
    /// It is removed, with all that is below it.
    Remove,
    /// It gets owner, permissions, times and attributes alone.
    Describe,
}

/// Takes each change, with the path below the directory that is changed and a `/` in front.
pub type Told<'a> = &'a dyn Fn(Change, &Path);

/// How [`to_host`] works. Made with [`SyncOptions::default`], changed field by field.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub struct SyncOptions<'a> {
    /// Whether what the image does not have is removed.
    pub delete: bool,
    /// Whether the content of all files is compared. Otherwise files of the same size and time are
    /// taken for the same.
    pub checksum: bool,
    /// Whether only what would be done is said.
    pub dry_run: bool,
    /// Threads; 0 for one per processor, and more where the device is far.
    pub threads: usize,
    /// Whether device nodes are made. Pipes and sockets are made in any case.
    pub devices: bool,
    /// What is left alone, on both sides.
    pub exclude: Option<Exclude<'a>>,
    /// Files of the host that stay whatever the image has: device and inode number of each, such as
    /// those of the image itself.
    pub spare: &'a [(u64, u64)],
    /// Called for each change, before the first is made.
    pub told: Option<Told<'a>>,
}

impl fmt::Debug for SyncOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncOptions")
            .field("delete", &self.delete)
            .field("checksum", &self.checksum)
            .field("dry_run", &self.dry_run)
            .field("threads", &self.threads)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

/// What [`to_host`] did, or with [`SyncOptions::dry_run`] would do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SyncReport {
    /// Files and directories that are made, and further names.
    pub made: u64,
    /// Names that stood for something else before.
    pub replaced: u64,
    /// Names that are removed, each with all that is below it.
    pub removed: u64,
    /// Files and directories that get owner, permissions, times and attributes alone.
    pub described: u64,
    /// Bytes of content that are written.
    pub bytes: u64,
    /// Whether something was not removed because not everything of the image could be read or came
    /// to be there.
    pub is_removal_left: bool,
    /// Files that are spared and would have gone, by their paths on the host; the first thousand.
    pub spared: Vec<PathBuf>,
    /// What could not be done or not be kept. Its counts of files are those of what was made.
    pub copied: Report,
}

/// Makes the directory `dest` of the host like the one at `path` of an image, by changing what
/// differs only. Symbolic links at the end of the two are followed, and `dest` is made if it is
/// not there.
///
/// Kept is what [`Preserve::ALL`] says. A file whose content differs is made anew, in the directory
/// [`STAGE`] of `dest`, and takes the place of the old one when everything is complete; what has
/// other owners, permissions, times or attributes only gets these where it is. A directory with
/// names that is in the way of something else is replaced only where what the image does not have
/// is removed.
///
/// What only root can set is counted where the caller is somebody else, and then neither compared
/// nor tried again.
///
/// ```no_run
/// use extant::Filesystem;
/// use extant::sync::{SyncOptions, to_host};
///
/// # fn main() -> extant::Result<()> {
/// let fs = Filesystem::open("rootfs.img")?;
/// let mut options = SyncOptions::default();
/// options.delete = true;
/// let report = to_host(&fs, "/srv", "./srv", &options)?;
/// assert_eq!(report.copied.problem_count, 0);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// When one of the two is no directory or cannot be opened, where `dest` is the root directory of
/// the system and things would be removed from it, and when what is new cannot be made at all, as
/// on a full disk. The files of `dest` are then as they were. What else fails is in
/// [`SyncReport::copied`], and the rest is done.
pub fn to_host(
    fs: &Filesystem,
    path: impl AsRef<Path>,
    dest: impl AsRef<Path>,
    options: &SyncOptions<'_>,
) -> Result<SyncReport> {
    let (path, dest) = (path.as_ref(), dest.as_ref());
    let refused = |why| Error::host("keep owners in", dest, std::io::Error::other(why));
    extant_host::refuse_if_unheard().map_err(refused)?;
    let start = fs.inode(path, LastLink::Follow)?;
    if !start.is_dir() {
        return Err(Error::new(path, Cause::NotKept("is no directory")));
    }
    // One more name makes the walk follow a link at the end.
    let path = if fs.inode(path, LastLink::Keep)?.is_dir() {
        path.to_owned()
    } else {
        path.join(".")
    };
    let excluded = options.exclude;
    let leave_out = |names: &[&[u8]], is_dir: bool| {
        excluded.is_some_and(|excluded| excluded(&path_of(&names.join(&b'/')), is_dir))
    };
    let mut export = ExportOptions::new(Preserve::ALL);
    export.threads = options.threads;
    export.devices = options.devices;
    if excluded.is_some() {
        export.leave_out = Some(&leave_out);
    }
    let Some(host) = Host::open(dest, options)? else {
        return make_all(fs, &path, dest, options, &export);
    };
    let mut report = SyncReport::default();
    let (differences, compared) = differences(fs, &path, &host, options)?;
    let has_all = compared.problem_count == 0;
    for (_, problem) in &compared.problems {
        report.copied.problem(problem.clone());
    }
    report.copied.problem_count += compared.problem_count - compared.problems.len() as u64;
    let mut planner = Planner::new(fs, &path, &host, options, has_all);
    planner.differences(differences, &compared, &mut report)?;
    let steps = planner.finish(&mut report);
    let staging = Staging {
        fs,
        start: &path,
        root: host.root(),
        dest,
        options: &export,
    };
    carry_out(&host, &staging, steps, options, &mut report)?;
    Ok(report)
}

/// Makes the directory that is not there, with all that the image has.
fn make_all(
    fs: &Filesystem,
    path: &Path,
    dest: &Path,
    options: &SyncOptions<'_>,
    export: &ExportOptions<'_>,
) -> Result<SyncReport> {
    let mut report = SyncReport::default();
    if let Some(told) = options.told {
        told(Change::Add, Path::new("/"));
    }
    if options.dry_run {
        (report.made, report.bytes) = count(fs, path, export, &mut report.copied)?;
        return Ok(report);
    }
    let made = to_directory(fs, path, dest, export)?;
    report.made = made.files + made.directories + made.symlinks + made.hard_links + made.specials;
    report.bytes = made.bytes;
    report.copied = made;
    Ok(report)
}

/// What differs, as far as something follows from it.
fn differences(
    fs: &Filesystem,
    path: &Path,
    host: &Host<'_>,
    options: &SyncOptions<'_>,
) -> Result<(Vec<Difference>, crate::compare::Report)> {
    let mut how = CompareOptions::new(Aspects::ALL);
    how.trust_times = !options.checksum;
    how.threads = options.threads;
    let excluded = options.exclude;
    let exclude = |path: &Path, is_dir: bool| {
        path == Path::new(STAGE) || excluded.is_some_and(|excluded| excluded(path, is_dir))
    };
    how.exclude = Some(&exclude);
    let mut all = Vec::new();
    let sides = (Side::image(fs, path), Side::host(host.path()));
    let report = compare(&sides.0, &sides.1, &how, |difference| {
        all.push(difference);
        ControlFlow::Continue(())
    })?;
    Ok((all, report))
}

/// Makes what is new, puts it in its place, removes and describes.
fn carry_out(
    host: &Host<'_>,
    staging: &Staging<'_>,
    mut steps: Steps,
    options: &SyncOptions<'_>,
    report: &mut SyncReport,
) -> Result<()> {
    let before = report.copied.problem_count;
    let plan = staging.plan(&steps.tops, &steps.stays, &mut report.copied);
    (report.made, report.bytes) = (plan.count(), plan.bytes());
    if report.copied.problem_count > before {
        steps.give_up_removals(report);
    }
    if let Some(told) = options.told {
        steps.tell(told);
    }
    report.replaced = steps.replaced();
    report.removed = steps.removals.len() as u64;
    report.described = steps.described.len() as u64;
    if options.dry_run {
        return Ok(());
    }
    host.clear_stage()?;
    if plan.count() > 0 {
        let stage = host.make_stage()?;
        let done = staging.make(&plan, &stage, &steps.stays, &mut report.copied);
        if !done {
            host.clear_stage()?;
            return Err(full(&report.copied, host.path()));
        }
        host.sync(&stage)?;
        put_in_place(host, &stage, &mut steps, report);
    }
    if report.copied.problem_count > 0 {
        steps.give_up_removals(report);
    }
    for removal in &steps.removals {
        host.remove(removal, &mut report.copied);
    }
    host.clear_stage()?;
    staging.describe(&steps.described, &mut report.copied);
    // Content that is there, whatever the sizes said.
    report.bytes = report.copied.bytes;
    Ok(())
}

/// Puts what was made in its place: what replaces a directory last, and only if all is there.
fn put_in_place(
    host: &Host<'_>,
    stage: &rustix::fd::OwnedFd,
    steps: &mut Steps,
    report: &mut SyncReport,
) {
    let is_late = |old: Old| old == Old::Directory;
    let order = (0..steps.tops.len()).partition::<Vec<_>, _>(|top| !is_late(steps.old[*top]));
    let mut lost = 0;
    for number in order.0.into_iter().chain(order.1) {
        let (top, old) = (&steps.tops[number], steps.old[number]);
        let is_whole = report.copied.problem_count == 0;
        if !is_whole && (old == Old::Directory || old == Old::File && top.is_dir()) {
            let why = "stays, since not everything of the image comes to be there";
            let stays = Error::new(host.path_of(&top.below), Cause::NotKept(why));
            report.copied.problem(stays);
            lost += 1;
            continue;
        }
        match host.put(stage, number, top, old) {
            Ok(()) => {}
            // What could not be made is named already.
            Err((_, Errno::NOENT)) if !is_whole => lost += u64::from(old != Old::Nothing),
            Err((action, errno)) => {
                report
                    .copied
                    .problem(cannot(action, &host.path_of(&top.below), errno));
                lost += u64::from(old != Old::Nothing);
            }
        }
    }
    report.replaced -= lost.min(report.replaced);
}

/// Why nothing more can be made.
fn full(copied: &Report, dest: &Path) -> Error {
    match copied.problems.last() {
        Some(last) => last.clone(),
        None => cannot("make files in", dest, Errno::NOSPC),
    }
}
