//! `compare`: what differs between two images, one made like a directory, and one listed as it is
//! mended in memory, by the command `extant` as a process of its own.

use crate::args::{Config, Side};
use crate::check;
use crate::command::Extant;
use crate::peer::{self, Measured};
use crate::source_tree::{self, SourceTree};
use crate::store::Store;
use crate::workload::build::{Unmount, command, path};
use crate::workload::{Case, Shape, Workload};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const SAME_LAYOUT: &str = "diff-same-layout";
const OTHER_LAYOUT: &str = "diff-other-layout";
const SYNC: &str = "sync";
const MEND_SOUND: &str = "mend-sound";
const MEND_DAMAGED: &str = "mend-damaged";

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
    /// changed: a copy of the first, and one with another layout. And a copy of the first in which
    /// the maps of these files are damaged.
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
        let (damaged, script) = (store.path("damaged"), store.path("script"));
        // Blocks behind the end of the file system.
        let requests = changed(&tree)
            .into_iter()
            .map(|name| format!("sif \"/{}\" block[5] 4294967295\n", path(&name)));
        fs::write(&script, requests.collect::<String>()).map_err(text)?;
        peer::measure(&mut [
            command("cp", &["--sparse=always", path(&old), path(&damaged)]),
            command("debugfs", &["-w", "-f", path(&script), path(&damaged)]),
        ])
        .map_err(text)?;
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

    /// Lists all of an image, and returns what it says: as it is mended in memory, or by Linux once
    /// e2fsck has repaired a copy. The check lists nothing.
    fn list(&self, case: &Case) -> Result<(Measured, Option<String>), String> {
        let text = |e: std::io::Error| e.to_string();
        let image = match case.variant {
            MEND_SOUND => self.store.path("old"),
            _ => self.store.path("damaged"),
        };
        let said = self.store.path("said");
        let measured = match case.side {
            Side::Check => {
                // With 4 it has found the damage.
                let most = if case.variant == MEND_SOUND { 0 } else { 4 };
                let mut run = self.extant.run(["check", "--quiet"]);
                run.arg(&image);
                let measured = peer::measure(&mut [ending_up_to(most, &run, &said)]);
                return Ok((measured.map_err(text)?, None));
            }
            Side::Kernel => {
                let (copy, mount) = (self.store.path("repaired"), self.store.path("one"));
                let from = ["--sparse=always", path(&image), path(&copy)];
                peer::measure(&mut [command("cp", &from)]).map_err(text)?;
                let _unmount = Unmount(&mount);
                let repair = command("e2fsck", &["-fy", path(&copy)]);
                let options = ["-o", "loop,ro", path(&copy), path(&mount)];
                peer::measure(&mut [
                    ending_up_to(1, &repair, &said),
                    command("mount", &options),
                    said_to(&command("ls", &["-lR", path(&mount)]), &said),
                ])
            }
            _ => {
                let mut run = self.extant.run(["ls", "-lR", "--mend"]);
                let threads = case.workers.to_string();
                run.env("RAYON_NUM_THREADS", &threads);
                run.args(["--threads", &threads]);
                run.arg(format!("{}:/", path(&image)));
                peer::measure(&mut [ending_up_to(0, &run, &said)])
            }
        };
        let listed = fs::read_to_string(&said).map_err(text)?;
        Ok((measured.map_err(text)?, Some(listed)))
    }

    /// Whether a listing has all there is.
    fn judge_listing(&self, listed: &str) -> Result<(), String> {
        let names: BTreeSet<&str> = listed
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        let is_listed = |name: &Path| {
            let name = name.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| names.contains(name))
        };
        let mut samples = self.tree.samples.iter();
        match samples.find(|sample| !is_listed(&sample.path)) {
            Some(missing) => Err(format!("{} is not listed", missing.path.display())),
            None if (listed.lines().count() as u64) < self.tree.entries => {
                Err(format!("only {} lines are listed", listed.lines().count()))
            }
            None => Ok(()),
        }
    }
}

/// A command that may find differences, with what it says in a file.
fn said_to(run: &Command, said: &Path) -> Command {
    ending_up_to(1, run, said)
}

/// A command that may end with codes up to `most`, with what it says in a file.
fn ending_up_to(most: u8, run: &Command, said: &Path) -> Command {
    let mut shell = Command::new("sh");
    let script = format!("out=$1; shift; \"$@\" > \"$out\"; test $? -le {most}");
    shell.args(["-c", &script, "sh"]).arg(said);
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
        let mut shape = Shape::seconds(&[Side::Kernel, Side::Check]);
        shape.variants = &[SAME_LAYOUT, OTHER_LAYOUT, SYNC, MEND_SOUND, MEND_DAMAGED];
        shape
    }

    fn does(&self, side: Side, variant: &str) -> bool {
        side != Side::Check || [MEND_SOUND, MEND_DAMAGED].contains(&variant)
    }

    fn options(&self, case: &Case) -> String {
        let done = match case.variant {
            MEND_SOUND => "sound".to_owned(),
            MEND_DAMAGED => format!("{CHANGED} maps damaged"),
            _ => format!("{CHANGED} files changed"),
        };
        let (entries, megabytes) = (self.tree.entries, self.tree.bytes / 1_000_000);
        let what = format!("{entries} entries, {megabytes} MB, {done}");
        match (case.side, case.variant) {
            (Side::Engine, MEND_SOUND | MEND_DAMAGED) => format!("{what}; ls -lR --mend"),
            (Side::Check, _) => format!("{what}; extant check"),
            (Side::Kernel, MEND_SOUND | MEND_DAMAGED) => {
                format!("{what}; e2fsck -fy of a copy, mount, and ls -lR")
            }
            (Side::Kernel, SYNC) => format!("{what}; rsync -a onto a mount, and sync"),
            (Side::Kernel, _) => format!("{what}; diff -rq of two mounts"),
            _ => what,
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        if case.variant == SYNC {
            return self.sync(case);
        }
        if [MEND_SOUND, MEND_DAMAGED].contains(&case.variant) {
            let (measured, listed) = self.list(case)?;
            listed.map_or(Ok(()), |listed| self.judge_listing(&listed))?;
            return Ok(measured);
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
