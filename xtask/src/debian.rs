//! A root file system of Debian, made once and kept in `target/debian`.

use crate::programs::{Done, make_dir, succeed, system};
use std::fs;
use std::path::{Path, PathBuf};

/// Programs that make it, and their packages.
pub(crate) const PROGRAMS: &[(&str, &str)] =
    &[("debootstrap", "debootstrap"), ("unshare", "util-linux")];

/// What is in it beside what every Debian has.
const INCLUDED: &str = "systemd-sysv,udev,attr,policycoreutils";

/// The release.
pub(crate) const SUITE: &str = "bookworm";

/// Where packages come from.
pub(crate) const MIRROR: &str = "http://deb.debian.org/debian";

/// The directory that is the root, made by `debootstrap` where it is not there.
pub(crate) fn root_tree(root: &Path) -> Done<PathBuf> {
    tree(root, SUITE, &[&format!("--include={INCLUDED}")])
}

/// A root with nothing but what every Debian has, made by `debootstrap` where it is not there.
pub(crate) fn clean_tree(root: &Path) -> Done<PathBuf> {
    tree(root, &format!("{SUITE}-clean"), &[])
}

fn tree(root: &Path, name: &str, options: &[&str]) -> Done<PathBuf> {
    let dir = root.join("target/debian");
    let (tree, new) = (dir.join(name), dir.join("new"));
    if !tree.exists() {
        let _ = fs::remove_dir_all(&new);
        make_dir(&dir)?;
        // Of one that is killed no mounts are left, through which files would be removed.
        let mut debootstrap = system("unshare");
        debootstrap.args(["--mount", "debootstrap"]);
        debootstrap
            .arg("--variant=minbase")
            .args(options)
            .arg(SUITE);
        succeed(debootstrap.arg(&new).arg(MIRROR))?;
        fs::rename(&new, &tree).map_err(|e| format!("{}: {e}", tree.display()))?;
    }
    Ok(tree)
}

/// Its version, as it says itself.
pub(crate) fn version(tree: &Path) -> Done<String> {
    let text = fs::read_to_string(tree.join("etc/debian_version")).map_err(|e| e.to_string())?;
    Ok(text.trim().to_owned())
}
