//! What is done on a volume, and what judges it.

use super::node::{Node, Server};
use super::{Setting, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Size of a volume, in MiB.
const SIZE: u32 = 256;
/// Files of the tree that images are made from.
const FILES: usize = 300;

/// What was done, and what came of it.
pub(super) struct Row {
    pub(super) what: &'static str,
    /// What was seen, or why it failed.
    pub(super) result: Result<String, String>,
    pub(super) took: Duration,
}

type Step = fn(&Bench<'_>) -> Result<String, String>;

/// All steps, in order. Each makes a volume of its own.
const STEPS: &[(&str, Step)] = &[
    ("an image made into a volume", made),
    ("files changed in a volume", changed),
    ("a volume mounted, written and unmounted", mounted),
    ("a snapshot of a volume that is written to", snapshot),
    ("the mount killed", mount_killed),
    ("the server killed below the mount", server_killed),
    ("two clients on one volume", two_clients),
    ("an image made into a bucket of the gateway", in_bucket),
];

/// Does everything, and says so line by line.
pub(super) fn run(setting: &Setting, node: &Node) -> Vec<Row> {
    let bench = Bench { setting, node };
    let mut rows = Vec::new();
    if let Err(e) = bench.plant() {
        println!("preparation: FAILED: {e}");
        rows.push(Row {
            what: "preparation",
            result: Err(e),
            took: Duration::ZERO,
        });
        return rows;
    }
    for (what, step) in STEPS {
        let begun = Instant::now();
        let result = step(&bench);
        let row = Row {
            what,
            result,
            took: begun.elapsed(),
        };
        let verdict = match &row.result {
            Ok(seen) => format!("ok: {seen}"),
            Err(why) => format!("FAILED: {why}"),
        };
        println!("{what} ({:.1} s): {verdict}", row.took.as_secs_f64());
        rows.push(row);
    }
    rows
}

struct Bench<'a> {
    setting: &'a Setting,
    node: &'a Node,
}

impl Bench<'_> {
    fn tree(&self) -> PathBuf {
        self.setting.work.join("tree")
    }

    /// Makes the tree that images are made from.
    fn plant(&self) -> Result<(), String> {
        for n in 0..FILES {
            let dir = self.tree().join(format!("d{}", n % 10));
            std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
            let content = format!("file {n}\n").repeat(1 + n * 7);
            std::fs::write(dir.join(format!("f{n}")), content).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Compares a directory with the tree.
    fn is_the_tree(&self, dir: &Path) -> Result<(), String> {
        let mut diff = Command::new("diff");
        diff.args(["-r", "-x", "lost+found"]);
        succeed(diff.arg(self.tree()).arg(dir)).map(drop)
    }

    /// Makes a volume with the tree in it, and serves it.
    fn volume(&self, name: &str, features: &[&str]) -> Result<Server, String> {
        self.node.volume(name, SIZE)?;
        let server = self.node.serve(name, name)?;
        let mut mkfs = self.extant(&["mkfs", &server.address(), "--from"]);
        succeed(mkfs.arg(self.tree()).args(features))?;
        Ok(server)
    }

    fn extant(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.setting.extant);
        command.args(args);
        command
    }

    /// Takes a volume, or a snapshot of one, out of the cluster as a file.
    fn taken_out(&self, volume: &str) -> Result<PathBuf, String> {
        let path = self.setting.work.join(volume.replace('@', "-"));
        let _ = std::fs::remove_file(&path);
        self.node.rbd(&[
            "export",
            "--no-progress",
            volume,
            &path.display().to_string(),
        ])?;
        Ok(path)
    }

    /// Has e2fsck judge a volume as it is in the cluster.
    fn is_clean(&self, volume: &str) -> Result<PathBuf, String> {
        let path = self.taken_out(volume)?;
        succeed(Command::new("e2fsck").arg("-fn").arg(&path))?;
        Ok(path)
    }

    /// Has e2fsck recover what a crash has left, and judge it then.
    fn recovers(&self, volume: &str) -> Result<PathBuf, String> {
        let path = self.taken_out(volume)?;
        let recovered = Command::new("e2fsck").arg("-fy").arg(&path).output();
        let recovered = recovered.map_err(|e| e.to_string())?;
        if recovered.status.code().is_none_or(|code| code > 1) {
            let said = String::from_utf8_lossy(&recovered.stdout).into_owned();
            return Err(format!("e2fsck -fy: {}: {said}", recovered.status));
        }
        succeed(Command::new("e2fsck").arg("-fn").arg(&path))?;
        Ok(path)
    }

    /// Compares a file of an image with what it should hold, as debugfs reads it.
    fn holds(&self, image: &Path, path: &str, content: &[u8]) -> Result<(), String> {
        let request = format!("cat {path}");
        let output = Command::new("debugfs")
            .args(["-R", &request])
            .arg(image)
            .output();
        let output = output.map_err(|e| format!("debugfs: {e}"))?;
        if output.stdout == content {
            return Ok(());
        }
        Err(format!(
            "{path} of {} has {} bytes, and not the {} that were written",
            image.display(),
            output.stdout.len(),
            content.len()
        ))
    }

    /// Mounts what a server serves.
    fn mount(&self, server: &Server, name: &str) -> Result<Point<'_>, String> {
        let dir = self.setting.work.join(format!("mnt-{name}"));
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        succeed(self.extant(&["mount", &server.address()]).arg(&dir))?;
        Ok(Point { bench: self, dir })
    }
}

