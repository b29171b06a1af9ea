//! `cargo xtask verity`: images with hash trees under a Linux that has dm-verity and fs-verity.

use crate::programs::{succeed, system};
use crate::root;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What `--help` says.
pub(crate) const HELP: &str = "\
Images with hash trees under a Linux that has dm-verity and fs-verity, in a virtual machine: Debian's kernel, booted
by QEMU without hardware's help. An image that `extant mkfs` made is opened through dm-verity and mounted; fs-verity
measures files in it, and what was changed is refused.

Usage: cargo xtask verity [--package NAME]

Options:
  --package NAME   The package of the kernel [default: what linux-image-amd64 depends on]

It needs qemu-system-x86_64, busybox, veritysetup, fsverity, bsdtar, depmod, debugfs, apt-get and dpkg-deb. The package
is downloaded into target/verity, and not installed. It takes a minute.";

type Done<T> = Result<T, String>;

/// Modules that the machine needs, with what they depend on.
const MODULES: &[&str] = &[
    "crc32c_generic",
    "virtio_pci",
    "virtio_blk",
    "ext4",
    "dm-mod",
    "dm-verity",
];

/// Files that are protected, and their sizes.
const FILES: &[(&str, u64)] = &[
    ("empty", 0),
    ("one", 1),
    ("block", 4096),
    ("levels", 128 * 4096 + 5),
    ("large", 3_000_000),
    // Nothing but a hole, with three levels of hashes.
    ("hole", 70 << 20),
];

/// The block of `large` that is changed.
const CHANGED: u64 = 300;

