//! Listing and walking.

use crate::support::{Blank, Image, plan};
use extant::{FileType, Filesystem};
use extant_testkit::oracle::debugfs;
use extant_testkit::plan::{Content, TreePlan};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_directory_lists_its_names_once() {
    let mut wide = TreePlan::new();
    wide.dir("wide");
    for i in 0..2000 {
        wide.file(format!("wide/{i}"), Content::empty());
    }
    let image = Image::of(&wide);
    let fs = image.open();
    let mut names = BTreeSet::new();
    for entry in fs.read_dir("/wide").unwrap() {
        let entry = entry.unwrap();
        assert!(names.insert(entry.file_name().to_owned()));
        assert!(entry.metadata().unwrap().is_file());
        assert_eq!(entry.file_type().unwrap(), extant::FileType::Regular);
        assert_eq!(fs.metadata(entry.path()).unwrap().ino(), entry.ino());
    }
    assert_eq!(names.len(), 2000);
    assert!(fs.read_dir("/wide/1").is_err());
}

#[test]
fn a_walk_goes_through_everything_in_order_and_does_not_follow_links() {
    let image = Image::of(&plan());
    let fs = image.open();
    let paths: Vec<_> = fs
        .walk("/a")
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    assert_eq!(paths, ["/a", "/a/b", "/a/b/c", "/a/b/c/file", "/a/b/up"]);
    let link: Vec<_> = fs.walk("to-dir").unwrap().collect();
    assert_eq!(link.len(), 1);
    let mut walk = fs.walk("/").unwrap();
    let mut found = 0;
    while let Some(entry) = walk.next() {
        if entry.unwrap().file_name() == "a" {
            walk.skip_children();
        }
        found += 1;
    }
    // The root, lost+found and the top level of the plan.
    let top = plan()
        .nodes()
        .iter()
        .filter(|node| !node.path.contains(&b'/'))
        .count();
    assert_eq!(found, top + 1);
}

#[test]
fn entries_of_a_walk_can_be_read_by_other_threads() {
    let image = Image::of(&plan());
    let fs = image.open();
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut bytes = 0;
        for entry in receive {
            let entry: extant::WalkEntry = entry;
            if entry.metadata().is_file() {
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut entry.open().unwrap(), &mut content).unwrap();
                bytes += content.len() as u64;
            }
        }
        bytes
    });
    for entry in fs.walk("/").unwrap() {
        send.send(entry.unwrap()).unwrap();
    }
    drop(send);
    assert_eq!(reader.join().unwrap(), 10_000 + 300 + (1 << 20));
}

