//! A virtual machine: Debian's kernel, files of our own to begin with, and its serial console.

use crate::programs::{Done, copy, make_dir, succeed, system};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Programs that a machine needs, and their packages.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox"),
    ("veritysetup", "cryptsetup-bin"),
    ("bsdtar", "libarchive-tools"),
    ("depmod", "kmod"),
    ("setpriv", "util-linux"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
];

/// Modules that a machine needs, with what they depend on.
const MODULES: &[&str] = &[
    "crc32c_generic",
    "virtio_pci",
    "virtio_blk",
    "ext4",
    "dm-mod",
    "dm-verity",
];

/// What a machine has beside drives.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    /// What carries its instructions out, as QEMU calls it.
    pub(crate) accelerator: &'static str,
    pub(crate) processors: u32,
    pub(crate) memory_mib: u32,
    /// Nodes that processors and memory are on, in equal parts.
    pub(crate) nodes: u32,
    /// File systems of virtio-fs: the socket of each, and its tag.
    pub(crate) files: Vec<(PathBuf, &'static str)>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            accelerator: "tcg",
            processors: 1,
            memory_mib: 1024,
            nodes: 1,
            files: Vec::new(),
        }
    }
}

/// What is quickest here: hardware's help where the processor has it, and this user may use it.
pub(crate) fn accelerator() -> &'static str {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has_help = flags
        .split_whitespace()
        .any(|flag| flag == "vmx" || flag == "svm");
    let may_use = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_ok();
    if has_help && may_use { "kvm" } else { "tcg" }
}

/// A kernel of Debian, unpacked.
pub(crate) struct Kernel {
    image: PathBuf,
    pub(crate) version: String,
    files: PathBuf,
}

