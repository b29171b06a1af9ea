//! A program in C that uses journals on devices of their own, beside Linux and e2fsprogs.

use crate::program::{compile, libraries};
use extant_testkit::journal_device::JournalDevice;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{debugfs, dumpe2fs_header, e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::tool::{Output, tool};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The program, an image without a journal, and a journal.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let library = libraries().join("libextant_capi.a");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/journal.c");
        let link = [
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=all",
            library.to_str().unwrap(),
            "-pthread",
            "-ldl",
            "-lm",
        ];
        compile(&source, &dir.path().join("journal"), &link);
        let desk = Self(dir);
        let options = ["-t", "ext4", "-b", "4096", "-O", "^has_journal"];
        mke2fs(&desk.path("fs.img"), 32 << 20, &options);
        let options = ["-b", "4096", "-O", "journal_dev"];
        mke2fs(&desk.path("journal.img"), 8 << 20, &options);
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, what: &str, journal: &Path, arguments: &[&str]) -> Output {
        tool(self.path("journal").to_str().unwrap())
            .arg(what)
            .args([&self.path("fs.img"), journal])
            .args(arguments)
            .run()
    }

    fn ok(&self, what: &str, journal: &Path, arguments: &[&str]) -> String {
        let done = self.run(what, journal, arguments);
        assert_eq!(done.code, 0, "{done}");
        done.text()
    }

    /// What is said of a failure.
    fn fails(&self, what: &str, journal: &Path, arguments: &[&str]) -> String {
        let done = self.run(what, journal, arguments);
        assert_eq!(done.code, 1, "{done}");
        done.text()
    }
}

#[test]
fn a_program_in_c_adds_a_journal_that_linux_uses_and_takes_it_away() {
    require!(Root, LoopDevices, KernelExt4);
    let desk = Desk::new();
    let (image, journal) = (desk.path("fs.img"), desk.path("journal.img"));
    let device = JournalDevice::attach(&journal).unwrap();
    let told = tool("stat").args(["-L", "-c", "%t %T"]).arg(device.path());
    let told = told.ok().text();
    let number = |hex: &str| u32::from_str_radix(hex, 16).unwrap().to_string();
    let (major, minor) = told.trim().split_once(' ').unwrap();
    let (major, minor) = (number(major), number(minor));
    desk.ok("add", device.path(), &[&major, &minor]);
    // What is there already is no error.
    desk.ok("add", device.path(), &[&major, &minor]);
    let dump = dumpe2fs_header(&image);
    let of_journal = dumpe2fs_header(&journal);
    assert!(dump.has_feature("has_journal"));
    assert_eq!(
        dump.field("Journal UUID"),
        of_journal.field("Filesystem UUID")
    );
    assert_eq!(
        of_journal.field("Journal users"),
        dump.field("Filesystem UUID")
    );
    // Linux finds it by its number, and leaves much in it.
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    fs::write(mount.join("made"), "by Linux\n").unwrap();
    mount.sync();
    mount.shutdown(Shutdown::FlushLog);
    let before = [fs::read(&image).unwrap(), fs::read(&journal).unwrap()];
    assert_eq!(desk.ok("read", &journal, &["/made"]), "by Linux\n");
    assert_eq!(desk.ok("check", &journal, &[]), "errors 0\n");
    let none = Path::new("-");
    let said = desk.fails("read", none, &["/made"]);
    assert!(
        said.contains("kind 6") && said.contains("external journal"),
        "{said}"
    );
    let said = desk.fails("check", none, &[]);
    assert!(said.contains("kind 6"), "{said}");
    assert!(before == [fs::read(&image).unwrap(), fs::read(&journal).unwrap()]);
    // Something waits.
    desk.fails("remove", device.path(), &[]);
    KernelMount::mount(&image, Mode::ReadWrite, "").unmount();
    desk.ok("remove", device.path(), &[]);
    assert!(!dumpe2fs_header(&image).has_feature("has_journal"));
    let told = tool("dumpe2fs").arg("-h").arg(&journal).ok().text();
    assert!(!told.contains(dump.field("Filesystem UUID")), "{told}");
    let sound = e2fsck(&image, &["-fn"]);
    assert_eq!(sound.code, 0, "{sound}");
    assert_eq!(debugfs(&image, "cat /made"), "by Linux\n");
    let said = desk.fails("remove", device.path(), &[]);
    assert!(said.contains("kind 7"), "{said}");
}

#[test]
fn a_journal_that_is_lost_is_taken_away_without_it() {
    let desk = Desk::new();
    let (image, journal) = (desk.path("fs.img"), desk.path("journal.img"));
    let said = desk.fails("add", &journal, &["4096", "0"]);
    assert!(said.contains("error 22 kind 1"), "{said}");
    // Not what holds a journal.
    let said = desk.fails("add", &image, &["7", "1"]);
    assert!(!said.is_empty());
    assert!(!dumpe2fs_header(&image).has_feature("has_journal"));
    desk.ok("add", &journal, &["7", "300"]);
    assert!(dumpe2fs_header(&image).has_feature("has_journal"));
    // Another one, which is as good as none.
    let other = desk.path("other.img");
    mke2fs(&other, 8 << 20, &["-b", "4096", "-O", "journal_dev"]);
    let said = desk.fails("remove", &other, &[]);
    assert!(said.contains("another journal"), "{said}");
    desk.ok("remove", Path::new("-"), &[]);
    assert!(!dumpe2fs_header(&image).has_feature("has_journal"));
    let sound = e2fsck(&image, &["-fn"]);
    assert_eq!(sound.code, 0, "{sound}");
}
