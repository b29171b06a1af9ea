//! What is to be made, found by one walk and put in the order of the disk.
//!
//! Names lie in one buffer and items hold numbers, so that a million files cost tens of megabytes.
//! Depth has no limit: a directory is entered once, so there is an end to it.

use super::{ExportOptions, LeaveOut, Report};
use crate::path::LastLink;
use crate::read_dir::{Listing, is_sound_name, join};
use crate::scouts::Scouts;
use crate::{Cause, Error, FileType, Filesystem};
use extant_core::fs::Fs;
use extant_core::inode::Inode;
use extant_core::ops::{self, Ahead};
use extant_format::Ino;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory that everything goes into, which has no name of its own.
pub(super) const ROOT: u32 = 0;

/// A name in the plan's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    at: usize,
    len: u8,
}

/// A directory to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir {
    pub(super) parent: u32,
    pub(super) name: Name,
    /// The directory in the image; `None` for a destination that stands for none.
    pub(super) ino: Option<Ino>,
    /// Directories between the root and this one.
    depth: u32,
}

/// A place for a file: a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) dir: u32,
    pub(super) name: Name,
}

/// A file to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) place: Place,
    pub(super) ino: Ino,
    /// Where its content begins on the device.
    position: u64,
}

impl Item {
    /// Whether it is one of the files that come first.
    pub(super) fn is_large(&self) -> bool {
        self.position & NOT_LARGE == 0
    }
}

/// Another name for a file that is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) place: Place,
    pub(super) ino: Ino,
    pub(super) target: Place,
}

/// A file that has a name elsewhere, which stays: it gets one more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elsewhere {
    pub(super) place: Place,
    pub(super) ino: Ino,
}

/// Something that is made under a number, to be put in its place later, with all that is below it.
pub(crate) struct Top {
    /// The path of its place, from the start of the plan on.
    pub(crate) below: Vec<u8>,
    pub(crate) inode: Arc<Inode>,
}

impl Top {
    pub(crate) fn is_dir(&self) -> bool {
        self.inode.is_dir()
    }
}

/// Everything to be made. In `dirs` a directory comes before all that are below it, and those come
/// before what is beside it: a walk through them in this order, or against it, goes from one to the
/// next in few steps.
#[derive(Debug)]
pub(super) struct Plan {
    /// Path of the root in the image, for messages.
    path: PathBuf,
    names: Vec<u8>,
    pub(super) dirs: Vec<Dir>,
    /// Large files first, each part in the order of the device; at last what lies deep, directory
    /// by directory.
    pub(super) items: Vec<Item>,
    pub(super) links: Vec<Link>,
    pub(super) elsewhere: Vec<Elsewhere>,
    /// The places of what is made under numbers, if this is such a plan.
    tops: Vec<Vec<u8>>,
    /// Bytes of content, as the sizes say.
    pub(super) bytes: u64,
}

/// Files from this size on are started first, so that no thread is left with one at the end.
const LARGE: u64 = 8 << 20;
/// Where links are followed, names for each inode of the image at most: links to directories with
/// links to directories can lead to more than any memory holds.
const MOST_TIMES: u64 = 4;
/// Added to the position of files that are not large.
const NOT_LARGE: u64 = 1 << 63;
/// Directories nested deeper than this are far from each other, whatever the order of their files
/// on the device.
const DEEP: u32 = 64;
/// Added to the number of the directory, as the position of files that lie deep.
const LIES_DEEP: u64 = NOT_LARGE | 1 << 62;

impl Plan {
    /// The plan for what is below a directory.
    pub(super) fn of_directory(
        whole: &Filesystem,
        path: &Path,
        root: &Inode,
        options: &ExportOptions<'_>,
        report: &mut Report,
    ) -> Self {
        let fs = whole.fs();
        let mut plan = Self::empty(path, Some(root.ino()));
        let mut scan = Scan {
            scouts: Scouts::start(fs, root.ino(), Ahead::Maps),
            entered: HashSet::from([root.ino()]),
            ..Scan::new(whole, options)
        };
        // Directories to be listed, the next one last.
        let mut rest = Vec::new();
        scan.list(&mut plan, ROOT, &mut rest, report);
        scan.list_all(&mut plan, &mut rest, report);
        plan.items.sort_unstable_by_key(|item| item.position);
        plan
    }

