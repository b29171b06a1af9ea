//! `extant check`: verdicts and exit codes.

use crate::support::{Place, copy_of, extant};
use extant_blockdev::OpenSpec;
use extant_format::jbd2::JournalSuperblock;
use extant_testkit::mount::{KernelMount, Mode, Shutdown};
use extant_testkit::oracle::{assert_clean, debugfs, debugfs_write, e2fsck, mke2fs};
use extant_testkit::require;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[test]
fn a_sound_image_is_clean_and_a_damaged_one_is_not() {
    let place = Place::new();
    let image = place.join("image");
    let name = image.to_str().unwrap();
    extant(["mkfs", "--size", "32M", "--quiet", name]).ok();
    let sound = extant(["check", name]).ok().text();
    assert!(sound.contains(": clean, 11 inodes in use"), "{sound}");
    assert_eq!(extant(["check", "--quiet", name]).ok().text(), "");
    debugfs_write(&image, &["sif <2> links_count 9"]);
    let damaged = extant(["check", name]);
    assert_eq!(damaged.code, 4, "{}", damaged.stderr);
    let line = "error link-count: inode 2: link count is 9, expected 3\n";
    assert!(damaged.text().contains(line), "{}", damaged.text());
    let lines = extant(["check", "--json", name]).lines();
    assert_eq!(lines[0]["code"], "link-count");
    assert_eq!(lines[0]["inode"], 2);
    assert_eq!(lines.last().unwrap()["clean"], false);
}

#[test]
fn without_a_verdict_the_exit_codes_are_those_of_e2fsck() {
    let place = Place::new();
    let nothing = place.join("nothing");
    std::fs::write(&nothing, vec![0; 1 << 20]).unwrap();
    extant(["check", nothing.to_str().unwrap()]).fails(8);
    extant(["check", "/does/not/exist"]).fails(8);
    extant(["check"]).fails(16);
    extant(["check", "--frobnicate", "x"]).fails(16);
}

#[test]
fn what_the_other_commands_write_is_clean() {
    let place = Place::new();
    let tree = place.join("tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for i in 0..400 {
        std::fs::write(tree.join(format!("a/b/file {i}")), vec![1; i * 100]).unwrap();
    }
    let tree = tree.to_str().unwrap();
    for options in [
        &[][..],
        &["--block-size", "1K"],
        &["--features", "^has_journal"],
    ] {
        let image = place.join("image");
        let name = image.to_str().unwrap();
        let at = |path: &str| format!("{name}:{path}");
        let mkfs = [&["mkfs", "--size", "64M", "--quiet"], options, &[name]].concat();
        extant(mkfs).ok();
        extant(["cp", "-a", tree, &at("/one")]).ok();
        extant(["cp", "-a", tree, &at("/two")]).ok();
        extant(["check", name]).ok();
        extant(["rm", "-r", &at("/one/a/b")]).ok();
        extant(["mv", &at("/two/a"), &at("/three")]).ok();
        extant(["truncate", "-s", "5K", &at("/three/b/file 399")]).ok();
        extant(["ln", "-s", "three", &at("/link")]).ok();
        extant(["ln", &at("/three/b/file 7"), &at("/hard")]).ok();
        extant(["check", name]).ok();
        assert_clean(&image);
    }
}

/// An image in which fast commits of Linux wait for replay: `file`, which was made and synced by
/// itself.
fn with_fast_commits(place: &Place) -> String {
    with_fast_commits_of(place, "file".as_ref())
}

/// An image in which fast commits of Linux wait for replay, of a file of this name.
pub(crate) fn with_fast_commits_of(place: &Place, name: &OsStr) -> String {
    let image = place.join("fast.img");
    // Now and then Linux chooses to commit as a whole.
    for _ in 0..40 {
        let _ = fs::remove_file(&image);
        mke2fs(&image, 64 << 20, &["-t", "ext4", "-O", "fast_commit"]);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=300");
        fs::write(mount.join("other"), b"content").unwrap();
        mount.sync();
        let path = mount.path().join(name);
        fs::write(&path, vec![b'f'; 5000]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"changed", 100).unwrap();
        file.sync_all().unwrap();
        drop(file);
        mount.shutdown(Shutdown::Now);
        let device = OpenSpec::read_only(&image).open().unwrap();
        let found = extant_fsck::check(device, extant_fsck::Options::default(), &());
        if found.is_err_and(|e| e.is_fast_commit()) {
            return image.display().to_string();
        }
    }
    panic!("Linux never committed fast");
}

