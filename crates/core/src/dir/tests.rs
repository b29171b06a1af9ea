//! Directories that change, against a map of names; through the doors that only the engine has.

use super::{Cookie, Found, insert, insert_credits, remove, remove_credits, replace, set_parent};
use super::{find, init, init_credits, is_empty, readdir_live};
use crate::Error;
use crate::fs::{Fs, MountOptions};
use crate::inode::{FileType, Held};
use crate::lifecycle::NewInode;
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::inode::{InodeFlags, Timestamp};
use extant_format::{Ino, Lblk};
use extant_testkit::crash::Content;
use extant_testkit::facility::Facility;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{assert_clean, e2fsck, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Files that names are given to; each can have 65,000.
const FILES: usize = 4;

type Model = BTreeMap<Vec<u8>, Ino>;

/// A file system with a directory to fill.
struct Rig {
    device: SharedDevice,
    fs: Arc<Fs>,
    dir: Held,
    files: Vec<Ino>,
}

impl Rig {
    fn new(mib: u64, options: &[&str]) -> Self {
        Self::prepared(mib, options, |_| ())
    }

    fn prepared(mib: u64, options: &[&str], prepare: impl FnOnce(&PathBuf)) -> Self {
        Self::with(mib, options, prepare, MountOptions::read_write())
    }

    fn with_memory(mib: u64, options: &[&str], bytes: usize) -> Self {
        Self::with(
            mib,
            options,
            |_| (),
            MountOptions::read_write().memory(bytes),
        )
    }

    fn with(
        mib: u64,
        options: &[&str],
        prepare: impl FnOnce(&PathBuf),
        mount: MountOptions,
    ) -> Self {
        let temp = TempDir::new().unwrap();
        let image = temp.path().join("image");
        mke2fs(&image, mib * MIB, options);
        prepare(&image);
        let device: SharedDevice = Content::of_file(&image).open();
        let fs = Fs::open(Arc::clone(&device), mount.background(false)).unwrap();
        let root = fs.hold(Ino::ROOT).unwrap();
        let dir = make_dir(&fs, &root, b"dir");
        let files = (0..FILES)
            .map(|i| make_file(&fs, &root, format!("file{i}").as_bytes()))
            .collect();
        Self {
            device,
            fs,
            dir,
            files,
        }
    }

    fn insert(&self, name: &[u8], ino: Ino) -> crate::Result<()> {
        let credits = insert_credits(&self.fs, &self.dir.snapshot());
        let handle = self.fs.start(credits)?;
        insert(&handle, &self.dir, name, ino, FileType::Regular)
    }

    fn remove(&self, name: &[u8]) -> crate::Result<Found> {
        let credits = remove_credits(&self.fs, &self.dir.snapshot());
        let handle = self.fs.start(credits)?;
        remove(&handle, &self.dir, name)
    }

    fn replace(&self, name: &[u8], ino: Ino) -> crate::Result<Found> {
        let credits = remove_credits(&self.fs, &self.dir.snapshot());
        let handle = self.fs.start(credits)?;
        replace(&handle, &self.dir, name, ino, FileType::Regular)
    }

    fn lookup(&self, name: &[u8]) -> Option<Ino> {
        find(&self.fs, &self.dir, name)
            .unwrap()
            .map(|found| found.ino)
    }

    fn list(&self) -> Model {
        let mut all = Model::new();
        self.list_from(Cookie::START, |name, ino, _| {
            assert!(all.insert(name.to_vec(), ino).is_none(), "listed twice");
            true
        });
        all
    }

    /// Lists until `visit` says no; without the dots.
    fn list_from(&self, from: Cookie, mut visit: impl FnMut(&[u8], Ino, Cookie) -> bool) {
        readdir_live(&self.fs, &self.dir, from, |entry| {
            if entry.name == b"." || entry.name == b".." {
                return ControlFlow::Continue(());
            }
            if visit(entry.name, entry.ino, entry.next) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
        .unwrap();
    }

    /// Gives files the link counts that the names ask for, closes, and returns the image.
    fn close(self, model: &Model) -> (TempDir, PathBuf) {
        for ino in &self.files {
            let held = self.fs.hold(*ino).unwrap();
            let names = model.values().filter(|target| *target == ino).count();
            let handle = self.fs.start(2).unwrap();
            held.live()
                .update(&handle, |inode| {
                    inode.disk_mut().links = u16::try_from(names + 1).unwrap();
                })
                .unwrap();
        }
        drop(self.dir);
        self.fs.close().unwrap();
        let temp = TempDir::new().unwrap();
        let path = temp.path().join("image");
        let content = Content::of_device(&*self.device as &dyn BlockDevice).unwrap();
        content.write_to(&path).unwrap();
        (temp, path)
    }

    /// Closes; e2fsck must find no fault, and the kernel the same names.
    fn judge(self, model: &Model) {
        let mounts = self.fs.block_size().len() <= 4096;
        let (_temp, path) = self.close(model);
        assert_clean(&path);
        if Facility::KernelExt4.check().is_ok() && mounts {
            let mount = KernelMount::mount(&path, Mode::ReadOnly, "");
            let names: BTreeSet<Vec<u8>> = std::fs::read_dir(mount.join("dir"))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_encoded_bytes())
                .collect();
            assert!(names.iter().eq(model.keys()), "the kernel lists others");
            for name in model.keys().step_by(97) {
                let name = std::str::from_utf8(name).unwrap();
                std::fs::symlink_metadata(mount.join("dir").join(name)).unwrap();
            }
            mount.unmount();
        }
    }
}

fn make_file(fs: &Fs, parent: &Held, name: &[u8]) -> Ino {
    make(fs, parent, name, FileType::Regular).ino()
}

fn make_dir(fs: &Fs, parent: &Held, name: &[u8]) -> Held {
    make(fs, parent, name, FileType::Directory)
}

fn make(fs: &Fs, parent: &Held, name: &[u8], file_type: FileType) -> Held {
    let image = parent.snapshot();
    let credits = fs.new_inode_credits() + init_credits(fs) + insert_credits(fs, &image) + 1;
    let handle = fs.start(credits).unwrap();
    let new = NewInode::new(file_type, 0o755, Timestamp::from_secs(1_700_000_000));
    let held = fs.new_inode(&handle, &image, &new).unwrap();
    if file_type == FileType::Directory {
        init(&handle, &held, parent.ino()).unwrap();
        let link = |inode: &mut crate::inode::Inode| inode.disk_mut().links += 1;
        parent.live().update(&handle, link).unwrap();
    }
    insert(&handle, parent, name, held.ino(), file_type).unwrap();
    held
}

/// A name of up to `longest` letters.
fn any_name(rng: &mut Rng, longest: u64) -> Vec<u8> {
    let len = rng.between(1, longest);
    (0..len).map(|_| rng.between(97, 122) as u8).collect()
}

/// Does random things to the directory and the map, and compares.
fn mix(rig: &Rig, rng: &mut Rng, model: &mut Model, steps: usize, longest: u64) {
    for _ in 0..steps {
        // More come than go.
        let name = if rng.below(3) > 0 {
            any_name(rng, longest)
        } else {
            let from = any_name(rng, longest);
            let known = model.range(from.clone()..).next();
            known.map_or(from, |(name, _)| name.clone())
        };
        let ino = *rng.pick(&rig.files);
        assert_eq!(rig.lookup(&name), model.get(&name).copied());
        match (model.contains_key(&name), rng.below(3)) {
            (false, 0) => {
                assert!(matches!(rig.remove(&name), Err(Error::NotFound)));
                assert!(matches!(rig.replace(&name, ino), Err(Error::NotFound)));
            }
            (false, _) => {
                rig.insert(&name, ino).unwrap();
                model.insert(name, ino);
            }
            (true, 0) => {
                let before = rig.replace(&name, ino).unwrap().ino;
                assert_eq!(model.insert(name, ino), Some(before));
            }
            (true, _) => {
                let gone = rig.remove(&name).unwrap().ino;
                assert_eq!(model.remove(&name), Some(gone));
            }
        }
    }
    assert_eq!(rig.list(), *model);
}

/// Kinds of images whose directories differ.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^filetype"],
    &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^dir_index,^metadata_csum",
    ],
    &["-t", "ext4", "-b", "2048", "-O", "large_dir"],
    &["-t", "ext4", "-b", "65536"],
];

