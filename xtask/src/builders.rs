//! `cargo xtask builders`: disks that programs of others build, with ours in the place of those of
//! e2fsprogs; recorded in `docs/dev/conformance.md`.

use crate::debian;
use crate::programs::{Done, build_extant, make_dir, missing, succeed, system};
use crate::record::{self, Steps};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
Disks with a root of Debian, built by debos, vmdb2 and mkosi, which find our programs in the place of those of
e2fsprogs. What they build is judged by `e2fsck -fn` and mounted by Linux. For debos and vmdb2 `diff -r` compares
names, contents and targets of links with the root that they were given, not modes, owners or times, and not what
they write themselves. mkosi makes a root of its own: its host name is read, its packages are counted, and a program
in it is run.

Usage: cargo xtask builders [NAME...] [--record]

Arguments:
  NAME        Of debos, vmdb2, mkosi [default: all]

Options:
  --record    Write what was seen into docs/dev/conformance.md

It needs root, and loop devices. A builder that is missing is named and left out. Debian's packages are downloaded
once into target/debian, and each time by mkosi. What it makes is in namespaces of mounts of its own.";

/// Programs that it needs with any builder, and their packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("delpart", "util-linux"),
    ("diff", "diffutils"),
    ("dumpe2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("losetup", "mount"),
    ("sfdisk", "fdisk"),
];

/// Names under which our program is called.
const NAMES: &[&str] = &[
    "dumpe2fs",
    "e2fsck",
    "e2label",
    "fsck.ext4",
    "mke2fs",
    "mkfs.ext2",
    "mkfs.ext3",
    "mkfs.ext4",
    "resize2fs",
    "tune2fs",
];

struct Builder {
    name: &'static str,
    /// What it needs beside itself, and the packages.
    needs: &'static [(&'static str, &'static str)],
    build: fn(&Place) -> Done<String>,
}

const BUILDERS: &[Builder] = &[
    Builder {
        name: "debos",
        needs: &[("debos", "debos"), ("parted", "parted")],
        build: by_debos,
    },
    Builder {
        name: "vmdb2",
        needs: &[("vmdb2", "vmdb2"), ("parted", "parted")],
        build: by_vmdb2,
    },
    Builder {
        name: "mkosi",
        needs: &[("mkosi", "mkosi"), ("systemd-nspawn", "systemd-container")],
        build: by_mkosi,
    },
];

