//! Data that is on its way to the device: neither dirty any more nor there. A thread that asks
//! whether a file is stored waits for it, or takes it for dirty.
//!
//! The files have nothing else that would tell: their size is in the record, the time of the last
//! write was set by hand, and the record is durable.

use super::{World, bytes, content, create, explore, image, names, open_and_close};
use extant_blockdev::MemoryDevice;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::{Held, Timestamp};
use extant_core::{data, ops};
use extant_format::Ino;
use extant_sync::thread;
use std::sync::Arc;

/// Room for one inode in each shard.
const SHORT: usize = 1 << 12;
const SIZE: u64 = 8192;
const LONG_AGO: Timestamp = Timestamp { secs: 5, nanos: 6 };

impl World {
    fn with_few_inodes(image: &[u8]) -> Self {
        let device = Arc::new(MemoryDevice::from_image(image));
        let options = MountOptions::read_write().background(false).memory(SHORT);
        let fs = Fs::open(device.clone(), options).unwrap();
        Self { device, fs }
    }

    /// A file of one long hole, durable, with `data` in memory at `offset`, which nothing but
    /// memory tells.
    fn written_in_a_hole(&self, offset: u64, data: &[u8]) -> Held {
        let file = create(&self.fs, &self.root(), "a").unwrap();
        ops::truncate(&self.fs, &file, SIZE).unwrap();
        ops::syncfs(&self.fs).unwrap();
        write(&self.fs, &file, offset, data);
        ops::utimens(&self.fs, &file, None, Some(LONG_AGO)).unwrap();
        // Makes the record durable, and leaves data where it is.
        let other = create(&self.fs, &self.root(), "b").unwrap();
        ops::fsync(&self.fs, &other).unwrap();
        file
    }

    /// A thread that works on what it is given.
    fn at_work<W: Clone + Send + 'static>(
        &self,
        what: &W,
        work: impl FnOnce(&Fs, &Arc<MemoryDevice>, W) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let (fs, device, what) = (self.fs.clone(), self.device.clone(), what.clone());
        thread::spawn(move || work(&fs, &device, what))
    }
}

fn write(fs: &Fs, file: &Held, offset: u64, bytes: &[u8]) {
    assert_eq!(ops::pwrite(fs, file, offset, bytes).unwrap(), bytes.len());
}

/// What a crash now would leave of the file.
fn after_a_crash(device: &Arc<MemoryDevice>) -> Vec<u8> {
    let recovered = open_and_close(&Arc::new(MemoryDevice::from_image(&bytes(device))));
    content(&recovered, names(&recovered)["a"])
}

fn join<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// `SIZE` bytes, zeros but for `data` at `offset`.
fn expected(offset: usize, data: &[u8]) -> Vec<u8> {
    let mut all = vec![0; SIZE as usize];
    all[offset..offset + data.len()].copy_from_slice(data);
    all
}

#[test]
fn fdatasync_waits_for_what_another_writes_back() {
    let image = image();
    explore("fdatasync_waits_for_what_another_writes_back", move || {
        let world = World::new(&image);
        let file = world.written_in_a_hole(2048, &[1; 1024]);
        join([
            world.at_work(&(), |fs, _, ()| fs.write_back().unwrap()),
            world.at_work(&file, |fs, device, file| {
                ops::fdatasync(fs, &file).unwrap();
                assert!(after_a_crash(device) == expected(2048, &[1; 1024]));
            }),
        ]);
        drop(file);
        world.finish(&[&["a", "b"]]);
    });
}

#[test]
fn times_set_while_data_is_on_its_way_stay_and_do_not_hide_it() {
    let image = image();
    explore("times_set_while_data_is_on_its_way", move || {
        let world = World::new(&image);
        let file = create(&world.fs, &world.root(), "a").unwrap();
        ops::truncate(&world.fs, &file, SIZE).unwrap();
        ops::syncfs(&world.fs).unwrap();
        write(&world.fs, &file, 0, &[1; 1024]);
        join([
            world.at_work(&(), |fs, _, ()| fs.write_back().unwrap()),
            world.at_work(&file, |fs, device, file| {
                ops::utimens(fs, &file, None, Some(LONG_AGO)).unwrap();
                ops::fdatasync(fs, &file).unwrap();
                assert!(after_a_crash(device) == expected(0, &[1; 1024]));
                assert_eq!(file.view().disk().mtime, LONG_AGO);
            }),
            world.at_work(&file, |fs, device, file| {
                ops::fdatasync(fs, &file).unwrap();
                assert!(after_a_crash(device) == expected(0, &[1; 1024]));
            }),
        ]);
        ops::fsync(&world.fs, &file).unwrap();
        let recovered = open_and_close(&world.copy());
        let found = recovered.inode(file.ino()).unwrap();
        assert_eq!(found.disk().mtime, LONG_AGO);
        drop(file);
        world.finish(&[&["a"]]);
    });
}