    /// The plan for files and directories at paths below `path`, each under its number. Those whose
    /// inodes are in `stays` have names that stay.
    pub(super) fn of_tops(
        whole: &Filesystem,
        path: &Path,
        tops: &[Top],
        stays: &HashMap<Ino, Vec<u8>>,
        options: &ExportOptions<'_>,
        report: &mut Report,
    ) -> Self {
        let mut plan = Self::empty(path, None);
        plan.tops = tops.iter().map(|top| top.below.clone()).collect();
        let mut scan = Scan {
            stays: Some(stays),
            ..Scan::new(whole, options)
        };
        let mut rest = Vec::new();
        for (number, top) in tops.iter().enumerate() {
            let name = number.to_string().into_bytes();
            let taken = scan.take(&mut plan, &mut rest, (ROOT, 0), &name, &top.inode);
            if let Err(cause) = taken {
                let path = join(&plan.path, &top.below);
                report.problem(Error::new(path, cause));
            }
            scan.list_all(&mut plan, &mut rest, report);
        }
        plan.items.sort_unstable_by_key(|item| item.position);
        plan
    }

    /// A plan in which nothing is to be made.
    pub(super) fn of_nothing(path: &Path) -> Self {
        Self::empty(path, None)
    }

    /// The plan for one file that is no directory, under `name`.
    pub(super) fn of_file(path: &Path, inode: &Arc<Inode>, name: &[u8]) -> Self {
        let mut plan = Self::empty(path, None);
        let name = plan.keep(name);
        plan.items.push(Item {
            place: Place { dir: ROOT, name },
            ino: inode.ino(),
            position: 0,
        });
        plan.bytes = content_size(inode);
        plan
    }

    fn empty(path: &Path, ino: Option<Ino>) -> Self {
        let root = Dir {
            parent: ROOT,
            name: Name { at: 0, len: 0 },
            ino,
            depth: 0,
        };
        Self {
            path: path.to_owned(),
            names: Vec::new(),
            dirs: vec![root],
            items: Vec::new(),
            links: Vec::new(),
            elsewhere: Vec::new(),
            tops: Vec::new(),
            bytes: 0,
        }
    }

    fn keep(&mut self, name: &[u8]) -> Name {
        let at = self.names.len();
        self.names.extend_from_slice(name);
        // The engine gives 1 to 255 bytes; destinations are checked by the system.
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        Name { at, len }
    }

    pub(super) fn name(&self, name: Name) -> &[u8] {
        self.names
            .get(name.at..name.at + usize::from(name.len))
            .unwrap_or(&[])
    }

    pub(super) fn dir(&self, index: u32) -> &Dir {
        // Indexes come from this plan, whose first directory is always there.
        self.dirs.get(index as usize).unwrap_or(&self.dirs[0])
    }

    /// Path below the destination, for messages.
    pub(super) fn below(&self, place: Place) -> PathBuf {
        let name = self.name(place.name);
        if place.dir == ROOT {
            return PathBuf::from(OsString::from_vec(self.top(name).to_vec()));
        }
        let mut bytes = self.dir_below(place.dir).into_os_string().into_vec();
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        PathBuf::from(OsString::from_vec(bytes))
    }

    /// Path of a directory below the destination, for messages.
    pub(super) fn dir_below(&self, index: u32) -> PathBuf {
        let mut names = Vec::new();
        let mut at = index;
        while at != ROOT {
            let dir = self.dir(at);
            names.push(self.name(dir.name));
            at = dir.parent;
        }
        names.reverse();
        if let Some(first) = names.first_mut() {
            *first = self.top(first);
        }
        PathBuf::from(OsString::from_vec(names.join(&b'/')))
    }

    /// What a name in the root stands for.
    fn top<'a>(&'a self, name: &'a [u8]) -> &'a [u8] {
        let number = std::str::from_utf8(name).ok();
        let number = number.and_then(|name| name.parse::<usize>().ok());
        let top = number.and_then(|number| self.tops.get(number));
        top.map_or(name, Vec::as_slice)
    }

