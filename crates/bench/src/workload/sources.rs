//! `sources`: images from a directory and from the layers of a container, by the command `extant`
//! as a process of its own. The peers are what reading alone costs: `tar -c` of the directory, and
//! the command with the same tree as one archive.

use crate::args::{Config, Side};
use crate::command::Extant;
use crate::peer::{self, Measured};
use crate::source_tree::{self, SourceTree};
use crate::store::Store;
use crate::workload::build::{check_image, command, image_mib, path};
use crate::workload::{Case, Shape, Workload};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: &str = "directory";
const LAYERS: &str = "layers";

/// Layers that the tree is cut into.
const COUNT: usize = 10;

/// See the module.
pub(crate) struct Sources {
    store: Store,
    tree: SourceTree,
    extant: Extant,
    mib: u64,
}

impl Sources {
    /// Generates the source tree, an archive of it, and what `docker save` would write of it in ten
    /// layers.
    pub(crate) fn prepare(config: &Config) -> Result<Self, String> {
        let extant = Extant::find(config.extant.as_deref())?;
        let store = Store::new(&config.dir).map_err(|e| format!("scratch folder: {e}"))?;
        let tree = source_tree::generate(&store.path("tree"), config.entries, config.bytes)
            .map_err(|e| format!("source tree: {e}"))?;
        let one = store.path("one.tar");
        run(&mut command(
            "tar",
            &["-C", path(&tree.root), "-cf", path(&one), "."],
        ))?;
        docker_archive(&tree, &store.path("parts"), &store.path("layers.tar"))?;
        Ok(Self {
            mib: image_mib(tree.bytes),
            store,
            tree,
            extant,
        })
    }

    /// A run of the command that makes an image.
    fn mkfs(&self, from: &str, image: &Path, workers: usize) -> Command {
        let inodes = self.tree.entries + self.tree.entries / 10 + 64;
        let mut run = self.extant.run(["mkfs", "--quiet"]);
        run.arg(image).args(["--from", from]);
        run.args(["--size", &format!("{}M", self.mib)]);
        run.args(["--inodes", &inodes.to_string()]);
        run.args(["--threads", &workers.to_string()]);
        run
    }
}

impl Workload for Sources {
    fn name(&self) -> &'static str {
        "sources"
    }

    fn shape(&self) -> Shape {
        Shape {
            variants: &[DIRECTORY, LAYERS],
            peers_have_workers: true,
            ..Shape::seconds(&[Side::Tar, Side::OneTar, Side::Openssl])
        }
    }

    fn does(&self, side: Side, variant: &str) -> bool {
        match side {
            Side::Tar => variant == DIRECTORY,
            Side::OneTar | Side::Openssl => variant == LAYERS,
            _ => true,
        }
    }

    fn options(&self, case: &Case) -> String {
        let what = format!(
            "{} entries, {} MB",
            self.tree.entries,
            self.tree.bytes / 1_000_000
        );
        match (case.side, case.variant) {
            (Side::Tar, _) => format!("{what}; tar -c of the tree, through a pipe into cat"),
            (Side::OneTar, _) => format!("{what}; the command, from one archive of the tree"),
            (Side::Openssl, _) => format!("{what}; openssl dgst -sha256 of the layers alone"),
            (_, LAYERS) => format!("{what}; from a docker archive of {COUNT} layers"),
            _ => format!("{what}; from the directory"),
        }
    }

    fn run(&mut self, case: &Case) -> Result<Measured, String> {
        if case.side == Side::Tar {
            let line = "tar -C \"$0\" -c . | cat > /dev/null";
            let mut tar = command("bash", &["-o", "pipefail", "-c", line]);
            tar.arg(&self.tree.root);
            return peer::measure(&mut [tar]).map_err(|e| e.to_string());
        }
        if case.side == Side::Openssl {
            let line =
                "printf '%s\\0' \"$0\"/layer-*.tar | xargs -0 -n 1 -P \"$1\" openssl dgst -sha256";
            let mut sums = command("sh", &["-c", line]);
            sums.arg(self.store.path("parts"))
                .arg(case.workers.to_string());
            return peer::measure(&mut [sums]).map_err(|e| e.to_string());
        }
        let from = match (case.side, case.variant) {
            (Side::OneTar, _) => path(&self.store.path("one.tar")).to_owned(),
            (_, LAYERS) => format!("docker-archive:{}", path(&self.store.path("layers.tar"))),
            _ => path(&self.tree.root).to_owned(),
        };
        let image = self.store.path("image");
        let _ = fs::remove_file(&image);
        let mut mkfs = [self.mkfs(&from, &image, case.workers)];
        let measured = peer::measure(&mut mkfs).map_err(|e| e.to_string())?;
        check_image(Side::Engine, &image, &self.tree)?;
        let _ = fs::remove_file(&image);
        Ok(measured)
    }
}

