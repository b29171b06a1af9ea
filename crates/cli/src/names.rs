//! What an image calls the owners of its files: its own `/etc/passwd` and `/etc/group`.

use extant::Filesystem;
use std::collections::HashMap;

/// Files of users and groups larger than this are not looked into: an image may be hostile.
const MOST_BYTES: u64 = 16 << 20;

/// The names of an image's users and groups.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) users: Table,
    pub(crate) groups: Table,
}

/// Names and numbers of one kind. Where several lines have the same, the first one counts, as for
/// the C library.
#[derive(Debug, Default)]
pub(crate) struct Table {
    names: HashMap<u32, Vec<u8>>,
    numbers: HashMap<Vec<u8>, u32>,
}

impl Names {
    /// Reads them. What is missing or cannot be read has no names: numbers stand for themselves
    /// then.
    pub(crate) fn of(fs: &Filesystem) -> Self {
        Self {
            users: Table::read(fs, "/etc/passwd"),
            groups: Table::read(fs, "/etc/group"),
        }
    }
}

impl Table {
    fn read(fs: &Filesystem, path: &str) -> Self {
        let is_small = |found: extant::Metadata| found.is_file() && found.len() <= MOST_BYTES;
        if fs.metadata(path).is_ok_and(is_small) {
            fs.read(path)
                .map(|text| Self::parse(&text))
                .unwrap_or_default()
        } else {
            Self::default()
        }
    }

    fn parse(text: &[u8]) -> Self {
        let mut table = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| *byte == b':');
            let (name, number) = (fields.next(), fields.nth(1).and_then(number));
            let (Some(name), Some(number)) = (name, number) else {
                continue;
            };
            if name.is_empty() || name.starts_with(b"#") {
                continue;
            }
            table.names.entry(number).or_insert_with(|| name.to_vec());
            table.numbers.entry(name.to_vec()).or_insert(number);
        }
        table
    }

    /// The name of a number, if it has one.
    pub(crate) fn name(&self, number: u32) -> Option<&[u8]> {
        self.names.get(&number).map(Vec::as_slice)
    }

    /// The name of a number, or the number where it has none.
    pub(crate) fn shown(&self, number: u32) -> Vec<u8> {
        match self.name(number) {
            Some(name) => name.to_vec(),
            None => number.to_string().into_bytes(),
        }
    }

    /// The number of a name, or the one that it is.
    pub(crate) fn number(&self, name: &[u8]) -> Option<u32> {
        self.numbers.get(name).copied().or_else(|| number(name))
    }
}

/// A number in decimal digits.
fn number(text: &[u8]) -> Option<u32> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_a_name_or_a_number_counts() {
        let table = Table::parse(
            b"root:x:0:0::/:/bin/sh\ntoor:x:0:0::/:\nroot:x:9:9::/:\n#no:x:5:\nbad\nx:y:z\nw:x:7\n",
        );
        assert_eq!(table.name(0), Some(&b"root"[..]));
        assert_eq!(table.number(b"toor"), Some(0));
        assert_eq!(table.number(b"root"), Some(0));
        assert_eq!(table.name(9), Some(&b"root"[..]));
        assert_eq!(table.number(b"12"), Some(12));
        assert_eq!(table.number(b"nobody"), None);
        assert_eq!(table.name(5), None);
        assert_eq!(table.shown(7), b"w");
        assert_eq!(table.shown(8), b"8");
    }
}
