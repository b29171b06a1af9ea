//! Namespaces of its own, with which all mounts and processes end: the run may panic, be
//! interrupted or be killed.

use super::{clear, place, succeed, system};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names what the machine does not have.
pub(super) fn require_facilities() -> Result<(), String> {
    let me = fs::metadata("/proc/self").map_err(|e| format!("needs /proc: {e}"))?;
    if me.uid() != 0 {
        return Err(
            "needs root: it mounts with the kernel's ext4, and tests other users".to_owned(),
        );
    }
    for module in ["fuse", "loop", "ext4"] {
        // Where there are no modules to load, what is missing is found below.
        let _ = succeed(Command::new("modprobe").args(["-q", module]));
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Err(format!("needs {device}, which this kernel does not offer"));
        }
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.trim() == "ext4") {
        return Err("needs the kernel's ext4, to compare with".to_owned());
    }
    let mut namespaces = Command::new("unshare");
    succeed(namespaces.args(["--mount", "--pid", "--fork", "true"]))
        .map(drop)
        .map_err(|e| format!("needs mount and process namespaces: {e}"))
}

/// Runs this program with the same arguments in namespaces of its own. When either of the two dies,
/// so does everything that was started, and what it mounted goes.
pub(super) fn again_inside(args: &[String]) -> Result<bool, String> {
    let me = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid"])
        .args(["--fork", "--kill-child", "--mount-proc"])
        .arg(me)
        .arg("conformance")
        .args(args)
        .arg("--inside")
        .status()
        .map_err(|e| format!("cannot start setpriv: {e}"))?;
    Ok(status.success())
}

/// Where root mounts, and root of a container: the path is short, as those of sockets must be, and
/// what is there otherwise is hidden in these namespaces only.
pub(super) fn point() -> PathBuf {
    Path::new(HIDDEN).join("point")
}

/// Where an ordinary user mounts: in a directory that it may write to, as `fusermount3` asks for.
pub(super) fn point_of_user() -> PathBuf {
    Path::new(HIDDEN).join("user/point")
}

const HIDDEN: &str = "/mnt";

/// Makes [`point`], and `with_others` what others than root need, in the namespaces.
pub(super) fn make_points(with_others: bool) -> Result<(), String> {
    succeed(system("mount").args(["-t", "tmpfs", "tmpfs", HIDDEN]))?;
    // What is mounted there is seen in namespaces that come from these.
    succeed(system("mount").args(["--make-shared", HIDDEN]))?;
    clear(&point())?;
    if with_others {
        place::open_fuse_to_all(Path::new(HIDDEN))?;
        let of_user = Path::new(HIDDEN).join("user");
        clear(&of_user)?;
        let mut tmpfs = system("mount");
        tmpfs.args(["-t", "tmpfs", "-o", "mode=755,size=1m", "tmpfs"]);
        succeed(tmpfs.arg(of_user))?;
        clear(&point_of_user())?;
        place::Place::new(place::Whose::User)?.give(&point_of_user())?;
    }
    // What still runs when a mount is gone must not go on below it. Below that of the user there is
    // little room.
    succeed(system("mount").args(["-o", "remount,ro", HIDDEN])).map(drop)
}
