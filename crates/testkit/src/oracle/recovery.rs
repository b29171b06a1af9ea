//! Recovery after a crash by others than us: `e2fsck` and the kernel.

use std::path::Path;

use super::second::agrees;
use super::{dumpe2fs_header, e2fsck};
use crate::model::Recovered;
use crate::mount::{KernelMount, Mode};
use crate::tool::Output;
use crate::tree::{Compare, Kind, Time, Tree};

/// A tree after recovery, twice: for comparison with others, and with content for the model.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// For [`same_recovery`].
    pub tree: Tree,
    /// For [`Judge`](crate::model::Judge).
    pub found: Recovered,
}

/// What `e2fsck` may say about an image whose journal is replayed and whose orphans are dealt with.
/// The superblock's totals are not journaled; the counts of groups are. Whether the orphan file is
/// in use is said when a file system is opened, and taken back when it is closed.
const EXPECTED: &[&str] = &[
    "Pass ",
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "Fix? yes",
    "Feature orphan_present is set but orphan file is clean.",
    "Orphan file (inode ",
    "Clear? yes",
];

/// Parts of lines that `e2fsck` prints while it recovers, and in its summary.
const EXPECTED_PARTS: &[&str] = &[
    ": recovering journal",
    "Clearing orphaned inode ",
    "Truncating orphaned inode ",
    // Of a tree from which it has just cut what an orphan is to lose.
    "could be shorter.  Optimize? yes",
    "FILE SYSTEM WAS MODIFIED",
    " files (",
    "Setting free blocks count to",
    "Setting free inodes count to",
    "Setting filetype",
];

/// What comes before all that it should not have said.
const STILL_FOUND: &str = "after replay e2fsck still found ";

/// What it says besides about a log that the superblock does not announce.
const UNANNOUNCED: &[&str] = &[
    "Superblock needs_recovery flag is clear, but journal has data.",
    "Run journal anyway? yes",
];

/// What it says besides where descriptors are damaged that the journal replaces, or a copy of
/// something sound.
const REPLACED: &[&str] = &[
    "ext2fs_check_desc: Corrupt group descriptor",
    // The superblock has a copy of the map of the journal.
    "Backing up journal inode block information.",
];

/// Recovers `image` as `e2fsck -fy` does, and checks it again with `e2fsck -fn`.
///
/// # Errors
///
/// When e2fsck repaired anything that neither the journal nor the orphan list accounts for, or
/// leaves anything to complain about: its report.
pub fn e2fsck_recover(image: &Path) -> Result<(), String> {
    recover(image, &[])
}

/// Returns whether e2fsck cannot be asked for its recovery of `image`: it truncates a file of its
/// orphan list wrong where clusters are larger than blocks (1.47.0 frees the clusters behind the
/// end, but takes only the first block of each out of the map, and then finds fault with that
/// itself). It is asked only where it does so.
pub fn e2fsck_truncates_clusters(image: &Path, report: &str) -> bool {
    report.contains("Truncating orphaned inode ") && dumpe2fs_header(image).has_feature("bigalloc")
}

/// Returns whether all that e2fsck found after its recovery, by what [`e2fsck_recover`] says, is
/// what it did itself: of a file that it cuts to its size it takes the attribute block away as
/// well, and leaves that counted in the inode (1.47.0).
#[must_use]
pub fn e2fsck_drops_attribute_blocks(report: &str) -> bool {
    let Some((_, found)) = report.split_once(STILL_FOUND) else {
        return false;
    };
    let found = found.split_once(":\n").map_or(found, |(found, _)| found);
    found.split("; ").all(|line| {
        let number = line.strip_prefix("Inode ");
        let number = number.and_then(|rest| rest.split_once(", i_blocks is "));
        number.is_some_and(|(ino, _)| report.contains(&format!("Truncating orphaned inode {ino} ")))
    })
}

/// As [`e2fsck_recover`], of an image that the kernel recovers beside it. The kernel takes a log
/// for none where the superblock does not say that there is one to replay, e2fsck replays it and
/// says so: a crash while a file system is being opened or closed can leave that. Only a comparison
/// of the two trees may take it for right.
///
/// # Errors
///
/// As [`e2fsck_recover`].
pub fn e2fsck_recover_beside(image: &Path) -> Result<(), String> {
    recover(image, UNANNOUNCED)
}

/// As [`e2fsck_recover`], of an image whose descriptors were changed on the disk: e2fsck names
/// those that cannot be before it replays the journal, and uses what the journal has. Whatever is
/// left of that fails the second check.
///
/// # Errors
///
/// As [`e2fsck_recover`].
pub fn e2fsck_recover_over_damage(image: &Path) -> Result<(), String> {
    recover(image, REPLACED)
}

fn recover(image: &Path, also: &[&str]) -> Result<(), String> {
    let output = e2fsck(image, &["-fy"]);
    // 0: nothing to do, 1: recovered.
    if output.code > 1 {
        return Err(format!("e2fsck cannot recover the image:\n{output}"));
    }
    let surprises = surprises(&output, also);
    if !surprises.is_empty() {
        return Err(format!("{STILL_FOUND}{}:\n{output}", surprises.join("; ")));
    }
    check_clean(image)
}

