//! Multiple-mount protection: a block that says which host has the file system open.
//!
//! A host that opens the file system for writing waits to see whether the sequence number in the
//! block changes, puts a number of its own there, and from then on changes it every few seconds.
//! One that finds the number changing keeps its hands off. The block bypasses the log.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/mmp.rst`.
//!
//! # Invariants
//!
//! - Nothing is written to the file system before the claim stands.
//! - When another number is in the block than ours, somebody else has taken the file system, and
//!   the journal stops: we waited too long, or they did not wait.
//! - A claim that is dropped without being released stays in the block, like that of a host that
//!   died: the next one to come waits.

use super::Fs;
use crate::{Error, InPlace, Place, Result};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::checksum::Crc32c;
use extant_format::mmp::{MmpBlock, MmpState};
use extant_format::superblock::Superblock;
use extant_format::{Expected, FormatError, Pblk, Structure};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

static CLAIM: LockClass = LockClass::new("mmp claim", Rank::Leaf);

/// Seconds between two updates where the superblock does not say.
const UPDATE_INTERVAL: u16 = 5;

/// The block, and what we put there.
#[derive(Debug)]
struct Spot {
    device: SharedDevice,
    block: Pblk,
    offset: u64,
    seed: Option<Crc32c>,
}

impl Spot {
    fn read(&self) -> Result<MmpBlock> {
        let mut bytes = [0; MmpBlock::LEN];
        // Other hosts write the block too: what was read before may be in memory still.
        self.device.read_uncached_at(self.offset, &mut bytes)?;
        MmpBlock::parse(&bytes, self.seed).in_place(Place::Block(self.block))
    }

    fn write(&self, record: &MmpBlock) -> Result<()> {
        self.device
            .write_at(self.offset, &record.encode(self.seed))?;
        self.device.flush()?;
        Ok(())
    }

    /// Has `device`, a copy of the one here, say that nobody has it open.
    fn clean(&self, device: &dyn BlockDevice, record: &MmpBlock) -> Result<()> {
        let clean = MmpBlock {
            state: MmpState::Clean,
            ..record.clone()
        };
        Ok(device.write_at(self.offset, &clean.encode(self.seed))?)
    }
}

/// A file system with the feature that nobody else has open, as far as can be seen without a claim.
#[derive(Debug)]
pub(crate) struct Unclaimed {
    place: Spot,
    /// What was in the block.
    found: MmpBlock,
    /// Seconds between two updates.
    update: u16,
}

impl Unclaimed {
    /// Sees whether anybody has the file system on `device` open, if it has the feature; writes
    /// nothing. Calls `wait` to let time pass.
    ///
    /// # Errors
    /// As for [`Claim::take`].
    pub(crate) fn watch(
        device: &SharedDevice,
        superblock: &Superblock,
        wait: impl Fn(Duration),
    ) -> Result<Option<Self>> {
        let Some(block) = superblock.mmp_block() else {
            return Ok(None);
        };
        let first = u64::from(superblock.raw().first_data_block.get()) + 1;
        let last = superblock.blocks_count().saturating_sub(1);
        if !(first..=last).contains(&block.get()) {
            let expected = Expected::Between(first, last);
            let what = Structure::Superblock;
            let source = FormatError::new(what, "mmp_block", block.get(), expected);
            return Err(Error::corrupt(Place::Superblock, source));
        }
        let place = Spot {
            device: Arc::clone(device),
            block,
            offset: superblock.block_size().offset_of(block).unwrap_or(u64::MAX),
            seed: seed(superblock),
        };
        let found = place.read()?;
        let update = match superblock.raw().mmp_update_interval.get() {
            0 => UPDATE_INTERVAL,
            seconds => seconds,
        };
        match found.state {
            MmpState::Clean => {}
            MmpState::Fsck => return Err(in_use(&found, "it is being checked")),
            MmpState::InUse(_) => {
                wait(found.watch(update).in_place(Place::Block(block))?);
                still(&place, &found)?;
            }
        }
        Ok(Some(Self {
            place,
            found,
            update,
        }))
    }

