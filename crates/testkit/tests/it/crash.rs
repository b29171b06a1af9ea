//! The enumerator finds what a missing flush does, and finds nothing where none is missing; faults
//! strike when they are told to.

use std::collections::{BTreeSet, HashSet};
use std::io::IoSlice;
use std::sync::Arc;

use extant_blockdev::{AlignedBuf, BlockDevice, MemoryDevice, Request};
use extant_testkit::crash::{
    Budget, Content, CrashDevice, CrashImage, Event, Fault, FaultDevice, FaultRule, IoKind, SECTOR,
};
use extant_testkit::rng::Rng;

const HOMES: u64 = 6;
const LOG: u64 = 64 * SECTOR as u64;
const COMMIT: u64 = 128 * SECTOR as u64;

/// A toy with a journal: every transaction gives all home sectors one value, through a log.
struct Toy {
    flush_log: bool,
    flush_commit: bool,
    flush_homes: bool,
}

const SOUND: Toy = Toy {
    flush_log: true,
    flush_commit: true,
    flush_homes: true,
};

impl Toy {
    fn transaction(&self, device: &CrashDevice, value: u8) {
        let flush = |wanted: bool| {
            if wanted {
                device.flush().expect("a flush");
            }
        };
        let image = [value; HOMES as usize * SECTOR];
        device.write_at(LOG, &image).expect("the log");
        flush(self.flush_log);
        device
            .write_at(COMMIT, &[value; SECTOR])
            .expect("the commit block");
        flush(self.flush_commit);
        device.mark(u64::from(value));
        for home in 0..HOMES {
            device
                .write_at(home * SECTOR as u64, &[value; SECTOR])
                .expect("a home");
        }
        flush(self.flush_homes);
        // The log may be used again: its commit block is taken away.
        device.write_at(COMMIT, &[0; SECTOR]).expect("an end");
        flush(self.flush_homes);
    }

    fn recover(device: &dyn BlockDevice) -> Vec<u8> {
        let mut sector = [0; SECTOR];
        device.read_at(COMMIT, &mut sector).expect("a read");
        if sector[0] != 0 {
            let mut image = vec![0; HOMES as usize * SECTOR];
            device.read_at(LOG, &mut image).expect("a read");
            device.write_at(0, &image).expect("a write");
        }
        let value = |home| {
            let mut sector = [0; SECTOR];
            device
                .read_at(home * SECTOR as u64, &mut sector)
                .expect("a read");
            sector[0]
        };
        (0..HOMES).map(value).collect()
    }

    /// Runs some transactions and returns the first illegal image's description, if there is one.
    fn fault(&self, budget: Budget) -> Option<String> {
        let device = CrashDevice::over(Content::zeros(1 << 20));
        for value in 1..=4 {
            self.transaction(&device, value);
        }
        let mut images = device.log().images(budget);
        let found = images.by_ref().find_map(|image| {
            let values = Self::recover(&*image.open());
            let acknowledged = image.marks().max().unwrap_or(0);
            let whole = values.iter().all(|v| *v == values[0]);
            let legal = whole && u64::from(values[0]) >= acknowledged;
            (!legal).then(|| format!("{values:?} after {acknowledged}: {image}"))
        });
        println!(
            "{} distinct, {} tried",
            images.distinct(),
            images.considered()
        );
        found
    }
}

#[test]
fn a_sound_protocol_survives_every_image() {
    assert_eq!(SOUND.fault(Budget::exhaustive()), None);
}

#[test]
fn every_missing_flush_is_found() {
    for (name, toy) in [
        (
            "log",
            Toy {
                flush_log: false,
                ..SOUND
            },
        ),
        (
            "commit",
            Toy {
                flush_commit: false,
                ..SOUND
            },
        ),
        (
            "homes",
            Toy {
                flush_homes: false,
                ..SOUND
            },
        ),
    ] {
        for budget in [Budget::exhaustive(), Budget::limited(600, 1)] {
            let found = toy.fault(budget);
            println!("no flush of the {name}: {found:?}");
            assert!(
                found.is_some(),
                "no flush of the {name} goes unseen by {budget:?}"
            );
        }
    }
}

