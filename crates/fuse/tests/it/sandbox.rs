//! What a confined process can do: answer, and nothing else.

use crate::support::Image;
use crate::syscalls::call;
use extant_blockdev::OpenSpec;
use extant_core::fs::{Fs, MountOptions};
use extant_fuse::{Attached, METRICS, Options};
use extant_testkit::require;
use extant_testkit::rings::Enabled;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Says where the image and the directory are to the process that confines itself.
const IMAGE: &str = "EXTANT_TEST_CONFINED_IMAGE";
const POINT: &str = "EXTANT_TEST_CONFINED_POINT";
/// Says what the kernel shall not have: `landlock`, `seccomp`, both.
const WITHOUT: &str = "EXTANT_TEST_CONFINED_WITHOUT";
/// Says how to mount.
const OPTIONS: &str = "EXTANT_TEST_CONFINED_OPTIONS";

/// What the process may have of memory.
const LIMIT_MIB: u64 = 2048;

/// Has the kernel say that it does not know what `without` names, as an older one does.
fn forget(without: &str) {
    let mut calls = Vec::new();
    if without.contains("landlock") {
        calls.extend([
            libc::SYS_landlock_create_ruleset,
            libc::SYS_landlock_add_rule,
            libc::SYS_landlock_restrict_self,
        ]);
    }
    if without.contains("seccomp") {
        calls.push(libc::SYS_seccomp);
    }
    if calls.is_empty() {
        return;
    }
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// What the filter of system calls refuses by itself, whatever else there is, and what it lets
/// through: with what came of it. Nothing of this does anything where it is not refused.
fn filtered() -> Vec<(&'static str, bool)> {
    let own = u64::from(std::process::id());
    let parent = u64::from(std::os::unix::process::parent_id());
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
    // Not an address: what is looked at before it is followed is the filter.
    let wild = 8;
    let refused = |number, arguments| call(number, arguments) == Err(Errno::PERM);
    let ioctl = |request| refused(libc::SYS_ioctl, [1, request, 0, 0, 0]);
    let fcntl = |command: i32| refused(libc::SYS_fcntl, [1, command as u64, 0, 0, 0]);
    let clone = |flags: i32| match call(libc::SYS_clone, [flags as u64, 0, 0, 0, 0]) {
        // The other one.
        Ok(0) => std::process::exit(0),
        result => result == Err(Errno::PERM),
    };
    let mut all = vec![
        (
            "signal to the parent",
            refused(libc::SYS_tgkill, [parent, parent, 0, 0, 0]),
        ),
        (
            "signal to anybody",
            refused(libc::SYS_kill, [parent, 0, 0, 0, 0]),
        ),
        (
            "signal to a thread",
            refused(libc::SYS_tkill, [parent, 0, 0, 0, 0]),
        ),
        (
            "priority before others",
            refused(
                libc::SYS_sched_setscheduler,
                [0, libc::SCHED_FIFO as u64, wild, 0, 0],
            ),
        ),
        (
            "priority of the parent",
            refused(
                libc::SYS_sched_setscheduler,
                [parent, libc::SCHED_IDLE as u64, wild, 0, 0],
            ),
        ),
        (
            "limit of the parent",
            refused(libc::SYS_prlimit64, [parent, 0, wild, 0, 0]),
        ),
        (
            "limit read",
            refused(libc::SYS_prlimit64, [parent, 0, 0, 0, 0]),
        ),
        (
            "limit of its own",
            refused(libc::SYS_prlimit64, [0, 0, wild, 0, 0]),
        ),
        ("typing (TIOCSTI)", ioctl(0x5412)),
        ("discarding (BLKDISCARD)", ioctl(0x1277)),
        ("freezing (FIFREEZE)", ioctl(0xc004_5877)),
        ("another channel (FUSE_DEV_IOC_CLONE)", ioctl(0x8004_e500)),
        ("flags (FS_IOC_SETFLAGS)", ioctl(0x4008_6602)),
        (
            "passing through (FUSE_DEV_IOC_BACKING_OPEN)",
            ioctl(0x4010_e501),
        ),
        ("owner of signals", fcntl(libc::F_SETOWN)),
        ("number of a signal (F_SETSIG)", fcntl(10)),
        ("lease", fcntl(libc::F_SETLEASE)),
        ("state of a file", fcntl(libc::F_SETFL)),
        ("fork", clone(libc::SIGCHLD)),
        (
            "fork that shares memory",
            clone(libc::SIGCHLD | libc::CLONE_VM),
        ),
        (
            "users of its own",
            clone(libc::CLONE_NEWUSER | libc::SIGCHLD),
        ),
        (
            "clone3",
            call(libc::SYS_clone3, [0; 5]) == Err(Errno::NOSYS),
        ),
        (
            "new code",
            refused(
                libc::SYS_mmap,
                [0, 4096, libc::PROT_EXEC as u64, 0x22, u64::MAX],
            ),
        ),
        (
            "changed code",
            refused(libc::SYS_mprotect, [0, 0, libc::PROT_EXEC as u64, 0, 0]),
        ),
        (
            "memory past the limit",
            call(
                libc::SYS_mmap,
                [
                    0,
                    LIMIT_MIB << 20,
                    (libc::PROT_READ | libc::PROT_WRITE) as u64,
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64,
                    u64::MAX,
                ],
            ) == Err(Errno::NOMEM),
        ),
        (
            "outliving the supervisor",
            refused(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as u64, 0, 0, 0, 0]),
        ),
    ];
    let whatever = [
        ("execve", libc::SYS_execve),
        ("execveat", libc::SYS_execveat),
        ("unshare", libc::SYS_unshare),
        ("setns", libc::SYS_setns),
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_writev", libc::SYS_process_vm_writev),
        ("pidfd_open", libc::SYS_pidfd_open),
        ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("bpf", libc::SYS_bpf),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("keyctl", libc::SYS_keyctl),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("socket", libc::SYS_socket),
        ("connect", libc::SYS_connect),
        ("sendto", libc::SYS_sendto),
        ("sendmsg", libc::SYS_sendmsg),
        ("recvfrom", libc::SYS_recvfrom),
        ("recvmsg", libc::SYS_recvmsg),
        ("shutdown", libc::SYS_shutdown),
        ("unlinkat", libc::SYS_unlinkat),
        ("mknodat", libc::SYS_mknodat),
        ("fchmodat", libc::SYS_fchmodat),
        ("setuid", libc::SYS_setuid),
        ("setpriority", libc::SYS_setpriority),
    ];
    all.extend(whatever.map(|(name, number)| (name, refused(number, [0; 5]))));
    // A filter that refuses everything would pass as well.
    let lets_through = [
        (
            "signal to itself",
            call(libc::SYS_tgkill, [own, thread, 0, 0, 0]) == Ok(0),
        ),
        (
            "limits of its own",
            rustix::process::getrlimit(rustix::process::Resource::Core).maximum == Some(0),
        ),
        (
            "flags of a file",
            call(libc::SYS_fcntl, [1, libc::F_GETFL as u64, 0, 0, 0]).is_ok(),
        ),
    ];
    all.extend(lets_through);
    all
}