    /// Path in the image, for messages.
    pub(super) fn image_path(&self, place: Place) -> PathBuf {
        if self.dir(ROOT).ino.is_none() && self.tops.is_empty() {
            return self.path.clone();
        }
        join(
            &self.path,
            self.below(place).into_os_string().as_encoded_bytes(),
        )
    }

    /// Path of a directory in the image, for messages.
    pub(super) fn dir_image_path(&self, index: u32) -> PathBuf {
        if index == ROOT {
            return self.path.clone();
        }
        let below = self.dir_below(index);
        join(&self.path, below.into_os_string().as_encoded_bytes())
    }

    /// Files, links and directories to be made.
    pub(super) fn count(&self) -> u64 {
        let Self {
            dirs,
            items,
            links,
            elsewhere,
            ..
        } = self;
        (dirs.len() + items.len() + links.len() + elsewhere.len()) as u64
    }
}

struct Scan<'a> {
    fs: &'a Fs,
    scouts: Option<Scouts>,
    /// Directories that were come to; not asked where links are followed, as one may then be below
    /// several others.
    entered: HashSet<Ino>,
    /// First place of each file with several names, if links are kept.
    linked: Option<HashMap<Ino, Place>>,
    leave_out: Option<&'a LeaveOut<'a>>,
    /// The file system, if symbolic links are followed.
    follow: Option<&'a Filesystem>,
    /// Files with names that stay.
    stays: Option<&'a HashMap<Ino, Vec<u8>>>,
}

impl<'a> Scan<'a> {
    fn new(whole: &'a Filesystem, options: &'a ExportOptions<'_>) -> Self {
        Self {
            fs: whole.fs(),
            scouts: None,
            entered: HashSet::new(),
            linked: options.preserve.links.then(HashMap::new),
            leave_out: options.leave_out,
            follow: options.follow.then_some(whole),
            stays: None,
        }
    }

    /// Lists directories until none is left.
    fn list_all(&mut self, plan: &mut Plan, rest: &mut Vec<Dir>, report: &mut Report) {
        while let Some(dir) = rest.pop() {
            let index = plan.dirs.len() as u32;
            plan.dirs.push(dir);
            self.list(plan, index, rest, report);
        }
    }

    /// Takes the entries of directory `index` into the plan, and the directories among them into
    /// `rest`.
    fn list(&mut self, plan: &mut Plan, index: u32, rest: &mut Vec<Dir>, report: &mut Report) {
        let Dir { ino, depth, .. } = *plan.dir(index);
        let Some(ino) = ino else { return };
        let path = |plan: &Plan| plan.dir_image_path(index);
        let found_before = rest.len();
        let listing = match self.fs.inode(ino) {
            Ok(inode) => {
                let (listing, outcome) = Listing::read(self.fs, &inode);
                if let Err(e) = outcome {
                    report.problem(Error::engine(path(plan), e));
                }
                listing
            }
            Err(e) => return report.problem(Error::engine(path(plan), e)),
        };
        if let Some(scouts) = &self.scouts {
            scouts.passed(listing.len());
        }
        let mut before: &[u8] = b"";
        for (name, ino) in listing.iter() {
            if self.is_endless(plan) {
                let cause = Cause::NotKept(
                    "symbolic links lead to several times as many files as the image has, and these \
                     are left out from here on",
                );
                rest.clear();
                return report.problem(Error::new(join(&path(plan), name), cause));
            }
            let entry = if !is_sound_name(name) {
                Err(Cause::BadName)
            } else if name == before {
                Err(Cause::NameTwice)
            } else {
                self.entry(plan, rest, (index, depth), name, ino)
            };
            before = name;
            if let Err(cause) = entry {
                report.problem(Error::new(join(&path(plan), name), cause));
            }
        }
        // In the order of names, as they are taken from the end.
        if let Some(found) = rest.get_mut(found_before..) {
            found.reverse();
        }
    }

