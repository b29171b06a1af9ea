//! The structures of the file system, one at a time.

use crate::{sized, split};
use extant_format::checksum::Crc32c;
use extant_format::dir::DirLayout;
use extant_format::extent::{self, ExtentNode, NodeContext};
use extant_format::geometry::Geometry;
use extant_format::group_desc::{DescChecksum, GroupDesc};
use extant_format::inline_data::{InlineData, InlineDir};
use extant_format::inode::{Inode, InodeContext};
use extant_format::mmp::MmpBlock;
use extant_format::orphan_file::{OrphanBlock, slots_per_block};
use extant_format::quota::{QuotaBlock, QuotaBlocks, QuotaInfo, QuotaKind, find, for_each};
use extant_format::superblock::{JournalDevice, Superblock};
use extant_format::{BlockSize, FormatError, Group, Ino, Lblk, indirect};
use extant_verity::fs::Descriptor;
use std::ops::ControlFlow;

/// A seed that no input can foresee the checksums of.
const SEED: Crc32c = Crc32c::INIT;

/// A superblock, and where everything would lie by it.
pub fn superblock(input: &[u8]) -> bool {
    let _ = Superblock::parse(input);
    let _ = JournalDevice::parse(input);
    let Ok(found) = Superblock::parse_unverified(input) else {
        return false;
    };
    let again = Superblock::parse_unverified(&found.encode()).expect("what was read is valid");
    assert_eq!(again.encode(), found.encode());
    let geometry = Geometry::new(&found);
    let groups = geometry.groups_count();
    assert!(groups > 0);
    for group in [0, 1, groups / 2, groups - 1, groups] {
        let group = Group::new(group);
        let _ = (geometry.has_super(group), geometry.group_header(group));
        let Ok(first) = geometry.group_first_block(group) else {
            assert!(group.get() >= groups);
            continue;
        };
        let last = geometry.group_last_block(group).expect("the group exists");
        assert!(first <= last && last.get() < geometry.blocks_count());
        assert_eq!(geometry.group_of_block(first).expect("it is inside"), group);
    }
    for ino in [1, 2, geometry.inodes_count()] {
        let at = geometry.locate_inode(Ino::new(ino));
        assert_eq!(at.is_ok(), ino <= geometry.inodes_count());
    }
    true
}

/// A group descriptor of 32 or 64 bytes.
pub fn group_descriptor(input: &[u8]) -> bool {
    let Some(([choice, group], bytes)) = split(input) else {
        return false;
    };
    let group = Group::new(group.into());
    let len = if choice & 1 == 0 { 32 } else { 64 };
    let bytes = sized(bytes, len);
    let checksum = match choice >> 1 & 3 {
        0 => DescChecksum::None,
        1 => DescChecksum::Crc16 { uuid: [7; 16] },
        _ => DescChecksum::Crc32c { seed: 7 },
    };
    let _ = GroupDesc::parse(&bytes, group, &checksum);
    let Ok(found) = GroupDesc::parse_unverified(&bytes) else {
        return false;
    };
    let geometry = Geometry::new(crate::corpus::superblock());
    let is_valid = found.validate(group, &geometry).is_ok();
    let _ = found.validate_counts(group, &geometry);
    let inside = |block: extant_format::Pblk| block.get() < geometry.blocks_count();
    assert!(!is_valid || inside(found.block_bitmap) && inside(found.inode_table));
    is_valid
}

