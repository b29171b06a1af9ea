//! Every example of the README, of the pages for users and of every `--help`, typed in order.
//!
//! What an example needs of its surroundings is made before: a Debian-like root directory, images
//! of it, a disk with partitions, and stand-ins for the programs that examples pass things to. With
//! `EXTANT_FULL` the root directory has all of this machine's `/etc` and `/usr/bin`.

use crate::namespaces::without_copies;
use crate::support::{Place, copy_of, extant};
use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A directory in which examples are typed.
struct Desk {
    place: Place,
}

impl Desk {
    fn new() -> Self {
        let desk = Self {
            place: Place::in_memory(),
        };
        desk.programs();
        desk.root_directory();
        let dir = |name: &str| fs::create_dir_all(desk.at(name)).unwrap();
        for name in [
            "overlay/etc",
            "home/.config/fish/completions",
            "mnt",
            "tree",
            "man1",
            "completions",
            "links",
        ] {
            dir(name);
        }
        fs::write(desk.at("overlay/etc/motd"), "hello\n").unwrap();
        fs::write(desk.at("tree/leaf"), "green\n").unwrap();
        fs::create_dir_all(desk.at("app")).unwrap();
        fs::write(desk.at("app/run"), "#!/bin/sh\n").unwrap();
        fs::write(
            desk.at("changes"),
            "expect exists /etc\nmkdir -p /srv/data\n",
        )
        .unwrap();
        for name in ["hostname", "resolv.conf", "more", "header"] {
            fs::write(desk.at(name), format!("{name}\n")).unwrap();
        }
        for (name, table) in [
            (
                "table",
                "/usr/bin/ping 0:0 0755 caps=cap_net_raw+ep\n/dev/null 0:0 666 char=1:3\n",
            ),
            (
                "table.dev",
                "/dev 0:0 0755 dir\n/dev/null 0:0 0666 char=1:3\n",
            ),
            ("device_table.txt", "/dev/tty c 666 0 5 4 0 0 1 4\n"),
            ("file_contexts", "/.* system_u:object_r:default_t:s0\n"),
        ] {
            fs::write(desk.at(name), table).unwrap();
        }
        let image = desk.place.arg("base.img");
        let rootfs = desk.place.arg("rootfs");
        mke2fs(
            Path::new(&image),
            3 << 30,
            &["-t", "ext4", "-O", "quota,project"],
        );
        extant(["cp", "-a", &format!("{rootfs}/."), &format!("{image}:/")]).ok();
        desk.disk();
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Stand-ins for what examples call, which read what they get or write what is asked of them.
    fn programs(&self) {
        let bin = self.at("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).unwrap();
        let tar = "case $1 in export) exec tar -C \"$DESK/rootfs\" -c .;; save) exec cat \
                   \"$DESK/app.tar\";; *) exec cat > /dev/null;; esac";
        for (name, script) in [
            ("docker", tar),
            ("man", "exec cat > /dev/null"),
            ("xxd", "exec od -t x1"),
        ] {
            let path = bin.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn root_directory(&self) {
        let root = self.at("rootfs");
        for dir in [
            "boot",
            "dev",
            "dir",
            "etc",
            "home/me",
            "init.d",
            "opt",
            "run",
            "srv/customer",
            "tmp/build",
            "usr/bin",
            "usr/lib",
            "usr/share/doc",
            "var/cache/apt",
            "var/log/journal",
            "var/lib",
            "var/www/html",
        ] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        for (link, target) in [
            ("bin", "usr/bin"),
            ("lib", "usr/lib"),
            ("sbin", "usr/bin"),
            ("opt/app", "app-1"),
            ("etc/os-release", "../usr/lib/os-release"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\n";
        let group = "root:x:0:\nadm:x:4:\nwww-data:x:33:\n";
        for (file, content) in [
            ("etc/passwd", passwd),
            ("etc/group", group),
            ("etc/shadow", "root:*::::::\n"),
            ("etc/hosts", "127.0.0.1 localhost\n"),
            ("etc/hostname", "debian\n"),
            ("etc/fstab", "# none\n"),
            ("etc/machine-id", "\n"),
            ("etc/resolv.conf", "\n"),
            ("usr/lib/os-release", "ID=debian\n"),
            ("usr/share/doc/readme", "text\n"),
            ("usr/bin/busybox", "#!\n"),
            ("usr/bin/ping", "#!\n"),
            ("usr/bin/python3", "#!\n"),
            ("usr/lib/libc.so", "\x7fELF"),
            ("boot/vmlinuz", "MZ"),
            ("init", "#!\n"),
            ("a", "a\n"),
            ("b", "b\n"),
            ("data", "data\n"),
            ("swapfile", "swap\n"),
            ("var/log/messages", "line\n"),
            ("var/cache/apt/pkgcache.bin", "cache\n"),
        ] {
            fs::write(root.join(file), content).unwrap();
        }
        tool("setcap")
            .arg("cap_net_raw+ep")
            .arg(root.join("usr/bin/ping"))
            .ok();
        if std::env::var_os("EXTANT_FULL").is_some() {
            tool("cp")
                .args(["-a", "--update=none"])
                .arg("/etc/.")
                .arg(root.join("etc"))
                .run();
            tool("cp")
                .args(["-a", "--update=none"])
                .arg("/usr/bin/.")
                .arg(root.join("usr/bin"))
                .run();
        }
    }

    /// Two disks: one whose second partition holds a file system, and one whose first does.
    fn disk(&self) {
        for (name, first, second) in [
            ("two.img", "1:2048:4095", "2:4096:266239"),
            ("one.img", "1:4096:266239", "2:2048:4095"),
        ] {
            let path = self.at(name);
            fs::File::create(&path).unwrap().set_len(160 << 20).unwrap();
            tool("sgdisk")
                .args(["-n", first, "-n", second])
                .arg(&path)
                .ok();
            let number = if name == "two.img" { "2" } else { "1" };
            let (path, rootfs) = (path.display().to_string(), self.place.arg("rootfs"));
            extant([
                "mkfs",
                &path,
                "--partition",
                number,
                "--from",
                &rootfs,
                "--size",
                "64M",
                "-q",
            ])
            .ok();
        }
    }

    /// A container image, as a layout and as Docker saves it.
    fn container_image(&self) {
        if self.at("layout").exists() {
            return;
        }
        let layout = self.place.arg("layout");
        let image = format!("{layout}:v1");
        let etc = self.place.arg("rootfs/etc");
        let saved = format!("docker-archive:{}:app:latest", self.place.arg("app.tar"));
        tool("umoci").args(["init", "--layout", &layout]).ok();
        tool("umoci").args(["new", "--image", &image]).ok();
        tool("umoci")
            .args(["insert", "--image", &image, &etc, "/etc"])
            .ok();
        tool("skopeo")
            .args(["--insecure-policy", "copy", "-q"])
            .args([&format!("oci:{image}"), &saved])
            .ok();
    }

    /// Puts everything that is changed by examples back as it was.
    fn tidy(&self, command: &str) {
        let base = self.place.arg("base.img");
        for name in ["rootfs.img", "old.img", "crashed.img", "new.img", "bad.img"] {
            let _ = fs::remove_file(self.at(name));
            copy_of(&base, &self.place.arg(name));
        }
        debugfs_write(&self.at("bad.img"), &["sif /etc/hosts links_count 7"]);
        let of_mount = ["mount", "umount", "stats"].contains(&command);
        // Another name in the page of mounts for a disk whose second partition has the file system.
        if of_mount {
            let _ = fs::remove_file(self.at("whole.img"));
            copy_of(&self.place.arg("two.img"), &self.place.arg("whole.img"));
        }
        let disks: [(&str, &str); 2] = if of_mount {
            [("disk.img", "base.img"), ("whole-disk.img", "one.img")]
        } else {
            [("disk.img", "two.img"), ("whole-disk.img", "one.img")]
        };
        for (name, from) in disks {
            let _ = fs::remove_file(self.at(name));
            copy_of(&self.place.arg(from), &self.place.arg(name));
        }
        if ["mkfs", "build", "remote"].contains(&command) {
            let tar = "tar -C rootfs -c . | zstd -q > rootfs.tar.zst";
            assert!(self.shell(tar).status.success());
            fs::copy(self.at("rootfs.tar.zst"), self.at("base.tar.zst")).unwrap();
        }
        match command {
            "convert" => {
                for name in [
                    "rootfs.qcow2",
                    "disk.qcow2",
                    "disk.vhd",
                    "system.simg",
                    "part.img",
                ] {
                    let _ = fs::remove_file(self.at(name));
                }
            }
            "mkfs" | "build" | "owners" | "verity" => {
                self.container_image();
                for name in ["rootfs.img", "empty.img", "disk.qcow2", "app.img"] {
                    let _ = fs::remove_file(self.at(name));
                }
            }
            "apply" | "edit" => {
                self.container_image();
                let tar = "tar -C overlay -c . | zstd -qf > update.tar.zst";
                assert!(self.shell(tar).status.success());
            }
            // Where it goes there is no file yet.
            "" => fs::remove_file(self.at("rootfs.img")).unwrap(),
            "repair" => {
                debugfs_write(&self.at("rootfs.img"), &["sif /etc/hosts links_count 7"]);
            }
            "write" => {
                fs::remove_file(self.at("disk.img")).unwrap();
                copy_of(&base, &self.place.arg("disk.img"));
            }
            _ => {}
        }
    }

    fn shell(&self, line: &str) -> Output {
        let bin = self.at("bin").display().to_string();
        Command::new("bash")
            .args(["-o", "pipefail", "-c", line])
            .current_dir(self.place.path())
            .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()))
            .env("HOME", self.at("home"))
            .env("DESK", self.place.path())
            .env_remove("SOURCE_DATE_EPOCH")
            .output()
            .unwrap()
    }

    /// Types a line, and expects that it works.
    fn types(&self, line: &str) {
        let mount = self.at("mnt").display().to_string();
        // What would go into the machine goes into the desk.
        let typed = line
            .replace("/mnt", &mount)
            .replace("/etc/bash_completion.d/", "completions/")
            .replace("/usr/libexec/extant", "links")
            .replace("/usr/share/man/man1", "man1")
            .replace("/var/tmp/", "")
            .replace("/dev/sdb1", "bad.img");
        // It serves until it is told to end.
        let typed = if typed.starts_with("extant serve ") {
            format!("timeout --preserve-status 1 {typed}")
        } else {
            typed
        };
        let _no_copies = typed.contains("extant umount ").then(without_copies);
        let output = if typed.contains("--foreground") {
            self.shell(&format!("{typed} > /dev/null 2>&1 &"))
        } else {
            self.shell(&typed)
        };
        let code = output.status.code();
        // What is repaired in examples is damaged.
        let last = line.rsplit("; ").next().unwrap_or(line);
        let expected = match last.contains("extant repair ") && !last.contains("--revert") {
            true if last.contains("--dry-run") => 4,
            true => 1,
            false => 0,
        };
        assert!(
            code == Some(expected),
            "{line}: exit code {code:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.contains(&format!(" {} ", self.at("mnt").display()))
    }

    fn wait_for_mount(&self) {
        let begun = Instant::now();
        while !self.is_mounted() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "nothing is mounted"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Types lines in order. What needs a mount gets one, and a mount ends before the next one.
    fn types_all(&self, lines: &[String]) {
        for line in lines {
            let mounts = line.contains("extant mount ");
            let uses = line.contains("extant umount ") || line.contains("extant stats ");
            if mounts && self.is_mounted() {
                self.types("extant umount /mnt");
            }
            if uses && !mounts && !self.is_mounted() {
                self.types("extant mount disk.img /mnt");
            }
            self.types(line);
            if mounts && !uses {
                self.wait_for_mount();
            }
        }
        if self.is_mounted() {
            self.types("extant umount /mnt");
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.at("mnt"))
                .status();
        }
    }
}

/// A block of a page that is typed at a shell.
struct Block {
    /// The page, relative to the project.
    page: String,
    lines: Vec<String>,
}

impl Block {
    /// Whether the block is the one of this page that begins so.
    fn is(&self, page: &str, start: &str) -> bool {
        self.page == page
            && self
                .lines
                .first()
                .is_some_and(|line| line.starts_with(start))
    }

    /// What a user types without being root, without its comments.
    fn typed(&self) -> Vec<String> {
        let lines = self.lines.iter().filter_map(|line| line.strip_prefix("$ "));
        let bare = |line: &str| {
            line.split("  # ")
                .next()
                .unwrap_or(line)
                .trim_end()
                .to_owned()
        };
        lines.map(bare).collect()
    }
}

/// All blocks of the README and of the pages for users that are typed at a shell.
fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec!["README.md".to_owned()];
    let entries = fs::read_dir(root.join("docs/user")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let names = names.filter(|name| name.ends_with(".md"));
    pages.extend(names.map(|name| format!("docs/user/{name}")));
    let mut blocks = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root.join(&page)).unwrap();
        for prose in text.split("\n```").step_by(2) {
            let is_indented = prose.lines().skip(1).any(|line| line.starts_with("    "));
            assert!(
                !is_indented,
                "{page}: examples are fenced, so that they are found here"
            );
        }
        for fenced in text.split("\n```").skip(1).step_by(2) {
            let (language, content) = fenced.split_once('\n').unwrap_or((fenced, ""));
            if ["", "console", "sh", "bash", "shell", "shell-session"].contains(&language) {
                blocks.push(Block {
                    page: page.clone(),
                    lines: content.lines().map(str::to_owned).collect(),
                });
            }
        }
    }
    blocks
}

/// Blocks that are not typed here, by page and beginning, and why.
const NOT_TYPED: &[(&str, &str, &str)] = &[
    (
        "README.md",
        "$ extant mkfs rootfs.img",
        "the first screen has a test of its own",
    ),
    ("README.md", "scripts/demo.sh", "it builds a release"),
    ("README.md", "scripts/test.sh", "it is what runs this test"),
    (
        "docs/user/mount.md",
        "# ln -s",
        "it changes the machine; crates/cli tests the helper of mount(8)",
    ),
    (
        "docs/user/remote.md",
        "# qemu-nbd -f raw",
        "it needs a cluster; cargo xtask cluster does it",
    ),
    (
        "docs/user/remote.md",
        "$ extant mount nbd://storage",
        "its servers are not there; the module mounting_remote mounts by addresses",
    ),
    (
        "docs/user/virtiofs.md",
        "$ extant serve",
        "the module serving_guests connects as a monitor does; cargo xtask vm does it in QEMU",
    ),
    (
        "docs/user/virtiofs.md",
        "$ qemu-system",
        "cargo xtask vm does it, with a kernel and a root of its own",
    ),
    (
        "docs/user/check.md",
        "EXTANT_SEED=",
        "it is a long run of tests, which has its like in each run",
    ),
    (
        "docs/user/repair.md",
        "EXTANT_SEED=",
        "it is a long run of tests, which has its like in each run",
    ),
    (
        "docs/user/tune.md",
        "EXTANT_SEED=",
        "it is a long run of tests, which has its like in each run",
    ),
    (
        "docs/user/python.md",
        "pip install",
        "cargo xtask everywhere installs the wheel",
    ),
    (
        "docs/user/install.md",
        "# apt install",
        "cargo xtask everywhere installs the package",
    ),
    (
        "docs/user/install.md",
        "# dnf install",
        "cargo xtask everywhere installs the package",
    ),
    (
        "docs/user/install.md",
        "$ sha256sum",
        "cargo xtask everywhere unpacks the archive",
    ),
    (
        "docs/user/install.md",
        "# ln -s /usr/local",
        "it changes the machine; crates/cli tests the helper of mount(8)",
    ),
    (
        "docs/user/install.md",
        "$ skopeo copy",
        "it needs a container engine; cargo xtask everywhere unpacks the image",
    ),
    (
        "docs/user/install.md",
        "$ brew install",
        "it needs Homebrew or Nix; cargo xtask everywhere has the recipes read",
    ),
    (
        "docs/user/install.md",
        "$ cargo install",
        "it builds a release",
    ),
    (
        "docs/user/install.md",
        "# cargo xtask install",
        "it builds a release; crates/capi tests the chore",
    ),
    (
        "docs/user/install.md",
        "$ rustup target add",
        "it builds a release; cargo xtask everywhere makes the packages",
    ),
    (
        "docs/user/performance.md",
        "cargo run",
        "crates/bench tests its command line",
    ),
];

#[test]
fn every_block_of_the_pages_for_users_works_or_says_why_it_is_not_typed() {
    require!(Root, Fuse);
    let desk = Desk::new();
    let blocks = blocks();
    for (page, start, why) in NOT_TYPED {
        let is_there = blocks.iter().any(|block| block.is(page, start));
        assert!(
            is_there,
            "{page} has no block that begins with {start} ({why})"
        );
    }
    let mut typed = 0;
    for block in &blocks {
        if NOT_TYPED
            .iter()
            .any(|(page, start, _)| block.is(page, start))
        {
            continue;
        }
        let lines = block.typed();
        assert!(
            !lines.is_empty(),
            "{}: {:?} has no line with `$ `",
            block.page,
            block.lines
        );
        let page = Path::new(&block.page).file_stem().unwrap();
        desk.tidy(page.to_str().unwrap());
        desk.types_all(&lines);
        typed += 1;
    }
    assert!(typed > 0);
}

#[test]
fn the_first_screen_works_when_typed_in_order() {
    require!(Root, Fuse);
    let lines = blocks()
        .iter()
        .find(|block| block.page == "README.md")
        .unwrap()
        .typed();
    assert!(lines.len() > 15, "{lines:?}");
    let desk = Desk::new();
    desk.tidy("");
    desk.types_all(&lines);
    assert_clean(&desk.at("rootfs.img"));
    let hostname = extant([
        "cat",
        &format!("{}:/etc/hostname", desk.place.arg("rootfs.img")),
    ])
    .ok();
    assert_eq!(hostname.text(), "myhost\n");
    assert_eq!(fs::read(desk.at("share/doc/readme")).unwrap(), b"text\n");
}

#[test]
fn the_examples_of_every_command_work_in_order() {
    require!(Root, Fuse);
    let desk = Desk::new();
    for command in crate::help::commands() {
        let help = extant([command.as_str(), "--help"]).ok().text();
        let examples = help.split("Examples:\n").nth(1).unwrap();
        let lines: Vec<String> = examples
            .lines()
            .take_while(|line| line.starts_with("  "))
            .map(|line| line.trim().to_owned())
            .collect();
        assert!(!lines.is_empty(), "{command}:\n{help}");
        desk.tidy(&command);
        desk.types_all(&lines);
    }
}
