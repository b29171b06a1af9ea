//! Directories that are made in their inodes, and take names there.

use crate::inline_files::{fill, lies_in_its_inode};
use crate::support::Blank;
use extant::{FileFlags, Filesystem};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::assert_clean;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Bytes of names that the map holds: all but the number of the parent.
const IN_MAP: usize = 56;
/// Bytes of a record of a name of 1 to 4 bytes.
const RECORD: usize = 12;

fn image(inode_size: usize, features: &str) -> Blank {
    let features = format!("inline_data,^resize_inode{features}");
    let size = inode_size.to_string();
    let options = ["-t", "ext4", "-b", "1024", "-I", &size, "-N", "512"];
    Blank::with(16, &[&options[..], &["-O", &features]].concat())
}

/// Bytes of names beside the attribute that holds them, in a record of this size without any other.
fn in_attribute(inode_size: usize) -> usize {
    inode_size - 128 - 32 - 4 - 20 - 4
}

/// The names of a directory, each listed once.
fn listed(fs: &Filesystem, path: &str) -> BTreeSet<String> {
    let entries = fs.read_dir(path).unwrap().map(Result::unwrap);
    let names: Vec<String> = entries
        .map(|entry| entry.file_name().to_str().unwrap().to_owned())
        .collect();
    let set = BTreeSet::from_iter(names.iter().cloned());
    assert_eq!(set.len(), names.len(), "{path}: {names:?}");
    set
}

