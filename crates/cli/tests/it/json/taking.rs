//! What takes files out of images, puts them in, and changes several at once.

use super::held::Held;
use super::{at, inside};
use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::mke2fs;
use extant_testkit::plan::Content;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What images are called here, and files in them.
const ODD: &[u8] = b"b\xffd";

pub(super) fn run(held: &mut Held) {
    out(held);
    into(held);
    out_of_an_image(held);
    edit(held);
}

/// Whether there is a copy of any file that could not be read whole.
fn any_is_kept(told: &[Value]) -> bool {
    let problems = told[0]["problems"].as_array().expect("a list");
    assert!(!problems.is_empty());
    problems.iter().any(|problem| problem["kept"] == true)
}

fn out(held: &mut Held) {
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.file(b"large b\xffd".to_vec(), Content::filled(9, 12 << 20));
    let image = at(&place, b"b\xffd.img");
    let made = place.image(&plan, &["-b", "4096", "-O", "^has_journal"]);
    fs::rename(made, &image).expect("another name");
    // Behind the small files, and inside the large one.
    let file = File::options().write(true).open(&image).expect("a file");
    file.set_len(8 << 20).expect("it is cut");
    let all = inside(&image, b"/.");
    let cp = held.run(1, "cp", &[&"-a", &all, &at(&place, b"out")]);
    assert!(!any_is_kept(&cp), "{cp:?}");
    let cp = held.run(1, "cp", &[&"-a", &"--partial", &all, &at(&place, b"parts")]);
    assert!(any_is_kept(&cp), "{cp:?}");
    // A file of the host is in the way of a directory.
    fs::create_dir(place.join("blocked")).expect("a directory");
    fs::write(place.join("blocked/etc"), "a file").expect("a file");
    let etc = inside(&image, b"/etc");
    held.run(1, "cp", &[&"-r", &etc, &at(&place, b"blocked")]);
    held.run(1, "tar", &[&"-o", &at(&place, b"saved.tar"), &image]);
    held.run(0, "tar", &[&"-o", &at(&place, b"etc.tar"), &etc]);
}

/// An image of this name with what is in `source`.
fn image(place: &Place, source: &str) -> OsString {
    let image = at(place, b"b\xffd.img");
    let options = ["-t", "ext4", "-d", source];
    mke2fs(Path::new(&image), 32 << 20, &options);
    image
}

fn into(held: &mut Held) {
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.file([b"etc/", ODD].concat(), Content::filled(6, 100));
    let source = place.planted("source", &plan);
    let image = image(&place, &source);
    fs::remove_file(place.join("source/etc/hostname")).expect("it is there");
    fs::write(
        place.join("source/etc").join(OsStr::from_bytes(ODD)),
        "another",
    )
    .expect("a file");
    fs::write(place.join("source/new"), "new").expect("a file");
    for (command, to) in [("sync", inside(&image, b"/")), ("apply", image)] {
        for is_dry in [true, false] {
            let mut args: Vec<&dyn AsRef<OsStr>> = vec![&source, &to];
            if command == "sync" {
                args.push(&"--delete");
            }
            if is_dry {
                args.push(&"--dry-run");
            }
            let told = held.run(0, command, &args);
            assert_eq!(told[0]["dry_run"], is_dry);
            assert_eq!(told[0]["changes"].is_array(), is_dry);
        }
    }
}

fn out_of_an_image(held: &mut Held) {
    let place = Place::in_memory();
    let mut plan = small_plan();
    plan.file([b"etc/", ODD].concat(), Content::filled(6, 100));
    let image = image(&place, &place.planted("source", &plan));
    let dest = place.path().join(OsStr::from_bytes(ODD));
    fs::create_dir(&dest).expect("a directory");
    let from = inside(&image, b"/");
    for is_dry in [true, false] {
        let mut args: Vec<&dyn AsRef<OsStr>> = vec![&from, &dest];
        if is_dry {
            args.push(&"--dry-run");
        }
        let told = held.run(0, "sync", &args);
        assert_eq!(told[0]["dry_run"], is_dry);
        assert_eq!(told[0]["changes"].is_array(), is_dry);
        assert!(told[0]["directory_hex"].is_string());
    }
}

fn edit(held: &mut Held) {
    let place = Place::in_memory();
    let image = place.image(&small_plan(), &[]);
    let args: Vec<&dyn AsRef<OsStr>> =
        vec![&image, &"-e", &"mkdir /srv", &"-e", &"ln -s srv /link"];
    let mut dry = args.clone();
    dry.push(&"--dry-run");
    let dry = held.run(0, "edit", &dry);
    assert_eq!(dry[2]["committed"], false);
    let wet = held.run(0, "edit", &args);
    assert_eq!(wet[2]["committed"], true);
    let failed = held.run(1, "edit", &args);
    assert_eq!(failed[0]["ok"], false);
    assert_eq!(failed[1]["lines_done"], 0);
    // The commit itself: there is no room for what is written in place.
    mke2fs(Path::new(&image), 16 << 20, &["-t", "ext2"]);
    let text = |byte: char| byte.to_string().repeat(9 << 20);
    let [full, over] = ["full", "over"].map(|name| place.arg(name));
    std::fs::write(&full, format!("write /f <<< {}\n", text('7'))).unwrap();
    std::fs::write(&over, format!("write --at 0 /f <<< {}\n", text('8'))).unwrap();
    held.run(0, "edit", &[&image, &"-f", &full]);
    let failed = held.run(1, "edit", &[&image, &"-f", &over]);
    assert_eq!(failed[0]["ok"], true);
    assert_eq!(failed[1]["committed"], false);
    let why = failed[1]["error"].as_str().unwrap();
    assert!(why.contains("free blocks"), "{why}");
    // What a line tells goes nowhere else.
    let get = format!("get --json /etc/hostname {}", place.arg("name"));
    let run = extant(["edit", "--json", &image, "-e", &get]).fails(2);
    assert_eq!(run.text(), "");
}