fn surprises(output: &Output, also: &[&str]) -> Vec<String> {
    let text = output.text();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_expected = |line: &str| {
        let mut starts = EXPECTED.iter().chain(also);
        starts.any(|start| line.starts_with(start))
            || EXPECTED_PARTS.iter().any(|part| line.contains(part))
    };
    lines
        .filter(|line| !is_expected(line))
        .map(str::to_owned)
        .collect()
}

/// Checks `image` with `e2fsck -fn`, and with the checker that `EXTANT_CHECKER` names if it does.
///
/// # Errors
///
/// Its report when the exit code is not 0, or it would change anything; both reports where the two
/// do not agree.
pub fn check_clean(image: &Path) -> Result<(), String> {
    let output = e2fsck(image, &["-fn"]);
    let agreed = agrees(image, &output);
    if output.code == 0 && !would_change(&output.text()) {
        return agreed;
    }
    let more = agreed.err().unwrap_or_default();
    Err(format!(
        "e2fsck finds fault with the image:\n{output}\n{more}"
    ))
}

/// What `e2fsck -n` asks about, and is no fault: a tree of extents that could be flatter.
const NO_FAULTS: &[&str] = &["  Optimize? no"];

/// Whether `e2fsck -n` asked about a fault, as it does about some without an exit code that tells
/// of them.
fn would_change(report: &str) -> bool {
    let mut asked = report.lines().filter(|line| line.contains("? no"));
    asked.any(|line| !NO_FAULTS.iter().any(|known| line.contains(known)))
}

/// Returns what the judges say of an image that is known to be wrong: nothing where they call it
/// clean, otherwise their complaint.
pub fn opinion(image: &Path) -> String {
    check_clean(image).err().unwrap_or_default()
}

/// Recovers `image` as the kernel does when it mounts it, reads the tree, unmounts, and checks with
/// `e2fsck -fn`. Needs [`Facility::KernelExt4`](crate::facility::Facility).
///
/// # Errors
///
/// When the kernel does not mount it, or leaves anything for e2fsck to complain about.
///
/// # Panics
///
/// When the mounted tree cannot be read.
pub fn kernel_recover(image: &Path) -> Result<Recovery, String> {
    let recovery = read_mounted(image, Mode::ReadWrite)?;
    check_clean(image)?;
    Ok(recovery)
}

/// Returns the tree of a clean `image`, which is not changed. Needs
/// [`Facility::KernelExt4`](crate::facility::Facility).
///
/// # Errors
///
/// When the kernel does not mount it.
///
/// # Panics
///
/// When the mounted tree cannot be read.
pub fn kernel_reads(image: &Path) -> Result<Recovery, String> {
    read_mounted(image, Mode::Untouched)
}

fn read_mounted(image: &Path, mode: Mode) -> Result<Recovery, String> {
    let mount = KernelMount::try_mount(image, mode, "")
        .map_err(|e| format!("the kernel does not mount the image: {e}"))?;
    let found = Recovered::of_directory(mount.path())
        .map_err(|e| format!("the kernel does not read the tree: {e}"))?;
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    Ok(Recovery { tree, found })
}

/// Compares what several recoveries of one image gave; the first is the measure.
///
/// Times of files are not compared: recovery finishes truncations and may say when. Access times
/// change by reading. What is called `e2fsck` may have fewer blocks: it makes trees lower from
/// which it has cut something, which Linux does not. A file may have as many blocks elsewhere, too,
/// as `e2fsck` gives it.
///
/// # Errors
///
/// The differences, with the names of the two that differ.
pub fn same_recovery(recoveries: &[(&str, &Tree)]) -> Result<(), String> {
    let Some(((name, first), others)) = recoveries.split_first() else {
        return Ok(());
    };
    let first = without_file_times(first);
    let lower = others.iter().find(|(other, _)| *other == "e2fsck");
    for (other, tree) in others {
        let compare = Compare {
            atime: false,
            root: false,
            blocks: *other != "e2fsck",
            ..Compare::same_image()
        };
        let mut tree = without_file_times(tree);
        if let Some((_, lower)) = lower {
            forget_lower_trees(&mut tree, lower, &first);
        }
        let differences = first.diff(&tree, &compare);
        if !differences.is_empty() {
            let shown = differences.iter().take(8).map(|d| format!("\n  {d}"));
            return Err(format!(
                "{name} and {other} recover different trees:{}",
                shown.collect::<String>()
            ));
        }
    }
    Ok(())
}

/// Gives files that have as many blocks as in `lower` as many as in `first`.
fn forget_lower_trees(tree: &mut Tree, lower: &Tree, first: &Tree) {
    for (path, entry) in &mut tree.entries {
        let (Some(low), Some(measure)) = (lower.entries.get(path), first.entries.get(path)) else {
            continue;
        };
        let is_file = matches!(entry.kind, Kind::File { .. });
        if is_file && entry.blocks == low.blocks && low.blocks < measure.blocks {
            entry.blocks = measure.blocks;
        }
    }
}

fn without_file_times(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for entry in tree.entries.values_mut() {
        if matches!(entry.kind, Kind::File { .. }) {
            entry.mtime = Time::default();
            entry.ctime = None;
        }
    }
    tree
}
