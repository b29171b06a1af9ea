//! What is written over a field: boundaries, flags one at a time, addresses and numbers of other
//! structures.

use super::super::anatomy::{Kind, Layout, Site};
use super::super::fields::{Field, Role};
use super::{Subject, places, title};
use std::collections::BTreeMap;

/// Values of an image that mean something in it.
pub(super) struct Values<'a> {
    layout: &'a Layout,
    blocks: Vec<(u64, String)>,
    inodes: Vec<(u64, String)>,
}

impl<'a> Values<'a> {
    pub(super) fn of(subject: &'a Subject) -> Self {
        Self {
            layout: &subject.anatomy.layout,
            blocks: blocks(subject),
            inodes: inodes(subject),
        }
    }

    /// The values to write over a field that holds `old`, each with what it means.
    pub(super) fn worth_trying(&self, site: &Site, field: Field, old: u64) -> Vec<(u64, String)> {
        let max = u64::MAX >> (64 - field.width * 8);
        let mut values: BTreeMap<u64, String> = BTreeMap::new();
        let mut add = |value: u64, meaning: &str| {
            let value = value & max;
            if value != old {
                values.entry(value).or_insert_with(|| match meaning {
                    "" => String::new(),
                    _ => format!(", {meaning}"),
                });
            }
        };
        match field.role {
            Role::Features | Role::Bits => {
                for bit in 0..field.width * 8 {
                    add(old ^ 1 << bit, &format!("bit {bit} flipped"));
                }
            }
            Role::Block => self
                .blocks
                .iter()
                .for_each(|(block, what)| add(*block, what)),
            Role::Inode => self.inodes.iter().for_each(|(ino, what)| add(*ino, what)),
            Role::Letter => {
                for letter in [0, b'/', b'.', b'A', b'z', 0x80, 0xC3, 0xFF] {
                    add(u64::from(letter), "");
                }
                return values.into_iter().collect();
            }
            Role::Small => (0..9).for_each(|small| add(small, "")),
            Role::Length => {
                let block = self.layout.block as u64;
                for step in [4, 8, 12] {
                    add(old.wrapping_add(step), "a little more");
                    add(old.wrapping_sub(step), "a little less");
                }
                for len in [4, 8, 12, 16, 32, 64, 128, 256, 512, 0xFFFC] {
                    add(len, "");
                }
                for len in [block - 12, block - 4, block, block + 4] {
                    add(len, "about a block");
                }
            }
            Role::Number | Role::Checksum => {}
        }
        if matches!(field.role, Role::Block | Role::Inode) {
            let itself = match field.role {
                Role::Block => (site.at / self.layout.block) as u64,
                _ => site.owner.into(),
            };
            add(itself, "itself");
        }
        if field.role != Role::Features {
            for value in [0, 1, 2] {
                add(value, "");
            }
            for (value, meaning) in [
                (old.wrapping_add(1), "one more"),
                (old.wrapping_sub(1), "one less"),
                (old.wrapping_mul(2), "twice"),
                (old / 2, "half"),
                (max, "the most"),
                (max - 1, "the most but one"),
                (max / 2, "the most with a sign"),
                (max / 2 + 1, "the least with a sign"),
            ] {
                add(value, meaning);
            }
        }
        if field.role == Role::Number {
            self.boundaries(field.width, &mut add);
        }
        values.into_iter().collect()
    }

    fn boundaries(&self, width: usize, add: &mut dyn FnMut(u64, &str)) {
        let layout = self.layout;
        for bits in [7, 8, 12, 15, 16, 24, 31, 32, 40]
            .into_iter()
            .filter(|bits| *bits < width * 8)
        {
            add(1 << bits, &format!("2^{bits}"));
            add((1 << bits) - 1, &format!("2^{bits} - 1"));
        }
        let counts = [
            (layout.block as u64, "a block"),
            (layout.blocks, "the blocks"),
            (layout.inodes.into(), "the inodes"),
            (layout.blocks_per_group, "the blocks of a group"),
            (layout.inodes_per_group.into(), "the inodes of a group"),
            (layout.groups.into(), "the groups"),
        ];
        for (count, what) in counts {
            if count <= u64::MAX >> (64 - width * 8) {
                add(count, what);
                add(count + 1, &format!("one more than {what}"));
                add(count - 1, &format!("one less than {what}"));
            }
        }
    }
}

/// Blocks that something is in, and those about the end.
fn blocks(subject: &Subject) -> Vec<(u64, String)> {
    let (layout, anatomy) = (&subject.anatomy.layout, &subject.anatomy);
    let size = layout.block;
    let mut blocks: Vec<(u64, String)> = Vec::new();
    let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
    for site in &anatomy.sites {
        if subject.journal_at.is_some_and(|at| site.at >= at) {
            continue;
        }
        let count = kinds.entry(site.kind).or_default();
        *count += 1;
        if *count <= 2 {
            let what = match site.kind {
                Kind::Inode => "inode table",
                kind => title(kind),
            };
            blocks.push(((site.at / size) as u64, format!("{what} of {}", site.owner)));
        }
    }
    for tenant in places::tenants(subject) {
        if let Some(block) = tenant.data {
            blocks.push((block, format!("first block of inode {}", tenant.ino)));
        }
    }
    let last = layout.groups - 1;
    let table = layout.inode_at(&subject.bytes, last * layout.inodes_per_group + 1);
    blocks.push((
        (table / size) as u64,
        "inode table of the last group".into(),
    ));
    for (block, what) in [
        (layout.blocks - 1, "the last block"),
        (layout.blocks, "behind the last block"),
        (layout.blocks + 1, "one more behind"),
        (layout.blocks_per_group, "where a group begins"),
        (layout.blocks / 2 + 1, "in the middle"),
        (1 << 24, "2^24"),
    ] {
        blocks.push((block, what.into()));
    }
    blocks
}

/// Numbers of inodes that are something, and those about the ends.
fn inodes(subject: &Subject) -> Vec<(u64, String)> {
    let layout = &subject.anatomy.layout;
    let mut inodes: Vec<(u64, String)> = (3..12).map(|ino| (ino, String::new())).collect();
    inodes.push((2, "the root".into()));
    for tenant in places::tenants(subject) {
        let what = match tenant.mode & 0xF000 {
            0x4000 => "a directory",
            0x8000 => "a file",
            0xA000 => "a link",
            0 => "none",
            _ => "a special file",
        };
        inodes.push((tenant.ino.into(), what.into()));
    }
    let used = subject
        .anatomy
        .tenants
        .last()
        .map_or(12, |tenant| tenant.ino);
    for (ino, what) in [
        (u64::from(used) + 1, "not in use"),
        (layout.inodes.into(), "the last"),
        (u64::from(layout.inodes) + 1, "behind the last"),
        (
            u64::from(layout.inodes_per_group) + 1,
            "the first of a group",
        ),
    ] {
        inodes.push((ino, what.into()));
    }
    inodes
}