#[test]
fn directories_do_what_a_map_does() {
    let seed = seed_from_env("directories_do_what_a_map_does");
    for kind in KINDS {
        let rng = &mut Rng::new(seed);
        let rig = Rig::new(24, kind);
        let mut model = Model::new();
        let linear = kind.iter().any(|o| o.contains("^dir_index"));
        for longest in [8, 40, 200] {
            mix(
                &rig,
                rng,
                &mut model,
                if linear { 400 } else { 1500 },
                longest,
            );
        }
        println!(
            "{kind:?}: {} names, {} bytes",
            model.len(),
            rig.dir.snapshot().size()
        );
        rig.judge(&model);
    }
}

#[test]
fn every_hash_function_is_written() {
    let seed = seed_from_env("every_hash_function_is_written");
    for algorithm in ["legacy", "half_md4", "tea"] {
        for flags in [1, 2] {
            let rig = Rig::prepared(24, &["-t", "ext4", "-b", "1024"], |image| {
                let set = format!("hash_alg={algorithm}");
                tool("tune2fs").args(["-E", &set]).arg(image).ok();
                let set = format!("set_super_value flags {flags}");
                extant_testkit::oracle::debugfs_write(image, &[&set]);
            });
            let mut model = Model::new();
            let rng = &mut Rng::new(seed);
            for i in 0..1200_usize {
                let name = [
                    &any_name(rng, 20)[..],
                    "é\u{ff}".as_bytes(),
                    i.to_string().as_bytes(),
                ]
                .concat();
                let ino = rig.files[i % FILES];
                rig.insert(&name, ino).unwrap();
                model.insert(name, ino);
            }
            mix(&rig, rng, &mut model, 300, 30);
            rig.judge(&model);
        }
    }
}

