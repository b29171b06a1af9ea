//! What an expression says of a file, and what it does with it.

use super::expression::{Action, Age, Expr, Glob, Moment, Reference, Test, Unit};
use super::printf::{Format, Said, Subject, ls_date, type_letter};
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::image_path::ImagePath;
use crate::images::{Problems, is_final};
use crate::names::Names;
use crate::output::Output;
use crate::path::last_name;
use crate::record::{Record, mode_text};
use extant::{FileType, Filesystem, Metadata, Timestamp, WalkEntry};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Component;

/// One place that is searched.
pub(super) struct Place<'a> {
    pub(super) fs: &'a Filesystem,
    pub(super) from: &'a ImagePath,
    pub(super) names: &'a Names,
}

/// How what is found is told.
pub(super) struct Telling<'a> {
    pub(super) output: Output,
    pub(super) problems: Problems,
    pub(super) prefix: &'a [u8],
    pub(super) print0: bool,
    pub(super) json: bool,
    /// The moment that ages are counted from.
    pub(super) now: Timestamp,
    pub(super) commands: super::exec::Commands,
    pub(super) widths: LsWidths,
}

/// What came of a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Then {
    /// Nothing below it is looked at.
    pub(super) prune: bool,
    /// Nothing else is looked at.
    pub(super) quit: bool,
}

/// A file that an expression is about.
pub(super) struct Visit<'a, 't> {
    pub(super) place: &'a Place<'a>,
    pub(super) entry: &'a WalkEntry,
    pub(super) metadata: Metadata,
    pub(super) telling: &'a mut Telling<'t>,
    pub(super) then: Then,
}

