//! `extant serve`, with the clients of others.

use crate::support::{Place, extant, extant_with};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A server that is told to end when this is dropped.
struct Serving {
    child: Child,
    uri: String,
}

impl Serving {
    fn new(args: &[&str]) -> Self {
        Self::with(args, |_| ())
    }

    fn with(args: &[&str], prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command
            .env_remove("SOURCE_DATE_EPOCH")
            .arg("serve")
            .args(args)
            .stdout(Stdio::piped());
        prepare(&mut command);
        Self::started(command)
    }

    fn started(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the command runs");
        let mut uri = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut uri).expect("a line");
        let uri = uri.trim().to_owned();
        Self { child, uri }
    }

    /// Ends it with a signal; returns its exit code.
    fn end(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn an_image_is_served_changed_and_clean_afterwards() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let socket = format!("unix:{}", place.arg("socket"));
    let serving = Serving::new(&[&image, "--nbd", &socket]);
    // It has the image alone.
    extant(["rm", &format!("{image}:/x")]).fails(1);
    let copy = place.arg("copy.img");
    tool("nbdcopy").arg(&serving.uri).arg(&copy).ok();
    assert_clean(copy.as_ref());
    let host = place.arg("file");
    std::fs::write(&host, "content").expect("a file");
    extant(["cp", &host, &format!("{copy}:/file")]).ok();
    tool("nbdcopy")
        .arg("--flush")
        .arg(&copy)
        .arg(&serving.uri)
        .ok();
    assert_eq!(serving.end(), Some(0));
    assert!(!place.path().join("socket").exists());
    assert_clean(image.as_ref());
    assert_eq!(
        extant(["cat", &format!("{image}:/file")]).ok().text(),
        "content"
    );
}

