//! How files are taken out to a directory of the host, and what came of it.

use super::{LeaveOut, MOST_PROBLEMS, Progress};
use crate::Error;
use std::fmt;
use std::path::Path;

/// What [`to_directory`](super::to_directory) keeps besides names, content, holes and symbolic
/// links.
///
/// Made from [`Preserve::ALL`] or [`Preserve::NONE`], changed field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preserve {
    /// Mode bits exactly, set-id and sticky bits included. Without it permissions are those of the
    /// file minus the umask, and the special bits are dropped.
    pub mode: bool,
    /// Owner and group. Only root can; others get [`Report::owners_not_kept`]. A file that does not
    /// get its owner and group gets no set-ID bits.
    pub owner: bool,
    /// Access and modification times, to the nanosecond.
    pub times: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
    /// Hard links as hard links. Without it each name becomes a file of its own.
    pub links: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Self = Self {
        mode: true,
        owner: true,
        times: true,
        xattrs: true,
        links: true,
    };
    /// Nothing but names, content, holes and symbolic links.
    pub const NONE: Self = Self {
        mode: false,
        owner: false,
        times: false,
        xattrs: false,
        links: false,
    };
}

/// Takes the path of a file in the image, and the path of what was made of it on the host.
pub type MadeFile<'a> = dyn Fn(&Path, &Path) + Sync + 'a;

/// What becomes of a file of the destination that has the name of one that is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// It is replaced once the new one is complete.
    #[default]
    Replace,
    /// It stays, and nothing is copied.
    Keep,
    /// It stays if it was changed as late as the one in the image, or later.
    KeepNewer,
    /// It is removed before the new one is made.
    RemoveFirst,
}

/// How [`to_directory`](super::to_directory) works. Made with [`ExportOptions::new`], changed field
/// by field.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct ExportOptions<'a> {
    /// What to keep.
    pub preserve: Preserve,
    /// Threads; 0 for one per processor.
    pub threads: usize,
    /// Whether device nodes are made. Pipes and sockets are made in any case.
    pub devices: bool,
    /// Whether files of which a part cannot be read are made all the same, with zeros there. Such a
    /// file is a problem in any case: see [`Cause::Unread`](crate::Cause::Unread).
    pub partial: bool,
    /// Whether files that fs-verity protects are compared with their hashes before they are copied.
    /// One that differs is a problem, and is not there.
    #[cfg(feature = "verity")]
    pub verify: bool,
    /// What becomes of files that are there.
    pub existing: Existing,
    /// Whether symbolic links below the start are followed, inside the image: what they lead to is
    /// copied under their names.
    pub follow: bool,
    /// Which files are left out.
    pub leave_out: Option<&'a LeaveOut<'a>>,
    /// Called by any thread for each file that was made.
    pub made: Option<&'a MadeFile<'a>>,
    /// Called by any thread as the work goes on.
    pub progress: Option<&'a (dyn Fn(Progress) + Sync)>,
}

impl ExportOptions<'_> {
    /// Makes options that keep what `preserve` says, with everything else at its default.
    #[must_use]
    pub fn new(preserve: Preserve) -> Self {
        Self {
            preserve,
            threads: 0,
            devices: false,
            partial: false,
            #[cfg(feature = "verity")]
            verify: false,
            existing: Existing::Replace,
            follow: false,
            leave_out: None,
            made: None,
            progress: None,
        }
    }
}

impl fmt::Debug for ExportOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportOptions")
            .field("preserve", &self.preserve)
            .field("threads", &self.threads)
            .field("devices", &self.devices)
            .field("existing", &self.existing)
            .field("follow", &self.follow)
            .finish_non_exhaustive()
    }
}

/// What an export did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Regular files made.
    pub files: u64,
    /// Directories made or used.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Hard links made.
    pub hard_links: u64,
    /// Devices, pipes and sockets made.
    pub specials: u64,
    /// Bytes of content written, holes not counted.
    pub bytes: u64,
    /// Files whose owner was not kept because only root may give files away, and their set-ID bits
    /// neither. Not a problem.
    pub owners_not_kept: u64,
    /// Extended attributes not kept because only root may set their kind. Not a problem.
    pub xattrs_not_kept: u64,
    /// Files that have their whole content but lack something else (see
    /// [`Cause::Incomplete`](crate::Cause::Incomplete)), the first thousand.
    pub incomplete: Vec<Error>,
    /// How many files lack something.
    pub incomplete_count: u64,
    /// What could not be done, or not all of it, the first thousand: files that are not there, and
    /// such as are there with parts that are zeros or in doubt
    /// ([`Cause::Unread`](crate::Cause::Unread), [`Cause::InDoubt`](crate::Cause::InDoubt)).
    pub problems: Vec<Error>,
    /// How much could not be done.
    pub problem_count: u64,
}

impl Report {
    pub(crate) fn problem(&mut self, problem: Error) {
        self.problem_count += 1;
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    pub(super) fn incomplete(&mut self, lacks: Error) {
        self.incomplete_count += 1;
        if self.incomplete.len() < MOST_PROBLEMS {
            self.incomplete.push(lacks);
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.symlinks += other.symlinks;
        self.hard_links += other.hard_links;
        self.specials += other.specials;
        self.bytes += other.bytes;
        self.owners_not_kept += other.owners_not_kept;
        self.xattrs_not_kept += other.xattrs_not_kept;
        self.incomplete_count += other.incomplete_count;
        let room = MOST_PROBLEMS.saturating_sub(self.incomplete.len());
        self.incomplete
            .extend(other.incomplete.into_iter().take(room));
        self.problem_count += other.problem_count;
        let room = MOST_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(room));
    }
}