    /// Has `device`, a copy of the one that was seen, say that nobody has it open.
    ///
    /// # Errors
    /// A device that fails.
    pub(crate) fn hide(&self, device: &dyn BlockDevice) -> Result<()> {
        self.place.clean(device, &self.found)
    }
}

/// A claim on a file system, which the others see.
#[derive(Debug)]
pub(crate) struct Claim {
    place: Arc<Spot>,
    record: MmpBlock,
    interval: Duration,
}

impl Claim {
    /// Claims the file system on `device`, if it has the feature. Calls `wait` to let time pass.
    ///
    /// # Errors
    /// [`Error::InUse`] when another host or a checker has it; a block that breaks the format; a
    /// device that fails.
    pub(crate) fn take(
        device: &SharedDevice,
        superblock: &Superblock,
        wait: impl Fn(Duration),
    ) -> Result<Option<Self>> {
        let Some(unclaimed) = Unclaimed::watch(device, superblock, &wait)? else {
            return Ok(None);
        };
        let Unclaimed {
            place,
            found,
            update,
        } = unclaimed;
        let record = MmpBlock {
            state: MmpState::InUse(number()),
            time: now(),
            node_name: host(),
            device_name: name(place.device.name().as_bytes()),
            check_interval: update
                .saturating_mul(2)
                .clamp(MmpBlock::MIN_CHECK_INTERVAL, MmpBlock::MAX_CHECK_INTERVAL),
        };
        place.write(&record)?;
        // Two that come at the same moment both find a dead number; the later write stands.
        if found.state != MmpState::Clean {
            wait(found.watch(update).in_place(Place::Block(place.block))?);
        }
        still(&place, &record)?;
        Ok(Some(Self {
            place: Arc::new(place),
            record,
            interval: Duration::from_secs(update.into()),
        }))
    }

    /// Has `device`, a copy of the one that is claimed, say that nobody has it open.
    ///
    /// # Errors
    /// A block that breaks the format; a device that fails.
    pub(crate) fn hide(&self, device: &dyn BlockDevice) -> Result<()> {
        self.place.clean(device, &self.record)
    }

    /// Renews the claim in a thread of its own from now on, for as long as `fs` lives.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn keep(self, fs: Weak<Fs>) -> Result<Keeper> {
        self.keep_by(move || {
            let fs = fs.upgrade()?;
            Some(Box::new(move |error: Error| {
                if let Ok(journal) = fs.journal() {
                    journal.abort_unrecorded(error);
                }
            }))
        })
    }

    /// Renews the claim in a thread of its own from now on. What is `lost` with it is told, unless
    /// there is nothing any more.
    ///
    /// # Errors
    /// When the system has no thread.
    pub(crate) fn keep_by(
        self,
        lost: impl Fn() -> Option<Box<dyn FnOnce(Error)>> + Send + 'static,
    ) -> Result<Keeper> {
        let bell = Arc::new(Bell {
            signals: Mutex::new(&CLAIM, Signals::default()),
            rung: Condvar::new(),
            stands_until: AtomicU64::new(0),
        });
        bell.stands_for(&self);
        let theirs = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("extant-mmp".to_owned())
            .spawn(move || self.renew(&lost, &theirs))
            .map_err(|_| Error::Internal("the system has no thread for the claim"))?;
        Ok(Keeper {
            bell,
            thread: Mutex::new(&CLAIM, Some(thread)),
        })
    }

    /// Renews the claim until the bell rings, and says how the claim stands then.
    fn renew(
        mut self,
        lost: &dyn Fn() -> Option<Box<dyn FnOnce(Error)>>,
        bell: &Bell,
    ) -> Option<Self> {
        let _over = Over(bell);
        while !bell.wait(self.interval) {
            let lost = lost()?;
            if let Err(error) = self.renew_once() {
                crate::event!(error, %error, "the claim on the file system is lost");
                lost(error);
                return None;
            }
            bell.stands_for(&self);
        }
        Some(self)
    }

    /// How long nobody else takes it who has seen it just now: those who come wait for longer,
    /// twice the interval that the block names, which is twice that of renewing.
    const fn sure_for(&self) -> Duration {
        self.interval.saturating_mul(2)
    }

    fn renew_once(&mut self) -> Result<()> {
        still(&self.place, &self.record)?;
        let MmpState::InUse(number) = self.record.state else {
            return Ok(());
        };
        let next = if number >= MmpState::MAX_IN_USE {
            1
        } else {
            number + 1
        };
        self.record.state = MmpState::InUse(next);
        self.record.time = now();
        self.place.write(&self.record)
    }

    /// Renews the claim with the checksum that it has beside another superblock.
    ///
    /// # Errors
    /// When the claim was lost, or the device fails.
    pub(crate) fn reseal(&mut self, superblock: &Superblock) -> Result<()> {
        still(&self.place, &self.record)?;
        self.place = Arc::new(Spot {
            device: Arc::clone(&self.place.device),
            block: self.place.block,
            offset: self.place.offset,
            seed: seed(superblock),
        });
        self.place.write(&self.record)
    }

    /// Gives the file system back.
    ///
    /// # Errors
    /// When the claim was lost, or the device fails.
    pub(crate) fn release(mut self) -> Result<()> {
        still(&self.place, &self.record)?;
        self.record.state = MmpState::Clean;
        self.record.time = now();
        self.place.write(&self.record)
    }
}