#[test]
fn an_index_grows_to_three_levels_and_is_searched_there() {
    let seed = seed_from_env("an_index_grows_to_three_levels");
    let rng = &mut Rng::new(seed);
    let rig = Rig::new(
        96,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "large_dir",
            "-J",
            "size=8",
        ],
    );
    let mut model = Model::new();
    let long = "x".repeat(200);
    for i in 0..50_000_usize {
        let name = format!("{long}{i:x}").into_bytes();
        let ino = rig.files[i % FILES];
        rig.insert(&name, ino).unwrap();
        model.insert(name, ino);
    }
    let image = rig.dir.snapshot();
    let block = super::block::Directory::new(&rig.fs, &image).unwrap();
    let root = block.block(Lblk::new(0)).unwrap().unwrap();
    assert_eq!(root[30], 2, "levels of inner nodes");
    for name in model.keys().step_by(7) {
        assert_eq!(rig.lookup(name), model.get(name).copied());
    }
    mix(&rig, rng, &mut model, 2000, 200);
    rig.judge(&model);
}

#[test]
fn a_full_index_refuses_new_names_and_keeps_the_old_ones() {
    let rig = Rig::new(
        96,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^large_dir",
            "-J",
            "size=8",
        ],
    );
    let mut model = Model::new();
    let long = "x".repeat(240);
    let mut refused = 0;
    for i in 0..80_000_usize {
        let name = format!("{long}{i:x}").into_bytes();
        let ino = rig.files[i % FILES];
        match rig.insert(&name, ino) {
            Ok(()) => {
                model.insert(name, ino);
            }
            Err(Error::NoSpace) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        if refused == 50 {
            break;
        }
    }
    assert!(refused == 50 && model.len() > 20_000, "{}", model.len());
    // What goes makes room.
    let gone: Vec<_> = model.keys().step_by(3).cloned().collect();
    for name in &gone {
        rig.remove(name).unwrap();
        model.remove(name);
    }
    for name in &gone {
        rig.insert(name, rig.files[0]).unwrap();
        model.insert(name.clone(), rig.files[0]);
    }
    assert_eq!(rig.list(), model);
    rig.judge(&model);
}

/// Ends of names of one legacy hash, behind 240 times `x`.
const SAME_HASH: [&str; 16] = [
    "aaaaaaaa", "aicluqlo", "aqjuxnay", "azdvxuon", "bqijmlvz", "bvaucsku", "cajaotpm", "cdvfbmgt",
    "dbzmvvev", "dfolixlo", "dqrcvpsn", "drbrxmcy", "ecgjhtcf", "enjsxyvz", "epkzrydm", "epseddsi",
];