#[test]
fn fast_commits_are_replayed_in_memory_before_a_verdict() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = with_fast_commits(&place);
    let before = fs::read(&image).unwrap();
    let run = extant(["check", &image]).ok();
    assert!(run.text().contains("clean"), "{}", run.text());
    assert!(
        fs::read(&image).unwrap() == before,
        "a check writes nothing"
    );
    // What is wrong besides is found.
    let damaged = copy_of(&image, &place.arg("damaged.img"));
    debugfs_write(Path::new(&damaged), &["sif <7> block[5] 1"]);
    let run = extant(["check", &damaged]);
    assert_eq!(run.code, 4, "{}{}", run.text(), run.stderr);
}

#[test]
fn fast_commits_are_replayed_by_a_repair_and_can_be_taken_back() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = with_fast_commits(&place);
    debugfs_write(Path::new(&image), &["sif <7> block[5] 1"]);
    let before = fs::read(&image).unwrap();
    let run = extant(["repair", &image]);
    assert_eq!(run.code, 1, "{}{}", run.text(), run.stderr);
    assert!(
        run.text().contains("fast commits were replayed"),
        "{}",
        run.text()
    );
    assert_clean(Path::new(&image));
    let found = extant(["cat", &format!("{image}:/file")]).ok().stdout;
    assert_eq!((found.len(), &found[100..107]), (5000, &b"changed"[..]));
    extant(["repair", "--revert", &format!("{image}.undo"), &image]).ok();
    assert!(fs::read(&image).unwrap() == before, "each byte is back");
}

#[test]
fn a_journal_that_cannot_be_read_is_given_up_only_when_asked_for() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let image = with_fast_commits(&place);
    // The journal's superblock is noise.
    let found = debugfs_write(Path::new(&image), &["bmap <8> 0"]);
    let block = found
        .lines()
        .find_map(|line| line.trim().parse::<u64>().ok());
    let block = block.expect("the journal's first block");
    let size = extant(["info", "--json", "--as-is", &image]).ok().json()["block_size"]
        .as_u64()
        .unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&vec![0x5a; size as usize], block * size)
        .unwrap();
    let before = fs::read(&image).unwrap();
    let run = extant(["repair", &image]).fails(8);
    assert!(run.stderr.contains("--discard-journal"), "{}", run.stderr);
    assert!(fs::read(&image).unwrap() == before);
    let run = extant(["repair", "--discard-journal", &image]);
    assert_eq!(run.code, 1, "{}{}", run.text(), run.stderr);
    assert!(run.text().contains("DISCARDED"), "{}", run.text());
    assert_clean(Path::new(&image));
    assert_eq!(
        extant(["cat", &format!("{image}:/other")]).ok().stdout,
        b"content"
    );
    extant(["repair", "--revert", &format!("{image}.undo"), &image]).ok();
    assert!(fs::read(&image).unwrap() == before);
    // One that can be replayed is replayed all the same.
    let image = with_fast_commits(&place);
    let run = extant(["repair", "--no-undo", "--discard-journal", &image]);
    assert_eq!(run.code, 1, "{}{}", run.text(), run.stderr);
    assert_clean(Path::new(&image));
    let found = extant(["cat", &format!("{image}:/file")]).ok().stdout;
    assert_eq!(found.len(), 5000, "what only fast commits hold");
}

