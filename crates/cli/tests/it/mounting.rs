//! `extant mount` and `extant umount`, as a user has them.

use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, dumpe2fs_header, mke2fs};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// An image, a directory, and what is mounted there, which goes with the test.
pub(crate) struct Mount {
    pub(crate) place: Place,
    daemon: Option<Child>,
}

impl Mount {
    pub(crate) fn new() -> Mount {
        let mount = Mount {
            place: Place::new(),
            daemon: None,
        };
        fs::create_dir(mount.point()).unwrap();
        mke2fs(&mount.image(), 64 << 20, &["-t", "ext4"]);
        mount
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.place.join("image")
    }

    pub(crate) fn point(&self) -> PathBuf {
        self.place.join("dir")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.point().join(name)
    }

    /// Mounts in the foreground, so that the process is known, and waits until it works.
    pub(crate) fn serve(&mut self, options: &str) {
        let mut child = extant_that_hears_interrupts()
            .args(["mount", "--in-background", "-o", options])
            .args([self.image(), self.point()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 8];
        let stdout = child.stdout.as_mut().unwrap();
        stdout
            .read_exact(&mut said)
            .expect("it says that the mount works");
        self.daemon = Some(child);
    }

    fn send(&self, signal: Signal) {
        let child = self.daemon.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Kills the process that reads the image.
    fn kill_worker(&self) {
        kill_process(self.worker(), Signal::KILL).unwrap();
    }

    /// The process that reads the image.
    pub(crate) fn worker(&self) -> Pid {
        let supervisor = self.daemon.as_ref().expect("it runs").id();
        let children = format!("/proc/{supervisor}/task/{supervisor}/children");
        let children = fs::read_to_string(children).unwrap();
        let worker = children.split_whitespace().next().expect("it has a worker");
        Pid::from_raw(worker.parse().unwrap()).unwrap()
    }

    /// Waits for the process; returns its exit code, if it was not killed.
    fn ended(&mut self) -> Option<i32> {
        let mut child = self.daemon.take().expect("it runs");
        child.wait().unwrap().code()
    }

    pub(crate) fn detach(&self) {
        let _ = rustix::mount::unmount(self.point(), UnmountFlags::DETACH);
    }
}

/// The program, told to listen to SIGINT: what runs in the background of a script has it ignored.
pub(crate) fn extant_that_hears_interrupts() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_extant")]);
    command
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.detach();
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn texts(args: &[&Path]) -> Vec<String> {
    args.iter().map(|p| p.display().to_string()).collect()
}

/// Waits for what comes soon, however busy the machine is, but not for ever.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "not after a minute: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Descriptors for `path` in processes that have `point` among their arguments.
fn holders(path: &Path, point: &Path) -> usize {
    let has_point = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|word| word == point.as_os_str().as_encoded_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ours = processes.filter(|process| has_point(&process.path()));
    let descriptors = ours
        .filter_map(|process| fs::read_dir(process.path().join("fd")).ok())
        .flat_map(Iterator::flatten);
    descriptors
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|open| open == path))
        .count()
}

#[test]
fn a_mount_keeps_nothing_open_that_the_command_was_started_with() {
    require!(Fuse);
    let mount = Mount::new();
    let lock = File::create(mount.place.join("lock")).unwrap();
    let path = mount.place.join("lock").canonicalize().unwrap();
    rustix::io::fcntl_setfd(&lock, rustix::io::FdFlags::empty()).unwrap();
    let (image, point) = (mount.image(), mount.point().canonicalize().unwrap());
    extant(["mount", &texts(&[&image])[0], &texts(&[&point])[0]]).ok();
    assert!(holders(&image.canonicalize().unwrap(), &point) > 0);
    assert_eq!(holders(&path, &point), 0);
    extant(["umount", &texts(&[&point])[0]]).ok();
}

