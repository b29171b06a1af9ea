//! Changes that are made as a whole, of a file system that multiple-mount protection claims.

use super::engine::Extant;
use super::shapes::{DEFAULT, Shape};
use super::staged::{options, perform, staged, tree};
use super::waiting::{over_large, superblock_of};
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice};
use extant_core::Error;
use extant_core::fs::Fs;
use extant_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_format::waiting;
use extant_testkit::crash::{Content, CrashDevice};
use extant_testkit::oracle;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// No journal, and a claim that is renewed each second, without a checksum.
pub(super) const PROTECTED: Shape = Shape {
    name: "multiple-mount protection",
    options: &[
        "-O",
        "mmp,^has_journal,^resize_inode,^metadata_csum",
        "-E",
        "mmp_update_interval=1",
    ],
    ..DEFAULT
};

/// The real device is claimed from the beginning to the end, also when nothing is committed.
#[test]
fn multiple_mount_protection_keeps_others_out_meanwhile() {
    let shape = Shape {
        name: "mmp",
        options: &["-O", "mmp,^resize_inode"],
        ..DEFAULT
    };
    let (start, script) = over_large(&shape, 100_000);
    let device = CrashDevice::over(start.content.clone());
    let base: SharedDevice = Arc::new(device.clone());
    for commits in [false, true] {
        let changes = staged(Arc::clone(&base));
        let claimed = mmp_sequence(&device.content());
        assert_ne!(claimed, CLEAN, "it is not claimed");
        perform(&Extant::default(), &changes, &script);
        if commits {
            let report = changes.commit().unwrap();
            assert!(report.logged > 0, "{report:?}");
        } else {
            drop(changes);
            assert!(tree(&device.content()) == tree(&start.content));
        }
        assert_eq!(mmp_sequence(&device.content()), CLEAN);
    }
    assert!(tree(&device.content()) != tree(&start.content));
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("image");
    device.content().write_to(&place).unwrap();
    oracle::check_clean(&place).unwrap();
}

/// A device that another host takes with the nth write from where the superblock says that changes
/// are to be made until it says that they are; it knows what is written afterwards.
#[derive(Debug)]
struct Taken {
    inner: CrashDevice,
    /// The block of the claim.
    mmp: u64,
    itself: Weak<Taken>,
    state: Mutex<Taking>,
}

#[derive(Debug)]
enum Taking {
    /// Nothing is said about changes yet.
    Before(u64),
    /// So many writes are left, whatever they are.
    Any(u64),
    /// So many writes are left.
    Left(u64),
    /// It is taken, and so many writes were made since.
    Lost(u64),
    Missed,
}

impl Taken {
    fn over(content: &Content, nth: u64) -> Arc<Self> {
        let superblock = Superblock::parse(&superblock_of(content)).unwrap();
        let block = superblock.mmp_block().unwrap();
        let mmp = superblock.block_size().offset_of(block).unwrap();
        Arc::new_cyclic(|itself| Self {
            inner: CrashDevice::over(content.clone()),
            mmp,
            itself: Weak::clone(itself),
            state: Mutex::new(Taking::Before(nth)),
        })
    }

    /// Has it taken with the nth write from now on.
    fn take_with(&self, nth: u64) {
        *self.state.lock().unwrap() = Taking::Any(nth);
    }

    /// How many writes were made since it was taken.
    fn since(&self) -> Option<u64> {
        match *self.state.lock().unwrap() {
            Taking::Lost(writes) => Some(writes),
            _ => None,
        }
    }

