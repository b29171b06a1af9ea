//! The stage that builds maps of inodes anew which have a fault.

use super::clones;
use super::map_builder::{Builder, salvage_beside};
use super::work::Work;
use crate::error::Result;
use crate::maps::Run;
use crate::{Code, Place, special};

const CODES: &[Code] = &[
    Code::ExtentNode,
    Code::ExtentChecksum,
    Code::ExtentIndexStart,
    Code::ExtentMisaligned,
    Code::IndirectPointer,
    Code::DirTooLarge,
];

/// Builds the maps anew that have a fault.
pub(super) fn fix(work: &mut Work<'_>) -> Result<()> {
    for (ino, codes) in work.by_inode(CODES) {
        let volume = work.volume();
        let Some((_, inode)) = volume.inode(ino)? else {
            continue;
        };
        let mut runs = salvage_beside(work.survey, ino, &inode)?;
        if codes.contains(&Code::ExtentMisaligned) {
            let ratio = volume.cluster_ratio();
            let all = runs.len();
            runs.retain(|run| run.pblk % ratio == u64::from(run.lblk) % ratio);
            let is_sound = runs.len() == all && codes.len() == 1;
            // What others share is copied later.
            if clones::join(work, ino, &runs)? || is_sound {
                continue;
            }
        }
        if codes.contains(&Code::DirTooLarge) {
            runs = drawn_together(&runs, special::dir_blocks_max(volume));
        }
        if Builder::rebuild(work, ino, &runs)? {
            let blocks: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
            let code = codes.first().copied().unwrap_or(Code::ExtentNode);
            let text =
                format!("the map was built anew, of the {blocks} blocks that it still names");
            work.fix(code, Place::ino(ino), text);
        }
    }
    Ok(())
}

/// Runs of a directory with what lies beyond `most` blocks moved up to the others, as far as it
/// fits: the names in it are as good as others.
fn drawn_together(runs: &[Run], most: u64) -> Vec<Run> {
    let mut together = Vec::new();
    let mut next = 0;
    for run in runs {
        let end = u64::from(run.lblk) + u64::from(run.len);
        let lblk = if end <= most { run.lblk } else { next };
        let room = most.saturating_sub(lblk.into());
        let len = u64::from(run.len).min(room) as u32;
        if len > 0 {
            together.push(Run { lblk, len, ..*run });
            next = lblk + len;
        }
    }
    together
}
