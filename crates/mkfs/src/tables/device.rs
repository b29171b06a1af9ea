//! Device tables: `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, as genext2fs and
//! Buildroot's `makedevs` read them.
//!
//! The two agree on most lines and not on all:
//!
//! | | genext2fs | makedevs |
//! |---|---|---|
//! | `COUNT` | one past the last number | how many there are; of 1, the name has no number |
//! | minor of number `i` | `MINOR + i * INC - START` | `MINOR + (i - START) * INC` |
//! | type `f`, missing | made, empty | an error |
//! | types | `d f p s c b` | `d f F r p c b` |
//! | owners | numbers | numbers, or names of the tree's accounts |
//! | missing parents of a `d` | an error | made |
//! | mode `-1` | | stays as it is |
//! | `\|xattr TEXT` | | capabilities of the file before |
//!
//! A `-` ends the numbers of a line. What either program passes over with a message is an error
//! here.

use super::capabilities::Capabilities;
use super::error::{AtLine, Parsed};
use super::rule::{Absent, Account, Change, Kind, Make, Rule, Rules, Which};
use super::text::{clean_path, decimal, fields, id, is_octal, lines, mode, shown};
use crate::source::FileType;

/// Most that makedevs takes for a number of a device, of a start, of a count.
const NUMBER_MAX: u32 = 0xf_ffff;

/// Most files that the lines of a table may count together.
const COUNTED_MAX: usize = 1 << 18;

/// Whose reading of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Genext2fs,
    Makedevs,
}

/// Whether a line has the form of this dialect.
pub(super) fn fits(line: &[u8]) -> bool {
    let mut words = fields(line);
    let Some(first) = words.next() else {
        return false;
    };
    if first == b"|xattr" {
        return true;
    }
    let kind = words.next();
    let bits = words.next();
    kind.is_some_and(|kind| kind.len() == 1 && kind[0].is_ascii_alphabetic())
        && bits.is_none_or(|bits| is_octal(bits) || bits == b"-1" || bits == b"-")
}

/// Parses a table as one of the two does.
pub(super) fn parse(text: &[u8], reader: Reader) -> Result<Vec<Rule>, AtLine> {
    let mut rules = Rules::default();
    // The file of the line before, for `|xattr`, and its capabilities so far.
    let mut last: Option<(Box<[u8]>, Capabilities)> = None;
    for (number, line) in lines(text) {
        let line = match line.iter().position(|&byte| byte == b'#') {
            Some(at) if reader == Reader::Genext2fs || fields(&line[..at]).next().is_none() => {
                &line[..at]
            }
            _ => line,
        };
        if fields(line).next().is_none() {
            continue;
        }
        let done = match xattr_of(line) {
            Some(text) => capabilities(number, text, reader, &mut last, &mut rules),
            None => Line::parse(line, reader).and_then(|line| {
                last = Some((line.path.clone(), Capabilities::default()));
                line.rules(number, reader, &mut rules)
            }),
        };
        done.map_err(|problem| (number, problem))?;
    }
    Ok(rules.into_vec())
}

/// The rules on which both readers agree; what they do not agree on is an error.
pub(super) fn parse_either(text: &[u8]) -> Result<Vec<Rule>, AtLine> {
    const SAY: &str = "say which with --owners genext2fs:FILE or --owners makedevs:FILE";
    let genext2fs = parse(text, Reader::Genext2fs);
    let makedevs = parse(text, Reader::Makedevs);
    let (first, second) = match (genext2fs, makedevs) {
        (Ok(first), Ok(second)) => (first, second),
        (Ok(rules), Err(_)) | (Err(_), Ok(rules)) => return Ok(rules),
        (Err(wrong), Err(_)) => return Err(wrong),
    };
    let mut agreed = Vec::with_capacity(second.len());
    for (a, b) in first.iter().zip(&second) {
        let same = (a.line, &a.which, &a.kind, &a.change) == (b.line, &b.which, &b.kind, &b.change)
            && (a.absent == b.absent || common(&a.absent).is_some());
        if !same {
            let line = a.line.min(b.line);
            return Err((
                line,
                format!("genext2fs and makedevs read this line differently: {SAY}"),
            ));
        }
        let mut rule = a.clone();
        if let Some(absent) = common(&a.absent) {
            rule.absent = absent;
        }
        agreed.push(rule);
    }
    if first.len() != second.len() {
        let last = first.get(agreed.len()).or_else(|| second.get(agreed.len()));
        return Err((
            last.map_or(1, |rule| rule.line),
            format!("genext2fs and makedevs read this line differently: {SAY}"),
        ));
    }
    Ok(agreed)
}

