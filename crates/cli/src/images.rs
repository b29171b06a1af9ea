//! The images that a command changes: opened once each, closed at the end whatever happened.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::{ImagePath, shown};
use crate::operands::expand;
use extant::{Cause, Filesystem, SharedDevice, WalkEntry};
use extant_blockdev::list_partitions;
use extant_image::{Carrier, ImageLocation, PartitionName};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Device and inode number of a file of the host, which tell it apart whatever it is called.
pub(crate) type FileId = (u64, u64);

/// The images of one command.
#[derive(Debug)]
pub(crate) struct Images<'a> {
    location: &'a Whereabouts,
    open: Vec<Opened>,
}

/// What tells a disk apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    File(FileId),
    Elsewhere(Carrier),
}

impl Identity {
    /// That of a disk that exists; opening says what is wrong with one that does not.
    pub(crate) fn of(image: &ImageLocation) -> Option<Self> {
        let found = match image.carrier() {
            Carrier::File(path) => path.metadata(),
            Carrier::Descriptor(number) => std::fs::metadata(format!("/proc/self/fd/{number}")),
            other => return Some(Self::Elsewhere(other.clone())),
        };
        found
            .ok()
            .map(|found| Self::File((found.dev(), found.ino())))
    }
}

#[derive(Debug)]
struct Opened {
    id: Option<Identity>,
    image: ImageLocation,
    /// The whole disk.
    whole: SharedDevice,
    /// The bytes of it that hold the file system.
    bytes: Range<u64>,
    fs: Filesystem,
    writable: bool,
}

impl<'a> Images<'a> {
    pub(crate) fn new(location: &'a Whereabouts) -> Self {
        Self {
            location,
            open: Vec::new(),
        }
    }

    /// The image of a place, to be changed.
    pub(crate) fn writable(&mut self, at: &ImagePath) -> Outcome<Filesystem> {
        self.get(at, true)
    }

    /// The image of a place, to be read. One that is to be changed as well must have been opened
    /// for that before.
    pub(crate) fn readable(&mut self, at: &ImagePath) -> Outcome<Filesystem> {
        self.get(at, false)
    }

    fn get(&mut self, at: &ImagePath, writable: bool) -> Outcome<Filesystem> {
        if let Some(fs) = self.location.opened(&at.image) {
            return Ok(fs);
        }
        let id = Identity::of(&at.image);
        let is_known =
            |opened: &&Opened| id.is_some() && opened.id == id && (opened.writable || !writable);
        // A disk is opened once, and one lock is held on it, whatever parts of it are used.
        let whole = match self.open.iter().find(is_known) {
            Some(known) => Arc::clone(&known.whole),
            None => at.open_whole(self.location, writable)?,
        };
        let bytes = self
            .bytes(at, &whole)
            .map_err(|failure| self.with_advice(failure))?;
        for known in self.open.iter().filter(is_known) {
            if known.bytes == bytes {
                return Ok(known.fs.clone());
            }
            if (known.writable || writable)
                && known.bytes.start < bytes.end
                && bytes.start < known.bytes.end
            {
                return Err(Failure::new(format!(
                    "{} and {} lie over each other: one command changes only one of them",
                    shown(&known.image),
                    shown(&at.image)
                )));
            }
        }
        let opened = if writable {
            at.open_writable_in(&whole, self.location)
        } else {
            at.open_in(&whole, self.location)
        };
        let fs = opened.map_err(|failure| self.with_advice(failure))?;
        self.open.push(Opened {
            id,
            image: at.image.clone(),
            whole,
            bytes,
            fs: fs.clone(),
            writable,
        });
        Ok(fs)
    }

    /// The bytes of a disk that a place is in.
    fn bytes(&self, at: &ImagePath, whole: &SharedDevice) -> Outcome<Range<u64>> {
        let default = self.location.partition.map(PartitionName::Number);
        let start = match (at.image.partition(), &default, self.location.offset) {
            (Some(partition), ..) | (None, Some(partition), _) => {
                let number = partition.number_on(whole).map_err(Failure::new)?;
                let table = list_partitions(&**whole).map_err(Failure::new)?;
                let found = table.partitions.iter().find(|part| part.number == number);
                // One that is not there is an error of opening.
                found.map_or(0, |part| part.start)
            }
            (None, None, offset) => offset.unwrap_or(0),
        };
        let part = at.part_of(whole, self.location)?;
        Ok(start..start.saturating_add(part.size()))
    }

    /// Adds to a failure of opening a further image what to do about partitions.
    fn with_advice(&self, failure: Failure) -> Failure {
        let is_chosen = self.location.partition.is_some() || self.location.offset.is_some();
        match failure {
            Failure::Failed(text) if is_chosen && !self.open.is_empty() => {
                Failure::Failed(format!(
                    "{text}\n--partition and --offset are about every image of a command: name a \
                     partition with its image, IMAGE#N:/path, where they differ."
                ))
            }
            failure => failure,
        }
    }

