//! From an image into a directory.
//!
//! Directories are made first, by one thread and readable by their maker only; then files, by all
//! threads, in the order their content lies on the device; then hard links; and last the
//! directories get their attributes, children before parents, because making something in them
//! changes their times.

use super::attributes::Host;
use super::create::{Failure, Maker, host, put};
use super::large::MOST_READERS;
use super::missing::{Attribute, Missing};
use super::plan::{Item, Link, Place, Plan, ROOT};
use super::target::OpenDirs;
use super::{Existing, ExportOptions, Progress, Report, data_limit};
use crate::path::LastLink;
use crate::{Error, Filesystem, Result};
use extant_core::ops::{self, Ahead};
use extant_format::Ino;
use extant_sync::{LockClass, Mutex, Rank};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that a thread takes at once, and at most where a request takes a round trip: as many as
/// leave something to do for all threads.
const TAKEN_AT_ONCE: usize = 32;
const MOST_TAKEN_FAR: usize = 256;
/// Threads at most, unless more are asked for, where a request to the device takes a round trip:
/// they mostly wait.
const MOST_FAR: usize = 32;
/// Directories whose attributes are asked for together there.
const DIRECTORIES_AT_ONCE: usize = 4096;

static QUEUE: LockClass = LockClass::new("export queue", Rank::DeviceQueue);

/// Copies what is at `path` to `dest` on the host.
///
/// A directory's content goes into `dest`, which is made if it is not there. Anything else becomes
/// `dest` itself; a symbolic link at the end of `path` is copied as a link. A file in the
/// destination is replaced by one of the same name once that is complete (never written through, so
/// a link there leads nowhere); directories are joined.
///
/// One file that cannot be copied does not stop the others: see [`Report::problems`]. One whose
/// content was copied and that lacks something else is in
/// [`Report::incomplete`](field@super::Report::incomplete).
///
/// # Errors
/// When `path` does not exist, or the destination cannot be opened or made; also when owners are to
/// be kept, `fakeroot` or `pseudo` is asked for, and this process runs without it.
pub fn to_directory(
    fs: &Filesystem,
    path: impl AsRef<Path>,
    dest: impl AsRef<Path>,
    options: &ExportOptions<'_>,
) -> Result<Report> {
    let (path, dest) = (path.as_ref(), dest.as_ref());
    fs.check_sees_all(path)?;
    if options.preserve.owner {
        let refused = |why| Error::host("keep owners in", dest, std::io::Error::other(why));
        extant_host::refuse_if_unheard().map_err(refused)?;
    }
    super::write_back(fs, path)?;
    let inode = fs.inode(path, LastLink::Keep)?;
    let mut report = Report::default();
    let (plan, root, how, dest) = if inode.is_dir() {
        let plan = Plan::of_directory(fs, path, &inode, options, &mut report);
        let (root, how) = open_destination(dest)?;
        (plan, root, how, dest)
    } else {
        let name = dest.file_name().ok_or_else(|| {
            let exists = Errno::ISDIR;
            Error::host("replace", dest, exists)
        })?;
        let parent = match dest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let plan = Plan::of_file(path, &inode, name.as_bytes());
        (plan, open_directory(parent)?, Made::Found, parent)
    };
    let export = Export {
        fs,
        plan: &plan,
        root: &root,
        dest,
        options,
        threads: threads(options.threads, plan.items.len(), ops::in_flight(fs.fs())),
        stop: AtomicBool::new(false),
    };
    export.make_all(how, &mut report);
    Ok(report)
}

/// How many files, links and directories the directory at `path` comes to, and how many bytes of
/// content, as sizes say. What cannot be looked at goes to the report.
pub(crate) fn count(
    fs: &Filesystem,
    path: &Path,
    options: &ExportOptions<'_>,
    report: &mut Report,
) -> Result<(u64, u64)> {
    let inode = fs.inode(path, LastLink::Follow)?;
    let plan = Plan::of_directory(fs, path, &inode, options, report);
    Ok((plan.count(), plan.bytes))
}

pub(super) fn threads(asked: usize, files: usize, in_flight: usize) -> usize {
    let wanted = match asked {
        0 => std::thread::available_parallelism()
            .map_or(1, usize::from)
            .max(in_flight.min(MOST_FAR)),
        asked => asked,
    };
    wanted
        .clamp(1, 64)
        .min(files.div_ceil(TAKEN_AT_ONCE).max(1))
}

