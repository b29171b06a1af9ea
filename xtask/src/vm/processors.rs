//! The engine on as many processors as this machine has not: whether it is correct, not how fast it
//! is. It is a debug build, which panics where locks are not taken in their order.

use super::machine::{PATIENCE, Place, all, off};
use crate::guest::Hardware;
use crate::programs::{Done, succeed, system};
use crate::record::Steps;
use std::fs;
use std::path::Path;

/// A machine and what works on it.
struct Load {
    /// Virtual processors.
    processors: u32,
    workers: u32,
    /// Processors that a quota leaves.
    quota: Option<u32>,
    /// Nodes that memory and processors are on.
    nodes: u32,
}

const fn load(processors: u32, workers: u32) -> Load {
    Load {
        processors,
        workers,
        quota: None,
        nodes: 1,
    }
}

const LOADS: &[Load] = &[
    load(1, 8),
    load(2, 2),
    load(2, 16),
    load(4, 4),
    load(8, 8),
    Load {
        quota: Some(2),
        ..load(8, 16)
    },
    Load {
        nodes: 2,
        ..load(8, 8)
    },
    load(16, 16),
];

/// Rounds of all workers together: as many programs as two processors start in a minute without
/// hardware's help.
const ROUNDS: u32 = 96;

/// Rounds of a worker at least.
const FEWEST: u32 = 6;

/// What each worker does, in directories of its own and in one of all: `$1` is its number, `$2` how
/// often. Each round says a dot.
const WORKER: &str = "i=0; mkdir -p $D/$1; while [ $i -lt $2 ]; do \
    echo $i > $D/$1/f$i; mv $D/$1/f$i $D/all/$1-$i; ln $D/all/$1-$i $D/$1/l$i; \
    read x < $D/all/$1-$i; dd if=/dev/zero of=$D/$1/big bs=16k count=8 2> /dev/null; \
    truncate -s $((i*100)) $D/$1/big; test $((i%3)) = 0 && rm $D/all/$1-$i; \
    test $((i%5)) = 0 && rm -f $D/$1/l$i; \
    test $((i%3)) = 0 && dd if=/dev/zero of=$D/$1/big bs=4k count=1 conv=notrunc,fsync 2> /dev/null; \
    ls $D/all > /dev/null 2>&1; i=$((i+1)); echo -n .; done";

/// How many pages of memory without a file the processes of the mount have on each node.
const PAGES: &str = "cat $(for p in $(pidof extant); do echo /proc/$p/numa_maps; done) | grep anon= | \
    tr ' ' '\\n' | awk -F= '/^N0=/ { a += $2 } /^N1=/ { b += $2 } END { print a+0, b+0 }'";

/// Runs the steps.
pub(super) fn run(place: &Place, steps: &mut Steps) {
    for load in LOADS {
        let more = match (load.quota, load.nodes) {
            (Some(left), _) => format!(", of which a quota leaves {left}"),
            (None, nodes @ 2..) => format!(" on {nodes} nodes"),
            _ => String::new(),
        };
        let what = format!(
            "a mount on {} processors{more}, {} workers",
            load.processors, load.workers
        );
        steps.step(&what, || stressed(place, load));
    }
}

fn stressed(place: &Place, load: &Load) -> Done<((), String)> {
    let image = place.path("processors.img");
    let _ = fs::remove_file(&image);
    place.extant(&["mkfs", &image.display().to_string(), "-q", "--size", "256M"])?;
    let hardware = Hardware {
        memory_mib: 2048,
        nodes: load.nodes,
        ..place.hardware(load.processors)
    };
    let mut console = place.start(std::slice::from_ref(&image), hardware)?;
    all(
        &mut console,
        &[&format!("test $(nproc) = {}", load.processors)],
    )?;
    if let Some(left) = load.quota {
        all(
            &mut console,
            &[
                "mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup",
                "echo +cpu > cgroup.subtree_control && mkdir few",
                &format!("echo '{left}00000 100000' > few/cpu.max && echo $$ > few/cgroup.procs"),
                "cd /tmp",
            ],
        )?;
    }
    // The work is the same in all: what it takes is shared by as many.
    let rounds = (ROUNDS / load.workers).max(FEWEST);
    all(
        &mut console,
        &[
            "mount -t tmpfs none /mnt && mkdir /mnt/d && D=/mnt/d",
            "extant mount /dev/vdb $D -o log=/tmp/log,errors=continue,no_blkdev",
            "mkdir $D/all",
            &format!("w() {{ {WORKER}; }}"),
            &format!(
                "for n in $(seq {}); do w $n {rounds} & done; wait",
                load.workers
            ),
        ],
    )?;
    let names = console.run("find $D | wc -l", PATIENCE)?;
    let expected = names_left(load.workers, rounds);
    if names.trim() != expected.to_string() {
        return Err(format!("{names} names instead of {expected}"));
    }
    let mut pages = String::new();
    if load.nodes > 1 {
        let said = console.run(PAGES, PATIENCE)?;
        let parts: Vec<&str> = said.split_whitespace().collect();
        if parts.len() != load.nodes as usize || parts.contains(&"0") {
            return Err(format!(
                "pages of the daemon on {} nodes: {said}",
                load.nodes
            ));
        }
        pages = format!(
            ", {} pages of the mount's processes by node",
            parts.join(" and ")
        );
    }
    all(
        &mut console,
        &[
            "extant umount $D",
            "test ! -s /tmp/log || { cat /tmp/log; false; }",
        ],
    )?;
    off(console)?;
    place.judge(&image)?;
    Ok((
        (),
        format!(
            "{expected} names after {rounds} rounds of each, no lock out of order, both checkers \
             find nothing{pages}"
        ),
    ))
}

/// Names that so many workers leave after so many rounds.
fn names_left(workers: u32, rounds: u32) -> u32 {
    let kept = |every: u32| rounds - rounds.div_ceil(every);
    // The root, `lost+found`, and the directory of all; of each worker its own, and what it writes.
    3 + workers * (2 + kept(3) + kept(5))
}

/// How many processors this machine has, what a quota leaves of them, and how many threads wanted
/// them in the last 15 minutes.
pub(super) fn of_host() -> String {
    let all = succeed(system("nproc").arg("--all")).unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let quota = own.and_then(|own| {
        let file = Path::new("/sys/fs/cgroup").join(own).join("cpu.max");
        fs::read_to_string(file).ok()
    });
    let quota = match quota.as_deref().map(str::trim) {
        None => "no quota that it tells of".to_owned(),
        Some(quota) if quota.starts_with("max") => "no quota".to_owned(),
        Some(quota) => format!("a quota of {quota} microseconds"),
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load
        .split_whitespace()
        .nth(2)
        .unwrap_or("unknown")
        .to_owned();
    format!("{} processors, {quota} and a load of {load}", all.trim())
}
