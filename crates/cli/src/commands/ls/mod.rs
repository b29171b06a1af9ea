//! `extant ls`.

mod colors;

use super::manifest;
use crate::args::{Ls, When, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::names::Names;
use crate::operands::found;
use crate::output::Output;
use crate::record::{Record, mode_text};
use crate::size::short;
use crate::{glob, time};
use colors::Colors;
use extant::{Cause, FileType, Filesystem, Ino, Metadata};
use extant_core::ops;
use extant_image::ImageLocation;
use std::cmp::Ordering;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(super) fn run(args: &Ls, location: &Whereabouts) -> Outcome {
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
    let mut problems = Problems::default();
    let places = found(&args.paths, &mut Images::new(location), &mut problems)?;
    let mut output = Output::new();
    if args.mtree {
        for (fs, from) in &places {
            problems.check(manifest::write(fs, from, &mut output));
        }
        output.finish()?;
        return problems.outcome();
    }
    let is_colored = match args.color {
        When::Always => true,
        When::Auto => output.is_terminal(),
        When::Never => false,
    };
    let mut listing = Listing {
        args,
        output,
        colors: is_colored.then(Colors::of_environment),
        names: Vec::new(),
        all_done: true,
        first: true,
        no_color_yet: true,
    };
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    for (fs, from) in &places {
        match listing.operand(fs, from) {
            Ok((row, true)) => dirs.push((row, fs, from)),
            Ok((row, false)) => files.push(row),
            Err(failure) => problems.note(failure),
        }
    }
    files.sort_by(|a, b| listing.order(a, b));
    dirs.sort_by(|(a, ..), (b, ..)| listing.order(a, b));
    if !files.is_empty() {
        listing.print(&files)?;
        listing.first = false;
    }
    for (row, fs, from) in dirs {
        let place = Place {
            fs,
            from,
            names: row.names,
        };
        match listing.start(&place, headings) {
            Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
            outcome => problems.check(outcome),
        }
    }
    let Listing {
        output, all_done, ..
    } = listing;
    output.finish()?;
    problems.outcome()?;
    if all_done { Ok(()) } else { Err(Failure::Said) }
}

struct Listing<'a> {
    args: &'a Ls,
    output: Output,
    colors: Option<Colors>,
    /// What each image calls its owners.
    names: Vec<(ImageLocation, Rc<Names>)>,
    all_done: bool,
    /// Whether nothing has been written yet.
    first: bool,
    /// Whether no name has had a colour yet.
    no_color_yet: bool,
}

/// Where something that is listed lies.
struct Place<'a> {
    fs: &'a Filesystem,
    from: &'a ImagePath,
    names: Rc<Names>,
}

/// One line of a listing.
struct Row {
    /// What is shown.
    name: Vec<u8>,
    path: PathBuf,
    fs: Filesystem,
    names: Rc<Names>,
    metadata: Metadata,
    target: Option<Vec<u8>>,
}

