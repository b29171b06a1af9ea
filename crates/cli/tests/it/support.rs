//! Images to look into, and running the command.

use crate::namespaces::without_copies;
use assert_cmd::Command;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, NodeKind, TreePlan};
use extant_testkit::tool::{Tool, tool};
use extant_testkit::tree::{Compare, Holes, Tree};
use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// No command of a test takes so long, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(600);

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    /// Expects success.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// Expects this exit code and a message for people.
    #[track_caller]
    pub(crate) fn fails(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.starts_with("extant: "), "{}", self.stderr);
        self
    }

    /// Expects a message for people and an exit code that says that something is wrong.
    #[track_caller]
    pub(crate) fn fails_somehow(self) -> Self {
        assert_ne!(self.code, 0);
        assert!(self.stderr.starts_with("extant: "), "{}", self.stderr);
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The objects of JSON lines.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    /// The one object of a JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).expect("the output is one JSON document")
    }
}

/// Runs the command with these arguments.
pub(crate) fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    extant_with(args, |_| {})
}

/// Runs the command with these arguments after `prepare`.
pub(crate) fn extant_with<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
    prepare: impl FnOnce(&mut Command),
) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    command.env_remove("SOURCE_DATE_EPOCH").args(args);
    command.timeout(LONGEST);
    prepare(&mut command);
    let unmounts = command.get_args().next() == Some("umount".as_ref());
    let _no_copies = unmounts.then(without_copies);
    let output = command.output().expect("the command runs");
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What the command shows on a terminal.
pub(crate) fn on_a_terminal(args: &[&str]) -> String {
    let quoted: Vec<String> = std::iter::once(env!("CARGO_BIN_EXE_extant"))
        .chain(args.iter().copied())
        .map(|arg| format!("'{arg}'"))
        .collect();
    tool("script")
        .args(["-q", "-c", &quoted.join(" "), "/dev/null"])
        .ok()
        .text()
}

/// A directory of its own for a test.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { dir }
    }

    /// On tmpfs, which takes every extended attribute.
    pub(crate) fn in_memory() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a temporary directory");
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gives the path of a file in it as an argument.
    pub(crate) fn arg(&self, name: &str) -> String {
        self.join(name).display().to_string()
    }

    /// An image `fs.img` of this size with what a plan says, made through a mount by the kernel,
    /// which keeps all of it.
    pub(crate) fn kernel_image(&self, plan: &TreePlan, size: u64, options: &[&str]) -> String {
        let image = self.join("fs.img");
        let all = [&["-t", "ext4"], options].concat();
        mke2fs(&image, size, &all);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
        plan.plant(mount.path());
        mount.unmount();
        image.display().to_string()
    }

    /// A directory on the host with what a plan says.
    pub(crate) fn planted(&self, name: &str, plan: &TreePlan) -> String {
        std::fs::create_dir(self.join(name)).expect("a directory");
        plan.plant(&self.join(name));
        self.arg(name)
    }

    /// An image `fs.img` of 32 MiB with what a plan says, made by `mke2fs -d`.
    pub(crate) fn image(&self, plan: &TreePlan, options: &[&str]) -> String {
        let source = self.planted("source", plan);
        let image = self.join("fs.img");
        let mut all = vec!["-t", "ext4", "-d", &source];
        all.extend_from_slice(options);
        mke2fs(&image, 32 << 20, &all);
        image.display().to_string()
    }
}

/// What a copy that keeps everything must agree on.
pub(crate) fn faithful() -> Compare {
    Compare {
        holes: Holes::NoneLost(4096),
        ..Compare::default()
    }
}

/// What survives `mke2fs -d`, which keeps whole seconds and not those of the root.
pub(crate) fn as_mke2fs_keeps() -> Compare {
    Compare {
        whole_seconds: true,
        root: false,
        ..faithful()
    }
}

/// What Linux shows of an image.
pub(crate) fn seen_by_linux(image: &str) -> Tree {
    let mount = KernelMount::mount(Path::new(image), Mode::Untouched, "");
    let tree = Tree::snapshot(mount.path());
    mount.unmount();
    tree
}

/// Runs a command that must leave the image clean, whether or not it fails.
#[track_caller]
pub(crate) fn change<S: AsRef<OsStr>>(image: &str, args: impl IntoIterator<Item = S>) -> Run {
    let run = extant(args);
    assert_clean(Path::new(image));
    run
}

/// A program that will run as an ordinary user, which may enter the place and owns its directory
/// `public`; `extant` of the place is the command under test, and the program if none is named.
pub(crate) fn ordinary_user(place: &Place, program: &str) -> Tool {
    let public = place.join("public");
    if !public.exists() {
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).expect("it is ours");
        std::fs::create_dir(&public).expect("a directory");
        std::os::unix::fs::chown(&public, Some(65534), Some(65534)).expect("root may");
        copy_of_the_command(&place.join("extant"));
    }
    let program = match program {
        "" => place.arg("extant"),
        program => program.to_owned(),
    };
    tool("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(program)
        .env("HOME", &public)
        .env("TMPDIR", &public)
}

/// A copy of the command under test, to be run: written by a program of its own, as a process that
/// another thread begins meanwhile would hold open what this one writes, and such is not run.
pub(crate) fn copy_of_the_command(copy: &Path) {
    tool("cp").arg(env!("CARGO_BIN_EXE_extant")).arg(copy).ok();
}

/// A copy of a file, holes and all.
pub(crate) fn copy_of(file: &str, copy: &str) -> String {
    tool("cp").args(["--sparse=always", file, copy]).ok();
    copy.to_owned()
}

/// A few files of all the kinds that need no root.
pub(crate) fn small_plan() -> TreePlan {
    let mut plan = TreePlan::new();
    plan.dir("etc");
    plan.file("etc/hostname", Content::filled(1, 4)).mode(0o644);
    plan.file("etc/.hidden", Content::empty());
    plan.symlink("etc/link", "hostname");
    plan.symlink("etc/up", "../../../../etc/hostname");
    plan.symlink("etc/absolute", "/etc/hostname");
    plan.symlink("loop", "loop");
    plan.dir("usr");
    plan.dir("usr/lib");
    plan.file("usr/lib/libone.so", Content::filled(2, 100_000))
        .mode(0o4755);
    plan.file("usr/lib/libtwo.so.6", Content::filled(3, 5_000));
    plan.hard_link("usr/lib/again", "usr/lib/libone.so");
    plan.file(
        "usr/lib/sparse",
        Content::sparse(4, 4 << 20, [(0, 4096), (2 << 20, 8192)]),
    );
    plan.file(
        b"usr/lib/b\xffd name\x1b[31m".to_vec(),
        Content::filled(5, 10),
    );
    plan.special("usr/pipe", NodeKind::Fifo);
    plan
}