    /// Writes another number until whoever has the claim has found that and let go of it.
    fn take(&self) {
        let claimed = self.itself.strong_count();
        let begun = Instant::now();
        while self.itself.strong_count() >= claimed {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody notices");
            let number = 7_u32.to_le_bytes();
            self.inner.write_at(self.mmp + 4, &number).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl BlockDevice for Taken {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.inner.write_at(offset, buf)?;
        if offset == self.mmp {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap();
        let superblock = buf.try_into().ok().filter(|_| offset == SUPERBLOCK_OFFSET);
        let (is_announced, pointer) = superblock.map_or((false, None), waiting::look);
        let said = superblock.is_some();
        *state = match *state {
            Taking::Before(nth) if pointer.is_some() => Taking::Left(nth),
            Taking::Left(_) if said && !is_announced => Taking::Missed,
            Taking::Left(left) => Taking::Left(left - 1),
            Taking::Lost(writes) => Taking::Lost(writes + 1),
            Taking::Before(nth) => Taking::Before(nth),
            Taking::Any(left) => Taking::Any(left - 1),
            Taking::Missed => Taking::Missed,
        };
        if matches!(*state, Taking::Left(0) | Taking::Any(0)) {
            *state = Taking::Lost(0);
            drop(state);
            self.take();
        }
        Ok(())
    }

    /// One request is one write.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        let bufs: Vec<&[u8]> = bufs.iter().map(|buf| &**buf).collect();
        self.write_at(offset, &bufs.concat())
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }
}

/// How many runs go on at once. Each waits for the next renewal of its claim, and does nothing
/// meanwhile.
const AT_ONCE: u64 = 10;

/// What comes of each number, from 0 on.
fn from_0<T: Send>(run: impl Fn(u64) -> T + Sync) -> impl Iterator<Item = (u64, T)> {
    let run = Arc::new(run);
    let firsts = (0..).step_by(AT_ONCE as usize);
    firsts.flat_map(move |first| of_each(first..first + AT_ONCE, &*run))
}

/// What comes of each of these numbers.
fn of_each<T: Send>(
    numbers: impl IntoIterator<Item = u64>,
    run: &(impl Fn(u64) -> T + Sync),
) -> Vec<(u64, T)> {
    thread::scope(|scope| {
        let numbers = numbers.into_iter();
        let runs: Vec<_> = numbers
            .map(|nth| (nth, scope.spawn(move || run(nth))))
            .collect();
        let ended = runs.into_iter();
        ended.map(|(nth, run)| (nth, run.join().unwrap())).collect()
    })
}

/// Also what goes into the log of the file system and into blocks that were free: they may be the
/// other host's by now.
#[test]
fn a_claim_that_is_lost_while_changes_are_prepared_stops_the_writes() {
    let journaled = Shape {
        name: "multiple-mount protection and a journal",
        options: &["-O", "mmp,^resize_inode", "-E", "mmp_update_interval=1"],
        ..DEFAULT
    };
    for (shape, bytes) in [(journaled, 100_000), (PROTECTED, 5000)] {
        let (start, script) = over_large(&shape, bytes);
        let before = tree(&start.content);
        let (mut unchanged, mut waiting) = (0, 0);
        let run = |nth| {
            let taken = Taken::over(&start.content, u64::MAX);
            let changes = staged(Arc::<Taken>::clone(&taken));
            perform(&Extant::default(), &changes, &script);
            taken.take_with(nth);
            (changes.commit(), taken)
        };
        for (nth, (committed, taken)) in of_each([1, 2, 3, 4, 5, 6, 7, 9, 14, 30], &run) {
            let about = format!("{}, {nth}: {committed:?}", shape.name);
            let Some(writes) = taken.since() else {
                committed.unwrap();
                break;
            };
            assert_eq!(writes, 0, "{about}");
            let is_as_before = tree(&taken.inner.content()) == before;
            match committed {
                Err(Error::InUse { .. }) => unchanged += usize::from(is_as_before),
                Err(Error::NotHome(_)) => waiting += usize::from(!is_as_before),
                other => panic!("{about}: {other:?}"),
            }
        }
        assert!(unchanged > 1 && waiting > 0, "{unchanged}, {waiting}");
    }
}

#[test]
fn a_claim_that_is_lost_stops_the_writes_and_leaves_changes_that_wait_or_none() {
    let (start, script) = over_large(&PROTECTED, 5000);
    let before = tree(&start.content);
    let mut waiting = Vec::new();
    let run = |nth| {
        let taken = Taken::over(&start.content, nth);
        let changes = staged(Arc::<Taken>::clone(&taken));
        perform(&Extant::default(), &changes, &script);
        (changes.commit(), taken)
    };
    for (nth, (committed, taken)) in from_0(run) {
        let Some(writes) = taken.since() else {
            committed.unwrap();
            break;
        };
        assert_eq!(writes, 0, "{nth}: {committed:?}");
        let left = taken.inner.content();
        match committed {
            Err(Error::InUse { .. }) => assert!(nth == 0 && tree(&left) == before, "{nth}"),
            Err(Error::NotHome(_)) => {
                assert!(nth > 0 && tree(&left) != before, "{nth}");
                waiting.push(left);
            }
            other => panic!("{nth}: {other:?}"),
        }
    }
    assert!(waiting.len() > 4, "{}", waiting.len());
    // Putting them in place is no different.
    let mut left = waiting.swap_remove(1);
    let superblock = Superblock::parse(&superblock_of(&left)).unwrap();
    let mmp = superblock.mmp_block().unwrap();
    let mmp = superblock.block_size().offset_of(mmp).unwrap();
    left.write(mmp + 4, &CLEAN.to_le_bytes());
    let mut stopped = 0;
    let run = |nth| {
        let taken = Taken::over(&left, nth);
        (Fs::open(Arc::<Taken>::clone(&taken), options()), taken)
    };
    for (nth, (opened, taken)) in from_0(run) {
        let Some(writes) = taken.since() else {
            opened.unwrap().close().unwrap();
            break;
        };
        assert_eq!(writes, 0, "{nth}");
        assert!(opened.is_err(), "{nth}");
        assert!(tree(&taken.inner.content()) == tree(&left), "{nth}");
        stopped += 1;
    }
    assert!(stopped > 4, "{stopped}");
}

/// What is said where nobody has it open.
const CLEAN: u32 = 0xff4d_4d50;

fn mmp_sequence(content: &Content) -> u32 {
    let superblock = Superblock::parse(&superblock_of(content)).unwrap();
    let block = superblock.mmp_block().unwrap();
    let mut sequence = [0; 4];
    let at = superblock.block_size().offset_of(block).unwrap();
    content.read(at + 4, &mut sequence);
    u32::from_le_bytes(sequence)
}