#[test]
fn every_subset_of_few_writes_comes_once() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    for at in 0..10u64 {
        device
            .write_at(at * 4096, &[at as u8 + 1; SECTOR])
            .expect("a write");
    }
    let images: Vec<_> = device.log().images(Budget::exhaustive()).collect();
    let contents: HashSet<Vec<u8>> = images
        .iter()
        .map(|image| {
            let device = image.open();
            let first = |at: u64| {
                let mut byte = [0];
                device.read_at(at * 4096, &mut byte).expect("a read");
                byte[0]
            };
            (0..10).map(first).collect()
        })
        .collect();
    assert_eq!((images.len(), contents.len()), (1024, 1024));
}

#[test]
fn many_writes_are_sampled_with_prefixes_singletons_and_all_but_one() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    for at in 0..40u64 {
        device.write_at(at * 512, &[1; SECTOR]).expect("a write");
    }
    let present = |image: &extant_testkit::crash::CrashImage| -> Vec<bool> {
        let mut all = vec![0; 40 * SECTOR];
        image.content().read(0, &mut all);
        all.chunks(SECTOR).map(|sector| sector[0] == 1).collect()
    };
    let all: HashSet<Vec<bool>> = device
        .log()
        .images(Budget::exhaustive())
        .map(|image| present(&image))
        .collect();
    for n in 0..40 {
        assert!(all.contains(&(0..40).map(|i| i < n).collect::<Vec<_>>()));
        assert!(all.contains(&(0..40).map(|i| i == n).collect::<Vec<_>>()));
        assert!(all.contains(&(0..40).map(|i| i != n).collect::<Vec<_>>()));
    }
    assert!(all.len() > 300, "{} with the samples", all.len());
}

#[test]
fn a_large_write_is_torn_at_sectors_and_never_inside_one() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    let halves = [IoSlice::new(&[7; 2048]), IoSlice::new(&[7; 2048])];
    device.write_vectored_at(4096, &halves).expect("a write");
    assert_eq!(device.log().writes(), 1);
    let mut patterns = HashSet::new();
    for image in device.log().images(Budget::exhaustive()) {
        let mut bytes = [0; 4096];
        image.content().read(4096, &mut bytes);
        let sectors = bytes.chunks(SECTOR);
        assert!(sectors.clone().all(|s| s.iter().all(|b| *b == s[0])));
        patterns.insert(sectors.map(|s| s[0] == 7).collect::<Vec<_>>());
    }
    for cut in 0..=8 {
        assert!(patterns.contains(&(0..8).map(|i| i < cut).collect::<Vec<_>>()));
        assert!(patterns.contains(&(0..8).map(|i| i >= cut).collect::<Vec<_>>()));
    }
    assert!(patterns.iter().any(|p| p[0] && p[7] && !p[3]));
}

#[test]
fn a_flush_covers_only_what_completed_before_it_began() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    let write = |at: u64| Request::write(at, AlignedBuf::copy_of(&[1; SECTOR]));
    let late = device.submit(vec![write(0)]);
    device.write_at(4096, &[1; SECTOR]).expect("a write");
    device.flush().expect("a flush");
    device.mark(1);
    late.wait_all().expect("the batch");
    let mut seen = HashSet::new();
    for image in device.log().images(Budget::exhaustive()) {
        let byte = |at| {
            let mut byte = [0];
            image.content().read(at, &mut byte);
            byte[0]
        };
        assert!(!image.holds(1) || byte(4096) == 1, "{image}");
        seen.insert((byte(0), byte(4096), image.holds(1)));
    }
    // Begun before the flush, it may be there alone, even while the flush is under way.
    for expected in [(1, 0, false), (0, 1, true), (1, 1, true)] {
        assert!(seen.contains(&expected), "{seen:?} has no {expected:?}");
    }
}

#[test]
fn a_flush_in_a_batch_is_a_barrier() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    let write = |at: u64| Request::write(at, AlignedBuf::copy_of(&[1; SECTOR]));
    let batch = vec![
        write(0),
        write(4096),
        Request::Flush,
        write(8192),
        Request::Flush,
    ];
    device.submit(batch).wait_all().expect("the batch");
    device.mark(1);
    for image in device.log().images(Budget::exhaustive()) {
        let byte = |at| {
            let mut byte = [0];
            image.content().read(at, &mut byte);
            byte[0] == 1
        };
        assert!(!byte(8192) || byte(0) && byte(4096), "{image}");
        assert!(!image.holds(1) || byte(8192), "{image}");
    }
}

