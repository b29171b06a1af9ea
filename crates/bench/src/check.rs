//! Oracles that judge a result before its time counts.

use std::path::Path;
use std::process::Command;

/// `e2fsck -fn`, which must find nothing.
///
/// # Errors
/// What it found.
pub(crate) fn e2fsck(image: &Path) -> Result<(), String> {
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output()
        .map_err(|e| format!("e2fsck: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let report = String::from_utf8_lossy(&output.stdout);
    let first: Vec<&str> = report.lines().take(20).collect();
    Err(format!("e2fsck finds faults: {}", first.join("\n")))
}

/// An image opened by a reader that did not write it.
///
/// # Errors
/// When it is no file system to that reader.
pub(crate) fn independent_reader(image: &Path) -> Result<ext4_view::Ext4, String> {
    ext4_view::Ext4::load_from_path(image).map_err(|e| format!("ext4-view: {e}"))
}
