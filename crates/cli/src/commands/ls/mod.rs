//! `extant ls`.
//!
//! | file | owns |
//! |---|---|
//! | `text` | what is written, made in memory first |
//! | `columns` | the columns of the long form |
//! | `colors` | colours of names |
//!
//! Directories are made into text by several threads, and written in their order by one.

mod colors;
mod columns;
mod text;

use super::manifest;
use crate::args::{Ls, When, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::glob;
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::names::Names;
use crate::operands::found;
use crate::output::Output;
use crate::record::Record;
use colors::Colors;
use columns::Columns;
use extant::{FileType, Filesystem, ListedDirectory, Metadata};
use extant_image::ImageLocation;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use text::Text;

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
    let way = Way {
        args,
        colors: is_colored.then(Colors::of_environment),
        is_terminal: output.is_terminal(),
    };
    let mut listing = Listing {
        way: &way,
        output,
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
    files.sort_by(|a, b| way.order(a, b));
    dirs.sort_by(|(a, ..), (b, ..)| way.order(a, b));
    if !files.is_empty() {
        let mut text = Text::new(way.is_terminal);
        way.print(&files, &mut text);
        listing.show(text)?;
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
    way: &'a Way<'a>,
    output: Output,
    /// What each image calls its owners.
    names: Vec<(ImageLocation, Arc<Names>)>,
    all_done: bool,
    /// Whether nothing has been written yet.
    first: bool,
    /// Whether no name has had a colour yet.
    no_color_yet: bool,
}

/// How files are shown: the same for all threads.
struct Way<'a> {
    args: &'a Ls,
    colors: Option<Colors>,
    is_terminal: bool,
}

/// Where something that is listed lies.
struct Place<'a> {
    fs: &'a Filesystem,
    from: &'a ImagePath,
    names: Arc<Names>,
}

/// One line of a listing.
struct Row<'a> {
    /// What is shown.
    name: &'a [u8],
    /// The directory that has the name, if the name alone is no path.
    dir: Option<&'a Path>,
    fs: &'a Filesystem,
    names: Arc<Names>,
    metadata: Metadata,
    target: Option<Vec<u8>>,
}

/// A directory as it is shown.
struct Listed {
    text: Text,
    problems: Vec<String>,
}

impl Row<'_> {
    fn path(&self) -> Cow<'_, Path> {
        match self.dir {
            None => Path::new(OsStr::from_bytes(self.name)).into(),
            Some(dir) => dir.join(OsStr::from_bytes(self.name)).into(),
        }
    }
}

impl Listing<'_> {
    /// The line of an operand, and whether it is a directory that is listed.
    fn operand<'a>(&mut self, fs: &'a Filesystem, from: &'a ImagePath) -> Outcome<(Row<'a>, bool)> {
        let args = self.way.args;
        let path = &from.path;
        let fail = |e: extant::Error| from.failure(&e);
        let mut shown = fs.symlink_metadata(path).map_err(fail)?;
        // A symbolic link to a directory stands for it, unless links are shown as such.
        let as_links = self.way.is_long() || args.json || args.directory || args.classify;
        if shown.is_symlink()
            && !as_links
            && let Ok(target) = fs.metadata(path)
            && target.is_dir()
        {
            shown = target;
        }
        let is_listed = shown.is_dir() && !args.directory;
        let names = self.names_of(fs, from);
        let mut target = None;
        if self.way.shows_target(&shown) {
            match fs.read_link(path) {
                Ok(found) => target = Some(found.into_os_string().into_vec()),
                Err(e) => self.problem(&in_image(&from.image, &e)),
            }
        }
        let row = Row {
            name: path.as_os_str().as_bytes(),
            dir: None,
            fs,
            names,
            metadata: shown,
            target,
        };
        Ok((row, is_listed))
    }

    /// What an image calls its owners, if that is shown.
    fn names_of(&mut self, fs: &Filesystem, from: &ImagePath) -> Arc<Names> {
        let args = self.way.args;
        if !args.long || args.numeric_uid_gid || args.json {
            return Arc::default();
        }
        if let Some((_, names)) = self.names.iter().find(|(image, _)| *image == from.image) {
            return Arc::clone(names);
        }
        let names = Arc::new(Names::of(fs));
        self.names.push((from.image.clone(), Arc::clone(&names)));
        names
    }

    /// Lists a directory, with what is below it if that is asked for.
    fn start(&mut self, place: &Place<'_>, heading: bool) -> Outcome {
        let args = self.way.args;
        let path = &place.from.path;
        if !args.recursive {
            return match place.fs.list_directory(path) {
                Ok(directory) => {
                    let (listed, _) = self.way.directory(place, &directory, heading);
                    self.tell(listed)
                }
                Err(e) => {
                    self.problem(&in_image(&place.from.image, &e));
                    Ok(())
                }
            };
        }
        let way = self.way;
        let mut told = Ok(());
        let listed = place.fs.for_each_directory(
            path,
            args.threads.count,
            |directory| way.directory(place, directory, true),
            |listed| {
                told = match listed {
                    Ok(listed) => self.tell(listed),
                    Err(e) => {
                        self.problem(&in_image(&place.from.image, &e));
                        Ok(())
                    }
                };
                match told {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            },
        );
        if let Err(e) = listed {
            self.problem(&in_image(&place.from.image, &e));
        }
        told
    }

    /// Shows a directory, and says what could not be read of it.
    fn tell(&mut self, listed: Listed) -> Outcome {
        for problem in &listed.problems {
            self.problem(problem);
        }
        self.show(listed.text)
    }

    fn problem(&mut self, text: &str) {
        say(text);
        self.all_done = false;
    }

    /// Writes a text, and in front of the first colour what takes back all of them.
    fn show(&mut self, text: Text) -> Outcome {
        if text.has_heading && !self.first {
            self.output.write_all(b"\n")?;
        }
        self.first = false;
        let at = text.first_color.filter(|_| self.no_color_yet);
        let (before, rest) = text.bytes.split_at(at.unwrap_or(0).min(text.bytes.len()));
        self.output.write_all(before)?;
        if at.is_some() {
            self.no_color_yet = false;
            self.output.write_all(b"\x1b[0m")?;
        }
        self.output.write_all(rest)?;
        Ok(())
    }
}

