//! Mounts and servers that a service manager keeps: units, the system's log, sockets.

use crate::mounting::Mount;
use crate::namespaces::apart;
use crate::support::{Place, extant};
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::tool;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The blocks of a page in this language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let begin = format!("```{language}\n");
    let parts = page.split(begin.as_str()).skip(1);
    let ends = |part: &str| part.split("```").next().unwrap_or_default().to_owned();
    parts.map(ends).collect()
}

#[test]
fn units_of_the_manual_are_what_systemd_takes() {
    let user = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user");
    let place = Place::new();
    let mut names = Vec::new();
    for page in ["mount.md", "remote.md"] {
        let text = fs::read_to_string(user.join(page)).unwrap();
        for unit in blocks(&text, "ini") {
            // Its first line is a comment with the name of the file.
            let name = unit.lines().next().unwrap_or_default();
            let name = name.strip_prefix("# /etc/systemd/system/");
            let name = name.unwrap_or_else(|| panic!("{page}: {unit}"));
            let installed = unit.replace("/usr/bin/extant", env!("CARGO_BIN_EXE_extant"));
            fs::write(place.join(name), installed).unwrap();
            names.push(place.arg(name));
        }
    }
    assert!(names.len() >= 4, "{names:?}");
    let run = tool("systemd-analyze")
        .args(["--man=no", "--recursive-errors=no", "verify"])
        .args(&names)
        .run();
    assert_eq!(run.code, 0, "{run:?}");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(said, "", "{names:?}");
}

/// Runs a shell with a mount namespace of its own, in which the directory of the journal's socket
/// is `journal` of the place.
fn with_journal(mount: &Mount, script: &str) {
    let begin = "set -e
        mount -t tmpfs tmpfs /run
        mkdir -p /run/systemd/journal
        mount --bind \"$4\" /run/systemd/journal
        extant=$1 image=$2 dir=$3
        ";
    tool("sh")
        .args(apart(&format!("{begin}{script}")))
        .args([
            mount.point().as_os_str(),
            env!("CARGO_BIN_EXE_extant").as_ref(),
        ])
        .args([mount.image(), mount.point(), mount.place.join("journal")])
        .ok();
}

#[test]
fn what_a_mount_in_the_background_tells_is_in_the_journal() {
    require!(Root, Fuse);
    let mount = Mount::new();
    fs::create_dir(mount.place.join("journal")).unwrap();
    let journal = UnixDatagram::bind(mount.place.join("journal/socket")).unwrap();
    journal
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    mke2fs(&mount.image(), 64 << 20, &["-t", "ext4"]);
    crate::mount_options::damage_block_bitmaps(&mount);
    with_journal(
        &mount,
        "$extant mount \"$image\" \"$dir\"
        head -c 1000000 /dev/zero > \"$dir/file\" || :
        sync \"$dir/file\" || :
        $extant umount \"$dir\" || :",
    );
    let heard = || {
        let mut said = vec![0; 64 << 10];
        let len = journal.recv(&mut said).expect("something is told");
        let said = String::from_utf8_lossy(&said[..len]).into_owned();
        assert!(
            said.starts_with("PRIORITY=3\nSYSLOG_IDENTIFIER=extant\n"),
            "{said:?}"
        );
        let (_, message) = said.split_once("MESSAGE\n").expect("there is a message");
        message.to_owned()
    };
    let directory = format!("{}: ", mount.point().display());
    let message = heard();
    assert!(
        message.contains(&directory) && message.contains("bitmap"),
        "{message:?}"
    );
    // And that it was killed, which its supervisor alone can tell.
    journal.set_nonblocking(true).unwrap();
    while journal.recv(&mut [0; 64 << 10]).is_ok() {}
    journal.set_nonblocking(false).unwrap();
    with_journal(
        &mount,
        "mke2fs -q -F -t ext4 \"$image\"
        $extant mount \"$image\" \"$dir\"
        for process in $(pgrep -x extant); do
            tr '\\0' ' ' < /proc/$process/cmdline | grep -q \"[-]-worker .*$dir\" && kill -9 $process
        done
        while $extant mount | grep -q \"$dir\"; do sleep 0.01; done",
    );
    let message = heard();
    assert!(
        message.contains(&directory) && message.contains("killed"),
        "{message:?}"
    );
}

