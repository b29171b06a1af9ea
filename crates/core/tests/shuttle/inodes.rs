//! Inodes that are looked up, loaded, changed, deleted and forgotten at the same time, with room
//! for next to none.

use super::{World, create, explore, image, open_with_memory, was_there};
use extant_core::inode::{Bulkstat, BulkstatWay, LiveInode};
use extant_core::{Error, ops};
use extant_sync::thread;

/// Room for one inode in each shard.
const SHORT: usize = 1 << 12;

#[test]
fn what_was_changed_is_never_found_as_it_was_before() {
    let image = image();
    explore(
        "what_was_changed_is_never_found_as_it_was_before",
        move || {
            let world = World::with(&image, |device| open_with_memory(device, SHORT));
            let root = world.root();
            let made = ["a", "b", "c"].map(|name| create(&world.fs, &root, name).unwrap().ino());
            ops::syncfs(&world.fs).unwrap();
            let changer = {
                let fs = world.fs.clone();
                thread::spawn(move || {
                    for mode in [0o600, 0o640] {
                        let held = fs.hold(made[0]).unwrap();
                        ops::chmod(&fs, &held, mode).unwrap();
                        drop(held);
                        ops::syncfs(&fs).unwrap();
                        // Forgotten or not, this is how it is.
                        assert_eq!(fs.inode(made[0]).unwrap().disk().mode.permissions(), mode);
                    }
                })
            };
            let walker = {
                let fs = world.fs.clone();
                thread::spawn(move || {
                    for way in [BulkstatWay::Cache, BulkstatWay::Tables] {
                        let how = Bulkstat::new(way, 1);
                        let seen = std::sync::Mutex::new(0);
                        fs.bulkstat(how, |ino, inode| {
                            inode.unwrap();
                            *seen.lock().unwrap() += u32::from(made.contains(&ino));
                        });
                        assert_eq!(*seen.lock().unwrap(), 3, "each is there, once");
                    }
                })
            };
            for ino in made {
                assert!(world.fs.inode(ino).is_ok());
            }
            changer.join().unwrap();
            walker.join().unwrap();
            assert_eq!(
                world.fs.inode(made[0]).unwrap().disk().mode.permissions(),
                0o640
            );
            drop(root);
            world.finish(&[&["a", "b", "c"]]);
        },
    );
}

#[test]
fn a_number_that_is_used_again_is_never_the_old_inode() {
    let image = image();
    explore(
        "a_number_that_is_used_again_is_never_the_old_inode",
        move || {
            let world = World::with(&image, |device| open_with_memory(device, SHORT));
            let root = world.root();
            let old = create(&world.fs, &root, "old").unwrap();
            let id = old.id();
            drop(old);
            ops::syncfs(&world.fs).unwrap();
            let replacer = {
                let (fs, root) = (world.fs.clone(), root.clone());
                thread::spawn(move || {
                    assert!(was_there(ops::unlink(&fs, &root, b"old")));
                    ops::syncfs(&fs).unwrap();
                    create(&fs, &root, "new").unwrap().id()
                })
            };
            let looker = {
                let fs = world.fs.clone();
                thread::spawn(move || {
                    for _ in 0..3 {
                        // It, or nothing: never another one of its number.
                        match fs.hold_same(id) {
                            Ok(held) => assert_eq!(held.id(), id),
                            Err(Error::Stale) => {}
                            Err(e) => panic!("{e}"),
                        }
                        let how = Bulkstat::new(BulkstatWay::Cache, 1);
                        fs.bulkstat(how, |_, inode| assert!(inode.is_ok()));
                    }
                })
            };
            let new = replacer.join().unwrap();
            looker.join().unwrap();
            assert_ne!(new, id);
            assert_eq!(world.fs.inode(new.ino).unwrap().id(), new);
            assert!(world.fs.hold_same(id).is_err());
            drop(root);
            world.finish(&[&["new"]]);
        },
    );
}

/// Threads look up what others forget to make room: each finds the inode of that number, as it is,
/// and one object stands for it as long as somebody holds it.
#[test]
fn what_is_looked_up_while_it_is_forgotten_is_found_or_loaded_again() {
    let image = image();
    explore(
        "what_is_looked_up_while_it_is_forgotten_is_found_or_loaded_again",
        move || {
            let world = World::with(&image, |device| open_with_memory(device, SHORT));
            let root = world.root();
            let made = [0o600, 0o640].map(|mode| {
                let held = create(&world.fs, &root, &format!("{mode:o}")).unwrap();
                ops::chmod(&world.fs, &held, mode).unwrap();
                (held.ino(), mode)
            });
            ops::syncfs(&world.fs).unwrap();
            let threads = [0, 1, 0].map(|first: usize| {
                let fs = world.fs.clone();
                thread::spawn(move || {
                    for (ino, mode) in [made[first], made[1 - first]] {
                        let held = fs.hold(ino).unwrap();
                        assert_eq!(held.ino(), ino);
                        assert_eq!(held.view().disk().mode.permissions(), mode);
                        // Loads others, for which there is no room.
                        for other in [2, 7, 8, 11] {
                            let _ = fs.inode(extant_format::Ino::new(other));
                        }
                        let again = fs.hold(ino).unwrap();
                        ops::chmod(&fs, &again, mode).unwrap();
                        assert!(std::ptr::eq::<LiveInode>(&*again, &*held), "two of {ino}");
                    }
                })
            });
            for thread in threads {
                thread.join().unwrap();
            }
            for (ino, mode) in made {
                let found = world.fs.inode(ino).unwrap();
                assert_eq!(found.disk().mode.permissions(), mode);
            }
            drop(root);
            world.finish(&[&["600", "640"]]);
        },
    );
}