impl Way<'_> {
    /// Whether lines have the long form.
    fn is_long(&self) -> bool {
        self.args.long || self.args.numeric_uid_gid
    }

    /// Whether it is shown where a file leads.
    fn shows_target(&self, metadata: &Metadata) -> bool {
        metadata.is_symlink() && (self.is_long() || self.args.json)
    }

    /// Which of two lines comes first.
    fn order(&self, one: &Row<'_>, other: &Row<'_>) -> Ordering {
        let time = |row: &Row<'_>| (row.metadata.mtime().secs, row.metadata.mtime().nanos);
        let by = if self.args.by_size {
            other.metadata.len().cmp(&one.metadata.len())
        } else if self.args.by_time {
            time(other).cmp(&time(one))
        } else {
            Ordering::Equal
        };
        let order = by.then_with(|| one.name.cmp(other.name));
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

    /// What is shown of a directory, and the places of the directories in it that are listed next.
    fn directory(
        &self,
        place: &Place<'_>,
        directory: &ListedDirectory,
        heading: bool,
    ) -> (Listed, Vec<usize>) {
        let (args, fs, path) = (self.args, place.fs, directory.path());
        let mut text = Text::new(self.is_terminal);
        let told = |e: &extant::Error| in_image(&place.from.image, e);
        let mut problems: Vec<String> = directory.problems().iter().map(told).collect();
        if heading && !args.json {
            text.has_heading = true;
            text.name(path.as_os_str().as_bytes());
            text.bytes.extend_from_slice(b":\n");
        }
        let row = |name, metadata, target| Row {
            name,
            dir: Some(path),
            fs,
            names: Arc::clone(&place.names),
            metadata,
            target,
        };
        // Each with its place among the files.
        let mut rows = Vec::with_capacity(directory.files().len());
        let shows_dots = args.all && !args.almost_all && !args.json;
        if shows_dots {
            for name in [&b"."[..], b".."] {
                if let Ok(metadata) = fs.metadata(path.join(OsStr::from_bytes(name))) {
                    rows.push((row(name, metadata, None), None));
                }
            }
        }
        for (number, file) in directory.files().enumerate() {
            let name = file.file_name().as_bytes();
            if !self.shows(name) {
                continue;
            }
            let metadata = file.metadata();
            let mut target = None;
            if self.shows_target(&metadata) {
                match file.read_link() {
                    Ok(found) => target = Some(found),
                    Err(e) => problems.push(told(&e)),
                }
            }
            rows.push((row(name, metadata, target), Some(number)));
        }
        rows.sort_by(|(one, _), (other, _)| self.order(one, other));
        let (rows, numbers): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        self.print(&rows, &mut text);
        let numbered = rows.iter().zip(numbers);
        let below = numbered.filter(|(row, _)| args.recursive && row.metadata.is_dir());
        let below = below.filter_map(|(_, number)| number).collect();
        (Listed { text, problems }, below)
    }

    fn print(&self, rows: &[Row<'_>], text: &mut Text) {
        if self.args.json {
            for row in rows {
                let path = row.path();
                let path = path.as_os_str().as_bytes();
                text.json_line(&Record::new(path, &row.metadata, row.target.as_deref()));
            }
            return;
        }
        let columns = Columns::of(rows, self.args.human_readable);
        for row in rows {
            if self.args.inode {
                text.number(row.metadata.ino().into(), columns.inode);
                text.bytes.push(b' ');
            }
            if self.is_long() {
                columns.write(row, self.args.numeric_uid_gid, text);
            }
            self.print_name(row, text);
            text.bytes.push(b'\n');
        }
    }

    /// The name, with its colour, its mark and where it leads.
    fn print_name(&self, row: &Row<'_>, text: &mut Text) {
        let Row {
            name,
            fs,
            metadata,
            target,
            ..
        } = row;
        let colors = self.colors.as_ref();
        let color = colors.and_then(|colors| colors.of_name(fs, &row.path(), name, metadata));
        text.colored(name, color);
        let Some(target) = target else {
            if self.args.classify {
                text.bytes.extend_from_slice(mark(metadata, true));
            }
            return;
        };
        text.bytes.extend_from_slice(b" -> ");
        let looks = self.args.classify;
        let color = colors.and_then(|colors| colors.of_target(fs, &row.path(), target, looks));
        text.colored(target, color);
        if self.args.classify
            && let Ok(found) = fs.metadata(row.path())
        {
            text.bytes.extend_from_slice(mark(&found, false));
        }
    }
}

/// What is behind the name of a file of this kind.
fn mark(found: &Metadata, is_link_marked: bool) -> &'static [u8] {
    match found.file_type() {
        FileType::Directory => b"/",
        FileType::Symlink if is_link_marked => b"@",
        FileType::Fifo => b"|",
        FileType::Socket => b"=",
        FileType::Regular if found.mode().permissions() & 0o111 != 0 => b"*",
        _ => b"",
    }
}