/// What both do with a missing file or directory, where one does more than the other.
fn common(genext2fs: &Absent) -> Option<Absent> {
    match genext2fs {
        Absent::Make(Make::File) => Some(Absent::Refuse),
        Absent::Make(Make::Directory { .. }) => {
            Some(Absent::Make(Make::Directory { parents: false }))
        }
        _ => None,
    }
}

/// What follows `|xattr` in a line of that kind.
fn xattr_of(line: &[u8]) -> Option<&[u8]> {
    let mut words = fields(line);
    (words.next() == Some(b"|xattr")).then(|| words.next().unwrap_or_default())
}

fn capabilities(
    number: u32,
    text: &[u8],
    reader: Reader,
    last: &mut Option<(Box<[u8]>, Capabilities)>,
    rules: &mut Rules,
) -> Parsed<()> {
    if reader == Reader::Genext2fs {
        return Err("genext2fs has no |xattr lines".to_owned());
    }
    let Some((path, known)) = last else {
        return Err("an |xattr line follows the line of its file".to_owned());
    };
    *known = Capabilities::parse(text, *known)?;
    rules.push(Rule {
        line: number,
        which: Which::Path(path.clone()),
        kind: Kind::Any,
        change: Change {
            capabilities: Some(*known),
            ..Change::default()
        },
        // Of an optional file that is not there.
        absent: Absent::Ignore,
    })
}

/// A line, taken apart.
struct Line {
    path: Box<[u8]>,
    kind: u8,
    change: Change,
    major: u32,
    minor: u32,
    start: u32,
    increment: u32,
    count: u32,
}

impl Line {
    fn parse(line: &[u8], reader: Reader) -> Parsed<Self> {
        let mut words = fields(line);
        let (Some(path), Some([kind])) = (words.next(), words.next()) else {
            return Err("has no type: NAME TYPE MODE UID GID are needed".to_owned());
        };
        let mut change = Change {
            mode: Some(0o755),
            ..Change::default()
        };
        match (words.next(), reader) {
            (Some(b"-1"), Reader::Makedevs) => change.mode = None,
            (Some(bits), _) => change.mode = Some(mode(bits)?),
            (None, Reader::Makedevs) => {}
            (None, Reader::Genext2fs) => return Err("has no mode".to_owned()),
        }
        let mut ended = false;
        let mut next = || {
            let word = if ended { None } else { words.next() };
            ended |= word.is_none_or(|word| word == b"-");
            word.filter(|_| !ended)
        };
        let user = next();
        let group = next();
        (change.user, change.group) = match reader {
            Reader::Genext2fs => {
                let number =
                    |what, field: Option<&[u8]>| field.map_or(Ok(0), |field| id(what, field));
                (
                    Some(Account::Number(number("uid", user)?)),
                    Some(Account::Number(number("gid", group)?)),
                )
            }
            Reader::Makedevs => {
                let (Some(user), Some(group)) = (user, group) else {
                    return Err("has no owners: UID and GID are needed".to_owned());
                };
                (Some(Account::parse(user)?), Some(Account::parse(group)?))
            }
        };
        let mut number = |what: &str, absent: u32| match next() {
            None => Ok(absent),
            Some(field) => decimal(field)
                .filter(|&number| number <= NUMBER_MAX)
                .ok_or_else(|| {
                    format!(
                        "the {what} {} is no number up to {NUMBER_MAX}",
                        shown(field)
                    )
                }),
        };
        let (major, minor) = (number("major", 0)?, number("minor", 0)?);
        let start = number("start", 0)?;
        let increment = number("increment", u32::from(reader == Reader::Genext2fs))?;
        let count = number("count", 0)?;
        if let Some(more) = words.find(|word| *word != b"-") {
            return Err(format!("{} follows the end of the numbers", shown(more)));
        }
        Ok(Self {
            path: clean_path(path)?,
            kind: *kind,
            change,
            major,
            minor,
            start,
            increment,
            count,
        })
    }

