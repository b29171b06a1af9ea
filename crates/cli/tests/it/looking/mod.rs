//! `find`, `ls`, `du`, `cmp`, `digest` and `grep` beside the programs that they are spelt like,
//! which look at a mount of the same image.

mod compare;
mod find;
mod find_deletes;
mod grep;
mod list;
mod space;

use crate::support::{Place, Run, extant_with};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::mke2fs;
use extant_testkit::plan::{Content, NodeKind, TreePlan};
use extant_testkit::tool::tool;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

/// An image with a directory `tree` of everything that is asked about, and its mount by Linux.
struct Looked {
    place: Place,
    image: String,
    mount: KernelMount,
}

impl Looked {
    fn new() -> Self {
        Self::with(&plan(), |_| {})
    }

    /// With what a plan says, and then what is written into the mounted image.
    fn with(plan: &TreePlan, write: impl FnOnce(&Path)) -> Self {
        let place = Place::in_memory();
        let image = place.join("fs.img");
        mke2fs(&image, 64 << 20, &["-t", "ext4"]);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
        plan.plant(mount.path());
        std::fs::create_dir(mount.join("etc")).expect("a directory");
        for name in ["etc/passwd", "etc/group"] {
            std::fs::copy(Path::new("/").join(name), mount.join(name)).expect("a copy");
        }
        write(mount.path());
        mount.unmount();
        let mount = KernelMount::mount(&image, Mode::Untouched, "");
        Self {
            image: image.display().to_string(),
            place,
            mount,
        }
    }

    fn mounted(&self) -> String {
        self.mount.path().display().to_string()
    }

    /// Runs a program of the machine in the way that this one works: names by bytes, times in UTC.
    fn peer(&self, words: &[&str]) -> Run {
        let output = tool(words[0]).args(&words[1..]).env("LS_COLORS", "").run();
        Run {
            code: output.code,
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A word for the peer: with `@` in front, it is a path in the mount.
    fn in_mount(&self, word: &str) -> String {
        match word.strip_prefix('@') {
            Some(path) => format!("{}{path}", self.mounted()),
            None => word.to_owned(),
        }
    }

    /// A word for this program: with `@` in front, it is a path in the image.
    fn in_image(&self, word: &str) -> String {
        match word.strip_prefix('@') {
            Some(path) => format!("{}:{path}", self.image),
            None => word.to_owned(),
        }
    }
}

/// Runs this program as a peer would be run.
fn extant_plain(args: &[String]) -> Run {
    extant_with(args, |command| {
        command.env("LS_COLORS", "");
    })
}

/// Lines in the order of their bytes.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Expects two lists of lines to be the same, and shows some of those that are in one only.
#[track_caller]
fn assert_same(mine: &[String], peer: &[String], what: &dyn std::fmt::Debug) {
    if mine == peer {
        return;
    }
    let only = |one: &[String], other: &[String]| {
        let lines = one.iter().filter(|line| !other.contains(line)).take(5);
        let lines = lines.map(|line| line.chars().take(200).collect::<String>());
        lines.collect::<Vec<_>>()
    };
    panic!(
        "{what:?}: {} lines, and {} expected\nonly here: {:#?}\nonly there: {:#?}",
        mine.len(),
        peer.len(),
        only(mine, peer),
        only(peer, mine)
    );
}

/// Lines with every run of blanks as one.
fn squeezed(text: &str) -> Vec<String> {
    let words = |line: &str| {
        line.split(' ')
            .filter(|w| !w.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.lines().map(words).collect()
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}

/// Files of all kinds, sizes, owners, modes and ages.
fn plan() -> TreePlan {
    let mut plan = TreePlan::new();
    let now = now();
    plan.dir("tree");
    for (dir, mode) in [
        ("tree/sub", 0o755),
        ("tree/sub/deep", 0o700),
        ("tree/sub/deep/er", 0o2775),
        ("tree/Empty", 0o755),
        ("tree/.hidden", 0o755),
        ("tree/sticky", 0o1777),
        ("tree/open", 0o777),
    ] {
        plan.dir(dir).mode(mode).time(now - 3 * DAY - 40_000, 5);
    }
    let sizes = [0, 1, 511, 512, 513, 1024, 1025, 5000, 70_000, 1 << 20];
    let modes = [
        0o644, 0o600, 0o755, 0o4755, 0o2755, 0o444, 0o000, 0o7777, 0o664, 0o1644,
    ];
    let owners = [(0, 0), (1, 1), (2, 5), (7777, 8888)];
    let dirs = [
        "tree",
        "tree/sub",
        "tree/sub/deep",
        "tree/.hidden",
        "tree/sub/deep/er",
    ];
    for (number, size) in sizes.into_iter().chain(sizes).enumerate() {
        let dir = dirs[number % dirs.len()];
        let name = [
            "a", "b1", "Ab", "sub", "x.txt", "y.TXT", ".dot", "c c", "q\"\\",
        ][number % 9];
        let path = format!("{dir}/{name}{}", if number < 9 { "" } else { "2" });
        let (uid, gid) = owners[number % owners.len()];
        // In the middle of days and of tens of minutes, so that both programs see one age.
        let age = if number % 2 == 0 {
            (number as i64 / 2) * DAY + 40_000
        } else {
            (number as i64 / 2) * 600 + 300
        };
        plan.file(path, Content::filled(number as u64, size))
            .mode(modes[number % modes.len()])
            .owner(uid, gid)
            .time(now - age, 123_456_789);
    }
    plan.file("tree/old", Content::filled(99, 100))
        .time(1_000_000_000, 0);
    plan.file(
        "tree/sparse",
        Content::sparse(4, 4 << 20, [(0, 4096), (2 << 20, 8192)]),
    );
    plan.file("tree/attributed", Content::empty())
        .xattr("user.origin", "here");
    plan.hard_link("tree/again", "tree/sub/b1");
    plan.hard_link("tree/Empty2", "tree/a");
    plan.symlink("tree/link", "a");
    plan.symlink("tree/linkdir", "sub");
    plan.symlink("tree/dangling", "nowhere");
    plan.symlink("tree/loop", "loop");
    plan.special("tree/pipe", NodeKind::Fifo);
    plan.special("tree/socket", NodeKind::Socket);
    plan.special("tree/null", NodeKind::CharDevice(1, 3));
    plan.special("tree/disk", NodeKind::BlockDevice(259, 1000));
    plan
}
