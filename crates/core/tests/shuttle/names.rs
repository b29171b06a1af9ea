//! Names of one directory that come, go and change at once.

use super::{World, create, explore, image, names, open_and_close, open_with_memory, was_there};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Held};
use extant_core::lifecycle::NewInode;
use extant_core::{Error, ops};
use extant_sync::thread;
use std::sync::Arc;

#[test]
fn creates_renames_and_unlinks_in_one_directory_do_not_disturb_each_other() {
    let image = image();
    explore("creates_renames_and_unlinks_in_one_directory", move || {
        let world = World::new(&image);
        let root = world.root();
        for name in ["old", "moved"] {
            create(&world.fs, &root, name).unwrap();
        }
        let creates = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || {
                create(&fs, &root, "new").unwrap();
                create(&fs, &root, "newer").unwrap();
            })
        };
        let renames = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || ops::rename(&fs, &root, b"moved", &root, b"here").unwrap())
        };
        ops::unlink(&world.fs, &root, b"old").unwrap();
        creates.join().unwrap();
        renames.join().unwrap();
        drop(root);
        world.finish(&[&["here", "new", "newer"]]);
    });
}

/// Names of one block, which is changed in place while others list it, commit it, and lose power.
#[test]
fn names_come_in_order_to_whoever_looks_and_to_the_device() {
    const ORDER: [&str; 4] = ["a", "b", "c", "d"];
    /// How many of them are there: the first ones.
    fn count(fs: &Arc<Fs>) -> usize {
        let found = names(fs);
        assert!(
            found
                .keys()
                .map(String::as_str)
                .eq(ORDER.into_iter().take(found.len()))
        );
        found.len()
    }
    let image = image();
    explore("names_come_in_order", move || {
        let world = World::new(&image);
        let root = world.root();
        create(&world.fs, &root, "a").unwrap();
        let creates = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || {
                for name in ORDER.into_iter().skip(1) {
                    create(&fs, &root, name).unwrap();
                }
            })
        };
        let looks = {
            let fs = Arc::clone(&world.fs);
            thread::spawn(move || {
                let before = count(&fs);
                assert!(before >= 1);
                assert!(count(&fs) >= before);
            })
        };
        let before = count(&world.fs);
        ops::syncfs(&world.fs).unwrap();
        assert!(count(&open_and_close(&world.copy())) >= before);
        creates.join().unwrap();
        looks.join().unwrap();
        drop(root);
        world.finish(&[&ORDER]);
    });
}

/// Everybody wants the same two names.
#[test]
fn one_name_is_one_file_however_many_want_it() {
    let image = image();
    explore("one_name_is_one_file_however_many_want_it", move || {
        let world = World::new(&image);
        let root = world.root();
        create(&world.fs, &root, "a").unwrap();
        let creates = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || match create(&fs, &root, "b") {
                Ok(_) => true,
                Err(Error::Exists) => false,
                Err(e) => panic!("{e}"),
            })
        };
        let renames = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || was_there(ops::rename(&fs, &root, b"a", &root, b"b")))
        };
        let looks = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(move || match ops::lookup_held(&fs, &root, b"b") {
                Ok(_) | Err(Error::NotFound) => {}
                Err(e) => panic!("{e}"),
            })
        };
        let unlinked = was_there(ops::unlink(&world.fs, &root, b"b"));
        let created = creates.join().unwrap();
        let renamed = renames.join().unwrap();
        looks.join().unwrap();
        assert!(renamed, "nobody else touches the name");
        let found = names(&world.fs);
        match (unlinked, created) {
            (false, _) => assert!(found.contains_key("b")),
            // The rename replaced what was created, or there was one file only.
            (true, false) => assert!(found.is_empty()),
            (true, true) => assert!(found.len() <= 1),
        }
        drop(root);
        world.finish(&[&["b"], &[]]);
    });
}

