//! Many writers on a file system that is full most of the time: nothing that was acknowledged gets
//! lost, space that was granted is there when data is written back, no count is ever overdrawn, and
//! all space can be used in the end.

use crate::support::Blank;
use extant::{Caller, Enforced, File, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_core::fs::DataMode;
use extant_testkit::facility::is_full_run;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that are written whole or not at all as far as these tests know.
const UNIT: usize = 256;
/// Most units of a file.
const MOST: u64 = 8192;
const THREADS: u64 = 8;
const NO_SPACE: i32 = 28;

/// What the unit at `at` of a file holds.
fn unit(file: u64, at: u64) -> [u8; UNIT] {
    let mut bytes = [(file ^ at) as u8 | 1; UNIT];
    bytes[..8].copy_from_slice(&file.to_le_bytes());
    bytes[8..16].copy_from_slice(&at.to_le_bytes());
    bytes
}

fn units(file: u64, at: u64, count: u64) -> Vec<u8> {
    (at..at + count).flat_map(|at| unit(file, at)).collect()
}

/// What was acknowledged of a file.
#[derive(Default)]
struct Known {
    /// Units that were written.
    written: Vec<bool>,
}

impl Known {
    fn note(&mut self, at: u64, count: u64) {
        let end = (at + count) as usize;
        if self.written.len() < end {
            self.written.resize(end, false);
        }
        self.written[at as usize..end].fill(true);
    }

    /// Units that were written hold what was written, all others that or nothing.
    fn check(&self, name: &str, file: u64, content: &[u8]) {
        for (at, written) in self.written.iter().enumerate().filter(|(_, w)| **w) {
            let found = content.get(at * UNIT..(at + 1) * UNIT);
            let right = found == Some(&unit(file, at as u64)[..]);
            assert!(
                right,
                "{name} of {} bytes: unit {at} ({written}) is not there but {:x?}",
                content.len(),
                found.map(|found| &found[..24])
            );
        }
        for (at, found) in content.chunks(UNIT).enumerate() {
            let is_zero = found.iter().all(|&byte| byte == 0);
            let is_own = found == &unit(file, at as u64)[..found.len()];
            assert!(is_zero || is_own, "{name}: unit {at} holds something else");
        }
    }
}

/// One thread with files of its own.
struct Writer<'a> {
    /// As root uses it, or as a user that may not have what is reserved.
    fs: Filesystem,
    number: u64,
    rng: Rng,
    next: u64,
    files: BTreeMap<u64, (File, Known)>,
    /// How often anybody found no space, and how often this one knows of.
    refused: &'a AtomicU64,
    seen: u64,
}

impl Writer<'_> {
    fn name(&self, file: u64) -> String {
        format!("/dir{}/file{file}", self.number)
    }

    fn open(&self, file: u64) -> extant::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .open(&self.fs, self.name(file))
    }

    /// `None` when there was no space for it.
    fn allowed<T>(&self, what: &str, result: extant::Result<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(e) if e.errno() == NO_SPACE => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }

    fn step(&mut self) {
        let known: Vec<u64> = self.files.keys().copied().collect();
        let pick = |rng: &mut Rng| *rng.pick(&known);
        match self.rng.below(100) {
            _ if known.is_empty() => self.create(),
            0..12 if known.len() < 60 => self.create(),
            0..55 => {
                let file = pick(&mut self.rng);
                let at = if self.rng.one_in(2) {
                    self.files[&file].1.written.len() as u64
                } else {
                    self.rng.below(MOST)
                };
                self.write(file, at.min(MOST - 1));
            }
            55..78 => {
                let file = pick(&mut self.rng);
                self.reserve(file);
            }
            78..84 => {
                let file = pick(&mut self.rng);
                let (open, _) = &self.files[&file];
                // A writer that was let in has its space.
                open.sync_all().unwrap();
            }
            84..88 => {
                let file = pick(&mut self.rng);
                let size = self.rng.below(MOST);
                let (open, known) = self.files.get_mut(&file).unwrap();
                // Only ever shorter.
                if size < known.written.len() as u64 {
                    open.set_len(size * UNIT as u64).unwrap();
                    known.written.truncate(size as usize);
                }
            }
            88..92 => {
                let file = pick(&mut self.rng);
                let content = self.fs.read(self.name(file)).unwrap();
                self.files[&file].1.check(&self.name(file), file, &content);
            }
            92..95 => self.remove(),
            _ => {}
        }
        let refused = self.refused.load(Ordering::Relaxed);
        if refused > self.seen && self.rng.one_in(6) {
            self.remove();
        }
        self.seen = refused;
    }

    fn remove(&mut self) {
        if let Some((file, _)) = self.files.pop_first() {
            self.fs.remove_file(self.name(file)).unwrap();
        }
    }

    fn create(&mut self) {
        let file = self.number << 32 | self.next;
        self.next += 1;
        if let Some(open) = self.allowed("create", self.open(file)) {
            self.files.insert(file, (open, Known::default()));
        }
    }

    fn write(&mut self, file: u64, at: u64) {
        let count = self.rng.between(1, 512).min(MOST - at);
        let (open, _) = &self.files[&file];
        let done = open.write_at(&units(file, at, count), at * UNIT as u64);
        if let Some(written) = self.allowed("write", done) {
            let (_, known) = self.files.get_mut(&file).unwrap();
            known.note(at, (written / UNIT) as u64);
        }
    }

    /// Reserves space, and then what is written there needs none.
    fn reserve(&mut self, file: u64) {
        let at = self.rng.below(MOST);
        let count = self.rng.between(1, 1024).min(MOST - at);
        let (open, _) = &self.files[&file];
        let (offset, len) = (at * UNIT as u64, count * UNIT as u64);
        let done = if self.rng.one_in(2) {
            open.allocate(offset, len)
        } else {
            open.allocate_keep_size(offset, len)
        };
        if self.allowed("allocate", done).is_none() || self.rng.one_in(2) {
            return;
        }
        // It may need a node of the map, but no more.
        let (open, _) = &self.files[&file];
        let done = open.write_at(&units(file, at, count), offset);
        if let Some(written) = self.allowed("write", done) {
            let (_, known) = self.files.get_mut(&file).unwrap();
            known.note(at, (written / UNIT) as u64);
        }
    }
}

