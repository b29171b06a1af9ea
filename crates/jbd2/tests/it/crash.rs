//! Whatever a crash leaves, recovery gives the state after the last transaction whose commit
//! returned, or after the one that was being committed.
//!
//! Random transactions run against a model, together with what surrounds a log: home writes of
//! checkpointing, tails that follow them, and data written directly to freed blocks.

use crate::recording_device::{Op, RecordingDevice};
use crate::synthetic::{FS_BLOCKS, KINDS, LogMaker, SIZE};
use crate::writing::{append, at, start};
use extant_blockdev::BlockDevice;
use extant_format::Tid;
use extant_format::jbd2::MAGIC;
use extant_jbd2::{JournalError, Log, LogRun, LogWriter, Recovery, WriterOptions};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

/// Blocks the transactions work on.
const BLOCKS: u64 = 40;

type Outcome = Result<(), Box<dyn Error>>;

/// What a block is after some transaction.
#[derive(Clone, Debug, PartialEq)]
enum Content {
    Logged(Vec<u8>),
    /// Revoked by the transaction of this number, counted from 1: anyone may write to it.
    Free(usize),
}

type State = BTreeMap<u64, Content>;

/// Data written to a freed block past the log: durable from operation `flushed` on.
struct DirectWrite {
    block: u64,
    begun: usize,
    flushed: usize,
    freed_by: usize,
    bytes: Vec<u8>,
}

struct Run {
    device: Arc<RecordingDevice>,
    runs: Vec<LogRun>,
    writer: LogWriter,
    rng: Rng,
    /// After 0, 1, 2 ... transactions.
    states: Vec<State>,
    /// Operations the device had done when each transaction began, and when its commit returned.
    begun: Vec<usize>,
    acknowledged: Vec<usize>,
    direct: Vec<DirectWrite>,
    /// Blocks whose newest image may not be home yet, and the transaction it is from.
    dirty: BTreeMap<u64, usize>,
}

impl Run {
    fn new(kind: (u32, u32), seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let log = LogMaker::new(kind, 0, 1);
        let device = if rng.one_in(2) {
            RecordingDevice::far(&log.image)
        } else {
            RecordingDevice::new(&log.image)
        };
        let device = Arc::new(device);
        let first = *rng.pick(&[1, 1000, u32::MAX - 4]);
        let writer = start(&device, &log.runs, first, WriterOptions::default()).unwrap();
        Self {
            device,
            runs: log.runs,
            writer,
            rng,
            states: vec![State::new()],
            begun: Vec::new(),
            acknowledged: Vec::new(),
            direct: Vec::new(),
            dirty: BTreeMap::new(),
        }
    }

    fn state(&self) -> &State {
        self.states.last().unwrap()
    }

    fn step(&mut self) -> Outcome {
        match self.rng.below(6) {
            0 => self.checkpoint(),
            1 => self.write_directly(),
            _ => self.transaction(),
        }
    }