/// Opens the destination, which is the user's to name: links on the way to it are followed.
fn open_destination(dest: &Path) -> Result<(OwnedFd, Made)> {
    match extant_host::mkdirat(CWD, dest.as_os_str().as_bytes(), Mode::RWXU) {
        Ok(()) => Ok((open_directory(dest)?, Made::New)),
        Err(Errno::EXIST) => Ok((open_directory(dest)?, Made::Found)),
        Err(errno) => Err(Error::host("create the directory", dest, errno)),
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    extant_host::open(path, flags, Mode::empty())
        .map_err(|errno| Error::host("open the directory", path, errno))
}

pub(super) struct Export<'a> {
    pub(super) fs: &'a Filesystem,
    pub(super) plan: &'a Plan,
    pub(super) root: &'a OwnedFd,
    pub(super) dest: &'a Path,
    pub(super) options: &'a ExportOptions<'a>,
    pub(super) threads: usize,
    /// Set when going on makes no sense, such as on a full disk.
    pub(super) stop: AtomicBool,
}

/// A directory of the destination, by number in the plan.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Not there, nor anything below it.
    Not,
    /// Made, readable by its maker only.
    New,
    /// Was there before.
    Found,
}

impl<'a> Export<'a> {
    /// Makes all of the plan in a root that was made `how`.
    pub(super) fn make_all(&self, how: Made, report: &mut Report) {
        self.progress(Progress::Planned {
            files: self.plan.count(),
            bytes: self.plan.bytes,
        });
        let made = self.directories(how, report);
        let failed = self.files(report, &made);
        self.links(report, &made, &failed);
        self.directory_attributes(report, &made);
    }

    fn progress(&self, progress: Progress) {
        if let Some(tell) = self.options.progress {
            tell(progress);
        }
    }

    /// Tells of a file that was made.
    fn tell(&self, place: Place) {
        if let Some(made) = self.options.made {
            made(
                &self.plan.image_path(place),
                &self.dest.join(self.plan.below(place)),
            );
        }
    }

    /// Tells of a directory that was made.
    fn tell_dir(&self, dir: u32) {
        if let Some(made) = self.options.made {
            let below = self.plan.dir_below(dir);
            // Joining nothing would put a `/` behind it.
            let on_host = if dir == ROOT {
                self.dest.to_owned()
            } else {
                self.dest.join(below)
            };
            made(&self.plan.dir_image_path(dir), &on_host);
        }
    }

