//! Listing and walking.

use crate::support::{Image, plan};
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