    /// The files that hold the images.
    pub(crate) fn files(&self) -> Vec<FileId> {
        let session = self.location.session.as_ref();
        let session = session.and_then(|session| Identity::of(&session.image));
        let ids = self.open.iter().filter_map(|opened| opened.id.clone());
        ids.chain(session)
            .filter_map(|id| match id {
                Identity::File(file) => Some(file),
                Identity::Elsewhere(_) => None,
            })
            .collect()
    }

    /// Closes the images, so that what was `done` is durable. An error of closing comes in addition
    /// to what failed before.
    pub(crate) fn close(self, done: Outcome) -> Outcome {
        let mut outcome = done;
        for Opened { image, fs, .. } in self.open.into_iter().filter(|opened| opened.writable) {
            if let Err(e) = fs.close() {
                if let Err(earlier) = outcome {
                    // Its exit code is that of the closing, too.
                    let _ = earlier.report();
                }
                outcome = Err(Failure::new(format!(
                    "{}; what was changed last may be lost",
                    in_image(&image, &e)
                )));
            }
        }
        outcome
    }
}

/// What went wrong, told at once and counted.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    count: u64,
}

/// Problems told one by one; more are only counted.
const MOST_TOLD: u64 = 1000;

impl Problems {
    /// Says that something was not done.
    pub(crate) fn note(&mut self, failure: Failure) {
        self.count += 1;
        if self.count > MOST_TOLD {
            return;
        }
        match failure {
            Failure::Usage(text) | Failure::Failed(text) => say(text),
            Failure::Said | Failure::Code(_) | Failure::PipeClosed => {}
        }
    }

    /// Says so if something was not done, and goes on.
    pub(crate) fn check(&mut self, outcome: Outcome) {
        if let Err(failure) = outcome {
            self.note(failure);
        }
    }

    /// How much was not done so far.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts what another list has said.
    pub(crate) const fn add(&mut self, others: &Self) {
        self.count += others.count;
    }

    /// The outcome of the whole.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.count {
            0 => Ok(()),
            more if more > MOST_TOLD => {
                let more = more - MOST_TOLD;
                Err(Failure::new(format!("... and {more} more of this kind")))
            }
            _ => Err(Failure::Said),
        }
    }
}

/// Changes what each operand names, or all that match it where it is a pattern. What fails is said,
/// and the others are done all the same.
pub(crate) fn change_each(
    operands: &[OsString],
    location: &Whereabouts,
    mut change: impl FnMut(&Filesystem, &ImagePath, &mut Problems) -> Outcome,
) -> Outcome {
    let places = operands
        .iter()
        .map(|text| ImagePath::inside(text))
        .collect::<Outcome<Vec<_>>>()?;
    let mut images = Images::new(location);
    let done = (|| {
        let mut problems = Problems::default();
        // Said once for each file system.
        let mut unopened = Vec::new();
        for at in &places {
            let file_system = &at.image;
            if unopened.contains(&file_system) {
                continue;
            }
            let fs = match images.writable(at) {
                Ok(fs) => fs,
                Err(Failure::Usage(text)) => return Err(Failure::Usage(text)),
                Err(failure) => {
                    problems.note(failure);
                    unopened.push(file_system);
                    continue;
                }
            };
            let found = match expand(&fs, at) {
                Ok(found) => found,
                Err(failure) => {
                    problems.note(failure);
                    continue;
                }
            };
            for at in found {
                let outcome = change(&fs, &at, &mut problems);
                problems.check(outcome);
            }
        }
        problems.outcome()
    })();
    images.close(done)
}

/// Changes everything at and below the directory `start`. What fails is said, and the rest is done
/// all the same, unless that would fail as well.
pub(crate) fn change_tree(
    fs: &Filesystem,
    at: &ImagePath,
    start: &Path,
    problems: &mut Problems,
    mut change: impl FnMut(&WalkEntry) -> extant::Result<()>,
) -> Outcome {
    let mut walk = fs.walk(start).map_err(|e| at.failure(&e))?;
    while let Some(entry) = walk.next() {
        let changed = entry.and_then(|entry| {
            // A path made of what is no name would lead elsewhere.
            if let Err(e) = entry.check_name()
                && matches!(e.cause(), Cause::BadName)
            {
                walk.skip_children();
                return Err(e);
            }
            change(&entry)
        });
        if let Err(e) = changed {
            problems.note(at.failure(&e));
            if is_final(&e) {
                return Err(Failure::Said);
            }
        }
    }
    Ok(())
}

/// Whether an error means that something does not exist.
pub(crate) fn is_missing(e: &extant::Error) -> bool {
    e.kind() == std::io::ErrorKind::NotFound
}

/// Whether an error means that something is in the way.
pub(crate) fn is_in_the_way(e: &extant::Error) -> bool {
    e.kind() == std::io::ErrorKind::AlreadyExists
}

/// Whether every further change would fail as well: no space, a device that fails, a journal that
/// was stopped.
pub(crate) fn is_final(e: &extant::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        e.kind(),
        ErrorKind::StorageFull | ErrorKind::ReadOnlyFilesystem
    ) || e.errno() == extant::errno::EIO
}