/// `cargo xtask verity`.
pub(crate) fn verity(args: &[String]) -> ExitCode {
    let package = match args {
        [] => None,
        [option, name] if option == "--package" => Some(name.as_str()),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match judged(package) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn judged(package: Option<&str>) -> Done<()> {
    let dir = root().join("target/verity");
    let kernel = Kernel::get(&dir, package)?;
    let image = Image::make(&dir)?;
    let initrd = ramdisk(&dir, &kernel, &image)?;
    let drive = |name: &str| format!("file={},if=virtio,format=raw", dir.join(name).display());
    let log = succeed(
        system("timeout")
            .args(["900", "qemu-system-x86_64", "-m", "1024", "-nographic"])
            .arg("-no-reboot")
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(initrd)
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .args(["-drive", &drive("root.img"), "-drive", &drive("bad.img")]),
    )?;
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let mut missing = 0;
    for line in image.expected() {
        let times = lines.iter().filter(|found| found.ends_with(&line)).count();
        let verdict = if times > 0 { "as expected" } else { "MISSING" };
        missing += u32::from(times == 0);
        println!("{verdict}: {line}");
    }
    println!("kernel {}", kernel.version);
    // What the kernel changed is sound, and so is what it left.
    for name in ["root.img", "bad.img"] {
        succeed(system("e2fsck").arg("-fn").arg(dir.join(name)))?;
    }
    if missing > 0 {
        return Err(format!("{missing} are missing in:\n{log}"));
    }
    Ok(())
}

/// A kernel of Debian, unpacked.
struct Kernel {
    image: PathBuf,
    version: String,
    files: PathBuf,
}

impl Kernel {
    fn get(dir: &Path, package: Option<&str>) -> Done<Self> {
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
        if !image.exists() {
            make(&files)?;
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
            succeed(system("dpkg-deb").arg("-x").arg(archive).arg(&files))?;
            succeed(system("depmod").arg("-b").arg(&files).arg(&version))?;
        }
        Ok(Self {
            image,
            version,
            files,
        })
    }

    /// Copies the modules into the files of the machine.
    fn copy_modules(&self, to: &Path) -> Done<()> {
        let below = Path::new("lib/modules").join(&self.version);
        let list = self.files.join(&below).join("modules.dep");
        let list = fs::read_to_string(list).map_err(|e| e.to_string())?;
        let mut needed = BTreeSet::new();
        for module in MODULES {
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
}

/// The images, and what Linux has to say of them.
struct Image {
    digests: Vec<String>,
    root_hash: String,
    offset: String,
}

impl Image {
    fn make(dir: &Path) -> Done<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        succeed(Command::new(cargo).args(["build", "-q", "-p", "extant-cli"]))?;
        let tree = dir.join("tree");
        let sealed = tree.join("sealed");
        make(&sealed)?;
        let mut state = 7_u64;
        let mut digests = Vec::new();
        for (name, len) in FILES {
            let path = sealed.join(name);
            let file = fs::File::create(&path).map_err(|e| e.to_string())?;
            file.set_len(*len).map_err(|e| e.to_string())?;
            if *name != "hole" {
                let bytes: Vec<u8> = (0..*len)
                    .map(|_| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        (state >> 56) as u8
                    })
                    .collect();
                file.write_all_at(&bytes, 0).map_err(|e| e.to_string())?;
            }
            let digest = succeed(system("fsverity").args(["digest", "--compact"]).arg(&path))?;
            digests.push(format!("sha256:{} /mnt/sealed/{name}", digest.trim()));
            let sum = succeed(system("sha256sum").arg(&path))?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            digests.push(format!("{sum}  /mnt/sealed/{name}"));
        }
        let image = dir.join("root.img");
        let mut mkfs = Command::new(root().join("target/debug/extant"));
        mkfs.arg("mkfs").arg(&image).arg("--from").arg(&tree);
        mkfs.args(["--size", "64M", "--block-size", "4K", "--force", "--json"]);
        mkfs.args(["--fs-verity", "/sealed", "--dm-verity", "append"]);
        let made = succeed(&mut mkfs)?;
        let field = |name: &str| {
            let after = made.split(&format!("\"{name}\":")).nth(1)?;
            let value = after.split([',', '}']).next()?;
            Some(value.trim_matches('"').to_owned())
        };
        // The other one has one byte of a file changed.
        let bad = dir.join("bad.img");
        copy(&image, &bad)?;
        let request = format!("bmap /sealed/large {CHANGED}");
        let block = succeed(system("debugfs").args(["-R", &request]).arg(&bad))?;
        let at = block.trim().parse::<u64>().map_err(|e| e.to_string())? * 4096;
        let file = fs::File::options().read(true).write(true).open(&bad);
        let file = file.map_err(|e| e.to_string())?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)
            .and_then(|()| file.write_all_at(&[byte[0] ^ 1], at))
            .map_err(|e| e.to_string())?;
        Ok(Self {
            digests,
            root_hash: field("root_hash").ok_or("extant tells no root hash")?,
            offset: field("hash_offset").ok_or("extant tells no offset")?,
        })
    }

    /// Lines that the console ends with or has.
    fn expected(&self) -> Vec<String> {
        let steps = [
            "dm-verity: mounted",
            "dm-verity: a changed block is refused",
            "fs-verity: a changed block is refused",
            "fs-verity: writing is refused",
            "fs-verity: files are moved and removed",
            "fs-verity: the rest is written to",
        ];
        let steps = steps.map(str::to_owned).into_iter();
        steps.chain(self.digests.iter().cloned()).collect()
    }

    /// What the machine does.
    fn script(&self) -> String {
        let (root_hash, offset) = (&self.root_hash, &self.offset);
        let names: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        let (names, modules) = (names.join(" "), MODULES.join(" "));
        format!(
            "#!/bin/busybox sh\n\
             /bin/busybox --install -s /bin\n\
             export PATH=/bin\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
             for module in {modules}; do modprobe $module; done\n\
             open() {{ veritysetup open $1 $2 $1 {root_hash} --hash-offset={offset}; }}\n\
             open /dev/vda root && mount -t ext4 -o ro /dev/mapper/root /mnt && echo dm-verity: mounted\n\
             for file in {names}; do fsverity measure /mnt/sealed/$file; sha256sum /mnt/sealed/$file; done\n\
             umount /mnt; veritysetup close root\n\
             open /dev/vdb bad && mount -t ext4 -o ro /dev/mapper/bad /mnt\n\
             test -e /mnt/sealed/large && ! cat /mnt/sealed/large > /dev/null && \
             echo dm-verity: a changed block is refused\n\
             umount /mnt; veritysetup close bad\n\
             mount -t ext4 /dev/vdb /mnt\n\
             test -e /mnt/sealed/large && ! cat /mnt/sealed/large > /dev/null && \
             echo fs-verity: a changed block is refused\n\
             (echo more >> /mnt/sealed/one) || echo fs-verity: writing is refused\n\
             mv /mnt/sealed/one /mnt/moved && rm /mnt/sealed/levels && \
             echo fs-verity: files are moved and removed\n\
             echo new > /mnt/new && umount /mnt && echo fs-verity: the rest is written to\n\
             poweroff -f\n"
        )
    }
}

/// Makes the files that the machine boots with.
fn ramdisk(dir: &Path, kernel: &Kernel, image: &Image) -> Done<PathBuf> {
    let files = dir.join("ramdisk");
    let _ = fs::remove_dir_all(&files);
    for name in ["bin", "proc", "sys", "dev", "mnt", "run"] {
        make(&files.join(name))?;
    }
    kernel.copy_modules(&files)?;
    for program in ["busybox", "veritysetup", "fsverity"] {
        let path = succeed(system("sh").args(["-c", &format!("command -v {program}")]))?;
        copy(Path::new(path.trim()), &files.join("bin").join(program))?;
        for library in succeed(system("ldd").arg(path.trim()))?.split_whitespace() {
            if let Some(below) = library.strip_prefix('/') {
                copy(Path::new(library), &files.join(below))?;
            }
        }
    }
    let init = files.join("init");
    fs::write(&init, image.script()).map_err(|e| e.to_string())?;
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

fn make(dir: &Path) -> Done<()> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn copy(from: &Path, to: &Path) -> Done<()> {
    make(to.parent().unwrap_or(to))?;
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|e| format!("{}: {e}", from.display()))
}