/// Nothing goes on, and everything is on the device: nothing is promised, nothing waits, no more
/// may be granted than is free.
fn assert_quiescent(fs: &Filesystem) {
    let sums = fs.engine().space_sums().unwrap();
    let is_quiescent = sums.promised == 0 && sums.pending == 0 && sums.dirty_bytes == 0;
    assert!(
        is_quiescent && sums.least >= 0 && sums.memory_bytes >= 0,
        "{sums:?}"
    );
    let free = fs.statfs().unwrap().free;
    assert!(
        sums.grantable.cast_unsigned() <= free,
        "{sums:?}, {free} free"
    );
}

fn torture(name: &str, mkfs: &[&str], mount: &MountOptions) {
    let seed = seed_from_env(name);
    let image = Blank::with(24, mkfs);
    let open =
        || Filesystem::open_spec(&OpenSpec::read_write(image.path()), mount.clone()).unwrap();
    let fs = open();
    let steps = if is_full_run() { 8000 } else { 1200 };
    let refused = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    for number in 0..THREADS {
        let dir = format!("/dir{number}");
        fs.create_dir(&dir).unwrap();
        fs.set_permissions(&dir, 0o777).unwrap();
    }
    let user = fs.on_behalf_of(Caller::new(1005, 1005));
    let writers: Vec<Writer<'_>> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let space = fs.statfs().unwrap();
                assert!(space.free <= space.blocks && space.available <= space.free);
                let sums = fs.engine().space_sums().unwrap();
                assert!(sums.least >= 0, "{sums:?}");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let crew: Vec<_> = (0..THREADS)
            .map(|number| {
                let mut writer = Writer {
                    fs: match number % 2 {
                        0 => fs.clone(),
                        _ => user.clone(),
                    },
                    number,
                    rng: Rng::new(seed ^ number),
                    next: 0,
                    files: BTreeMap::new(),
                    refused: &refused,
                    seen: 0,
                };
                scope.spawn(move || {
                    (0..steps).for_each(|_| writer.step());
                    writer
                })
            })
            .collect();
        let crew = crew.into_iter().map(std::thread::ScopedJoinHandle::join);
        let crew: Vec<_> = crew.collect();
        done.store(true, Ordering::Relaxed);
        crew.into_iter()
            .map(|writer| writer.unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect()
    });
    let refused = refused.load(Ordering::Relaxed);
    println!("{name}: seed {seed}, {refused} times no space");
    assert!(refused > 20, "it was never full");
    // Whatever was acknowledged has its place.
    fs.sync().unwrap();
    assert_quiescent(&fs);
    let mut known = Vec::new();
    for writer in writers {
        for (file, (open, what)) in &writer.files {
            let mut content = vec![0; open.metadata().len() as usize];
            let len = open.read_at(&mut content, 0).unwrap();
            what.check(&writer.name(*file), *file, &content[..len]);
        }
        let number = writer.number;
        let files = writer.files.into_iter();
        known.extend(
            files.map(|(file, (_, what))| (format!("/dir{number}/file{file}"), file, what)),
        );
    }
    drop(user);
    fs.close().unwrap();
    image.check();

    let fs = open();
    let user = fs.on_behalf_of(Caller::new(1005, 1005));
    for (name, file, what) in &known {
        what.check(name, *file, &fs.read(name).unwrap());
        fs.remove_file(name).unwrap();
    }
    fs.sync().unwrap();
    let space = fs.statfs().unwrap();
    let block = u64::from(space.block_size.bytes());
    fs.create_dir("/last").unwrap();
    fs.set_permissions("/last", 0o777).unwrap();
    let files = [("/last/all", &user), ("/last/rest", &fs)];
    let files = files.map(|(name, fs)| {
        let file = OpenOptions::new().write(true).create(true).open(fs, name);
        (file.unwrap(), name)
    });
    let before = fs.statfs().unwrap();
    let mut size = 0;
    let chunk = vec![7; 64 << 10];
    // Everybody but root finds an end where the reserve begins, and root a few blocks from the end.
    for ((file, _), most) in files.iter().zip([before.available, before.free]) {
        let mut at = 0;
        loop {
            match file.write_at(&chunk, at) {
                Ok(written) => at += written as u64,
                Err(e) if e.errno() == NO_SPACE => break,
                Err(e) => panic!("{e}"),
            }
        }
        size += at;
        let blocks = size / block;
        // All but a few for the map.
        assert!(
            blocks <= most && blocks + most / 100 + 24 >= most,
            "{blocks} of {most} blocks could be used",
        );
    }
    for (file, name) in files {
        file.sync_all().unwrap();
        drop(file);
        assert!(fs.read(name).unwrap().iter().all(|&byte| byte == 7));
    }
    assert_quiescent(&fs);
    drop(user);
    fs.close().unwrap();
    image.check();
}