/// An inode of any size, with its checksum and without.
pub fn inode(input: &[u8]) -> bool {
    let Some(([choice], bytes)) = split(input) else {
        return false;
    };
    let inode_size = 128 << (choice & 3);
    let slot = sized(bytes, inode_size.into());
    let mut context = InodeContext {
        inode_size,
        seed: Some(SEED),
        ino: Ino::new(12),
        large_dir: choice & 4 != 0,
        huge_file: choice & 8 != 0,
    };
    let _ = Inode::parse(&slot, &context);
    context.seed = None;
    let Ok(found) = Inode::parse(&slot, &context) else {
        return false;
    };
    let region = found.xattr_region(&slot, inode_size);
    assert!(region.len() <= usize::from(inode_size) - 128);
    let _ = (found.file_type(), found.device(), found.stored_times());
    let mut written = slot.clone();
    if found.encode(&mut written, &context).is_ok() {
        let again = Inode::parse(&written, &context).expect("what was written is valid");
        assert_eq!(again, found);
    }
    true
}

/// A node of an extent tree: the root in an inode, or a block.
pub fn extent_node(input: &[u8]) -> bool {
    let Some(([a, b, c, d, depth], bytes)) = split(input) else {
        return false;
    };
    let lblk = Lblk::new(u32::from_le_bytes([a, b, c, d]));
    let _ = extent::verify_checksum(bytes, SEED);
    let Ok(node) = ExtentNode::parse(bytes) else {
        return false;
    };
    let mut context = NodeContext::root(1..1 << 40);
    if depth & 0x80 != 0 {
        context.depth = Some(u16::from(depth & 7));
    }
    if let Some(i) = node.search(lblk) {
        assert!(i < node.len());
    }
    if node.validate(&context).is_err() {
        return false;
    }
    let mut end = 0;
    for extent in node.extents().filter(|_| node.is_leaf()) {
        assert!(u64::from(extent.lblk.get()) >= end && extent.len > 0);
        assert!(context.physical.contains(&extent.pblk.get()));
        end = extent.end();
        assert!(end <= extent::LBLK_END);
    }
    for i in 0..node.len() {
        let child = node.child_context(i, &context);
        assert!(node.is_leaf() || child.is_some_and(|child| !child.logical.is_empty()));
    }
    true
}

/// A block of pointers.
pub fn indirect_block(input: &[u8]) -> bool {
    let Some(([a, b, c, d], block)) = split(input) else {
        return false;
    };
    let physical = 1..1 << 20;
    for (i, pointer) in indirect::pointers(block).enumerate() {
        assert_eq!(pointer, indirect::pointer(block, i));
        if let Ok(Some(found)) = indirect::check_pointer(pointer, i, &physical) {
            assert!(physical.contains(&found.get()));
        }
    }
    let lblk = Lblk::new(u32::from_le_bytes([a, b, c, d]));
    if let Some(path) = indirect::IndirectPath::to(lblk, BlockSize::MIN) {
        assert!(path.root() < indirect::ROOT_POINTERS && path.levels() <= 3);
        let per_block = indirect::pointers_per_block(BlockSize::MIN);
        assert!(path.steps().iter().all(|step| *step < per_block));
    }
    true
}

/// Content and entries kept inside an inode.
pub fn inline_data(input: &[u8]) -> bool {
    let Some((head, rest)) = split::<62>(input) else {
        return false;
    };
    let map = head.first_chunk::<60>().expect("62 bytes are more");
    let size = u16::from_le_bytes([head[60], head[61]]);
    let data = InlineData::new(map, rest, size.into());
    let mut to = [0; 100];
    let read = data.read(u64::from(size / 2), &mut to);
    assert!(read <= to.len() && read <= usize::from(size));
    let Ok(dir) = InlineDir::new(&data, Ino::new(1000)) else {
        return false;
    };
    let layout = DirLayout {
        block_size: BlockSize::K4,
        file_type: true,
        checksums: true,
        hash_in_entry: false,
        raw_names: false,
        max_inode: Ino::new(1000),
    };
    assert!(dir.entries(&layout).count() <= (60 + rest.len()) / 8 + 2);
    let _ = (dir.find(&layout, b"name"), dir.find_room(&layout, 12));
    let mut block = vec![0; layout.block_size.len()];
    dir.fill_block(&mut block, &layout, Ino::new(12)).is_ok()
}

