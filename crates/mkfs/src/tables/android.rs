//! Android's `fs_config` tables, which `canned_fs_config` reads: `PATH UID GID MODE
//! [capabilities=MASK]`.
//!
//! A path has no leading `/`; the root is an empty path (a line that begins with a space) or `/`.
//! The last line for a path counts, and every file has to have one. Other words, such as
//! `selabel=`, are passed over, as Android's programs do.

use super::capabilities::Capabilities;
use super::error::{AtLine, Parsed};
use super::rule::{Absent, Account, Change, Kind, Rule, Which};
use super::text::{clean_path, fields, id, is_decimal, is_octal, lines, mode, shown};

/// Whether a line has the form of this dialect.
pub(super) fn fits(line: &[u8]) -> bool {
    let (_, rest) = split_path(line);
    let mut words = fields(rest);
    let numbers = [words.next(), words.next()];
    numbers.iter().all(|word| word.is_some_and(is_decimal))
        && words.next().is_some_and(is_octal)
        && words.all(|word| word.contains(&b'='))
}

/// Parses a table.
pub(super) fn parse(text: &[u8]) -> Result<Vec<Rule>, AtLine> {
    lines(text)
        .filter(|(_, line)| fields(line).next().is_some())
        .map(|(number, content)| line(number, content).map_err(|problem| (number, problem)))
        .collect()
}

/// The path of a line, and what follows it.
fn split_path(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(u8::is_ascii_whitespace);
    line.split_at(end.unwrap_or(line.len()))
}

fn line(number: u32, content: &[u8]) -> Parsed<Rule> {
    let (path, rest) = split_path(content);
    let mut words = fields(rest);
    let (Some(user), Some(group), Some(bits)) = (words.next(), words.next(), words.next()) else {
        return Err("has fewer than four fields: PATH UID GID MODE are needed".to_owned());
    };
    let mut mask = 0;
    for word in words {
        if let Some(value) = word.strip_prefix(b"capabilities=") {
            mask = self::mask(value)?;
            break;
        }
    }
    Ok(Rule {
        line: number,
        which: Which::Path(clean_path(path)?),
        kind: Kind::Any,
        change: Change {
            user: Some(Account::Number(id("uid", user)?)),
            group: Some(Account::Number(id("gid", group)?)),
            mode: Some(mode(bits)?),
            capabilities: Some(Capabilities::of_mask(mask)),
            ..Change::default()
        },
        absent: Absent::Ignore,
    })
}

/// A number as C writes it: 0x in front of hexadecimal, 0 of octal.
fn mask(value: &[u8]) -> Parsed<u64> {
    let wrong = || format!("capabilities={} is no number such as 0x2000", shown(value));
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| wrong())
}
