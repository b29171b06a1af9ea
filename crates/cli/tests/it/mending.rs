//! Reading damaged images as a repair would leave them (`--mend`), and images of which parts cannot
//! be read.

use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::{debugfs, debugfs_write, dumpe2fs_header};
use extant_testkit::plan::Content;
use extant_testkit::require;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// The bytes of an image.
fn bytes(image: &str) -> Vec<u8> {
    fs::read(image).expect("an image")
}

/// An image of which nothing can be written.
fn seal(image: &str) {
    fs::set_permissions(image, fs::Permissions::from_mode(0o444)).expect("a mode");
}

fn zero(image: &str, at: u64, len: usize) {
    let file = OpenOptions::new()
        .write(true)
        .open(image)
        .expect("an image");
    file.write_all_at(&vec![0; len], at).expect("a write");
}

/// The bytes from which on a block of a file lies on the device.
fn place_of(image: &str, path: &str, block: u64, size: u64) -> u64 {
    let text = debugfs(Path::new(image), &format!("bmap {path} {block}"));
    let number: u64 = text.trim().parse().expect("a block");
    number * size
}

#[test]
fn what_a_repair_would_mend_is_read_and_the_image_stays_as_it_is() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    // The primary superblock, and the inode of the directory.
    zero(&image, 1024, 1024);
    let before = bytes(&image);
    seal(&image);
    let run = extant(["cat", "--mend", &format!("{image}:/etc/hostname")]).ok();
    assert_eq!(run.stdout, Content::filled(1, 4).to_bytes());
    assert!(
        run.stderr.contains("mended in memory") && run.stderr.lines().count() == 1,
        "{}",
        run.stderr
    );
    for command in ["ls", "tree", "find", "info", "df", "map"] {
        extant([command, "--mend", &image]).ok();
    }
    let json = extant(["ls", "--json", "--mend", &image]).ok();
    assert!(!json.lines().is_empty());
    assert_eq!(bytes(&image), before);
}

#[test]
fn directories_without_a_root_come_out_of_lost_and_found() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    debugfs_write(Path::new(&image), &["clri <2>"]);
    let before = bytes(&image);
    let run = extant(["ls", &image]).fails(1);
    assert!(run.stderr.contains("--mend"), "{}", run.stderr);
    let out = place.arg("out");
    extant(["cp", "-a", "--mend", &format!("{image}:/."), &out]).ok();
    let hostname = Content::filled(1, 4).to_bytes();
    let mut found = false;
    for entry in fs::read_dir(place.join("out/lost+found")).expect("lost+found") {
        let path = entry.expect("an entry").path().join("hostname");
        found |= fs::read(path).is_ok_and(|content| content == hostname);
    }
    assert!(found, "what was in /etc has a name");
    assert_eq!(bytes(&image), before);
}

#[test]
fn what_changes_images_takes_no_mending() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    extant(["touch", "--mend", &format!("{image}:/x")]).fails(2);
    extant(["rm", "--mend", &format!("{image}:/etc/hostname")]).fails(2);
    extant(["ls", "--mend", "--as-is", &image]).fails(2);
    extant(["check", "--mend", &image]).fails(8);
    extant(["repair", "--mend", &image]).fails(16);
    extant(["mount", &image, &place.arg("dir"), "-o", "mend"]).fails(2);
    let run = extant(["ls", "--mend", &image]).ok();
    assert!(
        run.stderr.contains("nothing had to be mended"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_journal_of_noise_is_left_out() {
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    debugfs_write(Path::new(&image), &["feature needs_recovery"]);
    let journal = place_of(&image, "<8>", 0, 1024);
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0xa5; 1024], journal).unwrap();
    let before = bytes(&image);
    let run = extant(["cat", "--mend", &format!("{image}:/etc/hostname")]).ok();
    assert_eq!(run.stdout, Content::filled(1, 4).to_bytes());
    assert!(run.stderr.contains("cannot be replayed"), "{}", run.stderr);
    assert_eq!(bytes(&image), before);
}