/// What the checksum of the block starts from, if it has one.
fn seed(superblock: &Superblock) -> Option<Crc32c> {
    superblock
        .has_metadata_csum()
        .then(|| Crc32c::seeded(superblock.checksum_seed()))
}

/// Sees to it that the block holds what we last saw or put there.
fn still(place: &Spot, record: &MmpBlock) -> Result<()> {
    let found = place.read()?;
    if found.state == record.state {
        Ok(())
    } else {
        Err(in_use(&found, "it is open elsewhere"))
    }
}

fn in_use(found: &MmpBlock, what: &str) -> Error {
    let text = |bytes: &[u8]| {
        let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).escape_debug().to_string()
    };
    Error::InUse {
        by: format!(
            "{what}, last by host {} as {}",
            text(&found.node_name),
            text(&found.device_name)
        ),
    }
}

/// What passes between the thread that keeps a claim and those who depend on that.
#[derive(Debug)]
pub(crate) struct Bell {
    signals: Mutex<Signals>,
    rung: Condvar,
    /// Until when nobody else can have taken what is claimed, in milliseconds of
    /// [`running`](crate::clock::running).
    stands_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Signals {
    /// The thread is to end.
    ended: bool,
    /// The claim is to be renewed now.
    hurried: bool,
    /// The thread has ended.
    is_over: bool,
}

/// Says that the thread has ended when this is dropped.
struct Over<'a>(&'a Bell);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.signals.lock().is_over = true;
        self.0.rung.notify_all();
    }
}

impl Bell {
    /// Waits for `time`, or until the claim is to be renewed; whether the end has come.
    fn wait(&self, time: Duration) -> bool {
        let mut signals = self.signals.lock();
        while !signals.ended && !signals.hurried {
            if self.rung.wait_for(&mut signals, time) {
                break;
            }
        }
        signals.hurried = false;
        signals.ended
    }

    /// Says that a claim was seen to stand just now.
    fn stands_for(&self, claim: &Claim) {
        let until = crate::clock::running().saturating_add(claim.sure_for());
        let until = until.as_millis() as u64;
        self.stands_until.store(until, Ordering::Release);
        // Under the lock, so that it does not come between the look and the wait of another.
        drop(self.signals.lock());
        self.rung.notify_all();
    }

