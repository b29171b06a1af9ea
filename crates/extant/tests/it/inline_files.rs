//! Files and directories that lie inside their inodes, as `mke2fs` makes them.

use crate::support::Image;
use extant::{Filesystem, MountOptions, OpenOptions, OpenSpec, RenameFlags};
use extant_core::dir::{Cookie, readdir_live};
use extant_core::fs::DataMode;
use extant_format::Ino;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, debugfs};
use extant_testkit::plan::{Content, TreePlan};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

const OPTIONS: &[&str] = &["-b", "1024", "-O", "inline_data,^resize_inode", "-N", "256"];

fn small(plan: &mut TreePlan, path: &str) {
    plan.file(path, Content::filled(1, 30));
}

pub(crate) fn lies_in_its_inode(image: &Path, path: &str) -> bool {
    debugfs(image, &format!("stat {path}")).contains("Flags: 0x10000000")
}

/// Takes all blocks there are.
pub(crate) fn fill(fs: &Filesystem) {
    let file = fs.create("/filler").unwrap();
    let mut at = 0;
    // What is promised is not taken at once.
    for _ in 0..100 {
        let mut piece = 64 << 10;
        while piece >= 1024 {
            match file.write_at(&vec![1; piece], at) {
                Ok(written) => at += written as u64,
                Err(_) => piece /= 2,
            }
        }
        fs.sync().unwrap();
        if fs.statfs().unwrap().available == 0 {
            return;
        }
    }
    panic!("{} blocks stay", fs.statfs().unwrap().available);
}

#[test]
fn names_that_leave_directories_in_inodes_need_no_space() {
    let mut plan = TreePlan::new();
    for dir in ["a", "b", "c", "d", "p", "p/sub", "q"] {
        plan.dir(dir);
    }
    for file in ["a/x", "a/y", "a/z", "a/big", "c/one", "d/other", "text"] {
        small(&mut plan, file);
    }
    let image = Image::with(&plan, 8, OPTIONS);
    for path in ["/a", "/b", "/c", "/d", "/p", "/p/sub", "/q", "/text"] {
        assert!(lies_in_its_inode(&image.path, path), "{path}");
    }
    let fs = Filesystem::open_writable(&image.path).unwrap();
    // These two have names already.
    for dir in ["b", "q"] {
        fs.create(format!("/{dir}/first")).unwrap();
    }
    fill(&fs);
    fs.rename("/a/x", "/b/x").unwrap();
    fs.rename("/p/sub", "/q/sub").unwrap();
    let whiteout = RenameFlags {
        whiteout: true,
        ..RenameFlags::default()
    };
    fs.rename_with("/a/y", "/b/y", whiteout).unwrap();
    fs.exchange("/c/one", "/d/other").unwrap();
    fs.remove_file("/a/big").unwrap();
    let text = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&fs, "/text")
        .unwrap();
    assert_eq!(text.metadata().len(), 0);
    drop(text);
    fs.remove_file("/filler").unwrap();
    fs.sync().unwrap();
    fs.create_dir("/afterwards").unwrap();
    fs.close().unwrap();
    assert_clean(&image.path);
    for path in ["/a", "/c", "/d", "/p", "/q/sub"] {
        assert!(lies_in_its_inode(&image.path, path), "{path}");
    }
    let fs = image.open();
    let names = |path: &str| -> Vec<String> {
        let entries = fs.read_dir(path).unwrap().map(Result::unwrap);
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("/a"), ["y", "z"]);
    assert_eq!(names("/b"), ["first", "x", "y"]);
    assert_eq!(names("/q"), ["first", "sub"]);
    assert!(names("/p").is_empty());
    assert_eq!(fs.read("/text").unwrap(), b"");
}

