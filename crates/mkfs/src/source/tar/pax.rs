//! Extended headers of POSIX.1-2001 and the keywords programs have added to them.

use super::super::model::{Timestamp, Xattr};
use super::{Checked, acl};

/// Most extended attributes of one member; far beyond what any program makes.
const XATTRS_MAX: usize = 4096;

/// What the extended headers of one member say.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Timestamp>,
    pub(super) atime: Option<Timestamp>,
    pub(super) ctime: Option<Timestamp>,
    pub(super) crtime: Option<Timestamp>,
    pub(super) device_major: Option<u64>,
    pub(super) device_minor: Option<u64>,
    pub(super) xattrs: Vec<Xattr>,
    pub(super) sparse: SparseKeys,
}

/// The `GNU.sparse.*` keywords of versions 0.0, 0.1 and 1.0.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseKeys {
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) major: Option<u64>,
    pub(super) minor: Option<u64>,
    /// Offsets and lengths, alternating (0.0 and 0.1).
    pub(super) map: Option<Vec<u64>>,
}

impl Pax {
    /// Adds the records of one extended header; a later record replaces an earlier one.
    pub(super) fn merge(&mut self, bytes: &[u8]) -> Checked<()> {
        let mut rest = bytes;
        // Some programs pad with NULs.
        while !rest.is_empty() && rest[0] != 0 {
            let (key, value, after) = split_record(rest)?;
            self.record(key, value)?;
            rest = after;
        }
        Ok(())
    }

    /// These records where given, the `global` ones elsewhere.
    pub(super) fn over(self, global: &Self) -> Self {
        let g = global.clone();
        let mut xattrs = g.xattrs;
        xattrs.extend(self.xattrs);
        Self {
            path: self.path.or(g.path),
            link: self.link.or(g.link),
            size: self.size.or(g.size),
            uid: self.uid.or(g.uid),
            gid: self.gid.or(g.gid),
            mtime: self.mtime.or(g.mtime),
            atime: self.atime.or(g.atime),
            ctime: self.ctime.or(g.ctime),
            crtime: self.crtime.or(g.crtime),
            device_major: self.device_major.or(g.device_major),
            device_minor: self.device_minor.or(g.device_minor),
            xattrs,
            sparse: self.sparse,
        }
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> Checked<()> {
        match key {
            b"path" => self.path = bytes(value),
            b"linkpath" => self.link = bytes(value),
            b"size" => self.size = decimal(key, value)?,
            b"uid" => self.uid = decimal(key, value)?,
            b"gid" => self.gid = decimal(key, value)?,
            b"mtime" => self.mtime = time(key, value)?,
            b"atime" => self.atime = time(key, value)?,
            b"ctime" => self.ctime = time(key, value)?,
            b"LIBARCHIVE.creationtime" => self.crtime = time(key, value)?,
            b"SCHILY.devmajor" => self.device_major = decimal(key, value)?,
            b"SCHILY.devminor" => self.device_minor = decimal(key, value)?,
            b"SCHILY.acl.access" => self.acl(acl::ACCESS, value)?,
            b"SCHILY.acl.default" => self.acl(acl::DEFAULT, value)?,
            b"RHT.security.selinux" => self.xattr(b"security.selinux", value)?,
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(&unescape(name, b"=%"), value)?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let value = base64(value).ok_or_else(|| bad(key, value, "base64"))?;
                    self.xattr(&unescape(name, &[]), &value)?;
                } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.record(name, key, value)?;
                }
            }
        }
        Ok(())
    }

    fn xattr(&mut self, name: &[u8], value: &[u8]) -> Checked<()> {
        if self.xattrs.len() >= XATTRS_MAX {
            return Err(format!("more than {XATTRS_MAX} extended attributes").into());
        }
        self.xattrs.push(Xattr {
            name: Box::from(name),
            value: value.into(),
        });
        Ok(())
    }

    fn acl(&mut self, name: &[u8], text: &[u8]) -> Checked<()> {
        if let Some(value) = acl::encode(text)? {
            self.xattr(name, &value)?;
        }
        Ok(())
    }
}

impl SparseKeys {
    fn record(&mut self, name: &[u8], key: &[u8], value: &[u8]) -> Checked<()> {
        match name {
            b"name" => self.name = bytes(value),
            b"size" | b"realsize" => self.size = decimal(key, value)?,
            b"major" => self.major = decimal(key, value)?,
            b"minor" => self.minor = decimal(key, value)?,
            b"numblocks" => {
                self.map.get_or_insert_default();
            }
            b"offset" | b"numbytes" => {
                let map = self.map.get_or_insert_default();
                if map.len().is_multiple_of(2) != (name == b"offset") {
                    return Err("GNU.sparse.offset and GNU.sparse.numbytes do not alternate".into());
                }
                map.extend(decimal(key, value)?);
            }
            b"map" => {
                let numbers = value.split(|&b| b == b',').filter(|n| !n.is_empty());
                let map = numbers
                    .map(|n| decimal(key, n).map(Option::unwrap_or_default))
                    .collect::<Checked<_>>()?;
                self.map = Some(map);
            }
            _ => {}
        }
        Ok(())
    }
}