/// An image with a file of many extents in which something was written since, and a file beside it;
/// fast commits of Linux that say so wait for replay.
fn with_fast_commits_over_islands(place: &Place) -> String {
    let image = place.join("islands.img");
    for _ in 0..40 {
        let _ = fs::remove_file(&image);
        let options = ["-t", "ext4", "-b", "1024", "-O", "fast_commit"];
        mke2fs(&image, 64 << 20, &options);
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
        let islands = fs::File::create(mount.join("islands")).unwrap();
        for n in 0..40 {
            islands.write_all_at(b"island", n * 8192).unwrap();
        }
        drop(islands);
        mount.unmount();
        let mount = KernelMount::mount(&image, Mode::ReadWrite, "commit=300");
        fs::write(mount.join("other"), b"content").unwrap();
        mount.sync();
        let islands = fs::File::options().write(true).open(mount.join("islands"));
        let islands = islands.unwrap();
        islands.write_all_at(b"changed", CHANGED_AT as u64).unwrap();
        islands.sync_all().unwrap();
        let fresh = fs::File::create(mount.join("fresh")).unwrap();
        fresh.write_all_at(&[b'f'; 5000], 0).unwrap();
        fresh.sync_all().unwrap();
        drop((islands, fresh));
        mount.shutdown(Shutdown::Now);
        let device = OpenSpec::read_only(&image).open().unwrap();
        let found = extant_fsck::check(device, extant_fsck::Options::default(), &());
        if found.is_err_and(|e| e.is_fast_commit()) {
            return image.display().to_string();
        }
    }
    panic!("Linux never committed fast");
}

/// Where something was written between two islands.
const CHANGED_AT: usize = 8192 + 4096;

#[test]
fn fast_commits_over_a_damaged_map_are_replayed_once_that_is_mended() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let sound = with_fast_commits_over_islands(&place);
    let blocks = debugfs(Path::new(&sound), "blocks /islands");
    let node = blocks.split_whitespace().next().unwrap();
    // All of the node, and where its first extent lies: then the map still needs a node.
    for (zap, kept) in [("zap_block", 0), ("zap_block -o 20 -l 4 -p 255", 30)] {
        let image = copy_of(&sound, &place.arg("damaged.img"));
        debugfs_write(Path::new(&image), &[&format!("{zap} {node}")]);
        let before = fs::read(&image).unwrap();
        let check = extant(["check", &image]);
        let said = check.text();
        assert_eq!(check.code, 4, "{zap}: {said}{}", check.stderr);
        for found in [
            "extent-node: inode 12",
            "fatal journal-log: ",
            "fast commits wait",
        ] {
            assert!(said.contains(found), "{zap}: {found}: {said}");
        }
        assert_eq!(e2fsck(Path::new(&image), &["-fn"]).code, 4, "{zap}");
        // Nothing is read past what cannot be replayed, and how it can be is said.
        let ls = extant(["ls", &format!("{image}:/")]).fails(1);
        assert!(ls.stderr.contains("--mend"), "{}", ls.stderr);
        let cat = |name: &str, mend: &[&str]| {
            let path = format!("{image}:/{name}");
            extant([&["cat", &path][..], mend].concat())
        };
        let is_islands = |content: &[u8]| {
            let here = (0..40).filter(|n| content[n * 8192..].starts_with(b"island"));
            assert!(here.count() >= kept, "{zap}");
            assert!(content[CHANGED_AT..].starts_with(b"changed"), "{zap}");
        };
        let fresh = cat("fresh", &["--mend"]).ok();
        assert!(fresh.stdout == [b'f'; 5000], "{zap}: {}", fresh.stderr);
        assert!(!fresh.stderr.contains("left out"), "{}", fresh.stderr);
        // Its map was mended.
        is_islands(&cat("islands", &["--mend"]).fails(1).stdout);
        assert!(fs::read(&image).unwrap() == before, "it was touched");

        let run = extant(["repair", &image]);
        assert_eq!(run.code, 1, "{zap}: {}{}", run.text(), run.stderr);
        assert_clean(Path::new(&image));
        assert!(cat("fresh", &[]).ok().stdout == [b'f'; 5000], "{zap}");
        is_islands(&cat("islands", &[]).ok().stdout);
        let undo = format!("{image}.undo");
        extant(["repair", "--revert", &undo, &image]).ok();
        assert!(fs::read(&image).unwrap() == before, "each byte is back");
        fs::remove_file(undo).unwrap();
    }
}

