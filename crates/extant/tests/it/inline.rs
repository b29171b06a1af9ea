//! Files and directories that lie inside their inodes, as `mke2fs` makes them.

use crate::support::Image;
use extant::{Filesystem, OpenOptions, RenameFlags};
use extant_core::dir::{Cookie, readdir_live};
use extant_format::Ino;
use extant_testkit::oracle::{assert_clean, debugfs};
use extant_testkit::plan::{Content, TreePlan};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const OPTIONS: &[&str] = &["-b", "1024", "-O", "inline_data,^resize_inode", "-N", "256"];

fn small(plan: &mut TreePlan, path: &str) {
    plan.file(path, Content::filled(1, 30));
}

fn lies_in_its_inode(image: &Image, path: &str) -> bool {
    debugfs(&image.path, &format!("stat {path}")).contains("Flags: 0x10000000")
}

/// Takes all blocks there are.
fn fill(fs: &Filesystem) {
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
        assert!(lies_in_its_inode(&image, path), "{path}");
    }
    let fs = Filesystem::open_writable(&image.path).unwrap();
    // These two get blocks, with room.
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
        assert!(lies_in_its_inode(&image, path), "{path}");
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