impl Visit<'_, '_> {
    /// Whether the expression holds, with all that it does on the way.
    pub(super) fn holds(&mut self, expr: &Expr) -> Outcome<bool> {
        match expr {
            Expr::And(all) => {
                for one in all {
                    if !self.holds(one)? || self.then.quit {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Expr::Or(all) => {
                for one in all {
                    if self.holds(one)? || self.then.quit {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Expr::List(all) => {
                let mut last = true;
                for one in all {
                    last = self.holds(one)?;
                    if self.then.quit {
                        break;
                    }
                }
                Ok(last)
            }
            Expr::Not(one) => Ok(!self.holds(one)?),
            Expr::Test(test) => Ok(self.test(test)),
            Expr::Do(action) => self.act(action),
        }
    }

    fn test(&mut self, test: &Test) -> bool {
        let found = &self.metadata;
        if let Some(holds) = of_inode(test, found, self.place.names, self.telling.now) {
            return holds;
        }
        match test {
            Test::Name(glob) => fits(glob, &name_of(self.entry)),
            Test::Path(glob) => fits(glob, self.entry.path_bytes()),
            Test::Empty => self.is_empty_dir(),
            Test::Xattr(name) => match self.entry.xattrs() {
                Ok(all) => match name {
                    Some(name) => all.iter().any(|(known, _)| known.as_bytes() == name),
                    None => !all.is_empty(),
                },
                Err(e) => self.note(&e),
            },
            // The inode has answered all others.
            _ => false,
        }
    }

    /// Whether nothing is in a directory, by now.
    fn is_empty_dir(&mut self) -> bool {
        let first = self
            .place
            .fs
            .read_dir(self.entry.path())
            .map(|mut entries| entries.next());
        match first {
            Ok(None) => true,
            Ok(Some(Ok(_))) => false,
            Ok(Some(Err(e))) | Err(e) => self.note(&e),
        }
    }

    /// Says what went wrong: nothing holds then.
    fn note(&mut self, e: &extant::Error) -> bool {
        self.telling.problems.note(self.place.from.failure(e));
        false
    }

    /// The path as it is shown.
    fn shown(&self) -> Vec<u8> {
        [self.telling.prefix, self.entry.path_bytes()].concat()
    }

    fn act(&mut self, action: &Action) -> Outcome<bool> {
        match action {
            Action::Prune => self.then.prune = true,
            Action::Quit => self.then.quit = true,
            Action::Print => self.print()?,
            Action::Print0 => {
                let path = self.shown();
                self.telling.output.write_all(&path)?;
                self.telling.output.write_all(b"\0")?;
            }
            Action::Printf(format) => self.printf(format)?,
            Action::Ls => self.ls()?,
            Action::Delete => return Ok(self.delete()),
            Action::Exec(_) | Action::ExecMany(..) if !self.names_itself() => return Ok(false),
            Action::Exec(command) => {
                let Telling {
                    output, problems, ..
                } = &mut *self.telling;
                output.flush()?;
                let place = self.place.from.with_path(self.entry.path());
                return Ok(super::exec::one(command, &place, problems));
            }
            Action::ExecMany(number, command) => {
                let Telling {
                    output,
                    problems,
                    commands,
                    ..
                } = &mut *self.telling;
                let place = self.place.from.with_path(self.entry.path());
                commands.add(*number, command, &place, output, problems)?;
            }
        }
        Ok(true)
    }

    /// Whether the path means this file to another program, too. Names in damaged and encrypted
    /// directories may have slashes, or be `..`; that is said.
    fn names_itself(&mut self) -> bool {
        if let Err(e) = self.entry.check_name() {
            return self.note(&e);
        }
        let Ok(below) = self.entry.path().strip_prefix(&self.place.from.path) else {
            return true;
        };
        let is_name = |part| matches!(part, Component::Normal(_));
        let names = below.components().filter(|part| is_name(*part)).count();
        if names == below.components().count() && names == self.entry.depth() {
            return true;
        }
        let place = self.place.from.with_path(self.entry.path());
        self.telling.problems.note(Failure::new(format!(
            "{} is given to no program: a directory on the way has a name that no file may have",
            place.shown()
        )));
        false
    }

    pub(super) fn print(&mut self) -> Outcome {
        if self.telling.json {
            let target = match self.entry.file_type() {
                FileType::Symlink => match self.entry.read_link() {
                    Ok(target) => Some(target),
                    Err(e) => {
                        self.note(&e);
                        None
                    }
                },
                _ => None,
            };
            let record = Record::new(self.entry.path_bytes(), &self.metadata, target.as_deref());
            return Ok(self.telling.output.json_line(&record)?);
        }
        let path = self.shown();
        let output = &mut self.telling.output;
        if self.telling.print0 {
            output.write_all(&path)?;
            output.write_all(b"\0")?;
        } else {
            output.name_line(&path)?;
        }
        Ok(())
    }

    fn printf(&mut self, format: &Format) -> Outcome {
        let mut parts: Vec<(bool, Vec<u8>)> = Vec::new();
        format.write(&*self, |said| {
            parts.push(match said {
                Said::Text(text) => (false, text.to_vec()),
                Said::Value(value) => (true, value.to_vec()),
            });
            Ok(())
        })?;
        for (is_value, part) in parts {
            if is_value {
                self.telling.output.name(&part)?;
            } else {
                self.telling.output.write_all(&part)?;
            }
        }
        Ok(())
    }

    fn delete(&mut self) -> bool {
        let path = self.entry.path();
        if last_name(path).is_none() {
            let place = self.place.from.with_path(path);
            self.telling.problems.note(Failure::new(format!(
                "{} is not removed: it is where the search began, and has no name",
                place.shown()
            )));
            return false;
        }
        let fs = self.place.fs;
        let removed = self.entry.check_name().and_then(|()| {
            if self.metadata.is_dir() {
                fs.remove_dir(path)
            } else {
                fs.remove_file(path)
            }
        });
        match removed {
            Ok(()) => true,
            Err(e) => {
                // Every further change would fail as well.
                self.then.quit |= is_final(&e);
                self.note(&e)
            }
        }
    }

    /// A line of `ls -dils`.
    fn ls(&mut self) -> Outcome {
        let found = &self.metadata;
        let size = match found.rdev() {
            Some(number) => format!("{:>3}, {:>3}", number.major, number.minor),
            None => found.len().to_string(),
        };
        let (ino, blocks) = (found.ino(), found.blocks().div_ceil(2));
        let (mode, links) = (mode_text(found), found.nlink());
        let user = self.place.names.users.shown(found.uid());
        let group = self.place.names.groups.shown(found.gid());
        let date = ls_date(found.mtime(), self.telling.now);
        let target = self.target();
        let mut path = escaped(&self.shown());
        if self.entry.file_type() == FileType::Symlink {
            path.extend_from_slice(b" -> ");
            path.extend_from_slice(&escaped(&target));
        }
        let LsWidths {
            ino: ino_width,
            blocks: blocks_width,
            links: links_width,
            user: user_width,
            group: group_width,
            size: size_width,
        } = self.telling.widths.widened([
            ino.to_string().len(),
            blocks.to_string().len(),
            links.to_string().len(),
            user.len(),
            group.len(),
            size.len(),
        ]);
        let output = &mut self.telling.output;
        write!(
            output,
            "{ino:>ino_width$} {blocks:>blocks_width$} {mode} {links:>links_width$} "
        )?;
        for (name, width) in [(user, user_width), (group, group_width)] {
            output.name(&name)?;
            write!(output, "{:1$} ", "", width.saturating_sub(name.len()))?;
        }
        write!(output, "{size:>size_width$} {date} ")?;
        Ok(output.name_line(&path)?)
    }
}

/// Widths of the columns of `-ls`, which grow with what is in them.
#[derive(Debug, Clone, Copy)]
pub(super) struct LsWidths {
    ino: usize,
    blocks: usize,
    links: usize,
    user: usize,
    group: usize,
    size: usize,
}

impl Default for LsWidths {
    fn default() -> Self {
        Self {
            ino: 9,
            blocks: 6,
            links: 3,
            user: 8,
            group: 8,
            size: 8,
        }
    }
}

impl LsWidths {
    fn widened(&mut self, [ino, blocks, links, user, group, size]: [usize; 6]) -> Self {
        *self = Self {
            ino: self.ino.max(ino),
            blocks: self.blocks.max(blocks),
            links: self.links.max(links),
            user: self.user.max(user),
            group: self.group.max(group),
            size: self.size.max(size),
        };
        *self
    }
}

impl Subject for Visit<'_, '_> {
    fn path(&self) -> Vec<u8> {
        self.shown()
    }

    fn below(&self) -> Vec<u8> {
        let (path, start) = (self.entry.path_bytes(), self.place.from.path.as_os_str());
        let below = path.strip_prefix(start.as_bytes()).unwrap_or(path);
        below.strip_prefix(b"/").unwrap_or(below).to_vec()
    }

    fn start(&self) -> Vec<u8> {
        let start = self.place.from.path.as_os_str().as_bytes();
        [self.telling.prefix, start].concat()
    }

    fn last_name(&self) -> Vec<u8> {
        name_of(self.entry)
    }

    fn depth(&self) -> usize {
        self.entry.depth()
    }

    fn metadata(&self) -> Metadata {
        self.entry.metadata()
    }

    fn user(&self) -> Vec<u8> {
        self.place.names.users.shown(self.metadata.uid())
    }

    fn group(&self) -> Vec<u8> {
        self.place.names.groups.shown(self.metadata.gid())
    }

    fn target(&self) -> Vec<u8> {
        match self.entry.file_type() {
            FileType::Symlink => self.entry.read_link().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn type_of_target(&self) -> char {
        if self.entry.file_type() != FileType::Symlink {
            return type_letter(self.entry.file_type());
        }
        match self.place.fs.metadata(self.entry.path()) {
            Ok(found) => type_letter(found.file_type()),
            Err(e) if e.errno() == extant::errno::ELOOP => 'L',
            Err(e) if crate::images::is_missing(&e) => 'N',
            Err(_) => '?',
        }
    }
}

/// The last name of a file; of the root it is `/`, as for find(1).
fn name_of(entry: &WalkEntry) -> Vec<u8> {
    if entry.depth() > 0 {
        return entry.file_name().as_bytes().to_vec();
    }
    let path = entry.path_bytes();
    let end = path.iter().rposition(|byte| *byte != b'/');
    let Some(end) = end else {
        return b"/".to_vec();
    };
    let path = path.get(..=end).unwrap_or(path);
    path.rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or(path)
        .to_vec()
}

fn fits(glob: &Glob, name: &[u8]) -> bool {
    if glob.any_case {
        glob::matches(&glob.pattern, &name.to_ascii_lowercase())
    } else {
        glob::matches(&glob.pattern, name)
    }
}

/// What an inode answers by itself; `None` where more is asked for.
pub(super) fn of_inode(
    test: &Test,
    found: &Metadata,
    names: &Names,
    now: Timestamp,
) -> Option<bool> {
    Some(match test {
        Test::Always(holds) => *holds,
        Test::Type(types) => types.contains(&found.file_type()),
        Test::Size { unit, count } => count.takes(found.len().div_ceil(*unit)),
        Test::Empty if found.is_dir() => return None,
        Test::Empty => found.is_file() && found.len() == 0,
        Test::Perm(perm) => perm.takes(found.mode().permissions()),
        Test::Links(count) => count.takes(found.nlink().into()),
        Test::Inum(count) => count.takes(found.ino().into()),
        Test::Uid(count) => count.takes(found.uid().into()),
        Test::Gid(count) => count.takes(found.gid().into()),
        Test::User(name) => names.users.number(name) == Some(found.uid()),
        Test::Group(name) => names.groups.number(name) == Some(found.gid()),
        Test::NoUser => names.users.name(found.uid()).is_none(),
        Test::NoGroup => names.groups.name(found.gid()).is_none(),
        Test::Age { of, unit, age } => {
            moment_of(*of, found).is_some_and(|time| is_of_age(time, now, *unit, *age))
        }
        Test::Newer { of, than } => match than {
            Reference::At(than) => {
                moment_of(*of, found).is_some_and(|time| nanos(time) > nanos(*than))
            }
            // Looked at before anything is searched.
            Reference::Of(..) => false,
        },
        Test::Name(_) | Test::Path(_) | Test::Xattr(_) => return None,
    })
}

/// One of the times of a file; there may be none of its birth.
pub(super) fn moment_of(which: Moment, found: &Metadata) -> Option<Timestamp> {
    match which {
        Moment::Access => Some(found.atime()),
        Moment::Birth => found.crtime(),
        Moment::Change => Some(found.ctime()),
        Moment::Modification => Some(found.mtime()),
    }
}

fn nanos(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Whether a time is so long ago. Days are whole ones, parts left out; a minute is the one that is
/// passing: so find(1) has it.
fn is_of_age(time: Timestamp, now: Timestamp, unit: Unit, age: Age) -> bool {
    let (seconds, begun) = match unit {
        Unit::Days => (86_400.0, 0.0),
        Unit::Minutes => (60.0, 1.0),
    };
    // Precise to the microsecond for as long as there were computers.
    let old = (nanos(now) - nanos(time)) as f64 / 1e9;
    match age {
        Age::Exactly(n) => {
            let from = (n - begun) * seconds;
            old >= from && old < from + seconds
        }
        Age::MoreThan(n) => old > (n + 1.0 - begun) * seconds,
        Age::LessThan(n) => old < n * seconds,
    }
}

/// A path in the form of `ls -b`, which `-ls` has.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b' ' | b'\\' | b'"' => shown.extend_from_slice(&[b'\\', byte]),
            7 => shown.extend_from_slice(b"\\a"),
            8 => shown.extend_from_slice(b"\\b"),
            b'\t' => shown.extend_from_slice(b"\\t"),
            b'\n' => shown.extend_from_slice(b"\\n"),
            11 => shown.extend_from_slice(b"\\v"),
            12 => shown.extend_from_slice(b"\\f"),
            b'\r' => shown.extend_from_slice(b"\\r"),
            b'!'..=b'~' => shown.push(byte),
            other => shown.extend_from_slice(format!("\\{other:03o}").as_bytes()),
        }
    }
    shown
}

/// What is known of an expression by an inode alone, without its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Holds,
    Not,
    /// It depends on more, or something is done on the way.
    Open,
}

/// Whether the expression does not hold, and does nothing, whatever the name of this inode is.
pub(super) fn rules_out(expr: &Expr, found: &Metadata, names: &Names, now: Timestamp) -> bool {
    known(expr, found, names, now) == Known::Not
}

fn known(expr: &Expr, found: &Metadata, names: &Names, now: Timestamp) -> Known {
    let mut result = match expr {
        Expr::And(_) => Known::Holds,
        Expr::Or(_) => Known::Not,
        Expr::List(_) => Known::Holds,
        Expr::Not(one) => {
            return match known(one, found, names, now) {
                Known::Holds => Known::Not,
                Known::Not => Known::Holds,
                Known::Open => Known::Open,
            };
        }
        Expr::Test(test) => {
            return match of_inode(test, found, names, now) {
                Some(true) => Known::Holds,
                Some(false) => Known::Not,
                None => Known::Open,
            };
        }
        Expr::Do(_) => return Known::Open,
    };
    let (Expr::And(all) | Expr::Or(all) | Expr::List(all)) = expr else {
        return Known::Open;
    };
    for one in all {
        let next = known(one, found, names, now);
        match (expr, result, next) {
            // What ends it is reached whatever came before.
            (Expr::And(_), _, Known::Not) => return Known::Not,
            (Expr::Or(_), _, Known::Holds) => return Known::Holds,
            (Expr::List(_), _, next) => result = next,
            (_, Known::Open, _) | (_, _, Known::Open) => result = Known::Open,
            _ => {}
        }
        if next == Known::Open && does_something(one) {
            return Known::Open;
        }
    }
    result
}

fn does_something(expr: &Expr) -> bool {
    match expr {
        Expr::And(all) | Expr::Or(all) | Expr::List(all) => all.iter().any(does_something),
        Expr::Not(one) => does_something(one),
        Expr::Test(_) => false,
        Expr::Do(_) => true,
    }
}

/// Whether there is a test that an inode answers without its name.
pub(super) fn asks_inodes(expr: &Expr) -> bool {
    match expr {
        Expr::And(all) | Expr::Or(all) | Expr::List(all) => all.iter().any(asks_inodes),
        Expr::Not(one) => asks_inodes(one),
        Expr::Test(Test::Name(_) | Test::Path(_) | Test::Xattr(_) | Test::Always(_)) => false,
        Expr::Test(_) => true,
        Expr::Do(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    #[test]
    fn ages_are_counted_as_find_does() {
        let now = at(1_000_000);
        let is = |age, unit, old: i64| is_of_age(at(1_000_000 - old), now, unit, age);
        for (age, old, expected) in [
            (Age::Exactly(0.0), 0, true),
            (Age::Exactly(0.0), 86_399, true),
            (Age::Exactly(0.0), 86_400, false),
            (Age::Exactly(1.0), 86_400, true),
            (Age::MoreThan(0.0), 86_400, false),
            (Age::MoreThan(0.0), 86_401, true),
            (Age::LessThan(1.0), 86_399, true),
            (Age::LessThan(1.0), 86_400, false),
            (Age::MoreThan(0.5), 129_601, true),
        ] {
            assert_eq!(is(age, Unit::Days, old), expected, "{age:?} {old}");
        }
        for (age, old, expected) in [
            (Age::Exactly(1.0), 0, true),
            (Age::Exactly(1.0), 60, false),
            (Age::Exactly(0.0), 30, false),
            (Age::MoreThan(1.0), 61, true),
            (Age::MoreThan(1.0), 60, false),
            (Age::LessThan(1.0), 59, true),
        ] {
            assert_eq!(is(age, Unit::Minutes, old), expected, "{age:?} {old}");
        }
        // What lies ahead is younger than anything.
        assert!(is(Age::LessThan(0.0), Unit::Days, -5));
    }

    #[test]
    fn paths_are_escaped_as_ls_does() {
        assert_eq!(escaped(b"a b\\\n\xff\"~"), b"a\\ b\\\\\\n\\377\\\"~");
    }
}
