//! `extant recover`.
//!
//! # Invariants
//! - Nothing that exists on the host is overwritten, and no symbolic link is followed below the
//!   directory that was named: names come out of an image that may be damaged.
//! - What is made are files, directories and symbolic links, without set-ID bits.

use super::deleted::{Line, is_below};
use super::rescue;
use crate::args::{Recover, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{shown, whole_image};
use crate::output::Output;
use crate::record::lossless;
use extant::Escaped;
use extant_format::Ino;
use extant_format::inode::FileType;
use extant_image::ImageLocation;
use extant_rescue::{DeletedFile, Rescue, Verdict};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Longest target of a symbolic link.
const MOST_TARGET: u64 = 4096;

pub(super) fn run(args: &Recover, location: &Whereabouts) -> Outcome {
    let image = whole_image(&args.image)?;
    let wanted: Vec<Wanted> = args
        .what
        .iter()
        .map(|what| Wanted::parse(what))
        .collect::<Outcome<_>>()?;
    let opened = rescue::open(&image, location)?;
    let found = opened.deleted().map_err(|e| rescue::named(&image, e))?;
    if let Some(why) = found.unproven {
        say(format_args!(
            "warning: {}: nothing is sure: {why}",
            shown(&image)
        ));
    }
    let mut failed = false;
    for wanted in &wanted {
        if !found.files.iter().any(|file| wanted.is(file)) {
            say(format_args!(
                "{}: no deleted file {wanted} is found",
                shown(&image)
            ));
            failed = true;
        }
    }
    let mut files: Vec<&DeletedFile> = found
        .files
        .iter()
        .filter(|file| args.all || wanted.iter().any(|wanted| wanted.is(file)))
        .collect();
    // The surest and latest of those with one name gets it; links come last, so that nothing is
    // looked for behind them.
    files.sort_by_key(|file| {
        let is_link = file.file_type == Some(FileType::Symlink);
        (is_link, file.verdict, std::cmp::Reverse(file.deleted))
    });
    let root = make_root(&args.dir)?;
    let mut work = Work {
        args,
        image: &image,
        opened: &opened,
        root,
        made: HashSet::new(),
        output: Output::new(),
        sums: Sums::default(),
    };
    for file in files {
        failed |= !work.file(file)?;
    }
    let Work {
        mut output, sums, ..
    } = work;
    if args.json {
        output.json_line(&sums)?;
    } else {
        writeln!(
            output,
            "{} brought back: {} whole, {} likely, {} in part, {} directories; {} left out",
            sums.whole + sums.likely + sums.partly + sums.directories,
            sums.whole,
            sums.likely,
            sums.partly,
            sums.directories,
            sums.left_out
        )?;
    }
    output.finish()?;
    if failed { Err(Failure::Said) } else { Ok(()) }
}

/// What is asked for.
enum Wanted {
    Number(Ino),
    Path(Vec<u8>),
}

impl Wanted {
    fn parse(text: &OsStr) -> Outcome<Self> {
        let bytes = text.as_bytes();
        if let Some(number) = text.to_str().and_then(|text| text.parse().ok()) {
            return Ok(Self::Number(Ino::new(number)));
        }
        if bytes.starts_with(b"/") {
            return Ok(Self::Path(bytes.to_vec()));
        }
        Err(Failure::usage(format!(
            "{} is neither the number of an inode nor a path: paths begin with /",
            Escaped(bytes)
        )))
    }

    fn is(&self, file: &DeletedFile) -> bool {
        match self {
            Self::Number(ino) => file.ino == *ino,
            Self::Path(path) => is_below(file, path),
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(ino) => write!(f, "of inode {}", ino.get()),
            Self::Path(path) => write!(f, "{}", Escaped(path)),
        }
    }
}

#[derive(Default, Serialize)]
struct Sums {
    whole: u64,
    likely: u64,
    partly: u64,
    /// A directory is its names: nothing of its content can be missing.
    directories: u64,
    left_out: u64,
}

/// A file that was brought back or left out, for programs.
#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    file: Line,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
}

