//! The 512-byte header.

use super::super::model::Timestamp;
use super::{Checked, Problem};

/// Everything in an archive comes in blocks of this many bytes.
pub(super) const BLOCK: usize = 512;

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    /// A type that POSIX does not know: it says to take the member for a regular file.
    Unknown(u8),
    /// A regular file with a sparse map in the header (GNU).
    OldSparse,
    HardLink,
    Symlink,
    CharDevice,
    BlockDevice,
    Directory,
    /// A directory that has data (a list of names), of no interest here.
    DumpDirectory,
    Fifo,
    /// `L`, `K`, `x`, `g`: about what follows.
    Extension(u8),
    /// A volume's name.
    Label,
}

/// A header, its numbers parsed and its checksum right.
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u16,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) size: u64,
    pub(super) mtime: i64,
    /// Old GNU archives only.
    pub(super) atime: Option<Timestamp>,
    pub(super) ctime: Option<Timestamp>,
    pub(super) device: (u64, u64),
    /// The block itself, for the sparse map in it.
    pub(super) block: Box<[u8; BLOCK]>,
}

impl Header {
    pub(super) fn parse(block: &[u8; BLOCK]) -> Checked<Self> {
        check_sum(block)?;
        let gnu = &block[257..265] == b"ustar  \0";
        let posix = !gnu && &block[257..262] == b"ustar";
        let device = (gnu || posix)
            .then(|| -> Checked<_> {
                Ok((
                    unsigned("devmajor", &block[329..337])?,
                    unsigned("devminor", &block[337..345])?,
                ))
            })
            .transpose()?;
        let time = |field, bytes| -> Checked<_> {
            let sec = number(field, bytes)?;
            Ok(Some(Timestamp::from_secs(sec)).filter(|_| gnu && sec != 0))
        };
        let (atime, ctime) = if gnu {
            (
                time("atime", &block[345..357])?,
                time("ctime", &block[357..369])?,
            )
        } else {
            (None, None)
        };
        let kind = kind(block[156])?;
        let size = unsigned("size", &block[124..136])?;
        Ok(Self {
            kind,
            name: name(block, posix),
            link: text(&block[157..257]).to_vec(),
            mode: (number("mode", &block[100..108])? & 0o7777) as u16,
            uid: unsigned("uid", &block[108..116])?,
            gid: unsigned("gid", &block[116..124])?,
            size: if has_data(kind) { size } else { 0 },
            mtime: number("mtime", &block[136..148])?,
            atime,
            ctime,
            device: device.unwrap_or((0, 0)),
            block: Box::new(*block),
        })
    }
}

/// Archives give links and special files a size now and then, but never data.
fn has_data(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Regular
            | Kind::Unknown(_)
            | Kind::OldSparse
            | Kind::DumpDirectory
            | Kind::Extension(_)
            | Kind::Label
    )
}

fn kind(flag: u8) -> Checked<Kind> {
    Ok(match flag {
        b'0' | 0 | b'7' => Kind::Regular,
        b'1' => Kind::HardLink,
        b'2' => Kind::Symlink,
        b'3' => Kind::CharDevice,
        b'4' => Kind::BlockDevice,
        b'5' => Kind::Directory,
        b'6' => Kind::Fifo,
        b'D' => Kind::DumpDirectory,
        b'S' => Kind::OldSparse,
        b'L' | b'K' | b'x' | b'g' => Kind::Extension(flag),
        b'X' => Kind::Extension(b'x'),
        b'V' => Kind::Label,
        b'M' => return Err("a part of an archive of several volumes".into()),
        other => Kind::Unknown(other),
    })
}

fn name(block: &[u8; BLOCK], posix: bool) -> Vec<u8> {
    let name = text(&block[..100]);
    let prefix = text(&block[345..500]);
    if posix && !prefix.is_empty() {
        [prefix, name].join(&b'/')
    } else {
        name.to_vec()
    }
}

/// The bytes of a field up to a NUL.
fn text(field: &[u8]) -> &[u8] {
    field.split(|&b| b == 0).next().unwrap_or_default()
}

/// The sum of all bytes, those of its own field taken as spaces. Some old programs took bytes
/// as signed.
fn check_sum(block: &[u8; BLOCK]) -> Checked<()> {
    let stored = number("checksum", &block[148..156])?;
    let spaces = &[b' '; 8];
    let (mut unsigned, mut signed) = (0, 0);
    for part in [&block[..148], spaces, &block[156..]] {
        // Sums of 32 bits, which compile to vector code.
        let sum: u32 = part.iter().map(|byte| u32::from(*byte)).sum();
        let high: u32 = part.iter().map(|byte| u32::from(byte >> 7)).sum();
        unsigned += i64::from(sum);
        signed += i64::from(sum) - (i64::from(high) << 8);
    }
    if stored == unsigned || stored == signed {
        Ok(())
    } else {
        Err(format!(
            "header checksum is {stored:#o}, expected {unsigned:#o} (not a tar header, or damaged)"
        )
        .into())
    }
}

/// A number that cannot be negative.
pub(super) fn unsigned(field: &'static str, bytes: &[u8]) -> Checked<u64> {
    let n = number(field, bytes)?;
    u64::try_from(n).map_err(|_| format!("{field} is {n}, expected 0 or more").into())
}

/// A number: octal digits between spaces and NULs, or binary if the first bit is set.
pub(super) fn number(field: &'static str, bytes: &[u8]) -> Checked<i64> {
    let too_large = || Problem::from(format!("{field} does not fit 63 bits"));
    if let [first @ (0x80 | 0xff), rest @ ..] = bytes {
        let negative = *first == 0xff;
        let fill = if negative { 0xff } else { 0 };
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        let mut word = [fill; 8];
        word[8 - low.len()..].copy_from_slice(low);
        let n = i64::from_be_bytes(word);
        // A field of 8 bytes has 7 of the number: then the first byte's sign is the fill.
        if high.iter().any(|&b| b != fill) || (n < 0) != negative {
            return Err(too_large());
        }
        return Ok(n);
    }
    let digits = bytes.trim_ascii_start();
    let end = digits
        .iter()
        .position(|&b| b == 0 || b == b' ')
        .unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if rest.iter().any(|&b| b != 0 && b != b' ') && !digits.is_empty() {
        return Err(not_a_number(field, bytes));
    }
    let mut n = 0i64;
    for &digit in digits {
        if !(b'0'..=b'7').contains(&digit) {
            return Err(not_a_number(field, bytes));
        }
        n = n
            .checked_mul(8)
            .and_then(|n| n.checked_add(i64::from(digit - b'0')))
            .ok_or_else(too_large)?;
    }
    Ok(n)
}

fn not_a_number(field: &'static str, bytes: &[u8]) -> Problem {
    let text = String::from_utf8_lossy(bytes);
    format!("{field} is {text:?}, expected octal digits").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_octal_and_binary() {
        let n = |bytes: &[u8]| number("n", bytes).ok();
        assert_eq!(n(b"0000644\0"), Some(0o644));
        assert_eq!(n(b"   644 \0"), Some(0o644));
        assert_eq!(n(b"77777777"), Some(0o77_777_777));
        assert_eq!(n(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(n(b"0000648\0"), None);
        assert_eq!(n(b"64 4   \0"), None);
        assert_eq!(n(b"\x80\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(n(b"\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(
            n(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff"),
            Some(i64::MAX)
        );
        assert_eq!(n(b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(n(b"\x80\0\0\x01\0\0\0\0\0\0\0\0"), None);
        assert!(unsigned("n", b"\xff\xff\xff\xff\xff\xff\xff\xfe").is_err());
    }
}