    fn is_sure(&self) -> bool {
        let now = crate::clock::running().as_millis() as u64;
        now < self.stands_until.load(Ordering::Acquire)
    }

    /// Whether the claim stands. Waits until it is seen to, or is lost, if so much time has passed
    /// since it was last seen that another host may have taken it for that of one that died: this
    /// one was stopped, or asleep.
    pub(crate) fn make_sure(&self) -> bool {
        if self.is_sure() {
            return true;
        }
        let mut signals = self.signals.lock();
        while !signals.is_over && !self.is_sure() {
            signals.hurried = true;
            self.rung.notify_all();
            self.rung.wait(&mut signals);
        }
        self.is_sure()
    }
}

/// Keeps a claim alive, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Keeper {
    bell: Arc<Bell>,
    thread: Mutex<Option<JoinHandle<Option<Claim>>>>,
}

impl Keeper {
    /// Gives the file system back, when nothing will be written any more.
    ///
    /// # Errors
    /// When the claim was lost, or the device fails.
    pub(crate) fn release(&self) -> Result<()> {
        self.take_back()?.map_or(Ok(()), Claim::release)
    }

    /// Ends the thread, and returns the claim, which somebody else renews or gives back; `None`
    /// when that was done before.
    ///
    /// # Errors
    /// When the claim was lost.
    pub(crate) fn take_back(&self) -> Result<Option<Claim>> {
        self.end();
        let Some(thread) = self.thread.lock().take() else {
            return Ok(None);
        };
        match thread.join() {
            Ok(Some(claim)) => Ok(Some(claim)),
            Ok(None) => Err(Error::Internal("the claim on the file system was lost")),
            Err(_) => Err(Error::Internal("the thread that kept the claim ended")),
        }
    }

    /// What those ask who depend on the claim.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    fn end(&self) {
        self.bell.signals.lock().ended = true;
        self.bell.rung.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not waited for: the thread itself may drop the last reference.
        self.end();
    }
}

/// A number that tells this claim from others.
fn number() -> u32 {
    let hash = RandomState::new().hash_one(std::process::id());
    (hash % u64::from(MmpState::MAX_IN_USE)) as u32 + 1
}

fn host() -> [u8; 64] {
    let text = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let text = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    name(text)
}

/// The last bytes of a name, as many as fit.
fn name<const N: usize>(text: &[u8]) -> [u8; N] {
    let skipped = text.len().saturating_sub(N - 1);
    let mut name = [0; N];
    for (to, from) in name.iter_mut().zip(text.iter().skip(skipped)) {
        *to = *from;
    }
    name
}