#[test]
fn a_mount_shows_a_mended_image() {
    require!(Fuse);
    let place = Place::new();
    let image = place.image(&small_plan(), &["-b", "1024"]);
    debugfs_write(Path::new(&image), &["clri <2>"]);
    zero(&image, 1024, 1024);
    let before = bytes(&image);
    let dir = place.arg("dir");
    fs::create_dir(&dir).unwrap();
    extant(["mount", &image, &dir, "-o", "ro,mend"]).ok();
    let entries = fs::read_dir(place.join("dir/lost+found"));
    let count = entries.map(Iterator::count);
    let written = File::create(place.join("dir/x"));
    extant(["umount", &dir]).ok();
    assert!(count.is_ok_and(|count| count > 0));
    assert!(written.is_err());
    assert_eq!(bytes(&image), before);
    // By a backup, without mending.
    let run = extant(["mount", "--superblock", "auto", &image, &dir]).fails(1);
    assert!(!run.stderr.contains("no backup"), "{}", run.stderr);
}

/// An image with a large file, cut inside it.
fn cut_image(place: &Place) -> (String, u64) {
    let mut plan = small_plan();
    plan.file("large", Content::filled(9, 12 << 20));
    let image = place.image(&plan, &["-b", "4096", "-O", "^has_journal"]);
    let header = dumpe2fs_header(Path::new(&image));
    let blocks = header.number("Block count");
    let end = place_of(&image, "/large", 1000, 4096);
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.set_len(end).unwrap();
    (image, blocks * 4096 - end)
}

/// What is said of the file that is cut.
fn about_large(told: &serde_json::Value) -> &serde_json::Value {
    let problems = told["problems"].as_array().expect("a list");
    let is_it = |problem: &&serde_json::Value| {
        let path = problem["path"].as_str().expect("a path");
        path.ends_with("/large")
    };
    problems.iter().find(is_it).expect("the file is named")
}

#[test]
fn of_an_image_that_was_cut_short_it_is_said_how_much_is_missing() {
    let place = Place::new();
    let (image, missing) = cut_image(&place);
    let told = extant(["info", &image]).ok().text();
    assert!(told.contains(&format!("{missing} bytes")), "{told}");
    for mend in [&["--mend"][..], &[]] {
        let args = [&["info", "--json", &image][..], mend].concat();
        assert_eq!(extant(args).ok().json()["missing"], missing);
        let (hostname, large) = (format!("{image}:/etc/hostname"), format!("{image}:/large"));
        let args = [&["cat", &hostname][..], mend].concat();
        assert_eq!(extant(args).ok().stdout, Content::filled(1, 4).to_bytes());
        let args = [&["cat", &large][..], mend].concat();
        extant(args).fails(1);
    }
}

#[test]
fn a_file_that_cannot_be_read_whole_is_left_out_unless_asked_for() {
    let place = Place::new();
    let (image, _) = cut_image(&place);
    let whole = Content::filled(9, 12 << 20).to_bytes();
    for mend in [&["--mend"][..], &[]] {
        let _ = fs::remove_dir_all(place.join("out"));
        let out = place.arg("out");
        let from = format!("{image}:/.");
        let args = [&["cp", "-a", "--json", &from, &out][..], mend].concat();
        let run = extant(args).fails(1);
        assert!(!place.join("out/large").exists());
        assert!(place.join("out/etc/hostname").exists());
        let told = run.json();
        let problem = about_large(&told);
        assert_eq!(problem["kept"], false);
        assert!(
            problem["unread"][0]["length"]
                .as_u64()
                .is_some_and(|n| n > 0)
        );
        assert!(run.stderr.contains("left out"), "{}", run.stderr);

        let args = [&["cp", "-a", "--partial", "--json", &from, &out][..], mend].concat();
        let run = extant(args).fails(1);
        let told = run.json();
        let problem = about_large(&told);
        assert_eq!(problem["kept"], true, "{}", run.stderr);
        let mut expected = whole.clone();
        for range in problem["unread"].as_array().unwrap() {
            let of = |field: &str| range[field].as_u64().unwrap() as usize;
            expected[of("offset")..of("offset") + of("length")].fill(0);
        }
        assert!(expected != whole);
        assert!(fs::read(place.join("out/large")).unwrap() == expected);
    }
}

