//! `edit`: twenty changes of an image by one script, by the command `extant` as a process of its
//! own.

use crate::args::{Config, Side};
use crate::check;
use crate::command::Extant;
use crate::peer::{self, Measured};
use crate::server;
use crate::store::Store;
use crate::workload::build::{command, path};
use crate::workload::{Case, Shape, Workload};
use ext4_view::Ext4;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Directories of the image.
const DIRS: usize = 20;
/// Files in each of them.
const FILES: usize = 50;
/// Bytes of each file, and of those that are put in.
const BYTES: usize = 20_000;
/// How many changes there are of each of five kinds.
const EACH: usize = 4;

/// See the module.
pub(crate) struct Edit {
    store: Store,
    mib: u64,
    extant: Extant,
}

/// A change that all sides know.
enum Change {
    Put(String),
    Remove(String),
    Mkdir(String),
    Link(String),
    Chmod(String),
}

/// The changes, spread over the directories.
fn changes() -> Vec<Change> {
    let mut changes = Vec::new();
    for number in 0..EACH {
        let dir = |kind: usize| format!("/d{}", (number * 5 + kind) % DIRS);
        changes.extend([
            Change::Put(format!("{}/put", dir(0))),
            Change::Remove(format!("{}/f7", dir(1))),
            Change::Mkdir(format!("{}/made", dir(2))),
            Change::Link(format!("{}/link", dir(3))),
            Change::Chmod(format!("{}/f9", dir(4))),
        ]);
    }
    changes
}

impl Edit {
    /// Makes an image with a thousand files, and what is put into it.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let extant = Extant::find(config.extant.as_deref())?;
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let tree = store.path("tree");
        let text = |e: std::io::Error| e.to_string();
        for dir in 0..DIRS {
            let dir = tree.join(format!("d{dir}"));
            fs::create_dir_all(&dir).map_err(text)?;
            for file in 0..FILES {
                fs::write(dir.join(format!("f{file}")), vec![b'o'; BYTES]).map_err(text)?;
            }
        }
        fs::write(store.path("new"), vec![b'n'; BYTES]).map_err(text)?;
        let (image, size) = (store.path("old"), format!("{}M", config.image_mib));
        let made = [
            "-q",
            "-F",
            "-t",
            "ext4",
            "-d",
            path(&tree),
            path(&image),
            &size,
        ];
        peer::measure(&mut [command("mke2fs", &made)]).map_err(text)?;
        Ok(Self {
            store,
            mib: config.image_mib,
            extant,
        })
    }

    /// The script of a side.
    fn script(&self, side: Side, image: &Path) -> String {
        let new = self.store.path("new");
        let new = path(&new);
        let line = |change: Change| match (side, change) {
            (Side::Debugfs, Change::Put(name)) => format!("write {new} {name}\n"),
            (Side::Debugfs, Change::Link(name)) => format!("symlink {name} ../d0/f0\n"),
            (Side::Debugfs, Change::Chmod(name)) => format!("sif {name} mode 0100600\n"),
            (Side::Guestfish, Change::Put(name)) => format!("upload {new} {name}\n"),
            (Side::Guestfish, Change::Link(name)) => format!("ln-s ../d0/f0 {name}\n"),
            (Side::Guestfish, Change::Chmod(name)) => format!("chmod 0600 {name}\n"),
            (_, Change::Put(name)) => format!("put {new} {name}\n"),
            (_, Change::Link(name)) => format!("ln -s ../d0/f0 {name}\n"),
            (_, Change::Chmod(name)) => format!("chmod 600 {name}\n"),
            (_, Change::Remove(name)) => format!("rm {name}\n"),
            (_, Change::Mkdir(name)) => format!("mkdir {name}\n"),
        };
        let lines: String = changes().into_iter().map(line).collect();
        match side {
            Side::Guestfish => format!("add-drive {}\nrun\nmount /dev/sda /\n{lines}", path(image)),
            _ => lines,
        }
    }

    /// What a side runs, the last of it a flush.
    fn commands(&self, side: Side, image: &Path, script: &Path) -> Vec<Command> {
        match side {
            Side::Engine => {
                let mut edit = self.extant.run(["edit", path(image), "-f"]);
                edit.arg(script);
                // It does not end before all is durable.
                vec![edit]
            }
            Side::Debugfs => vec![
                command("debugfs", &["-w", "-f", path(script), path(image)]),
                command("sync", &[path(image)]),
            ],
            _ => vec![
                command("guestfish", &["-f", path(script)]),
                command("sync", &[path(image)]),
            ],
        }
    }
}

/// Whether an image has all of the changes.
fn has_all(image: &Ext4) -> Result<(), String> {
    for change in changes() {
        let is_made = match &change {
            Change::Put(name) => {
                let content = image.read(name.as_str());
                content.map(|content| content == vec![b'n'; BYTES])
            }
            Change::Remove(name) => image.exists(name.as_str()).map(|exists| !exists),
            Change::Mkdir(name) => image.metadata(name.as_str()).map(|found| found.is_dir()),
            Change::Link(name) => {
                let content = image.read(name.as_str());
                content.map(|content| content == vec![b'o'; BYTES])
            }
            Change::Chmod(name) => image
                .metadata(name.as_str())
                .map(|found| found.mode() == 0o600),
        };
        let (Change::Put(name)
        | Change::Remove(name)
        | Change::Mkdir(name)
        | Change::Link(name)
        | Change::Chmod(name)) = change;
        match is_made {
            Ok(true) => {}
            Ok(false) => return Err(format!("{name} is not as it should be")),
            Err(e) => return Err(format!("{name}: {e}")),
        }
    }
    Ok(())
}

/// Whether guestfish is there.
fn has_guestfish() -> bool {
    let is_there = server::is_installed("guestfish");
    if !is_there {
        eprintln!("edit: skipped: guestfish: it is not installed");
    }
    is_there
}

impl Workload for Edit {
    fn name(&self) -> &'static str {
        "edit"
    }

    fn shape(&self) -> Shape {
        let mut shape = Shape::seconds(&[Side::Debugfs, Side::Guestfish]);
        shape.workers = &[1];
        shape
    }

    fn options(&self, case: &Case) -> String {
        let what = format!("{} changes of an image of {} MiB", 5 * EACH, self.mib);
        match case.side {
            Side::Debugfs => format!("{what}; debugfs -w -f, and sync"),
            Side::Guestfish => format!("{what}; guestfish -f, and sync"),
            _ => what,
        }
    }

    fn does(&self, side: Side, _variant: &str) -> bool {
        side != Side::Guestfish || has_guestfish()
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        let (old, image) = (self.store.path("old"), self.store.path("edited"));
        let script = self.store.path("script");
        let text = |e: std::io::Error| e.to_string();
        fs::write(&script, self.script(case.side, &image)).map_err(text)?;
        peer::measure(&mut [
            command("cp", &["--sparse=always", path(&old), path(&image)]),
            command("sync", &[path(&image)]),
        ])
        .map_err(text)?;
        let mut commands = self.commands(case.side, &image, &script);
        let measured = peer::measure(&mut commands).map_err(text)?;
        check::e2fsck(&image)?;
        has_all(&check::independent_reader(&image)?)?;
        Ok(measured)
    }
}
