//! Independent judges of an image.

mod debugfs;
mod dumpe2fs;
mod ext4_view;
mod recovery;
mod second;

pub use debugfs::{debugfs, debugfs_write};
pub use dumpe2fs::{Dump, GroupDump, dumpe2fs, dumpe2fs_header};
pub use ext4_view::view_tree;
pub use recovery::{
    Recovery, check_clean, e2fsck_drops_attribute_blocks, e2fsck_recover, e2fsck_recover_beside,
    e2fsck_recover_over_damage, e2fsck_truncates_clusters, kernel_reads, kernel_recover, opinion,
    same_recovery,
};
pub use second::DISAGREE;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::tool::{Output, Tool, find, tool};

/// Checks `image` with `e2fsck -fn`, and with the checker that `EXTANT_CHECKER` names if it does,
/// and expects nothing to complain about.
///
/// # Panics
///
/// When the exit code is not 0; the message is e2fsck's report. When the two do not agree.
pub fn assert_clean(image: &Path) {
    if let Err(report) = check_clean(image) {
        panic!("{report}");
    }
}

/// Runs `e2fsck` with the given options on `image`, whatever it says.
pub fn e2fsck(image: &Path, options: &[&str]) -> Output {
    without_cache(tool("e2fsck").args(options).arg(image)).run()
}

/// Has a program look for devices itself: for two seconds it would believe what another one found,
/// and takes the device of another test for the journal.
fn without_cache(tool: Tool) -> Tool {
    tool.env("BLKID_FILE", "/dev/null")
}

/// Runs e2fsck with no more time than `limit`; `None` if that was not enough, or a signal ended it.
pub fn e2fsck_within(image: &Path, options: &[&str], limit: Duration) -> Option<Output> {
    let tool = tool("timeout")
        .args(["-s", "KILL"])
        .arg(limit.as_secs().to_string())
        .arg(find("e2fsck"))
        .args(options)
        .arg(image);
    let output = without_cache(tool).run();
    // As `timeout` tells of a signal.
    (0..128).contains(&output.code).then_some(output)
}

/// Makes a file system of `size` bytes in the file `image` with `mke2fs` (`-F -q` are given).
///
/// # Panics
///
/// When mke2fs refuses.
pub fn mke2fs<S: AsRef<OsStr>>(image: &Path, size: u64, options: &[S]) {
    let file = std::fs::File::create(image)
        .unwrap_or_else(|e| panic!("cannot create {}: {e}", image.display()));
    file.set_len(size)
        .unwrap_or_else(|e| panic!("cannot size {}: {e}", image.display()));
    drop(file);
    tool("mke2fs")
        .args(["-F", "-q"])
        .args(options)
        .arg(image)
        .ok();
}
