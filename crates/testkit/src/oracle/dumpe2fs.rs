//! `dumpe2fs`, its text turned into values.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::Path;

use crate::tool::tool;

/// What dumpe2fs says about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The superblock's fields, by the label dumpe2fs prints (`"Block count"`, `"Inode size"`).
    pub fields: BTreeMap<String, String>,
    /// The block groups in order; empty after [`dumpe2fs_header`].
    pub groups: Vec<GroupDump>,
}

/// One block group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupDump {
    /// Group number.
    pub number: u64,
    /// The blocks of the group.
    pub blocks: Option<RangeInclusive<u64>>,
    /// `INODE_UNINIT`, `BLOCK_UNINIT`, `ITABLE_ZEROED`.
    pub flags: BTreeSet<String>,
    /// Checksum of the descriptor as printed (`0x4aec`).
    pub checksum: Option<String>,
    /// Block of the superblock copy, when the group has one.
    pub superblock: Option<u64>,
    /// Blocks of the descriptor table (or of the one meta_bg descriptor block).
    pub descriptors: Option<RangeInclusive<u64>>,
    /// Blocks reserved for the table to grow.
    pub reserved_gdt: Option<RangeInclusive<u64>>,
    /// Block bitmap.
    pub block_bitmap: u64,
    /// Inode bitmap.
    pub inode_bitmap: u64,
    /// Inode table.
    pub inode_table: Option<RangeInclusive<u64>>,
    /// Free blocks (clusters with bigalloc) counted in the descriptor.
    pub free_blocks: u64,
    /// Free inodes counted in the descriptor.
    pub free_inodes: u64,
    /// Directories counted in the descriptor.
    pub directories: u64,
    /// Inodes at the end of the table never used.
    pub unused_inodes: u64,
    /// Free block ranges from the bitmap.
    pub free_block_ranges: Vec<RangeInclusive<u64>>,
    /// Free inode ranges from the bitmap.
    pub free_inode_ranges: Vec<RangeInclusive<u64>>,
}

impl Dump {
    /// Returns the field's value.
    ///
    /// # Panics
    ///
    /// When dumpe2fs did not print it.
    pub fn field(&self, label: &str) -> &str {
        self.fields
            .get(label)
            .unwrap_or_else(|| panic!("dumpe2fs prints no {label:?}: {self:#?}"))
    }

    /// Returns the field's leading number (`"4096k"` and `"12 (hex ...)"` give 4096 and 12).
    ///
    /// # Panics
    ///
    /// When the field is absent or has no number.
    pub fn number(&self, label: &str) -> u64 {
        let value = self.field(label);
        leading_number(value).unwrap_or_else(|| panic!("{label}: {value:?} is no number"))
    }

    /// Returns the feature names.
    pub fn features(&self) -> BTreeSet<&str> {
        self.field("Filesystem features")
            .split_whitespace()
            .collect()
    }

    /// Returns whether the image has this feature (`needs_recovery` means a dirty journal).
    pub fn has_feature(&self, name: &str) -> bool {
        self.features().contains(name)
    }
}

/// Returns the superblock of `image` (`dumpe2fs -h`).
///
/// # Panics
///
/// When dumpe2fs cannot read the image.
pub fn dumpe2fs_header(image: &Path) -> Dump {
    parse(&tool("dumpe2fs").arg("-h").arg(image).ok().text())
}

/// Returns the superblock and every group of `image`.
///
/// # Panics
///
/// When dumpe2fs cannot read the image.
pub fn dumpe2fs(image: &Path) -> Dump {
    parse(&tool("dumpe2fs").arg(image).ok().text())
}

fn parse(text: &str) -> Dump {
    let mut fields = BTreeMap::new();
    let mut groups: Vec<GroupDump> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line
            .strip_prefix("Group ")
            .filter(|r| r.contains(": (Blocks "))
        {
            groups.push(group_title(rest));
        } else if let Some(group) = groups.last_mut() {
            for part in line.trim().split(", Group descriptors at ") {
                group_line(group, part, line);
            }
        } else if let Some((label, value)) = line.split_once(':') {
            fields.insert(label.trim().to_owned(), value.trim().to_owned());
        }
    }
    Dump { fields, groups }
}

/// `0: (Blocks 1-8192) csum 0x1234 [ITABLE_ZEROED]`
fn group_title(title: &str) -> GroupDump {
    let mut group = GroupDump {
        number: leading_number(title).unwrap_or(0),
        ..Default::default()
    };
    group.blocks = title.split_once("(Blocks ").and_then(|(_, r)| range(r));
    group.checksum = title
        .split_once("csum ")
        .and_then(|(_, r)| r.split_whitespace().next())
        .map(|c| c.trim_end_matches(',').to_owned());
    if let Some((_, flags)) = title.split_once('[') {
        let names = flags
            .trim_end_matches(']')
            .split(',')
            .map(|f| f.trim().to_owned());
        group.flags = names.filter(|f| !f.is_empty()).collect();
    }
    group
}

/// One line, or half of one, below a group's title.
fn group_line(group: &mut GroupDump, part: &str, whole: &str) {
    let after = |marker: &str| part.strip_prefix(marker);
    if let Some(r) = after("Primary superblock at ").or_else(|| after("Backup superblock at ")) {
        group.superblock = leading_number(r);
    } else if let Some(r) = after("Group descriptor at ").or_else(|| after("Group descriptors at "))
    {
        group.descriptors = range(r);
    } else if let Some(r) = after("Reserved GDT blocks at ") {
        group.reserved_gdt = range(r);
    } else if let Some(r) = after("Block bitmap at ") {
        group.block_bitmap = leading_number(r).unwrap_or(0);
        // Old layouts print both bitmaps on one line.
        if let Some((_, inode)) = r.split_once("Inode bitmap at ") {
            group.inode_bitmap = leading_number(inode).unwrap_or(0);
        }
    } else if let Some(r) = after("Inode bitmap at ") {
        group.inode_bitmap = leading_number(r).unwrap_or(0);
    } else if let Some(r) = after("Inode table at ") {
        group.inode_table = range(r);
    } else if let Some(r) = after("Free blocks: ") {
        group.free_block_ranges = r.split(", ").filter_map(range).collect();
    } else if let Some(r) = after("Free inodes: ") {
        group.free_inode_ranges = r.split(", ").filter_map(range).collect();
    } else if part.contains(" free inodes") {
        for count in part.split(", ") {
            let n = leading_number(count).unwrap_or(0);
            match count
                .trim_start_matches(|c: char| c.is_ascii_digit())
                .trim()
            {
                "free blocks" | "free clusters" => group.free_blocks = n,
                "free inodes" => group.free_inodes = n,
                "directories" => group.directories = n,
                "unused inodes" => group.unused_inodes = n,
                _ => {}
            }
        }
    } else if whole.contains(", Group descriptors at ") {
        group.descriptors = range(part);
    }
}

fn leading_number(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..digits].parse().ok()
}

/// `161-672 (+161)` or `5`.
fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let first = leading_number(text)?;
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let last = rest
        .strip_prefix('-')
        .and_then(leading_number)
        .unwrap_or(first);
    Some(first..=last)
}