#[test]
fn a_listing_goes_on_where_it_was_when_its_directory_leaves_the_inode() {
    for index in ["dir_index", "^dir_index"] {
        let mut plan = TreePlan::new();
        plan.dir("dir");
        let names = ["gone", "one", "two", "three"];
        for name in names {
            small(&mut plan, &format!("dir/{name}"));
        }
        let features = format!("inline_data,^resize_inode,{index}");
        let options = ["-b", "1024", "-O", &features, "-I", "256"];
        for stop in 0..names.len() {
            let image = Image::with(&plan, 8, &options);
            let fs = Filesystem::open_writable(&image.path).unwrap();
            fs.remove_file("/dir/gone").unwrap();
            let ino = fs.metadata("/dir").unwrap().ino();
            let dir = fs.engine().hold(Ino::new(ino)).unwrap();
            assert!(dir.snapshot().is_inline());
            let mut seen: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
            let mut list = |from: Cookie, most: usize| {
                let mut left = most;
                let listed = readdir_live(fs.engine(), &dir, from, |entry| {
                    *seen.entry(entry.name.to_vec()).or_default() += 1;
                    left -= usize::from(entry.name != b"." && entry.name != b"..");
                    match left {
                        0 => ControlFlow::Break(entry.next),
                        _ => ControlFlow::Continue(()),
                    }
                });
                listed.unwrap()
            };
            let at = match stop {
                0 => Cookie::START,
                _ => list(Cookie::START, stop).unwrap(),
            };
            let long = "one-that-takes-more-room-than-there-is-in-an-inode".repeat(4);
            fs.create(format!("/dir/{long}")).unwrap();
            assert!(!dir.snapshot().is_inline());
            list(at, usize::MAX);
            for name in &names[1..] {
                let times = seen.get(name.as_bytes()).copied().unwrap_or(0);
                assert_eq!(times, 1, "{index}, stopped after {stop}: {name}");
            }
        }
    }
}

/// Whether a file with little content has a block for it, by `stat`. In its inode the content
/// counts for a sector, as with Linux; a block has at least two.
fn takes_blocks(fs: &Filesystem, path: &str) -> bool {
    fs.metadata(path).unwrap().blocks() > 1
}

#[test]
fn small_files_are_made_in_their_inodes_and_stay_there_while_they_fit() {
    for mode in [DataMode::Through, DataMode::Placed, DataMode::Delayed] {
        let image = Image::with(&TreePlan::new(), 8, OPTIONS);
        let spec = OpenSpec::read_write(&image.path);
        let options = MountOptions::read_write().data_mode(mode);
        let fs = Filesystem::open_spec(&spec, options).unwrap();
        // One byte more has no room beside the rest of a record of 256 bytes.
        let most = 60 + (256 - 128 - 32 - 4 - 20 - 4);
        for (name, len) in [
            ("none", 0),
            ("few", 10),
            ("map", 60),
            ("more", 61),
            ("most", most),
            ("past", most + 1),
        ] {
            let content = Content::filled(len as u64, len as u64).to_bytes();
            let file = fs.create(format!("/{name}")).unwrap();
            // In pieces, the last of them in the middle.
            let (front, back) = content.split_at(len / 3);
            file.write_all_at(back, front.len() as u64).unwrap();
            file.write_all_at(front, 0).unwrap();
            assert_eq!(fs.read(format!("/{name}")).unwrap(), content);
            file.sync_all().unwrap();
            assert_eq!(takes_blocks(&fs, &format!("/{name}")), len > most, "{name}");
        }
        // An attribute comes into the inode if there is room, and otherwise elsewhere: content
        // stays.
        fs.set_xattr("/few", "user.a", [7; 20]).unwrap();
        fs.set_xattr("/most", "user.a", [7; 20]).unwrap();
        let few = fs.open_file("/few").unwrap();
        assert_eq!(few.metadata().len(), 10);
        for path in ["/few", "/most"] {
            assert_eq!(fs.get_xattr(path, "user.a").unwrap(), Some(vec![7; 20]));
        }
        // Sizes go both ways, and zeros come where nothing was.
        let file = OpenOptions::new().write(true).open(&fs, "/map").unwrap();
        file.set_len(7).unwrap();
        file.set_len(70).unwrap();
        let mut expected = Content::filled(60, 60).to_bytes();
        expected.truncate(7);
        expected.resize(70, 0);
        assert_eq!(fs.read("/map").unwrap(), expected);
        let file = OpenOptions::new().append(true).open(&fs, "/map").unwrap();
        file.write_all_at(b"end", 70).unwrap();
        expected.extend(b"end");
        assert_eq!(fs.read("/map").unwrap(), expected);
        fs.close().unwrap();
        assert_clean(&image.path);
        for name in ["none", "few", "map", "more", "most"] {
            assert!(lies_in_its_inode(&image.path, name), "{mode:?} {name}");
        }
        assert!(!lies_in_its_inode(&image.path, "past"));
    }
}

