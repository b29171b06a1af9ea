//! Blocks that are claimed more than once: the first keeps them, the others get copies.

use super::draft::Draft;
use super::map_builder::{Builder, is_mapped, salvage};
use super::work::Work;
use crate::blockset::BlockSet;
use crate::error::Result;
use crate::maps::{Piece, Run};
use crate::report::Sink;
use crate::survey::Survey;
use crate::{Code, Place};
use extant_format::features::{Compat, RoCompat};
use extant_format::inode::Inode;
use extant_format::{Ino, Pblk, indirect};

pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    let survey = work.survey;
    let volume = work.volume();
    let nothing = survey.shared.is_empty() && survey.over_fixed.is_empty();
    if nothing || volume.has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return Ok(());
    }
    let mut kept = BlockSet::default();
    // Attribute blocks and the top of the map that keeps room for descriptors stay where they are.
    for (block, _) in &survey.xattr_blocks {
        let cluster = volume.cluster_of(block.get());
        kept.add(cluster..cluster + 1);
    }
    if volume.has_compat(Compat::RESIZE_INODE)
        && let Some((_, inode)) = volume.inode(Ino::RESIZE)?
    {
        let root = indirect::root_pointers(&inode.map);
        let cluster = volume.cluster_of(root.get(13).copied().unwrap_or(0).into());
        kept.add(cluster..cluster + 1);
    }
    for (ino, _) in survey.table.in_use() {
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        let resize = ino == Ino::RESIZE && volume.has_compat(Compat::RESIZE_INODE);
        if !resize && is_mapped(volume, ino, &inode) {
            one(work, ino, &inode, &mut kept)?;
        }
    }
    Ok(())
}

/// Notes that a file claims a cluster. Returns whether it belongs to the file system or to a file
/// that came before.
fn note_claim(work: &Work<'_>, cluster: u64, kept: &mut BlockSet) -> bool {
    if work.survey.over_fixed.contains(cluster) {
        return true;
    }
    if !work.survey.shared.contains(cluster) {
        return false;
    }
    let mut again = false;
    kept.insert(cluster..cluster + 1, &mut |_| again = true);
    again
}

/// Whether nothing else claims what a file has, and the clusters of the nodes of its map.
fn claims(survey: &Survey, ino: Ino, inode: &Inode) -> Result<(bool, Vec<u64>)> {
    let volume = &survey.volume;
    let mut nodes = Vec::new();
    let mut is_alone = true;
    crate::maps::walk(volume, ino, inode, &mut Sink::new(), &mut |piece| {
        let blocks = match piece {
            Piece::Node(block) => {
                nodes.push(volume.cluster_of(block.get()));
                block.get()..block.get() + 1
            }
            Piece::Data(run) => run.pblk..run.pblk + u64::from(run.len),
        };
        let clusters = volume.clusters_of(blocks);
        for set in [&survey.shared, &survey.over_fixed] {
            set.runs(clusters.clone(), &mut |_| is_alone = false);
        }
    })?;
    Ok((is_alone, nodes))
}

/// Takes note of the files that claim what others claim, too. A repair lets the first of them keep
/// it; which of them wrote it last is not known.
pub(super) fn note_doubts(survey: &Survey, draft: &mut Draft) -> Result<()> {
    let volume = &survey.volume;
    let nothing = survey.shared.is_empty() && survey.over_fixed.is_empty();
    if nothing || volume.has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return Ok(());
    }
    for (ino, _) in survey.table.in_use() {
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        if is_mapped(volume, ino, &inode) && !claims(survey, ino, &inode)?.0 {
            draft.doubt(ino);
        }
    }
    Ok(())
}