    pub(super) fn open_dirs(&self) -> OpenDirs<'a> {
        OpenDirs::new(self.plan, self.root, self.threads)
    }

    pub(super) fn maker(&self) -> Maker<'a> {
        Maker {
            fs: self.fs.fs(),
            mount: self.fs.mount(),
            plan: self.plan,
            preserve: self.options.preserve,
            existing: self.options.existing,
            devices: self.options.devices,
            partial: self.options.partial,
            #[cfg(feature = "verity")]
            verify: self.options.verify,
            dest: self.dest,
            data_left: data_limit(self.fs.fs()),
            is_root: extant_host::euid() == 0,
            buffer: Vec::new(),
            is_far: ops::in_flight(self.fs.fs()) > 1,
            readers: self.readers(),
            ahead: HashMap::new(),
            report: Report::default(),
        }
    }

    /// Threads that read a large file for each that copies files. Where many of these do, there is
    /// enough under way.
    fn readers(&self) -> usize {
        if self.options.threads == 1 || self.threads > MOST_READERS {
            1
        } else {
            ops::parallel_reads(self.fs.fs()).min(MOST_READERS)
        }
    }

    fn dir_problem(&self, report: &mut Report, dir: u32, action: &'static str, errno: Errno) {
        let path = self.dest.join(self.plan.dir_below(dir));
        report.problem(Error::host(action, path, errno));
    }

    /// Makes all directories. What is below one that cannot be made is left out with it.
    fn directories(&self, root: Made, report: &mut Report) -> Vec<Made> {
        let mut dirs = self.open_dirs();
        let mut made = vec![Made::Not; self.plan.dirs.len()];
        for (index, dir) in (0u32..).zip(&self.plan.dirs) {
            let below_nothing = || made.get(dir.parent as usize) == Some(&Made::Not);
            let outcome = if index == ROOT {
                Ok(root)
            } else if below_nothing() {
                continue;
            } else {
                let name = self.plan.name(dir.name);
                dirs.get(dir.parent)
                    .and_then(
                        |parent| match extant_host::mkdirat(parent, name, Mode::RWXU) {
                            Ok(()) => Ok(Made::New),
                            // Something that is no directory is refused when it is opened.
                            Err(Errno::EXIST) => Ok(Made::Found),
                            Err(errno) => Err(errno),
                        },
                    )
                    .and_then(|made| dirs.get(index).map(|_| made))
            };
            match outcome {
                Ok(how) => {
                    if how == Made::New {
                        self.tell_dir(index);
                    }
                    report.directories += 1;
                    if let Some(slot) = made.get_mut(index as usize) {
                        *slot = how;
                    }
                }
                Err(errno) => self.dir_problem(report, index, "create the directory", errno),
            }
        }
        made
    }

    /// Makes all files, by all threads. Returns the places of those that were not made.
    fn files(&self, report: &mut Report, made: &[Made]) -> HashSet<Place> {
        let next = Mutex::new(&QUEUE, 0usize);
        let at_once = if ops::in_flight(self.fs.fs()) > 1 {
            let share = self.plan.items.len() / (2 * self.threads);
            share.clamp(TAKEN_AT_ONCE, MOST_TAKEN_FAR)
        } else {
            TAKEN_AT_ONCE
        };
        let take = || {
            let mut next = next.lock();
            let start = *next;
            let is_large = self.plan.items.get(start).is_some_and(Item::is_large);
            let count = if is_large { TAKEN_AT_ONCE } else { at_once };
            *next = self.plan.items.len().min(start + count);
            self.plan.items.get(start..*next).unwrap_or(&[])
        };
        let work = || {
            let mut maker = self.maker();
            let mut dirs = self.open_dirs();
            let mut failed = Vec::new();
            loop {
                let items = take();
                if items.is_empty() || self.stop.load(Ordering::Relaxed) {
                    return (maker.report, failed);
                }
                self.some_files(&mut maker, &mut dirs, items, made, &mut failed);
            }
        };
        let mut all_failed = HashSet::new();
        let mut finished = |(part, failed): (Report, Vec<Place>)| {
            report.add(part);
            all_failed.extend(failed);
        };
        if self.threads == 1 {
            finished(work());
            return all_failed;
        }
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                match worker.join() {
                    Ok(part) => finished(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        all_failed
    }

    fn some_files(
        &self,
        maker: &mut Maker<'_>,
        dirs: &mut OpenDirs<'_>,
        items: &[Item],
        made: &[Made],
        failed: &mut Vec<Place>,
    ) {
        let mut bytes = 0;
        let mut rest = items;
        while !rest.is_empty() {
            let (now, after) = rest.split_at(maker.read_ahead(rest));
            for item in now {
                if made.get(item.place.dir as usize) == Some(&Made::Not) {
                    failed.push(item.place);
                    continue;
                }
                match maker.item(dirs, item) {
                    Ok(Some(written)) => {
                        self.tell(item.place);
                        bytes += written;
                    }
                    // Other names of it are files of their own.
                    Ok(None) if maker.existing == Existing::Keep => failed.push(item.place),
                    Ok(None) => {}
                    Err(failure) => {
                        if failure.is_final() {
                            self.stop.store(true, Ordering::Relaxed);
                        }
                        maker.problem(item.place, failure);
                        failed.push(item.place);
                    }
                }
            }
            rest = after;
        }
        self.progress(Progress::Done {
            files: items.len() as u64,
            bytes,
        });
    }

    /// Gives files their further names. Where the first name was not made, or takes no more links,
    /// the next one becomes a file of its own, which those behind it are linked to.
    fn links(&self, report: &mut Report, made: &[Made], failed: &HashSet<Place>) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let mut maker = self.maker();
        let mut dirs = self.open_dirs();
        let mut instead: HashMap<Place, Place> = HashMap::new();
        for link in &self.plan.links {
            if made.get(link.place.dir as usize) == Some(&Made::Not) {
                continue;
            }
            let target = match instead.get(&link.target) {
                Some(&other) => Some(other),
                None => (!failed.contains(&link.target)).then_some(link.target),
            };
            match maker.stays(&mut dirs, link.place, link.ino) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(failure) => {
                    maker.problem(link.place, failure);
                    continue;
                }
            }
            let linked = self.link(&mut maker, &mut dirs, link, target);
            if linked.is_ok() {
                self.tell(link.place);
            }
            match linked {
                Ok(true) => maker.report.hard_links += 1,
                Ok(false) => {
                    instead.insert(link.target, link.place);
                }
                Err(failure) => {
                    let stop = failure.is_final();
                    maker.problem(link.place, failure);
                    if stop {
                        self.stop.store(true, Ordering::Relaxed);
                        break;
                    }
                }
            }
        }
        report.add(maker.report);
        self.progress(Progress::Done {
            files: self.plan.links.len() as u64,
            bytes: 0,
        });
    }

    /// Gives the file at `target` one more name, or makes it anew under that name. Whether it is a
    /// link.
    fn link(
        &self,
        maker: &mut Maker<'_>,
        dirs: &mut OpenDirs<'_>,
        link: &Link,
        target: Option<Place>,
    ) -> std::result::Result<bool, Failure> {
        let mut missing = Vec::new();
        if let Some(target) = target {
            let open = host("open the directory of");
            let from = dirs.get(target.dir).map_err(&open)?;
            // Its directory may be closed to make room for the other one.
            let from = from.try_clone_to_owned().map_err(|_| open(Errno::MFILE))?;
            let old = self.plan.name(target.name);
            let to = dirs.get(link.place.dir).map_err(&open)?;
            let new = self.plan.name(link.place.name);
            let create = |new: &[u8]| extant_host::linkat(&from, old, to, new);
            match put(to, new, "create the hard link", create, |(), _| Ok(())) {
                Ok(()) => return Ok(true),
                // The file has too many, or the file system knows none.
                Err(Failure::Host(_, errno @ (Errno::MLINK | Errno::PERM | Errno::NOTSUP))) => {
                    missing.push(Missing::new(Attribute::HardLink, errno));
                }
                Err(failure) => return Err(failure),
            }
        }
        maker.file(dirs, link.place, link.ino, missing)?;
        Ok(false)
    }

    /// Gives directories what they had, children before parents.
    fn directory_attributes(&self, report: &mut Report, made: &[Made]) {
        let mut maker = self.maker();
        let mut dirs = self.open_dirs();
        for (index, made) in made.iter().enumerate().rev() {
            if maker.is_far && (index + 1).is_multiple_of(DIRECTORIES_AT_ONCE)
                || index + 1 == self.plan.dirs.len()
            {
                self.read_directories_ahead(&maker, index);
            }
            let index = index as u32;
            let Some(ino) = self.plan.dir(index).ino else {
                continue;
            };
            if *made == Made::Not {
                continue;
            }
            let is_new = *made == Made::New;
            match self.one_directory(&mut maker, &mut dirs, index, ino, is_new) {
                Ok(()) => {}
                Err(Failure::Host(action, errno)) => {
                    self.dir_problem(report, index, action, errno);
                }
                Err(Failure::Image(cause)) => {
                    report.problem(Error::new(self.plan.dir_image_path(index), cause));
                }
            }
        }
        report.add(maker.report);
        self.progress(Progress::Done {
            files: self.plan.dirs.len() as u64,
            bytes: 0,
        });
    }

    /// Brings what the attributes of directories take into memory, of those before and at `last`.
    fn read_directories_ahead(&self, maker: &Maker<'_>, last: usize) {
        if !maker.is_far {
            return;
        }
        let first = (last + 1).saturating_sub(DIRECTORIES_AT_ONCE);
        let some = self.plan.dirs.get(first..=last).unwrap_or(&[]);
        let inos: Vec<_> = some.iter().filter_map(|dir| dir.ino).collect();
        ops::inodes_ahead(maker.fs, &inos);
        let load = |ino: &Ino| maker.fs.inode(*ino).ok();
        let inodes: Vec<_> = inos.iter().filter_map(load).collect();
        ops::content_ahead(maker.fs, inodes.iter(), Ahead::Attributes);
    }

    fn one_directory(
        &self,
        maker: &mut Maker<'_>,
        dirs: &mut OpenDirs<'_>,
        index: u32,
        ino: Ino,
        is_new: bool,
    ) -> std::result::Result<(), Failure> {
        let inode = self.fs.fs().inode(ino)?;
        let open = host("open the directory");
        let dir = self.plan.dir(index);
        let opened;
        let fd = if index == ROOT {
            self.root.as_fd()
        } else {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let parent = dirs.get(dir.parent).map_err(&open)?;
            let name = self.plan.name(dir.name);
            opened = extant_host::openat(parent, name, flags, Mode::empty()).map_err(&open)?;
            opened.as_fd()
        };
        let mut missing = Vec::new();
        maker.attributes(Host::Open(fd), &inode, is_new, &mut missing);
        maker.lacks(|plan| plan.dir_image_path(index), missing);
        Ok(())
    }
}