/// `cargo xtask builders`.
pub(crate) fn builders(root: &Path, args: &[String]) -> ExitCode {
    let (names, options): (Vec<_>, Vec<_>) = args.iter().partition(|arg| !arg.starts_with('-'));
    let is_known = |name: &&String| BUILDERS.iter().any(|builder| builder.name == name.as_str());
    if !names.iter().all(is_known) || options.iter().any(|option| *option != "--record") {
        eprintln!("{HELP}");
        return ExitCode::from(2);
    }
    let record = !options.is_empty();
    let gone = missing(&[debian::PROGRAMS, PROGRAMS].concat());
    if !gone.is_empty() {
        println!("SKIPPED: needs {}: builders", gone.join(", "));
        // What is to be recorded was not seen.
        return ExitCode::from(u8::from(record));
    }
    match run(root, &names, record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("builders: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, names: &[&String], record: bool) -> Done<()> {
    let place = Place::new(root)?;
    let mut steps = Steps::new();
    for builder in BUILDERS {
        if !names.is_empty() && !names.iter().any(|name| *name == builder.name) {
            continue;
        }
        let gone = missing(builder.needs);
        if gone.is_empty() {
            steps.step(builder.name, || Ok(((), (builder.build)(&place)?)));
        } else if record {
            return Err(format!("{} needs {}", builder.name, gone.join(", ")));
        } else {
            println!("SKIPPED: needs {}: {}", gone.join(", "), builder.name);
        }
    }
    let table = steps.table()?;
    let packages: Vec<&str> = BUILDERS.iter().map(|builder| builder.name).collect();
    let machine = record::machine(root, &packages)?;
    let text = format!("{machine}\n{table}");
    println!("\n{text}");
    if record {
        record::write(root, "builders", &text)?;
    }
    Ok(())
}

/// Where disks are built, and from what; gone afterwards.
struct Place {
    dir: PathBuf,
    extant: PathBuf,
    /// A root of Debian, as a directory and as an archive.
    tree: PathBuf,
    archive: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    fn new(root: &Path) -> Done<Self> {
        let extant = build_extant(root)?;
        let tree = debian::root_tree(root)?;
        // The system names the files of loop devices by their true paths.
        let target = fs::canonicalize(root.join("target")).map_err(|e| format!("target: {e}"))?;
        let dir = target.join(format!("builders.{}", std::process::id()));
        let (bin, archive) = (dir.join("bin"), dir.join("root.tar"));
        let place = Self {
            dir,
            extant,
            tree,
            archive,
        };
        make_dir(&bin)?;
        for name in NAMES {
            let link = std::os::unix::fs::symlink(&place.extant, bin.join(name));
            link.map_err(|e| format!("{name}: {e}"))?;
        }
        // There is no udev here whose events a builder could wait for.
        place.write("bin/udevadm", "#!/bin/sh\nexit 0\n")?;
        succeed(system("chmod").arg("+x").arg(bin.join("udevadm")))?;
        let mut tar = system("tar");
        tar.arg("-C")
            .arg(&place.tree)
            .args(["--numeric-owner", "-cf"]);
        succeed(tar.arg(&place.archive).arg("."))?;
        Ok(place)
    }

    fn write(&self, name: &str, text: &str) -> Done<()> {
        fs::write(self.dir.join(name), text).map_err(|e| format!("{name}: {e}"))
    }

    /// Runs lines of the shell among mounts of their own, with our programs in front, and returns
    /// all that they say.
    fn shell(&self, lines: &str) -> Done<String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.dir.join("bin");
        let mut shell = Command::new("timeout");
        shell.args([
            "1200",
            "unshare",
            "--mount",
            "sh",
            "-exc",
            &format!("exec 2>&1; {lines}"),
        ]);
        shell.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", bin.display()));
        shell.env("EXTANT", &self.extant).current_dir(&self.dir);
        let before = partitions_of_loops();
        let said = succeed(&mut shell);
        self.release_loops(&before);
        said
    }

    /// Detaches loop devices of files here, and deletes partitions that were not there before:
    /// those that stay on a loop device would be those of the next file there.
    fn release_loops(&self, before: &BTreeSet<(String, String)>) {
        let user = |device: &str| user_of(&file_of_loop(device), &self.dir);
        for device in loops().filter(|device| user(device) == User::Us) {
            let _ = system("losetup")
                .arg("--detach")
                .arg(format!("/dev/{device}"))
                .output();
        }
        for (device, number) in partitions_of_loops().difference(before) {
            if user(device) != User::Another {
                let node = format!("/dev/{device}");
                let _ = system("delpart").args([&node, number]).output();
            }
        }
    }

    /// Judges the file system in the first partition of a disk, and returns what is said of it.
    /// `same` are lines of the shell that compare, with the file system at `mnt`.
    fn judge(&self, disk: &str, said: &str, same: &str) -> Done<String> {
        // The banner of e2fsprogs does not have this.
        let banner = said.lines().find(|line| line.contains("(extant "));
        let banner = banner.ok_or_else(|| format!("ours did not run:\n{said}"))?;
        let banner = banner.split("mke2fs").nth(1).unwrap_or_default();
        let disk = self.dir.join(disk);
        let table = succeed(system("sfdisk").arg("--json").arg(&disk))?;
        let number = |name: &str| {
            let after = table
                .split(&format!("\"{name}\":"))
                .nth(1)
                .unwrap_or_default();
            let digits: String = after
                .trim()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            digits
                .parse::<u64>()
                .map_err(|_| format!("no {name} in {table}"))
        };
        // The first number of a table that is called `start` or `size` is of the first partition.
        let (start, size) = (number("start")? * 512, number("size")? * 512);
        let part = self.dir.join("part.img");
        let mut dd = system("dd");
        dd.arg(format!("if={}", disk.display()));
        dd.arg(format!("of={}", part.display()));
        dd.args([format!("skip={start}"), format!("count={size}")]);
        succeed(dd.args(["bs=1M", "iflag=skip_bytes,count_bytes", "conv=sparse"]))?;
        succeed(system("e2fsck").arg("-fn").arg(&part))?;
        let lines = format!("mkdir -p mnt; mount -o ro,loop part.img mnt; {same}; umount mnt");
        self.shell(&lines)?;
        let header = succeed(system("dumpe2fs").arg("-h").arg(&part))?;
        let label = header
            .lines()
            .find_map(|line| line.strip_prefix("Filesystem volume name:"));
        let label = label.unwrap_or_default().trim();
        Ok(format!(
            "`mke2fs{banner}`, label `{label}`; `e2fsck -fn` finds nothing"
        ))
    }

    /// Compares a file system at `mnt` with the tree, apart from these.
    fn compare(&self, but: &[&str]) -> String {
        let but: Vec<String> = but.iter().map(|path| format!("-e '{path}'")).collect();
        let tree = self.tree.display();
        // Differences are lines; those that are left fail.
        format!(
            "diff -rq --no-dereference '{tree}' mnt > differences 2>&1 || true; \
             grep -v 'is a character special file' differences | grep -v {} && exit 1; \
             test $(find mnt | wc -l) -gt 5000",
            but.join(" ")
        )
    }
}

/// What a loop device is used by.
#[derive(Debug, PartialEq)]
enum User {
    /// A file below our directory, perhaps a deleted one.
    Us,
    /// Nothing: what is left on it is left over.
    Nobody,
    /// Another file, or one that cannot be known.
    Another,
}

/// What uses a loop device with this file, if we use files below `dir`.
fn user_of(file: &io::Result<String>, dir: &Path) -> User {
    match file {
        Ok(file) if Path::new(file).starts_with(dir) => User::Us,
        Err(e) if e.kind() == io::ErrorKind::NotFound => User::Nobody,
        _ => User::Another,
    }
}

/// The file of a loop device; one that has none has no entry for it either.
fn file_of_loop(device: &str) -> io::Result<String> {
    fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"))
}

/// Names of what is in a directory.
fn names_in(dir: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The loop devices that the system has.
fn loops() -> impl Iterator<Item = String> {
    names_in("/sys/block").filter(|name| name.starts_with("loop"))
}

/// Partitions that the system knows of loop devices: the device and the number.
fn partitions_of_loops() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for device in loops() {
        for part in names_in(&format!("/sys/block/{device}")) {
            if let Some(number) = part.strip_prefix(&format!("{device}p")) {
                found.insert((device.clone(), number.to_owned()));
            }
        }
    }
    found
}

/// debos takes programs from `PATH`.
fn by_debos(place: &Place) -> Done<String> {
    place.write(
        "debos.yaml",
        "architecture: amd64\nactions:\n  - action: unpack\n    file: root.tar\n  \
         - action: image-partition\n    imagename: debos.img\n    imagesize: 600MB\n    \
         partitiontype: gpt\n    mountpoints:\n      - mountpoint: /\n        partition: root\n    \
         partitions:\n      - name: root\n        fs: ext4\n        start: 0%\n        end: 100%\n  \
         - action: filesystem-deploy\n    setup-fstab: true\n    setup-kernel-cmdline: false\n",
    )?;
    let said = place.shell("debos --disable-fakemachine --artifactdir=\"$PWD\" debos.yaml")?;
    let same = place.compare(&["etc/fstab", "lost+found", "etc: fstab"]);
    place.judge("debos.img", &said, &same)
}

/// vmdb2 calls `/sbin/mkfs`, which looks into `/sbin` before all others: ours is put over that
/// program there. It is given a device, whose partitions the system knows: with a file it takes
/// those of the device mapper.
fn by_vmdb2(place: &Place) -> Done<String> {
    place.write(
        "vmdb2.yaml",
        "steps:\n  - mklabel: gpt\n    device: \"{{ output }}\"\n  - mkpart: primary\n    \
         device: \"{{ output }}\"\n    start: 1M\n    end: 100%\n    tag: root\n  - mkfs: ext4\n    \
         partition: root\n    label: vmdbroot\n  - mount: root\n    zerofree: false\n  \
         - unpack-rootfs: root\n",
    )?;
    let said = place.shell(
        "truncate -s 600M vmdb2.img; disk=$(losetup --find --show --partscan vmdb2.img); \
         trap 'delpart $disk 1 || true; losetup --detach $disk || true' EXIT; \
         trap 'exit 1' HUP INT TERM; \
         mount --bind \"$EXTANT\" \"$(readlink -f /sbin/mke2fs)\"; \
         vmdb2 --output $disk --rootfs-tarball root.tar --log vmdb2.log --verbose vmdb2.yaml && \
         ended=0 || ended=$?; \
         cat vmdb2.log; exit $ended",
    )?;
    let same = place.compare(&["etc/resolv.conf", "lost+found", "etc: resolv.conf"]);
    place.judge("vmdb2.img", &said, &same)
}

/// mkosi takes programs from `PATH`, and makes a root of its own. A `/run` on a disk is nothing
/// that systemd-nspawn makes a container in.
fn by_mkosi(place: &Place) -> Done<String> {
    let said = place.shell(&format!(
        "mount -t tmpfs run /run; mkosi --distribution debian --release {} --format gpt_ext4 \
         --root-size 900M --bootable no --nspawn-keep-unit --hostname made --force \
         --mirror {} --output mkosi.img build < /dev/null",
        debian::SUITE,
        debian::MIRROR,
    ))?;
    let same = "test \"$(cat mnt/etc/hostname)\" = made; \
                test $(dpkg-query --admindir=mnt/var/lib/dpkg -W | wc -l) -gt 80; \
                chroot mnt /bin/sh -c 'test \"$(tail -n 1 /etc/debian_version)\"'";
    place.judge("mkosi.img", &said, same)
}

#[cfg(test)]
mod tests {
    use super::{User, user_of};
    use std::io;
    use std::path::Path;

    #[test]
    fn loop_devices_of_other_files_are_of_others() {
        let user = |file: &str| user_of(&Ok(format!("{file}\n")), Path::new("/t/builders.7"));
        assert_eq!(user("/t/builders.7/debos.img"), User::Us);
        assert_eq!(user("/t/builders.7/a/b.img (deleted)"), User::Us);
        assert_eq!(user("/t/builders.71/debos.img"), User::Another);
        assert_eq!(user("/t/disk.img"), User::Another);
        let failed = |kind: io::ErrorKind| user_of(&Err(kind.into()), Path::new("/t/builders.7"));
        assert_eq!(failed(io::ErrorKind::NotFound), User::Nobody);
        assert_eq!(failed(io::ErrorKind::PermissionDenied), User::Another);
    }
}