/// Writes a tree as `docker save` writes an image: each layer has its share of the files, with the
/// directories above them; directories without files are in the first. The layers stay in `parts`.
fn docker_archive(tree: &SourceTree, parts: &Path, to: &Path) -> Result<(), String> {
    let text = |e: std::io::Error| format!("{}: {e}", parts.display());
    fs::create_dir(parts).map_err(text)?;
    let (mut dirs, mut files) = (BTreeSet::new(), Vec::new());
    walk(&tree.root, Path::new(""), &mut dirs, &mut files).map_err(text)?;
    let mut ids = Vec::new();
    let mut names = Vec::new();
    for (index, share) in files.chunks(files.len().div_ceil(COUNT).max(1)).enumerate() {
        let mut members: BTreeSet<&Path> = share.iter().map(PathBuf::as_path).collect();
        for file in share {
            members.extend(file.ancestors().skip(1).filter(|dir| *dir != Path::new("")));
        }
        if index == 0 {
            members.extend(dirs.iter().map(PathBuf::as_path));
        }
        let list = parts.join("list");
        let mut written = fs::File::create(&list).map_err(text)?;
        for member in members {
            let member = [member.as_os_str().as_bytes(), b"\0"].concat();
            written.write_all(&member).map_err(text)?;
        }
        let name = format!("layer-{index}.tar");
        let mut tar = command("tar", &["-C", path(&tree.root), "--no-recursion", "--null"]);
        tar.args([OsStr::new("-T"), list.as_os_str(), OsStr::new("-cf")]);
        run(tar.arg(parts.join(&name)))?;
        ids.push(format!("sha256:{}", sum(&parts.join(&name))?));
        names.push(name);
    }
    let config = serde_json::json!({
        "os": "linux",
        "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": ids},
    });
    let manifest = serde_json::json!([
        {"Config": "config.json", "RepoTags": ["bench:latest"], "Layers": &names}
    ]);
    for (name, value) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(parts.join(name), value.to_string()).map_err(text)?;
    }
    let mut tar = command("tar", &["-C", path(parts), "-cf", path(to), "config.json"]);
    run(tar.args(&names).arg("manifest.json"))
}

/// Notes the directories and everything else below a directory.
fn walk(
    root: &Path,
    below: &Path,
    dirs: &mut BTreeSet<PathBuf>,
    files: &mut Vec<PathBuf>,
) -> std::io::Result<()> {
    let mut entries = fs::read_dir(root.join(below))?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            walk(root, &name, dirs, files)?;
            dirs.insert(name);
        } else {
            files.push(name);
        }
    }
    Ok(())
}

/// The SHA-256 of a file, by a program.
fn sum(file: &Path) -> Result<String, String> {
    let output = command("sha256sum", &[path(file)]).output();
    let output = output.map_err(|e| format!("sha256sum: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let sum = text.split_whitespace().next().unwrap_or_default();
    if sum.len() == 64 {
        Ok(sum.to_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("sha256sum: {said}"))
    }
}

/// Runs a program that must succeed.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|e| format!("cannot start {command:?}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status))
}
