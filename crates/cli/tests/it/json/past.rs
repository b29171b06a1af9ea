//! What looks into the past of images: the journal, what was deleted, and bringing it back.

use super::at;
use super::held::Held;
use crate::checking::with_fast_commits_of;
use crate::comparing::run_in;
use crate::support::Place;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{debugfs, mke2fs};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

pub(super) fn run(held: &mut Held) {
    deleted(held);
    damaged(held);
    let place = Place::new();
    let fast = with_fast_commits_of(&place, OsStr::from_bytes(b"b\xffd"));
    held.run(0, "log", &[&fast]);
}

fn image(place: &Place) -> PathBuf {
    let image = place.join("image");
    mke2fs(&image, 64 << 20, &["-t", "ext4", "-b", "1024"]);
    image
}

fn deleted(held: &mut Held) {
    let place = Place::new();
    let image = image(&place);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=600");
    // The time of a mount has no parts of a second, and the log has to end behind it.
    std::thread::sleep(Duration::from_millis(1100));
    let script = "d=$(printf 'd\\377'); mkdir \"$d\"; head -c 40000 /dev/zero | tr '\\0' x > \"$d/one\"; \
                  ln \"$d/one\" \"$d/$(printf 'again \\377')\"; ln -s one \"$d/link\"; \
                  mknod \"$d/null\" c 1 3; s=$(printf 's\\377'); mkdir \"$s\"; echo > \"$s/file\"";
    run_in(mount.path(), script);
    mount.sync();
    run_in(mount.path(), "rm -r \"$(printf 'd\\377')\"");
    mount.unmount();
    held.run(0, "log", &[&image]);
    held.run(0, "deleted", &[&image]);
    let out = at(&place, b"b\xffd");
    let done = held.run(0, "recover", &[&image, &"--all", &"-d", &out]);
    let sums = done.last().expect("a summary");
    assert!(sums["left_out"].as_u64() > Some(0), "{sums}");
    held.run(1, "recover", &[&image, &"/never-there", &"-d", &out]);
}

/// A log that waits, of which one block is not what it was.
fn damaged(held: &mut Held) {
    let place = Place::new();
    let image = image(&place);
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=600");
    run_in(mount.path(), "mkdir one; echo > one/file");
    mount.sync();
    run_in(mount.path(), "mkdir two; echo > two/file");
    mount.shutdown(Shutdown::FlushLog);
    let lines = held.run(0, "log", &[&image]);
    let waiting = lines.iter().find(|line| line["state"] == "waiting");
    let waiting = waiting.expect("a transaction that waits");
    let number = &waiting["blocks"][0]["at"];
    let found = debugfs(&image, &format!("bmap <8> {number}"));
    let found: u64 = found.trim().parse().expect("a block");
    let file = File::options().write(true).open(&image).expect("a file");
    file.write_all_at(&[0x5a; 16], found * 1024)
        .expect("a write");
    let lines = held.run(0, "log", &[&image]);
    assert!(lines[0]["journal"]["damage"].is_string(), "{}", lines[0]);
}