#[test]
fn formats_and_names_are_served_and_raw_bytes_where_asked_for() {
    let place = Place::new();
    let (raw, image) = (place.arg("raw.img"), place.arg("disk.qcow2"));
    mke2fs(raw.as_ref(), 16 << 20, &["-t", "ext4"]);
    extant(["convert", &raw, &image, "-q"]).ok();
    let serving = Serving::new(&[&image, "--nbd", "127.0.0.1:0", "--export", "a"]);
    let size = |uri: &str| {
        tool("nbdinfo")
            .args(["--size", uri])
            .ok()
            .text()
            .trim()
            .to_owned()
    };
    assert!(serving.uri.ends_with("/a"), "{}", serving.uri);
    assert_eq!(size(&serving.uri), (16 << 20).to_string());
    let commands = ["-c", "write -P 7 1M 64k", "-c", "flush"];
    tool("qemu-io")
        .args(["-f", "raw"])
        .args(commands)
        .arg(&serving.uri)
        .ok();
    assert_eq!(serving.end(), Some(0));
    tool("qemu-img").args(["check", "-q", &image]).ok();
    tool("qemu-io")
        .args(["-f", "qcow2", "-c", "read -P 7 1M 64k", &image])
        .ok();
    let socket = format!("unix:{}", place.arg("socket"));
    let serving = Serving::new(&[&image, "--nbd", &socket, "--read-only", "--format", "raw"]);
    let bytes = std::fs::metadata(&image).expect("the file").len();
    assert_eq!(size(&serving.uri), bytes.to_string());
    assert_ne!(tool("nbdcopy").arg(&raw).arg(&serving.uri).run().code, 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let socket = format!("unix:{}", place.arg("socket"));
    extant(["serve", &image]).fails(2);
    extant(["serve", &image, "--nbd", "nowhere"]).fails(2);
    extant(["serve", &image, "--nbd", &socket, "--format", "qcow2"]).fails(2);
    extant(["serve", &image, "--nbd", &socket, "--as-is"]).fails(2);
    extant(["serve", &place.arg("missing"), "--nbd", &socket]).fails(1);
    std::fs::write(place.arg("socket"), "a file").expect("a file");
    let said = extant(["serve", &image, "--nbd", &socket]).fails(1).stderr;
    assert!(said.contains("something else at that path"), "{said}");
}

/// The moment of reproducible images.
const EPOCH: (&str, &str) = ("SOURCE_DATE_EPOCH", "1700000000");

/// A tree with large and small files, holes, links and attributes.
fn source(place: &Place) -> String {
    let mut plan = TreePlan::new();
    plan.dir("dir");
    plan.file("dir/small", Content::filled(1, 10));
    plan.file("dir/empty", Content::empty());
    plan.file("large", Content::filled(2, 3_000_000));
    plan.file(
        "sparse",
        Content::sparse(3, 2 << 20, [(0, 4096), (1 << 20, 5000)]),
    );
    plan.file("note", Content::filled(4, 100))
        .xattr("user.note", "a note");
    plan.symlink("link", "dir/small");
    plan.hard_link("other", "large");
    for n in 0..700 {
        plan.file(format!("dir/file-{n}"), Content::filled(n, 50));
    }
    let path = place.path().join("source");
    std::fs::create_dir(&path).expect("a directory");
    plan.plant(&path);
    // Its time of access changes now, and not between two scans.
    std::fs::read_link(path.join("link")).expect("a link");
    place.arg("source")
}

fn same(one: &str, other: &str) -> bool {
    std::fs::read(one).expect("one file") == std::fs::read(other).expect("the other file")
}

#[test]
fn a_directory_is_served_as_the_image_that_mkfs_makes_of_it() {
    let place = Place::in_memory();
    let source = source(&place);
    let (image, copy) = (place.arg("image"), place.arg("copy"));
    let socket = format!("unix:{}", place.arg("socket"));
    for options in [
        &["--size", "200M", "--label", "served"][..],
        &[
            "--size",
            "auto",
            "--block-size",
            "1K",
            "--exclude",
            "file-1*",
        ],
        &["--owner", "7:8", "--features", "inline_data,ea_inode"],
    ] {
        let mkfs = ["mkfs", &image, "--from", &source, "-q"];
        let made = extant_with(mkfs.iter().chain(options), |command| {
            command.env(EPOCH.0, EPOCH.1);
        });
        made.ok();
        let args = ["--from", &source, "--nbd", &socket];
        let args: Vec<&str> = args.iter().chain(options).copied().collect();
        let serving = Serving::with(&args, |command| {
            command.env(EPOCH.0, EPOCH.1);
        });
        let info = tool("nbdinfo").args(["--json", &serving.uri]).ok().text();
        assert!(info.contains("\"is_read_only\": true"), "{info}");
        tool("nbdcopy").args([&serving.uri, &copy]).ok();
        assert_clean(copy.as_ref());
        assert!(same(&image, &copy), "{options:?}");
        let map = tool("nbdinfo").args(["--map", "--totals", &serving.uri]);
        assert!(map.ok().text().contains("hole,zero"));
        assert_ne!(tool("nbdcopy").args([&image, &serving.uri]).run().code, 0);
        assert_eq!(serving.end(), Some(0));
        assert!(!place.path().join("socket").exists());
    }
}

#[test]
fn an_image_is_served_as_the_image_that_mkfs_makes_of_it() {
    let place = Place::in_memory();
    let (old, image, copy) = (place.arg("old"), place.arg("image"), place.arg("copy"));
    extant(["mkfs", &old, "--from", &source(&place)]).ok();
    let from = format!("{old}:/");
    extant_with(["mkfs", &image, "--from", &from], |command| {
        command.env(EPOCH.0, EPOCH.1);
    })
    .ok();
    let socket = format!("unix:{}", place.arg("socket"));
    let serving = Serving::with(&["--from", &from, "--nbd", &socket], |command| {
        command.env(EPOCH.0, EPOCH.1);
    });
    tool("nbdcopy").args([&serving.uri, &copy]).ok();
    assert_eq!(serving.end(), Some(0));
    assert_clean(copy.as_ref());
    assert!(same(&image, &copy));
    let far = ["serve", "--from", "nbd://127.0.0.1:1/x:/", "--nbd", &socket];
    assert!(extant(far).fails(2).stderr.contains("--no-sandbox"));
}

#[test]
fn what_is_added_is_served_from_where_it_is() {
    let place = Place::in_memory();
    let source = source(&place);
    let tar = place.arg("base.tar");
    let input = place.path().join("in");
    std::fs::create_dir(&input).expect("a directory");
    std::fs::write(input.join("base"), vec![1; 50_000]).expect("a file");
    tool("tar")
        .args(["-cf", &tar, "-C", &place.arg("in"), "."])
        .ok();
    std::fs::write(place.path().join("single"), vec![2; 70_000]).expect("a file");
    std::os::unix::fs::symlink("source", place.path().join("link")).expect("a link");
    let (image, copy) = (place.arg("image"), place.arg("copy"));
    let (single, link) = (place.arg("single"), place.arg("link"));
    for (from, added) in [
        (&tar, vec![format!("{single}=/etc/single")]),
        (&tar, vec![format!("{source}=/tree"), format!("{link}=/")]),
        (&tar, vec![format!("{link}/=/tree")]),
        (
            &place.arg("in"),
            vec![format!("{single}=/in/"), format!("{source}=/")],
        ),
    ] {
        let mut args = vec!["--from", from.as_str()];
        for host in &added {
            args.extend(["--add", host.as_str()]);
        }
        extant_with(["mkfs", &image, "-q"].iter().chain(&args), |command| {
            command.env(EPOCH.0, EPOCH.1);
        })
        .ok();
        args.extend(["--nbd", "127.0.0.1:0"]);
        let serving = Serving::with(&args, |command| {
            command.env(EPOCH.0, EPOCH.1);
        });
        assert_eq!(status(serving.worker(), "Seccomp:").as_deref(), Some("2"));
        tool("nbdcopy").args([&serving.uri, &copy]).ok();
        assert_clean(copy.as_ref());
        assert!(same(&image, &copy), "{added:?}");
        assert_eq!(serving.end(), Some(0));
    }
}

#[test]
fn archives_are_served_from_files_and_from_standard_input() {
    let place = Place::in_memory();
    let source = source(&place);
    let (tar, packed) = (place.arg("source.tar"), place.arg("source.tar.gz"));
    let pack = ["--sort=name", "--xattrs", "-C", &source];
    tool("tar").args(["-cf", &tar]).args(pack).arg(".").ok();
    tool("tar").args(["-czf", &packed]).args(pack).arg(".").ok();
    let (image, copy) = (place.arg("image"), place.arg("copy"));
    extant_with(["mkfs", &image, "--from", &tar, "-q"], |command| {
        command.env(EPOCH.0, EPOCH.1);
    })
    .ok();
    for (from, input) in [
        (tar.as_str(), None),
        (packed.as_str(), None),
        ("-", Some(&packed)),
    ] {
        let serving = Serving::with(&["--from", from, "--nbd", "127.0.0.1:0"], |command| {
            command.env(EPOCH.0, EPOCH.1);
            if let Some(input) = input {
                command.stdin(std::fs::File::open(input).expect("the archive"));
            }
        });
        tool("nbdcopy").args([&serving.uri, &copy]).ok();
        assert!(same(&image, &copy), "{from}");
        assert_eq!(serving.end(), Some(0));
    }
}

#[test]
fn changes_of_a_planned_image_are_seen_and_gone_at_the_end() {
    let place = Place::in_memory();
    let source = source(&place);
    let aside = place.path().join("aside");
    std::fs::create_dir(&aside).expect("a directory");
    let before = std::fs::read(place.path().join("source/large")).expect("a file");
    let args = ["--from", &source, "--nbd", "127.0.0.1:0", "--size", "100M"];
    let serving = Serving::with(&args, |command| {
        command.env("TMPDIR", &aside).arg("--writable");
    });
    let commands = [
        "-c",
        "write -P 7 50M 64k",
        "-c",
        "write -P 8 60000000 100",
        "-c",
        "write -z 20M 1M",
        "-c",
        "discard 21M 1M",
        "-c",
        "flush",
        "-c",
        "read -P 7 50M 64k",
        "-c",
        "read -P 8 60000000 100",
        "-c",
        "read -P 0 20M 1M",
    ];
    let qemu = tool("qemu-io").args(["-f", "raw"]).args(commands);
    let said = qemu.arg(&serving.uri).ok().text();
    assert!(!said.contains("failed"), "{said}");
    // A whole file system is written over it, changed, and clean.
    let (copy, again) = (place.arg("copy"), place.arg("again"));
    extant(["mkfs", &copy, "--from", &source, "--size", "100M", "-q"]).ok();
    extant(["rm", &format!("{copy}:/large"), &format!("{copy}:/other")]).ok();
    tool("nbdcopy").args(["--flush", &copy, &serving.uri]).ok();
    tool("nbdcopy").args([&serving.uri, &again]).ok();
    assert!(same(&copy, &again));
    assert_clean(again.as_ref());
    extant(["ls", &serving.uri]).ok();
    assert_eq!(serving.end(), Some(0));
    let after = std::fs::read(place.path().join("source/large")).expect("a file");
    assert!(before == after);
    let left = std::fs::read_dir(&aside).expect("the directory").count();
    assert_eq!(left, 0, "it had no name");
}

#[test]
fn a_file_that_changes_is_an_error_for_clients_and_named_once() {
    let place = Place::in_memory();
    let source = source(&place);
    let args = ["--from", &source, "--nbd", "127.0.0.1:0", "--export", "a"];
    let mut serving = Serving::with(&args, |command| {
        command.stderr(Stdio::piped());
    });
    let copy = place.arg("copy");
    tool("nbdcopy").args([&serving.uri, &copy]).ok();
    std::fs::write(place.path().join("source/large"), "else").expect("a file");
    for _ in 0..2 {
        let copied = tool("nbdcopy").args([&serving.uri, &copy]).run();
        assert_ne!(copied.code, 0, "{copied}");
    }
    // The metadata is all there, and so are other files.
    let image = &serving.uri;
    let small = extant(["cat", &format!("{image}:/dir/small")]).ok();
    let expected = std::fs::read(place.path().join("source/dir/small")).expect("a file");
    assert_eq!(small.stdout, expected);
    extant(["cat", &format!("{image}:/large")]).fails(1);
    let stderr = serving.child.stderr.take().expect("a pipe");
    assert_eq!(serving.end(), Some(0));
    let said = std::io::read_to_string(stderr).expect("text");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("source/large: changed"), "{said}");
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let place = Place::in_memory();
    let source = source(&place);
    let nbd = ["--nbd", "127.0.0.1:0"];
    let refused = |args: &[&str], code| {
        let said = extant(["serve"].iter().chain(&nbd).chain(args)).fails(code);
        said.stderr
    };
    refused(&[], 2);
    refused(&["image", "--from", &source], 2);
    refused(&["--from", &source, "--writable", "--read-only"], 2);
    refused(&["--from", &source, "--format", "raw"], 2);
    refused(&["--from", &source, "--partition", "1"], 2);
    refused(&["--from", &source, "--uuid", "x"], 2);
    refused(&["--from", &source, "--features", "nonsense"], 2);
    let said = refused(&["image", "--size", "1G"], 2);
    assert!(said.contains("--from"), "{said}");
    refused(&["image", "--writable"], 2);
    let said = refused(&["--from", &source, "--size", "1M"], 1);
    assert!(said.contains("cannot be served"), "{said}");
    refused(&["--from", &place.arg("missing")], 1);
}