#[test]
fn a_mount_goes_on_in_the_background_until_it_is_unmounted() {
    require!(Fuse);
    let mount = Mount::new();
    let (image, point) = (mount.image(), mount.point());
    let both = texts(&[&image, &point]);
    extant(["mount", &both[0], &both[1]]).ok();
    fs::write(mount.at("file"), b"content").unwrap();

    // No other process gets at it meanwhile.
    let other = mount.place.join("other");
    fs::create_dir(&other).unwrap();
    let run = extant(["mount", &both[0], &other.display().to_string()]).fails(1);
    assert!(run.stderr.contains("open elsewhere"), "{}", run.stderr);
    let run = extant(["mount", &both[0], &both[1]]).fails(1);
    assert!(run.stderr.contains("extant umount"), "{}", run.stderr);

    // Nor is it taken from the processes that use it.
    let open = File::open(mount.at("file")).unwrap();
    let run = extant(["umount", &both[1]]).fails(1);
    assert!(run.stderr.contains("--lazy"), "{}", run.stderr);
    drop(open);

    // It tells what it does.
    let told = extant(["stats", &both[1]]).ok().text();
    for words in [
        "op=\"lookup\"",
        "op=\"write\"",
        "extant_journal_commits_total",
    ] {
        assert!(told.contains(words), "{told}");
    }
    extant(["stats", "/"]).fails(1);

    extant(["umount", &both[1]]).ok();
    assert_clean(&image);
    let run = extant(["cat", &format!("{}:/file", both[0])]).ok();
    assert_eq!(run.stdout, b"content");
    let run = extant(["umount", &both[1]]).fails(1);
    assert!(
        run.stderr.contains("mounted nothing there"),
        "{}",
        run.stderr
    );
}

#[test]
fn it_can_be_called_as_a_helper_of_mount() {
    require!(Fuse);
    let mount = Mount::new();
    let helper = mount.place.join("mount.fuse.extant");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &helper).unwrap();
    let status = Command::new(&helper)
        .args([mount.image(), mount.point()])
        .args(["-o", "rw,nofail,x-systemd.automount,dev", "-n"])
        .status()
        .unwrap();
    assert!(status.success());
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let point = mount.point().canonicalize().unwrap().display().to_string();
    let line = table.lines().find(|line| line.contains(&point)).unwrap();
    assert!(line.contains(".extant rw"), "{line}");
    assert!(!line.contains("nodev"), "{line}");
    extant(["umount", &point]).ok();
    assert_clean(&mount.image());
}

#[test]
fn as_a_helper_it_takes_the_place_from_options_and_can_be_asked_to_do_nothing() {
    require!(Fuse);
    let mount = Mount::new();
    // A name that would end an option of the mount.
    let image = mount.place.join("a,b.img");
    let content = fs::read(mount.image()).unwrap();
    let mut file = File::create(&image).unwrap();
    file.write_all(&vec![0; 1 << 20]).unwrap();
    file.write_all(&content).unwrap();
    drop(file);
    let helper = mount.place.join("mount.fuse.extant");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &helper).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(&helper);
        let command = command.arg(&image).arg(mount.point()).args(args);
        assert!(command.status().unwrap().success(), "{args:?}");
    };
    run(&["-f", "-o", "offset=1048576", "-N", "/proc/1/ns/mnt"]);
    assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
    run(&["-o", "offset=1048576"]);
    fs::write(mount.at("file"), b"content").unwrap();
    let point = mount.point().display().to_string();
    extant(["umount", &point]).ok();
    let place = format!("{}:/file", image.display());
    // It waits for the end whatever the name.
    let run = extant(["cat", "--offset", "1048576", &place]).ok();
    assert_eq!(run.stdout, b"content");
}

#[test]
fn an_image_that_is_mounted_for_reading_is_not_written_meanwhile() {
    require!(Fuse);
    let mount = Mount::new();
    let both = texts(&[&mount.image(), &mount.point()]);
    let other = mount.place.join("other");
    fs::create_dir(&other).unwrap();
    let other = other.display().to_string();
    extant(["mount", "-o", "ro", &both[0], &both[1]]).ok();
    let place = format!("{}:/dir", both[0]);
    let run = extant(["mkdir", &place]).fails(1);
    assert!(run.stderr.contains("open elsewhere"), "{}", run.stderr);
    // As many as like may read.
    extant(["mount", "-o", "ro", &both[0], &other]).ok();
    extant(["ls", &format!("{}:/", both[0])]).ok();
    extant(["umount", &other]).ok();
    extant(["mkdir", &place]).fails(1);
    extant(["umount", &both[1]]).ok();
    // It ends soon afterwards.
    wait_until("the image is free", || extant(["mkdir", &place]).code == 0);
}