struct Work<'a> {
    args: &'a Recover,
    image: &'a ImageLocation,
    opened: &'a Rescue,
    root: OwnedFd,
    /// What was made in this run.
    made: HashSet<Vec<u8>>,
    output: Output,
    sums: Sums,
}

impl Work<'_> {
    /// Brings a file back, or tells why not; whether nothing that was asked for was left out.
    fn file(&mut self, file: &DeletedFile) -> Outcome<bool> {
        let left_out = match self.why_not(file) {
            Some(why) => Some((why.to_owned(), self.args.all)),
            None => match self.bring(file) {
                Ok(to) => {
                    self.count(file);
                    self.tell(file, Some(&to), None)?;
                    None
                }
                Err(why) => Some((why, false)),
            },
        };
        let Some((why, is_expected)) = left_out else {
            return Ok(true);
        };
        self.sums.left_out += 1;
        self.tell(file, None, Some(&why))?;
        if !is_expected {
            let name = file
                .names
                .first()
                .map(|name| Escaped(&name.path).to_string());
            let name = name.unwrap_or_else(|| format!("inode {}", file.ino.get()));
            say(format_args!("{}:{name}: {why}", shown(self.image)));
        }
        Ok(is_expected)
    }

    /// Why a file is left out.
    fn why_not(&self, file: &DeletedFile) -> Option<&'static str> {
        match file.file_type {
            // A directory is its names, which are brought back one by one.
            Some(FileType::Directory) => return None,
            Some(FileType::Regular | FileType::Symlink) => {}
            None => return Some(file.why),
            Some(_) => return Some("devices, pipes and sockets are not made"),
        }
        if file.is_encrypted {
            return Some("its content is encrypted, and says nothing without the key");
        }
        match file.verdict {
            Verdict::Whole => None,
            Verdict::Likely if self.args.sure => Some(file.why),
            Verdict::Likely => None,
            Verdict::Partly if self.args.partial && file.file_type == Some(FileType::Regular) => {
                None
            }
            _ => Some(file.why),
        }
    }

    fn count(&mut self, file: &DeletedFile) {
        if file.file_type == Some(FileType::Directory) {
            self.sums.directories += 1;
            return;
        }
        match file.verdict {
            Verdict::Whole => self.sums.whole += 1,
            Verdict::Likely => self.sums.likely += 1,
            _ => self.sums.partly += 1,
        }
    }

    fn tell(&mut self, file: &DeletedFile, to: Option<&[u8]>, why: Option<&str>) -> io::Result<()> {
        let made_at = |to: &[u8]| {
            let path = self.args.dir.join(OsStr::from_bytes(to));
            lossless(path.as_os_str().as_bytes())
        };
        if self.args.json {
            let (to, to_hex) = to.map(made_at).unzip();
            return self.output.json_line(&Done {
                file: Line::of(file),
                to,
                to_hex: to_hex.flatten(),
                left_out: why.map(str::to_owned),
            });
        }
        let Some(to) = to else { return Ok(()) };
        write!(self.output, "{:<9} ", file.verdict.name())?;
        let path = self.args.dir.join(OsStr::from_bytes(to));
        self.output.name_line(path.as_os_str().as_bytes())
    }

    /// Makes the file on the host; returns its path below the directory.
    fn bring(&mut self, file: &DeletedFile) -> Result<Vec<u8>, String> {
        let unnamed = format!("inode-{}-{:08x}", file.ino.get(), file.generation);
        let mut path = match file.names.first() {
            Some(name) => name.path.strip_prefix(b"/").unwrap_or(&name.path).to_vec(),
            None => unnamed.clone().into_bytes(),
        };
        let is_directory = file.file_type == Some(FileType::Directory);
        if file.verdict == Verdict::Partly && !is_directory {
            path.extend_from_slice(b".partial");
        }
        if self.made.contains(&path) && !is_directory {
            path.push(b'.');
            path.extend_from_slice(unnamed.as_bytes());
        }
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], &path[..]),
        };
        check_name(name)?;
        let parent = self.directory(above)?;
        let name = OsStr::from_bytes(name);
        match file.file_type {
            Some(FileType::Directory) => drop(below(&parent, name)?),
            Some(FileType::Symlink) => self.link(file, &parent, name)?,
            _ => self.regular(file, &parent, name)?,
        }
        self.made.insert(path.clone());
        Ok(path)
    }

    /// Opens a directory below the one that was named, and makes it where it does not exist.
    fn directory(&self, path: &[u8]) -> Result<OwnedFd, String> {
        let mut at = self.root.try_clone().map_err(|e| e.to_string())?;
        for part in path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            at = below(&at, OsStr::from_bytes(part))?;
        }
        Ok(at)
    }

    fn link(&self, file: &DeletedFile, parent: &OwnedFd, name: &OsStr) -> Result<(), String> {
        if file.size == 0 || file.size >= MOST_TARGET {
            return Err("the target of the link cannot be".to_owned());
        }
        let mut target = Vec::new();
        let mut take = |_: u64, bytes: &[u8]| {
            target.extend_from_slice(bytes);
            Ok::<(), Failing>(())
        };
        self.opened.read(file, &mut take).map_err(|e| e.0)?;
        if target.len() as u64 != file.size || target.contains(&0) {
            return Err("the target of the link cannot be".to_owned());
        }
        rustix::fs::symlinkat(OsStr::from_bytes(&target), parent, name)
            .map_err(|e| cannot_make(name, e))
    }

    fn regular(&self, file: &DeletedFile, parent: &OwnedFd, name: &OsStr) -> Result<(), String> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| cannot_make(name, e))?;
        let made = File::from(made);
        let filled = self.fill(file, &made);
        if filled.is_err() {
            // Half a file would be taken for one.
            let _ = rustix::fs::unlinkat(parent, name, AtFlags::empty());
        }
        filled
    }

    fn fill(&self, file: &DeletedFile, made: &File) -> Result<(), String> {
        made.set_len(file.size)
            .map_err(|e| format!("a file of {} bytes cannot be made: {e}", file.size))?;
        let mut put =
            |at: u64, bytes: &[u8]| made.write_all_at(bytes, at).map_err(Failing::of_host);
        self.opened.read(file, &mut put).map_err(|e| e.0)?;
        let permissions = Permissions::from_mode(u32::from(file.permissions) & 0o777);
        let done = made.set_permissions(permissions);
        let time = u64::try_from(file.mtime.secs).ok().and_then(|secs| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(secs, file.mtime.nanos))
        });
        let done = done.and_then(|()| match time {
            Some(time) => made.set_times(FileTimes::new().set_modified(time)),
            None => Ok(()),
        });
        done.map_err(|e| format!("what was brought back cannot be finished: {e}"))
    }
}