impl Listing<'_> {
    /// Whether lines have the long form.
    fn is_long(&self) -> bool {
        self.args.long || self.args.numeric_uid_gid
    }

    /// The line of an operand, and whether it is a directory that is listed.
    fn operand(&mut self, fs: &Filesystem, from: &ImagePath) -> Outcome<(Row, bool)> {
        let path = &from.path;
        let fail = |e: extant::Error| from.failure(&e);
        let mut shown = fs.symlink_metadata(path).map_err(fail)?;
        // A symbolic link to a directory stands for it, unless links are shown as such.
        let as_links =
            self.is_long() || self.args.json || self.args.directory || self.args.classify;
        if shown.is_symlink()
            && !as_links
            && let Ok(target) = fs.metadata(path)
            && target.is_dir()
        {
            shown = target;
        }
        let is_listed = shown.is_dir() && !self.args.directory;
        let place = Place {
            fs,
            from,
            names: self.names_of(fs, from),
        };
        let name = path.as_os_str().as_bytes().to_vec();
        Ok((self.row(&place, name, path.clone(), shown), is_listed))
    }

    /// What an image calls its owners, if that is shown.
    fn names_of(&mut self, fs: &Filesystem, from: &ImagePath) -> Rc<Names> {
        if !self.args.long || self.args.numeric_uid_gid || self.args.json {
            return Rc::default();
        }
        if let Some((_, names)) = self.names.iter().find(|(image, _)| *image == from.image) {
            return Rc::clone(names);
        }
        let names = Rc::new(Names::of(fs));
        self.names.push((from.image.clone(), Rc::clone(&names)));
        names
    }

    /// Which of two lines comes first.
    fn order(&self, one: &Row, other: &Row) -> Ordering {
        let time = |row: &Row| (row.metadata.mtime().secs, row.metadata.mtime().nanos);
        let by = if self.args.by_size {
            other.metadata.len().cmp(&one.metadata.len())
        } else if self.args.by_time {
            time(other).cmp(&time(one))
        } else {
            Ordering::Equal
        };
        let order = by.then_with(|| one.name.cmp(&other.name));
        if self.args.reverse {
            order.reverse()
        } else {
            order
        }
    }

    /// Whether a name is shown.
    fn shows(&self, name: &[u8]) -> bool {
        let args = self.args;
        args.all || args.almost_all || args.json || !name.starts_with(b".")
    }

    /// Lists a directory, with what is below it if that is asked for.
    fn start(&mut self, place: &Place<'_>, heading: bool) -> Outcome {
        let args = self.args;
        let path = &place.from.path;
        if !args.recursive {
            return self.directory(place, path, heading).map(drop);
        }
        let is_link = |found: Metadata| found.is_symlink();
        let walks = !(args.by_size || args.by_time || args.reverse);
        // A walk does not follow the link that it begins at.
        if !walks || place.fs.symlink_metadata(path).is_ok_and(is_link) {
            return self.in_order(place);
        }
        let walk = place.fs.walk(path).map_err(|e| place.from.failure(&e))?;
        let mut walk = walk.whole();
        while let Some(entry) = walk.next() {
            match entry {
                Ok(entry) if !entry.metadata().is_dir() => {}
                Ok(entry) if entry.depth() > 0 && !self.shows(entry.file_name().as_bytes()) => {
                    walk.skip_children();
                }
                Ok(entry) => drop(self.directory(place, entry.path(), true)?),
                // What listings run into they say themselves.
                Err(e) if matches!(e.cause(), Cause::Image(_)) => self.all_done = false,
                Err(e) => self.problem(place, &e),
            }
        }
        Ok(())
    }

    /// Lists a directory and all below it, where another order than that of names is asked for.
    fn in_order(&mut self, place: &Place<'_>) -> Outcome {
        // A walk enters no directory twice; the same is seen to here.
        let mut entered = std::collections::HashSet::new();
        let mut waiting = vec![place.from.path.clone()];
        while let Some(path) = waiting.pop() {
            match place.fs.metadata(&path) {
                Ok(found) if entered.insert(found.ino()) => {
                    let below = self.directory(place, &path, true)?;
                    waiting.extend(below.into_iter().rev());
                }
                Ok(_) => self.all_done = false,
                Err(e) => self.problem(place, &e),
            }
        }
        Ok(())
    }

    /// Lists a directory. Returns the directories in it, in the order of the listing.
    fn directory(
        &mut self,
        place: &Place<'_>,
        path: &Path,
        heading: bool,
    ) -> Outcome<Vec<PathBuf>> {
        if heading && !self.args.json {
            if !self.first {
                self.output.write_all(b"\n")?;
            }
            self.output.name(path.as_os_str().as_bytes())?;
            self.output.write_all(b":\n")?;
        }
        self.first = false;
        let fs = place.fs;
        let entries = match fs.read_dir(path) {
            Ok(entries) => entries,
            Err(e) => {
                self.problem(place, &e);
                return Ok(Vec::new());
            }
        };
        let entries: Vec<_> = entries.collect();
        let engine = fs.engine();
        if ops::in_flight(engine) > 1 {
            let inos = entries.iter().flatten().map(|entry| Ino::new(entry.ino()));
            ops::inodes_ahead(engine, &inos.collect::<Vec<_>>());
        }
        let mut rows = Vec::new();
        let shows_dots = self.args.all && !self.args.almost_all && !self.args.json;
        if shows_dots {
            for name in [".", ".."] {
                let path = path.join(name);
                if let Ok(metadata) = fs.metadata(&path) {
                    rows.push(self.row(place, name.into(), path, metadata));
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
                    if self.shows(name) {
                        rows.push(self.row(place, name.to_vec(), entry.path(), metadata));
                    }
                }
                Err(e) => self.problem(place, &e),
            }
        }
        rows.sort_by(|a, b| self.order(a, b));
        self.print(&rows)?;
        let is_below = |row: &Row| row.metadata.is_dir() && row.name != b"." && row.name != b"..";
        let dirs = rows.into_iter().filter(is_below);
        Ok(dirs.map(|row| row.path).collect())
    }

    fn row(&mut self, place: &Place<'_>, name: Vec<u8>, path: PathBuf, metadata: Metadata) -> Row {
        let wanted = metadata.is_symlink() && (self.is_long() || self.args.json);
        let target = wanted.then(|| place.fs.read_link(&path));
        let target = match target {
            Some(Ok(target)) => Some(target.as_os_str().as_bytes().to_vec()),
            Some(Err(e)) => {
                self.problem(place, &e);
                None
            }
            None => None,
        };
        Row {
            name,
            path,
            fs: place.fs.clone(),
            names: Rc::clone(&place.names),
            metadata,
            target,
        }
    }

    fn problem(&mut self, place: &Place<'_>, e: &extant::Error) {
        say(crate::failure::in_image(&place.from.image, e));
        self.all_done = false;
    }

    fn print(&mut self, rows: &[Row]) -> Outcome {
        if self.args.json {
            for row in rows {
                let path = row.path.as_os_str().as_bytes();
                let record = Record::new(path, &row.metadata, row.target.as_deref());
                self.output.json_line(&record)?;
            }
            return Ok(());
        }
        let columns = Columns::of(rows, self.args.human_readable);
        for row in rows {
            if self.args.inode {
                let width = columns.inode;
                write!(self.output, "{:>width$} ", row.metadata.ino())?;
            }
            if self.is_long() {
                columns.write(row, self.args.numeric_uid_gid, &mut self.output)?;
            }
            self.print_name(row)?;
            self.output.write_all(b"\n")?;
        }
        Ok(())
    }

    /// The name, with its colour, its mark and where it leads.
    fn print_name(&mut self, row: &Row) -> std::io::Result<()> {
        let Row {
            name,
            path,
            fs,
            metadata,
            target,
            ..
        } = row;
        let color = |colors: &Colors| {
            let color = colors.of_name(fs, path, name, metadata);
            color.map(str::to_owned)
        };
        let color = self.colors.as_ref().and_then(color);
        self.colored(name, color.as_deref())?;
        let Some(target) = target else {
            if self.args.classify {
                self.output.write_all(mark(metadata, true).as_bytes())?;
            }
            return Ok(());
        };
        self.output.write_all(b" -> ")?;
        let looks = self.args.classify;
        let color = |colors: &Colors| {
            let color = colors.of_target(fs, path, target, looks);
            color.map(str::to_owned)
        };
        let color = self.colors.as_ref().and_then(color);
        self.colored(target, color.as_deref())?;
        if self.args.classify
            && let Ok(found) = fs.metadata(path)
        {
            self.output.write_all(mark(&found, false).as_bytes())?;
        }
        Ok(())
    }

    fn colored(&mut self, name: &[u8], color: Option<&str>) -> std::io::Result<()> {
        let Some(color) = color else {
            return self.output.name(name);
        };
        if std::mem::take(&mut self.no_color_yet) {
            self.output.write_all(b"\x1b[0m")?;
        }
        write!(self.output, "\x1b[{color}m")?;
        self.output.name(name)?;
        self.output.write_all(b"\x1b[0m")
    }
}

