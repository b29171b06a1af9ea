//! Mount namespaces that tests make.
//!
//! A new one has copies of all that is mounted, by other tests too. What has a copy is not gone
//! when it is unmounted. So copies are given up at once, and until then no test has the command
//! unmount anything, nor a script that does.

use crate::lost_metadata::Mounted;
use crate::support::Place;
use extant_testkit::require;
use extant_testkit::tool::tool;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Gives up the copies of what tests have mounted, but for that on `$0`.
const LEAVE_OTHERS: &str = "
for other in $(grep -e '/\\.tmp' -e '\\.extant ' /proc/mounts | cut -d' ' -f2); do
    [ \"$other\" = \"$0\" ] || umount -l \"$other\" 2>/dev/null || :
done
exec 9<&-
";

/// What is locked: the program of these tests.
fn lock() -> PathBuf {
    std::env::current_exe().expect("the program has a path")
}

/// As long as this is there, no namespace has copies of mounts but of its own test.
pub(crate) fn without_copies() -> File {
    let lock = File::open(lock()).expect("the program is there");
    flock(&lock, FlockOperation::LockShared).expect("it can be locked");
    lock
}

/// Arguments of `sh` that have it run a script in a mount namespace of its own. The next argument
/// is its `$0`, which may be a directory on which a mount is to stay.
pub(crate) fn apart(script: &str) -> [String; 4] {
    let lock = lock();
    let lock = lock.to_str().expect("the path is text");
    let begin = "exec 9<\"$0\" && flock 9 &&
        exec unshare --mount --propagation private sh -c \"$@\"";
    [
        "-c".to_owned(),
        begin.to_owned(),
        lock.to_owned(),
        format!("{LEAVE_OTHERS}{script}"),
    ]
}

#[test]
fn a_namespace_has_no_mount_of_another_test() {
    require!(Root);
    let place = Place::new();
    let [own, other] =
        ["own", "other"].map(|name| Mounted::at(place.join(name), "tmpfs", "size=64k"));
    let run = tool("sh")
        .args(apart("cut -d' ' -f2 /proc/mounts"))
        .arg(&own.0)
        .ok();
    let text = run.text();
    let is_there = |mounted: &Mounted| text.lines().any(|point| mounted.0 == Path::new(point));
    assert!(is_there(&own) && !is_there(&other), "{text}");
}
