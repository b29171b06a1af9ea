//! A program in C that names its image by address: an NBD export, a URL, a disk in a format. What
//! it writes is judged by programs of others, behind the server.

use crate::program::{compile, libraries};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::tool::{Background, Output, tool};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The program, and an image with a file `/in`.
struct Desk {
    dir: TempDir,
    image: PathBuf,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("in"), input()).unwrap();
        let image = dir.path().join("disk.img");
        let from = source.to_str().unwrap();
        mke2fs(&image, 64 << 20, &["-t", "ext4", "-d", from]);
        let library = libraries().join("libextant_capi.a");
        let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/address.c");
        compile(&source, &dir.path().join("address"), &link);
        Self { dir, image }
    }

    fn run(&self, what: &str, address: &str) -> Output {
        let program = self.dir.path().join("address");
        tool(program.to_str().unwrap()).args([what, address]).run()
    }

    fn reads(&self, address: &str) {
        let read = self.run("read", address);
        assert_eq!(read.code, 0, "{read}");
        assert!(read.stdout == input(), "{address} gives another file");
    }

    /// The image served by nbdkit, and the address.
    fn serve(&self, options: &[&str]) -> (Background, String) {
        let socket = self.dir.path().join("socket");
        // One of a server that was killed is in the way.
        let _ = fs::remove_file(&socket);
        let mut server = tool("nbdkit")
            .args(["-f", "-U", socket.to_str().unwrap()])
            .args(options)
            .args(["file".as_ref(), self.image.as_os_str()])
            .background(&self.dir.path().join("nbdkit.log"));
        server.wait_for_socket(&socket);
        let address = format!("nbd+unix:///?socket={}", socket.display());
        (server, address)
    }
}

fn input() -> Vec<u8> {
    let words = (0..70_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
    words.collect()
}

/// What the program writes.
fn output() -> String {
    (0..40_000).map(|n| format!("line {n:10}\n")).collect()
}

/// Whether an image is sound and has what the program writes.
fn judge(image: &Path) {
    assert_clean(image);
    assert!(debugfs(image, "cat /out") == output(), "another file");
    assert!(debugfs(image, "stat /out").contains("Mode:  0640"));
}

#[test]
fn a_program_in_c_reads_and_writes_an_export() {
    let desk = Desk::new();
    let (server, address) = desk.serve(&[]);
    desk.reads(&address);
    let written = desk.run("write", &address);
    assert_eq!(written.code, 0, "{written}");
    let again = desk.run("write", &address);
    assert_eq!(again.code, 1, "{again}");
    let told = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(told.contains("create: /out"), "{told}");
    drop(server);
    judge(&desk.image);
}

#[test]
fn what_a_program_in_c_has_synced_survives_its_end() {
    let desk = Desk::new();
    let (server, address) = desk.serve(&[]);
    let abandoned = desk.run("abandon", &address);
    assert_eq!(abandoned.code, 0, "{abandoned}");
    drop(server);
    // Its journal is replayed by e2fsck.
    let recovered = tool("e2fsck").args(["-fp"]).arg(&desk.image).run();
    assert!([0, 1].contains(&recovered.code), "{recovered}");
    judge(&desk.image);
}

#[test]
fn a_program_in_c_changes_an_export_as_a_whole_or_not_at_all() {
    let desk = Desk::new();
    let (server, address) = desk.serve(&[]);
    let before = fs::read(&desk.image).unwrap();
    let forgotten = desk.run("forget", &address);
    assert_eq!(forgotten.code, 0, "{forgotten}");
    assert!(fs::read(&desk.image).unwrap() == before, "it was touched");
    let committed = desk.run("commit", &address);
    assert_eq!(committed.code, 0, "{committed}");
    drop(server);
    judge(&desk.image);
}

#[test]
fn a_program_in_c_is_told_why_an_address_is_of_no_use() {
    let desk = Desk::new();
    let (server, address) = desk.serve(&["-r"]);
    desk.reads(&address);
    let told = |what: &str, address: &str| {
        let failed = desk.run(what, address);
        assert_eq!(failed.code, 1, "{failed}");
        String::from_utf8_lossy(&failed.stderr).into_owned()
    };
    let read_only = told("write", &address);
    assert!(read_only.contains("reading only"), "{read_only}");
    drop(server);
    let gone = told("read", &address);
    assert!(gone.contains("cannot") && gone.contains("socket"), "{gone}");
    let wrong = told("read", "nbd+unix:///?sock=x");
    assert!(
        wrong.contains("write nbd+unix:///EXPORT?socket=PATH"),
        "{wrong}"
    );
    let unknown = told("read", "rbd://pool/image");
    assert!(unknown.contains("qemu-nbd"), "{unknown}");
}

#[test]
fn a_program_in_c_reads_what_is_behind_http_and_in_formats() {
    let desk = Desk::new();
    let nginx = Nginx::start();
    fs::copy(&desk.image, nginx.root().join("disk.img")).unwrap();
    let url = nginx.url("disk.img");
    desk.reads(&url);
    let refused = desk.run("write", &url);
    assert_eq!(refused.code, 1, "{refused}");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("changed nowhere in place"), "{told}");
    let missing = desk.run("read", &nginx.url("none.img"));
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.code == 1 && told.contains("no such object"),
        "{told}"
    );
    // Written in place, and judged as a raw image.
    let qcow2 = desk.dir.path().join("disk.qcow2");
    let convert = |from: &str, to: &str, source: &Path, target: &Path| {
        tool("qemu-img")
            .args(["convert", "-f", from, "-O", to])
            .args([source, target])
            .ok();
    };
    convert("raw", "qcow2", &desk.image, &qcow2);
    let address = qcow2.to_str().unwrap();
    desk.reads(address);
    let written = desk.run("write", address);
    assert_eq!(written.code, 0, "{written}");
    tool("qemu-img").args(["check", address]).ok();
    let raw = desk.dir.path().join("raw");
    convert("qcow2", "raw", &qcow2, &raw);
    judge(&raw);
}