/// Runs in a process of its own, started by the tests below: nothing can be taken back.
#[test]
fn child() {
    let (Some(image), Some(point)) = (std::env::var_os(IMAGE), std::env::var_os(POINT)) else {
        return;
    };
    let without = std::env::var(WITHOUT).unwrap();
    let (image, point) = (Path::new(&image), Path::new(&point));
    forget(&without);
    let device = OpenSpec::read_write(image).open().unwrap();
    let mut options = Options::default();
    options.parse(&format!("memory={LIMIT_MIB}")).unwrap();
    options.parse(&std::env::var(OPTIONS).unwrap()).unwrap();
    let mut attached = Attached::new(image, point, &options).unwrap();
    if let Err(e) = attached.confine() {
        println!("not confined: {e}");
        return;
    }
    let refused = |what: &str, failed: bool| {
        println!("{what}: {}", if failed { "refused" } else { "ALLOWED" })
    };
    refused("channel, early", File::open("/dev/fuse").is_err());
    let fs = Fs::open(device, MountOptions::read_write()).unwrap();
    // Nothing of the host's files.
    refused("read", File::open("/etc/hostname").is_err());
    refused("read image", File::open(image).is_err());
    refused("make", File::create("/tmp/extant-confined").is_err());
    refused("remove", fs::remove_file(image).is_err());
    let mounted = attached.serve(fs.clone()).unwrap();
    if without != "seccomp" {
        // No opening at all, in any thread.
        refused("channel", File::open("/dev/fuse").is_err());
        let threads =
            std::thread::spawn(|| File::open("/dev/fuse").is_err() && File::open("/").is_err());
        refused("threads", threads.join().unwrap());
        refused("socket", UnixStream::pair().is_err());
        refused("network", TcpListener::bind("127.0.0.1:0").is_err());
        refused("program", Command::new("/bin/true").spawn().is_err());
        for (what, is_so) in filtered() {
            refused(what, is_so);
        }
    }
    refused(
        "unmount",
        rustix::mount::unmount(point, UnmountFlags::DETACH).is_err(),
    );
    let late = std::thread::spawn(|| {
        // From some moment on there are as many as there are going to be.
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let more = std::thread::Builder::new().spawn(|| ());
            more.map(|more| more.join().unwrap()).is_err()
        })
    });
    println!("answering");
    mounted.wait(None).unwrap();
    if without != "seccomp" {
        refused("more threads", late.join().unwrap());
    }
    fs.close().unwrap();
    println!("closed");
}

