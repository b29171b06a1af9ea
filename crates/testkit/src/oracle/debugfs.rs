//! `debugfs`: looking at and breaking an image through e2fsprogs' own eyes.

use std::path::Path;

use crate::tool::tool;

/// Runs one debugfs `request` on `image`, read only, and returns what it printed.
///
/// # Panics
///
/// When debugfs cannot open the image. (A failing request is only visible in the text.)
pub fn debugfs(image: &Path, request: &str) -> String {
    tool("debugfs").args(["-R", request]).arg(image).ok().text()
}

/// Runs debugfs `requests` on `image`, one after the other, with write access.
///
/// # Panics
///
/// When debugfs cannot open the image.
pub fn debugfs_write(image: &Path, requests: &[&str]) -> String {
    let script: String = requests.iter().map(|r| format!("{r}\n")).collect();
    tool("debugfs")
        .args(["-w", "-f", "-"])
        .arg(image)
        .input(script)
        .ok()
        .text()
}