/// Lines of the kernel about a process: what begins with a name.
fn status(pid: i32, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

impl Serving {
    /// The process that answers clients.
    fn worker(&self) -> i32 {
        let parent = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").expect("processes");
        let mut children = processes.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            (status(pid, "PPid:")? == parent).then_some(pid)
        });
        let worker = children.next().expect("a worker");
        assert_eq!(children.next(), None);
        worker
    }

    fn kill(&self, pid: i32) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");
    }
}

#[test]
fn the_process_that_answers_clients_is_confined() {
    let place = Place::in_memory();
    let source = source(&place);
    let (raw, qcow2, copy) = (place.arg("raw"), place.arg("a.qcow2"), place.arg("copy"));
    extant(["mkfs", &raw, "--from", &source, "--size", "64M", "-q"]).ok();
    extant(["convert", &raw, &qcow2, "-q"]).ok();
    let chunks = place.arg("image.caibx");
    extant(["convert", &raw, &chunks, "-q"]).ok();
    let far = Serving::new(&[&raw, "--nbd", &format!("unix:{}", place.arg("far"))]);
    let size = ["--size", "64M"];
    for what in [
        &[qcow2.as_str()][..],
        &[far.uri.as_str()],
        &[chunks.as_str(), "--read-only"],
        &["--from", &source, size[0], size[1]],
        &["--from", &source, size[0], size[1], "--writable"],
    ] {
        let nbd = ["--nbd", "127.0.0.1:0"];
        let args: Vec<&str> = what.iter().chain(&nbd).copied().collect();
        let serving = Serving::new(&args);
        let worker = serving.worker();
        let of = |name| status(worker, name).expect("a line");
        assert_eq!(of("NoNewPrivs:"), "1", "{what:?}");
        assert_eq!(of("Seccomp:"), "2", "{what:?}");
        let kept = u64::from_str_radix(&of("CapEff:"), 16).expect("a number");
        let may_read_all = what[0] == "--from" && rustix::process::geteuid().is_root();
        let expected = if may_read_all { 1 << 2 } else { 0 };
        assert_eq!(kept, expected, "{what:?}");
        let environment = std::fs::read_to_string(format!("/proc/{worker}/environ"));
        assert!(!environment.expect("variables").contains("HOME="));
        tool("nbdcopy").args([&serving.uri, &copy]).ok();
        assert_clean(copy.as_ref());
        let is_read_only = what.contains(&"--from") && !what.contains(&"--writable");
        if !is_read_only && !what.contains(&"--read-only") {
            let commands = [
                "-c",
                "write -P 7 10M 2M",
                "-c",
                "flush",
                "-c",
                "read -P 7 10M 2M",
            ];
            let qemu = tool("qemu-io").args(["-f", "raw"]).args(commands);
            let said = qemu.arg(&serving.uri).ok().text();
            assert!(!said.contains("failed"), "{said}");
        }
        assert_eq!(serving.end(), Some(0), "{what:?}");
    }
    assert_eq!(far.end(), Some(0));
    let bytes = std::fs::read(&raw).expect("the image");
    assert!(bytes[10 << 20..12 << 20].iter().all(|&byte| byte == 7));
    let alone = Serving::new(&[&raw, "--nbd", "127.0.0.1:0", "--no-sandbox"]);
    let own = alone.child.id() as i32;
    assert_eq!(status(own, "Seccomp:").as_deref(), Some("0"));
    assert_eq!(alone.end(), Some(0));
}

