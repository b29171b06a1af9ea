//! Making files of an image under numbers in a directory of their own, to be put in their places
//! later; and giving files that are there what those of an image have besides content.

use super::attributes::Host;
use super::create::{Failure, Maker, host};
use super::directory::{Export, Made, threads};
use super::missing::{Attribute, Missing};
use super::plan::{Elsewhere, Plan, Top};
use super::target::{OpenDirs, open_below};
use super::{ExportOptions, Report};
use crate::{Error, FileType, Filesystem};
use extant_core::inode::Inode;
use extant_core::ops;
use extant_format::Ino;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where files of an image go, and as what.
pub(crate) struct Staging<'a> {
    pub(crate) fs: &'a Filesystem,
    /// The directory of the image from which paths go on.
    pub(crate) start: &'a Path,
    /// The directory of the host that stands for it.
    pub(crate) root: &'a OwnedFd,
    /// Its path, for messages.
    pub(crate) dest: &'a Path,
    pub(crate) options: &'a ExportOptions<'a>,
}

/// A file that is there, and gets what one of an image has besides content.
pub(crate) struct Described {
    /// The path below the directory that stands for the image's.
    pub(crate) below: Vec<u8>,
    pub(crate) inode: Arc<Inode>,
    /// Attributes that it has and the image's has not.
    pub(crate) gone: Vec<Vec<u8>>,
}

/// What is to be made, with what is known of it beforehand.
pub(crate) struct ToMake(Plan);

impl ToMake {
    /// Files, links and directories.
    pub(crate) fn count(&self) -> u64 {
        // But for the directory that all of it goes into.
        self.0.count().saturating_sub(1)
    }

    /// Bytes of content, as sizes say.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Staging<'_> {
    /// Finds out what making `tops` takes, with all that is below them. Inodes in `stays` have
    /// names below the root that stay, and get others.
    pub(crate) fn plan(
        &self,
        tops: &[Top],
        stays: &HashMap<Ino, Vec<u8>>,
        report: &mut Report,
    ) -> ToMake {
        let (fs, start) = (self.fs, self.start);
        ToMake(Plan::of_tops(fs, start, tops, stays, self.options, report))
    }

    /// Makes all of a plan in `stage`. Whether that came to its end: it is given up where every
    /// further file would fail as well.
    pub(crate) fn make(
        &self,
        plan: &ToMake,
        stage: &OwnedFd,
        stays: &HashMap<Ino, Vec<u8>>,
        report: &mut Report,
    ) -> bool {
        let plan = &plan.0;
        let in_flight = ops::in_flight(self.fs.fs());
        let export = Export {
            fs: self.fs,
            plan,
            root: stage,
            dest: self.dest,
            options: self.options,
            threads: threads(self.options.threads, plan.items.len(), in_flight),
            stop: AtomicBool::new(false),
        };
        export.make_all(Made::Found, report);
        if !export.stop.load(Ordering::Relaxed) {
            let mut maker = export.maker();
            let mut dirs = export.open_dirs();
            for one in &plan.elsewhere {
                if let Err(failure) = self.link(&mut maker, &mut dirs, plan, one, stays) {
                    if failure.is_final() {
                        export.stop.store(true, Ordering::Relaxed);
                    }
                    maker.problem(one.place, failure);
                }
            }
            report.add(maker.report);
        }
        !export.stop.load(Ordering::Relaxed)
    }

    /// Gives a file that stays one more name in the stage, or makes it anew there where it takes
    /// none.
    fn link(
        &self,
        maker: &mut Maker<'_>,
        dirs: &mut OpenDirs<'_>,
        plan: &Plan,
        one: &Elsewhere,
        stays: &HashMap<Ino, Vec<u8>>,
    ) -> Result<(), Failure> {
        let open = host("open the directory of");
        let there = stays.get(&one.ino).map_or(&[][..], Vec::as_slice);
        let (parent, old) = split(there);
        let from = open_below(self.root, parent).map_err(&open)?;
        let to = dirs.get(one.place.dir).map_err(&open)?;
        match extant_host::linkat(&from, old, to, plan.name(one.place.name)) {
            Ok(()) => {
                maker.report.hard_links += 1;
                Ok(())
            }
            Err(errno @ (Errno::MLINK | Errno::PERM | Errno::NOTSUP | Errno::XDEV)) => {
                let missing = vec![Missing::new(Attribute::HardLink, errno)];
                maker.file(dirs, one.place, one.ino, missing).map(drop)
            }
            Err(errno) => Err(Failure::Host("create the hard link", errno)),
        }
    }

    /// Gives files that are there owner, attributes, mode and times.
    pub(crate) fn describe(&self, files: &[Described], report: &mut Report) {
        let plan = Plan::of_nothing(self.start);
        let export = Export {
            fs: self.fs,
            plan: &plan,
            root: self.root,
            dest: self.dest,
            options: self.options,
            threads: 1,
            stop: AtomicBool::new(false),
        };
        let mut maker = export.maker();
        for file in files {
            if let Err((action, errno)) = self.describe_one(&mut maker, file) {
                let path = self.dest.join(path_of(&file.below));
                maker.report.problem(Error::host(action, path, errno));
            }
        }
        report.add(maker.report);
    }

    fn describe_one(
        &self,
        maker: &mut Maker<'_>,
        file: &Described,
    ) -> Result<(), (&'static str, Errno)> {
        let (parent, name) = split(&file.below);
        let dir = open_below(self.root, parent).map_err(|e| ("open the directory of", e))?;
        let name = if name.is_empty() { b"." } else { name };
        // A link that came in its place is not followed.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match file.inode.file_type() {
            FileType::Regular | FileType::Directory => {
                match extant_host::openat(&dir, name, flags, Mode::empty()) {
                    Ok(opened) => Some(opened),
                    // It may be described, not read.
                    Err(Errno::ACCESS) => None,
                    Err(errno) => return Err(("open", errno)),
                }
            }
            _ => None,
        };
        let mut missing = Vec::new();
        take_xattrs(dir.as_fd(), name, opened.as_ref(), &file.gone, &mut missing);
        let host = match &opened {
            Some(opened) => Host::Open(opened.as_fd()),
            None => Host::Named(dir.as_fd(), name),
        };
        maker.attributes(host, &file.inode, false, &mut missing);
        let path = self.start.join(path_of(&file.below));
        maker.lacks(|_| path, missing);
        Ok(())
    }
}

/// Takes attributes away from a file.
fn take_xattrs(
    dir: BorrowedFd<'_>,
    name: &[u8],
    opened: Option<&OwnedFd>,
    gone: &[Vec<u8>],
    missing: &mut Vec<Missing>,
) {
    // Through the directory's link in /proc; the last name is not followed.
    let mut path = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    for attribute in gone {
        let taken = match opened {
            Some(opened) => extant_host::fremovexattr(opened, attribute),
            None => extant_host::lremovexattr(&path, attribute),
        };
        match taken {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(errno) => {
                let attribute = OsString::from_vec(attribute.clone());
                missing.push(Missing::new(Attribute::NoXattr(attribute), errno));
            }
        }
    }
}

/// The directory of a path, and its last name.
pub(crate) fn split(below: &[u8]) -> (&[u8], &[u8]) {
    match below.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&below[..at], &below[at + 1..]),
        None => (&[], below),
    }
}

/// A path of bytes.
pub(crate) fn path_of(below: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(below.to_vec()))
}
