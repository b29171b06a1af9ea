//! What a confined process can do: answer, and nothing else.

use crate::support::Image;
use extant_blockdev::OpenSpec;
use extant_core::fs::{Fs, MountOptions};
use extant_fuse::{Attached, Options};
use extant_testkit::require;
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Says where the image and the directory are to the process that confines itself.
const IMAGE: &str = "EXTANT_TEST_CONFINED_IMAGE";
const POINT: &str = "EXTANT_TEST_CONFINED_POINT";

/// Runs in a process of its own, started by the test below: nothing can be taken back.
#[test]
fn child() {
    let (Some(image), Some(point)) = (std::env::var_os(IMAGE), std::env::var_os(POINT)) else {
        return;
    };
    let (image, point) = (Path::new(&image), Path::new(&point));
    let device = OpenSpec::read_write(image).open().unwrap();
    let mut attached = Attached::new(image, point, &Options::default()).unwrap();
    attached.confine().unwrap();
    let fs = Fs::open(device, MountOptions::read_write()).unwrap();
    // The first stage: nothing of the host's files.
    let refused = |what: &str, failed: bool| {
        println!("{what}: {}", if failed { "refused" } else { "ALLOWED" })
    };
    refused("read", File::open("/etc/hostname").is_err());
    refused("read image", File::open(image).is_err());
    refused("make", File::create("/tmp/extant-confined").is_err());
    let mounted = attached.serve(fs.clone()).unwrap();
    // The second: no opening at all, in any thread.
    refused("channel", File::open("/dev/fuse").is_err());
    let threads =
        std::thread::spawn(|| File::open("/dev/fuse").is_err() && File::open("/").is_err());
    refused("threads", threads.join().unwrap());
    refused("socket", UnixStream::pair().is_err());
    refused("network", TcpListener::bind("127.0.0.1:0").is_err());
    refused("program", Command::new("/bin/true").spawn().is_err());
    refused("remove", fs::remove_file(image).is_err());
    refused(
        "unmount",
        rustix::mount::unmount(point, UnmountFlags::DETACH).is_err(),
    );
    let myself = rustix::process::getpid();
    let signal = rustix::process::kill_process(myself, rustix::process::Signal::URG);
    refused("signal", signal.is_err());
    println!("answering");
    mounted.wait(None).unwrap();
    fs.close().unwrap();
    println!("closed");
}

#[test]
fn a_confined_process_answers_and_can_open_neither_files_nor_connections() {
    require!(Fuse);
    let image = Image::new(16 << 20, &[]);
    let point = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["confined::child", "--exact", "--nocapture"])
        .env(IMAGE, image.path())
        .env(POINT, point.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let said = std::thread::scope(|scope| {
        use std::io::{BufRead, BufReader};
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut said = Vec::new();
        for line in lines.by_ref() {
            let line = line.unwrap();
            let is_ready = line == "answering";
            said.push(line);
            if is_ready {
                break;
            }
        }
        // It works for others meanwhile.
        let work = scope.spawn(|| fs::write(point.path().join("file"), vec![b'x'; 300_000]));
        let worked = work.join().unwrap();
        rustix::mount::unmount(point.path(), UnmountFlags::DETACH).unwrap();
        said.extend(lines.map(Result::unwrap));
        worked.unwrap();
        said
    });
    assert!(child.wait().unwrap().success(), "{said:?}");
    let refused = said
        .iter()
        .filter(|line| line.ends_with(": refused"))
        .count();
    assert_eq!(refused, 11, "{said:?}");
    assert!(
        !said.iter().any(|line| line.contains("ALLOWED")),
        "{said:?}"
    );
    assert!(said.iter().any(|line| line == "closed"), "{said:?}");
    image.assert_clean();
}
