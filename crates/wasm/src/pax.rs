//! Headers and records of archives, byte by byte.
//!
//! Source: the POSIX page on `pax`, "ustar Interchange Format" and "pax Extended Header".

/// Size of every unit of an archive.
pub(crate) const UNIT: usize = 512;

/// Most bytes of a path or link target in a header.
pub(crate) const NAME_LEN: usize = 100;
/// Largest number that eight bytes hold: seven octal digits.
pub(crate) const SEVEN_DIGITS: u64 = 0o7_777_777;
/// Largest number that twelve bytes hold: eleven octal digits.
pub(crate) const ELEVEN_DIGITS: u64 = 0o77_777_777_777;

/// What a header says. What does not fit is cut, and has to be in the extended header as well.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Header<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) link: &'a [u8],
    /// The type flag.
    pub(crate) kind: u8,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    pub(crate) device: (u32, u32),
}

impl Header<'_> {
    pub(crate) fn encode(&self) -> [u8; UNIT] {
        let mut block = [0; UNIT];
        let mut put = |at: usize, len: usize, bytes: &[u8]| {
            let room = block.iter_mut().skip(at).take(len);
            for (to, from) in room.zip(bytes) {
                *to = *from;
            }
        };
        put(0, NAME_LEN, self.path);
        put(100, 8, &octal(8, self.mode.into()));
        put(108, 8, &octal(8, self.uid.into()));
        put(116, 8, &octal(8, self.gid.into()));
        put(124, 12, &octal(12, self.size));
        put(136, 12, &octal(12, u64::try_from(self.mtime).unwrap_or(0)));
        put(148, 8, b"        ");
        put(156, 1, &[self.kind]);
        put(157, NAME_LEN, self.link);
        put(257, 8, b"ustar\x0000");
        put(329, 8, &octal(8, self.device.0.into()));
        put(337, 8, &octal(8, self.device.1.into()));
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        let sum = format!("{sum:06o}\0 ");
        for (to, from) in block.iter_mut().skip(148).zip(sum.bytes()) {
            *to = from;
        }
        block
    }
}

/// A number in octal digits, one fewer than `len`; the largest one that fits for larger ones.
fn octal(len: usize, number: u64) -> Vec<u8> {
    let width = len - 1;
    let most = (1_u64 << (3 * width)) - 1;
    format!("{:0width$o}", number.min(most)).into_bytes()
}

/// Records of an extended header.
#[derive(Debug, Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds `<length> <key>=<value>\n`; the length counts its own digits.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut digits = 1;
        while (rest + digits).to_string().len() > digits {
            digits += 1;
        }
        self.0.extend((rest + digits).to_string().bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_its_own_digits() {
        for len in (0..120).chain(980..1010).chain(9985..10_000) {
            let mut records = Records::default();
            records.push(b"key", &vec![b'v'; len]);
            let text = String::from_utf8(records.0).expect("text");
            let (length, _) = text.split_once(' ').expect("a space");
            assert_eq!(length.parse(), Ok(text.len()), "value of {len}");
        }
    }

    #[test]
    fn the_checksum_is_the_sum_with_spaces_in_its_place() {
        let header = Header {
            path: b"a",
            kind: b'0',
            mode: 0o644,
            size: 3,
            ..Header::default()
        };
        let mut block = header.encode();
        let stored = std::str::from_utf8(&block[148..154]).expect("digits");
        let stored = u32::from_str_radix(stored, 8);
        block[148..156].fill(b' ');
        assert_eq!(stored, Ok(block.iter().map(|&b| u32::from(b)).sum::<u32>()));
        assert_eq!(&block[124..136], b"00000000003\0");
    }
}
