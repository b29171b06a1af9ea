//! Whether there is room for what is planned, asked before the first change.
//!
//! What is counted is the least that it takes: blocks of content and one for each directory, less
//! what the files have that are replaced. So nothing is refused that would fit; and what needs more
//! than that finds it out on its way.

use super::content::Content;
use super::make::Why;
use super::plan::{Node, Origin, Plan, Reading};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::path::{look, look_at_link};
use crate::size::human;
use extant::{Error, FileType, Filesystem, StatFs};
use extant_format::features::Incompat;
use std::fmt::Write;

/// The largest content that may lie in an inode: the room that the largest inode has.
const MOST_INLINE: u64 = 4096;
/// What sizes are advised in.
const MIB: u64 = 1 << 20;

/// Blocks and inodes.
#[derive(Debug, Clone, Copy, Default)]
struct Need {
    blocks: u64,
    inodes: u64,
}

/// Refuses a plan that there is no room for in `fs`.
pub(super) fn check(plan: &Plan, fs: &Filesystem, dest: &ImagePath) -> Outcome {
    let failed = |e: Error| dest.failure(&e);
    let space = fs.statfs().map_err(failed)?;
    let block = u64::from(space.block_size.bytes());
    let count = (plan.dirs.len() + plan.files.len()) as u64;
    // Where even the most that it may take is there, no source is looked at twice.
    let most = plan.bytes / block + count;
    let is_roomy = most <= space.available_to_root && count <= space.free_inodes;
    if is_roomy {
        return Ok(());
    }
    let need = need(plan, fs, block);
    let missing = Need {
        blocks: need.blocks.saturating_sub(space.available_to_root),
        inodes: need.inodes.saturating_sub(space.free_inodes),
    };
    if (missing.blocks, missing.inodes) == (0, 0) {
        return Ok(());
    }
    Err(Failure::new(refusal(fs, dest, &space, need, missing)))
}

/// The least that a plan takes more than there is in use. What cannot be looked at is said when
/// something is put there.
fn need(plan: &Plan, fs: &Filesystem, block: u64) -> Need {
    let has_inline = fs.engine().superblock().has_incompat(Incompat::INLINE_DATA);
    let mut need = Need::default();
    let mut freed = 0;
    for dir in &plan.dirs {
        if matches!(look_at_link(fs, &dir.to), Ok(None)) {
            need.inodes += 1;
            need.blocks += u64::from(!has_inline);
        }
    }
    // What is made late takes the place of another.
    for node in plan.files.iter().filter(|node| node.late == 0) {
        match look_at_link(fs, &node.to) {
            // Nothing comes of it.
            Err(_) => continue,
            Ok(None) => need.inodes += 1,
            Ok(Some(there)) if there.is_dir() => {}
            Ok(Some(there)) if there.is_symlink() && !plan.replaces_links() => {
                let led_to = look(fs, &node.to).ok().flatten();
                freed += led_to.map_or(0, |led_to| led_to.blocks());
            }
            Ok(Some(there)) => freed += there.blocks(),
        }
        need.blocks += blocks(node, block, has_inline);
    }
    need.blocks = need
        .blocks
        .saturating_sub(freed.saturating_mul(512) / block);
    need
}

/// Blocks that the content of a file takes at least. What is wrong with it is said when it is
/// copied.
fn blocks(node: &Node, block: u64, has_inline: bool) -> u64 {
    let is_stream = matches!(
        node.from,
        Origin::Input
            | Origin::Host {
                how: Reading::Stream,
                ..
            }
    );
    // A pipe that is opened and left has lost its writer.
    if node.file_type != FileType::Regular || is_stream {
        return 0;
    }
    let counted = Content::open(node).and_then(|content| {
        let blocks = content.blocks(block)?;
        let is_inline = has_inline && blocks.saturating_mul(block) <= MOST_INLINE;
        Ok::<u64, Why>(if is_inline { 0 } else { blocks })
    });
    counted.unwrap_or(0)
}

fn refusal(fs: &Filesystem, dest: &ImagePath, space: &StatFs, need: Need, missing: Need) -> String {
    let image = shown(&dest.image);
    let block = u64::from(space.block_size.bytes());
    let bytes = |blocks: u64| human(blocks.saturating_mul(block));
    let mut text = format!("{image}: there is no space for what is to be copied:");
    // Writing to a string cannot fail.
    if missing.blocks > 0 {
        let _ = write!(
            text,
            " it takes at least {}, and {} are free: {} ({} blocks) are missing.",
            bytes(need.blocks),
            bytes(space.available_to_root),
            bytes(missing.blocks),
            missing.blocks
        );
    }
    if missing.inodes > 0 {
        let _ = write!(
            text,
            " it has {} new files, and {} of {} inodes are in use: {} are missing.",
            need.inodes,
            space.inodes - space.free_inodes,
            space.inodes,
            missing.inodes
        );
    }
    let size = size_with(fs, missing) / MIB;
    let _ = write!(
        text,
        " Nothing was changed. Make the image larger (`extant resize {image} {size}M`)"
    );
    if missing.inodes > 0 {
        text.push_str(", make it with more inodes (`extant mkfs --inodes N`),");
    }
    text.push_str(" or remove something");
    text
}

/// The size, in bytes, of a file system that has what is missing besides what it has; a multiple of
/// a mebibyte.
fn size_with(fs: &Filesystem, missing: Need) -> u64 {
    let geometry = fs.engine().geometry();
    let block = u64::from(geometry.block_size().bytes());
    let group = u64::from(geometry.blocks_per_group());
    // Bitmaps, the table of inodes, and backups of descriptors for more groups than there are.
    let fixed = u64::from(geometry.inode_table_blocks())
        + u64::from(geometry.desc_blocks())
        + u64::from(geometry.reserved_gdt_blocks())
        + 16;
    let usable = group.saturating_sub(fixed).max(1);
    let now = geometry.blocks_count();
    // Maps and directories take a little more than their content.
    let content = missing.blocks + missing.blocks / 64 + 16;
    let blocks = now
        .saturating_add(content)
        .saturating_add(content.div_ceil(usable).saturating_mul(fixed));
    let groups = missing
        .inodes
        .div_ceil(geometry.inodes_per_group().max(1).into());
    let whole_groups = u64::from(geometry.groups_count()) + groups;
    let for_inodes = if groups == 0 {
        0
    } else {
        whole_groups.saturating_mul(group) + u64::from(geometry.first_data_block().get() > 0)
    };
    let bytes = blocks.max(for_inodes).saturating_mul(block);
    bytes.div_ceil(MIB).saturating_mul(MIB)
}
