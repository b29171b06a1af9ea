//! `cargo xtask boot`: a root file system built from layers, with labels and a hash tree, boots to
//! a login; recorded in `docs/dev/conformance.md`.

use crate::debian;
use crate::guest::{self, Console, Drive, Kernel};
use crate::programs::{
    Done, build_extant, copy, flip, json_field, make_dir, missing, succeed, system,
};
use crate::record::{self, Steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

pub(crate) const HELP: &str = "\
A root file system of Debian, built by `extant mkfs` from an OCI layout of three layers, with SELinux labels and a
hash tree of dm-verity, boots in QEMU to a login. In the machine all files are those that umoci unpacks, restorecon
finds no label to change, and nothing can be written. With one bit of it changed it does not boot.

Usage: cargo xtask boot [--package NAME] [--record]

Options:
  --package NAME   The package of the kernel [default: what linux-image-amd64 depends on]
  --record         Write what was seen into docs/dev/conformance.md

It needs root. Programs that are missing are named, and then nothing is done. Debian's packages are downloaded once,
into target/debian and target/boot; remove these to have them anew. It takes some three minutes.";

/// Programs that it needs beside those of the machine and of Debian, and their packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("umoci", "umoci"),
    ("e2fsck", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("sha256sum", "coreutils"),
    (CONTEXTS, "selinux-policy-default"),
];

/// The policy's table of labels.
const CONTEXTS: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// How long a machine without hardware's help may take for anything, on a busy computer.
const PATIENCE: Duration = Duration::from_secs(600);

/// A line for the shell that prints one sum over kinds, modes, owners, times, targets and contents
/// of all files, apart from those of other file systems in the machine.
const SUM: &str = "export LC_ALL=C; cd \"$TREE\" && \
    find . -xdev '(' -path ./dev -o -path ./proc -o -path ./run -o -path ./sys -o -path ./tmp \
    -o -path ./var/log -o -path ./lost+found ')' -prune -o -print > \"$LIST\" && \
    { sort \"$LIST\" | tr '\\n' '\\0' | xargs -0 stat -c '%n %F %a %u:%g %Y %N'; \
    sort \"$LIST\" | while read -r file; do \
    if test -f \"$file\" && ! test -L \"$file\"; then echo \"$file\"; fi; done | \
    tr '\\n' '\\0' | xargs -0 sha256sum; } | sha256sum | cut -c 1-64; wc -l < \"$LIST\"";

/// `cargo xtask boot`.
pub(crate) fn boot(root: &Path, args: &[String]) -> ExitCode {
    let (mut package, mut record) = (None, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let known = match arg.as_str() {
            "--package" => rest.next().map(|n| package = Some(n.clone())).is_some(),
            "--record" => {
                record = true;
                true
            }
            _ => false,
        };
        if !known {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    }
    let gone = missing(&[guest::PROGRAMS, debian::PROGRAMS, PROGRAMS].concat());
    if !gone.is_empty() {
        println!("SKIPPED: needs {}: boot", gone.join(", "));
        // What is to be recorded was not seen.
        return ExitCode::from(u8::from(record));
    }
    match run(root, package.as_deref(), record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("boot: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, package: Option<&str>, record: bool) -> Done<()> {
    let dir = root.join("target/boot");
    make_dir(&dir)?;
    let kernel = Kernel::get(&dir, package)?;
    let extant = build_extant(root)?;
    let base = debian::root_tree(root)?;
    let mut steps = Steps::new();
    let boot = Boot {
        dir,
        kernel,
        extant,
        version: debian::version(&base)?,
    };
    boot.steps(&base, &mut steps);
    let table = steps.table()?;
    let packages = ["qemu-system-x86", "umoci", "selinux-policy-default"];
    let (debian, kernel) = (&boot.version, &boot.kernel.version);
    let text = format!(
        "{}\nDebian {debian} on its kernel {kernel} in QEMU without hardware's help:\n\n{table}",
        record::machine(root, &packages)?
    );
    println!("\n{text}");
    if record {
        record::write(root, "boot", &text)?;
    }
    Ok(())
}

struct Boot {
    dir: PathBuf,
    kernel: Kernel,
    extant: PathBuf,
    /// Debian's.
    version: String,
}

/// An image, and what the machine must know of it.
struct Image {
    path: PathBuf,
    root_hash: String,
    hash_offset: String,
}

impl Boot {
    /// Does all that can be done; what depends on a step that failed is left out.
    fn steps(&self, base: &Path, steps: &mut Steps) {
        let Some(sum) = steps.step("layers made by umoci", || self.layers(base)) else {
            return;
        };
        let Some(image) = steps.step("an image made of them", || self.image()) else {
            return;
        };
        let booted = steps.step("booted to a login", || self.login(&image));
        if let Some(mut console) = booted {
            let seen: &[(&str, Look)] = &[
                ("the root", root_is_verified),
                ("units of systemd", all_is_running),
                ("domains of processes", domains),
                ("labels of files", labels),
                ("a file written", nothing_is_written),
            ];
            for (what, look) in seen {
                steps.step(what, || Ok(((), look(&mut console)?)));
            }
            steps.step("files", || Ok(((), files_are(&mut console, &sum)?)));
            steps.step("switched off", || {
                console.type_line("poweroff")?;
                console.off(PATIENCE)?;
                Ok(((), "the machine ends".to_owned()))
            });
        }
        steps.step("one bit of `systemd` changed", || self.changed(&image));
    }

    /// Makes the layout, and unpacks it: the sum of its files.
    fn layers(&self, base: &Path) -> Done<(String, String)> {
        let path = |name: &str| self.dir.join(name);
        let (layout, bundle, unpacked) = (path("layout"), path("bundle"), path("unpacked"));
        for old in [&layout, &bundle, &unpacked] {
            let _ = fs::remove_dir_all(old);
        }
        let name = format!("{}:latest", layout.display());
        let umoci = |args: &[&str]| succeed(system("umoci").args(args)).map(drop);
        umoci(&["init", "--layout", &layout.display().to_string()])?;
        umoci(&["new", "--image", &name])?;
        let with_bundle =
            |what: &str| umoci(&[what, "--image", &name, &bundle.display().to_string()]);
        // The base, as it comes from Debian.
        with_bundle("unpack")?;
        let rootfs = bundle.join("rootfs");
        succeed(system("cp").arg("-a").arg(base.join(".")).arg(&rootfs))?;
        with_bundle("repack")?;
        let _ = fs::remove_dir_all(&bundle);
        // What makes a machine of it; what it needs no longer is taken away.
        with_bundle("unpack")?;
        let script = "cp -a /etc/selinux/. etc/selinux/ && echo layered > etc/hostname && \
            printf '%s\\n' '/dev/mapper/root / ext4 ro 0 0' 'tmpfs /tmp tmpfs defaults 0 0' \
            'tmpfs /var/log tmpfs defaults 0 0' > etc/fstab && \
            sed -i 's/^root:[^:]*:/root::/' etc/shadow && \
            rm -rf var/cache/apt/archives var/lib/apt/lists/* usr/share/locale";
        succeed(system("sh").args(["-ec", script]).current_dir(&rootfs))?;
        with_bundle("repack")?;
        let _ = fs::remove_dir_all(&bundle);
        // A directory in the place of one.
        let papers = path("papers");
        make_dir(&papers)?;
        fs::write(papers.join("README"), "Nothing to read.\n").map_err(|e| e.to_string())?;
        let papers = papers.display().to_string();
        umoci(&[
            "insert",
            "--image",
            &name,
            "--opaque",
            &papers,
            "/usr/share/doc",
        ])?;
        umoci(&["unpack", "--image", &name, &unpacked.display().to_string()])?;
        let tree = unpacked.join("rootfs");
        let sum = self.host_sum(&tree)?;
        let files = sum.lines().nth(1).unwrap_or_default();
        let seen = format!(
            "three: Debian, its settings with files removed, an opaque directory; {files} files"
        );
        Ok((sum, seen))
    }

    /// What [`SUM`] says of a tree here.
    fn host_sum(&self, tree: &Path) -> Done<String> {
        let list = self.dir.join("list");
        let mut shell = system("sh");
        shell.env("TREE", tree).env("LIST", &list);
        Ok(succeed(shell.args(["-ec", SUM]))?.trim().to_owned())
    }

    /// Makes the image, and has it judged.
    fn image(&self) -> Done<(Image, String)> {
        let path = self.dir.join("root.img");
        let _ = fs::remove_file(&path);
        let from = format!("oci:{}:latest", self.dir.join("layout").display());
        let mut mkfs = Command::new(&self.extant);
        mkfs.arg("mkfs")
            .arg(&path)
            .args(["--from", &from, "--json"]);
        mkfs.args(["--contexts", CONTEXTS, "--dm-verity", "append"]);
        let made = succeed(&mut mkfs)?;
        let image = Image {
            root_hash: json_field(&made, "root_hash")?,
            hash_offset: json_field(&made, "hash_offset")?,
            path,
        };
        succeed(system("e2fsck").arg("-fn").arg(&image.path))?;
        let mut verify = system("veritysetup");
        verify.arg("verify").arg(&image.path).arg(&image.path);
        verify.arg(&image.root_hash);
        succeed(verify.arg(format!("--hash-offset={}", image.hash_offset)))?;
        let blocks = json_field(&made, "data_blocks")?;
        let seen = format!("{blocks} blocks; `e2fsck -fn` and `veritysetup verify` find nothing");
        Ok((image, seen))
    }

    /// Starts a machine with an image as its root.
    fn start(&self, image: &Image, drive: &Path) -> Done<Console> {
        let (root_hash, offset) = (&image.root_hash, &image.hash_offset);
        let script = format!(
            "veritysetup open /dev/vda root /dev/vda {root_hash} --hash-offset={offset}\n\
             mount -t ext4 -o ro /dev/mapper/root /mnt\n\
             mount -t devtmpfs dev /mnt/dev\n\
             umount /sys /proc\n\
             exec switch_root /mnt /sbin/init\n"
        );
        let ramdisk = self.kernel.ramdisk(&self.dir, &["veritysetup"], &script)?;
        let drive = Drive {
            image: drive,
            read_only: true,
        };
        Console::start(
            self.kernel
                .machine(&ramdisk, "security=selinux ro", &[drive]),
        )
    }

    /// Boots, and logs in.
    fn login(&self, image: &Image) -> Done<(Console, String)> {
        let mut console = self.start(image, &image.path)?;
        console.wait("layered login: ", PATIENCE)?;
        console.type_line("root")?;
        console.wait("root@layered", PATIENCE)?;
        // A shell that draws nothing, and no word of the kernel in between.
        console.type_line("exec sh")?;
        console.run("dmesg -n 1", PATIENCE)?;
        Ok((console, "`layered login:`, and root has a shell".to_owned()))
    }

    /// Boots an image of which one bit is changed.
    fn changed(&self, image: &Image) -> Done<((), String)> {
        let drive = self.dir.join("changed.img");
        copy(&image.path, &drive)?;
        let request = "bmap /usr/lib/systemd/systemd 0";
        let block = succeed(system("debugfs").args(["-R", request]).arg(&drive))?;
        let block: u64 = block.trim().parse().map_err(|e| format!("{block}: {e}"))?;
        flip(&drive, block * 4096 + 100)?;
        let mut console = self.start(image, &drive)?;
        let told = format!("data block {block} is corrupted");
        console.wait(&told, PATIENCE)?;
        let said = console.off(PATIENCE)?;
        if said.contains("login: ") {
            return Err(format!("it boots all the same:\n{said}"));
        }
        Ok(((), format!("`{told}`, and there is no login")))
    }
}

type Look = fn(&mut Console) -> Done<String>;

/// Expects that a line of the shell prints this.
fn expect(console: &mut Console, line: &str, expected: &str) -> Done<()> {
    let found = console.run(line, PATIENCE)?;
    if found == expected {
        return Ok(());
    }
    Err(format!("{line} prints {found:?}, not {expected:?}"))
}

fn root_is_verified(console: &mut Console) -> Done<String> {
    let mounted = console.run("findmnt -n -o SOURCE,FSTYPE,OPTIONS /", PATIENCE)?;
    let words: Vec<&str> = mounted.split_whitespace().collect();
    if !matches!(words[..], ["/dev/mapper/root", "ext4", options] if options.starts_with("ro,")) {
        return Err(format!("findmnt prints {mounted:?}"));
    }
    let device = console.run(
        "cat /sys/block/dm-0/dm/name /sys/block/dm-0/dm/uuid",
        PATIENCE,
    )?;
    if !device.starts_with("root\nCRYPT-VERITY-") {
        return Err(format!("the device is {device:?}"));
    }
    Ok(format!("`findmnt`: `{}`, by dm-verity", words.join(" ")))
}

fn all_is_running(console: &mut Console) -> Done<String> {
    expect(console, "systemctl is-system-running --wait", "running")?;
    Ok("`systemctl is-system-running`: `running`".to_owned())
}

/// The kernel gives processes domains by the labels of their programs.
fn domains(console: &mut Console) -> Done<String> {
    let domain = |console: &mut Console, process: &str| {
        let line = format!("tr -d '\\0' < /proc/{process}/attr/current");
        let label = console.run(&line, PATIENCE)?;
        let domain = label.split(':').nth(2).unwrap_or_default().to_owned();
        Ok::<_, String>(domain)
    };
    let mut seen = Vec::new();
    for (process, name, expected) in [
        ("1", "systemd", "init_t"),
        ("$(pidof systemd-journald)", "systemd-journald", "syslogd_t"),
        ("$(pidof systemd-udevd)", "systemd-udevd", "udev_t"),
        ("self", "the shell after the login", "unconfined_t"),
    ] {
        let found = domain(console, process)?;
        if found != expected {
            return Err(format!("{name} runs as {found:?}, not {expected}"));
        }
        seen.push(format!("{name} `{expected}`"));
    }
    Ok(format!(
        "by the labels of their programs: {}",
        seen.join(", ")
    ))
}

fn labels(console: &mut Console) -> Done<String> {
    let line = "getfattr --absolute-names --only-values -n security.selinux /etc/passwd";
    let passwd = console.run(&format!("{line} | tr -d '\\0'"), PATIENCE)?;
    if passwd != "system_u:object_r:etc_t:s0" {
        return Err(format!("/etc/passwd has {passwd:?}"));
    }
    // The judge says what is wrong where something is.
    let wrong = "touch /var/log/judged && chcon -t bin_t /var/log/judged && restorecon -nvF /var/log/judged";
    let told = console.run(wrong, PATIENCE)?;
    if !told.contains("Would relabel /var/log/judged") {
        return Err(format!("restorecon says of a wrong label: {told:?}"));
    }
    expect(console, "restorecon -nvxRF /", "")?;
    Ok(format!(
        "`restorecon -nvxRF /` has nothing to change; `/etc/passwd` has `{passwd}`"
    ))
}

fn nothing_is_written(console: &mut Console) -> Done<String> {
    let refused = console.run("! touch /etc/written 2>&1", PATIENCE)?;
    if !refused.contains("Read-only file system") {
        return Err(format!("touch prints {refused:?}"));
    }
    Ok("`Read-only file system`".to_owned())
}

fn files_are(console: &mut Console, sum: &str) -> Done<String> {
    console.run("TREE=/; LIST=/run/list", PATIENCE)?;
    expect(console, SUM, sum)?;
    let files = sum.lines().nth(1).unwrap_or_default();
    Ok(format!(
        "the {files} that umoci unpacks, with their modes, owners, times, targets and contents"
    ))
}