    fn entry(
        &mut self,
        plan: &mut Plan,
        rest: &mut Vec<Dir>,
        (dir, depth): (u32, u32),
        name: &[u8],
        ino: Ino,
    ) -> Result<(), Cause> {
        let mut inode = self.fs.named_inode(ino).map_err(Cause::engine)?;
        if let Some(fs) = self.follow
            && inode.file_type() == FileType::Symlink
        {
            let path = join(&plan.dir_image_path(dir), name);
            let led_to = fs.inode(&path, LastLink::Follow);
            inode = led_to.map_err(Error::into_cause)?;
        }
        if self.is_left_out(plan, dir, name, inode.is_dir()) {
            return Ok(());
        }
        self.take(plan, rest, (dir, depth), name, &inode)
    }

    /// Takes an inode into the plan, under a name.
    fn take(
        &mut self,
        plan: &mut Plan,
        rest: &mut Vec<Dir>,
        (dir, depth): (u32, u32),
        name: &[u8],
        inode: &Arc<Inode>,
    ) -> Result<(), Cause> {
        let ino = inode.ino();
        if inode.is_dir() {
            self.enter(plan, dir, ino)?;
            let name = plan.keep(name);
            rest.push(Dir {
                parent: dir,
                name,
                ino: Some(ino),
                depth: depth + 1,
            });
            return Ok(());
        }
        let place = Place {
            dir,
            name: plan.keep(name),
        };
        if inode.disk().links > 1 && self.stays.is_some_and(|stays| stays.contains_key(&ino)) {
            plan.elsewhere.push(Elsewhere { place, ino });
            return Ok(());
        }
        // What links lead to has their names, too.
        if (inode.disk().links > 1 || self.follow.is_some())
            && let Some(linked) = &mut self.linked
        {
            if let Some(&target) = linked.get(&ino) {
                plan.links.push(Link { place, ino, target });
                return Ok(());
            }
            linked.insert(ino, place);
        }
        plan.bytes = plan.bytes.saturating_add(content_size(inode));
        plan.items.push(Item {
            place,
            ino,
            position: if depth > DEEP {
                LIES_DEEP | u64::from(dir)
            } else {
                position(self.fs, inode)
            },
        });
        Ok(())
    }
}

impl Scan<'_> {
    fn is_left_out(&self, plan: &Plan, dir: u32, name: &[u8], is_dir: bool) -> bool {
        let Some(leave_out) = self.leave_out else {
            return false;
        };
        let below = plan.dir_below(dir);
        let above = below
            .as_os_str()
            .as_encoded_bytes()
            .split(|byte| *byte == b'/');
        let mut names: Vec<&[u8]> = above.filter(|name| !name.is_empty()).collect();
        names.push(name);
        leave_out(&names, is_dir)
    }

    /// Whether links lead to so much that there may be no end to it. An image has so many inodes.
    fn is_endless(&self, plan: &Plan) -> bool {
        let most = u64::from(self.fs.geometry().inodes_count()).saturating_mul(MOST_TIMES);
        self.follow.is_some() && plan.count() > most
    }

    /// Refuses to go into a directory for ever.
    fn enter(&mut self, plan: &Plan, parent: u32, ino: Ino) -> Result<(), Cause> {
        if self.follow.is_none() {
            let is_new = self.entered.insert(ino);
            return is_new.then_some(()).ok_or(Cause::DirectoryTwice);
        }
        let mut at = parent;
        loop {
            let above = plan.dir(at);
            if above.ino == Some(ino) {
                return Err(Cause::NotKept(
                    "a symbolic link leads to a directory that it is in, and is not followed",
                ));
            }
            if at == ROOT {
                break;
            }
            at = above.parent;
        }
        Ok(())
    }
}

/// Bytes to be copied, as far as the inode says: of a sparse file what it is charged for.
fn content_size(inode: &Arc<Inode>) -> u64 {
    if inode.file_type() == FileType::Regular {
        inode.size().min(inode.disk().blocks.saturating_mul(512))
    } else {
        0
    }
}

/// Where the work on a file comes in the order of all files.
fn position(fs: &Fs, inode: &Inode) -> u64 {
    if inode.file_type() != FileType::Regular {
        return NOT_LARGE;
    }
    let first = ops::extents(fs, inode).next();
    // A broken map is reported when the file is read.
    let start = first.and_then(Result::ok).and_then(|e| e.device_offset);
    let start = start.unwrap_or(0).min((1 << 62) - 1);
    if inode.size() >= LARGE {
        start
    } else {
        start | NOT_LARGE
    }
}