#[test]
fn names_of_one_hash_fill_several_leaves() {
    let seed = seed_from_env("names_of_one_hash_fill_several_leaves");
    let rng = &mut Rng::new(seed);
    for _ in 0..4 {
        let rig = Rig::prepared(16, &["-t", "ext4", "-b", "1024"], |image| {
            tool("tune2fs")
                .args(["-E", "hash_alg=legacy"])
                .arg(image)
                .ok();
        });
        let mut model = Model::new();
        let mut names: Vec<_> = SAME_HASH
            .iter()
            .map(|end| format!("{}{end}", "x".repeat(240)).into_bytes())
            .collect();
        for i in 0..60 {
            names.push(format!("{}{i}", "y".repeat(200)).into_bytes());
        }
        for i in (1..names.len()).rev() {
            names.swap(i, rng.below(i as u64 + 1) as usize);
        }
        for (i, name) in names.iter().enumerate() {
            rig.insert(name, rig.files[i % FILES]).unwrap();
            model.insert(name.clone(), rig.files[i % FILES]);
            assert_eq!(rig.list(), model);
        }
        for name in &names {
            assert_eq!(rig.lookup(name), model.get(name).copied());
        }
        // One by one, listings go on between equal hashes too.
        let mut one_by_one = Model::new();
        let mut from = Cookie::START;
        loop {
            let mut last = None;
            rig.list_from(from, |name, ino, next| {
                last = Some((name.to_vec(), ino, next));
                false
            });
            let Some((name, ino, next)) = last else { break };
            assert!(one_by_one.insert(name, ino).is_none());
            from = next;
        }
        assert_eq!(one_by_one, model);
        for name in names.iter().step_by(2) {
            assert_eq!(Some(rig.remove(name).unwrap().ino), model.remove(name));
            assert_eq!(rig.lookup(name), None);
        }
        assert_eq!(rig.list(), model);
        rig.judge(&model);
    }
}

#[test]
fn what_stays_is_listed_once_while_others_come_and_go() {
    let seed = seed_from_env("what_stays_is_listed_once");
    for kind in KINDS {
        let rng = &mut Rng::new(seed);
        let rig = Rig::new(24, kind);
        let mut model = Model::new();
        let fixed: BTreeSet<_> = (0..10).map(|i| format!("fixed{i}").into_bytes()).collect();
        for name in &fixed {
            rig.insert(name, rig.files[0]).unwrap();
            model.insert(name.clone(), rig.files[0]);
        }
        for _ in 0..6 {
            let stays = model.clone();
            let mut seen = BTreeMap::<Vec<u8>, usize>::new();
            let mut from = Cookie::START;
            loop {
                let mut some = rng.below(7) + 1;
                let mut at_end = true;
                rig.list_from(from, |name, _, next| {
                    *seen.entry(name.to_vec()).or_default() += 1;
                    from = next;
                    some -= 1;
                    at_end = some > 0;
                    at_end
                });
                if at_end {
                    break;
                }
                // Others come, so many that blocks split, and go.
                for _ in 0..rng.below(12) {
                    let name = any_name(rng, 60);
                    if model.contains_key(&name) {
                        continue;
                    }
                    rig.insert(&name, rig.files[1]).unwrap();
                    model.insert(name, rig.files[1]);
                }
                let gone: Vec<_> = model
                    .keys()
                    .filter(|name| !stays.contains_key(*name) && rng.one_in(5))
                    .cloned()
                    .collect();
                for name in gone {
                    rig.remove(&name).unwrap();
                    model.remove(&name);
                }
            }
            for name in stays.keys() {
                assert_eq!(seen.get(name), Some(&1), "{kind:?}: {name:?}");
            }
            assert!(seen.values().all(|times| *times == 1));
            if model.len() > 3000 {
                break;
            }
        }
        rig.judge(&model);
    }
}

#[test]
fn threads_fill_and_empty_one_directory() {
    let seed = seed_from_env("threads_fill_and_empty_one_directory");
    for kind in &KINDS[..4] {
        let rig = Rig::new(32, kind);
        let fixed: Vec<_> = (0..50).map(|i| format!("fixed{i}").into_bytes()).collect();
        for name in &fixed {
            rig.insert(name, rig.files[0]).unwrap();
        }
        let threads = 4;
        let models: Vec<Model> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|id| {
                    let (rig, fixed) = (&rig, &fixed);
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed ^ id);
                        let mut model = Model::new();
                        for i in 0..700 {
                            let name = match model.iter().next() {
                                Some((name, _)) if rng.one_in(4) => name.clone(),
                                _ => format!("{id}-{}-{i}", "z".repeat(rng.below(60) as usize))
                                    .into_bytes(),
                            };
                            match model.remove(&name) {
                                Some(ino) => assert_eq!(rig.remove(&name).unwrap().ino, ino),
                                None => {
                                    rig.insert(&name, rig.files[1]).unwrap();
                                    model.insert(name, rig.files[1]);
                                }
                            }
                            // What nobody changes is always found.
                            assert_eq!(
                                rig.lookup(rng.pick(&fixed[..]).as_slice()),
                                Some(rig.files[0])
                            );
                            if i % 100 == 0 {
                                let all = rig.list();
                                assert!(fixed.iter().all(|name| all.contains_key(name)));
                                assert!(model.keys().all(|name| all.contains_key(name)));
                            }
                        }
                        model
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().unwrap()).collect()
        });
        let mut model: Model = models.into_iter().flatten().collect();
        for name in fixed {
            model.insert(name, rig.files[0]);
        }
        assert_eq!(rig.list(), model);
        rig.judge(&model);
    }
}