impl Kernel {
    /// The kernel of a package, which is downloaded into a directory where it is not there.
    pub(crate) fn get(dir: &Path, package: Option<&str>) -> Done<Self> {
        let package = match package {
            Some(name) => name.to_owned(),
            None => {
                let said = succeed(system("apt-cache").args(["depends", "linux-image-amd64"]))?;
                let name = said
                    .split_whitespace()
                    .find(|w| w.starts_with("linux-image-6"));
                name.ok_or("which package is the kernel's is not known: --package")?
                    .to_owned()
            }
        };
        let files = dir.join(&package);
        let version = package.trim_start_matches("linux-image-").to_owned();
        let image = files.join(format!("boot/vmlinuz-{version}"));
        // This is written last.
        let modules = files.join(format!("lib/modules/{version}/modules.dep"));
        if !modules.exists() {
            let new = dir.join("new");
            let _ = fs::remove_dir_all(&new);
            make_dir(&new)?;
            succeed(
                system("apt-get")
                    .args(["download", &package])
                    .current_dir(dir),
            )?;
            let archives = fs::read_dir(dir).map_err(|e| e.to_string())?.flatten();
            let archive = archives.map(|entry| entry.path()).find(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(&format!("{package}_"))
            });
            let archive = archive.ok_or("apt-get left no package")?;
            succeed(system("dpkg-deb").arg("-x").arg(archive).arg(&new))?;
            succeed(system("depmod").arg("-b").arg(&new).arg(&version))?;
            let _ = fs::remove_dir_all(&files);
            fs::rename(&new, &files).map_err(|e| format!("{}: {e}", files.display()))?;
        }
        Ok(Self {
            image,
            version,
            files,
        })
    }

    /// Copies the modules, and `more`, into the files of the machine.
    fn copy_modules(&self, to: &Path, more: &[&str]) -> Done<()> {
        let below = Path::new("lib/modules").join(&self.version);
        let list = self.files.join(&below).join("modules.dep");
        let list = fs::read_to_string(list).map_err(|e| e.to_string())?;
        let mut needed = BTreeSet::new();
        for module in MODULES.iter().chain(more) {
            let own = format!("/{module}.ko:");
            if let Some(line) = list.lines().find(|line| line.contains(&own)) {
                needed.extend(line.split([' ', ':']).filter(|path| !path.is_empty()));
            }
        }
        for path in needed {
            copy(
                &self.files.join(&below).join(path),
                &to.join(&below).join(path),
            )?;
        }
        succeed(system("depmod").arg("-b").arg(to).arg(&self.version)).map(drop)
    }

    /// Makes the files that a machine begins with: these programs, the modules, and a script that
    /// runs once they are loaded.
    pub(crate) fn ramdisk(&self, dir: &Path, programs: &[&str], script: &str) -> Done<PathBuf> {
        self.ramdisk_with(dir, programs, &[], script)
    }

    /// Makes the files that a machine begins with, with `more` modules.
    pub(crate) fn ramdisk_with(
        &self,
        dir: &Path,
        programs: &[&str],
        more: &[&str],
        script: &str,
    ) -> Done<PathBuf> {
        let files = dir.join("ramdisk");
        let _ = fs::remove_dir_all(&files);
        for name in ["bin", "proc", "sys", "dev", "mnt", "run"] {
            make_dir(&files.join(name))?;
        }
        self.copy_modules(&files, more)?;
        for program in ["busybox"].iter().chain(programs) {
            copy_program(program, &files)?;
        }
        let init = files.join("init");
        let modules = [MODULES, more].concat().join(" ");
        let text = format!(
            "#!/bin/busybox sh\n\
             /bin/busybox --install -s /bin\n\
             export PATH=/bin\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             for module in {modules}; do modprobe $module; done\n\
             {script}"
        );
        fs::write(&init, text).map_err(|e| e.to_string())?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        let made = dir.join("ramdisk.cpio");
        succeed(
            system("bsdtar")
                .args(["--format=newc", "-cf"])
                .arg(&made)
                .arg(".")
                .current_dir(&files),
        )?;
        Ok(made)
    }

    /// The program of a machine that has these images as drives. It ends when the machine is
    /// switched off or its kernel gives up, and with the process that started it.
    pub(crate) fn machine(&self, ramdisk: &Path, options: &str, drives: &[Drive<'_>]) -> Command {
        self.machine_with(ramdisk, options, drives, &Hardware::default())
    }

    /// The program of a machine with that hardware, as [`machine`](Self::machine) makes it.
    pub(crate) fn machine_with(
        &self,
        ramdisk: &Path,
        options: &str,
        drives: &[Drive<'_>],
        hardware: &Hardware,
    ) -> Command {
        let mut qemu = system("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(["-accel", hardware.accelerator, "-display", "none"]);
        qemu.args(["-smp", &hardware.processors.to_string()]);
        let size = hardware.memory_mib;
        qemu.args(["-m", &size.to_string()]);
        if hardware.nodes > 1 {
            let (each, part) = (hardware.processors / hardware.nodes, size / hardware.nodes);
            for node in 0..hardware.nodes {
                let memory = format!("memory-backend-ram,id=node{node},size={part}M");
                let (first, last) = (node * each, (node + 1) * each - 1);
                let numa = format!("node,nodeid={node},memdev=node{node},cpus={first}-{last}");
                qemu.args(["-object", &memory, "-numa", &numa]);
            }
        } else if !hardware.files.is_empty() {
            // What is at the other end of a socket maps it.
            let memory = format!("memory-backend-memfd,id=memory,size={size}M,share=on");
            qemu.args(["-object", &memory, "-machine", "memory-backend=memory"]);
        }
        for (number, (socket, tag)) in hardware.files.iter().enumerate() {
            let socket = socket.display();
            let end = format!("socket,id=files{number},path={socket}");
            let device =
                format!("vhost-user-fs-pci,chardev=files{number},tag={tag},queue-size=1024");
            qemu.args(["-chardev", &end, "-device", &device]);
        }
        qemu.args(["-serial", "stdio", "-monitor", "none", "-no-reboot"]);
        qemu.arg("-kernel").arg(&self.image);
        qemu.arg("-initrd").arg(ramdisk);
        // A busy computer does not give the machine its time when the kernel tests the timer.
        let append = format!("console=ttyS0 quiet panic=-1 no_timer_check {options}");
        qemu.args(["-append", append.trim_end()]);
        for drive in drives {
            let read_only = if drive.read_only { "on" } else { "off" };
            let image = drive.image.display();
            let what = format!("file={image},if=virtio,format=raw,readonly={read_only}");
            qemu.args(["-drive", &what]);
        }
        qemu
    }
}

/// Copies a program, and the libraries that it is linked with, below the root of a machine.
pub(crate) fn copy_program(program: &str, root: &Path) -> Done<()> {
    let path = succeed(system("sh").args(["-c", &format!("command -v {program}")]))?;
    let path = Path::new(path.trim());
    let name = path
        .file_name()
        .ok_or_else(|| format!("{program} has no name"))?;
    copy(path, &root.join("bin").join(name))?;
    // A static program has no libraries, of which ldd makes an error.
    let said = system("ldd").arg(path).output();
    let said = said.map_err(|e| format!("ldd: {e}"))?;
    for library in String::from_utf8_lossy(&said.stdout).split_whitespace() {
        if let Some(below) = library.strip_prefix('/') {
            copy(Path::new(library), &root.join(below))?;
        }
    }
    Ok(())
}

/// An image that a machine has as a drive.
pub(crate) struct Drive<'a> {
    pub(crate) image: &'a Path,
    pub(crate) read_only: bool,
}

/// How many times as long as it may be silent a machine may talk, and not say what is waited for.
const MANY_SILENCES: u32 = 10;

/// What a machine says on its serial console, and what is typed there.
pub(crate) struct Console {
    machine: Child,
    typed: ChildStdin,
    said: Receiver<Vec<u8>>,
    /// All that was said.
    text: String,
    /// How much of it was waited for.
    seen: usize,
}

impl Console {
    /// Starts a machine.
    pub(crate) fn start(mut machine: Command) -> Done<Self> {
        machine.stdin(Stdio::piped()).stdout(Stdio::piped());
        machine.stderr(Stdio::inherit());
        let mut started = machine
            .spawn()
            .map_err(|e| format!("cannot start {machine:?}: {e}"))?;
        let typed = started.stdin.take().ok_or("the machine has no console")?;
        let mut from = started.stdout.take().ok_or("the machine has no console")?;
        let (to, said) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                if to.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            machine: started,
            typed,
            said,
            text: String::new(),
            seen: 0,
        })
    }

    /// Waits until the machine says this, and returns what it said before that and was not waited
    /// for yet. A busy computer makes everything slow, so the machine may take long, but not be
    /// silent for longer than `silence`.
    pub(crate) fn wait(&mut self, what: &str, silence: Duration) -> Done<String> {
        let end = Instant::now() + silence * MANY_SILENCES;
        loop {
            let unseen = &self.text[self.seen..];
            if let Some(at) = unseen.find(what) {
                let before = unseen[..at].to_owned();
                self.seen += at + what.len();
                return Ok(before);
            }
            if !self
                .listen(silence, end)
                .map_err(|e| self.missing(what, &e))?
            {
                return Err(self.missing(what, "before it ended"));
            }
        }
    }

    /// Adds to the text what the machine says next. Whether it says anything: otherwise it has
    /// ended.
    fn listen(&mut self, silence: Duration, end: Instant) -> Result<bool, String> {
        let left = end.saturating_duration_since(Instant::now());
        match self.said.recv_timeout(silence.min(left)) {
            Ok(bytes) => {
                // Bytes that are no text have a place too; what is waited for has none of them.
                self.text.push_str(&String::from_utf8_lossy(&bytes));
                Ok(true)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(false),
            Err(RecvTimeoutError::Timeout) if left < silence => {
                Err("in all the time that it talked".to_owned())
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("and nothing else for {} s", silence.as_secs()))
            }
        }
    }

    fn missing(&self, what: &str, when: &str) -> String {
        format!("the machine did not say {what:?} {when}:\n{}", self.text)
    }

    /// Types a line.
    pub(crate) fn type_line(&mut self, line: &str) -> Done<()> {
        let typed = self.typed.write_all(format!("{line}\n").as_bytes());
        typed
            .and_then(|()| self.typed.flush())
            .map_err(|e| format!("the machine takes no input: {e}\n{}", self.text))
    }

    /// Has the machine's shell run a line that must succeed, and returns what it printed.
    pub(crate) fn run(&mut self, line: &str, silence: Duration) -> Done<String> {
        // What is typed is seen, too: the marks are not in it as they are printed.
        self.type_line(&format!("echo begins''-here; {line}; echo ends''-here $?"))?;
        self.wait("begins-here\r\n", silence)?;
        let printed = self.wait("ends-here ", silence)?;
        let code = self.wait("\r\n", silence)?;
        let printed = printed.replace('\r', "").trim_end().to_owned();
        if code == "0" {
            Ok(printed)
        } else {
            Err(format!("{line}: ended with {code}: {printed}"))
        }
    }

    /// Takes its power away.
    pub(crate) fn kill(mut self) -> Done<()> {
        self.machine.kill().map_err(|e| e.to_string())?;
        self.machine.wait().map(drop).map_err(|e| e.to_string())
    }

    /// Waits until the machine is off, and returns all that it said. It may be silent for as long
    /// as `silence`.
    pub(crate) fn off(mut self, silence: Duration) -> Done<String> {
        let end = Instant::now() + silence * MANY_SILENCES;
        while self
            .listen(silence, end)
            .map_err(|e| self.missing("that it is off", &e))?
        {}
        let status = self.machine.wait().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(std::mem::take(&mut self.text))
        } else {
            Err(format!("the machine ended with {status}:\n{}", self.text))
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}
