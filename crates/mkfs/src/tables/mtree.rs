//! `mtree` specifications (`mtree(5)` of the BSDs and of libarchive).
//!
//! Names are relative to the directory that the entries before have gone into, or have a `/` in
//! them and begin at the root. `/set` and `/unset` say what entries have that do not say it
//! themselves. Owners, modes, times, flags, devices and targets of links are used. What is only
//! compared (sizes, digests, counts of links) is not.

use super::error::{AtLine, Parsed};
use super::rule::{Absent, Account, Change, Kind, Make, Rule, Rules, Which, check_account};
use super::text::{check_length, clean_path, decimal, fields, id, lines, mode, octal_byte, shown};
use crate::source::{FileType, Timestamp};
use std::borrow::Cow;

/// Keywords that say what is in a file, and not what it shall have.
const COMPARED: &[&str] = &[
    "cksum",
    "contents",
    "inode",
    "md5",
    "md5digest",
    "nlink",
    "resdevice",
    "ripemd160digest",
    "rmd160",
    "rmd160digest",
    "sha1",
    "sha1digest",
    "sha256",
    "sha256digest",
    "sha384",
    "sha384digest",
    "sha512",
    "sha512digest",
    "size",
    "tags",
];

/// Whether a line has the form of this dialect.
pub(super) fn fits(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\\").unwrap_or(line);
    let mut words = fields(line);
    match words.next() {
        None => true,
        Some(b"..") => words.next().is_none(),
        Some(b"/set" | b"/unset") => true,
        Some(first) => {
            // What is continued may begin with a keyword.
            let mut keywords = words.peekable();
            let has_some = is_keyword(first) || keywords.peek().is_some();
            has_some && keywords.all(is_keyword)
        }
    }
}

/// Whether a line can be of no other dialect.
pub(super) fn is_sure(line: &[u8]) -> bool {
    line.starts_with(b"#mtree")
        || matches!(fields(line).next(), Some(b"/set" | b"/unset"))
        || fields(line).any(|word| word.starts_with(b"type="))
            && fields(line).nth(1).is_some_and(is_keyword)
}

fn is_keyword(word: &[u8]) -> bool {
    matches!(word, b"optional" | b"nochange" | b"ignore")
        || word
            .iter()
            .position(|&byte| byte == b'=')
            .is_some_and(|at| at > 0 && word[..at].iter().all(u8::is_ascii_alphanumeric))
}

/// Parses a specification.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Rule>, AtLine> {
    let mut reading = Reading::default();
    let mut all = lines(text);
    while let Some((number, line)) = all.next() {
        let mut whole = Cow::Borrowed(line.trim_ascii());
        if whole.first().is_none_or(|&first| first == b'#') {
            continue;
        }
        while let Some(front) = continued(&whole).map(<[u8]>::len) {
            let (_, more) = all.next().ok_or((
                number,
                "ends with a backslash, and no line follows".to_owned(),
            ))?;
            let line = whole.to_mut();
            line.truncate(front);
            line.push(b' ');
            line.extend_from_slice(more.trim_ascii());
        }
        reading
            .line(number, &whole)
            .map_err(|problem| (number, problem))?;
    }
    Ok(reading.rules.into_vec())
}

/// A line without the backslash at its end that says that the next one belongs to it.
fn continued(line: &[u8]) -> Option<&[u8]> {
    let front = line.strip_suffix(b"\\")?;
    // Two are one that stands for itself.
    let before = front
        .iter()
        .rev()
        .take_while(|&&byte| byte == b'\\')
        .count();
    (before % 2 == 0).then_some(front)
}

#[derive(Default)]
struct Reading {
    rules: Rules,
    defaults: Keywords,
    /// The directory that names are in, as names from the root; `None` before the first entry.
    inside: Option<Vec<Box<[u8]>>>,
}

impl Reading {
    fn line(&mut self, number: u32, line: &[u8]) -> Parsed<()> {
        let mut words = fields(line);
        let first = words.next().unwrap_or_default();
        match first {
            b"/set" => return words.try_for_each(|word| self.defaults.take(word)),
            b"/unset" => return words.try_for_each(|word| self.defaults.forget(word)),
            b".." => {
                let inside = self.inside.as_mut().filter(|inside| !inside.is_empty());
                let inside = inside.ok_or("leaves the root with ..")?;
                inside.pop();
                return Ok(());
            }
            _ if first.starts_with(b"/") => {
                return Err(format!(
                    "{} is no command: /set and /unset are",
                    shown(first)
                ));
            }
            _ => {}
        }
        let mut keywords = self.defaults.clone();
        words.try_for_each(|word| keywords.take(word))?;
        let name = decode(first)?;
        let path = if name.contains(&b'/') {
            clean_path(&name)?
        } else {
            self.go(&name, keywords.kind)?
        };
        self.rules.push(keywords.rule(number, path)?)
    }