#[test]
fn root_serves_files_of_others_that_nobody_may_read() {
    use std::os::unix::fs::{PermissionsExt, chown};
    require!(Root);
    let place = Place::in_memory();
    let source = source(&place);
    let secret = place.path().join("source/note");
    chown(&secret, Some(1234), Some(1234)).expect("another owner");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000))
        .expect("no permissions");
    let serving = Serving::new(&["--from", &source, "--nbd", "127.0.0.1:0", "--export", "a"]);
    let note = extant(["cat", &format!("{}:/note", serving.uri)]).ok();
    assert!(note.stdout == std::fs::read(&secret).expect("the file"));
    assert_eq!(serving.end(), Some(0));
}

#[test]
fn neither_process_stays_without_the_other() {
    let place = Place::new();
    let image = place.arg("disk.img");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let path = place.path().join("socket");
    let socket = format!("unix:{}", path.display());
    let mut serving = Serving::with(&[&image, "--nbd", &socket], |command| {
        command.stderr(Stdio::piped());
    });
    serving.kill(serving.worker());
    let status = serving.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(1));
    let stderr = serving.child.stderr.take().expect("a pipe");
    let said = std::io::read_to_string(stderr).expect("text");
    assert!(said.contains("was killed"), "{said}");
    assert!(!path.exists());
    let mut serving = Serving::new(&[&image, "--nbd", &socket]);
    let worker = serving.worker();
    serving.child.kill().expect("it is there");
    serving.child.wait().expect("it ends");
    let begun = std::time::Instant::now();
    while is_running(worker) {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // What it left is replaced, and the image is free.
    let serving = Serving::new(&[&image, "--nbd", &socket]);
    assert_eq!(serving.end(), Some(0));
    assert!(!path.exists());
}

