//! An image, and its mount by the daemon or by the kernel.

use super::place::{Place, Whose};
use super::{Setting, clear, rings, succeed, system};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Size of every image: more than any suite fills.
const BYTES: u64 = 3 << 30;

/// How long a mount may take to come, and its users to leave it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An image as `mke2fs` makes it by default, its root directory owned by the user who mounts it.
/// Removed when dropped.
pub(super) struct Fixture {
    dir: PathBuf,
    place: Rc<Place>,
}

impl Fixture {
    /// One for root's mounts.
    pub(super) fn new(setting: &Setting, name: &str) -> Result<Fixture, String> {
        Self::of(setting, name, Whose::Root, false)
    }

    /// One for mounts of `whose`: by the kernel, or by `extant mount`.
    pub(super) fn of(
        setting: &Setting,
        name: &str,
        whose: Whose,
        is_of_kernel: bool,
    ) -> Result<Fixture, String> {
        let fixture = Fixture {
            dir: setting.work().join(name),
            place: Rc::new(Place::new(whose)?),
        };
        clear(&fixture.dir)?;
        File::create(fixture.image())
            .and_then(|image| image.set_len(BYTES))
            .map_err(|e| format!("{}: {e}", fixture.image().display()))?;
        let owner = fixture.place.owner_in_image(is_of_kernel);
        let mut mke2fs = system("mke2fs");
        mke2fs.args(["-q", "-F", "-t", "ext4", "-E"]);
        mke2fs.arg(format!("root_owner={owner}:{owner}"));
        succeed(mke2fs.arg(fixture.image()))?;
        fixture.place.give(&fixture.image())?;
        Ok(fixture)
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        let name = self.dir.file_name().and_then(|name| name.to_str());
        name.unwrap_or("fixture")
    }

    fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Mounts it by the kernel.
    pub(super) fn mount_by_kernel(&self) -> Result<Mount, String> {
        let point = self.place.point();
        let mut mount = system("mount");
        mount.args(["-t", "ext4", "-o", self.place.kernel_options()]);
        succeed(mount.arg(self.image()).arg(&point))?;
        Ok(Mount {
            point,
            daemon: None,
            extant: PathBuf::new(),
            place: Rc::clone(&self.place),
        })
    }

    /// Mounts it by `extant mount`, as the kernel mounts it by default, and with further options.
    pub(super) fn mount(&self, setting: &Setting, options: &str) -> Result<Mount, String> {
        let log = setting.home.join("logs/daemon");
        let log = File::options().create(true).append(true).open(log);
        let errors = log.map_err(|e| e.to_string())?;
        let rings = if setting.options.rings {
            "io_uring,"
        } else {
            "no_io_uring,"
        };
        let options = format!("{}{rings}{options}", self.place.options());
        let point = self.place.point();
        let daemon = self
            .place
            .command(&setting.extant)
            .args(["mount", "--foreground", "-o", &options])
            .args([&self.image(), &point])
            .stdin(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", setting.extant.display()))?;
        let mut mount = Mount {
            point,
            daemon: Some(daemon),
            extant: setting.extant.clone(),
            place: Rc::clone(&self.place),
        };
        mount.wait_until_it_works()?;
        if setting.options.rings {
            rings::require(self.place.command(&setting.extant), &mount.point)?;
        }
        Ok(mount)
    }

    /// Puts a copy of the image aside.
    pub(super) fn keep(&self, to: &Path) -> Result<(), String> {
        let mut copy = Command::new("cp");
        copy.args(["--sparse=always", "--reflink=auto"]);
        succeed(copy.arg(self.image()).arg(to)).map(drop)
    }

    /// Judges the image by `e2fsck -fn`.
    pub(super) fn check(&self) -> Result<(), String> {
        succeed(system("e2fsck").arg("-fn").arg(self.image())).map(drop)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A mounted image. Unmounted when dropped.
pub(super) struct Mount {
    point: PathBuf,
    /// The supervisor, in the foreground; none when the kernel mounts.
    daemon: Option<Child>,
    extant: PathBuf,
    place: Rc<Place>,
}

impl Mount {
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Where programs work on it.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn is_mounted(&self) -> bool {
        let table = self.place.mounts();
        let point = self.point.display().to_string();
        table
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(&point))
    }

    fn wait_until_it_works(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while !self.is_mounted() {
            let daemon = self.daemon.as_mut().ok_or("the kernel mounts at once")?;
            if let Some(status) = daemon.try_wait().map_err(|e| e.to_string())? {
                return Err(format!("extant mount ended: {status}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err("extant mount does not get there".to_owned());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // It is in the table before it answers.
        succeed(self.place.command("stat").arg(&self.point))
            .map(drop)
            .map_err(|e| format!("the mount does not work: {e}"))
    }

    /// Kills the process that reads the image; its mount is cleared away.
    pub(super) fn kill(mut self) -> Result<(), String> {
        let mut supervisor = self.daemon.take().ok_or("the kernel cannot be killed")?;
        let pid = supervisor.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.map_err(|e| format!("no children of the daemon: {e}"))?;
        let worker = children.split_whitespace().next();
        let worker = worker.ok_or("the daemon has no worker")?;
        succeed(Command::new("kill").args(["-KILL", worker]))?;
        let status = supervisor.wait().map_err(|e| e.to_string())?;
        match status.code() {
            Some(1) if !self.is_mounted() => Ok(()),
            Some(1) => Err("the mount of a killed daemon is still there".to_owned()),
            _ => Err(format!("the supervisor of a killed daemon ended: {status}")),
        }
    }

    /// Unmounts, and waits until the image is closed.
    pub(super) fn unmount(mut self) -> Result<(), String> {
        let begun = Instant::now();
        while let Err(e) = self.try_unmount() {
            // Processes of a suite that was stopped may still be on their way out.
            if begun.elapsed() > PATIENCE {
                return Err(e);
            }
            std::thread::sleep(LOOK_EVERY * 10);
        }
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(());
        };
        let status = daemon.wait().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the daemon ended: {status}"))
        }
    }

    fn try_unmount(&self) -> Result<(), String> {
        let mut umount = match self.daemon {
            Some(_) => self.place.command(&self.extant),
            None => system("umount"),
        };
        if self.daemon.is_some() {
            umount.arg("umount");
        }
        succeed(umount.arg(&self.point)).map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted() {
            let mut umount = match self.place.whose() {
                Whose::Container if self.daemon.is_some() => self.place.command("umount"),
                _ => system("umount"),
            };
            let _ = succeed(umount.arg("--lazy").arg(&self.point));
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
