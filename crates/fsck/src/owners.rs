//! Whose the blocks are that more than one claims: a second walk over all maps, made only when
//! there are any.

use crate::blockset::BlockSet;
use crate::error::Result;
use crate::inode_table::InodeTable;
use crate::maps::{self, Piece};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Place, special};
use extant_format::features::{Compat, Incompat};
use extant_format::inode::InodeFlags;
use extant_format::{Ino, Pblk, indirect};
use rayon::prelude::*;
use std::ops::Range;

/// Tells which inodes claim clusters of `shared` (claimed by several) and of `fixed` (of the file
/// system's own).
pub(crate) fn run(
    volume: &Volume,
    table: &InodeTable,
    shared: &BlockSet,
    fixed: &BlockSet,
    sink: &mut Sink,
) -> Result<()> {
    if shared.is_empty() && fixed.is_empty() {
        return Ok(());
    }
    let inodes: Vec<Ino> = table.in_use().map(|(ino, _)| ino).collect();
    let found = inodes
        .par_chunks(256)
        .try_fold(Sink::new, |mut sink, some| {
            for &ino in some {
                one(volume, ino, shared, fixed, &mut sink)?;
            }
            Ok(sink)
        })
        .try_reduce(Sink::new, |mut a, b| {
            a.absorb(b);
            Ok::<_, crate::Error>(a)
        })?;
    for (set, code, whose) in [
        (shared, Code::BlockShared, "more than once"),
        (
            fixed,
            Code::BlockOfMetadata,
            "though the file system uses them itself",
        ),
    ] {
        if found.count(code) == 0
            && let Some(first) = set.first()
        {
            let block = volume.block_of_cluster(first);
            let text = format!("clusters are claimed {whose}: by whom is not known");
            sink.say(code, Place::block(block), text);
        }
    }
    sink.absorb(found);
    Ok(())
}

/// The first cluster that is in a set, and how many are.
#[derive(Default)]
struct Hits {
    first: Option<u64>,
    count: u64,
}

impl Hits {
    fn add(&mut self, set: &BlockSet, clusters: Range<u64>) {
        set.runs(clusters, &mut |run| {
            self.first.get_or_insert(run.start);
            self.count += run.end - run.start;
        });
    }
}

fn one(
    volume: &Volume,
    ino: Ino,
    shared: &BlockSet,
    fixed: &BlockSet,
    sink: &mut Sink,
) -> Result<()> {
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    let (mut twice, mut own) = (Hits::default(), Hits::default());
    let mut look = |blocks: Range<u64>| {
        let clusters = volume.clusters_of(blocks);
        twice.add(shared, clusters.clone());
        own.add(fixed, clusters);
    };
    let inline =
        inode.flags.contains(InodeFlags::INLINE_DATA) && volume.has_incompat(Incompat::INLINE_DATA);
    // The list of bad blocks has a map without a type, as the scan has it.
    let mapped = ino == Ino::BAD_BLOCKS
        || inode
            .file_type()
            .is_some_and(|file_type| special::has_map(volume, &inode, file_type));
    if ino == Ino::RESIZE && volume.has_compat(Compat::RESIZE_INODE) {
        let root = indirect::root_pointers(&inode.map)
            .get(13)
            .copied()
            .unwrap_or(0);
        look(u64::from(root)..u64::from(root) + 1);
    } else if mapped && !inline {
        let mut ignored = Sink::new();
        maps::walk(
            volume,
            ino,
            &inode,
            &mut ignored,
            &mut |piece| match piece {
                Piece::Node(block) => look(block.get()..block.get() + 1),
                Piece::Data(run) => look(run.pblk..run.pblk + u64::from(run.len)),
            },
        )?;
    }
    let attributes = inode.file_acl.get();
    if volume.physical().contains(&attributes) {
        look(attributes..attributes + 1);
    }
    let mut tell = |hits: &Hits, code: Code, whose: &str| {
        if let Some(first) = hits.first {
            let block = volume.block_of_cluster(first);
            let text = format!("{} clusters are claimed {whose} as well", hits.count);
            sink.say(code, Place::ino(ino).at_block(Pblk::new(block.get())), text);
        }
    };
    tell(&twice, Code::BlockShared, "by other files or twice");
    tell(&own, Code::BlockOfMetadata, "by the file system itself");
    Ok(())
}
