//! Commits while others make changes, and several at once.

use super::{World, content, create, explore, image, names, open_and_close};
use extant_core::ops;
use extant_sync::thread;
use std::sync::Arc;

/// Threads make and write files while another one commits; every file is in one transaction with
/// its name and its content.
#[test]
fn commits_take_all_of_a_change_or_nothing() {
    let image = image();
    explore("commits_take_all_of_a_change_or_nothing", move || {
        let world = World::new(&image);
        let mut threads: Vec<_> = ["a", "b"]
            .map(|name| {
                let (fs, root) = (Arc::clone(&world.fs), world.root());
                thread::spawn(move || {
                    let file = create(&fs, &root, name).unwrap();
                    ops::pwrite(&fs, &file, 0, name.as_bytes()).unwrap();
                })
            })
            .into();
        let fs = Arc::clone(&world.fs);
        threads.push(thread::spawn(move || {
            fs.sync().unwrap();
            fs.sync().unwrap();
        }));
        for thread in threads {
            thread.join().unwrap();
        }
        // What a crash would leave now: some of it, but each part whole.
        let recovered = open_and_close(&world.copy());
        for (name, ino) in names(&recovered) {
            let content = content(&recovered, ino);
            assert!(content.is_empty() || content == name.as_bytes());
        }
        world.fs.sync().unwrap();
        let recovered = open_and_close(&world.copy());
        for (name, ino) in names(&recovered) {
            assert_eq!(content(&recovered, ino), name.as_bytes());
        }
        world.finish(&[&["a", "b"]]);
    });
}

/// Of several that sync at once each finds its own work durable, whichever commits.
#[test]
fn what_was_synced_survives_whoever_committed_it() {
    let image = image();
    explore("what_was_synced_survives_whoever_committed_it", move || {
        let world = World::new(&image);
        let threads = ["a", "b", "c"].map(|name| {
            let (fs, root) = (Arc::clone(&world.fs), world.root());
            thread::spawn(move || {
                let file = create(&fs, &root, name).unwrap();
                ops::pwrite(&fs, &file, 0, name.as_bytes()).unwrap();
                match name {
                    "c" => ops::fdatasync(&fs, &file).unwrap(),
                    _ => ops::fsync(&fs, &file).unwrap(),
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let recovered = open_and_close(&world.copy());
        let found = names(&recovered);
        for name in ["a", "b", "c"] {
            let ino = *found.get(name).expect("a name that was synced");
            assert_eq!(content(&recovered, ino), name.as_bytes());
        }
        world.finish(&[&["a", "b", "c"]]);
    });
}