    /// The path of a relative name, into which the reading goes if it is a directory.
    fn go(&mut self, name: &[u8], kind: Option<FileType>) -> Parsed<Box<[u8]>> {
        let kind = kind.ok_or("has no type=, which says whether what follows is inside of it")?;
        let inside = self.inside.get_or_insert_default();
        if name == b"." {
            return if inside.is_empty() {
                Ok(Box::default())
            } else {
                Err("`.` is the root, and stands at the beginning".to_owned())
            };
        }
        let name = clean_path(name)?;
        let mut path = inside.join(&b'/');
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        check_length(path.len(), &path)?;
        if kind == FileType::Directory {
            inside.push(name);
        }
        Ok(path.into_boxed_slice())
    }
}

/// What an entry says.
#[derive(Default, Clone)]
struct Keywords {
    kind: Option<FileType>,
    uid: Option<u32>,
    gid: Option<u32>,
    uname: Option<Box<[u8]>>,
    gname: Option<Box<[u8]>>,
    mode: Option<u16>,
    time: Option<Timestamp>,
    flags: Option<u32>,
    device: Option<(u32, u32)>,
    link: Option<Box<[u8]>>,
    optional: bool,
    nochange: bool,
}

impl Keywords {
    fn take(&mut self, word: &[u8]) -> Parsed<()> {
        let Some(at) = word.iter().position(|&byte| byte == b'=') else {
            match word {
                b"optional" => self.optional = true,
                b"nochange" => self.nochange = true,
                b"ignore" => {}
                _ => return Err(unknown(word)),
            }
            return Ok(());
        };
        let (key, value) = (&word[..at], &word[at + 1..]);
        match key {
            b"type" => self.kind = Some(kind_of(value)?),
            b"uid" => self.uid = Some(id("uid", value)?),
            b"gid" => self.gid = Some(id("gid", value)?),
            b"uname" => self.uname = Some(account(value)?),
            b"gname" => self.gname = Some(account(value)?),
            b"mode" => self.mode = Some(mode(value)?),
            b"time" => self.time = Some(time(value)?),
            b"flags" => self.flags = Some(flags(value)?),
            b"device" => self.device = Some(device(value)?),
            b"link" => self.link = Some(target(value)?),
            key if COMPARED.iter().any(|known| known.as_bytes() == key) => {}
            key => return Err(unknown(key)),
        }
        Ok(())
    }

    fn forget(&mut self, key: &[u8]) -> Parsed<()> {
        match key {
            b"all" => *self = Self::default(),
            b"type" => self.kind = None,
            b"uid" => self.uid = None,
            b"gid" => self.gid = None,
            b"uname" => self.uname = None,
            b"gname" => self.gname = None,
            b"mode" => self.mode = None,
            b"time" => self.time = None,
            b"flags" => self.flags = None,
            b"device" => self.device = None,
            b"link" => self.link = None,
            b"optional" => self.optional = false,
            b"nochange" => self.nochange = false,
            b"ignore" => {}
            key if COMPARED.iter().any(|known| known.as_bytes() == key) => {}
            key => return Err(unknown(key)),
        }
        Ok(())
    }

    fn rule(self, line: u32, path: Box<[u8]>) -> Parsed<Rule> {
        let absent = match self.kind {
            _ if self.optional => Absent::Ignore,
            Some(FileType::Directory) => Absent::Make(Make::Directory { parents: false }),
            Some(FileType::Fifo) => Absent::Make(Make::Fifo),
            Some(FileType::Socket) => Absent::Make(Make::Socket),
            Some(FileType::Symlink) => match &self.link {
                Some(target) => Absent::Make(Make::Symlink(target.clone())),
                None => Absent::Refuse,
            },
            Some(kind @ (FileType::CharDevice | FileType::BlockDevice)) => match self.device {
                Some((major, minor)) => Absent::Make(Make::Device { kind, major, minor }),
                None => Absent::Refuse,
            },
            Some(FileType::Regular) | None => Absent::Refuse,
        };
        let account = |number: Option<u32>, name: Option<Box<[u8]>>| {
            number.map(Account::Number).or(name.map(Account::Name))
        };
        let change = if self.nochange {
            Change::default()
        } else {
            Change {
                user: account(self.uid, self.uname),
                group: account(self.gid, self.gname),
                mode: self.mode,
                capabilities: None,
                flags: self.flags,
                modified: self.time,
            }
        };
        Ok(Rule {
            line,
            which: Which::Path(path),
            kind: self.kind.map_or(Kind::Any, Kind::Must),
            change,
            absent,
        })
    }
}

fn unknown(word: &[u8]) -> String {
    format!("{} is no keyword of mtree that is known here", shown(word))
}

