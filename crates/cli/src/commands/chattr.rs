//! `extant chattr` and `extant lsattr`.

use crate::args::{Chattr, Lsattr, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::{Problems, change_each, change_tree};
use crate::operands::read_each;
use crate::output::Output;
use crate::path::follow;
use crate::verbose::Verbose;
use extant::{Escaped, FileFlags, FileType, Filesystem, Metadata};
use std::io::Write;
use std::path::Path;

/// What a mode of the command line does to flags, and which project is to pay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Change {
    set: FileFlags,
    clear: FileFlags,
    project: Option<u32>,
}

/// The flags that `=` speaks of.
const SETTABLE: &str = "suSDiadActTxPm";

impl Change {
    /// Parses `+LETTERS`, `-LETTERS` or `=LETTERS`.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no change of flags: write +LETTERS, -LETTERS or =LETTERS");
        let mut chars = text.chars();
        let how = chars.next().ok_or_else(wrong)?;
        let mut flags = FileFlags::empty();
        for letter in chars {
            flags |= FileFlags::of_letter(letter)
                .ok_or_else(|| format!("there is no file flag {letter:?}: see chattr(1)"))?;
        }
        let none = FileFlags::empty();
        let all = || {
            SETTABLE
                .chars()
                .filter_map(FileFlags::of_letter)
                .collect::<FileFlags>()
        };
        let (set, clear) = match how {
            '+' => (flags, none),
            '-' => (none, flags),
            '=' => (flags, all() & !flags),
            _ => return Err(wrong()),
        };
        Ok(Self {
            set,
            clear,
            project: None,
        })
    }

    fn make(self, fs: &Filesystem, path: &Path, found: &Metadata) -> extant::Result<()> {
        // What is not there need not go: the file system may not even know it.
        let there = FileFlags::from_bits_retain(found.flags());
        let (set, clear) = (self.set & !there, self.clear & there);
        let give = || {
            self.project
                .map_or(Ok(()), |project| fs.set_project(path, project))
        };
        if set.contains(FileFlags::IMMUTABLE) {
            give().and_then(|()| fs.set_flags(path, set, clear))
        } else {
            fs.set_flags(path, set, clear).and_then(|()| give())
        }
    }
}

pub(super) fn run(args: &Chattr, location: &Whereabouts) -> Outcome {
    let text = args.change.to_string_lossy();
    let (mut change, mut paths) = (Change::default(), args.paths.clone());
    if args.project.is_some() && !text.starts_with(['+', '-', '=']) {
        paths.insert(0, args.change.clone())
    } else {
        change = Change::parse(&text).map_err(Failure::usage)?
    }
    change.project = args.project;
    if paths.is_empty() {
        return Err(Failure::usage("name the files to change: IMAGE:/path"));
    }
    let verbose = Verbose::new(args.verbose);
    let done = change_each(&paths, location, |fs, at, problems| {
        let make = |path: &Path, found: &Metadata| {
            change.make(fs, path, found)?;
            if verbose.is_on() {
                let (image, shown_path) = (shown(&at.image), Escaped::path(path));
                let flags = fs.metadata(path)?.lsattr();
                verbose.tell(format_args!("flags of {image}:{shown_path}: {flags}"));
            }
            Ok(())
        };
        let found = fs.metadata(&at.path).map_err(|e| at.failure(&e))?;
        if args.recursive && found.is_dir() {
            return tree(fs, at, make, problems);
        }
        make(&at.path, &found).map_err(|e| at.failure(&e))
    });
    verbose.finish(done)
}

/// Everything at and below a directory but symbolic links.
fn tree(
    fs: &Filesystem,
    at: &ImagePath,
    make: impl Fn(&Path, &Metadata) -> extant::Result<()>,
    problems: &mut Problems,
) -> Outcome {
    let start = follow(fs, &at.path).map_err(|e| at.failure(&e))?;
    change_tree(fs, at, &start, problems, |entry| match entry.file_type() {
        FileType::Symlink => Ok(()),
        _ => make(entry.path(), &entry.metadata()),
    })
}

pub(super) fn list(args: &Lsattr, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let done = read_each(&args.paths, location, |fs, from| {
        let fail = |e: extant::Error| from.failure(&e);
        let path = follow(fs, &from.path).map_err(fail)?;
        let found = fs.metadata(&path).map_err(fail)?;
        if args.directory || !found.is_dir() {
            return Ok(line(&mut output, args, &path, &found)?);
        }
        let mut problems = Problems::default();
        let mut walk = fs.walk(&path).map_err(fail)?;
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    problems.note(fail(e));
                    continue;
                }
            };
            if entry.depth() == 1 && !args.recursive {
                walk.skip_children();
            }
            if entry.depth() > 0 && entry.file_type() != FileType::Symlink {
                line(&mut output, args, entry.path(), &entry.metadata())?;
            }
        }
        problems.outcome()
    });
    output.finish()?;
    done
}

fn line(output: &mut Output, args: &Lsattr, path: &Path, found: &Metadata) -> std::io::Result<()> {
    if args.project {
        write!(output, "{:>5} ", found.project().unwrap_or(0))?;
    }
    write!(output, "{} ", found.lsattr())?;
    output.name_line(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        let change = Change::parse("+ia").unwrap();
        assert_eq!(change.set, FileFlags::IMMUTABLE | FileFlags::APPEND);
        let change = Change::parse("=d").unwrap();
        assert!(change.clear.contains(FileFlags::IMMUTABLE));
        assert!(!change.clear.contains(FileFlags::EXTENTS));
        assert!(Change::parse("+?").is_err());
        assert!(Change::parse("ia").is_err());
    }
}