#[test]
fn the_same_seed_gives_the_same_images() {
    let device = CrashDevice::over(Content::zeros(64 << 20));
    let mut rng = Rng::new(5);
    for step in 0..300 {
        let mut bytes = vec![0; SECTOR * rng.between(1, 40) as usize];
        rng.fill(&mut bytes);
        let at = rng.below(120_000) * SECTOR as u64;
        device.write_at(at, &bytes).expect("a write");
        if step % 20 == 0 {
            device.flush().expect("a flush");
        }
        if step % 7 == 0 {
            device.mark(step);
        }
    }
    let hashes = |seed| -> Vec<u128> {
        let images = device.log().images(Budget::limited(2000, seed));
        images.map(|image| image.hash()).collect()
    };
    let started = std::time::Instant::now();
    let first = hashes(1);
    println!("{} images in {:?}", first.len(), started.elapsed());
    assert!((1500..=2000).contains(&first.len()), "{}", first.len());
    assert!(first == hashes(1));
    assert!(first != hashes(2));
}

#[test]
fn the_hash_of_an_image_is_that_of_its_content() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    let mut rng = Rng::new(9);
    for step in 0..60u8 {
        // Few places and few values, so that the same content comes about in many ways.
        let at = rng.below(4) * SECTOR as u64;
        let len = SECTOR * rng.between(1, 3) as usize;
        device
            .write_at(at, &vec![rng.below(3) as u8; len])
            .expect("a write");
        if step % 9 == 0 {
            device.flush().expect("a flush");
        }
    }
    let mut by_content = std::collections::HashMap::new();
    let mut images = device.log().images(Budget::exhaustive());
    for image in images.by_ref() {
        let mut bytes = vec![0; 8 * SECTOR];
        image.content().read(0, &mut bytes);
        let first = by_content.entry(bytes).or_insert(image.hash());
        assert_eq!(*first, image.hash(), "{image}");
    }
    assert_eq!(by_content.len(), images.distinct());
}

#[test]
fn threads_may_write_and_flush_at_once() {
    let device = CrashDevice::over(Content::zeros(1 << 20));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let device = device.clone();
            scope.spawn(move || {
                for step in 0..50u64 {
                    let at = (thread * 64 + step) * SECTOR as u64;
                    device.write_at(at, &[1; SECTOR]).expect("a write");
                    device.flush().expect("a flush");
                    device.mark(thread * 64 + step);
                }
            });
        }
    });
    let log = device.log();
    assert_eq!((log.writes(), log.flushes()), (200, 200));
    assert!(log.events().iter().any(|e| matches!(e, Event::Mark(_))));
    for image in log.images(Budget::limited(3000, 3)) {
        for mark in image.marks() {
            let mut byte = [0];
            image.content().read(mark * SECTOR as u64, &mut byte);
            assert_eq!(byte, [1], "{mark} was flushed: {image}");
        }
    }
}

#[test]
fn images_are_written_to_files_and_recorded_again() {
    let mut base = Content::zeros(1 << 20);
    base.write(5000, b"before");
    let device = CrashDevice::over(base);
    device.write_at(9000, b"after").expect("a write");
    device.zero(0, 8192).expect("a zeroed range");
    let image = device
        .log()
        .images(Budget::exhaustive())
        .last()
        .expect("an image");
    let file = tempfile::NamedTempFile::new().expect("a file");
    image.write_to(file.path());
    let again = Content::of_file(file.path());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    again.read(0, &mut left);
    image.content().read(0, &mut right);
    assert!(left == right);
    let recovery = image.record();
    recovery.write_at(0, &[3; SECTOR]).expect("a write");
    assert_eq!(recovery.log().images(Budget::exhaustive()).count(), 2);
}

