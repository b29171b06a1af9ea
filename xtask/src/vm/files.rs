//! Guests that use the files of an image by virtio-fs, and `virtiofsd` on a directory beside it.

use super::machine::{PATIENCE, Place, all, off};
use crate::guest::{Console, Hardware};
use crate::programs::{Done, json_field, make_dir, system};
use crate::record::Steps;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// QEMU's, in C, and the one that took its place.
const OTHERS: &[&str] = &["/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"];

/// How often each is measured, by turns.
const ROUNDS: usize = 3;

/// What is measured in a guest: a name, and the line. Each begins with nothing in the guest's
/// memory.
const MEASURED: &[(&str, &str)] = &[
    (
        "64 MiB written and synced",
        "dd if=/dev/zero of=$D/big bs=1M count=64 conv=fsync",
    ),
    ("64 MiB read", "dd if=$D/big of=/dev/null bs=1M"),
    ("64 MiB read by 4 KiB", "dd if=$D/big of=/dev/null bs=4k"),
    (
        "500 files made",
        "mkdir $D/many; i=0; while [ $i -lt 500 ]; do echo $i > $D/many/$i; i=$((i+1)); done",
    ),
    ("500 files listed, with attributes", "ls -l $D/many"),
    ("500 files read", "cat $D/many/*"),
    (
        "100 files renamed",
        "for i in $D/many/1??; do mv $i $i.x; done",
    ),
    ("500 files removed", "rm -r $D/many"),
];

/// A process that is ended when this is dropped.
struct Server {
    child: Child,
}

impl Server {
    /// Starts `extant serve --virtiofs`, and waits until it listens.
    fn ours(program: &Path, image: &Path, socket: &Path, guests: u32) -> Done<Self> {
        let mut serve = Command::new(program);
        serve.arg("serve").arg(image).arg("--virtiofs").arg(socket);
        serve
            .args(["--guests", &guests.to_string()])
            .stdout(Stdio::piped());
        let mut child = serve.spawn().map_err(|e| e.to_string())?;
        let mut said = String::new();
        let stdout = child.stdout.take().ok_or("no output")?;
        BufReader::new(stdout)
            .read_line(&mut said)
            .map_err(|e| e.to_string())?;
        let server = Self { child };
        if said.trim().is_empty() {
            return Err("`extant serve --virtiofs` did not listen".to_owned());
        }
        Ok(server)
    }

