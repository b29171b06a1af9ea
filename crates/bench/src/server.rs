//! Programs that serve while others are measured. They end when they are dropped, and with this
//! process however that ends.

use crate::peer;
use extant_testkit::link::Protocol;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take until it serves, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// A program that runs until this is dropped.
pub(crate) struct Running {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Running {
    /// Starts a program, whose output goes to the file `NAME.log` in `dir`.
    ///
    /// # Errors
    /// When nothing can be started.
    fn start<S: AsRef<OsStr>>(
        dir: &Path,
        name: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Result<Self, String> {
        let log = dir.join(format!("{name}.log"));
        let failed = |e: io::Error| format!("{name}: {e}");
        let output = File::create(&log).map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        // Destructors do not run in a process that is killed; the kernel does this.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", name])
            .args(args)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn();
        Ok(Self {
            child: child.map_err(|e| format!("setpriv: {e}"))?,
            name: name.to_owned(),
            log,
        })
    }

    /// Waits until `serves` says so.
    ///
    /// # Errors
    /// When it ends before that, with what it said, or takes too long.
    fn wait_until(&mut self, serves: impl Fn() -> bool) -> Result<(), String> {
        let began = Instant::now();
        while !serves() {
            if self.child.try_wait().map_err(|e| e.to_string())?.is_some() {
                return Err(format!("{} does not serve: {}", self.name, self.said()));
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not serve after a minute", self.name));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn said(&self) -> String {
        let said = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    }

    /// The largest resident set so far, in bytes.
    pub(crate) fn peak_rss(&self) -> Option<u64> {
        peer::peak_rss_of(&self.child.id().to_string())
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// When it does not.
    fn ended(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while self.child.try_wait().map_err(|e| e.to_string())?.is_none() {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not end", self.name));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let has_ended = self.child.try_wait().is_ok_and(|ended| ended.is_some());
        if !has_ended {
            let pid = Pid::from_child(&self.child);
            // In its own way first.
            if rustix::process::kill_process(pid, Signal::TERM).is_err() || self.ended().is_err() {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

/// A server on a Unix socket.
pub(crate) struct Server {
    socket: PathBuf,
    _running: Running,
}

impl Server {
    /// Serves the file `image`: by nbdkit its bytes as the default export, by nginx the file under
    /// its own name.
    ///
    /// # Errors
    /// Without the program, or when it does not start.
    pub(crate) fn of(
        protocol: Protocol,
        dir: &Path,
        image: &Path,
        is_writable: bool,
    ) -> Result<Self, String> {
        let socket = dir.join("server.sock");
        let _ = fs::remove_file(&socket);
        let mut running = match protocol {
            Protocol::Nbd => {
                let mut args = vec![OsStr::new("-f"), OsStr::new("-U"), socket.as_os_str()];
                if !is_writable {
                    args.push(OsStr::new("-r"));
                }
                args.extend([OsStr::new("file"), image.as_os_str()]);
                Running::start(dir, "nbdkit", args)?
            }
            Protocol::Http => {
                let folder = image.parent().unwrap_or(dir);
                let config = dir.join("nginx.conf");
                fs::write(&config, nginx_config(dir, &socket, folder))
                    .map_err(|e| format!("{}: {e}", config.display()))?;
                let errors = dir.join("nginx.errors");
                let options = ["-c", "-p", "-e"].map(OsStr::new);
                let values = [config.as_path(), dir, &errors].map(Path::as_os_str);
                let args = options.into_iter().zip(values);
                Running::start(
                    dir,
                    "nginx",
                    args.flat_map(|(option, value)| [option, value]),
                )?
            }
        };
        running.wait_until(|| UnixStream::connect(&socket).is_ok())?;
        Ok(Self {
            socket,
            _running: running,
        })
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }
}

/// One process that serves the files of `folder`.
fn nginx_config(dir: &Path, socket: &Path, folder: &Path) -> String {
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let (at, socket, folder) = (dir.display(), socket.display(), folder.display());
    format!(
        "daemon off; {user} master_process off; pid {at}/nginx.pid; error_log {at}/nginx.errors;
         events {{}}
         http {{
             access_log off;
             client_body_temp_path {at}/nginx1; proxy_temp_path {at}/nginx2;
             fastcgi_temp_path {at}/nginx3; uwsgi_temp_path {at}/nginx4;
             scgi_temp_path {at}/nginx5;
             server {{ listen unix:{socket}; root {folder}; }}
         }}"
    )
}

/// An export that nbdfuse shows as a file; unmounted on drop.
pub(crate) struct Shown {
    running: Running,
    point: PathBuf,
}

/// What nbdfuse connects to.
pub(crate) enum Source<'a> {
    /// An NBD server.
    Uri(&'a str),
    /// A file of a web server, through nbdkit, which nbdfuse starts.
    Url(&'a str),
}

impl Shown {
    /// Mounts below `dir`.
    ///
    /// # Errors
    /// Without FUSE or the program, or when it does not mount.
    pub(crate) fn new(dir: &Path, source: &Source<'_>, is_writable: bool) -> Result<Self, String> {
        let point = dir.join("shown");
        fs::create_dir_all(&point).map_err(|e| format!("{}: {e}", point.display()))?;
        let file = point.join(NAME);
        let mut args = Vec::new();
        if !is_writable {
            args.push(OsStr::new("-r"));
        }
        args.push(file.as_os_str());
        match source {
            Source::Uri(uri) => args.push(OsStr::new(uri)),
            Source::Url(url) => {
                let words = ["[", "nbdkit", "--exit-with-parent", "curl", url, "]"];
                args.extend(words.map(OsStr::new));
            }
        }
        let running = Running::start(dir, "nbdfuse", args)?;
        let mut shown = Self { running, point };
        let is_there = || file.metadata().is_ok_and(|found| found.len() > 0);
        shown.running.wait_until(is_there)?;
        Ok(shown)
    }

    /// The file.
    pub(crate) fn file(&self) -> PathBuf {
        self.point.join(NAME)
    }

    /// The largest resident set of nbdfuse so far, in bytes.
    pub(crate) fn peak_rss(&self) -> Option<u64> {
        self.running.peak_rss()
    }

    /// Unmounts, and waits until nbdfuse has ended: what was written is with the server.
    ///
    /// # Errors
    /// When it stays busy, or nbdfuse does not end.
    pub(crate) fn end(mut self) -> Result<(), String> {
        unmount(&self.point)?;
        self.running.ended()
    }
}

/// The name of the file that nbdfuse shows.
const NAME: &str = "disk";

impl Drop for Shown {
    fn drop(&mut self) {
        // Nothing is mounted where it came to its end.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
    }
}

/// Unmounts what is not used for long.
///
/// # Errors
/// When it stays busy.
pub(crate) fn unmount(point: &Path) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match rustix::mount::unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::BUSY) if began.elapsed() < PATIENCE => thread::sleep(LOOK),
            Err(e) => return Err(format!("{} stays mounted: {e}", point.display())),
        }
    }
}

/// Whether a program is installed.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
