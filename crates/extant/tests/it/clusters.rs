//! File systems with `bigalloc`: files of which every byte is known are changed in all ways, by the
//! engine and by Linux in turns, and are checked in between.

use crate::support::Blank;
use extant::{File, Filesystem, MountOptions, OpenOptions, OpenSpec};
use extant_core::fs::DataMode;
use extant_testkit::facility::is_full_run;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

/// Blocks and clusters, in bytes.
const SHAPES: [(u64, u64); 6] = [
    (1024, 8192),
    (1024, 65_536),
    (2048, 16_384),
    (4096, 16_384),
    (4096, 65_536),
    (4096, 1 << 20),
];
const MOST_BYTES: u64 = 300_000;
const FILES: u64 = 6;

/// A change of one file.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u64, u64),
    SetLen(u64),
    Reserve(u64, u64),
    ReserveBehind(u64, u64),
    Punch(u64, u64),
    Zero(u64, u64),
    Collapse(u64, u64),
    Insert(u64, u64),
    Delete,
}

impl Change {
    fn random(rng: &mut Rng, cluster: u64, size: u64) -> Self {
        let (at, len) = (rng.below(MOST_BYTES), rng.between(1, 40_000));
        let whole = |rng: &mut Rng| rng.below((MOST_BYTES / cluster).min(6) + 1) * cluster;
        match rng.below(24) {
            0..5 => Self::Write(at, len),
            5..9 => Self::Write(size, rng.between(1, 5000)),
            9..11 => Self::SetLen(at),
            11 => Self::SetLen(size.saturating_sub(rng.below(9000))),
            12 => Self::Reserve(at, len),
            13 => Self::ReserveBehind(size, len),
            14..18 => Self::Punch(at, len),
            18..20 => Self::Zero(at, len),
            20 => Self::Collapse(whole(rng), cluster * rng.between(1, 2)),
            21 => Self::Insert(whole(rng), cluster * rng.between(1, 2)),
            22 => Self::Write(at & !1023, 1024),
            _ => Self::Delete,
        }
    }

    /// Makes the change in what is known of the file. `None` if it cannot be made.
    fn apply(self, content: &mut Vec<u8>, byte: u8) -> Option<()> {
        let size = content.len() as u64;
        let cover = |content: &mut Vec<u8>, at: u64, len: u64, byte: u8, grow: bool| {
            let end = (at + len) as usize;
            if end > content.len() && grow {
                content.resize(end, 0);
            }
            let end = end.min(content.len());
            let at = (at as usize).min(end);
            content[at..end].fill(byte);
        };
        match self {
            Self::Write(at, len) => cover(content, at, len, byte, true),
            Self::SetLen(to) => content.resize(to as usize, 0),
            Self::Reserve(at, len) => content.resize(size.max(at + len) as usize, 0),
            Self::ReserveBehind(..) => {}
            Self::Punch(at, len) => cover(content, at, len, 0, false),
            Self::Zero(at, len) => cover(content, at, len, 0, true),
            Self::Collapse(at, len) if at + len < size => {
                content.drain(at as usize..(at + len) as usize);
            }
            Self::Insert(at, len) if at < size && size + len < 4 * MOST_BYTES => {
                let zeros = std::iter::repeat_n(0, len as usize);
                content.splice(at as usize..at as usize, zeros);
            }
            Self::Collapse(..) | Self::Insert(..) => return None,
            Self::Delete => content.clear(),
        }
        Some(())
    }

    fn by_engine(self, file: &File, byte: u8) -> extant::Result<()> {
        match self {
            Self::Write(at, len) => file.write_all_at(&vec![byte; len as usize], at),
            Self::SetLen(size) => file.set_len(size),
            Self::Reserve(at, len) => file.allocate(at, len),
            Self::ReserveBehind(at, len) => file.allocate_keep_size(at, len),
            Self::Punch(at, len) => file.punch_hole(at, len),
            Self::Zero(at, len) => file.zero_range(at, len),
            Self::Collapse(at, len) => file.collapse_range(at, len),
            Self::Insert(at, len) => file.insert_range(at, len),
            Self::Delete => Ok(()),
        }
    }