/// Splits `LENGTH KEY=VALUE\n`, LENGTH counting all of it, off the front.
fn split_record(bytes: &[u8]) -> Checked<(&[u8], &[u8], &[u8])> {
    let parsed = || {
        let space = bytes.iter().take(20).position(|&b| b == b' ')?;
        let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let record = bytes.get(space + 1..len)?;
        let record = record.strip_suffix(b"\n")?;
        let equals = record.iter().position(|&b| b == b'=')?;
        Some((&record[..equals], &record[equals + 1..], &bytes[len..]))
    };
    parsed().ok_or_else(|| {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        format!("malformed record in an extended header: {start:?}").into()
    })
}

/// An empty value takes back what a global header said; here it counts as not said.
fn bytes(value: &[u8]) -> Option<Vec<u8>> {
    (!value.is_empty()).then(|| value.to_vec())
}

fn bad(key: &[u8], value: &[u8], expected: &str) -> super::Problem {
    let key = String::from_utf8_lossy(key);
    let value = String::from_utf8_lossy(&value[..value.len().min(60)]);
    format!("{key} is {value:?}, expected {expected}").into()
}

fn decimal(key: &[u8], value: &[u8]) -> Checked<Option<u64>> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_decimal(value)
        .map(Some)
        .ok_or_else(|| bad(key, value, "a number of at most 63 bits"))
}

/// Decimal digits and nothing else.
pub(super) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let n: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (n <= i64::MAX as u64).then_some(n)
}

/// Seconds with an optional sign and fraction; digits beyond nanoseconds are dropped.
fn time(key: &[u8], value: &[u8]) -> Checked<Option<Timestamp>> {
    if value.is_empty() {
        return Ok(None);
    }
    parse_time(value)
        .map(Some)
        .ok_or_else(|| bad(key, value, "seconds with an optional fraction"))
}

fn parse_time(value: &[u8]) -> Option<Timestamp> {
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let dot = digits.iter().position(|&b| b == b'.');
    let (whole, fraction) = match dot {
        Some(dot) => (&digits[..dot], &digits[dot + 1..]),
        None => (digits, [].as_slice()),
    };
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nsec = (0..9).fold(0u32, |n, i| {
        n * 10 + u32::from(fraction.get(i).copied().unwrap_or(b'0') - b'0')
    });
    let sec = i64::try_from(parse_decimal(whole)?).ok()?;
    Some(match (negative, nsec) {
        (false, nsec) => Timestamp {
            secs: sec,
            nanos: nsec,
        },
        (true, 0) => Timestamp {
            secs: -sec,
            nanos: 0,
        },
        // Nanoseconds count forward, also before the epoch.
        (true, nsec) => Timestamp {
            secs: -sec - 1,
            nanos: 1_000_000_000 - nsec,
        },
    })
}

/// Undoes `%XX`: of all bytes, or of those in `only` if there are any.
fn unescape(text: &[u8], only: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let byte = match rest {
            [b'%', hi, lo, ..] => std::str::from_utf8(&[*hi, *lo])
                .ok()
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
                .filter(|byte| only.is_empty() || only.contains(byte)),
            _ => None,
        };
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &rest[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// Decodes base64, with or without its final `=`.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let end = text.iter().rposition(|&b| b != b'=').map_or(0, |i| i + 1);
    let mut out = Vec::with_capacity(end / 4 * 3 + 2);
    for chunk in text[..end].chunks(4) {
        let mut word = 0u32;
        for &byte in chunk {
            let six = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            word = (word << 6) | u32::from(six);
        }
        match chunk.len() {
            4 => out.extend_from_slice(&word.to_be_bytes()[1..]),
            3 => out.extend_from_slice(&(word >> 2).to_be_bytes()[2..]),
            2 => out.push((word >> 4) as u8),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_signs_and_fractions() {
        let t = |s: &str| parse_time(s.as_bytes()).map(|t| (t.secs, t.nanos));
        assert_eq!(t("12"), Some((12, 0)));
        assert_eq!(t("12.5"), Some((12, 500_000_000)));
        assert_eq!(t("12.0000000019"), Some((12, 1)));
        assert_eq!(t("-1.25"), Some((-2, 750_000_000)));
        assert_eq!(t("-3"), Some((-3, 0)));
        for bad in ["", "-", "x", "1.x", "1e5", ".5", "99999999999999999999"] {
            assert_eq!(t(bad), None, "{bad}");
        }
    }

    #[test]
    fn values_hold_any_byte() {
        let mut pax = Pax::default();
        pax.merge(b"30 SCHILY.xattr.user.a%3Db=\0\n\n").unwrap();
        assert_eq!(&*pax.xattrs[0].name, b"user.a=b");
        assert_eq!(&*pax.xattrs[0].value, b"\0\n");
        pax.merge(b"35 LIBARCHIVE.xattr.user.x%20=AAEC\n").unwrap();
        assert_eq!(&*pax.xattrs[1].name, b"user.x ");
        assert_eq!(&*pax.xattrs[1].value, [0, 1, 2]);
        for bad in [
            b"5 a=b\n".as_slice(),
            b"99 a=b\n",
            b"6 abc\n",
            b"x a=b\n",
            b"6 a=bc",
            b"0 a=b\n",
            b"12 size=-0001\n",
        ] {
            assert!(Pax::default().merge(bad).is_err(), "{bad:?}");
        }
    }
}