fn kind_of(value: &[u8]) -> Parsed<FileType> {
    Ok(match value {
        b"file" => FileType::Regular,
        b"dir" => FileType::Directory,
        b"link" => FileType::Symlink,
        b"char" => FileType::CharDevice,
        b"block" => FileType::BlockDevice,
        b"fifo" => FileType::Fifo,
        b"socket" => FileType::Socket,
        _ => {
            return Err(format!(
                "type={} is no type",
                String::from_utf8_lossy(value)
            ));
        }
    })
}

/// Seconds, and behind a point nanoseconds as a number of their own.
fn time(value: &[u8]) -> Parsed<Timestamp> {
    let parse = || {
        let text = std::str::from_utf8(value).ok()?;
        let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
        let nanos: u32 = nanos.parse().ok().filter(|&nanos| nanos < 1_000_000_000)?;
        let secs = secs.parse().ok()?;
        Some(Timestamp { secs, nanos })
    };
    parse().ok_or_else(|| format!("time={} is no time", String::from_utf8_lossy(value)))
}

/// Names of `chflags(1)`, as flags of `chattr`.
fn flags(value: &[u8]) -> Parsed<u32> {
    if value == b"none" {
        return Ok(0);
    }
    let one = |name: &[u8]| match name {
        b"uappnd" | b"uappend" | b"sappnd" | b"sappend" => Ok(0x20),
        b"uchg" | b"uchange" | b"uimmutable" | b"schg" | b"schange" | b"simmutable" => Ok(0x10),
        b"nodump" => Ok(0x40),
        b"noatime" => Ok(0x80),
        b"sync" => Ok(0x8),
        b"dirsync" => Ok(0x1_0000),
        b"journal" | b"journal-data" => Ok(0x4000),
        b"notail" => Ok(0x8000),
        b"topdir" => Ok(0x2_0000),
        b"none" | b"dump" => Ok(0),
        name => Err(format!("ext4 has no flag {}", shown(name))),
    };
    value
        .split(|&byte| byte == b',')
        .try_fold(0, |all, name| Ok(all | one(name)?))
}

/// `FORMAT,MAJOR,MINOR` of Linux, or a number as Linux puts the two together.
fn device(value: &[u8]) -> Parsed<(u32, u32)> {
    let wrong = || {
        format!(
            "device={} is none such as native,5,1",
            String::from_utf8_lossy(value)
        )
    };
    let mut parts = value.split(|&byte| byte == b',');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(b"native" | b"linux"), Some(major), Some(minor), None) => {
            decimal(major).zip(decimal(minor)).ok_or_else(wrong)
        }
        (Some(number), None, None, None) => {
            let number = std::str::from_utf8(number).ok();
            let number: u64 = number
                .and_then(|text| text.parse().ok())
                .ok_or_else(wrong)?;
            Ok((rustix::fs::major(number), rustix::fs::minor(number)))
        }
        _ => Err(wrong()),
    }
}

/// The name of an account.
fn account(value: &[u8]) -> Parsed<Box<[u8]>> {
    let name = decode(value)?;
    check_account(&name)?;
    Ok(name.into_boxed_slice())
}

/// The target of a link.
fn target(value: &[u8]) -> Parsed<Box<[u8]>> {
    let target = decode(value)?;
    check_length(target.len(), &target)?;
    Ok(target.into_boxed_slice())
}

/// A name or a target without the escapes of `vis(3)`.
fn decode(text: &[u8]) -> Parsed<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        if let Some(byte) = octal_byte(tail) {
            bytes.push(byte);
            rest = &tail[3..];
            continue;
        }
        let (byte, after) = match tail {
            [b'\\', after @ ..] => (b'\\', after),
            [b's', after @ ..] => (b' ', after),
            [b't', after @ ..] => (b'\t', after),
            [b'n', after @ ..] => (b'\n', after),
            [b'r', after @ ..] => (b'\r', after),
            [b'a', after @ ..] => (0x07, after),
            [b'b', after @ ..] => (0x08, after),
            [b'v', after @ ..] => (0x0b, after),
            [b'f', after @ ..] => (0x0c, after),
            [b'E', after @ ..] => (0x1b, after),
            [
                byte @ (b'#' | b'*' | b'?' | b'[' | b'"' | b'\'' | b'$'),
                after @ ..,
            ] => (*byte, after),
            [b'M', b'-', byte, after @ ..] => (byte | 0x80, after),
            [b'M', b'^', byte, after @ ..] => (control(*byte) | 0x80, after),
            [b'^', byte, after @ ..] => (control(*byte), after),
            _ => {
                return Err(format!(
                    "{} has a backslash that is followed by neither three octal digits nor an escape of vis(3)",
                    shown(text)
                ));
            }
        };
        bytes.push(byte);
        rest = after;
    }
    Ok(bytes)
}

/// The control character that is written with this one.
const fn control(byte: u8) -> u8 {
    if byte == b'?' { 0x7f } else { byte & 0x1f }
}