/// An error of reading or of the host, in words.
struct Failing(String);

impl Failing {
    fn of_host(e: io::Error) -> Self {
        Self(format!("what was brought back cannot be written: {e}"))
    }
}

impl From<extant_rescue::Error> for Failing {
    fn from(e: extant_rescue::Error) -> Self {
        Self(e.to_string())
    }
}

/// Makes and opens the directory that everything goes to.
fn make_root(dir: &Path) -> Outcome<OwnedFd> {
    let failed = |e: io::Error| Failure::new(format!("cannot make {}: {e}", Escaped::path(dir)));
    std::fs::create_dir_all(dir).map_err(failed)?;
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map_err(|e| failed(e.into()))
}

/// Refuses what is no single name: it leads elsewhere.
fn check_name(name: &[u8]) -> Result<(), String> {
    let leads_elsewhere = matches!(name, b"" | b"." | b"..");
    if leads_elsewhere || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(format!("{} cannot be the name of a file", Escaped(name)));
    }
    Ok(())
}

/// Opens a directory in another, and makes it where it does not exist. Links are not followed.
fn below(parent: &impl AsFd, name: &OsStr) -> Result<OwnedFd, String> {
    check_name(name.as_bytes())?;
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(cannot_make(name, e)),
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
        .map_err(|e| format!("{} is no directory: {e}", Escaped(name.as_bytes())))
}

fn cannot_make(name: &OsStr, e: Errno) -> String {
    let name = Escaped(name.as_bytes());
    if e == Errno::EXIST {
        format!("{name} exists already, and nothing is overwritten: name another directory with -d")
    } else {
        format!("{name} cannot be made: {}", io::Error::from(e))
    }
}