/// Files of up to a few hundred bytes, changed by the engine and by Linux in turns.
#[test]
fn linux_and_the_engine_change_small_files_in_turns() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("inline_turns");
    let mut rng = Rng::new(seed);
    for inode_size in ["256", "512", "1024"] {
        let options = [
            "-b",
            "1024",
            "-O",
            "inline_data,^resize_inode",
            "-I",
            inode_size,
            "-N",
            "256",
        ];
        let image = Image::with(&TreePlan::new(), 8, &options);
        let mut known: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for turn in 0..8 {
            let by_linux = turn % 2 == 1;
            let spec = OpenSpec::read_write(&image.path);
            let modes = [DataMode::Through, DataMode::Placed, DataMode::Delayed];
            let options = MountOptions::read_write().data_mode(modes[rng.below(3) as usize]);
            let mount = by_linux.then(|| KernelMount::mount(&image.path, Mode::ReadWrite, ""));
            let fs = (!by_linux).then(|| Filesystem::open_spec(&spec, options).unwrap());
            for step in 0..60_u8 {
                let name = format!("file{}", rng.below(12));
                let content = known.entry(name.clone()).or_default();
                let at = rng.below(content.len() as u64 + 20);
                let most = [8, 40, 100, 400][rng.below(4) as usize];
                let len = rng.between(1, most) as usize;
                let what = rng.below(10);
                // Linux 6.18 loses writes behind the old end of a small file that it has made
                // longer by ftruncate.
                let at = match (by_linux, what) {
                    (true, 6..8) => at.min(content.len() as u64),
                    _ => at,
                };
                match &mount {
                    Some(mount) => by_linux_once(&mount.join(&name), what, at, len, step),
                    None => by_engine_once(fs.as_ref().unwrap(), &name, what, at, len, step),
                }
                match what {
                    0..6 => {
                        let end = at as usize + len;
                        content.resize(content.len().max(end), 0);
                        content[at as usize..end].fill(step);
                    }
                    6..8 => content.resize(at as usize, 0),
                    8 => {}
                    _ => drop(known.remove(&name)),
                }
            }
            if let Some(fs) = fs {
                fs.close().unwrap();
            }
            drop(mount);
            assert_clean(&image.path);
            let mount = KernelMount::mount(&image.path, Mode::ReadOnly, "");
            let fs = image.open();
            for (name, content) in &known {
                let told = format!("seed {seed}, inodes of {inode_size}, turn {turn}, {name}");
                let by_linux = std::fs::read(mount.join(name)).unwrap();
                assert!(by_linux == *content, "{told}, read by Linux");
                assert!(fs.read(format!("/{name}")).unwrap() == *content, "{told}");
            }
        }
    }
}

fn by_linux_once(path: &Path, what: u64, at: u64, len: usize, byte: u8) {
    let mut open = std::fs::OpenOptions::new();
    let file = open.write(true).create(true).truncate(false).open(path);
    let file = file.unwrap();
    match what {
        0..6 => std::os::unix::fs::FileExt::write_all_at(&file, &vec![byte; len], at).unwrap(),
        6..8 => file.set_len(at).unwrap(),
        8 => {
            let value = vec![byte; len.min(60)];
            rustix::fs::setxattr(path, "user.a", &value, rustix::fs::XattrFlags::empty()).unwrap();
        }
        _ => std::fs::remove_file(path).unwrap(),
    }
}

fn by_engine_once(fs: &Filesystem, name: &str, what: u64, at: u64, len: usize, byte: u8) {
    let path = format!("/{name}");
    let file = OpenOptions::new().write(true).create(true).open(fs, &path);
    let file = file.unwrap();
    match what {
        0..6 => file.write_all_at(&vec![byte; len], at).unwrap(),
        6..8 => file.set_len(at).unwrap(),
        8 => fs
            .set_xattr(&path, "user.a", vec![byte; len.min(60)])
            .unwrap(),
        _ => fs.remove_file(&path).unwrap(),
    }
}