#[test]
fn no_space_for_a_new_block_leaves_the_directory_as_it_was() {
    let rig = Rig::new(
        8,
        &[
            "-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "64", "-m", "0",
        ],
    );
    let mut model = Model::new();
    let long = "n".repeat(230);
    let mut refused = 0;
    for i in 0..40_000_usize {
        let name = format!("{long}{i:x}").into_bytes();
        match rig.insert(&name, rig.files[i % FILES]) {
            Ok(()) => {
                model.insert(name, rig.files[i % FILES]);
            }
            Err(Error::NoSpace) => {
                assert_eq!(rig.lookup(&name), None);
                refused += 1;
            }
            Err(e) => panic!("{e}"),
        }
        if refused > 200 {
            break;
        }
    }
    assert!(refused > 200, "{} names", model.len());
    assert_eq!(rig.list(), model);
    rig.judge(&model);
}

#[test]
fn blocks_that_left_memory_are_read_back_as_they_were() {
    let seed = seed_from_env("blocks_that_left_memory");
    let rng = &mut Rng::new(seed);
    let rig = Rig::with_memory(48, &["-t", "ext4", "-b", "1024", "-J", "size=2"], 256 << 10);
    let mut model = Model::new();
    for _ in 0..4 {
        mix(&rig, rng, &mut model, 3000, 100);
        rig.fs.sync().unwrap();
    }
    let stats = rig.fs.cache().stats();
    assert!(stats.evictions > 0, "{stats:?}");
    rig.judge(&model);
}

#[test]
fn parents_change_and_directories_empty_themselves() {
    let rig = Rig::new(16, &["-t", "ext4", "-b", "1024"]);
    assert!(is_empty(&rig.fs, &rig.dir).unwrap());
    let sub = make_dir(&rig.fs, &rig.dir, b"sub");
    assert!(!is_empty(&rig.fs, &rig.dir).unwrap());
    for count in [0, 200] {
        for i in 0..count {
            make_file(&rig.fs, &sub, format!("f{i}").as_bytes());
        }
        assert_eq!(
            sub.snapshot().flags().contains(InodeFlags::INDEX),
            count > 0
        );
        for parent in [Ino::ROOT, rig.dir.ino()] {
            let handle = rig.fs.start(1).unwrap();
            set_parent(&handle, &sub, parent).unwrap();
            drop(handle);
            assert_eq!(super::parent(&rig.fs, &sub.snapshot()).unwrap(), parent);
        }
    }
    let handle = rig.fs.start(60).unwrap();
    for name in [&b"."[..], b"..", b"", b"a/b", b"a\0", &[b'l'; 256]] {
        assert!(insert(&handle, &sub, name, Ino::ROOT, FileType::Directory).is_err());
        assert!(remove(&handle, &sub, name).is_err());
    }
    drop(handle);
    drop(sub);
    let fs = Arc::clone(&rig.fs);
    drop(rig.dir);
    fs.close().unwrap();
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("image");
    Content::of_device(&*rig.device)
        .unwrap()
        .write_to(&path)
        .unwrap();
    assert_clean(&path);
}

