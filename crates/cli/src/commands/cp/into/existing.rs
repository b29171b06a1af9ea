//! Which files that are there stay, and what is planned in their places is not copied.

use super::plan::Plan;
use crate::path::{look, look_at_link};
use extant::export::Existing;
use extant::{FileType, Filesystem, Timestamp};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Takes out of a plan what is not copied because of what is there.
pub(super) fn leave(plan: &mut Plan, fs: &Filesystem, how: Existing) {
    // What stays in any case is not planned.
    if how != Existing::KeepNewer {
        return;
    }
    let mut kept = Vec::with_capacity(plan.files.len());
    // When files with several names were changed.
    let mut times: HashMap<PathBuf, Timestamp> = HashMap::new();
    let wanted = |to: &Path, kind: FileType, modified: Timestamp| {
        // What is written to is asked.
        let there = if kind == FileType::Regular {
            look(fs, to)
        } else {
            look_at_link(fs, to)
        };
        // That a directory is in the way, or what cannot be looked at, is said when the file is
        // made.
        let Ok(Some(there)) = there else {
            return true;
        };
        there.is_dir() || there.mtime() < modified
    };
    for node in std::mem::take(&mut plan.files) {
        if !plan.links.is_empty() {
            times.insert(node.to.clone(), node.modified);
        }
        if wanted(&node.to, node.file_type, node.modified) {
            kept.push(node);
        }
    }
    plan.files = kept;
    let mut links = Vec::with_capacity(plan.links.len());
    for link in std::mem::take(&mut plan.links) {
        let modified = times.get(&link.first).copied().unwrap_or_default();
        if wanted(&link.to, FileType::Regular, modified) {
            links.push(link);
        }
    }
    plan.links = links;
}