#[test]
fn an_archive_goes_on_after_what_cannot_be_read() {
    let place = Place::new();
    let (image, _) = cut_image(&place);
    let tar = place.arg("out.tar");
    let names = || {
        let list = extant_testkit::tool::tool("tar").args(["-tf", &tar]).ok();
        list.text()
    };
    for mend in [&["--mend"][..], &[]] {
        let args = [&["tar", "--json", "-o", &tar, &image][..], mend].concat();
        let run = extant(args).fails(1);
        let told = run.json();
        assert_eq!(about_large(&told)["kept"], false, "{}", run.stderr);
        assert!(!names().contains("large") && names().contains("etc/hostname"));

        let args = [
            &["tar", "--partial", "--json", "-o", &tar, &image][..],
            mend,
        ]
        .concat();
        let run = extant(args).fails(1);
        let told = run.json();
        assert_eq!(about_large(&told)["kept"], true, "{}", run.stderr);
        assert!(names().contains("large"));
        let unpacked = place.join("unpacked");
        let _ = fs::remove_dir_all(&unpacked);
        fs::create_dir(&unpacked).unwrap();
        extant_testkit::tool::tool("tar")
            .args(["-C", &unpacked.display().to_string(), "-xf", &tar])
            .ok();
        let content = fs::read(unpacked.join("large")).unwrap();
        let whole = Content::filled(9, 12 << 20).to_bytes();
        assert_eq!(content.len(), whole.len());
        assert!(content[..4096] == whole[..4096] && content != whole);
    }
    extant(["tar", "--json", &image]).fails(2);
}

#[test]
fn a_file_whose_map_was_mended_is_handed_out_and_named() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("mapped", Content::filled(5, 4 << 20));
    let image = place.image(&plan, &["-b", "1024", "-O", "^extents,^64bit"]);
    // A block of pointers that lead out of the file system.
    let text = debugfs(Path::new(&image), "stat /mapped");
    let at = text.find("(IND):").expect("an indirect block");
    let number: String = text[at + 6..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let block: u64 = number.parse().unwrap();
    let file = OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0xee; 16], block * 1024).unwrap();
    let out = place.arg("out");
    let run = extant(["cp", "-a", "--mend", &format!("{image}:/."), &out]).fails(1);
    assert!(
        run.stderr.contains("/mapped: where its content lies"),
        "{}",
        run.stderr
    );
    assert!(place.join("out/mapped").exists());
    let run = extant(["cat", "--mend", &format!("{image}:/mapped")]).fails(1);
    assert!(run.stderr.contains("was mended"), "{}", run.stderr);
    extant(["cat", "--mend", &format!("{image}:/etc/hostname")]).ok();
}

#[test]
fn of_files_that_claim_the_same_blocks_each_is_named() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("first", Content::filled(5, 4096));
    plan.file("second", Content::filled(6, 4096));
    let image = place.image(&plan, &["-b", "1024", "-O", "^extents,^64bit"]);
    let block = place_of(&image, "/first", 1, 1);
    debugfs_write(
        Path::new(&image),
        &[&format!("sif /second block[1] {block}")],
    );
    let out = place.arg("out");
    let cp = extant(["cp", "-a", "--mend", &format!("{image}:/."), &out]).fails(1);
    let tar = extant(["tar", "--mend", "-o", &place.arg("all.tar"), &image]).fails(1);
    for name in ["first", "second"] {
        let run = extant(["cat", "--mend", &format!("{image}:/{name}")]).fails(1);
        assert!(run.stderr.contains("was mended"), "{}", run.stderr);
        for run in [&cp, &tar] {
            let about = format!("/{name}: where its content lies");
            assert!(run.stderr.contains(&about), "{}", run.stderr);
        }
        assert!(place.join("out").join(name).exists());
    }
    extant(["cat", "--mend", &format!("{image}:/etc/hostname")]).ok();
}

#[test]
fn content_in_doubt_is_no_success_wherever_it_goes() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("large", Content::filled(9, 1 << 20));
    let image = place.image(&plan, &[]);
    // Its blocks lie where the file system has ended.
    debugfs_write(Path::new(&image), &["sif /large block[5] 99999999"]);
    let from = format!("{image}:/large");
    for args in [
        &["cat", "--mend", &from][..],
        &["cp", "--mend", &from, "-"],
        &["cp", "--mend", &from, "/dev/null"],
    ] {
        let run = extant(args).fails(1);
        assert!(run.stderr.contains("was mended"), "{}", run.stderr);
    }
    extant(["cp", "--mend", &format!("{image}:/etc/hostname"), "-"]).ok();
}

#[test]
fn a_file_whose_size_no_map_reaches_comes_out_as_it_was() {
    let place = Place::new();
    let mut plan = small_plan();
    plan.file("sized", Content::filled(7, 60_000));
    let image = place.image(&plan, &["-b", "1024"]);
    let from = format!("{image}:/sized");
    debugfs_write(Path::new(&image), &["sif /sized size 0x6000000ea60"]);
    extant(["cat", &from]).fails(1);
    let run = extant(["cat", "--mend", &from]).ok();
    assert!(run.stdout == Content::filled(7, 60_000).to_bytes());
}