#[test]
fn a_broken_index_is_not_written_to() {
    let rig = Rig::new(16, &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
    let mut model = Model::new();
    for i in 0..500_usize {
        let name = format!("name{i}").into_bytes();
        rig.insert(&name, rig.files[0]).unwrap();
        model.insert(name, rig.files[0]);
    }
    let (_temp, path) = rig.close(&model);
    for (at, bytes) in [(28, &[77][..]), (36, &[0xff; 60]), (30, &[9])] {
        let device: SharedDevice = Content::of_file(&path).open();
        let open = || {
            let options = MountOptions::read_write().background(false);
            let fs = Fs::open(Arc::clone(&device), options).unwrap();
            let root = fs.inode(Ino::ROOT).unwrap();
            let ino = super::lookup(&fs, &root, b"dir").unwrap().unwrap().ino;
            let dir = fs.hold(ino).unwrap();
            (fs, dir)
        };
        let (fs, dir) = open();
        let root = crate::map::lookup(&fs, &dir.snapshot(), Lblk::new(0)).unwrap();
        let root = root.target.pblk().unwrap();
        drop(dir);
        fs.close().unwrap();
        device.write_at(root.get() * 1024 + at, bytes).unwrap();
        let (fs, dir) = open();
        for name in model.keys() {
            assert!(find(&fs, &dir, name).unwrap().is_some());
        }
        let handle = fs.start(insert_credits(&fs, &dir.snapshot())).unwrap();
        let new = insert(&handle, &dir, b"new", Ino::ROOT, FileType::Directory);
        assert!(new.unwrap_err().is_corruption(), "{at}");
        let gone = remove(&handle, &dir, b"name7");
        assert!(gone.unwrap_err().is_corruption(), "{at}");
        drop(handle);
        assert!(find(&fs, &dir, b"name7").unwrap().is_some());
    }
    let output = e2fsck(&path, &["-fn"]);
    assert_eq!(output.code, 0, "{output}");
}

#[test]
fn whoever_reads_sees_what_was_changed_in_place() {
    let seed = seed_from_env("whoever_reads_sees_what_was_changed_in_place");
    for kind in KINDS {
        let rng = &mut Rng::new(seed);
        let rig = Rig::new(24, kind);
        let mut model = Model::new();
        for _ in 0..600 {
            let steps = rng.between(1, 6) as usize;
            mix_quietly(&rig, rng, &mut model, steps);
            let name = any_name(rng, 2);
            let expected = model.get(&name).copied();
            match rng.below(5) {
                // A lookup that knows the directory's record only.
                0 => {
                    let found = super::lookup(&rig.fs, &rig.dir.snapshot(), &name).unwrap();
                    assert_eq!(found.map(|found| found.ino), expected);
                }
                1 => assert_eq!(rig.lookup(&name), expected),
                2 => assert_eq!(rig.list(), model),
                3 => rig.fs.commit(rig.fs.journal().unwrap().running()).unwrap(),
                _ => {}
            }
        }
        rig.judge(&model);
    }
}

/// Gives and takes names of one or two letters, without a look at others.
fn mix_quietly(rig: &Rig, rng: &mut Rng, model: &mut Model, steps: usize) {
    for _ in 0..steps {
        let name = any_name(rng, 2);
        let ino = *rng.pick(&rig.files);
        if let Some(gone) = model.remove(&name) {
            assert_eq!(rig.remove(&name).unwrap().ino, gone);
        } else {
            rig.insert(&name, ino).unwrap();
            model.insert(name, ino);
        }
    }
}

#[test]
fn threads_see_their_changes_of_blocks_that_others_read_and_commit() {
    let seed = seed_from_env("threads_see_their_changes_of_blocks");
    for kind in [KINDS[0], KINDS[3]] {
        let rig = Rig::new(24, kind);
        rig.insert(b"stays", rig.files[0]).unwrap();
        let models = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3_u8)
                .map(|id| {
                    let rig = &rig;
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed ^ u64::from(id));
                        let mut model = Model::new();
                        for step in 0..300 {
                            let mut name = any_name(&mut rng, 2);
                            name.push(b'0' + id);
                            match model.remove(&name) {
                                Some(ino) => assert_eq!(rig.remove(&name).unwrap().ino, ino),
                                None => {
                                    let ino = *rng.pick(&rig.files);
                                    rig.insert(&name, ino).unwrap();
                                    model.insert(name.clone(), ino);
                                }
                            }
                            assert_eq!(rig.lookup(&name), model.get(&name).copied());
                            assert_eq!(rig.lookup(b"stays"), Some(rig.files[0]));
                            if step % 32 == 0 {
                                rig.fs.commit(rig.fs.journal().unwrap().running()).unwrap();
                            }
                        }
                        model
                    })
                })
                .collect();
            writers
                .into_iter()
                .map(|w| w.join().unwrap())
                .collect::<Vec<_>>()
        });
        let mut model: Model = models.into_iter().flatten().collect();
        model.insert(b"stays".to_vec(), rig.files[0]);
        assert_eq!(rig.list(), model);
        rig.judge(&model);
    }
}