    fn by_linux(self, file: &std::fs::File, byte: u8) -> std::io::Result<()> {
        let (mode, at, len) = match self {
            Self::Write(at, len) => return file.write_all_at(&vec![byte; len as usize], at),
            Self::SetLen(size) => return file.set_len(size),
            Self::Delete => return Ok(()),
            Self::Reserve(at, len) => (FallocateFlags::empty(), at, len),
            Self::ReserveBehind(at, len) => (FallocateFlags::KEEP_SIZE, at, len),
            Self::Punch(at, len) => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                (punch, at, len)
            }
            Self::Zero(at, len) => (FallocateFlags::ZERO_RANGE, at, len),
            Self::Collapse(at, len) => (FallocateFlags::COLLAPSE_RANGE, at, len),
            Self::Insert(at, len) => (FallocateFlags::INSERT_RANGE, at, len),
        };
        Ok(fallocate(file, mode, at, len)?)
    }
}

/// What every byte of the files is.
#[derive(Default)]
struct Known {
    files: BTreeMap<String, Vec<u8>>,
    steps: u64,
    log: Vec<String>,
}

impl Known {
    /// Makes up a change that can be made; with the name of the file, and the byte that it writes.
    fn next(&mut self, rng: &mut Rng, cluster: u64) -> (String, Change, u8) {
        loop {
            let name = format!("file{}", rng.below(FILES));
            let content = self.files.entry(name.clone()).or_default();
            let change = Change::random(rng, cluster, content.len() as u64);
            let byte = (self.steps % 250) as u8 + 1;
            if change.apply(content, byte).is_some() {
                self.steps += 1;
                self.log.push(format!("{name}: {change:?} of {byte}"));
                return (name, change, byte);
            }
        }
    }

    fn check(&self, who: &str, read: impl Fn(&str) -> Vec<u8>) {
        for (name, content) in &self.files {
            let found = read(name);
            let differs = || found.iter().zip(content).position(|(a, b)| a != b);
            if found != *content {
                let last = self.log.iter().rev().take(60).rev();
                let last: Vec<&str> = last.map(String::as_str).collect();
                panic!(
                    "{who}: {name} of {} bytes has {}, the first other one at {:?}\n{}",
                    content.len(),
                    found.len(),
                    differs(),
                    last.join("\n")
                );
            }
        }
    }
}

fn changed_by_engine(image: &Blank, known: &mut Known, rng: &mut Rng, cluster: u64, steps: u64) {
    let modes = [DataMode::Delayed, DataMode::Placed, DataMode::Through];
    let mount = MountOptions::read_write()
        .data_mode(*rng.pick(&modes))
        .background(false);
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), mount).unwrap();
    known.check("engine, opened", |name| {
        fs.read(format!("/{name}")).unwrap_or_default()
    });
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    for _ in 0..steps {
        let (name, change, byte) = known.next(rng, cluster);
        let path = format!("/{name}");
        let file = options.open(&fs, &path).unwrap();
        if matches!(change, Change::Delete) {
            fs.remove_file(&path).unwrap();
        } else if let Err(e) = change.by_engine(&file, byte) {
            panic!("{name}, {change:?}: {e}\n{}", known.log.join("\n"));
        }
        if rng.one_in(8) {
            file.sync_all().unwrap();
        }
    }
    known.check("engine", |name| {
        fs.read(format!("/{name}")).unwrap_or_default()
    });
    for number in 0..rng.below(60) {
        let long = "n".repeat(rng.between(1, 150) as usize);
        fs.write(format!("/dir/{number}-{long}"), b"").unwrap();
    }
    fs.close().unwrap();
    image.check();
}

fn changed_by_linux(image: &Blank, known: &mut Known, rng: &mut Rng, cluster: u64, steps: u64) {
    let mount = KernelMount::mount(image.path(), Mode::ReadWrite, "");
    let read = |name: &str| std::fs::read(mount.join(name)).unwrap_or_default();
    known.check("Linux, mounted", read);
    for _ in 0..steps {
        let (name, change, byte) = known.next(rng, cluster);
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(mount.join(&name)).unwrap();
        match change {
            Change::Delete => std::fs::remove_file(mount.join(&name)).unwrap(),
            _ => change
                .by_linux(&file, byte)
                .unwrap_or_else(|e| panic!("Linux, {name}, {change:?}: {e}")),
        }
    }
    known.check("Linux", read);
    mount.unmount();
    image.check();
}