/// A mount, which ends with it.
struct Point<'a> {
    bench: &'a Bench<'a>,
    dir: PathBuf,
}

impl Point<'_> {
    /// Writes a file and makes it durable.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        use std::io::Write;
        let path = self.dir.join(name);
        let written = std::fs::File::create(&path).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()?;
            std::fs::File::open(&self.dir)?.sync_all()
        });
        written.map_err(|e| format!("{}: {e}", path.display()))
    }

    fn unmount(self) -> Result<(), String> {
        succeed(self.bench.extant(&["umount"]).arg(&self.dir)).map(drop)
    }

    /// Kills all processes of the mount at once.
    fn kill(self) -> Result<(), String> {
        let title = self.dir.display().to_string();
        succeed(Command::new("pkill").args(["-KILL", "-f", &title]))?;
        // Nobody is left to do it.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
        Ok(())
    }
}

impl Drop for Point<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
    }
}

fn in_bucket(bench: &Bench<'_>) -> Result<String, String> {
    let extant = |args: &[&str]| {
        let mut command = bench.extant(args);
        command.envs(bench.node.variables());
        command
    };
    let url = "s3://images/made/root.img";
    let size = format!("{SIZE}M");
    let mut mkfs = extant(&["mkfs", url, "--size", &size, "--from"]);
    succeed(mkfs.arg(bench.tree()))?;
    succeed(&mut extant(&["check", url]))?;
    let out = bench.setting.work.join("bucket.out");
    let from = format!("{url}:/.");
    succeed(extant(&["cp", "-a", &from]).arg(&out))?;
    bench.is_the_tree(&out)?;
    let refused = extant(&["touch", &format!("{url}:/new")]).output();
    let refused = refused.map_err(|e| e.to_string())?;
    if refused.status.success() {
        return Err("an object was changed in place".to_owned());
    }
    let image = bench.setting.work.join("bucket.img");
    bench.node.object("GET", "/made/root.img", Some(&image))?;
    succeed(Command::new("e2fsck").arg("-fn").arg(&image))?;
    Ok(format!(
        "{FILES} files the same, extant check and e2fsck -fn of what curl brings clean"
    ))
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..200_000_u32)
        .map(|n| (n.wrapping_mul(31) >> 3) as u8 ^ seed)
        .collect()
}

fn made(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("made", &[])?;
    succeed(&mut bench.extant(&["check", &server.address()]))?;
    let out = bench.setting.work.join("made.out");
    let from = format!("{}:/.", server.address());
    succeed(bench.extant(&["cp", "-a", &from]).arg(&out))?;
    bench.is_the_tree(&out)?;
    drop(server);
    bench.is_clean("made")?;
    Ok(format!(
        "{FILES} files the same, extant check and e2fsck -fn clean"
    ))
}

fn changed(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("changed", &[])?;
    let at = |path: &str| format!("{}:{path}", server.address());
    let source = bench.setting.work.join("source");
    std::fs::write(&source, pattern(1)).map_err(|e| e.to_string())?;
    succeed(&mut bench.extant(&["mkdir", "-p", &at("/new/dir")]))?;
    succeed(bench.extant(&["cp"]).arg(&source).arg(at("/new/dir/file")))?;
    succeed(&mut bench.extant(&["mv", &at("/d1/f1"), &at("/new/moved")]))?;
    succeed(&mut bench.extant(&["rm", "-r", &at("/d2")]))?;
    succeed(&mut bench.extant(&["check", &server.address()]))?;
    drop(server);
    let image = bench.is_clean("changed")?;
    bench.holds(&image, "/new/dir/file", &pattern(1))?;
    Ok("copied, moved and removed in place, e2fsck -fn clean".to_owned())
}