    fn transaction(&mut self) -> Outcome {
        let mut state = self.state().clone();
        let mut images: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let most = if self.rng.one_in(8) { BLOCKS } else { 7 };
        for _ in 0..self.rng.below(most) {
            let mut bytes = vec![0; SIZE.len()];
            self.rng.fill(&mut bytes);
            if self.rng.one_in(4) {
                bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
            images.insert(self.rng.below(BLOCKS), bytes);
        }
        let number = self.states.len();
        let mut revokes = Vec::new();
        for (block, content) in &mut state {
            let logged = matches!(content, Content::Logged(_));
            if logged && !images.contains_key(block) && self.rng.one_in(6) {
                *content = Content::Free(number);
                revokes.push(*block);
            }
        }
        for (block, bytes) in &images {
            state.insert(*block, Content::Logged(bytes.clone()));
        }
        let images: Vec<_> = images.into_iter().collect();
        let needed = self.writer.needed(images.len(), revokes.len());
        if needed > self.writer.free() {
            self.shorten_log()?;
        }
        if needed > self.writer.free() {
            self.empty_log()?;
        }
        self.begun.push(self.device.op_count());
        self.states.push(state);
        let tid = append(&mut self.writer, &images, &revokes)?;
        self.writer.commit(tid, at(number as u64))?;
        self.acknowledged.push(self.device.op_count());
        for block in revokes {
            self.dirty.remove(&block);
        }
        let changed = images.iter().map(|(block, _)| (*block, number));
        self.dirty.extend(changed);
        Ok(())
    }

    /// Writes committed images home and moves the tail, in one of several ways.
    fn checkpoint(&mut self) -> Outcome {
        match self.rng.below(5) {
            0 => self.empty_log(),
            1 => {
                self.write_home(usize::MAX)?;
                Ok(self.writer.queue_tail(None)?)
            }
            2 => {
                let (keep, tid) = self.some_live();
                self.write_home(keep)?;
                Ok(self.writer.queue_tail(tid)?)
            }
            _ => self.shorten_log(),
        }
    }

    /// A live transaction, as its number and its tid; the ones before it are to leave the log.
    fn some_live(&mut self) -> (usize, Option<Tid>) {
        let live: Vec<_> = self.writer.live().collect();
        let kept = self.rng.below(live.len() as u64 + 1) as usize;
        let tid = live.get(live.len() - kept).map(|span| span.tid);
        (self.states.len() - kept, tid)
    }

    fn shorten_log(&mut self) -> Outcome {
        let (keep, tid) = self.some_live();
        self.write_home(keep)?;
        self.device.flush()?;
        Ok(self.writer.set_tail(tid)?)
    }

    fn empty_log(&mut self) -> Outcome {
        self.write_home(usize::MAX)?;
        self.device.flush()?;
        if self.rng.one_in(8) {
            return Ok(self.writer.close()?);
        }
        Ok(self.writer.set_tail(None)?)
    }

    /// Writes the blocks home whose newest image is from a transaction before number `keep`: later
    /// ones the log still has.
    fn write_home(&mut self, keep: usize) -> Outcome {
        let state = self.states.last().unwrap();
        for (block, from) in &self.dirty {
            if let Some(Content::Logged(bytes)) = state.get(block)
                && *from < keep
            {
                self.write_block(*block, bytes)?;
            }
        }
        self.dirty.retain(|_, from| *from >= keep);
        Ok(())
    }

    fn write_block(&self, block: u64, bytes: &[u8]) -> Outcome {
        Ok(self.device.write_at(block * SIZE.len() as u64, bytes)?)
    }

    fn write_directly(&mut self) -> Outcome {
        let free = self
            .state()
            .iter()
            .find_map(|(block, content)| match content {
                Content::Free(by) => Some((*block, *by)),
                Content::Logged(_) => None,
            });
        if let Some((block, freed_by)) = free {
            let bytes = vec![self.rng.next_u64() as u8; SIZE.len()];
            self.direct.push(DirectWrite {
                block,
                begun: self.device.op_count(),
                flushed: usize::MAX,
                freed_by,
                bytes: bytes.clone(),
            });
            self.write_block(block, &bytes)?;
            self.device.flush()?;
            let done = self.device.op_count();
            self.direct.last_mut().unwrap().flushed = done;
        }
        Ok(())
    }

    /// Checks every crash after each of the operations.
    fn check(&mut self, samples: u32) -> Result<usize, String> {
        let mut crashes = self.device.crashes();
        let mut checked = 0;
        let ops = self.device.ops();
        let mut rng = Rng::new(self.rng.next_u64());
        for (done, op) in (1..).zip(&ops) {
            crashes.follow(op);
            for image in crashes.images(&mut rng, samples) {
                self.check_image(&image, done)?;
                checked += 1;
            }
        }
        Ok(checked)
    }

    /// Whether `image`, left after `ops` operations, recovers to a state it may be in.
    fn check_image(&self, image: &[u8], ops: usize) -> Result<(), String> {
        let device = RecordingDevice::new(image);
        let recovered = || -> Result<Recovery, JournalError> {
            let log = Log::open(&device, &self.runs, SIZE)?;
            let recovery = log.recover(FS_BLOCKS)?;
            recovery.write_home(&log)?;
            Ok(recovery)
        };
        let recovery = recovered().map_err(|e| format!("after {ops} operations: {e}"))?;
        let image = device.image();
        let acknowledged = self.acknowledged.partition_point(|at| *at <= ops);
        let begun = self.begun.partition_point(|at| *at < ops);
        let differences: Vec<_> = (acknowledged..=begun)
            .map(|number| self.difference(&image, number, ops))
            .collect();
        if differences.iter().any(Option::is_none) {
            return Ok(());
        }
        Err(format!(
            "after {ops} operations, {acknowledged} transactions acknowledged and {begun} begun: \
             {differences:?}; {recovery:?}"
        ))
    }

    /// Why `image` is not the state after `number` transactions.
    fn difference(&self, image: &[u8], number: usize, ops: usize) -> Option<String> {
        for (block, content) in &self.states[number] {
            let want = match content {
                Content::Logged(bytes) => Some(bytes),
                Content::Free(by) => self.direct_content(*block, *by, ops),
            };
            let from = *block as usize * SIZE.len();
            if want.is_some_and(|want| image[from..from + SIZE.len()] != want[..]) {
                return Some(format!("block {block} is not as in state {number}"));
            }
        }
        None
    }

    /// What a block freed by transaction `by` holds for certain after `ops` operations.
    fn direct_content(&self, block: u64, by: usize, ops: usize) -> Option<&Vec<u8>> {
        let last = self
            .direct
            .iter()
            .rfind(|write| write.block == block && write.freed_by == by && write.begun < ops)?;
        (last.flushed <= ops).then_some(&last.bytes)
    }
}

#[test]
fn any_crash_leaves_the_last_committed_state_or_the_one_in_progress() {
    let seed = seed_from_env("any_crash_leaves_the_last_committed_state");
    let mut checked = 0;
    for (case, kind) in (0..).zip(KINDS.into_iter().cycle().take(16)) {
        let mut run = Run::new(kind, seed.wrapping_add(case));
        for _ in 0..60 {
            run.step().unwrap();
        }
        checked += run.check(3).unwrap();
    }
    println!("{checked} crash images");
}

#[test]
fn any_failed_operation_leaves_a_log_that_recovers() {
    let seed = seed_from_env("any_failed_operation_leaves_a_log_that_recovers");
    for (case, kind) in (0..).zip(KINDS) {
        for good in 0..120 {
            let mut run = Run::new(kind, seed.wrapping_add(case));
            run.device.fail_after(good);
            let failure = (0..60).find_map(|_| run.step().err());
            if let Some(failure) = failure {
                let by_writer = failure.downcast_ref::<JournalError>().is_some();
                assert_eq!(run.writer.is_stopped(), by_writer, "{failure}");
            }
            // The log is as it was, with the error in it.
            run.writer.record_error(5).unwrap();
            let ops = run.device.op_count();
            run.check_image(&run.device.image(), ops).unwrap();
        }
    }
}

/// The sweep sees what it is for: a log whose tail moves before its blocks are home.
#[test]
fn a_tail_that_moves_too_early_is_caught() {
    let seed = seed_from_env("a_tail_that_moves_too_early_is_caught");
    let mut run = Run::new(KINDS[7], seed);
    for _ in 0..3 {
        run.transaction().unwrap();
    }
    run.writer.set_tail(None).unwrap();
    assert!(run.check(0).is_err());
}

/// And a commit whose first flush is missing, so that it may overtake its transaction. Without
/// checksums nothing but the order protects the log.
#[test]
fn a_commit_that_overtakes_its_transaction_is_caught() {
    let seed = seed_from_env("a_commit_that_overtakes_its_transaction_is_caught");
    let mut run = Run::new(KINDS[0], seed);
    for _ in 0..6 {
        run.transaction().unwrap();
    }
    let ops = run.device.ops();
    let mut crashes = run.device.crashes();
    let mut rng = Rng::new(seed);
    let mut flushes = 0;
    let mut caught = 0;
    for (done, op) in (1..).zip(&ops) {
        if *op == Op::Flush {
            flushes += 1;
            // The first is that of the start; then every commit has two.
            if flushes % 2 == 0 {
                continue;
            }
        }
        crashes.follow(op);
        let images = crashes.images(&mut rng, 20);
        let wrong = |image: &&Vec<u8>| run.check_image(image, done).is_err();
        caught += images.iter().filter(wrong).count();
    }
    assert!(caught > 0);
}
