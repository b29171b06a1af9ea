//! Words for what can be chosen when a file system is made, as command lines and other programs
//! have them. An error is a clause that says what is wrong with a word, and what to write.

use crate::defaults::{InodeDensity, JournalSize};
use crate::image::Headroom;
use extant_format::BlockSize;

const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

/// Reads a number of bytes: `4096`, `64K`, `1.5G`, `16TiB`. Units are powers of 1024.
///
/// # Errors
/// A sentence about text that is none.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a size: write a number of bytes, or one with K, M, G or T (powers of \
             1024), such as 64M"
        )
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit
        .strip_suffix("iB")
        .or_else(|| unit.strip_suffix('B'))
        .unwrap_or(unit);
    let shift = match unit.chars().collect::<Vec<_>>()[..] {
        [] => 0,
        [letter] => UNITS
            .iter()
            .find(|(name, _)| *name == letter.to_ascii_uppercase())
            .map(|(_, shift)| *shift)
            .ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| format!("{text} is more bytes than any file can have"));
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
    if value.is_finite() && (0.0..9e18).contains(&value) && shift > 0 {
        Ok(value as u64)
    } else {
        Err(wrong())
    }
}

/// Reads free space that an image shall have: `64M`, `20%`.
///
/// # Errors
/// A sentence about text that is neither.
pub fn parse_headroom(text: &str) -> Result<Headroom, String> {
    match text.strip_suffix('%') {
        None => parse_size(text).map(Headroom::Bytes),
        Some(number) => number
            .parse::<f64>()
            .ok()
            .filter(|percent| (0.0..=10_000.0).contains(percent))
            .map(Headroom::Percent)
            .ok_or_else(|| format!("{text:?} is not a share: write one such as 20%")),
    }
}

/// Reads a UUID: 32 hexadecimal digits, with hyphens anywhere.
///
/// # Errors
/// A sentence about text that is none.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let wrong = || format!("{text:?} is not a UUID such as 7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e");
    let digits: Vec<u32> = text
        .chars()
        .filter(|&c| c != '-')
        .map(|c| c.to_digit(16).ok_or_else(wrong))
        .collect::<Result<_, _>>()?;
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, &digit| byte << 4 | digit as u8))
        .collect();
    match (digits.len(), <[u8; 16]>::try_from(bytes)) {
        (32, Ok(uuid)) => Ok(uuid),
        _ => Err(wrong()),
    }
}

/// Reads permissions: octal digits, such as `755`.
///
/// # Errors
/// A sentence about text that is none.
pub fn parse_mode(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|&mode| mode <= 0o7777)
        .ok_or_else(|| format!("{text:?} is not a mode: write octal digits, such as 755"))
}

/// Takes a number of bytes for the size of a block.
///
/// # Errors
/// A clause about a number that no block has.
pub fn block_size(bytes: u64) -> Result<BlockSize, String> {
    u32::try_from(bytes)
        .ok()
        .and_then(BlockSize::from_bytes)
        .ok_or_else(|| "use 1K, 2K, 4K, 8K, 16K, 32K or 64K".to_owned())
}

/// Takes a number of bytes for the size of an inode.
///
/// # Errors
/// A clause about a number that no inode has.
pub fn inode_size(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (128..=4096).contains(bytes))
        .ok_or_else(|| "use 128, 256, 512, 1024, 2048 or 4096".to_owned())
}

/// Takes a number for that of inodes.
///
/// # Errors
/// A clause about none.
pub fn inodes(count: u32) -> Result<InodeDensity, String> {
    if count == 0 {
        return Err("a file system needs some".to_owned());
    }
    Ok(InodeDensity::Count(count))
}

/// Takes a number of bytes for those that there is an inode for.
///
/// # Errors
/// A clause about a number that is too small or too large.
pub fn inode_ratio(bytes: u64) -> Result<InodeDensity, String> {
    let ratio = u32::try_from(bytes).ok().filter(|&ratio| ratio >= 1024);
    ratio
        .map(InodeDensity::Ratio)
        .ok_or_else(|| "use 1K to 4G bytes for each inode".to_owned())
}

/// Reads the size of a journal: that of [`parse_size`], or `none`.
///
/// # Errors
/// A sentence about text that is neither.
pub fn parse_journal_size(text: &str) -> Result<JournalSize, String> {
    match text {
        "none" | "0" => Ok(JournalSize::None),
        text => parse_size(text).map(JournalSize::Bytes),
    }
}

/// Reads which quota files are to be made, of users, groups and projects: their names, between
/// commas or colons.
///
/// # Errors
/// A clause about a name that has no quotas.
pub fn quotas(list: &str) -> Result<[bool; 3], String> {
    const NAMES: [[&str; 2]; 3] = [
        ["user", "usrquota"],
        ["group", "grpquota"],
        ["project", "prjquota"],
    ];
    let mut kinds = [false; 3];
    for name in list.split([',', ':']) {
        let kind = NAMES.iter().position(|names| names.contains(&name));
        let kind =
            kind.ok_or_else(|| format!("{name:?} has no quotas: user, group, project have"))?;
        kinds[kind] = true;
    }
    Ok(kinds)
}

/// Takes a number for a percentage of blocks that are reserved.
///
/// # Errors
/// A clause about a number that is out of range.
pub fn reserved_percent(percent: f64) -> Result<f64, String> {
    if (0.0..=50.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("use 0 to 50".to_owned())
    }
}

/// Takes bytes for a label.
///
/// # Errors
/// A clause about too many.
pub fn label(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if bytes.len() > LABEL_MAX {
        let (text, len) = (bytes.escape_ascii(), bytes.len());
        return Err(format!(
            "{text} has {len} bytes, and a label has at most {LABEL_MAX}"
        ));
    }
    Ok(bytes.to_vec())
}

/// Bytes of the longest label.
const LABEL_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64K"), Ok(64 << 10));
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("16TiB"), Ok(16 << 40));
        assert_eq!(parse_size("1MB"), Ok(1 << 20));
        for wrong in [
            "",
            "K",
            "-1",
            "1X",
            "1.5",
            "1KK",
            "99999999999E",
            "1e3",
            "é",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn quota_files_are_named_by_their_kind() {
        assert_eq!(quotas("user"), Ok([true, false, false]));
        assert_eq!(quotas("prjquota:usrquota"), Ok([true, false, true]));
        for wrong in ["", "user,", "users", "^user"] {
            assert!(quotas(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headroom_is_a_size_or_a_share() {
        assert_eq!(parse_headroom("64M"), Ok(Headroom::Bytes(64 << 20)));
        assert_eq!(parse_headroom("12.5%"), Ok(Headroom::Percent(12.5)));
        for wrong in ["", "%", "-5%", "x"] {
            assert!(parse_headroom(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn uuids_have_32_digits() {
        let expected = [
            0x7c, 0x1f, 0x0b, 0x52, 0x3a, 0x6e, 0x4d, 0x8e, 0x9f, 0x6d, 0x0a, 0x3f, 0x5b, 0x1c,
            0x2d, 0x4e,
        ];
        assert_eq!(
            parse_uuid("7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4e"),
            Ok(expected)
        );
        for wrong in ["", "7c1f", "7c1f0b52-3a6e-4d8e-9f6d-0a3f5b1c2d4g", "é"] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }
}