/// Directories of a tree with what is in them: as a walk finds them, whatever the threads.
#[test]
fn directories_come_in_the_order_of_a_walk_with_all_that_is_in_them() {
    let mut tree = plan();
    for dir in 0..40 {
        tree.dir(format!("many-{dir}"));
        tree.dir(format!("many-{dir}/below"));
        for file in 0..dir % 7 {
            tree.file(format!("many-{dir}/below/{file}"), Content::empty());
        }
    }
    let image = Image::of(&tree);
    let fs = image.open();
    let walked: Vec<_> = fs.walk("/").unwrap().map(Result::unwrap).collect();
    let dirs = walked.iter().filter(|entry| entry.metadata().is_dir());
    let expected: Vec<_> = dirs
        .map(|dir| {
            let of_dir = |entry: &&extant::WalkEntry| {
                entry.depth() > 0 && entry.path().parent() == Some(dir.path())
            };
            let files = walked.iter().filter(of_dir);
            let files = files.map(|file| (file.path().to_owned(), file.metadata()));
            (dir.path().to_owned(), files.collect::<Vec<_>>())
        })
        .collect();
    for threads in [0, 1, 5] {
        let mut told = Vec::new();
        let look = |directory: &extant::ListedDirectory| {
            assert!(directory.problems().is_empty());
            let files = directory.files().map(|file| (file.path(), file.metadata()));
            let path = directory.path().to_owned();
            (
                (path, files.collect::<Vec<_>>()),
                (0..directory.files().len()).collect(),
            )
        };
        fs.for_each_directory("/", threads, look, |made| {
            told.push(made.unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(told, expected, "{threads} threads");
    }
    // Entered against the order, and not all of them; then it ends.
    let mut told = Vec::new();
    let look = |directory: &extant::ListedDirectory| {
        let entered = (0..directory.files().len()).rev();
        let name = directory.path().to_owned();
        (name, entered.filter(|number| number % 2 == 0).collect())
    };
    let outcome = fs.for_each_directory("/", 3, look, |made| {
        told.push(made.unwrap());
        if told.len() < 4 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    outcome.unwrap();
    assert_eq!(told.len(), 4);
    assert!(
        told[1] > told[3] || told[3].starts_with(&told[1]),
        "{told:?}"
    );
    let listed = fs.list_directory("to-dir").unwrap();
    assert_eq!(listed.files().len(), fs.read_dir("to-dir").unwrap().count());
    assert!(fs.list_directory("/many-6/below/0").is_err());
    assert!(fs.list_directory("/none").is_err());
}

/// A directory deep down comes before all that stands beside its parents, which wait for it.
#[test]
fn beside_a_deep_tree_little_is_looked_at_before_it_is_told() {
    let mut tree = TreePlan::new();
    let mut deep = "a".to_owned();
    for _ in 0..40 {
        tree.dir(deep.clone());
        deep += "/a";
    }
    for sibling in 0..6000 {
        tree.dir(format!("b{sibling}"));
    }
    let image = Image::of(&tree);
    let (looked, mut told, mut most) = (AtomicUsize::new(0), 0, 0);
    image
        .open()
        .for_each_directory(
            "/",
            0,
            |directory| {
                looked.fetch_add(1, Ordering::Relaxed);
                ((), (0..directory.files().len()).collect())
            },
            |result| {
                result.expect("a directory");
                told += 1;
                most = most.max(looked.load(Ordering::Relaxed) - told);
                ControlFlow::Continue(())
            },
        )
        .expect("the tree");
    // The root and lost+found too.
    assert_eq!(told, 6000 + 40 + 2);
    assert!(most <= 3 * 1024, "{most} wait");
}

type Names = Vec<(Vec<u8>, u32, Option<FileType>)>;

/// What a directory lists, and how that ends, by its path and by its number.
fn by_path_and_number(fs: &Filesystem, path: &str, ino: u32) -> [(Names, Option<i32>); 2] {
    let (mut by_path, mut by_number) = (Names::new(), Names::new());
    let ended = fs.for_each_name(path, |name, ino, kind| {
        by_path.push((name.to_vec(), ino, kind));
        ControlFlow::Continue(())
    });
    // The window that a reader keeps is that of another directory.
    let mut reader = fs.name_reader();
    let root = fs.metadata("/").unwrap().ino();
    let _ = reader.for_each_name(root, "/", |_, _, _| ControlFlow::Break(()));
    let numbered = reader.for_each_name(ino, path, |name, ino, kind| {
        by_number.push((name.to_vec(), ino, kind));
        ControlFlow::Continue(())
    });
    let errno = |ended: extant::Result<()>| ended.err().map(|e| e.errno());
    [(by_path, errno(ended)), (by_number, errno(numbered))]
}

/// Compares all directories of a file system. Returns how many names there are.
fn compare_all(fs: &Filesystem) -> usize {
    let mut names = 0;
    for entry in fs.walk("/").unwrap() {
        let entry = entry.unwrap();
        if entry.metadata().is_dir() {
            let path = entry.path().display().to_string();
            let [by_path, by_number] = by_path_and_number(fs, &path, entry.metadata().ino());
            assert!(by_path == by_number, "{path}");
            names += by_path.0.len();
        }
    }
    names
}

/// Those of one block, with an index, in their inodes, and of blocks of several sizes; with what
/// waits in a journal; on a file system that is read and on one that is written.
#[test]
fn directories_list_the_same_by_their_numbers() {
    let mut tree = plan();
    for dir in 0..17 {
        tree.dir(format!("many-{dir}"));
        for file in 0..dir * dir {
            tree.file(format!("many-{dir}/{file} of them"), Content::empty());
        }
    }
    for options in [
        &[][..],
        &[
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^metadata_csum,^64bit,^extent,^filetype",
        ],
        &["-b", "1024", "-O", "inline_data,^dir_index", "-I", "512"],
    ] {
        let image = Image::with(&tree, 64, options);
        assert!(compare_all(&image.open()) > 1_400, "{options:?}");
        let fs = Filesystem::open_writable(&image.path).unwrap();
        fs.create_dir("/new").unwrap();
        fs.write("/new/file", "new").unwrap();
        fs.sync().unwrap();
        assert!(compare_all(&fs) > 1_400);
        // As a crash leaves it.
        let copy = image.dir.path().join("copy");
        std::fs::copy(&image.path, &copy).unwrap();
        let replayed = Filesystem::open(&copy).unwrap();
        assert_eq!(compare_all(&replayed), compare_all(&fs));
        let new = replayed.metadata("/new").unwrap().ino();
        assert_eq!(by_path_and_number(&replayed, "/new", new)[1].0.len(), 1);
    }
}

#[test]
fn what_cannot_be_listed_by_number_is_told_as_by_path() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.create_dir("/large").unwrap();
    for number in 0..400 {
        fs.write(format!("/large/{number:0200}"), "").unwrap();
    }
    let (large, root) = (fs.metadata("/large").unwrap(), fs.metadata("/").unwrap());
    fs.close().unwrap();
    let fs = Filesystem::open(image.path()).unwrap();
    let listed = by_path_and_number(&fs, "/large", large.ino());
    assert!(listed[0] == listed[1] && listed[0].0.len() == 400);
    let file = listed[0].0[0].1;
    let mut reader = fs.name_reader();
    let mut errno = |ino| {
        let done = reader.for_each_name(ino, "/", |_, _, _| ControlFlow::Continue(()));
        done.err().map(|e| e.errno())
    };
    assert_eq!(errno(file), Some(extant::errno::ENOTDIR));
    assert_eq!(errno(root.ino()), None);
    // The journal, one that is free, and numbers that no inode has.
    for ino in [8, 4000, 0, u32::MAX] {
        assert!(errno(ino).is_some(), "{ino}");
    }
    // A block in the middle is overwritten: what stands before it is listed, then the error.
    let blocks = debugfs(image.path(), "blocks /large");
    let blocks: Vec<usize> = (blocks.split_whitespace())
        .map(|block| block.parse().unwrap())
        .collect();
    let mut broken = std::fs::read(image.path()).unwrap();
    let block_size = fs.statfs().unwrap().block_size.len();
    broken[blocks[blocks.len() / 2] * block_size + 100] ^= 1;
    let fs = Filesystem::open_device(broken, extant::MountOptions::read_only()).unwrap();
    let [by_path, by_number] = by_path_and_number(&fs, "/large", large.ino());
    let count = by_path.0.len();
    assert!(by_path.1.is_some() && count > 0 && count < 400, "{count}");
    assert!(by_path == by_number);
    drop(fs);
    // For a caller that may not see everything there are paths alone.
    let fs = Filesystem::open(image.path()).unwrap();
    let theirs = fs.on_behalf_of(extant::Caller::new(1000, 1000));
    let refused = theirs
        .name_reader()
        .for_each_name(root.ino(), "/", |_, _, _| ControlFlow::Continue(()));
    assert_eq!(refused.unwrap_err().errno(), extant::errno::EPERM);
}