fn mounted(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("mounted", &[])?;
    let point = bench.mount(&server, "mounted")?;
    bench.is_the_tree(&point.dir)?;
    point.write("written", &pattern(2))?;
    succeed(
        Command::new("cp")
            .arg("-a")
            .arg(bench.tree())
            .arg(point.dir.join("again")),
    )?;
    point.unmount()?;
    drop(server);
    let image = bench.is_clean("mounted")?;
    bench.holds(&image, "/written", &pattern(2))?;
    Ok("read, written, unmounted, e2fsck -fn clean".to_owned())
}

fn snapshot(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("snapped", &[])?;
    let point = bench.mount(&server, "snapped")?;
    point.write("before", &pattern(3))?;
    let mut writer = Command::new("cp")
        .arg("-a")
        .arg(bench.tree())
        .arg(point.dir.join("meanwhile"))
        .spawn()
        .map_err(|e| e.to_string())?;
    bench
        .node
        .rbd(&["snap", "create", "--no-progress", "snapped@one"])?;
    writer.wait().map_err(|e| e.to_string())?;
    point.write("after", &pattern(4))?;
    point.unmount()?;
    let image = bench.recovers("snapped@one")?;
    bench.holds(&image, "/before", &pattern(3))?;
    // The snapshot is read in place, its journal with it.
    let reader = bench.node.serve("snapped@one", "snapped-one")?;
    let read = bench
        .extant(&["cat", &format!("{}:/before", reader.address())])
        .output();
    let read = read.map_err(|e| e.to_string())?;
    if read.stdout != pattern(3) {
        let said = String::from_utf8_lossy(&read.stderr).into_owned();
        return Err(format!("the snapshot reads differently: {said}"));
    }
    drop(server);
    bench.is_clean("snapped")?;
    Ok("what was synced before is in it, e2fsck recovers it and finds nothing".to_owned())
}

fn mount_killed(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("killed", &[])?;
    let point = bench.mount(&server, "killed")?;
    point.write("synced", &pattern(5))?;
    let writer = Command::new("cp")
        .arg("-a")
        .arg(bench.tree())
        .arg(point.dir.join("meanwhile"))
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut writer = writer.map_err(|e| e.to_string())?;
    std::thread::sleep(Duration::from_millis(100));
    point.kill()?;
    let _ = writer.wait();
    let image = bench.recovers("killed")?;
    bench.holds(&image, "/synced", &pattern(5))?;
    // By us, in place.
    succeed(&mut bench.extant(&["replay", &server.address()]))?;
    succeed(&mut bench.extant(&["check", &server.address()]))?;
    drop(server);
    let image = bench.is_clean("killed")?;
    bench.holds(&image, "/synced", &pattern(5))?;
    Ok("what was synced is there, recovered by e2fsck and by extant replay".to_owned())
}

fn server_killed(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("served", &[])?;
    let point = bench.mount(&server, "served")?;
    point.write("synced", &pattern(6))?;
    let late = point.dir.join("late");
    std::fs::write(&late, pattern(7)).map_err(|e| e.to_string())?;
    server.kill();
    // It cannot be made durable any more, and that must be said.
    let told = std::fs::File::open(&late).and_then(|file| file.sync_all());
    if told.is_ok() {
        return Err("fsync succeeded without a server".to_owned());
    }
    point.kill()?;
    let image = bench.recovers("served")?;
    bench.holds(&image, "/synced", &pattern(6))?;
    let server = bench.node.serve("served", "served-again")?;
    let point = bench.mount(&server, "served-again")?;
    let read = std::fs::read(point.dir.join("synced")).map_err(|e| e.to_string())?;
    if read != pattern(6) {
        return Err("the next mount reads something else".to_owned());
    }
    point.unmount()?;
    drop(server);
    bench.is_clean("served")?;
    Ok("fsync fails, the next mount recovers, what was synced is there".to_owned())
}

fn two_clients(bench: &Bench<'_>) -> Result<String, String> {
    let server = bench.volume("shared", &["--features", "mmp"])?;
    let other = bench.node.serve("shared", "shared-other")?;
    let point = bench.mount(&server, "shared")?;
    let refused = bench
        .extant(&["mkdir", &format!("{}:/other", other.address())])
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    if refused.status.code() != Some(1) || !said.contains("in use") {
        return Err(format!("the second client: {}: {said}", refused.status));
    }
    point.write("mine", &pattern(8))?;
    point.unmount()?;
    drop((server, other));
    let image = bench.is_clean("shared")?;
    bench.holds(&image, "/mine", &pattern(8))?;
    Ok(format!("the second is refused: {}", reason(&said)))
}

/// What an error says behind the name of the image.
fn reason(said: &str) -> &str {
    let line = said.lines().next().unwrap_or_default();
    let reason = line.split_once("sock: ").map_or(line, |(_, reason)| reason);
    // Behind it is what is known of the other one, which is this run's.
    reason.split_once(": ").map_or(reason, |(reason, _)| reason)
}
