//! `compare`: what differs between two images, and one made like a directory, by the command
//! `extant` as a process of its own.

use crate::args::{Config, Side};
use crate::check;
use crate::peer::{self, Measured};
use crate::source_tree::{self, SourceTree};
use crate::store::Store;
use crate::workload::build::{Unmount, command, path};
use crate::workload::remote::Extant;
use crate::workload::{Case, Shape, Workload};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const SAME_LAYOUT: &str = "diff-same-layout";
const OTHER_LAYOUT: &str = "diff-other-layout";
const SYNC: &str = "sync";

/// Files that are changed.
const CHANGED: usize = 10;

/// See the module.
pub(crate) struct Compare {
    store: Store,
    tree: SourceTree,
    extant: Extant,
}

impl Compare {
    /// Generates a tree, an image of it that the kernel made, and two of the tree with some files
    /// changed: a copy of the first, and one with another layout.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let extant = Extant::find(config.extant.as_deref())?;
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let tree = source_tree::generate(&store.path("tree"), config.entries, config.bytes)
            .map_err(|e| format!("source tree: {e}"))?;
        let (old, new, other) = (store.path("old"), store.path("new"), store.path("other"));
        let mounts = [store.path("one"), store.path("two")];
        for mount in &mounts {
            fs::create_dir_all(mount).map_err(|e| e.to_string())?;
        }
        let mount = &mounts[0];
        let size = format!("{}M", tree.bytes.div_ceil(1 << 20) * 14 / 10 + 256);
        let inodes = (tree.entries + tree.entries / 10 + 64).to_string();
        let source = format!("{}/.", path(&tree.root));
        let unmount = Unmount(mount);
        let format = ["-q", "-F", "-t", "ext4", "-N", &inodes];
        let text = |e: std::io::Error| e.to_string();
        peer::measure(&mut [
            command("mke2fs", &[&format[..], &[path(&old), &size]].concat()),
            command("mount", &["-o", "loop", path(&old), path(mount)]),
            command("cp", &["-a", &source, path(mount)]),
            command("umount", &[path(mount)]),
        ])
        .map_err(text)?;
        change(&tree)?;
        let from = format!("{}/", path(&tree.root));
        peer::measure(&mut [
            command("cp", &["--sparse=always", path(&old), path(&new)]),
            command("mount", &["-o", "loop", path(&new), path(mount)]),
            command("rsync", &["-a", &from, path(mount)]),
            command("umount", &[path(mount)]),
            command(
                "mke2fs",
                &[&format[..], &["-d", path(&tree.root), path(&other), &size]].concat(),
            ),
        ])
        .map_err(text)?;
        drop(unmount);
        Ok(Self {
            store,
            tree,
            extant,
        })
    }

    /// Compares two images, and returns the files that are said to differ.
    fn diff(&self, case: &Case) -> Result<(Measured, BTreeSet<String>), String> {
        let second = match case.variant {
            SAME_LAYOUT => self.store.path("new"),
            _ => self.store.path("other"),
        };
        let first = self.store.path("old");
        let said = self.store.path("said");
        if case.side == Side::Engine {
            let threads = case.workers.to_string();
            let mut run = self.extant.run(["diff", "--brief", "--only", "content"]);
            run.args(["--threads", &threads]).args([&first, &second]);
            let measured = peer::measure(&mut [said_to(&run, &said)]).map_err(|e| e.to_string())?;
            let told = fs::read_to_string(&said).map_err(|e| e.to_string())?;
            let lines = told.lines().filter_map(|line| line.strip_prefix("c /"));
            return Ok((measured, lines.map(str::to_owned).collect()));
        }
        let mounts = [self.store.path("one"), self.store.path("two")];
        let _unmount = [Unmount(&mounts[0]), Unmount(&mounts[1])];
        for (image, mount) in [&first, &second].into_iter().zip(&mounts) {
            let options = ["-o", "loop,ro", path(image), path(mount)];
            peer::measure(&mut [command("mount", &options)]).map_err(|e| e.to_string())?;
        }
        let run = command(
            "diff",
            &[
                "-rq",
                "--no-dereference",
                "--exclude=lost+found",
                path(&mounts[0]),
                path(&mounts[1]),
            ],
        );
        let measured = peer::measure(&mut [said_to(&run, &said)]).map_err(|e| e.to_string())?;
        let told = fs::read_to_string(&said).map_err(|e| e.to_string())?;
        let start = format!("Files {}/", path(&mounts[0]));
        let lines = told.lines().filter_map(|line| line.strip_prefix(&start));
        let names = lines.filter_map(|line| line.split(' ').next());
        Ok((measured, names.map(str::to_owned).collect()))
    }

    /// Makes an image like the changed tree.
    fn sync(&self, case: &Case) -> Result<Measured, String> {
        let (old, image) = (self.store.path("old"), self.store.path("synced"));
        let mount = self.store.path("one");
        let text = |e: std::io::Error| e.to_string();
        let source = format!("{}/", path(&self.tree.root));
        let copy = ["--sparse=always", path(&old), path(&image)];
        peer::measure(&mut [command("cp", &copy)]).map_err(text)?;
        let measured = if case.side == Side::Engine {
            let threads = case.workers.to_string();
            let dest = format!("{}:/", path(&image));
            let mut run = self.extant.run(["sync", "-q", "--threads", &threads]);
            run.args([&source, &dest]);
            peer::measure(&mut [run]).map_err(text)?
        } else {
            let unmount = Unmount(&mount);
            let options = ["-o", "loop", path(&image), path(&mount)];
            peer::measure(&mut [command("mount", &options)]).map_err(text)?;
            let measured = peer::measure(&mut [
                command("rsync", &["-a", &source, path(&mount)]),
                command("sync", &["-f", path(&mount)]),
            ])
            .map_err(text)?;
            drop(unmount);
            measured
        };
        check::e2fsck(&image)?;
        let _unmount = Unmount(&mount);
        let options = ["-o", "loop,ro", path(&image), path(&mount)];
        peer::measure(&mut [command("mount", &options)]).map_err(text)?;
        let left = Command::new("rsync")
            .args(["-anic", "--delete", "--exclude=/lost+found", &source])
            .arg(path(&mount))
            .output()
            .map_err(text)?;
        if !left.status.success() || !left.stdout.is_empty() {
            let left = String::from_utf8_lossy(&left.stdout).into_owned();
            return Err(format!("rsync would still change: {left}"));
        }
        Ok(measured)
    }
}