#[test]
fn what_a_mount_meets_is_in_its_log() {
    require!(Fuse);
    let mount = Mount::new();
    extant_testkit::oracle::debugfs_write(&mount.image(), &["link <8> bad"]);
    let both = texts(&[&mount.image(), &mount.point()]);
    let log = mount.place.join("log");
    let options = format!("ro,log={}", log.display());
    extant(["mount", "-o", &options, &both[0], &both[1]]).ok();
    assert!(fs::metadata(mount.at("bad")).is_err());
    extant(["umount", &both[1]]).ok();
    let told = fs::read_to_string(&log).unwrap();
    let error = "error: inode 8 is corrupt: directory entry: inode is 8";
    assert!(told.contains(error), "{told}");
    // In the background without a log it is kept all the same.
    extant(["mount", "-o", "ro", &both[0], &both[1]]).ok();
    let before = extant(["stats", &both[1]]).ok().text();
    assert!(before.contains("extant_events_total{level=\"error\"} 0"));
    assert!(fs::metadata(mount.at("bad")).is_err());
    let told = extant(["stats", &both[1]]).ok().text();
    assert!(!told.contains("extant_events_total{level=\"error\"} 0"));
    let kept = |line: &str| line.starts_with("# ") && line.contains(error);
    assert!(told.lines().any(kept), "{told}");
    extant(["umount", &both[1]]).ok();
}

#[test]
fn a_signal_ends_it_cleanly() {
    require!(Fuse);
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut mount = Mount::new();
        mount.serve("rw");
        fs::write(mount.at("file"), vec![b'x'; 100_000]).unwrap();
        mount.send(signal);
        assert_eq!(mount.ended(), Some(0));
        assert_clean(&mount.image());
        let run = extant(["cat", &format!("{}:/file", mount.image().display())]).ok();
        assert_eq!(run.stdout.len(), 100_000);
        assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
    }
}

#[test]
fn a_mount_that_does_not_work_yet_can_be_given_up() {
    require!(Fuse);
    // Another host seems to use the image, which takes two minutes to find out. (debugfs would put
    // that right when it closes the image.)
    let mount = Mount::new();
    let features = ["-t", "ext4", "-b", "4096", "-O", "mmp,^metadata_csum"];
    let interval = ["-E", "mmp_update_interval=60"];
    mke2fs(
        &mount.image(),
        64 << 20,
        &[&features[..], &interval[..]].concat(),
    );
    let block = dumpe2fs_header(&mount.image()).number("MMP block number");
    let image = File::options().write(true).open(mount.image()).unwrap();
    const SEQUENCE: u64 = 4;
    image
        .write_all_at(&5_u32.to_le_bytes(), block * 4096 + SEQUENCE)
        .unwrap();
    drop(image);
    let is_mounted = || {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(mount.point().to_str().unwrap())
    };
    // The program that started the tests may have had any other signal ignored, and what ignores it
    // never hears of it.
    for (role, signal) in [(None, Signal::KILL), (Some("--foreground"), Signal::TERM)] {
        let start = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
            .arg("mount")
            .args(role)
            .args([mount.image(), mount.point()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("the mount is in the table", || {
            assert_eq!(child.try_wait().unwrap(), None);
            is_mounted()
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        if role.is_some() {
            let told = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(1), "{told}");
            assert!(
                told.contains("interrupted before the mount worked"),
                "{told}"
            );
        }
        wait_until("nothing is mounted", || !is_mounted());
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it was waited for"
        );
    }
}

#[test]
fn who_writes_through_a_mount_is_held_to_his_limits() {
    require!(Fuse);
    let mut mount = Mount::new();
    let options = ["-t", "ext4", "-b", "4096", "-O", "quota,project"];
    mke2fs(&mount.image(), 64 << 20, &options);
    let image = mount.image().display().to_string();
    let limits = ["--id", "7", "--space-hard", "1M", "--inode-hard", "4"];
    extant([&["quota", &image, "--user", "--project"], &limits[..]].concat()).ok();
    // The way to it is for everybody.
    let open = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(mount.point().parent().unwrap(), open(0o755)).unwrap();
    for (options, limited) in [("allow_other,usrquota", true), ("allow_other", false)] {
        mount.serve(options);
        let dir = mount.at(options);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, open(0o777)).unwrap();
        let write = |name: &str, bytes: usize| {
            let file = dir.join(name);
            let text = format!("head -c {bytes} /dev/zero > '{}'", file.display());
            let mut shell = Command::new("sh");
            let run = shell.uid(7).args(["-c", &text]).output().unwrap();
            let told = String::from_utf8_lossy(&run.stderr).into_owned();
            let why = (!run.status.success()).then_some(told);
            why.map(|told| assert!(told.contains("quota exceeded"), "{told}"))
        };
        assert!(write("first", 700 << 10).is_none());
        assert_eq!(write("second", 700 << 10).is_some(), limited);
        // Past the kernel's memory, what was refused is told at once.
        let file = format!("of={}", dir.join("direct").display());
        let mut direct = Command::new("dd");
        direct.args(["if=/dev/zero", "oflag=direct", "bs=64k", "count=32", &file]);
        let run = direct.uid(7).output().unwrap();
        let told = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.success(), !limited, "{told}");
        assert_eq!(told.contains("quota exceeded"), limited, "{told}");
        fs::write(dir.join("of root"), vec![0; 2 << 20]).unwrap();
        let refused: Vec<bool> = (3..8).map(|n| write(&n.to_string(), 0).is_some()).collect();
        assert_eq!(refused.contains(&true), limited, "{refused:?}");
        extant(["umount", mount.point().to_str().unwrap()]).ok();
        assert_eq!(mount.ended(), Some(0));
        assert_clean(&mount.image());
    }
    // Projects bind what is in them, whichever user but root writes it.
    mount.serve("allow_other,prjquota");
    let dir = mount.at("project");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, open(0o777)).unwrap();
    let run = Command::new("chattr")
        .args(["-p", "7", "+P"])
        .arg(&dir)
        .output();
    let run = run.unwrap();
    assert!(run.status.success(), "{run:?}");
    let all = rustix::fs::statvfs(mount.point()).unwrap();
    let theirs = rustix::fs::statvfs(&dir).unwrap();
    assert!(all.f_blocks > 10_000 && all.f_files > 10_000);
    assert_eq!((theirs.f_blocks, theirs.f_bavail), (256, 255));
    assert_eq!((theirs.f_files, theirs.f_ffree), (4, 3));
    let text = format!("head -c 2000000 /dev/zero > '{}/file'", dir.display());
    let mut shell = Command::new("sh");
    let run = shell.uid(8).args(["-c", &text]).output().unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(told.contains("quota exceeded"), "{told}");
    assert!(rustix::fs::statvfs(&dir).unwrap().f_bavail <= 1);
    extant(["umount", mount.point().to_str().unwrap()]).ok();
    assert_eq!(mount.ended(), Some(0));
    assert_clean(&mount.image());
}