/// Whether a process runs still.
fn is_running(pid: i32) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with('Z'))
}

#[test]
fn directories_and_archives_are_served_over_each_other() {
    let place = Place::in_memory();
    let source = source(&place);
    let (over, tar) = (place.path().join("over"), place.arg("over.tar"));
    std::fs::create_dir(&over).expect("a directory");
    std::fs::write(over.join("large"), "another one").expect("a file");
    std::fs::write(over.join("more"), vec![3; 100_000]).expect("a file");
    tool("tar").args(["-cf", &tar, "-C", &source, "note"]).ok();
    let over = place.arg("over");
    let from = ["--from", &source, "--from", &over, "--from", &tar];
    let (image, copy) = (place.arg("image"), place.arg("copy"));
    let made = extant_with(["mkfs", &image, "-q"].iter().chain(&from), |command| {
        command.env(EPOCH.0, EPOCH.1);
    });
    made.ok();
    let nbd = ["--nbd", "127.0.0.1:0", "--export", "a"];
    let args: Vec<&str> = from.iter().chain(&nbd).copied().collect();
    let serving = Serving::with(&args, |command| {
        command.env(EPOCH.0, EPOCH.1);
    });
    tool("nbdcopy").args([&serving.uri, &copy]).ok();
    assert!(same(&image, &copy));
    // The data of one source is there when another one changes.
    let archive = std::fs::File::options()
        .append(true)
        .open(&tar)
        .expect("the archive");
    archive.set_len(0).expect("nothing is left");
    assert_ne!(tool("nbdcopy").args([&serving.uri, &copy]).run().code, 0);
    let more = extant(["cat", &format!("{}:/more", serving.uri)]);
    assert_eq!(serving.end(), Some(0));
    assert_eq!(more.ok().stdout, vec![3; 100_000]);
}