#[test]
fn writers_on_a_full_file_system_that_counts_what_owners_use_lose_nothing() {
    let quota = ["-t", "ext4", "-b", "1024", "-O", "quota"];
    let counted = Enforced {
        users: true,
        groups: true,
        projects: false,
    };
    for mount in [MountOptions::read_write(), through()] {
        torture("full, quotas", &quota, &mount.quotas(counted));
    }
}

/// Every write goes to the device before it returns.
fn through() -> MountOptions {
    MountOptions::read_write().data_mode(DataMode::Through)
}

const LARGE: [&str; 4] = ["-t", "ext4", "-m", "0"];
const SMALL: [&str; 6] = ["-t", "ext4", "-b", "1024", "-g", "2048"];
const HALF: [&str; 4] = ["-t", "ext4", "-m", "50"];

#[test]
fn writers_on_a_full_file_system_lose_nothing() {
    torture("full", &LARGE, &through());
}

#[test]
fn writers_on_a_full_file_system_of_small_blocks_lose_nothing() {
    torture("full, small blocks", &SMALL, &through());
}

#[test]
fn writers_whose_blocks_are_chosen_late_lose_nothing_on_a_full_file_system() {
    let mount = MountOptions::read_write().delalloc(true);
    torture("full, delayed", &LARGE, &mount);
    let mount = mount.cache_bytes(2 << 20);
    torture("full, delayed, small blocks", &SMALL, &mount);
    torture("full, delayed, half reserved", &HALF, &mount);
}

#[test]
fn writers_whose_blocks_are_chosen_at_once_lose_nothing_on_a_full_file_system() {
    let mount = MountOptions::read_write().delalloc(false);
    torture("full, placed", &LARGE, &mount);
    torture("full, placed, small blocks", &SMALL, &mount);
    torture("full, placed, half reserved", &HALF, &mount);
}

#[test]
fn writers_on_a_full_file_system_of_clusters_lose_nothing() {
    let clusters = [
        "-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192", "-J", "size=1",
    ];
    torture(
        "full, clusters, delayed",
        &clusters,
        &MountOptions::read_write(),
    );
    let placed = MountOptions::read_write().delalloc(false);
    torture("full, clusters, placed", &clusters, &placed);
    torture("full, clusters, through", &clusters, &through());
}