    /// The rules of the line: one, or as many as it counts.
    fn rules(&self, number: u32, reader: Reader, rules: &mut Rules) -> Parsed<()> {
        let one = |which, kind, absent| Rule {
            line: number,
            which,
            kind,
            change: self.change.clone(),
            absent,
        };
        let path = || Which::Path(self.path.clone());
        let is_makedevs = reader == Reader::Makedevs;
        let must = Kind::Must;
        if !is_makedevs && self.count > 0 && matches!(self.kind, b'd' | b'f') {
            return Err("a count goes with devices, fifos and sockets".to_owned());
        }
        match self.kind {
            b'd' => {
                let made = Make::Directory {
                    parents: is_makedevs,
                };
                rules.push(one(path(), must(FileType::Directory), Absent::Make(made)))
            }
            b'f' if is_makedevs => rules.push(one(path(), must(FileType::Regular), Absent::Refuse)),
            b'f' => {
                let absent = Absent::Make(Make::File);
                rules.push(one(path(), must(FileType::Regular), absent))
            }
            b'F' if is_makedevs => {
                let kind = Kind::Only(FileType::Regular);
                rules.push(one(path(), kind, Absent::Ignore))
            }
            b'r' if is_makedevs => {
                let below = Which::Below(self.path.clone());
                rules.push(one(below, Kind::Any, Absent::Refuse))
            }
            b'p' => self.nodes(FileType::Fifo, reader, rules, &one),
            b's' if !is_makedevs => self.nodes(FileType::Socket, reader, rules, &one),
            b'c' => self.nodes(FileType::CharDevice, reader, rules, &one),
            b'b' => self.nodes(FileType::BlockDevice, reader, rules, &one),
            kind => {
                let known = match reader {
                    Reader::Genext2fs => "d, f, p, s, c, b",
                    Reader::Makedevs => "d, f, F, r, p, c, b",
                };
                Err(format!(
                    "the type {:?} is none of {known}",
                    char::from(kind)
                ))
            }
        }
    }

    fn nodes(
        &self,
        kind: FileType,
        reader: Reader,
        rules: &mut Rules,
        one: &impl Fn(Which, Kind, Absent) -> Rule,
    ) -> Parsed<()> {
        let made = |minor| match kind {
            FileType::Fifo => Make::Fifo,
            FileType::Socket => Make::Socket,
            kind => Make::Device {
                kind,
                major: self.major,
                minor,
            },
        };
        let mut add = |path: Box<[u8]>, minor: u32| {
            if rules.len() >= COUNTED_MAX {
                return Err(format!("is past {COUNTED_MAX} files, which are too many"));
            }
            let absent = Absent::Make(made(minor));
            rules.push(one(Which::Path(path), Kind::Must(kind), absent))
        };
        let counted = match reader {
            Reader::Genext2fs => self.count > 0,
            Reader::Makedevs => self.count > 1,
        };
        if !counted {
            return add(self.path.clone(), self.minor);
        }
        let end = match reader {
            Reader::Genext2fs => self.count,
            Reader::Makedevs => self.start + self.count,
        };
        if end <= self.start {
            return Err(format!(
                "makes nothing: genext2fs ends before number {end}, and begins with {}",
                self.start
            ));
        }
        for index in self.start..end {
            let (index, start) = (u64::from(index), u64::from(self.start));
            let increment = u64::from(self.increment);
            let minor = match reader {
                Reader::Genext2fs => (u64::from(self.minor) + index * increment).checked_sub(start),
                Reader::Makedevs => Some(u64::from(self.minor) + (index - start) * increment),
            };
            let minor = minor.and_then(|minor| u32::try_from(minor).ok());
            let minor = minor
                .ok_or_else(|| format!("number {index} has no minor that a device can have"))?;
            let mut path = self.path.to_vec();
            path.extend_from_slice(index.to_string().as_bytes());
            add(path.into_boxed_slice(), minor)?;
        }
        Ok(())
    }
}
