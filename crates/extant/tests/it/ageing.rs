//! File systems that grow old nearly full: files come, grow, are cut, get holes and go. After every
//! round the image is sound and holds what it should, and in the end all space comes back.

use crate::support::Blank;
use extant::{Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_testkit::facility::is_full_run;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;

const NO_SPACE: i32 = 28;
/// Steps between two checks.
const STEPS: usize = 250;

/// What a file should hold, by name.
type Contents = BTreeMap<String, Vec<u8>>;

struct Life<'a> {
    fs: &'a Filesystem,
    rng: &'a mut Rng,
    files: &'a mut Contents,
    next: &'a mut u64,
}

impl Life<'_> {
    /// Of a hundred blocks so many are in use.
    fn fullness(&self) -> u64 {
        let space = self.fs.statfs().unwrap();
        (space.blocks - space.free) * 100 / space.blocks
    }

    fn step(&mut self) {
        let full = self.fullness();
        let any = || self.files.keys().collect::<Vec<_>>();
        let removes = if full > 93 { 60 } else { 8 };
        if self.files.is_empty() || self.rng.below(100) >= 50 + removes {
            let name = format!("/dir{}/file{}", *self.next % 4, *self.next);
            *self.next += 1;
            self.files.insert(name.clone(), Vec::new());
            self.write(&name, 0);
            return;
        }
        let name = self.rng.pick(&any()).to_string();
        if self.rng.below(100) < removes {
            self.fs.remove_file(&name).unwrap();
            self.files.remove(&name);
            return;
        }
        let len = self.files[&name].len() as u64;
        match self.rng.below(8) {
            0 => {
                let size = self.rng.below(len + 1);
                self.fs.set_len(&name, size).unwrap();
                self.files.get_mut(&name).unwrap().truncate(size as usize);
            }
            // What is left of a cluster may need space.
            1 if full < 90 && len > 0 => {
                let from = self.rng.below(len);
                let to = (from + self.rng.between(1, 40_000)).min(len);
                let file = OpenOptions::new().write(true).open(self.fs, &name).unwrap();
                file.punch_hole(from, to - from).unwrap();
                let content = self.files.get_mut(&name).unwrap();
                content[from as usize..to as usize].fill(0);
            }
            2 | 3 => {
                let at = self.rng.below(len + 1);
                self.write(&name, at);
            }
            // Behind a hole.
            4 => {
                let at = len + self.rng.below(30_000);
                self.write(&name, at);
            }
            _ => self.write(&name, len),
        }
    }

    /// Writes at a place as much as there is room for.
    fn write(&mut self, name: &str, at: u64) {
        let most = 1 << self.rng.between(8, 18);
        let mut bytes = vec![0; self.rng.between(1, most) as usize];
        self.rng.fill(&mut bytes);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).open(self.fs, name);
        let file = match file {
            Err(e) if e.errno() == NO_SPACE => {
                self.files.remove(name);
                return;
            }
            file => file.unwrap(),
        };
        let mut done = 0;
        while done < bytes.len() {
            match file.write_at(&bytes[done..], at + done as u64) {
                Ok(written) => done += written,
                Err(e) if e.errno() == NO_SPACE => break,
                Err(e) => panic!("{name}: {e}"),
            }
        }
        let content = self.files.get_mut(name).unwrap();
        let (at, end) = (at as usize, at as usize + done);
        if done > 0 {
            content.resize(content.len().max(end), 0);
            content[at..end].copy_from_slice(&bytes[..done]);
        }
    }
}

fn age(name: &str, mkfs: &[&str], mount: &MountOptions) {
    let seed = seed_from_env(name);
    let image = Blank::with(24, mkfs);
    let open =
        || Filesystem::open_spec(&OpenSpec::read_write(image.path()), mount.clone()).unwrap();
    let (mut rng, mut files, mut next) = (Rng::new(seed), Contents::new(), 0);
    let fs = open();
    for n in 0..4 {
        fs.create_dir(format!("/dir{n}")).unwrap();
    }
    fs.sync().unwrap();
    let free = fs.statfs().unwrap().free;
    fs.close().unwrap();
    let mut fullest = 0;
    for _ in 0..if is_full_run() { 100 } else { 8 } {
        let fs = open();
        let mut life = Life {
            fs: &fs,
            rng: &mut rng,
            files: &mut files,
            next: &mut next,
        };
        for _ in 0..STEPS {
            life.step();
            fullest = fullest.max(life.fullness());
        }
        for (name, content) in &files {
            assert!(fs.read(name).unwrap() == *content, "{name}, seed {seed}");
        }
        fs.close().unwrap();
        image.check();
    }
    println!("{name}: {} files, once {fullest}% full", files.len());
    assert!(fullest > 90, "it was never nearly full");
    let fs = open();
    for name in files.keys() {
        fs.remove_file(name).unwrap();
    }
    fs.sync().unwrap();
    // Directories keep their blocks.
    let left = free - fs.statfs().unwrap().free;
    assert!(left < 100, "{left} blocks did not come back");
    fs.close().unwrap();
    image.check();
}

#[test]
fn clusters_that_grow_old_nearly_full_stay_sound() {
    let small = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"];
    age(
        "ageing, small clusters",
        &small,
        &MountOptions::read_write(),
    );
    let large = ["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"];
    let placed = MountOptions::read_write().delalloc(false);
    age("ageing, large clusters", &large, &placed);
}

#[test]
fn groups_that_grow_old_nearly_full_stay_sound() {
    let small = ["-t", "ext4", "-b", "1024", "-g", "2048"];
    age("ageing, small groups", &small, &MountOptions::read_write());
}