/// What is behind the name of a file of this kind.
fn mark(found: &Metadata, is_link_marked: bool) -> &'static str {
    match found.file_type() {
        FileType::Directory => "/",
        FileType::Symlink if is_link_marked => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::Regular if found.mode().permissions() & 0o111 != 0 => "*",
        _ => "",
    }
}

/// Widths of the columns of the long form.
#[derive(Default)]
struct Columns {
    inode: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
    is_human: bool,
}

impl Columns {
    fn of(rows: &[Row], is_human: bool) -> Self {
        let mut columns = Self {
            is_human,
            ..Self::default()
        };
        let widen = |width: &mut usize, length: usize| *width = length.max(*width);
        for row in rows {
            let metadata = &row.metadata;
            widen(&mut columns.inode, metadata.ino().to_string().len());
            widen(&mut columns.links, metadata.nlink().to_string().len());
            widen(
                &mut columns.user,
                row.names.users.shown(metadata.uid()).len(),
            );
            widen(
                &mut columns.group,
                row.names.groups.shown(metadata.gid()).len(),
            );
            widen(&mut columns.size, size_text(metadata, is_human).len());
        }
        columns
    }

    fn write(&self, row: &Row, numbers: bool, output: &mut Output) -> std::io::Result<()> {
        let Self {
            links,
            user,
            group,
            size,
            ..
        } = *self;
        let metadata = &row.metadata;
        write!(
            output,
            "{} {:>links$} ",
            mode_text(metadata),
            metadata.nlink()
        )?;
        let owners = [
            (row.names.users.shown(metadata.uid()), user),
            (row.names.groups.shown(metadata.gid()), group),
        ];
        for (name, width) in owners {
            let missing = width.saturating_sub(name.len());
            // Numbers stand at the right, names at the left.
            if numbers {
                write!(output, "{:missing$}", "")?;
            }
            output.name(&name)?;
            if !numbers {
                write!(output, "{:missing$}", "")?;
            }
            output.write_all(b" ")?;
        }
        write!(
            output,
            "{:>size$} {} ",
            size_text(metadata, self.is_human),
            time::short(metadata.mtime()),
        )
    }
}

/// The size, or a device's number.
fn size_text(metadata: &Metadata, is_human: bool) -> String {
    match metadata.rdev() {
        Some(number) => format!("{}, {}", number.major, number.minor),
        None if is_human => short(metadata.len()),
        None => metadata.len().to_string(),
    }
}