#[test]
fn the_memory_of_a_served_directory_is_that_of_its_plan() {
    const SIZE: usize = 200 << 20;
    let place = Place::new();
    let source = place.path().join("source");
    std::fs::create_dir(&source).expect("a directory");
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 4096) as u8 | 1).collect();
    std::fs::write(source.join("large"), bytes).expect("a file");
    let source = place.arg("source");
    let serving = Serving::new(&["--from", &source, "--nbd", "127.0.0.1:0"]);
    tool("nbdcopy").args([&serving.uri, "null:"]).ok();
    let most = status(serving.worker(), "VmHWM:").expect("a line");
    let most: usize = most.trim_end_matches(" kB").parse().expect("a number");
    assert!(most << 10 < SIZE / 2, "{most} KiB");
    assert_eq!(serving.end(), Some(0));
}

/// What the descriptors of a process lead to.
fn opened_by(pid: i32) -> Vec<String> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    open.flatten()
        .filter_map(|entry| Some(std::fs::read_link(entry.path()).ok()?.display().to_string()))
        .collect()
}

#[test]
fn the_process_that_answers_clients_has_no_file_that_others_left_open() {
    let place = Place::new();
    let (raw, chunks) = (place.arg("raw"), place.arg("image.caibx"));
    mke2fs(raw.as_ref(), 16 << 20, &["-t", "ext4"]);
    extant(["convert", &raw, &chunks, "-q"]).ok();
    let held = place.arg("held");
    std::fs::create_dir(place.join("source")).expect("a directory");
    let source = place.arg("source");
    for (what, is_open) in [
        (&[raw.as_str()][..], true),
        (&["fd:8"], true),
        (&[&chunks, "--read-only"], false),
        (&["--from", &source, "--size", "16M"], false),
    ] {
        let mut shell = Command::new("sh");
        shell
            .args([
                "-c",
                r#"exec "$0" serve --nbd 127.0.0.1:0 "$@" 8<>"$RAW" 9<>"$HELD""#,
            ])
            .arg(env!("CARGO_BIN_EXE_extant"))
            .args(what)
            .env("RAW", &raw)
            .env("HELD", &held)
            .env_remove("SOURCE_DATE_EPOCH")
            .stdout(Stdio::piped());
        let serving = Serving::started(shell);
        let ours = opened_by(serving.child.id() as i32);
        assert!(ours.contains(&held), "it was there to be left: {ours:?}");
        let open = opened_by(serving.worker());
        assert!(!open.contains(&held), "{what:?}: {open:?}");
        assert_eq!(open.contains(&raw), is_open, "{what:?}: {open:?}");
        let said = tool("nbdinfo").args(["--size", &serving.uri]).ok().text();
        assert_eq!(said.trim(), (16 << 20).to_string());
        assert_eq!(serving.end(), Some(0), "{what:?}");
    }
}

#[test]
fn the_process_that_answers_clients_never_has_the_secrets_of_an_address() {
    let place = Place::new();
    let nginx = Nginx::start();
    let image = nginx.root().join("fs.img");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    let address = nginx.url("fs.img");
    let address = address.replacen("://", "://user:secret@", 1) + "?sign=secret";
    let said = format!("{address}=raw");
    std::fs::create_dir(place.join("source")).expect("a directory");
    let source = place.arg("source");
    for what in [
        &[&address, "--read-only", "--image-format", &said][..],
        &["--from", &source, "--size", "16M"],
    ] {
        let args = [what, &["--nbd", "127.0.0.1:0", "--export=-a"]].concat();
        let serving = Serving::with(&args, |command| {
            command.env("EXTANT_CHUNK_STORE", "http://user:secret@127.0.0.1/store");
        });
        let worker = serving.worker();
        for file in ["cmdline", "environ"] {
            let told = std::fs::read(format!("/proc/{worker}/{file}")).expect("a process");
            let told = String::from_utf8_lossy(&told).into_owned();
            assert!(
                told.contains("EXTANT_SERVE_ROLE") || told.contains("serve"),
                "{told}"
            );
            assert!(!told.contains("secret"), "{told}");
        }
        let size = tool("nbdinfo").args(["--size", &serving.uri]).ok();
        assert_eq!(size.text().trim(), (16 << 20).to_string());
        assert_eq!(serving.end(), Some(0), "{what:?}");
    }
}
