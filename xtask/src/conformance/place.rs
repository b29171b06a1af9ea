//! Whose a mount is, and where programs work on it: root's, for all users; an ordinary user's own;
//! and that of a container, whose root and whose users are others outside.

use super::{Setting, namespaces, succeed, system};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The ordinary user, which has a name, as `fusermount3` asks for: `daemon`.
const USER: u32 = 1;
/// What is user 0 in the container.
const CONTAINER: u32 = 100_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Whose a mount is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// That of root, which all users may use.
    Root,
    /// An ordinary user's, by `fusermount3`, which nobody else may use.
    User,
    /// One that root of a user namespace makes, for the users there.
    Container,
}

/// A user and a mount namespace to work in.
pub(super) struct Place {
    whose: Whose,
    /// What keeps the namespaces of a container.
    holder: Option<Child>,
}

impl Place {
    pub(super) fn new(whose: Whose) -> Result<Self, String> {
        let mut place = Self {
            whose,
            holder: None,
        };
        if whose == Whose::Container {
            let holder = place.holder.insert(hold()?);
            map_users(holder)?;
        }
        Ok(place)
    }

    pub(super) fn whose(&self) -> Whose {
        self.whose
    }

    /// A program that runs there.
    pub(super) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = match (self.whose, &self.holder) {
            (Whose::User, _) => {
                let mut command = system("setpriv");
                command.arg(format!("--reuid={USER}"));
                command.arg(format!("--regid={USER}"));
                command.arg("--clear-groups");
                command
            }
            (_, Some(holder)) => {
                let mut command = system("nsenter");
                command.arg(format!("--target={}", holder.id()));
                command.args(["--user", "--mount", "--setuid=0", "--setgid=0"]);
                command
            }
            (_, None) => return Command::new(program),
        };
        command.arg("--").arg(program);
        command
    }

    /// Where the mount is.
    pub(super) fn point(&self) -> PathBuf {
        match self.whose {
            Whose::User => namespaces::point_of_user(),
            Whose::Root | Whose::Container => namespaces::point(),
        }
    }

    /// The mounts that are seen there.
    pub(super) fn mounts(&self) -> String {
        let who = self.holder.as_ref().map(|holder| holder.id().to_string());
        let table = format!("/proc/{}/mounts", who.as_deref().unwrap_or("self"));
        fs::read_to_string(table).unwrap_or_default()
    }

    /// Options of a mount by the kernel, which allows what ours allows.
    pub(super) fn kernel_options(&self) -> &'static str {
        match self.whose {
            Whose::Root => "loop",
            Whose::User => "loop,nosuid,nodev",
            Whose::Container => "loop,nodev",
        }
    }

    /// Options of a mount by `extant mount`, with a comma behind each.
    pub(super) fn options(&self) -> &'static str {
        match self.whose {
            Whose::Root => "allow_other,dev,suid,",
            Whose::User => "",
            Whose::Container => "allow_other,suid,",
        }
    }

    /// The owner that the root directory of an image has: root is what it is in the image, and for
    /// the kernel what it is outside of the container.
    pub(super) fn owner_in_image(&self, is_of_kernel: bool) -> u32 {
        match self.whose {
            Whose::Container if is_of_kernel => CONTAINER,
            Whose::Root | Whose::Container => 0,
            Whose::User => USER,
        }
    }

    /// Gives a file of the host to the user that works there.
    pub(super) fn give(&self, path: &Path) -> Result<(), String> {
        let owner = match self.whose {
            Whose::Root => return Ok(()),
            Whose::User => USER,
            Whose::Container => CONTAINER,
        };
        chown(path, Some(owner), Some(owner)).map_err(|e| format!("{}: {e}", path.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Starts what keeps a user and a mount namespace. Mounts that come later are seen there.
fn hold() -> Result<Child, String> {
    let mut unshare = system("unshare");
    unshare.args(["--user", "--mount", "--propagation", "slave"]);
    unshare.args(["sleep", "infinity"]);
    let unshare = unshare.stdin(Stdio::null()).stdout(Stdio::null());
    unshare.spawn().map_err(|e| format!("unshare: {e}"))
}

/// Waits until the process is in namespaces of its own, and says which users are there.
fn map_users(holder: &mut Child) -> Result<(), String> {
    let of = format!("/proc/{}", holder.id());
    let user = |of: &str| fs::read_link(format!("{of}/ns/user")).ok();
    let own = user("/proc/self");
    wait_until(holder, || user(&of).is_some_and(|its| Some(its) != own))?;
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("{of}/{map}"), format!("0 {CONTAINER} 65536"))
            .map_err(|e| format!("users of a container: {e}"))?;
    }
    // When it has begun to sleep its mounts are its own too.
    let name = || fs::read_to_string(format!("{of}/comm")).unwrap_or_default();
    wait_until(holder, || name().trim() == "sleep")
}

fn wait_until(holder: &mut Child, is_so: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        let ended = holder.try_wait().map_err(|e| e.to_string())?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let why = ended.map_or_else(|| "takes too long".to_owned(), |how| how.to_string());
            return Err(format!("needs user and mount namespaces: unshare: {why}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Names what those who are not root cannot do here.
pub(super) fn require(setting: &Setting) -> Result<(), String> {
    Place::new(Whose::Container)?;
    let user = Place::new(Whose::User)?;
    let images = setting.work();
    fs::create_dir_all(&images).map_err(|e| format!("{}: {e}", images.display()))?;
    for path in [&setting.extant, &setting.home, &images] {
        succeed(user.command("test").arg("-x").arg(path)).map_err(|_| {
            format!(
                "{} is closed to users other than root, who mount in pjdfstest-user and pjdfstest-container: have the \
                 checkout and --work where all may go, or name other suites (--only)",
                path.display()
            )
        })?;
    }
    Ok(())
}

/// Has `/dev/fuse` be open to all users, in these namespaces, as it is where udev rules.
pub(super) fn open_fuse_to_all(at: &Path) -> Result<(), String> {
    const READ_AND_WRITE: u32 = 0o6;
    let device = fs::metadata("/dev/fuse").map_err(|e| format!("/dev/fuse: {e}"))?;
    if device.mode() & READ_AND_WRITE == READ_AND_WRITE {
        return Ok(());
    }
    let node = at.join("fuse");
    let mut mknod = system("mknod");
    succeed(
        mknod
            .args(["-m", "666"])
            .arg(&node)
            .args(["c", "10", "229"]),
    )?;
    succeed(system("mount").arg("--bind").arg(&node).arg("/dev/fuse")).map(drop)
}