/// Two directories change places with files, in both directions at once.
#[test]
fn moves_in_both_directions_do_not_wait_for_each_other_in_a_circle() {
    let image = image();
    explore("moves_in_both_directions", move || {
        let world = World::new(&image);
        let root = world.root();
        let new = NewInode::new(FileType::Directory, 0o755, ops::now());
        let left = ops::mkdir(&world.fs, &root, b"left", &new).unwrap();
        let right = ops::mkdir(&world.fs, &root, b"right", &new).unwrap();
        drop(ops::mkdir(&world.fs, &left, b"l", &new).unwrap());
        drop(ops::mkdir(&world.fs, &right, b"r", &new).unwrap());
        let moves = |from: &Held, name: &'static [u8], to: &Held| {
            let (fs, from, to) = (Arc::clone(&world.fs), from.clone(), to.clone());
            thread::spawn(move || ops::rename(&fs, &from, name, &to, name).unwrap())
        };
        let threads = [moves(&left, b"l", &right), moves(&right, b"r", &left)];
        match ops::rmdir(&world.fs, &left, b"r") {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => panic!("{e}"),
        }
        for thread in threads {
            thread.join().unwrap();
        }
        drop((root, left, right));
        world.finish(&[&["left", "right"]]);
    });
}

/// Of two directories one goes below the other while somebody is about to lock them as neighbours,
/// and then a file goes from the upper to the lower one.
#[test]
fn who_takes_two_for_neighbours_does_not_keep_out_who_knows_them_better() {
    let image = image();
    explore("who_takes_two_for_neighbours", move || {
        let world = World::new(&image);
        let root = world.root();
        let new = NewInode::new(FileType::Directory, 0o755, ops::now());
        let low = ops::mkdir(&world.fs, &root, b"low", &new).unwrap();
        let high = ops::mkdir(&world.fs, &root, b"high", &new).unwrap();
        assert!(low.ino() < high.ino());
        drop(create(&world.fs, &high, "file").unwrap());
        let exchanges = {
            let (fs, root) = (Arc::clone(&world.fs), root.clone());
            thread::spawn(
                move || match ops::exchange(&fs, (&root, b"low"), (&root, b"high")) {
                    Ok(()) | Err(Error::NotFound) => {}
                    Err(e) => panic!("{e}"),
                },
            )
        };
        // If they have changed places, the name is that of the other one, which cannot go below
        // itself.
        if ops::rename(&world.fs, &root, b"low", &high, b"below").is_ok() {
            ops::rename(&world.fs, &high, b"file", &low, b"file").unwrap();
        }
        exchanges.join().unwrap();
        drop((root, low, high));
        world.finish(&[&["high"], &["high", "low"]]);
    });
}

/// A directory goes, and another one, with a file of the same name in it, may get its number.
#[test]
fn a_path_does_not_lead_through_what_took_the_number_of_a_directory() {
    let image = image();
    explore(
        "a_path_does_not_lead_through_what_took_the_number",
        move || {
            // Room for next to nothing, so that inodes and names are forgotten all the time.
            let world = World::with(&image, |device| open_with_memory(device, 1 << 12));
            let root = world.root();
            let new = NewInode::new(FileType::Directory, 0o755, ops::now());
            let old = ops::mkdir(&world.fs, &root, b"old", &new).unwrap();
            let file = create(&world.fs, &old, "file").unwrap().id();
            drop(old);
            ops::syncfs(&world.fs).unwrap();
            let replacer = {
                let (fs, root) = (Arc::clone(&world.fs), root.clone());
                thread::spawn(move || {
                    let old = ops::lookup_held(&fs, &root, b"old").unwrap();
                    ops::unlink(&fs, &old, b"file").unwrap();
                    drop(old);
                    ops::rmdir(&fs, &root, b"old").unwrap();
                    ops::syncfs(&fs).unwrap();
                    let new = ops::mkdir(&fs, &root, b"new", &new).unwrap();
                    create(&fs, &new, "file").unwrap();
                })
            };
            let walker = {
                let fs = Arc::clone(&world.fs);
                thread::spawn(move || {
                    for _ in 0..3 {
                        let names = [&b"old"[..], b"file"].into_iter();
                        if let Some(found) = ops::look_along(&fs, names, |inode| inode.id()) {
                            assert_eq!(found, file);
                        }
                        let dir = fs.inode(file.ino).map(|inode| inode.id());
                        assert!(dir.is_ok() || matches!(dir, Err(Error::Stale)), "{dir:?}");
                    }
                })
            };
            replacer.join().unwrap();
            walker.join().unwrap();
            drop(root);
            world.finish(&[&["new"]]);
        },
    );
}
