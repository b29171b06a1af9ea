//! An image, and its mount by the daemon or by the kernel.

use super::{Setting, clear, namespaces, rings, succeed, system};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Size of every image: more than any suite fills.
const BYTES: u64 = 3 << 30;

/// How long a mount may take to come, and its users to leave it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// An image as `mke2fs` makes it by default. Removed when dropped.
pub(super) struct Fixture {
    dir: PathBuf,
}

impl Fixture {
    pub(super) fn new(setting: &Setting, name: &str) -> Result<Fixture, String> {
        let fixture = Fixture {
            dir: setting.work().join(name),
        };
        clear(&fixture.dir)?;
        File::create(fixture.image())
            .and_then(|image| image.set_len(BYTES))
            .map_err(|e| format!("{}: {e}", fixture.image().display()))?;
        let mut mke2fs = system("mke2fs");
        succeed(mke2fs.args(["-q", "-F", "-t", "ext4"]).arg(fixture.image()))?;
        Ok(fixture)
    }

    fn image(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Mounts it by the kernel.
    pub(super) fn mount_by_kernel(&self) -> Result<Mount, String> {
        let mut mount = system("mount");
        mount.args(["-t", "ext4", "-o", "loop"]);
        succeed(mount.arg(self.image()).arg(namespaces::point()))?;
        Ok(Mount {
            point: namespaces::point(),
            daemon: None,
            extant: PathBuf::new(),
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
        let options = format!("allow_other,dev,suid,{rings}{options}");
        let daemon = Command::new(&setting.extant)
            .args(["mount", "--foreground", "-o", &options])
            .args([self.image(), namespaces::point()])
            .stdin(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", setting.extant.display()))?;
        let mut mount = Mount {
            point: namespaces::point(),
            daemon: Some(daemon),
            extant: setting.extant.clone(),
        };
        mount.wait_until_it_works()?;
        if setting.options.rings {
            rings::require(&setting.extant, &mount.point)?;
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
}

impl Mount {
    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    fn is_mounted(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
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
        fs::metadata(&self.point)
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
            Some(_) => Command::new(&self.extant),
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
            let _ = succeed(system("umount").arg("--lazy").arg(&self.point));
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
