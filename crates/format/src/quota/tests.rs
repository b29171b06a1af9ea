//! Quota files against a map of entries, and hostile ones.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use proptest::prelude::*;

/// A file in memory that counts how often it is read.
#[derive(Clone, Debug)]
struct Memory {
    blocks: Vec<QuotaBlock>,
    reads: usize,
}

impl QuotaBlocks for Memory {
    type Error = (u32, FormatError);

    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error> {
        self.reads += 1;
        // What a file does not have yet is as a hole.
        let bytes = self.blocks.get(block as usize);
        Ok(bytes.copied().unwrap_or([0; BLOCK_LEN]))
    }

    fn corrupt(&self, block: u32, source: FormatError) -> Self::Error {
        (block, source)
    }
}

impl Memory {
    fn new(kind: QuotaKind) -> Self {
        let mut blocks = vec![[0; BLOCK_LEN]; 2];
        QuotaInfo::empty(kind).encode(&mut blocks[0]);
        Self { blocks, reads: 0 }
    }

    fn info(&self, kind: QuotaKind) -> QuotaInfo {
        let len = self.blocks.len() as u64 * BLOCK_LEN as u64;
        QuotaInfo::parse(&self.blocks[0], kind, len).unwrap()
    }

    fn edit<T>(&mut self, kind: QuotaKind, change: impl FnOnce(&mut Edit<'_, Self>) -> T) -> T {
        let info = self.info(kind);
        let mut edit = Edit::new(self, info);
        let result = change(&mut edit);
        let (info, changed) = edit.finish().unwrap();
        let blocks = (info.file_len() / BLOCK_LEN as u64) as usize;
        self.blocks.resize(blocks, [0; BLOCK_LEN]);
        for (block, bytes) in changed {
            self.blocks[block as usize] = bytes;
        }
        result
    }

    fn all(&mut self, kind: QuotaKind) -> Vec<QuotaEntry> {
        let info = self.info(kind);
        let mut all = Vec::new();
        for_each(self, &info, &mut |entry| {
            all.push(*entry);
            ControlFlow::Continue(())
        })
        .unwrap();
        all
    }

    /// Every block is the header, the root, a node or leaf of the tree, or in the list of those not
    /// used, and in one of them only; every leaf with room is in the list of these, and no other.
    fn check(&self, kind: QuotaKind) {
        let info = self.info(kind);
        let (mut nodes, mut leaves) = (BTreeSet::new(), BTreeMap::new());
        self.walk(ROOT, 0, &mut nodes, &mut leaves);
        let leaf = |block: u32| Leaf::parse(self.blocks[block as usize], &info).unwrap();
        use super::leaf::Leaf;
        let mut unused = BTreeSet::new();
        let mut at = info.free_block;
        while at != 0 {
            assert!(unused.insert(at), "the list of unused blocks is a circle");
            assert_eq!(leaf(at).count(), 0);
            at = leaf(at).next();
        }
        let (mut with_room, mut before) = (BTreeSet::new(), 0);
        let mut at = info.free_entry;
        while at != 0 {
            assert!(with_room.insert(at), "the list of leaves is a circle");
            assert_eq!(leaf(at).previous(), before);
            before = at;
            at = leaf(at).next();
        }
        for (block, references) in &leaves {
            let found = leaf(*block).entries().flatten().count();
            assert_eq!(found, *references, "entries that the tree leads to");
            assert_eq!(found, leaf(*block).count());
            assert_eq!(with_room.contains(block), found < ENTRIES_PER_LEAF);
        }
        let kinds = [nodes.len(), leaves.len(), unused.len()];
        let all: BTreeSet<u32> = nodes
            .into_iter()
            .chain(leaves.into_keys())
            .chain(unused)
            .collect();
        assert_eq!(all.len(), kinds.iter().sum::<usize>(), "blocks used twice");
        assert_eq!(all.len() + 1, self.blocks.len(), "blocks lost");
    }

    fn walk(
        &self,
        block: u32,
        level: u32,
        nodes: &mut BTreeSet<u32>,
        leaves: &mut BTreeMap<u32, usize>,
    ) {
        assert!(nodes.insert(block));
        let references = self.blocks[block as usize].chunks_exact(4);
        let references = references
            .map(|bytes| le32(bytes, 0))
            .filter(|next| *next != 0);
        for next in references {
            if level + 1 == DEPTH {
                *leaves.entry(next).or_default() += 1
            } else {
                self.walk(next, level + 1, nodes, leaves)
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Set(QuotaEntry),
    Remove(u32),
}

/// Ids that are near each other, and ids that share no node; few, so that changes meet.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0..40u32,
        2 => (0..4u32, 0..3u32).prop_map(|(a, b)| a << 24 | b),
        1 => (0..3u32).prop_map(|a| u32::MAX - a),
        1 => any::<u32>(),
    ]
}

fn entry() -> impl Strategy<Value = QuotaEntry> {
    let number = || prop_oneof![Just(0), 0..5u64, any::<u64>()];
    let numbers = [(); 8].map(|()| number());
    (id(), numbers).prop_map(|(id, n)| QuotaEntry {
        id,
        inode_hard: n[0],
        inode_soft: n[1],
        inodes: n[2],
        space_hard: n[3],
        space_soft: n[4],
        space: n[5],
        space_time: n[6],
        // What is written for an entry of id 0 that says nothing.
        inode_time: n[7] & !1,
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => entry().prop_map(Change::Set),
        2 => id().prop_map(Change::Remove),
        1 => id().prop_map(|id| Change::Set(QuotaEntry::of(id))),
    ]
}

proptest! {
    #[test]
    fn a_file_holds_what_a_map_holds(
        changes in proptest::collection::vec(change(), 0..200),
        together in 1..6usize,
    ) {
        let kind = QuotaKind::Project;
        let (mut file, mut model) = (Memory::new(kind), BTreeMap::new());
        for some in changes.chunks(together) {
            file.edit(kind, |edit| {
                for change in some {
                    match change {
                        Change::Set(entry) => {
                            edit.set(entry).unwrap();
                            model.insert(entry.id, *entry);
                        }
                        Change::Remove(id) => {
                            let was_there = edit.remove(*id).unwrap();
                            assert_eq!(was_there, model.remove(id).is_some());
                        }
                    }
                }
            });
            file.check(kind);
        }
        prop_assert_eq!(file.all(kind), model.values().copied().collect::<Vec<_>>());
        let info = file.info(kind);
        for change in &changes {
            let (Change::Set(QuotaEntry { id, .. }) | Change::Remove(id)) = change;
            file.reads = 0;
            prop_assert_eq!(find(&mut file, &info, *id).unwrap(), model.get(id).copied());
            prop_assert!(file.reads <= 5);
        }
    }

    #[test]
    fn a_header_reads_back_as_written(graces in any::<[u32; 3]>(), which in 0..3usize) {
        let info = QuotaInfo {
            space_grace: graces[0],
            inode_grace: graces[1],
            flags: graces[2],
            ..QuotaInfo::empty(QuotaKind::ALL[which])
        };
        let mut block = [0xaa; BLOCK_LEN];
        info.encode(&mut block);
        prop_assert_eq!(QuotaInfo::parse(&block, info.kind, info.file_len()), Ok(info));
        prop_assert!(QuotaInfo::parse(&block, info.kind, info.file_len() - 1).is_err());
        let other = QuotaKind::ALL[(which + 1) % 3];
        prop_assert!(QuotaInfo::parse(&block, other, info.file_len()).is_err());
    }
}

#[test]
fn the_bytes_are_where_linux_looks_for_them() {
    let kind = QuotaKind::User;
    let mut file = Memory::new(kind);
    let entry = QuotaEntry {
        id: 0x0102_0304,
        inode_hard: 1,
        inode_soft: 2,
        inodes: 3,
        space_hard: 4,
        space_soft: 5,
        space: 6,
        space_time: 7,
        inode_time: 8,
    };
    file.edit(kind, |edit| edit.set(&entry).unwrap());
    assert_eq!(file.blocks.len(), 6, "a header, four nodes, a leaf");
    let mut block = ROOT as usize;
    for digit in 1..=4 {
        block = le32(&file.blocks[block], digit * 4) as usize;
    }
    let leaf = &file.blocks[block];
    assert_eq!(leaf[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(leaf[16..24], [4, 3, 2, 1, 0, 0, 0, 0]);
    for (i, at) in (24..88).step_by(8).enumerate() {
        assert_eq!(le32(leaf, at), i as u32 + 1);
    }
    file.edit(kind, |edit| edit.set(&QuotaEntry::of(0)).unwrap());
    let bytes = &file.blocks[block][16 + 72..16 + 144];
    assert_eq!(bytes[64], 1, "an entry is never all zeros");
    assert!(bytes.iter().filter(|byte| **byte != 0).count() == 1);
}

/// A file whose tree leads from every place to `leaf`, through one node for each level.
fn looped(fill_levels: u32) -> Memory {
    let kind = QuotaKind::User;
    let mut file = Memory::new(kind);
    file.edit(kind, |edit| {
        edit.set(&QuotaEntry {
            inodes: 1,
            ..QuotaEntry::of(0)
        })
        .unwrap()
    });
    let mut block = ROOT as usize;
    for _ in 0..fill_levels {
        let next = le32(&file.blocks[block], 0);
        for at in (0..BLOCK_LEN).step_by(4) {
            put(&mut file.blocks[block], at, &next.to_le_bytes());
        }
        block = next as usize;
    }
    file
}

#[test]
fn a_tree_that_leads_to_one_leaf_for_all_ids_is_refused_at_once() {
    for levels in 1..=4 {
        let mut file = looped(levels);
        let info = file.info(QuotaKind::User);
        file.reads = 0;
        let mut seen = 0;
        let found = for_each(&mut file, &info, &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        let (_, error) = found.unwrap_err();
        assert_eq!(error.field, "id");
        assert_eq!(seen, 1);
        assert!(file.reads < 20, "{levels} levels: {} reads", file.reads);
    }
    // Nodes that lead nowhere: sixteen million of them, if they were believed.
    let mut file = looped(3);
    let empty = file.blocks.len() as u32 - 1;
    let mut block = ROOT as usize;
    for _ in 0..2 {
        block = le32(&file.blocks[block], 0) as usize;
    }
    for at in (0..BLOCK_LEN).step_by(4) {
        put(&mut file.blocks[block], at, &empty.to_le_bytes());
    }
    file.blocks[empty as usize] = [0; BLOCK_LEN];
    let info = file.info(QuotaKind::User);
    file.reads = 0;
    let found = for_each(&mut file, &info, &mut |_| ControlFlow::Continue(()));
    assert_eq!(found.unwrap_err().1.field, "references");
    assert!(file.reads < 20);
}

#[test]
fn a_list_of_unused_blocks_that_is_a_circle_is_refused() {
    let kind = QuotaKind::User;
    let mut file = Memory::new(kind);
    file.edit(kind, |edit| edit.set(&QuotaEntry::of(1)).unwrap());
    file.edit(kind, |edit| assert!(edit.remove(1).unwrap()));
    let info = file.info(kind);
    let first = info.free_block;
    put(&mut file.blocks[first as usize], 0, &first.to_le_bytes());
    let error = Edit::new(&mut file, info)
        .set(&QuotaEntry::of(1))
        .unwrap_err();
    assert_eq!((error.0, error.1.field), (0, "free_blk"));
}

#[test]
fn no_bytes_make_a_file_panic_or_read_without_end() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let kind = QuotaKind::Group;
        let mut file = Memory::new(kind);
        file.edit(kind, |edit| {
            for id in [0, 1, 0x100, 0x0001_0000, 0x0100_0000, u32::MAX] {
                edit.set(&QuotaEntry {
                    space: 1,
                    ..QuotaEntry::of(id)
                })
                .unwrap();
            }
        });
        // Each three bytes change one of the others, but for the magic.
        for change in bytes.chunks_exact(3).take(64) {
            let at = usize::from(change[0]) << 8 | usize::from(change[1]);
            let at = 8 + at % (file.blocks.len() * BLOCK_LEN - 8);
            file.blocks[at / BLOCK_LEN][at % BLOCK_LEN] = change[2];
        }
        let len = file.blocks.len() as u64 * BLOCK_LEN as u64;
        let Ok(info) = QuotaInfo::parse(&file.blocks[0], kind, len) else {
            return;
        };
        file.reads = 0;
        let _ = for_each(&mut file, &info, &mut |_| ControlFlow::Continue(()));
        assert!(file.reads < 10_000, "{} reads", file.reads);
        for id in [0, 1, 7, u32::MAX] {
            let _ = find(&mut file, &info, id);
            let mut edit = Edit::new(&mut file, info);
            if edit.set(&QuotaEntry::of(id)).is_ok() && edit.remove(id).is_ok() {
                let (after, changed) = edit.finish().unwrap();
                let last = changed.last_key_value().map_or(0, |(block, _)| *block);
                assert!(u64::from(last) * (BLOCK_LEN as u64) < after.file_len());
            }
        }
    });
}