/// A bitmap, counted and walked.
pub fn bitmap(input: &[u8]) -> bool {
    use extant_format::bitmap;
    let Some(([a, b, c, d], map)) = split(input) else {
        return false;
    };
    let all = map.len() as u32 * 8;
    let (x, y) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
    let (from, to) = (u32::from(x.min(y)).min(all), u32::from(x.max(y)).min(all));
    let set = bitmap::count_set(map, from..to);
    assert_eq!(set + bitmap::count_clear(map, from..to), to - from);
    let mut clear = 0;
    let mut end = from;
    for run in bitmap::clear_runs(map, from..to) {
        assert!(run.start >= end && run.start < run.end && run.end <= to);
        assert_eq!(bitmap::next_clear(map, run.start, to), Some(run.start));
        clear += run.end - run.start;
        end = run.end;
    }
    assert_eq!(set + clear, to - from);
    true
}

/// The block that guards against being mounted twice.
pub fn multiple_mount_block(input: &[u8]) -> bool {
    let _ = MmpBlock::parse(input, Some(SEED));
    let Ok(found) = MmpBlock::parse(input, None) else {
        return false;
    };
    let again = MmpBlock::parse(&found.encode(Some(SEED)), Some(SEED));
    assert_eq!(again.expect("what was written is valid"), found);
    let _ = found.watch(5);
    true
}

/// A block of the orphan file.
pub fn orphan_block(input: &[u8]) -> bool {
    let _ = OrphanBlock::parse(input, BlockSize::MIN, Some(SEED));
    let Ok(found) = OrphanBlock::parse(input, BlockSize::MIN, None) else {
        return false;
    };
    let slots = slots_per_block(BlockSize::MIN);
    let mut orphans = found.orphans();
    assert!(orphans.all(|(slot, ino)| slot < slots && ino.get() != 0));
    true
}

/// The blocks of a quota file that lies in memory.
struct InMemory<'a>(&'a [u8]);

impl QuotaBlocks for InMemory<'_> {
    type Error = FormatError;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, FormatError> {
        let len = size_of::<QuotaBlock>();
        let start = block as usize * len;
        let bytes = self.0.get(start..start + len);
        Ok(bytes.map_or([0; size_of::<QuotaBlock>()], |bytes| {
            bytes.try_into().expect("it has this length")
        }))
    }

    fn corrupt(&self, _block: u32, source: FormatError) -> FormatError {
        source
    }
}

/// A quota file: its header, and the tree behind it.
pub fn quota_file(input: &[u8]) -> bool {
    let mut is_valid = false;
    for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
        let Ok(info) = QuotaInfo::parse(input, kind, input.len() as u64) else {
            continue;
        };
        assert!(info.file_len() <= input.len() as u64);
        let mut blocks = InMemory(input);
        let mut before = None;
        let visited = for_each(&mut blocks, &info, &mut |entry| {
            assert!(before < Some(entry.id), "ids ascend");
            before = Some(entry.id);
            ControlFlow::Continue(())
        });
        is_valid |= visited.is_ok();
        for id in [0, 1000, u32::MAX] {
            if let Ok(Some(entry)) = find(&mut blocks, &info, id) {
                assert_eq!(entry.id, id);
            }
        }
    }
    is_valid
}

/// What describes the hashes of a file with fs-verity; the file is as large as it says.
pub fn verity_descriptor(input: &[u8]) -> bool {
    let size = input.get(8..16).and_then(<[u8]>::first_chunk);
    let size = u64::from_le_bytes(size.copied().unwrap_or_default());
    let Ok(descriptor) = Descriptor::parse(input, size) else {
        return false;
    };
    let again = Descriptor::parse(&descriptor.encode(), size);
    assert_eq!(again.expect("what was written is valid"), descriptor);
    let shape = descriptor.shape();
    let last = shape.leaves().saturating_sub(1) / shape.arity();
    assert!(shape.levels() <= 16 && shape.children_of(0, last) <= shape.arity());
    true
}