#[test]
fn fast_commits_in_a_log_with_an_impossible_first_block_are_replayed() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let sound = with_fast_commits(&place);
    let found = debugfs(Path::new(&sound), "bmap <8> 0");
    let size = extant(["info", "--json", "--as-is", &sound]).ok().json()["block_size"].clone();
    let at = found.trim().parse::<u64>().unwrap() * size.as_u64().unwrap();
    for first in [0, u32::MAX] {
        let image = copy_of(&sound, &place.arg("damaged.img"));
        let file = fs::File::options().read(true).write(true).open(&image);
        let file = file.unwrap();
        let mut block = [0; JournalSuperblock::LEN];
        file.read_exact_at(&mut block, at).unwrap();
        let mut log = JournalSuperblock::parse(&block).unwrap();
        log.first = first;
        file.write_all_at(&log.encode(), at).unwrap();
        drop(file);
        let path = format!("{image}:/file");
        let mended = extant(["cat", "--mend", &path]).ok();
        assert_eq!(mended.stdout.len(), 5000, "{first}: {}", mended.stderr);
        let run = extant(["repair", "--no-undo", &image]);
        assert_eq!(run.code, 1, "{first}: {}{}", run.text(), run.stderr);
        assert_clean(Path::new(&image));
        assert_eq!(extant(["cat", &path]).ok().stdout.len(), 5000);
    }
}

#[test]
fn fast_commits_over_damage_of_any_kind_get_a_verdict() {
    require!(Root, LoopDevices, KernelExt4);
    let place = Place::new();
    let sound = with_fast_commits_over_islands(&place);
    let first = |request: &str| {
        let said = debugfs(Path::new(&sound), request);
        let mut numbers = said.split(|c: char| !c.is_ascii_digit());
        numbers.find_map(|word| word.parse::<u64>().ok()).unwrap()
    };
    let (node, root) = (first("blocks /islands"), first("blocks /"));
    let damages = [
        // The map of a file that fast commits name: all of its node, its header, one extent.
        format!("zap_block {node}"),
        format!("zap_block -o 2 -l 2 -p 255 {node}"),
        format!("zap_block -o 20 -l 4 -p 255 {node}"),
        // Its inode: the map's magic number, where the node lies, flags.
        "sif <12> block[0] 0xffff".to_owned(),
        "sif <12> block[4] 0x7fffffff".to_owned(),
        "sif <12> flags 0".to_owned(),
        // The directory that gets a name, and the node of the tree's root.
        format!("zap_block {root}"),
        "sif <2> block[5] 0x7fffffff".to_owned(),
        // What is not named by any of them.
        "sif <7> block[5] 1".to_owned(),
        "sif <13> links_count 7".to_owned(),
    ];
    let mut wrong = Vec::new();
    for damage in damages {
        let image = copy_of(&sound, &place.arg("damaged.img"));
        debugfs_write(Path::new(&image), &[&damage]);
        let before = fs::read(&image).unwrap();
        let check = extant(["check", &image]);
        assert!(
            fs::read(&image).unwrap() == before,
            "{damage}: it was touched"
        );
        let said = format!("{damage}: {}{}", check.text(), check.stderr);
        // It replays the journal as well, and writes whole inodes over what is damaged in them: we
        // may find fault with that.
        let theirs = copy_of(&image, &place.arg("theirs.img"));
        let by_e2fsck = e2fsck(Path::new(&theirs), &["-fy"]);
        let is_mended = by_e2fsck.text().lines().any(|line| line.contains('?'));
        let is_right = match check.code {
            0 => !is_mended,
            4 => is_mended || said.contains("fast commits wait"),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{said}\n{by_e2fsck}"));
        }
        let run = extant(["repair", "--no-undo", &image]);
        let said = format!("{damage}: {}{}", run.text(), run.stderr);
        let fresh = extant(["cat", &format!("{image}:/fresh")]);
        let is_clean = extant_testkit::oracle::check_clean(Path::new(&image));
        if ![0, 1].contains(&run.code) || fresh.stdout != [b'f'; 5000] || is_clean.is_err() {
            wrong.push(format!("{said}\n{}\n{is_clean:?}", fresh.stderr));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