fn image_of(block: u64, cluster: u64) -> Blank {
    let (block, cluster) = (block.to_string(), cluster.to_string());
    let options = [
        "-t", "ext4", "-b", &block, "-O", "bigalloc", "-C", &cluster, "-N", "2048",
    ];
    let image = Blank::with(96, &options);
    let fs = image.open_writable();
    fs.create_dir("/dir").unwrap();
    fs.close().unwrap();
    image
}

#[test]
fn files_in_clusters_hold_what_the_engine_and_linux_wrote_by_turns() {
    require!(LoopDevices, KernelExt4);
    let turns = if is_full_run() { 40 } else { 3 };
    for (block, cluster) in SHAPES {
        let seed = seed_from_env(&format!("clusters of {cluster}, blocks of {block}"));
        println!("clusters of {cluster}, blocks of {block}: seed {seed}");
        let mut rng = Rng::new(seed);
        let image = image_of(block, cluster);
        let mut known = Known::default();
        for _ in 0..turns {
            changed_by_engine(&image, &mut known, &mut rng, cluster, 60);
            changed_by_linux(&image, &mut known, &mut rng, cluster, 40);
        }
        changed_by_engine(&image, &mut known, &mut rng, cluster, 60);
    }
}

#[test]
fn every_change_of_a_file_in_clusters_leaves_a_sound_file_system() {
    for (block, cluster) in SHAPES {
        let seed = seed_from_env(&format!("each on clusters of {cluster}, blocks of {block}"));
        println!("clusters of {cluster}, blocks of {block}: seed {seed}");
        let mut rng = Rng::new(seed);
        let image = image_of(block, cluster);
        let mut known = Known::default();
        for _ in 0..if is_full_run() { 300 } else { 12 } {
            changed_by_engine(&image, &mut known, &mut rng, cluster, 1);
        }
    }
}

/// Blocks charged to a file, in bytes.
fn charged(fs: &Filesystem, path: &str) -> u64 {
    fs.metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_block_in_a_cluster_of_the_file_costs_nothing_and_frees_nothing() {
    let (block, cluster) = (4096, 65_536);
    let image = image_of(block, cluster);
    let fs = image.open_writable();
    let free = || fs.statfs().unwrap().free * block;
    let before = free();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .open(&fs, "/file")
        .unwrap();
    for at in 0..cluster / block {
        file.write_all_at(&[7; 4096], at * block).unwrap();
        assert_eq!(before - free(), cluster, "block {at}");
        assert_eq!(charged(&fs, "/file"), cluster);
        file.sync_all().unwrap();
        assert_eq!(before - free(), cluster, "block {at}, mapped");
        assert_eq!(charged(&fs, "/file"), cluster);
    }
    file.punch_hole(block, cluster - 2 * block).unwrap();
    file.set_len(block).unwrap();
    fs.sync().unwrap();
    assert_eq!((before - free(), charged(&fs, "/file")), (cluster, cluster));
    file.punch_hole(0, block).unwrap();
    fs.sync().unwrap();
    assert_eq!((before - free(), charged(&fs, "/file")), (0, 0));
    let unaligned = file.collapse_range(block, block).unwrap_err();
    assert_eq!(unaligned.errno(), rustix::io::Errno::INVAL.raw_os_error());
    drop(file);
    fs.close().unwrap();
    image.check();
}

/// Holes lie in clusters that the file kept. A writer where there is data need not know whether
/// they are durable.
#[test]
fn overwriting_data_does_not_wait_for_holes_that_were_made_elsewhere() {
    let (block, cluster) = (4096, 65_536);
    let image = image_of(block, cluster);
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .direct(true)
        .open(&fs, "/file")
        .unwrap();
    let data = vec![7; cluster as usize];
    file.write_all_at(&data, 0).unwrap();
    fs.sync().unwrap();
    let commits = || fs.engine().journal_stats().commits;
    file.punch_hole(4 * block, block).unwrap();
    let before = commits();
    for at in [0, 3, 5, 15] {
        file.write_all_at(&data[..block as usize], at * block)
            .unwrap();
    }
    assert_eq!(commits(), before, "data was there");
    file.write_all_at(&data[..block as usize], 4 * block)
        .unwrap();
    fs.sync().unwrap();
    assert!(commits() > before, "what was a hole");
    drop(file);
    fs.close().unwrap();
    image.check();
}
