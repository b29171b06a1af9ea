//! Running external programs in tests.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Programs the tests know, and the Debian package that brings each.
const PACKAGES: &[(&str, &str)] = &[
    ("bsdtar", "libarchive-tools"),
    ("bzip2", "bzip2"),
    ("casync", "casync"),
    ("cc", "gcc"),
    ("cmp", "diffutils"),
    ("cp", "coreutils"),
    ("curl", "curl"),
    ("debugfs", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("e2image", "e2fsprogs"),
    ("fakeroot", "fakeroot"),
    ("fakeroot-pseudo", "pseudo"),
    ("find", "findutils"),
    ("fish", "fish"),
    ("fsverity", "fsverity"),
    ("fuse2fs", "fuse2fs"),
    ("genext2fs", "genext2fs"),
    ("getfattr", "attr"),
    ("git", "git"),
    ("groff", "groff-base"),
    ("gzip", "gzip"),
    ("img2simg", "android-sdk-libsparse-utils"),
    ("jsonschema", "python3-jsonschema"),
    ("lz4", "lz4"),
    ("mke2fs", "e2fsprogs"),
    ("mksquashfs", "squashfs-tools"),
    ("mkswap", "util-linux"),
    ("modprobe", "kmod"),
    ("mtree", "mtree-netbsd"),
    ("nbd-server", "nbd-server"),
    ("nbdcopy", "libnbd-bin"),
    ("nbdinfo", "libnbd-bin"),
    ("nbdkit", "nbdkit"),
    ("nginx", "nginx-light"),
    ("openssl", "openssl"),
    ("python3", "python3"),
    ("qemu-img", "qemu-utils"),
    ("qemu-io", "qemu-utils"),
    ("qemu-nbd", "qemu-utils"),
    ("resize2fs", "e2fsprogs"),
    ("selabel_lookup", "selinux-utils"),
    ("setcap", "libcap2-bin"),
    ("setfacl", "acl"),
    ("setfattr", "attr"),
    ("setfiles", "policycoreutils"),
    ("sgdisk", "gdisk"),
    ("simg2img", "android-sdk-libsparse-utils"),
    ("skopeo", "skopeo"),
    ("systemd-repart", "systemd"),
    ("tar", "tar"),
    ("timeout", "coreutils"),
    ("tune2fs", "e2fsprogs"),
    ("umoci", "umoci"),
    ("veritysetup", "cryptsetup-bin"),
    ("xz", "xz-utils"),
    ("zsh", "zsh"),
    ("zstd", "zstd"),
];

/// What a finished program left behind.
#[derive(Clone)]
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output, as bytes.
    pub stdout: Vec<u8>,
    /// Standard error, as bytes.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Returns the standard output as text, bad UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "$ {}", self.command)?;
        f.write_str(&String::from_utf8_lossy(&self.stdout))?;
        f.write_str(&String::from_utf8_lossy(&self.stderr))?;
        write!(f, "(exit code {})", self.code)
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A program about to run, in the C locale and UTC, without standard input.
#[derive(Debug)]
pub struct Tool {
    command: Command,
    input: Option<Vec<u8>>,
}

/// Finds the program `name`.
///
/// # Panics
///
/// When it is not installed; the message names the package that brings it.
pub fn tool(name: &str) -> Tool {
    let mut command = Command::new(find(name));
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    Tool {
        command,
        input: None,
    }
}

/// Where the program is, looking in the directories of root too.
///
/// # Panics
///
/// When it is not installed; the message names the package that brings it.
pub(crate) fn find(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            let package = PACKAGES
                .iter()
                .find(|(tool, _)| *tool == name)
                .map_or(name, |(_, p)| *p);
            panic!(
                "the program {name} is missing: install the package {package} (scripts/setup.sh does)"
            )
        })
}

impl Tool {
    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds several arguments.
    pub fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Gives the program these bytes on standard input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Runs to the end, whatever the exit code.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    pub fn run(mut self) -> Output {
        let line = std::iter::once(self.command.get_program())
            .chain(self.command.get_args())
            .map(|a| a.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ");
        if self.input.is_some() {
            self.command.stdin(Stdio::piped());
        }
        let mut child = self
            .command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {line}: {e}"));
        let feeder = child
            .stdin
            .take()
            .zip(self.input.take())
            .map(|(mut pipe, bytes)| {
                // A program may end without reading everything; that is its business.
                std::thread::spawn(move || drop(pipe.write_all(&bytes)))
            });
        let output = child
            .wait_with_output()
            .unwrap_or_else(|e| panic!("waiting for {line}: {e}"));
        if let Some(feeder) = feeder {
            let _ = feeder.join();
        }
        Output {
            command: line,
            code: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        }
    }

    /// Starts the program and lets it run until what is returned is dropped. Its output goes to the
    /// file `log`.
    ///
    /// # Panics
    ///
    /// When the program cannot be started.
    pub fn background(mut self, log: &std::path::Path) -> Background {
        let out = std::fs::File::create(log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let err = out
            .try_clone()
            .unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let child = self.command.stdout(out).stderr(err).spawn();
        Background(child.unwrap_or_else(|e| panic!("cannot start {:?}: {e}", self.command)))
    }

    /// Runs and expects success.
    ///
    /// # Panics
    ///
    /// When the exit code is not 0; the message holds everything the program said.
    pub fn ok(self) -> Output {
        let output = self.run();
        assert!(output.code == 0, "{output}");
        output
    }
}

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct Background(std::process::Child);

impl Background {
    /// Waits until something listens on a port of this machine.
    ///
    /// # Panics
    ///
    /// When the program ends before that, or nothing listens within 20 seconds.
    pub fn wait_for_port(&mut self, port: u16) {
        let began = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.0.try_wait().unwrap_or_else(|e| panic!("waiting: {e}"));
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(
                began.elapsed().as_secs() < 20,
                "nothing listens on port {port}"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Background {
    /// Waits until something listens on a Unix socket.
    ///
    /// # Panics
    ///
    /// When the program ends before that, or nothing listens within 20 seconds.
    pub fn wait_for_socket(&mut self, path: &std::path::Path) {
        let began = std::time::Instant::now();
        while std::os::unix::net::UnixStream::connect(path).is_err() {
            let ended = self.0.try_wait().unwrap_or_else(|e| panic!("waiting: {e}"));
            assert!(ended.is_none(), "the server ended: {ended:?}");
            assert!(
                began.elapsed().as_secs() < 20,
                "nothing listens on {}",
                path.display()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Kills the program here and now.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a port of this machine that nothing listens on.
///
/// # Panics
///
/// When the system has none.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .unwrap_or_else(|e| panic!("no free port: {e}"))
        .port()
}
