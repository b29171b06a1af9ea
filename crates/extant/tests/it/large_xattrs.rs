//! Attribute values that are too large for an inode and its block, and lie in inodes of their own:
//! made, shared and given up here and under the kernel.

use crate::support::Blank;
use extant::Filesystem;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::e2fsck;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;

type Values = BTreeMap<(String, String), Vec<u8>>;

const FILES: [&str; 5] = ["a", "b", "c", "d", "e"];
const NAMES: [&str; 4] = ["user.one", "user.two", "trusted.three", "user.four"];

/// Few different values, so that many are equal.
fn pick_value(rng: &mut Rng) -> Vec<u8> {
    let len = *rng.pick(&[0, 10, 300, 1500, 5000, 5000, 20_000, 65_536]);
    vec![*rng.pick(b"xyz"); len]
}

/// What changes attributes.
trait Side {
    fn set(&self, file: &str, name: &str, value: &[u8]) -> Result<(), i32>;
    fn remove(&self, file: &str, name: &str);
    fn delete(&self, file: &str);
    fn make(&self, file: &str);
    fn values(&self) -> Values;
}

impl Side for Filesystem {
    fn set(&self, file: &str, name: &str, value: &[u8]) -> Result<(), i32> {
        self.set_xattr(file, name, value).map_err(|e| e.errno())
    }

    fn remove(&self, file: &str, name: &str) {
        self.remove_xattr(file, name).unwrap();
    }

    fn delete(&self, file: &str) {
        self.remove_file(file).unwrap();
    }

    fn make(&self, file: &str) {
        self.create(file).unwrap();
    }

    fn values(&self) -> Values {
        let mut all = Values::new();
        for file in FILES {
            let Ok(found) = self.xattrs(file) else {
                continue;
            };
            for (name, value) in found {
                all.insert((file.to_owned(), name.into_string().unwrap()), value);
            }
        }
        all
    }
}

impl Side for KernelMount {
    fn set(&self, file: &str, name: &str, value: &[u8]) -> Result<(), i32> {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(self.join(file), name, value, flags).map_err(|e| e.raw_os_error())
    }

    fn remove(&self, file: &str, name: &str) {
        rustix::fs::removexattr(self.join(file), name).unwrap();
    }

    fn delete(&self, file: &str) {
        std::fs::remove_file(self.join(file)).unwrap();
    }

    fn make(&self, file: &str) {
        std::fs::write(self.join(file), "").unwrap();
    }

    fn values(&self) -> Values {
        let mut all = Values::new();
        for file in FILES {
            for name in NAMES {
                let mut value = vec![0; 65_536];
                if let Ok(len) = rustix::fs::getxattr(self.join(file), name, &mut value) {
                    value.truncate(len);
                    all.insert((file.to_owned(), name.to_owned()), value);
                }
            }
        }
        all
    }
}

fn change(side: &dyn Side, rng: &mut Rng, expected: &mut Values) {
    for _ in 0..rng.between(5, 25) {
        let (file, name) = (*rng.pick(&FILES), *rng.pick(&NAMES));
        let key = (file.to_owned(), name.to_owned());
        match rng.below(10) {
            0 => {
                side.delete(file);
                side.make(file);
                expected.retain(|(of, _), _| of != file);
            }
            1..=2 if expected.contains_key(&key) => {
                side.remove(file, name);
                expected.remove(&key);
            }
            _ => {
                let value = pick_value(rng);
                side.set(file, name, &value).unwrap();
                expected.insert(key, value);
            }
        }
        assert!(side.values() == *expected, "after {file} {name}");
    }
}

fn inodes_in_use(image: &Blank) -> u64 {
    let fs = Filesystem::open(image.path()).unwrap();
    let stat = fs.statfs().unwrap();
    stat.inodes - stat.free_inodes
}

/// Expects nothing but what Linux 6.18 does by itself, also to an image that nobody else has
/// changed: when values are shared, given up and read meanwhile, it sometimes leaves a count of
/// references one too high. That is put right.
fn check_after_linux(image: &Blank) {
    let report = e2fsck(image.path(), &["-fn"]);
    if report.code == 0 {
        return;
    }
    let is_miscount = |line: &str| {
        line.starts_with("Extended attribute inode ") && line.contains(" ref count is ")
    };
    let text = report.text();
    let mut faults = text.lines().filter(|line| line.ends_with("? no"));
    assert!(report.code == 4 && faults.all(is_miscount), "{report}");
    println!("counted wrongly by Linux:\n{report}");
    let repaired = e2fsck(image.path(), &["-fy"]);
    assert!(repaired.code == 1, "{repaired}");
    image.check();
}

#[test]
fn values_are_made_shared_and_given_up_by_turns_with_the_kernel() {
    require!(KernelExt4);
    let seed = seed_from_env("large xattrs");
    let rng = &mut Rng::new(seed);
    for options in [
        &["-t", "ext4", "-b", "4096", "-O", "ea_inode"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "ea_inode,orphan_file",
        ],
    ] {
        let image = Blank::with(48, options);
        let before = inodes_in_use(&image);
        let mut expected = Values::new();
        let fs = image.open_writable();
        FILES.iter().for_each(|file| fs.make(file));
        fs.close().unwrap();
        for _ in 0..4 {
            let fs = image.open_writable();
            change(&fs, rng, &mut expected);
            fs.close().unwrap();
            image.check();
            let mount = KernelMount::mount(image.path(), Mode::ReadWrite, "");
            assert!(mount.values() == expected, "as the kernel reads them");
            change(&mount, rng, &mut expected);
            mount.unmount();
            check_after_linux(&image);
        }
        let fs = image.open_writable();
        assert!(fs.values() == expected, "as they are read back");
        FILES.iter().for_each(|file| fs.delete(file));
        fs.close().unwrap();
        image.check();
        assert_eq!(inodes_in_use(&image), before, "inodes with values are left");
    }
}

#[test]
fn equal_values_named_in_the_inode_and_in_the_block_are_both_counted() {
    let image = Blank::with(48, &["-t", "ext4", "-I", "256", "-O", "ea_inode"]);
    let fs = image.open_writable();
    fs.make("c");
    fs.set_xattr("c", "user.large", [7; 30_000]).unwrap();
    // Leaves no room in the inode for another name.
    fs.set_xattr("c", "user.fill", [1; 40]).unwrap();
    fs.set_xattr("c", "user.again", [7; 30_000]).unwrap();
    fs.remove_xattr("c", "user.large").unwrap();
    let again = fs
        .values()
        .remove(&("c".to_owned(), "user.again".to_owned()));
    assert_eq!(again, Some(vec![7; 30_000]));
    fs.close().unwrap();
    image.check();
}

#[test]
fn equal_values_take_one_inode() {
    let image = Blank::with(48, &["-t", "ext4", "-O", "ea_inode"]);
    let fs = image.open_writable();
    FILES.iter().for_each(|file| fs.make(file));
    let free = |fs: &Filesystem| fs.statfs().unwrap().free_inodes;
    let before = free(&fs);
    for file in FILES {
        fs.set_xattr(file, "user.large", [7; 30_000]).unwrap();
    }
    assert_eq!(free(&fs), before - 1);
    for file in FILES {
        fs.remove_xattr(file, "user.large").unwrap();
    }
    assert_eq!(free(&fs), before);
    fs.close().unwrap();
    image.check();
}

#[test]
fn values_stay_too_large_without_the_feature() {
    let image = Blank::new(16);
    let fs = image.open_writable();
    fs.make("a");
    let refused = fs.set_xattr("a", "user.large", [7; 30_000]).unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::NOSPC.raw_os_error());
}