/// Gives one file copies of what is not its own.
fn one(work: &mut Work<'_>, ino: Ino, inode: &Inode, kept: &mut BlockSet) -> Result<()> {
    let volume = work.volume();
    let (is_alone, nodes) = claims(work.survey, ino, inode)?;
    if is_alone {
        return Ok(());
    }
    let mut moved_nodes = false;
    for cluster in nodes {
        moved_nodes |= note_claim(work, cluster, kept);
    }
    let runs = salvage(volume, ino, inode)?;
    let Some((runs, copies)) = apart(work, &runs, kept)? else {
        return Ok(());
    };
    if copies.is_empty() && !moved_nodes {
        return Ok(());
    }
    if !Builder::rebuild(work, ino, &runs)? {
        return Ok(());
    }
    let count = copies.len();
    copy(work, copies)?;
    let text = format!("{count} blocks were copied to a place of their own");
    work.fix(Code::BlockShared, Place::ino(ino), text);
    Ok(())
}

/// Brings the blocks of each cluster of a file into one, which is the file's alone. Returns whether
/// there were others.
pub(super) fn join(work: &mut Work<'_>, ino: Ino, runs: &[Run]) -> Result<bool> {
    let volume = work.volume();
    let mut is_shared = false;
    for run in runs {
        let clusters = volume.clusters_of(run.pblk..run.pblk + u64::from(run.len));
        for set in [&work.survey.shared, &work.survey.over_fixed] {
            set.runs(clusters.clone(), &mut |_| is_shared = true);
        }
    }
    if is_shared {
        // They are copied with those of others.
        return Ok(false);
    }
    let Some((runs, copies)) = apart(work, runs, &mut BlockSet::default())? else {
        return Ok(false);
    };
    if copies.is_empty() || !Builder::rebuild(work, ino, &runs)? {
        return Ok(false);
    }
    let count = copies.len();
    copy(work, copies)?;
    let text = format!("{count} blocks were copied into the cluster that they belong to");
    work.fix(Code::ExtentMisaligned, Place::ino(ino), text);
    Ok(true)
}

fn copy(work: &mut Work<'_>, copies: Copies) -> Result<()> {
    let volume = work.volume();
    let mut bytes = vec![0; volume.block_size().len()];
    for (from, to) in copies {
        volume.read(from, &mut bytes)?;
        work.put_block(to, &bytes)?;
    }
    Ok(())
}

/// Blocks to be copied, from and to.
type Copies = Vec<(Pblk, Pblk)>;

/// The runs of a file with new places for what is another's, and what is to be copied there; `None`
/// when there is no room.
fn apart(
    work: &mut Work<'_>,
    runs: &[Run],
    kept: &mut BlockSet,
) -> Result<Option<(Vec<Run>, Copies)>> {
    let volume = work.volume();
    let ratio = volume.cluster_ratio();
    let mut new: Vec<Run> = Vec::new();
    let mut copies = Vec::new();
    // The cluster of the file that was decided last, and where it goes.
    let mut last: Option<(u64, u64)> = None;
    for run in runs {
        let mut done = 0;
        while done < run.len {
            let lblk = u64::from(run.lblk + done);
            let pblk = run.pblk + u64::from(done);
            let (logical, cluster) = (lblk / ratio, volume.cluster_of(pblk));
            let within = (pblk - volume.geo.first_data_block().get()) % ratio;
            let len = (ratio - within).min(u64::from(run.len - done)) as u32;
            let target = match last {
                // What lies apart from the rest of a cluster joins it.
                Some((l, target)) if l == logical => target,
                _ if note_claim(work, cluster, kept) => match work.new_block()? {
                    Some(block) => volume.cluster_of(block.get()),
                    None => return Ok(None),
                },
                _ => cluster,
            };
            last = Some((logical, target));
            let place = volume.block_of_cluster(target).get() + within;
            if target != cluster && !run.unwritten {
                for i in 0..u64::from(len) {
                    copies.push((Pblk::new(pblk + i), Pblk::new(place + i)));
                }
            }
            push(
                &mut new,
                Run {
                    lblk: run.lblk + done,
                    len,
                    pblk: place,
                    unwritten: run.unwritten,
                },
            );
            done += len;
        }
    }
    Ok(Some((new, copies)))
}

/// Adds a run, joined with the one before it where they touch.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last)
            if last.unwritten == run.unwritten
                && last.lblk + last.len == run.lblk
                && last.pblk + u64::from(last.len) == run.pblk =>
        {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}
