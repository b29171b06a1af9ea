//! `extant ls`.

use super::manifest;
use crate::args::{Ls, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::operands::read_each;
use crate::output::Output;
use crate::record::{Record, mode_text};
use crate::size::short;
use crate::{glob, time};
use extant::{Cause, Filesystem, Ino, Metadata};
use extant_core::ops;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) fn run(args: &Ls, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let mut first = true;
    let is_pattern = |text: &OsString| {
        let place = ImagePath::parse(text);
        place.is_ok_and(|place| glob::is_pattern(place.path.as_os_str().as_bytes()))
    };
    let headings = args.paths.len() > 1 || args.paths.iter().any(is_pattern);
    if args.mtree && args.paths.len() > 1 {
        return Err(Failure::usage(
            "--mtree: one specification is of one directory",
        ));
    }
    let done = read_each(&args.paths, location, |fs, from| {
        if args.mtree {
            return manifest::write(fs, from, &mut output);
        }
        let mut listing = Listing {
            args,
            fs,
            from,
            output: &mut output,
            all_done: true,
            headings,
            first,
        };
        listing.start()?;
        first = false;
        if listing.all_done {
            Ok(())
        } else {
            Err(Failure::Said)
        }
    });
    output.finish()?;
    done
}

struct Listing<'a> {
    args: &'a Ls,
    fs: &'a Filesystem,
    from: &'a ImagePath,
    output: &'a mut Output,
    all_done: bool,
    /// Whether directories are announced by their paths.
    headings: bool,
    first: bool,
}

/// One line of a listing.
struct Row {
    /// What is shown.
    name: Vec<u8>,
    path: PathBuf,
    metadata: Metadata,
    target: Option<Vec<u8>>,
}

impl Listing<'_> {
    fn start(&mut self) -> Outcome {
        let path = &self.from.path;
        let fail = |e: extant::Error| self.from.failure(&e);
        let itself = self.fs.symlink_metadata(path).map_err(fail)?;
        // A symbolic link stands for its target, unless the long form shows where it leads.
        let shown = if itself.is_symlink() && !self.args.long && !self.args.json {
            self.fs.metadata(path).map_err(fail)?
        } else {
            itself
        };
        if !shown.is_dir() || self.args.directory {
            let row = self.row(path.as_os_str().as_bytes().to_vec(), path.clone(), shown);
            return self.print(vec![row]);
        }
        if !self.args.recursive {
            return self.directory(path, self.headings);
        }
        for entry in self.fs.walk(path).map_err(fail)?.whole() {
            match entry {
                Ok(entry) if entry.metadata().is_dir() => self.directory(entry.path(), true)?,
                Ok(_) => {}
                // What listings run into they say themselves.
                Err(e) if matches!(e.cause(), Cause::Image(_)) => self.all_done = false,
                Err(e) => self.problem(&e),
            }
        }
        Ok(())
    }

    fn directory(&mut self, path: &Path, heading: bool) -> Outcome {
        if heading && !self.args.json {
            if !self.first {
                self.output.write_all(b"\n")?;
            }
            self.output.name(path.as_os_str().as_bytes())?;
            self.output.write_all(b":\n")?;
        }
        self.first = false;
        let entries = match self.fs.read_dir(path) {
            Ok(entries) => entries,
            Err(e) => {
                self.problem(&e);
                return Ok(());
            }
        };
        let entries: Vec<_> = entries.collect();
        let engine = self.fs.engine();
        if ops::in_flight(engine) > 1 {
            let inos = entries.iter().flatten().map(|entry| Ino::new(entry.ino()));
            ops::inodes_ahead(engine, &inos.collect::<Vec<_>>());
        }
        let mut rows = Vec::new();
        if self.args.all && !self.args.json {
            for name in [".", ".."] {
                let path = path.join(name);
                if let Ok(metadata) = self.fs.metadata(&path) {
                    rows.push(self.row(name.into(), path, metadata));
                }
            }
        }
        for entry in entries {
            let found = entry.and_then(|entry| {
                let metadata = entry.metadata()?;
                Ok((entry, metadata))
            });
            match found {
                Ok((entry, metadata)) => {
                    let name = entry.file_name().as_bytes();
                    if self.args.all || self.args.json || !name.starts_with(b".") {
                        rows.push(self.row(name.to_vec(), entry.path(), metadata));
                    }
                }
                Err(e) => self.problem(&e),
            }
        }
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        self.print(rows)
    }

    fn row(&mut self, name: Vec<u8>, path: PathBuf, metadata: Metadata) -> Row {
        let wanted = metadata.is_symlink() && (self.args.long || self.args.json);
        let target = wanted.then(|| self.fs.read_link(&path));
        let target = match target {
            Some(Ok(target)) => Some(target.as_os_str().as_bytes().to_vec()),
            Some(Err(e)) => {
                self.problem(&e);
                None
            }
            None => None,
        };
        Row {
            name,
            path,
            metadata,
            target,
        }
    }

    fn problem(&mut self, e: &extant::Error) {
        say(crate::failure::in_image(&self.from.image, e));
        self.all_done = false;
    }

    fn print(&mut self, rows: Vec<Row>) -> Outcome {
        if self.args.json {
            for row in rows {
                let path = row.path.as_os_str().as_bytes();
                let record = Record::new(path, &row.metadata, row.target.as_deref());
                self.output.json_line(&record)?;
            }
            return Ok(());
        }
        let columns = Columns::of(&rows, self.args.human_readable);
        for row in &rows {
            if self.args.inode {
                let width = columns.inode;
                write!(self.output, "{:>width$} ", row.metadata.ino())?;
            }
            if self.args.long {
                columns.write(&row.metadata, self.output)?;
            }
            self.output.name(&row.name)?;
            if let Some(target) = &row.target {
                self.output.write_all(b" -> ")?;
                self.output.name(target)?;
            }
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Widths of the columns of the long form.
#[derive(Default)]
struct Columns {
    inode: usize,
    links: usize,
    uid: usize,
    gid: usize,
    size: usize,
    is_human: bool,
}

impl Columns {
    fn of(rows: &[Row], is_human: bool) -> Self {
        let mut columns = Self {
            is_human,
            ..Self::default()
        };
        let widen = |width: &mut usize, text: String| *width = text.len().max(*width);
        for Row { metadata, .. } in rows {
            widen(&mut columns.inode, metadata.ino().to_string());
            widen(&mut columns.links, metadata.nlink().to_string());
            widen(&mut columns.uid, metadata.uid().to_string());
            widen(&mut columns.gid, metadata.gid().to_string());
            widen(&mut columns.size, size_text(metadata, is_human));
        }
        columns
    }

    fn write(&self, metadata: &Metadata, output: &mut Output) -> std::io::Result<()> {
        let Self {
            links,
            uid,
            gid,
            size,
            ..
        } = *self;
        write!(
            output,
            "{} {:>links$} {:>uid$} {:>gid$} {:>size$} {} ",
            mode_text(metadata),
            metadata.nlink(),
            metadata.uid(),
            metadata.gid(),
            size_text(metadata, self.is_human),
            time::short(metadata.mtime()),
        )
    }
}

/// The size, or a device's number.
fn size_text(metadata: &Metadata, is_human: bool) -> String {
    match metadata.rdev() {
        Some(number) => format!("{},{}", number.major, number.minor),
        None if is_human => short(metadata.len()),
        None => metadata.len().to_string(),
    }
}