/// A directory that the child mounts on. The child cannot unmount, and one that gives up leaves a
/// mount nobody answers for.
struct Point(tempfile::TempDir);

impl Point {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn unmount(&self) -> rustix::io::Result<()> {
        rustix::mount::unmount(self.path(), UnmountFlags::DETACH)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Nothing is mounted any more where a test came to its end.
        let _ = self.unmount();
    }
}

/// What the child said, on a kernel that knows nothing of what `without` names.
fn confined(without: &str, options: &str) -> Vec<String> {
    let image = Image::new(16 << 20, &[]);
    let point = Point(tempfile::tempdir().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["sandbox::child", "--exact", "--nocapture"])
        .env(IMAGE, image.path())
        .env(POINT, point.path())
        .env(WITHOUT, without)
        .env(OPTIONS, options)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::thread::scope(|scope| {
        use std::io::{BufRead, BufReader};
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        let mut is_ready = false;
        for line in lines.by_ref() {
            let line = line.unwrap();
            is_ready = line == "answering";
            said.push(line);
            if is_ready {
                break;
            }
        }
        // It works for others meanwhile.
        if is_ready {
            let work = scope.spawn(|| {
                fs::write(point.path().join("file"), vec![b'x'; 300_000])?;
                let mut metrics = vec![0; 1 << 16];
                let len = rustix::fs::getxattr(point.path(), METRICS, &mut metrics[..])?;
                let text = String::from_utf8_lossy(&metrics[..len]).into_owned();
                // It says how it came here.
                let rings = "extant_ring_requests_total ";
                let count = text.lines().find_map(|line| line.strip_prefix(rings));
                assert_eq!(count.unwrap() != "0", options == "io_uring");
                std::io::Result::Ok(())
            });
            let worked = work.join().unwrap();
            point.unmount().unwrap();
            said.extend(lines.map(Result::unwrap));
            worked.unwrap();
        }
        said
    });
    assert!(child.wait().unwrap().success(), "{said:?}");
    // One that is refused unmounts by itself. A dead mount would fail to be looked at, a live one
    // lie on another device.
    let of = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_eq!(of(point.path()), of(&std::env::temp_dir()));
    image.assert_clean();
    said
}

/// Everything was tried, and nothing else.
fn assert_held(said: &[String], tries: usize) {
    let refused = said
        .iter()
        .filter(|line| line.ends_with(": refused"))
        .count();
    assert!(
        !said.iter().any(|line| line.contains("ALLOWED")),
        "{said:#?}"
    );
    assert_eq!(refused, tries, "{said:#?}");
    assert!(said.iter().any(|line| line == "closed"), "{said:?}");
}

#[test]
fn a_confined_process_answers_and_can_open_neither_files_nor_connections() {
    require!(Fuse);
    assert_held(&confined("", "no_io_uring"), 68);
}

#[test]
fn so_does_one_with_rings_which_can_do_nothing_else() {
    require!(Fuse, FuseRings);
    let _enabled = Enabled::new().unwrap();
    assert_held(&confined("", "io_uring"), 68);
}

#[test]
fn without_landlock_nothing_is_opened_once_the_image_is_read() {
    require!(Fuse);
    assert_held(&confined("landlock", "no_io_uring"), 68);
}

#[test]
fn without_seccomp_landlock_keeps_files_away() {
    require!(Fuse);
    assert_held(&confined("seccomp", "no_io_uring"), 6);
}

#[test]
fn without_either_nothing_is_read() {
    require!(Fuse);
    let said = confined("landlock and seccomp", "no_io_uring");
    let why = said.iter().find(|line| line.starts_with("not confined: "));
    let why = why.unwrap_or_else(|| panic!("{said:?}"));
    assert!(why.contains("--no-sandbox"), "{why}");
}
