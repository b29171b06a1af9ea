//! The root that `extant mkfs` makes, and machines that run it.

use crate::guest::{Console, Drive, Hardware, Kernel, accelerator, copy_program};
use crate::programs::{Done, make_dir, succeed, system};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Programs that are needed beside those of any machine, and their packages.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    ("chattr", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("fsverity", "fsverity"),
    ("lsattr", "e2fsprogs"),
    ("mke2fs", "e2fsprogs"),
    ("quotaon", "quota"),
    ("strip", "binutils"),
    ("xfs_io", "xfsprogs"),
];

/// Those that a machine has.
const INSIDE: &[&str] = &[
    "busybox", "chattr", "e2fsck", "fsverity", "lsattr", "mke2fs", "quotaon", "repquota",
    "setquota", "setpriv", "xfs_io",
];

/// Modules that it needs: virtio-fs, quotas, and what encrypts.
const MODULES: &[&str] = &[
    "virtiofs",
    "quota_v2",
    "xts",
    "essiv",
    "adiantum",
    "nhpoly1305",
    "chacha_generic",
    "cts",
    "ecb",
    "sha512_generic",
];

/// How long a machine may say nothing, on a busy computer. It tells of its start as it goes, and
/// what takes long in it says something meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// The kernel says how it starts, until there is a shell.
const TELLING: &str = "loglevel=7";

/// What all parts have.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) kernel: Kernel,
    pub(super) extant: PathBuf,
    /// What is measured beside others, where it is not `extant`.
    pub(super) release: Option<PathBuf>,
    pub(super) accelerator: &'static str,
    ramdisk: PathBuf,
    root: PathBuf,
}

impl Place {
    /// Makes the root, and what mounts it.
    pub(super) fn make(
        dir: PathBuf,
        kernel: Kernel,
        extant: PathBuf,
        release: Option<PathBuf>,
    ) -> Done<(Self, String)> {
        let tree = dir.join("tree");
        let _ = fs::remove_dir_all(&tree);
        for name in [
            "bin", "dev", "etc", "mnt", "proc", "run", "sbin", "sys", "tmp", "usr",
        ] {
            make_dir(&tree.join(name))?;
        }
        for program in INSIDE {
            copy_program(program, &tree)?;
        }
        // Without what tells a debugger of it, it takes a quarter of the room.
        let small = tree.join("bin/extant");
        succeed(system("strip").arg("-o").arg(&small).arg(&extant))?;
        for library in succeed(system("ldd").arg(&small))?.split_whitespace() {
            if let Some(below) = library.strip_prefix('/') {
                crate::programs::copy(Path::new(library), &tree.join(below))?;
            }
        }
        fs::write(
            tree.join("etc/passwd"),
            "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
        )
        .map_err(|e| e.to_string())?;
        fs::write(tree.join("etc/group"), "root:x:0:\nuser:x:1000:\n")
            .map_err(|e| e.to_string())?;
        let root = dir.join("root.img");
        let _ = fs::remove_file(&root);
        let mut mkfs = Command::new(&extant);
        mkfs.arg("mkfs")
            .arg(&root)
            .arg("-q")
            .arg("--from")
            .arg(&tree);
        succeed(mkfs.args(["--owner", "0:0", "--headroom", "64M"]))?;
        succeed(system("e2fsck").arg("-fn").arg(&root))?;
        // The shell of the machine is driven by lines, whose echo is switched off.
        let script = "echo 4 > /proc/sys/kernel/printk; mount -t ext4 -o ro /dev/vda /mnt && \
            for name in proc sys dev; do mount -o move /$name /mnt/$name; done && \
            exec switch_root /mnt /bin/busybox sh -c '\
            /bin/busybox mount -t tmpfs tmp /tmp; /bin/busybox mount -t tmpfs run /run; \
            export PATH=/bin:/run/bin; /bin/busybox mkdir /run/bin; \
            /bin/busybox --install -s /run/bin; cd /tmp; exec <>/dev/ttyS0 >&0 2>&1; stty cols 2000; echo machine-is-up; exec sh'\n";
        let ramdisk = kernel.ramdisk_with(&dir, &[], MODULES, script)?;
        let bytes = fs::metadata(&root).map_err(|e| e.to_string())?.len();
        let seen = format!("{} MiB, `e2fsck -fn` finds nothing", bytes >> 20);
        let place = Self {
            dir,
            kernel,
            extant,
            release,
            accelerator: accelerator(),
            ramdisk,
            root,
        };
        Ok((place, seen))
    }

    /// Returns the path of a file of this chore.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs `extant`, which must succeed.
    pub(super) fn extant(&self, args: &[&str]) -> Done<String> {
        succeed(Command::new(&self.extant).args(args))
    }

    /// Has both checkers judge an image.
    pub(super) fn judge(&self, image: &Path) -> Done<()> {
        succeed(Command::new(&self.extant).arg("check").arg(image))?;
        succeed(system("e2fsck").arg("-fn").arg(image)).map(drop)
    }

    /// Starts a machine with these images as `vdb` and so on, and waits for its shell.
    pub(super) fn start(&self, images: &[PathBuf], hardware: Hardware) -> Done<Console> {
        let root = Drive {
            image: &self.root,
            read_only: true,
        };
        let others = images.iter().map(|image| Drive {
            image,
            read_only: false,
        });
        let drives: Vec<Drive<'_>> = std::iter::once(root).chain(others).collect();
        let machine = self
            .kernel
            .machine_with(&self.ramdisk, TELLING, &drives, &hardware);
        let mut console = Console::start(machine)?;
        console.wait("machine-is-up", PATIENCE)?;
        Ok(console)
    }

    /// The hardware of a machine with so many processors.
    pub(super) fn hardware(&self, processors: u32) -> Hardware {
        Hardware {
            accelerator: self.accelerator,
            processors,
            ..Hardware::default()
        }
    }
}

/// Has a machine's shell run lines, each of which must succeed. Returns what they printed.
pub(super) fn all(console: &mut Console, lines: &[&str]) -> Done<String> {
    let mut said = String::new();
    for line in lines {
        said.push_str(&console.run(line, PATIENCE)?);
        said.push('\n');
    }
    Ok(said)
}

/// Switches a machine off.
pub(super) fn off(mut console: Console) -> Done<()> {
    console.type_line("sync; poweroff -f")?;
    console.off(PATIENCE).map(drop)
}
