//! What a confined server can do: answer clients, and read the files of its directory.

use extant_confine::Confinement;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Says to the process that confines itself where its files are.
const PLACE: &str = "EXTANT_TEST_SERVER_PLACE";
/// Says whether it serves a directory.
const DIRECTORY: &str = "EXTANT_TEST_SERVER_DIRECTORY";

/// Runs in a process of its own, started by the tests below: nothing can be taken back.
#[test]
fn child() {
    let Some(place) = std::env::var_os(PLACE) else {
        return;
    };
    let place = Path::new(&place);
    let serves_directory = std::env::var_os(DIRECTORY).is_some();
    let (inside, outside) = (place.join("dir/sub/file"), place.join("outside"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let grows = File::options().write(true).open(&outside).unwrap();
    let mut confinement = Confinement::new(2 << 30).listener(listener.as_raw_fd());
    if serves_directory {
        confinement = confinement.directory(File::open(place.join("dir")).unwrap());
    }
    assert!(confinement.enforce().unwrap(), "calls are filtered");
    // Behind what the test harness has written.
    println!("\nport {port}");
    let (mut client, _) = listener.accept().unwrap();
    client
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    client.set_nodelay(true).unwrap();
    let mut word = [0; 4];
    client.read_exact(&mut word).unwrap();
    // A message, as the server sends it.
    let sent = client.write_vectored(&[IoSlice::new(&word)]).unwrap();
    assert_eq!(sent, word.len());
    grows.set_len(100).unwrap();
    let mut found = String::new();
    let read = File::open(&inside).and_then(|mut file| file.read_to_string(&mut found));
    println!("inside: {}", read.is_ok() && found == "inside");
    let refused = |what: &str, failed: bool| {
        println!("{what}: {}", if failed { "refused" } else { "ALLOWED" })
    };
    refused("outside", File::open(&outside).is_err());
    refused("above", File::open(place.join("dir/../outside")).is_err());
    refused("link", File::open(place.join("dir/link")).is_err());
    refused("system", File::open("/etc/hostname").is_err());
    refused("listing", fs::read_dir(place).is_err());
    refused(
        "writing",
        File::options().write(true).open(&inside).is_err(),
    );
    refused("making", File::create(place.join("dir/new")).is_err());
    refused("removing", fs::remove_file(&inside).is_err());
    refused(
        "renaming",
        fs::rename(&inside, place.join("dir/x")).is_err(),
    );
    refused("pair", UnixStream::pair().is_err());
    refused(
        "connecting",
        TcpStream::connect(("127.0.0.1", port)).is_err(),
    );
    refused("listening", TcpListener::bind("127.0.0.1:0").is_err());
    refused("program", Command::new("/bin/true").spawn().is_err());
    let from_thread = std::thread::spawn(move || File::open(&outside).is_err());
    refused("thread", from_thread.join().unwrap());
    // A server of guests looks so at what monitors pass.
    let own = format!("/proc/thread-self/fd/{}", grows.as_raw_fd());
    let link = std::thread::spawn(move || fs::read_link(own)).join();
    let named = link.unwrap().is_ok_and(|name| name.ends_with("outside"));
    println!("named: {named}");
    println!("end");
}

/// What the child said, after a client was there.
fn said(serves_directory: bool) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("dir/sub")).unwrap();
    fs::write(place.path().join("dir/sub/file"), "inside").unwrap();
    fs::write(place.path().join("outside"), "outside").unwrap();
    std::os::unix::fs::symlink("../outside", place.path().join("dir/link")).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["child", "--exact", "--nocapture"])
        .env(PLACE, place.path())
        .stdout(Stdio::piped());
    if serves_directory {
        command.env(DIRECTORY, "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines
        .by_ref()
        .map(Result::unwrap)
        .find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok())
        .expect("it listens");
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
    let said = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{said:?}");
    let grown = fs::metadata(place.path().join("outside")).unwrap();
    assert_eq!(grown.len(), 100);
    said
}

fn assert_held(said: &[String]) {
    let is = |end: &str| said.iter().filter(|line| line.ends_with(end)).count();
    assert_eq!((is(": refused"), is("ALLOWED")), (14, 0), "{said:#?}");
    for line in ["named: true", "end"] {
        assert!(said.iter().any(|said| said == line), "{said:?}");
    }
}

#[test]
fn a_server_answers_and_opens_nothing() {
    let said = said(false);
    assert_held(&said);
    assert!(said.iter().any(|line| line == "inside: false"), "{said:?}");
}

#[test]
fn a_server_of_a_directory_reads_its_files_and_no_others() {
    let said = said(true);
    assert_held(&said);
    assert!(said.iter().any(|line| line == "inside: true"), "{said:?}");
}
