//! Tables as text: reading a file, its lines, its fields and numbers.

use super::error::{Parsed, TableError, TableResult};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of the largest table that is read.
const TABLE_MAX: u64 = 64 << 20;

/// Bytes of the longest path that a file can be named by, as Linux takes one.
pub(super) const PATH_MAX: usize = 4095;

/// Reads a whole table.
pub(super) fn read(path: &Path) -> TableResult<Vec<u8>> {
    let fail = |error| TableError::Io {
        path: path.to_owned(),
        error,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fail)?;
    file.take(TABLE_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > TABLE_MAX {
        return Err(TableError::table(
            path,
            "has more than 64 MiB, which no table of owners has",
        ));
    }
    Ok(bytes)
}

/// The lines of a text without their ends, numbered from 1.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    (1..).zip(
        text.split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line)),
    )
}

/// What white space separates.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
}

/// Whether a line says nothing.
pub(super) fn is_blank(line: &[u8]) -> bool {
    fields(line)
        .next()
        .is_none_or(|first| first.starts_with(b"#"))
}

/// Bytes as a person sees them.
pub(super) fn shown(bytes: &[u8]) -> String {
    // No character that is shown has more than four bytes.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(81 * 4)]);
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}

/// A decimal number that fits.
pub(super) fn decimal(field: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(field).ok()?;
    digits.parse().ok().filter(|_| !digits.starts_with('+'))
}

/// A user's or group's number.
pub(super) fn id(what: &str, field: &[u8]) -> Parsed<u32> {
    decimal(field).filter(|&id| id != u32::MAX).ok_or_else(|| {
        format!(
            "the {what} {} is not a number from 0 to {}",
            shown(field),
            u32::MAX - 1
        )
    })
}

/// Permission bits in octal.
pub(super) fn mode(field: &[u8]) -> Parsed<u16> {
    is_octal(field)
        .then(|| u32::from_str_radix(std::str::from_utf8(field).ok()?, 8).ok())
        .flatten()
        .and_then(|bits| u16::try_from(bits).ok())
        .filter(|&bits| bits <= 0o7777)
        .ok_or_else(|| {
            format!(
                "the mode {} is not octal digits up to 7777, such as 0755",
                shown(field)
            )
        })
}

/// Whether there are octal digits alone.
pub(super) fn is_octal(field: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(|byte| (b'0'..=b'7').contains(byte))
}

/// Whether there are decimal digits alone.
pub(super) fn is_decimal(field: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(u8::is_ascii_digit)
}

/// A path of a table as names from the root, joined by `/`; empty for the root.
pub(super) fn clean_path(path: &[u8]) -> Parsed<Box<[u8]>> {
    let mut names = Vec::new();
    let mut len = 0;
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return Err(format!("the path {} has .. in it", shown(path))),
            _ if name.contains(&0) => {
                return Err(format!("the path {} has a NUL byte in it", shown(path)));
            }
            name if name.len() > extant_format::NAME_MAX => {
                return Err(format!(
                    "the path {} has a name of more than {} bytes in it",
                    shown(path),
                    extant_format::NAME_MAX
                ));
            }
            name => {
                len += name.len() + usize::from(len > 0);
                check_length(len, path)?;
                names.push(name);
            }
        }
    }
    Ok(names.join(&b'/').into_boxed_slice())
}

/// Refuses a path that has more bytes than one can have.
pub(super) fn check_length(len: usize, path: &[u8]) -> Parsed<()> {
    if len > PATH_MAX {
        return Err(format!(
            "the path {} has more than {PATH_MAX} bytes",
            shown(path)
        ));
    }
    Ok(())
}

/// The number of three octal digits, such as those behind a backslash.
pub(super) fn octal_byte(digits: &[u8]) -> Option<u8> {
    let digits = digits.get(..3).filter(|digits| is_octal(digits))?;
    u8::try_from(
        digits
            .iter()
            .fold(0_u32, |n, digit| n * 8 + u32::from(digit - b'0')),
    )
    .ok()
}
