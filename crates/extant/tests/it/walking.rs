//! Listing and walking.

use crate::support::{Image, plan};
use extant_testkit::plan::{Content, TreePlan};
use std::collections::BTreeSet;

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