#[test]
fn what_was_written_before_a_signal_is_kept_also_if_somebody_stays() {
    require!(Fuse);
    let mut mount = Mount::new();
    mount.serve("rw");
    let mut file = File::create(mount.at("file")).unwrap();
    file.write_all(b"written").unwrap();
    mount.send(Signal::TERM);
    mount.send(Signal::INT);
    // One of the signals may still be on its way when the first is answered.
    let daemon = mount.daemon.as_mut().unwrap();
    let mut ended = None;
    wait_until("the daemon ended", || {
        ended = daemon.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
    mount.daemon = None;
    drop(file);
    assert_clean(&mount.image());
    let run = extant(["cat", &format!("{}:/file", mount.image().display())]).ok();
    assert_eq!(run.stdout, b"written");
}

#[test]
fn what_cannot_be_mounted_is_refused_with_a_sentence_that_says_what_to_do() {
    require!(Fuse);
    let mount = Mount::new();
    let (image, point) = (mount.image(), mount.point());
    let both = texts(&[&image, &point]);
    let fails = |args: &[&str], code: i32, words: &str| {
        let run = extant(std::iter::once(&"mount").chain(args)).fails(code);
        assert!(run.stderr.contains(words), "{args:?}: {}", run.stderr);
        // Of what is damaged it says that there is --mend, too.
        let told = run.stderr.lines().filter(|line| !line.contains("--mend"));
        assert_eq!(told.count(), 1, "{}", run.stderr);
    };
    fails(&[&both[0], "/no/such/dir"], 1, "make it first");
    fails(&[&both[0], &both[0]], 1, "not a directory");
    fails(&["/no/such/image", &both[1]], 1, "No such file");
    fails(
        &[&both[0], &both[1], "-o", "colour=red"],
        2,
        "no such option",
    );

    let junk = mount.place.join("junk");
    fs::write(&junk, vec![7; 1 << 20]).unwrap();
    fails(
        &[&junk.display().to_string(), &both[1]],
        1,
        "no ext4 file system was found: superblock: magic is 0x707",
    );
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(20 << 20)
        .unwrap();
    fails(&[&both[0], &both[1]], 1, "cut short");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}

/// Works on the mount until something fails, which it does when the daemon is killed. Returns the
/// files that were synced by then, with their lengths. Says when there is one.
fn work(rng: &mut Rng, root: &Path, has_synced: &Sender<()>) -> Vec<(String, usize)> {
    // By this way it stays on the mount when that is cleared away.
    let dir = File::open(root).unwrap();
    let root = &PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let mut synced = Vec::new();
    for n in 0.. {
        let name = format!("file-{n}");
        let len = rng.between(1, 60_000) as usize;
        let result = File::create(root.join(&name)).and_then(|mut file| {
            file.write_all(&vec![n as u8; len])?;
            if rng.one_in(3) {
                file.sync_all()?;
                File::open(root)?.sync_all()?;
                synced.push((name, len));
                // It is asked for once.
                let _ = has_synced.send(());
            }
            Ok(())
        });
        let other = root.join(format!("file-{}", rng.below(n + 1)));
        let moved = root.join(format!("moved-{n}"));
        let renamed = match rng.below(4) {
            0 if !synced.iter().any(|(name, _)| root.join(name) == other) => {
                fs::rename(&other, &moved)
            }
            1 => fs::create_dir(&moved),
            _ => Ok(()),
        };
        let is_over = renamed.is_err_and(|e| e.kind() != ErrorKind::NotFound);
        if result.is_err() || is_over {
            break;
        }
    }
    synced
}

#[test]
fn a_killed_daemon_leaves_an_image_that_recovers_with_what_was_synced() {
    require!(Fuse);
    let runs = if extant_testkit::facility::is_full_run() {
        60
    } else {
        4
    };
    let seed = seed_from_env("mounting::killed");
    for run in 0..runs {
        let mut rng = Rng::new(seed ^ run);
        let mut mount = Mount::new();
        mount.serve("commit=1");
        let delay = std::time::Duration::from_millis(rng.between(20, 700));
        let synced = std::thread::scope(|scope| {
            let root = mount.point();
            let (sender, has_synced) = channel();
            let worker = scope.spawn(move || work(&mut rng, &root, &sender));
            has_synced.recv().unwrap();
            std::thread::sleep(delay);
            mount.kill_worker();
            worker.join().unwrap()
        });
        assert_eq!(mount.ended(), Some(1));
        assert_eq!(fs::read_dir(mount.point()).unwrap().count(), 0);
        // The next mount recovers.
        mount.serve("rw");
        for (name, len) in &synced {
            let n: u64 = name.trim_start_matches("file-").parse().unwrap();
            let found = fs::read(mount.at(name)).expect(name);
            assert!(found == vec![n as u8; *len], "{name} of run {run}");
        }
        mount.send(Signal::TERM);
        assert_eq!(mount.ended(), Some(0));
        assert_clean(&mount.image());
    }
}

#[test]
fn the_memory_of_files_that_were_removed_goes_back_to_the_system() {
    const WRITTEN: u64 = 48 << 20;
    require!(Fuse);
    let mut mount = Mount::new();
    mount.serve("threads=2");
    let supervisor = mount.daemon.as_ref().expect("it runs").id();
    let children =
        fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
    let worker = children.split_whitespace().next().expect("it has a worker");
    let used = || {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap();
        kib.parse::<u64>().unwrap() << 10
    };
    let before = used();
    let mut file = File::create(mount.at("file")).unwrap();
    for _ in 0..WRITTEN / 4096 {
        file.write_all(&[7; 4096]).unwrap();
    }
    assert!(used() > before + WRITTEN / 2, "what was written is kept");
    file.sync_all().unwrap();
    drop(file);
    fs::remove_file(mount.at("file")).unwrap();
    // On a machine that does other things it may take longer than the seconds it is kept.
    let end = Instant::now() + Duration::from_secs(40);
    while used() > before + WRITTEN / 4 {
        let used = used();
        assert!(
            Instant::now() < end,
            "{before} bytes before, {used} are left"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    mount.send(Signal::TERM);
    assert_eq!(mount.ended(), Some(0));
    assert_clean(&mount.image());
}