fn listed_by_linux(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_directory_takes_names_in_its_inode_while_they_fit() {
    for inode_size in [256, 512, 1024] {
        let image = image(inode_size, "");
        let most = IN_MAP / RECORD + in_attribute(inode_size) / RECORD;
        let fs = image.open_writable();
        fs.create_dir("/dir").unwrap();
        fs.create_dir("/dir/sub").unwrap();
        let name = |n: usize| format!("/dir/{n:04}");
        for n in 1..most {
            fs.create(name(n)).unwrap();
        }
        let in_attribute = (most - IN_MAP / RECORD) * RECORD;
        let metadata = fs.metadata("/dir").unwrap();
        assert_eq!(metadata.len(), 60 + in_attribute as u64);
        assert_eq!((metadata.blocks(), metadata.nlink()), (0, 3));
        // What goes makes room, and nothing else moves.
        fs.remove_file(name(2)).unwrap();
        fs.rename(name(most - 1), "/dir/last").unwrap();
        fs.create(name(2)).unwrap();
        assert_eq!(fs.metadata("/dir").unwrap().blocks(), 0);
        fs.close().unwrap();
        image.check();
        for path in ["/dir", "/dir/sub"] {
            assert!(lies_in_its_inode(image.path(), path), "{path}");
        }
        // One more has no room.
        let fs = image.open_writable();
        let before = listed(&fs, "/dir");
        assert_eq!(before.len(), most);
        fs.create("/dir/more").unwrap();
        assert_eq!(fs.metadata("/dir").unwrap().len(), 1024);
        let mut after = before;
        after.insert("more".to_owned());
        assert_eq!(listed(&fs, "/dir"), after);
        // It does not come back.
        for name in &after {
            match name.as_str() {
                "sub" => fs.remove_dir("/dir/sub").unwrap(),
                name => fs.remove_file(format!("/dir/{name}")).unwrap(),
            }
        }
        fs.create("/dir/only").unwrap();
        fs.close().unwrap();
        image.check();
        assert!(!lies_in_its_inode(image.path(), "/dir"));
    }
}

#[test]
fn attributes_and_names_share_what_room_there_is() {
    let image = image(256, "");
    let fs = image.open_writable();
    fs.create_dir("/first").unwrap();
    fs.set_xattr("/first", "user.a", [1; 20]).unwrap();
    let room = in_attribute(256) - 20 - 20;
    let most = IN_MAP / RECORD + room / RECORD;
    for n in 0..most {
        fs.create(format!("/first/{n:04}")).unwrap();
    }
    assert_eq!(fs.metadata("/first").unwrap().blocks(), 0);
    fs.create("/first/more").unwrap();
    assert!(fs.metadata("/first").unwrap().blocks() > 0);
    assert_eq!(fs.get_xattr("/first", "user.a").unwrap(), Some(vec![1; 20]));
    // The other way round the attribute goes elsewhere.
    fs.create_dir("/second").unwrap();
    for n in 0..IN_MAP / RECORD + in_attribute(256) / RECORD {
        fs.create(format!("/second/{n:04}")).unwrap();
    }
    fs.set_xattr("/second", "user.a", [2; 20]).unwrap();
    // A name in the place of another one; a rename would want both for a moment.
    fs.remove_file("/second/0008").unwrap();
    fs.create("/second/next").unwrap();
    fs.close().unwrap();
    image.check();
    assert!(lies_in_its_inode(image.path(), "/second"));
    let fs = Filesystem::open(image.path()).unwrap();
    assert_eq!(
        fs.get_xattr("/second", "user.a").unwrap(),
        Some(vec![2; 20])
    );
    assert!(listed(&fs, "/second").contains("next"));
}

#[test]
fn directories_and_names_in_inodes_need_no_space_and_what_does_not_fit_changes_nothing() {
    let image = image(256, "");
    let fs = image.open_writable();
    fs.create_dir("/a").unwrap();
    fill(&fs);
    fs.create_dir("/a/b").unwrap();
    fs.create_dir("/a/b/c").unwrap();
    fs.write("/a/b/c/file", b"text").unwrap();
    fs.rename("/a/b/c", "/a/c").unwrap();
    let long = "n".repeat(200);
    let before = fs.metadata("/a").unwrap();
    for _ in 0..2 {
        let refused = fs.create(format!("/a/{long}")).map(drop);
        assert_eq!(refused.unwrap_err().errno(), 28);
        let refused = fs.create_dir(format!("/a/{long}"));
        assert_eq!(refused.unwrap_err().errno(), 28);
        let refused = fs.rename("/a/c/file", format!("/a/{long}"));
        assert_eq!(refused.unwrap_err().errno(), 28);
    }
    let after = fs.metadata("/a").unwrap();
    assert_eq!(
        (before.len(), before.nlink(), before.mtime()),
        (after.len(), after.nlink(), after.mtime())
    );
    assert_eq!(fs.read("/a/c/file").unwrap(), b"text");
    fs.remove_file("/filler").unwrap();
    fs.sync().unwrap();
    fs.create(format!("/a/{long}")).unwrap();
    fs.close().unwrap();
    image.check();
    assert!(!lies_in_its_inode(image.path(), "/a"));
    assert!(lies_in_its_inode(image.path(), "/a/c"));
}

#[test]
fn names_that_differ_in_case_are_one_in_an_inode_too() {
    let image = image(256, ",casefold");
    let fs = image.open_writable();
    fs.create_dir("/d").unwrap();
    fs.set_flags("/d", FileFlags::CASEFOLD, FileFlags::empty())
        .unwrap();
    fs.create_dir("/d/Sub").unwrap();
    fs.write("/d/Gr\u{f6}\u{df}e", b"1").unwrap();
    assert_eq!(fs.create_dir("/d/GR\u{d6}SSE").unwrap_err().errno(), 17);
    assert_eq!(fs.read("/d/gr\u{f6}sse").unwrap(), b"1");
    fs.rename("/d/gr\u{d6}sse", "/d/SUB/File").unwrap();
    assert_eq!(fs.metadata("/d").unwrap().blocks(), 0);
    fs.create_dir(format!("/d/{}", "Long".repeat(40))).unwrap();
    assert!(fs.metadata("/d").unwrap().blocks() > 0);
    assert_eq!(fs.read("/D/sub/file").unwrap_err().errno(), 2);
    assert_eq!(fs.read("/d/sub/file").unwrap(), b"1");
    fs.remove_file("/d/sUB/fILE").unwrap();
    fs.remove_dir("/d/sUb").unwrap();
    fs.close().unwrap();
    image.check();
}

#[test]
fn many_hands_in_one_directory_lose_no_name_when_it_leaves_its_inode() {
    let seed = seed_from_env("many hands in an inline directory");
    // Of the first round all names fit, with one more for each rename; in the second there are too
    // many at some time.
    for (round, most) in [(0, 1), (1, 8)] {
        let image = image(256, "");
        let fs = image.open_writable();
        fs.create_dir("/dir").unwrap();
        let kept: Vec<BTreeSet<String>> = std::thread::scope(|scope| {
            let threads = (0..4_u64).map(|thread| {
                let fs = &fs;
                let seed = seed.wrapping_add(10 * round + thread);
                scope.spawn(move || come_and_go(fs, &mut Rng::new(seed), thread, most))
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let expected: BTreeSet<String> = kept.into_iter().flatten().collect();
        assert_eq!(listed(&fs, "/dir"), expected);
        assert_eq!(fs.metadata("/dir").unwrap().blocks() == 0, round == 0);
        fs.close().unwrap();
        image.check();
    }
}

/// Makes and removes names of up to four bytes, `most` at a time, and looks for those there are.
fn come_and_go(fs: &Filesystem, rng: &mut Rng, thread: u64, most: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for step in 0..600 {
        let name = format!("{thread}{:03}", rng.below(100));
        let path = format!("/dir/{name}");
        if names.remove(&name) {
            if fs.metadata(&path).unwrap().is_dir() {
                fs.remove_dir(&path).unwrap()
            } else {
                fs.remove_file(&path).unwrap()
            }
        } else if names.len() < most {
            match rng.below(3) {
                0 => fs.create_dir(&path).unwrap(),
                _ => drop(fs.create(&path).unwrap()),
            }
            names.insert(name);
        } else {
            let from = names.pop_first().unwrap();
            fs.rename(format!("/dir/{from}"), &path).unwrap();
            names.insert(name);
        }
        let own = |name: &String| name.starts_with(&thread.to_string());
        let all = listed(fs, "/dir");
        let there: BTreeSet<String> = all.into_iter().filter(own).collect();
        assert_eq!(there, names, "thread {thread}, step {step}");
    }
    names
}

/// What there is: directories and files by path, and of each directory the attribute that it was
/// given.
#[derive(Default)]
struct Tree {
    dirs: BTreeMap<String, Option<Vec<u8>>>,
    files: BTreeSet<String>,
}

impl Tree {
    fn children(&self, dir: &str) -> BTreeSet<String> {
        let all = self.dirs.keys().chain(&self.files);
        let below = all.filter_map(|path| path.strip_prefix(dir)?.strip_prefix('/'));
        let own = below.filter(|rest| !rest.contains('/'));
        own.map(str::to_owned).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.dirs.contains_key(path) || self.files.contains(path)
    }

    /// Moves a file, or a directory with all that is in it, over what is there.
    fn rename(&mut self, from: &str, to: &str) {
        if self.files.remove(from) {
            self.files.insert(to.to_owned());
            return;
        }
        let moved = |path: &str| {
            let rest = path.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        self.dirs.remove(to);
        let dirs = std::mem::take(&mut self.dirs).into_iter();
        self.dirs = dirs
            .map(|(path, value)| (moved(&path).unwrap_or(path), value))
            .collect();
        let files = std::mem::take(&mut self.files).into_iter();
        self.files = files.map(|path| moved(&path).unwrap_or(path)).collect();
    }
}

/// What changes the tree: the engine, or Linux through a mount.
enum Side {
    Engine(Filesystem),
    Linux(KernelMount),
}

impl Side {
    fn at(mount: &KernelMount, path: &str) -> std::path::PathBuf {
        mount.join(path.trim_start_matches('/'))
    }

    fn mkdir(&self, path: &str) {
        match self {
            Self::Engine(fs) => fs.create_dir(path).unwrap(),
            Self::Linux(mount) => std::fs::create_dir(Self::at(mount, path)).unwrap(),
        }
    }

    fn create(&self, path: &str) {
        match self {
            Self::Engine(fs) => drop(fs.create(path).unwrap()),
            Self::Linux(mount) => std::fs::write(Self::at(mount, path), b"").unwrap(),
        }
    }

    fn remove(&self, path: &str, is_dir: bool) {
        match (self, is_dir) {
            (Self::Engine(fs), true) => fs.remove_dir(path).unwrap(),
            (Self::Engine(fs), false) => fs.remove_file(path).unwrap(),
            (Self::Linux(mount), true) => std::fs::remove_dir(Self::at(mount, path)).unwrap(),
            (Self::Linux(mount), false) => std::fs::remove_file(Self::at(mount, path)).unwrap(),
        }
    }

    fn rename(&self, from: &str, to: &str) {
        match self {
            Self::Engine(fs) => fs.rename(from, to).unwrap(),
            Self::Linux(mount) => {
                std::fs::rename(Self::at(mount, from), Self::at(mount, to)).unwrap();
            }
        }
    }

    fn set(&self, path: &str, value: &[u8]) {
        match self {
            Self::Engine(fs) => fs.set_xattr(path, "user.a", value).unwrap(),
            Self::Linux(mount) => {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(Self::at(mount, path), "user.a", value, flags).unwrap();
            }
        }
    }
}

/// One change by chance, which both sides can make.
fn change(side: &Side, tree: &mut Tree, rng: &mut Rng) -> String {
    let dirs: Vec<String> = tree.dirs.keys().cloned().collect();
    let name = |rng: &mut Rng| {
        // Mostly short ones, so that directories stay in their inodes for a while.
        let most = *rng.pick(&[4, 4, 4, 12, 12, 40, 200]);
        let number = rng.below(60);
        format!("{number}{}", "n".repeat(rng.below(most) as usize))
    };
    let dir = rng.pick(&dirs).clone();
    let path = format!("{dir}/{}", name(rng));
    match rng.below(12) {
        0..2 if dirs.len() < 30 && !tree.has(&path) && dir.matches('/').count() < 5 => {
            side.mkdir(&path);
            tree.dirs.insert(path.clone(), None);
            format!("mkdir {path}")
        }
        2..7 if !tree.has(&path) => {
            side.create(&path);
            tree.files.insert(path.clone());
            format!("create {path}")
        }
        7 if !dir.is_empty() => {
            let value = vec![rng.below(256) as u8; rng.between(1, 60) as usize];
            side.set(&dir, &value);
            tree.dirs.insert(dir.clone(), Some(value));
            format!("setxattr {dir}")
        }
        8..10 => {
            let all: Vec<String> = tree.children(&dir).into_iter().collect();
            if all.is_empty() {
                return String::new();
            }
            let gone = format!("{dir}/{}", rng.pick(&all));
            let is_dir = tree.dirs.contains_key(&gone);
            if is_dir && !tree.children(&gone).is_empty() {
                return String::new();
            }
            side.remove(&gone, is_dir);
            tree.dirs.remove(&gone);
            tree.files.remove(&gone);
            format!("remove {gone}")
        }
        _ => {
            let from_dir = rng.pick(&dirs).clone();
            let all: Vec<String> = tree.children(&from_dir).into_iter().collect();
            if all.is_empty() {
                return String::new();
            }
            let from = format!("{from_dir}/{}", rng.pick(&all));
            let is_dir = tree.dirs.contains_key(&from);
            // Over something of its kind, sometimes.
            let others: Vec<String> = tree.children(&dir).into_iter().collect();
            let to = if !others.is_empty() && rng.one_in(2) {
                format!("{dir}/{}", rng.pick(&others))
            } else {
                path
            };
            let below = format!("{to}/").starts_with(&format!("{from}/"));
            let over = if tree.dirs.contains_key(&to) {
                is_dir && tree.children(&to).is_empty()
            } else {
                !(is_dir && tree.files.contains(&to))
            };
            if below || !over {
                return String::new();
            }
            side.rename(&from, &to);
            tree.rename(&from, &to);
            format!("rename {from} {to}")
        }
    }
}

#[test]
fn linux_and_the_engine_change_directories_in_inodes_in_turns() {
    require!(Root, LoopDevices, KernelExt4);
    let seed = seed_from_env("inline directories in turns");
    let rng = &mut Rng::new(seed);
    let mut inside = [0; 2];
    for (inode_size, features) in [(256, ""), (512, ",^dir_index"), (1024, ",^metadata_csum")] {
        let image = image(inode_size, features);
        let mut tree = Tree::default();
        tree.dirs.insert(String::new(), None);
        for turn in 0..8 {
            let side = match turn % 2 {
                0 => Side::Engine(image.open_writable()),
                _ => Side::Linux(KernelMount::mount(image.path(), Mode::ReadWrite, "")),
            };
            let mut done = Vec::new();
            for _ in 0..60 {
                done.push(change(&side, &mut tree, rng));
            }
            match side {
                Side::Engine(fs) => fs.close().unwrap(),
                Side::Linux(mount) => mount.unmount(),
            }
            println!("turn {turn}: {done:?}");
            assert_clean(image.path());
            let mount = KernelMount::mount(image.path(), Mode::ReadOnly, "");
            let fs = Filesystem::open(image.path()).unwrap();
            for (dir, value) in &tree.dirs {
                let mut expected = tree.children(dir);
                if dir.is_empty() {
                    expected.insert("lost+found".to_owned());
                }
                let told = format!("inodes of {inode_size}, turn {turn}, {dir}/");
                let path = format!("{dir}/");
                let by_linux = listed_by_linux(&Side::at(&mount, dir));
                assert_eq!(by_linux, expected, "{told}, by Linux");
                assert_eq!(listed(&fs, &path), expected, "{told}");
                assert_eq!(&fs.get_xattr(&path, "user.a").unwrap(), value, "{told}");
                inside[usize::from(fs.metadata(&path).unwrap().blocks() > 0)] += 1;
            }
        }
    }
    println!("{} times in an inode, {} times not", inside[0], inside[1]);
    assert!(inside.iter().all(|times| *times > 20), "{inside:?}");
}