fn now() -> u64 {
    crate::clock::seconds()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{MountOptions, SuperblockChoice};
    use crate::mount::read_superblock;
    use extant_testkit::crash::Content;
    use extant_testkit::oracle::{dumpe2fs_header, mke2fs};
    use std::cell::Cell;
    use tempfile::TempDir;

    fn image() -> (SharedDevice, Superblock) {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, 8 << 20, &["-t", "ext4", "-O", "mmp"]);
        let device: SharedDevice = Content::of_file(&path).open();
        let superblock = read_superblock(&device, SuperblockChoice::Primary).unwrap();
        (device, superblock)
    }

    fn never(_: Duration) {
        panic!("there is nobody to wait for");
    }

    /// Writes another number to the block, as another host does.
    fn take_away(device: &SharedDevice, superblock: &Superblock) {
        let place = place_of(device, superblock);
        let mut record = place.read().unwrap();
        record.state = MmpState::InUse(7);
        place.write(&record).unwrap();
    }

    /// A host that slept for long looks before it writes, and does not wait for the next renewal.
    #[test]
    fn a_claim_that_was_not_renewed_for_long_is_looked_at_when_asked() {
        let (device, superblock) = image();
        let mut claim = Claim::take(&device, &superblock, never).unwrap().unwrap();
        claim.interval = Duration::from_secs(1000);
        let keeper = claim.keep_by(|| Some(Box::new(|_| ()))).unwrap();
        let bell = Arc::clone(keeper.bell());
        let sleep = || bell.stands_until.store(0, Ordering::Release);
        let number = || place_of(&device, &superblock).read().unwrap().state;
        let first = number();
        assert!(bell.make_sure());
        assert_eq!(number(), first, "it was sure");
        sleep();
        assert!(bell.make_sure());
        assert_ne!(number(), first, "it was not renewed");
        assert!(bell.is_sure());
        sleep();
        take_away(&device, &superblock);
        assert!(!bell.make_sure());
        assert!(keeper.take_back().is_err());
    }

    #[test]
    fn a_claim_keeps_others_out_until_it_is_given_back() {
        let (device, superblock) = image();
        let options = MountOptions::read_write().background(false);
        let fs = Fs::open(Arc::clone(&device), options.clone()).unwrap();
        let claim = Claim::take(&device, &superblock, |_| {
            // Our number changes while the other one watches.
            let keeper = fs.write_state.as_ref().and_then(|w| w.mmp.get());
            assert!(keeper.is_some());
            let place = place_of(&device, &superblock);
            let mut record = place.read().unwrap();
            record.state = MmpState::InUse(7);
            place.write(&record).unwrap();
        });
        assert!(matches!(claim, Err(Error::InUse { .. })), "{claim:?}");
        // And we notice that somebody wrote there.
        assert!(fs.close().is_err());
        drop(fs);

        let (device, _) = image();
        let fs = Fs::open(Arc::clone(&device), options.clone()).unwrap();
        fs.close().unwrap();
        drop(fs);
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("image");
        Content::of_device(&*device)
            .unwrap()
            .write_to(&path)
            .unwrap();
        let dump = dumpe2fs_header(&path);
        assert!(dump.has_feature("mmp"));
        Fs::open(device, options).unwrap().close().unwrap();
    }

    fn place_of(device: &SharedDevice, superblock: &Superblock) -> Spot {
        let block = superblock.mmp_block().unwrap();
        Spot {
            device: Arc::clone(device),
            block,
            offset: superblock.block_size().offset_of(block).unwrap(),
            seed: Some(Crc32c::seeded(superblock.checksum_seed())),
        }
    }

    #[test]
    fn the_claim_of_the_dead_is_watched_and_then_taken_over() {
        let (device, superblock) = image();
        let dead = Claim::take(&device, &superblock, never).unwrap().unwrap();
        let number = dead.record.state;
        drop(dead);
        let waited = Cell::new(Duration::ZERO);
        let wait = |time| waited.set(waited.get() + time);
        let claim = Claim::take(&device, &superblock, wait).unwrap().unwrap();
        assert_ne!(claim.record.state, number);
        assert!(waited.get() >= Duration::from_secs(2 * 11), "{waited:?}");
        claim.release().unwrap();
        let claim = Claim::take(&device, &superblock, never).unwrap().unwrap();
        claim.release().unwrap();
    }

    #[test]
    fn a_checker_at_work_is_not_disturbed() {
        let (device, superblock) = image();
        let place = place_of(&device, &superblock);
        let mut record = place.read().unwrap();
        record.state = MmpState::Fsck;
        place.write(&record).unwrap();
        let refused = Claim::take(&device, &superblock, never);
        assert!(matches!(refused, Err(Error::InUse { .. })));
    }

    #[test]
    fn a_claim_that_is_kept_changes_its_number() {
        let (device, superblock) = image();
        let mut claim = Claim::take(&device, &superblock, never).unwrap().unwrap();
        let before = claim.place.read().unwrap();
        claim.renew_once().unwrap();
        let after = claim.place.read().unwrap();
        assert_ne!(before.state, after.state);
        claim.record.state = MmpState::InUse(MmpState::MAX_IN_USE);
        claim.place.write(&claim.record).unwrap();
        claim.renew_once().unwrap();
        assert_eq!(claim.place.read().unwrap().state, MmpState::InUse(1));
    }
}