#[test]
fn mount_8_and_a_unit_give_options_that_are_taken() {
    require!(Root, Fuse);
    let mount = Mount::new();
    // As systemd calls it for Options= of a unit and of a line in fstab.
    crate::mount_options::with_mount_8(
        &mount,
        "options=x-systemd.automount,x-systemd.device-timeout=5,x-systemd.requires=network.target
        mount $image $dir -t fuse.extant -o rw,nofail,_netdev,$options,lazytime,errors=remount-ro
        echo content > $dir/file
        umount $dir",
    );
    assert_clean(&mount.image());
}

/// A server that ends with the test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server as a service manager does that hands a socket over, and returns it with what it
/// says.
fn activated(socket: &impl AsFd, image: &str, more: &str) -> (Served, String) {
    let socket = socket.as_fd();
    rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
    let number = socket.as_raw_fd();
    let script = format!(
        "exec 3<&{number} {number}<&-; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$1\" serve \"$2\" {more}"
    );
    // One that is 3 already stays. Not every shell knows numbers of two digits.
    let script = script.replace("exec 3<&3 3<&-;", "");
    let mut child = Command::new("bash")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_extant"), image])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut said).unwrap();
    (Served(child), said.trim().to_owned())
}

#[test]
fn a_socket_that_a_service_manager_hands_over_is_served() {
    let place = Place::new();
    let image = place.arg("image");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let path = place.join("socket");
    for more in ["", "--nbd fd:3", "--no-sandbox", "--read-only"] {
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // The first client is there before the server.
        let first = UnixStream::connect(&path).unwrap();
        let (mut served, uri) = activated(&listener, &image, more);
        assert!(uri.contains("nbd+unix:///?socket="), "{more}: {uri}");
        drop(first);
        let copy = place.arg("copy");
        tool("nbdcopy").arg(&uri).arg(&copy).ok();
        assert_clean(copy.as_ref());
        kill_process(Pid::from_child(&served.0), Signal::TERM).unwrap();
        assert_eq!(served.0.wait().unwrap().code(), Some(0), "{more}");
        // It is the manager's, which listens on.
        UnixStream::connect(&path).expect("it is still there");
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let expected = format!("nbd://{}/", port.local_addr().unwrap());
    let (_served, uri) = activated(&port, &image, "");
    assert_eq!(uri, expected);
    tool("nbdinfo").args(["--size", &uri]).ok();
}

#[test]
fn what_is_no_listening_socket_is_refused() {
    let place = Place::new();
    let image = place.arg("image");
    mke2fs(image.as_ref(), 16 << 20, &["-t", "ext4"]);
    let run = extant(["serve", &image]).fails(2);
    assert!(run.stderr.contains("LISTEN_FDS"), "{}", run.stderr);
    extant(["serve", &image, "--nbd", "fd:1"]).fails(2);
    let run = extant(["serve", &image, "--nbd", "fd:77"]).fails(1);
    assert!(run.stderr.contains("fd:77"), "{}", run.stderr);
    let shell = |script: &str, code: i32, why: &str| {
        let run = tool("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_extant"), &image])
            .run();
        assert_eq!(run.code, code, "{script}: {run:?}");
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(said.contains(why), "{script}: {run:?}");
    };
    shell(
        "exec \"$1\" serve \"$2\" --nbd fd:3 3</dev/null",
        1,
        "listens for connections",
    );
    shell(
        "LISTEN_PID=$$ LISTEN_FDS=2 exec \"$1\" serve \"$2\"",
        2,
        "2 sockets",
    );
    shell(
        "LISTEN_PID=1 LISTEN_FDS=1 exec \"$1\" serve \"$2\"",
        2,
        "is missing",
    );
}