#[test]
fn faults_strike_when_they_are_told_to() {
    let device = FaultDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
    device.inject(FaultRule::fail_nth(IoKind::Write, 1));
    device.write_at(0, &[1; 512]).expect("the first goes well");
    let err = device
        .write_at(512, &[1; 512])
        .expect_err("the second fails");
    assert_eq!(err.errno(), 5);
    device
        .write_at(512, &[1; 512])
        .expect("the third goes well");

    device.inject(FaultRule::fail_nth(IoKind::Flush, 0).from_then_on());
    assert!((0..3).all(|_| device.flush().is_err()));
    device.heal();
    device.flush().expect("healed");

    let lower = FaultRule::fail_nth(IoKind::Write, 0).within(0..4096);
    device.inject(lower.with(Fault::Short(600)));
    device.write_at(8192, &[2; 1024]).expect("not in the range");
    assert!(device.write_at(0, &[2; 1024]).is_err());
    let mut bytes = [0; 1024];
    device.read_at(0, &mut bytes).expect("a read");
    assert!(bytes[..600].iter().all(|b| *b == 2) && bytes[600..].iter().all(|b| *b == 1));

    device.inject(FaultRule::fail_nth(IoKind::Write, 0).with(Fault::Lost));
    device.write_at(0, &[3; 512]).expect("said to be written");
    device.read_at(0, &mut bytes).expect("a read");
    assert_eq!(bytes[0], 2);
    let counts = device.counts();
    assert_eq!(
        (counts.writes, counts.flushes, counts.reads, counts.faults),
        (6, 4, 2, 6)
    );
}

#[test]
fn a_lost_flush_is_not_recorded() {
    let crash = CrashDevice::over(Content::zeros(1 << 20));
    let device = FaultDevice::new(Arc::new(crash.clone()));
    device.inject(FaultRule::fail_nth(IoKind::Flush, 0).with(Fault::Lost));
    device.write_at(0, &[1; 512]).expect("a write");
    device.flush().expect("said to be flushed");
    assert_eq!(crash.log().flushes(), 0);
    device.flush().expect("a flush");
    assert_eq!(crash.log().flushes(), 1);
}

/// What the images of this moment have in the first byte of each of the first four sectors.
fn firsts(device: &CrashDevice) -> BTreeSet<[u8; 4]> {
    // With one more promise made, no image counts as seen.
    device.mark(device.log().events().len() as u64);
    let log = device.log();
    let end = log.events().len();
    let images = log.images(Budget::exhaustive());
    let images = images.filter(|image| image.point() == end);
    let first = |image: CrashImage| {
        let mut sectors = [0; 4 * SECTOR];
        image.content().read(0, &mut sectors);
        [0, 1, 2, 3].map(|n| sectors[n * SECTOR])
    };
    images.map(first).collect()
}

#[test]
fn what_was_copied_to_memory_lasts_when_it_is_persisted_and_not_before() {
    let at = |sector: usize| (sector * SECTOR) as u64;
    let device = CrashDevice::over(Content::zeros(1 << 20));
    let memory = device.direct().expect("it is memory");
    memory.copy_in(at(1), &[1; SECTOR]).unwrap();
    memory.copy_in(at(2) + 100, &[9]).unwrap();
    let mut found = [0; 1];
    memory.copy_out(at(2) + 100, &mut found).unwrap();
    assert_eq!(found, [9]);
    memory.copy_in(at(2), &[2]).unwrap();
    device.flush().unwrap();
    // No flush covers them.
    let both = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 1, 2, 0]];
    assert_eq!(firsts(&device), BTreeSet::from(both));
    memory.persist(at(1)..at(1) + 1).unwrap();
    assert!(memory.persist(0..1 << 21).is_err());
    assert_eq!(
        firsts(&device),
        BTreeSet::from([[0, 1, 0, 0], [0, 1, 2, 0]])
    );
    // What is written over a copy is newer than it.
    device.write_at(at(2), &[3; SECTOR]).unwrap();
    device.flush().unwrap();
    memory.copy_in(at(0), &[4; 2 * SECTOR]).unwrap();
    memory.copy_in(at(1), &[5; SECTOR]).unwrap();
    memory.persist(at(1)..at(2)).unwrap();
    assert_eq!(firsts(&device), BTreeSet::from([[4, 5, 3, 0]]));
}
