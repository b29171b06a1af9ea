//! The 512 bytes before each member, and the records of extended headers.
//!
//! Source: the POSIX page on `pax`, "ustar Interchange Format" and "pax Extended Header".

/// Size of every unit of an archive.
pub(super) const UNIT: usize = 512;

/// Type flags.
pub(super) mod kind {
    pub(in super::super) const FILE: u8 = b'0';
    pub(in super::super) const HARD_LINK: u8 = b'1';
    pub(in super::super) const SYMLINK: u8 = b'2';
    pub(in super::super) const CHAR_DEVICE: u8 = b'3';
    pub(in super::super) const BLOCK_DEVICE: u8 = b'4';
    pub(in super::super) const DIRECTORY: u8 = b'5';
    pub(in super::super) const FIFO: u8 = b'6';
    pub(in super::super) const EXTENDED: u8 = b'x';
}

/// What a header says. What does not fit is cut, and has to be in the extended header as well.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a> {
    pub(super) path: &'a [u8],
    pub(super) link: &'a [u8],
    pub(super) kind: u8,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    pub(super) mtime: i64,
    pub(super) device: (u32, u32),
}

/// Most bytes of a path or link target in a header.
pub(super) const NAME_LEN: usize = 100;
/// Largest number that eight bytes hold: seven octal digits.
pub(super) const SEVEN_DIGITS: u64 = 0o7_777_777;
/// Largest number that twelve bytes hold: eleven octal digits.
pub(super) const ELEVEN_DIGITS: u64 = 0o77_777_777_777;

impl Header<'_> {
    pub(super) fn encode(&self) -> [u8; UNIT] {
        let mut block = [0; UNIT];
        put(&mut block, 0, NAME_LEN, self.path);
        octal(&mut block, 100, 8, self.mode.into());
        octal(&mut block, 108, 8, self.uid.into());
        octal(&mut block, 116, 8, self.gid.into());
        octal(&mut block, 124, 12, self.size);
        octal(&mut block, 136, 12, u64::try_from(self.mtime).unwrap_or(0));
        put(&mut block, 148, 8, b"        ");
        put(&mut block, 156, 1, &[self.kind]);
        put(&mut block, 157, NAME_LEN, self.link);
        put(&mut block, 257, 8, b"ustar\x0000");
        octal(&mut block, 329, 8, self.device.0.into());
        octal(&mut block, 337, 8, self.device.1.into());
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        put(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

fn put(block: &mut [u8; UNIT], at: usize, len: usize, bytes: &[u8]) {
    for (to, from) in block.iter_mut().skip(at).take(len).zip(bytes) {
        *to = *from;
    }
}

/// A number in octal digits and a zero byte; the largest one that fits in place of larger ones.
fn octal(block: &mut [u8; UNIT], at: usize, len: usize, number: u64) {
    let most = (1u64 << (3 * (len - 1))) - 1;
    let width = len - 1;
    let text = format!("{:0width$o}", number.min(most));
    put(block, at, len, text.as_bytes());
}

/// Records of an extended header.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<u8>);

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Adds `<length> <key>=<value>\n`; the length counts itself.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + digits(len) {
            len = rest + digits(len);
        }
        self.0.extend_from_slice(len.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

fn digits(number: usize) -> usize {
    number.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_its_own_digits() {
        for len in [
            0, 1, 85, 86, 87, 88, 89, 90, 91, 985, 986, 987, 988, 989, 990,
        ] {
            let mut records = Records::default();
            records.push(b"key", &vec![b'v'; len]);
            let text = String::from_utf8(records.0).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(
                length.parse::<usize>().unwrap(),
                text.len(),
                "value of {len}"
            );
        }
    }

    #[test]
    fn the_checksum_is_the_sum_with_spaces_in_its_place() {
        let header = Header {
            path: b"a",
            link: b"",
            kind: kind::FILE,
            mode: 0o644,
            uid: 1,
            gid: 2,
            size: 3,
            mtime: 4,
            device: (0, 0),
        };
        let mut block = header.encode();
        let stored =
            u32::from_str_radix(std::str::from_utf8(&block[148..154]).unwrap(), 8).unwrap();
        block[148..156].fill(b' ');
        assert_eq!(stored, block.iter().map(|&b| u32::from(b)).sum::<u32>());
        assert_eq!(&block[124..136], b"00000000003\0");
    }
}