#[test]
fn what_is_on_its_way_is_data_to_who_looks_for_it() {
    let image = image();
    explore("what_is_on_its_way_is_data", move || {
        let world = World::new(&image);
        let file = world.written_in_a_hole(2048, &[1; 1024]);
        let look = |fs: &Fs, _: &Arc<MemoryDevice>, file: Held| {
            for _ in 0..2 {
                assert_eq!(data::seek_data_live(fs, &file, 0).unwrap(), Some(2048));
                assert_eq!(data::seek_hole_live(fs, &file, 2048).unwrap(), Some(3072));
                assert_eq!(data::seek_data_live(fs, &file, 3072).unwrap(), None);
                let all = data::allocated_live(fs, &file).unwrap();
                let all: Vec<_> = all.iter().map(|piece| (piece.offset, piece.len)).collect();
                assert_eq!(all, [(2048, 1024)]);
            }
        };
        join([
            world.at_work(&(), |fs, _, ()| fs.sync().unwrap()),
            world.at_work(&file, look),
        ]);
        drop(file);
        world.finish(&[&["a", "b"]]);
    });
}

/// Making a file longer clears what lies past its end on the device, where another thread may be
/// putting data just then.
#[test]
fn what_another_writes_back_stays_when_the_file_is_made_longer() {
    let image = image();
    explore("what_another_writes_back_stays", move || {
        let world = World::new(&image);
        let file = create(&world.fs, &world.root(), "a").unwrap();
        write(&world.fs, &file, 0, &[1; 1500]);
        ops::fsync(&world.fs, &file).unwrap();
        write(&world.fs, &file, 1500, &[1; 1500]);
        join([
            world.at_work(&(), |fs, _, ()| fs.write_back().unwrap()),
            world.at_work(&file, |fs, _, file| {
                ops::truncate(fs, &file, SIZE).unwrap();
                write(fs, &file, 4000, &[1; 100]);
            }),
        ]);
        ops::fdatasync(&world.fs, &file).unwrap();
        let mut all = expected(0, &[1; 3000]);
        all[4000..4100].fill(1);
        assert!(after_a_crash(&world.device) == all);
        drop(file);
        world.finish(&[&["a"]]);
    });
}

/// Nobody holds the file, there is no room for its inode, and its record is durable: it stays for
/// the sake of its data.
#[test]
fn an_inode_stays_while_its_data_is_being_stored() {
    let image = image();
    explore("an_inode_stays_while_its_data_is_being_stored", move || {
        let world = World::with_few_inodes(&image);
        let file = world.written_in_a_hole(0, &[1; 1024]);
        let ino = file.ino();
        drop(file);
        join([
            world.at_work(&(), |fs, _, ()| fs.write_back().unwrap()),
            world.at_work(&ino, |fs, _, ino| read_as_written(fs, ino)),
        ]);
        read_as_written(&world.fs, ino);
        ops::syncfs(&world.fs).unwrap();
        assert!(after_a_crash(&world.device) == expected(0, &[1; 1024]));
        world.finish(&[&["a", "b"]]);
    });
}

/// Has other inodes push this one out of memory, if it may go, and reads what there is of it.
fn read_as_written(fs: &Fs, ino: Ino) {
    for other in [2, 7, 8, 11] {
        let _ = fs.inode(Ino::new(other));
    }
    let file = fs.hold(ino).unwrap();
    let mut found = vec![0xaa; 2 * SIZE as usize];
    let len = ops::pread(fs, &file, 0, &mut found).unwrap();
    found.truncate(len);
    assert!(found == expected(0, &[1; 1024]));
}