/// A command that may find differences, with what it says in a file.
fn said_to(run: &Command, said: &Path) -> Command {
    let mut shell = Command::new("sh");
    let script = "out=$1; shift; \"$@\" > \"$out\"; test $? -le 1";
    shell.args(["-c", script, "sh"]).arg(said);
    shell.arg(run.get_program()).args(run.get_args());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// The files that are changed: some of those that are spread over the tree.
fn changed(tree: &SourceTree) -> Vec<PathBuf> {
    let step = (tree.samples.len() / CHANGED).max(1);
    let some = tree.samples.iter().step_by(step).take(CHANGED);
    some.map(|sample| sample.path.clone()).collect()
}

/// Changes these files, each at its end.
fn change(tree: &SourceTree) -> Result<(), String> {
    for name in changed(tree) {
        let file = fs::File::options().append(true).open(tree.root.join(name));
        let written = file.and_then(|mut file| file.write_all(b"changed\n"));
        written.map_err(|e| e.to_string())?;
    }
    Ok(())
}

impl Workload for Compare {
    fn name(&self) -> &'static str {
        "compare"
    }

    fn shape(&self) -> Shape {
        let mut shape = Shape::seconds(&[Side::Kernel]);
        shape.variants = &[SAME_LAYOUT, OTHER_LAYOUT, SYNC];
        shape
    }

    fn options(&self, case: &Case) -> String {
        let what = format!(
            "{} entries, {} MB, {CHANGED} files changed",
            self.tree.entries,
            self.tree.bytes / 1_000_000
        );
        match (case.side, case.variant) {
            (Side::Kernel, SYNC) => format!("{what}; rsync -a onto a mount, and sync"),
            (Side::Kernel, _) => format!("{what}; diff -rq of two mounts"),
            _ => what,
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        if case.variant == SYNC {
            return self.sync(case);
        }
        let (measured, told) = self.diff(case)?;
        let names = changed(&self.tree);
        let expected: BTreeSet<String> = names.iter().map(|name| path(name).to_owned()).collect();
        if told == expected {
            Ok(measured)
        } else {
            Err(format!("{} files are said to differ: {told:?}", told.len()))
        }
    }
}