    /// Starts another's server on a directory.
    fn theirs(program: &str, directory: &Path, socket: &Path) -> Done<Self> {
        let _ = fs::remove_file(socket);
        let mut serve = system(program);
        if program.contains("/qemu/") {
            serve.arg(format!("--socket-path={}", socket.display()));
            serve.args(["-o", &format!("source={}", directory.display())]);
            serve.args(["-o", "cache=auto", "-o", "xattr"]);
        } else {
            serve
                .arg("--socket-path")
                .arg(socket)
                .arg("--shared-dir")
                .arg(directory);
        }
        let quiet = serve.stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().map_err(|e| format!("{program}: {e}"))?;
        let server = Self { child };
        let end = Instant::now() + Duration::from_secs(30);
        while !socket.exists() {
            if Instant::now() > end {
                return Err(format!("{program} did not listen"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Has it end by itself.
    fn end(mut self) -> Done<()> {
        let number = self.child.id().to_string();
        let told = system("kill").arg(&number).status();
        told.map_err(|e| e.to_string())?;
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {status}"))
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the steps.
pub(super) fn run(place: &Place, steps: &mut Steps) {
    let image = place.path("files.img");
    steps.step("virtio-fs: one guest", || alone(place, &image));
    steps.step("virtio-fs: two guests at once", || together(place, &image));
    steps.step("virtio-fs: a guest loses its power", || {
        killed(place, &image)
    });
    steps.step(
        "virtio-fs beside `virtiofsd`, milliseconds in a guest",
        || beside(place, &image),
    );
}

fn fresh(place: &Place, image: &Path) -> Done<()> {
    let _ = fs::remove_file(image);
    place
        .extant(&["mkfs", &image.display().to_string(), "-q", "--size", "512M"])
        .map(drop)
}

fn start(place: &Place, files: &[(PathBuf, &'static str)]) -> Done<Console> {
    let hardware = Hardware {
        files: files.to_vec(),
        ..place.hardware(2)
    };
    place.start(&[], hardware)
}

/// One guest, and what it does to files.
fn alone(place: &Place, image: &Path) -> Done<((), String)> {
    fresh(place, image)?;
    let socket = place.path("ours.sock");
    let server = Server::ours(&place.extant, image, &socket, 1)?;
    let mut console = start(place, &[(socket, "ours")])?;
    all(
        &mut console,
        &[
            "mount -t virtiofs ours /mnt",
            "echo one > /mnt/a && mv /mnt/a /mnt/b && test $(cat /mnt/b) = one && ! test -e /mnt/a",
            "head -c 5000001 /dev/urandom > /tmp/r && dd if=/tmp/r of=/mnt/r bs=100k conv=fsync 2> /dev/null",
            "echo 3 > /proc/sys/vm/drop_caches; cmp /tmp/r /mnt/r",
            "ln /mnt/r /mnt/hard; ln -s r /mnt/soft; cmp /mnt/soft /mnt/hard",
            "mkdir -p /mnt/d/e && for i in $(seq 400); do echo $i > /mnt/d/e/$i; done",
            "test $(ls /mnt/d/e | wc -l) = 400 && test \"$(cat /mnt/d/e/* | sort -n | tail -n 1)\" = 400",
            "exec 5<>/mnt/open; rm /mnt/open; echo unnamed >&5; test -e /proc/self/fd/5; exec 5>&-",
            "truncate -s 3 /mnt/b; test $(cat /mnt/b) = one; chmod 600 /mnt/b; chown 7:8 /mnt/b",
            "chattr +i /mnt/b && ! rm -f /mnt/b; chattr -i /mnt/b",
            "mknod /mnt/fifo p; rm -r /mnt/d; sync; df /mnt",
            "umount /mnt",
        ],
    )?;
    off(console)?;
    server.end()?;
    place.judge(image)?;
    let said = place.extant(&["stat", "--json", &format!("{}:/b", image.display())])?;
    for (field, value) in [("uid", "7"), ("gid", "8")] {
        if json_field(&said, field)? != value {
            return Err(format!("the owner is not kept: {said}"));
        }
    }
    Ok((
        (),
        "read, written, renamed, linked, synced; both checkers find nothing".to_owned(),
    ))
}

/// Two guests, each of which sees what the other does.
fn together(place: &Place, image: &Path) -> Done<((), String)> {
    fresh(place, image)?;
    let socket = place.path("ours.sock");
    let server = Server::ours(&place.extant, image, &socket, 2)?;
    let mut one = start(place, &[(socket.clone(), "ours")])?;
    let mut other = start(place, &[(socket, "ours")])?;
    for console in [&mut one, &mut other] {
        all(console, &["mount -t virtiofs ours /mnt"])?;
    }
    all(
        &mut one,
        &["echo 1 > /mnt/f; mkdir /mnt/d; sleep 1; ls /mnt/none 2> /dev/null || true"],
    )?;
    let mut seen = 0;
    for round in 2..22 {
        // Each in turn writes, and the other one has the file in its memory.
        let (writer, reader) = if round % 2 == 0 {
            (&mut other, &mut one)
        } else {
            (&mut one, &mut other)
        };
        all(reader, &["cat /mnt/f > /dev/null; ls /mnt/d > /dev/null"])?;
        all(
            writer,
            &[&format!(
                "echo {round} > /mnt/f; mv /mnt/f /mnt/g; mv /mnt/g /mnt/f; echo x > /mnt/d/{round}"
            )],
        )?;
        let said = reader.run(&format!("cat /mnt/f; ls /mnt/d/{round}"), PATIENCE)?;
        if said.split_whitespace().collect::<Vec<_>>()
            != [&round.to_string(), &format!("/mnt/d/{round}")]
        {
            return Err(format!("in round {round} the other guest saw {said:?}"));
        }
        seen += 1;
    }
    // Both at once, in one directory; what one has open the other one removes.
    all(&mut one, &["exec 5< /mnt/f"])?;
    all(&mut other, &["rm /mnt/f; ! test -e /mnt/f"])?;
    all(
        &mut one,
        &["test $(cat <&5) = 21; exec 5<&-; ! test -e /mnt/f"],
    )?;
    let busy = |name: &str| {
        format!(
            "for i in $(seq 150); do echo $i > /mnt/d/{name}$i; mv /mnt/d/{name}$i /mnt/d/shared; done"
        )
    };
    one.type_line(&format!("{}; echo one''-is-done", busy("a")))?;
    all(&mut other, &[&busy("b")])?;
    one.wait("one-is-done", PATIENCE)?;
    for console in [&mut one, &mut other] {
        all(
            console,
            &["test $(cat /mnt/d/shared) = 150; test $(ls /mnt/d | wc -l) = 21; umount /mnt"],
        )?;
    }
    off(one)?;
    off(other)?;
    server.end()?;
    place.judge(image)?;
    Ok((
        (),
        format!("{seen} changes seen by the other one at once; both checkers find nothing"),
    ))
}

/// One of two guests is killed while it writes; the other one goes on, and one more begins.
fn killed(place: &Place, image: &Path) -> Done<((), String)> {
    fresh(place, image)?;
    let socket = place.path("ours.sock");
    let server = Server::ours(&place.extant, image, &socket, 2)?;
    let mut one = start(place, &[(socket.clone(), "ours")])?;
    let mut other = start(place, &[(socket.clone(), "ours")])?;
    for console in [&mut one, &mut other] {
        all(console, &["mount -t virtiofs ours /mnt"])?;
    }
    all(
        &mut one,
        &[
            "echo kept > /mnt/kept; exec 5<>/mnt/unnamed; rm /mnt/unnamed",
            "dd if=/dev/zero bs=1M count=20 >&5 2> /dev/null",
            "(while :; do dd if=/dev/zero of=/mnt/busy bs=64k count=200; mv /mnt/busy /mnt/busy2; done) > /dev/null 2>&1 & true",
        ],
    )?;
    std::thread::sleep(Duration::from_secs(2));
    one.kill()?;
    all(
        &mut other,
        &[
            "test $(cat /mnt/kept) = kept",
            "for i in $(seq 100); do echo $i > /mnt/o$i; done; sync",
        ],
    )?;
    let mut next = start(place, &[(socket, "ours")])?;
    all(
        &mut next,
        &["mount -t virtiofs ours /mnt; test $(cat /mnt/o77) = 77; umount /mnt"],
    )?;
    all(&mut other, &["umount /mnt"])?;
    off(next)?;
    off(other)?;
    server.end()?;
    place.judge(image)?;
    Ok((
        (),
        "the other one goes on, one more begins; both checkers find nothing".to_owned(),
    ))
}

/// The figures of one server.
fn measured(console: &mut Console, tag: &str) -> Done<Vec<u64>> {
    all(
        console,
        &[&format!(
            "mkdir -p /tmp/{tag}; mount -t virtiofs {tag} /tmp/{tag}; D=/tmp/{tag}"
        )],
    )?;
    let mut figures = Vec::new();
    for (_, line) in MEASURED {
        all(console, &["sync; echo 3 > /proc/sys/vm/drop_caches"])?;
        // Hundredths of seconds.
        let now = "read up rest < /proc/uptime; up=${up%.*}${up#*.}";
        let timed = format!("{now}; t=$up; {{ {line}; }} > /dev/null 2>&1; {now}; echo $((up-t))");
        let said = console.run(&timed, PATIENCE)?;
        let hundredths: u64 = said.trim().parse().map_err(|e| format!("{said}: {e}"))?;
        figures.push(hundredths * 10);
    }
    all(console, &[&format!("cd /; umount /tmp/{tag}")])?;
    Ok(figures)
}

/// Both servers, in one guest.
fn beside(place: &Place, image: &Path) -> Done<((), String)> {
    let Some(other) = OTHERS.iter().find(|path| Path::new(path).exists()) else {
        return Ok((
            (),
            "SKIPPED: needs virtiofsd (package qemu-system-common)".to_owned(),
        ));
    };
    fresh(place, image)?;
    let directory = place.path("directory");
    let _ = fs::remove_dir_all(&directory);
    make_dir(&directory)?;
    let (ours, theirs) = (place.path("ours.sock"), place.path("theirs.sock"));
    let (program, build) = match &place.release {
        Some(program) => (program, "a release build"),
        None => (&place.extant, "a debug build"),
    };
    let server = Server::ours(program, image, &ours, 1)?;
    let other_server = Server::theirs(other, &directory, &theirs)?;
    let mut console = start(place, &[(ours, "ours"), (theirs, "theirs")])?;
    let mut figures = vec![[Vec::new(), Vec::new()]; MEASURED.len()];
    for _ in 0..ROUNDS {
        for (side, tag) in ["ours", "theirs"].into_iter().enumerate() {
            for (row, figure) in measured(&mut console, tag)?.into_iter().enumerate() {
                figures[row][side].push(figure);
            }
        }
    }
    off(console)?;
    server.end()?;
    drop(other_server);
    place.judge(image)?;
    let rows: Vec<String> = MEASURED
        .iter()
        .zip(&mut figures)
        .map(|((name, _), [ours, theirs])| format!("{name} {} / {}", spread(ours), spread(theirs)))
        .collect();
    let seen = format!(
        "ours ({build}) / `virtiofsd`, medians of {ROUNDS} by turns with the least and the most: {}",
        rows.join("; ")
    );
    Ok(((), seen))
}

/// The median, and from where to where all are.
fn spread(figures: &mut [u64]) -> String {
    figures.sort_unstable();
    match &*figures {
        [least, .., most] => format!("{} ({least} to {most})", figures[figures.len() / 2]),
        [one] => one.to_string(),
        [] => "nothing".to_owned(),
    }
}
