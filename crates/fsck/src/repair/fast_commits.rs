//! Fast commits that can be replayed only over what is mended: what they change is damaged.
//!
//! The transactions before them come home first, and are not replayed again: they would bring back
//! what is damaged. Then all is mended but for orphans and for blocks that files share, whose turn
//! comes once all is replayed. Nothing new is put where fast commits say that something else comes,
//! and what a damaged map has there is taken out of it. Then an engine replays them over
//! that, and the repair goes on with the outcome.

use super::draft::{Draft, Reserved};
use super::journal;
use super::map_builder::{Builder, is_mapped};
use super::net::{self, Loss};
use super::options::Options;
use super::rounds::Rounds;
use super::space::on_disk;
use super::work::Work;
use crate::blockset::BlockSet;
use crate::error::Result;
use crate::maps::{self, Run};
use crate::volume::Volume;
use crate::{Code, Place, Progress};
use extant_blockdev::{OverlayDevice, SharedDevice};
use extant_format::bitmap;
use std::sync::Arc;

/// Replays what waits in the journal of a file system, as an engine does: gets the device, and
/// gives an overlay on it which has what that writes, or says why it cannot.
pub type Replay<'a> = &'a dyn Fn(&SharedDevice) -> std::result::Result<Arc<OverlayDevice>, String>;

/// Mends what the draft has, and takes over what `replay` makes of that. Returns what mending would
/// lose so far: the first of it, and how many files.
///
/// # Errors
/// A refusal where there are no fast commits, or they cannot be replayed over that either.
pub(super) fn mend_and_replay(
    draft: &mut Draft,
    replay: Replay<'_>,
    options: Options,
    rounds: Rounds,
    progress: &dyn Progress,
) -> Result<(Vec<Loss>, u64)> {
    if !journal::leave_fast_commits(draft)? {
        return Err(journal::refused("no fast commits are found"));
    }
    let survey = rounds.beside_fast_commits().run(draft, progress)?;
    let losses = net::losses(draft)?;
    take_out(&mut Work::new(&survey, draft, options))?;
    let replayed = replay(&draft.freeze()).map_err(|why| journal::refused(&why))?;
    draft.reserve(Reserved::default());
    journal::take_over(draft, replayed)?;
    Ok(losses)
}

/// Takes out of maps that were damaged what is free, and what fast commits give to other files: it
/// was never theirs.
fn take_out(work: &mut Work<'_>) -> Result<()> {
    let survey = work.survey;
    let volume = work.volume();
    if volume.cluster_ratio() > 1 {
        // Fast commits are not replayed there.
        return Ok(());
    }
    let coming = free_of(volume, &work.draft.reserved().clusters)?;
    for ino in work.draft.in_doubt().clone() {
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        if !survey.table.get(ino).is_in_use() || !is_mapped(volume, ino, &inode) {
            continue;
        }
        let runs = maps::runs(volume, ino, &inode)?;
        let own = work.draft.reserved().by_file.get(&ino);
        let kept: Vec<Run> = runs
            .iter()
            .flat_map(|run| outside(volume, run, &coming, own))
            .collect();
        if kept != runs && Builder::rebuild(work, ino, &kept)? {
            let text = "blocks that fast commits give to other files were taken out of its map";
            work.fix(Code::BlockShared, Place::ino(ino), text);
        }
    }
    Ok(())
}

/// Those of some clusters that their bitmaps call free.
fn free_of(volume: &Volume, clusters: &BlockSet) -> Result<BlockSet> {
    let mut free = BlockSet::default();
    for group in volume.geo.groups() {
        let per_group = u64::from(volume.geo.clusters_per_group());
        let first = u64::from(group.get()) * per_group;
        let mut named = Vec::new();
        clusters.runs(first..first + per_group, &mut |run| named.push(run));
        if named.is_empty() {
            continue;
        }
        let map = on_disk(volume, group.get())?;
        for cluster in named.into_iter().flatten() {
            // Of a bitmap that was never written nothing is read.
            if map.is_empty() || !bitmap::test(&map, (cluster - first) as u32) {
                free.add(cluster..cluster + 1);
            }
        }
    }
    Ok(free)
}

/// The parts of a run whose clusters, of one block each, are not in one set, or are in another.
fn outside(volume: &Volume, run: &Run, set: &BlockSet, but: Option<&BlockSet>) -> Vec<Run> {
    let end = run.pblk + u64::from(run.len);
    let mut parts = Vec::new();
    let mut at = run.pblk;
    let mut push = |from: u64, to: u64| {
        if from < to {
            parts.push(Run {
                lblk: run.lblk + (from - run.pblk) as u32,
                len: (to - from) as u32,
                pblk: from,
                ..*run
            });
        }
    };
    set.runs(volume.clusters_of(run.pblk..end), &mut |coming| {
        for cluster in coming {
            if but.is_none_or(|but| !but.contains(cluster)) {
                let block = volume.block_of_cluster(cluster).get();
                push(at, block);
                at = block + 1;
            }
        }
    });
    push(at, end);
    parts
}
