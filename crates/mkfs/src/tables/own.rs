//! Extant's own tables: `PATTERN OWNER MODE [WORD...]`.
//!
//! * `PATTERN` is one of those of `--exclude`; a backslash and three octal digits are a byte.
//! * `OWNER` is `UID`, `UID:GID`, `:GID`, by number or name, or `-`.
//! * `MODE` is octal, or `-`.
//! * Words: `caps=TEXT`, `type=LETTER`, `optional`, and what is made where it is missing: `dir`,
//!   `fifo`, `socket`, `char=MAJOR:MINOR`, `block=MAJOR:MINOR`.

use super::capabilities::Capabilities;
use super::error::{AtLine, Parsed};
use super::rule::{Absent, Account, Change, Kind, Make, Rule, Which};
use super::text::{clean_path, decimal, fields, is_blank, lines, mode, octal_byte, shown};
use crate::source::FileType;
use crate::source::glob::PathGlob;

/// Whether a line has the form of this dialect.
pub(super) fn fits(line: &[u8]) -> bool {
    let mut words = fields(line);
    let (Some(_), Some(_), Some(third)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    (third == b"-" || super::text::is_octal(third)) && words.all(is_word)
}

/// Whether it is a word that may follow the mode.
fn is_word(word: &[u8]) -> bool {
    matches!(word, b"optional" | b"dir" | b"fifo" | b"socket")
        || [b"caps=".as_slice(), b"type=", b"char=", b"block="]
            .iter()
            .any(|key| word.starts_with(key))
}

/// Parses a table.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Rule>, AtLine> {
    lines(text)
        .filter(|(_, line)| !is_blank(line))
        .map(|(number, content)| line(number, content).map_err(|problem| (number, problem)))
        .collect()
}

fn line(number: u32, content: &[u8]) -> Parsed<Rule> {
    let mut words = fields(content);
    let (Some(pattern), Some(owner), Some(bits)) = (words.next(), words.next(), words.next())
    else {
        return Err("has fewer than three fields: PATTERN OWNER MODE are needed".to_owned());
    };
    let (user, group) = owners(owner)?;
    let mut change = Change {
        user,
        group,
        ..Change::default()
    };
    if bits != b"-" {
        change.mode = Some(mode(bits)?);
    }
    let which = which(pattern)?;
    let mut kind = Kind::Any;
    let mut made = None;
    let mut optional = false;
    for word in words {
        match split_key(word) {
            (b"optional", None) => optional = true,
            (b"dir", None) => made = Some((FileType::Directory, Make::Directory { parents: true })),
            (b"fifo", None) => made = Some((FileType::Fifo, Make::Fifo)),
            (b"socket", None) => made = Some((FileType::Socket, Make::Socket)),
            (b"char", Some(numbers)) => made = Some(device(FileType::CharDevice, numbers)?),
            (b"block", Some(numbers)) => made = Some(device(FileType::BlockDevice, numbers)?),
            (b"type", Some(letter)) => kind = Kind::Only(kind_of(letter)?),
            (b"caps", Some(b"none")) => change.capabilities = Some(Capabilities::default()),
            (b"caps", Some(text)) => {
                change.capabilities = Some(Capabilities::parse(text, Capabilities::default())?);
            }
            _ => {
                return Err(format!(
                    "{} is no word of this table: caps=, type=, optional, dir, fifo, socket, \
                     char=, block= are",
                    shown(word)
                ));
            }
        }
    }
    let is_path = !matches!(which, Which::Glob(_));
    if let Some((file_type, _)) = &made {
        if !is_path {
            return Err(format!(
                "the pattern {} cannot be made: give the whole path, from / on",
                shown(pattern)
            ));
        }
        if kind != Kind::Any {
            return Err("type= says twice what is made".to_owned());
        }
        kind = Kind::Must(*file_type);
    }
    let absent = match made {
        _ if optional => Absent::Ignore,
        Some((_, make)) => Absent::Make(make),
        None if is_path => Absent::Refuse,
        None => Absent::Warn,
    };
    Ok(Rule {
        line: number,
        which,
        kind,
        change,
        absent,
    })
}

fn which(pattern: &[u8]) -> Parsed<Which> {
    let pattern = unescape(pattern);
    if pattern.iter().all(|&byte| byte == b'/') {
        return Ok(Which::Path(Box::default()));
    }
    let wrong = |problem| format!("the pattern {} {problem}", shown(&pattern));
    let glob = PathGlob::parse(&pattern).map_err(wrong)?;
    match glob.literal_path() {
        Some(names) if !glob.directories_only() => {
            let path = names.join(&b'/');
            // Names that no file has are told.
            clean_path(&path).map(Which::Path)
        }
        _ => Ok(Which::Glob(glob)),
    }
}

/// Puts bytes in the place of octal digits behind a backslash, so that none is special.
fn unescape(pattern: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match octal_byte(tail).filter(|_| *first == b'\\') {
            Some(byte) => {
                if b"*?[]\\".contains(&byte) {
                    bytes.push(b'\\');
                }
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                // What a backslash is before is taken with it.
                if let (b'\\', [next, after @ ..]) = (first, tail) {
                    bytes.push(*next);
                    rest = after;
                }
            }
        }
    }
    bytes
}

type Owners = (Option<Account>, Option<Account>);

fn owners(field: &[u8]) -> Parsed<Owners> {
    if field == b"-" {
        return Ok((None, None));
    }
    let one = |field: &[u8]| match field {
        b"" | b"-" => Ok(None),
        field => Account::parse(field).map(Some),
    };
    match field.iter().position(|&byte| byte == b':') {
        None => Ok((one(field)?, None)),
        Some(at) => Ok((one(&field[..at])?, one(&field[at + 1..])?)),
    }
}

fn split_key(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    match word.iter().position(|&byte| byte == b'=') {
        None => (word, None),
        Some(at) => (&word[..at], Some(&word[at + 1..])),
    }
}

fn device(kind: FileType, numbers: &[u8]) -> Parsed<(FileType, Make)> {
    let mut parts = numbers.split(|&byte| byte == b':');
    let mut number = || parts.next().and_then(decimal);
    match (number(), number(), parts.next()) {
        (Some(major), Some(minor), None) => Ok((kind, Make::Device { kind, major, minor })),
        _ => Err(format!(
            "{} are no numbers of a device: write MAJOR:MINOR, such as 5:1",
            shown(numbers)
        )),
    }
}

fn kind_of(letter: &[u8]) -> Parsed<FileType> {
    Ok(match letter {
        b"f" => FileType::Regular,
        b"d" => FileType::Directory,
        b"l" => FileType::Symlink,
        b"c" => FileType::CharDevice,
        b"b" => FileType::BlockDevice,
        b"p" => FileType::Fifo,
        b"s" => FileType::Socket,
        _ => {
            return Err(format!(
                "type={} is none of f, d, l, c, b, p, s",
                String::from_utf8_lossy(letter)
            ));
        }
    })
}
