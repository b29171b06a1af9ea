//! Lines of lists of digests, as coreutils and BSD write them.

use super::sum::{length_of, name_of};
use crate::args::Algorithm;
use clap::ValueEnum;

/// A line of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) algorithm: Algorithm,
    /// In hexadecimal, in small letters.
    pub(super) digest: String,
    pub(super) name: Vec<u8>,
}

/// A name as it stands in a list, and the mark in front of a line whose name has escapes.
pub(super) fn escaped(name: &[u8]) -> (&'static str, Vec<u8>) {
    if !name
        .iter()
        .any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'))
    {
        return ("", name.to_vec());
    }
    let mut out = Vec::with_capacity(name.len() + 8);
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            byte => out.push(byte),
        }
    }
    ("\\", out)
}

/// Reads a line. The algorithm is the one that is `asked` for, that a BSD line names, or the one
/// whose digests have this length.
pub(super) fn read(line: &[u8], asked: Option<Algorithm>) -> Option<Entry> {
    let (has_escapes, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (algorithm, digest, name) = bsd(line).or_else(|| coreutils(line))?;
    let digest = std::str::from_utf8(digest).ok()?.to_ascii_lowercase();
    if !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let of_length = || {
        let all = Algorithm::value_variants().iter().copied();
        all.into_iter()
            .find(|known| length_of(*known) == digest.len())
    };
    let algorithm = asked.or(algorithm).or_else(of_length)?;
    let name = if has_escapes {
        unescaped(name)?
    } else {
        name.to_vec()
    };
    (length_of(algorithm) == digest.len() && !name.is_empty()).then_some(Entry {
        algorithm,
        digest,
        name,
    })
}

type Parts<'a> = (Option<Algorithm>, &'a [u8], &'a [u8]);

/// `DIGEST  NAME`, with `*` in place of the second space for binary files.
fn coreutils(line: &[u8]) -> Option<Parts<'_>> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let (digest, rest) = line.split_at(space);
    let name = rest
        .strip_prefix(b"  ")
        .or_else(|| rest.strip_prefix(b" *"))?;
    Some((None, digest, name))
}

/// `SHA256 (NAME) = DIGEST`.
fn bsd(line: &[u8]) -> Option<Parts<'_>> {
    let open = line.windows(2).position(|two| two == b" (")?;
    let close = line.windows(4).rposition(|four| four == b") = ")?;
    let word = std::str::from_utf8(line.get(..open)?).ok()?;
    let mut all = Algorithm::value_variants().iter().copied();
    let algorithm = all.find(|known| name_of(*known).eq_ignore_ascii_case(word))?;
    Some((
        Some(algorithm),
        line.get(close + 4..)?,
        line.get(open + 2..close)?,
    ))
}

fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_dialects_are_read() {
        let digest = "AB".repeat(32);
        for line in [
            format!("{digest}  /a b"),
            format!("{digest} */a b"),
            format!("SHA256 (/a b) = {digest}"),
        ] {
            let entry = read(line.as_bytes(), None).expect(&line);
            assert_eq!(entry.algorithm, Algorithm::Sha256);
            assert_eq!(entry.name, b"/a b");
            assert_eq!(entry.digest, "ab".repeat(32));
        }
        let line = format!("\\{digest}  a\\\\b\\nc");
        assert_eq!(read(line.as_bytes(), None).unwrap().name, b"a\\b\nc");
        assert_eq!(escaped(b"a\\b\nc"), ("\\", b"a\\\\b\\nc".to_vec()));
        for (line, asked) in [
            (format!("{digest} x"), None),
            (format!("{digest}  "), None),
            (format!("{digest}0  x"), None),
            (format!("{digest}  x"), Some(Algorithm::Md5)),
            (format!("\\{digest}  x\\q"), None),
            ("zz  x".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(read(line.as_bytes(), asked), None, "{line}");
        }
    }
}
