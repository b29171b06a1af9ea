//! What was done, in lanes of one thread each, and how it ended.

use std::collections::HashMap;

use rustix::io::Errno;

use super::data::DataLog;
use super::state::{DataChange, Id, State};
use super::{Op, Tag};
use crate::crash::CrashDevice;

/// When written data becomes part of the file after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataPromise {
    /// A write that needs new blocks is mapped before it returns: its size and content stand in the
    /// order of operations. A truncation takes nothing away before the smaller size is durable.
    InOrder,
    /// Blocks may be mapped any time later (delayed allocation): until fsync, the size may lag
    /// behind and what was written may be missing.
    Delayed,
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was refused and changed nothing.
    Refused(Errno),
    /// It failed in a way that leaves open whether it was done; its lane goes no further.
    Unknown(Errno),
}

/// What a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// One inode, and with it the operations up to the one that changed it last.
    One { id: Id, last_change: Option<usize> },
    /// All.
    All,
}

#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) outcome: Outcome,
    pub(super) sync: Option<Sync>,
    /// The file that was written.
    pub(super) written: Option<Id>,
}

/// The operations of one thread on paths of its own, one after the other.
#[derive(Debug, Clone)]
pub struct Lane {
    number: u16,
    prefix: String,
    block_size: u64,
    /// Entry `n` is the state before operation `n`; the last one is now.
    states: Vec<State>,
    steps: Vec<Step>,
    data: HashMap<Id, DataLog>,
    /// The operation that changed each inode last: for fsync, and for fdatasync.
    changed: HashMap<Id, (usize, Option<usize>)>,
    /// Sizes that the record of a file may have, as nobody says when it is written back: those the
    /// file had since one was stored for certain, each with the operation that had changed size or
    /// extents last.
    stored: HashMap<Id, Vec<(u64, Option<usize>)>>,
    /// Operations with smaller numbers were durable before the run began.
    durable_steps: usize,
    stopped: bool,
}

impl Lane {
    /// Returns the lane that owns every path that begins with `prefix`: `""` for the whole tree,
    /// `"dir/"` for what is in a directory (which is the model's root then and must be there),
    /// `"dir/w3-"` for some names in it. Numbers are distinct within a history.
    pub fn new(number: u16, prefix: &str) -> Lane {
        Lane {
            number,
            prefix: prefix.to_owned(),
            block_size: 4096,
            states: vec![State::new()],
            steps: Vec::new(),
            data: HashMap::new(),
            changed: HashMap::new(),
            stored: HashMap::new(),
            durable_steps: 0,
            stopped: false,
        }
    }

    /// Sets the size of blocks of the file system, in bytes (4096 otherwise).
    #[must_use]
    pub fn block_size(mut self, bytes: u64) -> Lane {
        self.block_size = bytes;
        self
    }

    /// Returns the state now.
    pub fn state(&self) -> &State {
        self.states.last().expect("a state is always there")
    }

    /// Returns the path of the whole file system for a path of the lane.
    pub fn path(&self, path: &str) -> String {
        match path {
            "" => self.prefix.trim_end_matches('/').to_owned(),
            _ => format!("{}{path}", self.prefix),
        }
    }

    /// Returns the operations so far and how they ended.
    pub fn done(&self) -> impl Iterator<Item = (&Op, Outcome)> {
        self.steps.iter().map(|step| (&step.op, step.outcome))
    }

    /// Operations so far.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns whether there was none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Returns whether an outcome was unknown: nothing after it is modelled.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns what the next operation, if it is a write, writes.
    pub fn next_tag(&self) -> Tag {
        Tag {
            lane: self.number,
            op: self.steps.len() as u32,
        }
    }

    /// Says that everything so far is durable, whatever a crash does: for a set-up whose log is
    /// forgotten ([`CrashDevice::restart`]).
    pub fn mark_durable(&mut self) {
        let now = self.state().clone();
        self.note_stored(&now, &Op::Syncfs, None);
        self.durable_steps = self.steps.len();
    }

    /// Does `op` through `perform` and compares the result with the model's. `perform` gets the
    /// operation with paths of the lane (see [`Lane::path`]) and the tag of what is to be written;
    /// it returns the bytes written, or reserved; of an [`Op::Shift`] 1 when a crash leaves all of
    /// it or nothing, and 0 otherwise (any number for other operations). On `device` the
    /// operation's begin and end are marked.
    ///
    /// Out of space is accepted as a refusal, but of an [`Op::Shift`], a part of which may stay. An
    /// I/O error or a file system that became read-only stops the lane, because nobody knows
    /// whether the operation was done.
    ///
    /// # Errors
    ///
    /// A sentence when the result is not what the model expects; the lane is stopped then.
    pub fn run(
        &mut self,
        device: Option<&CrashDevice>,
        op: Op,
        perform: impl FnOnce(&Op, Tag) -> Result<u64, Errno>,
    ) -> Result<Outcome, String> {
        let number = self.steps.len();
        let tag = self.next_tag();
        let mark = |end| {
            if let Some(device) = device {
                device.mark(mark_of(self.number, number, end));
            }
        };
        mark(false);
        let result = perform(&op, tag);
        // An end is an acknowledgement: only what was done has one.
        if result.is_ok() {
            mark(true);
        }
        if self.stopped {
            return Ok(match result {
                Ok(_) => Outcome::Done,
                Err(errno) => Outcome::Unknown(errno),
            });
        }
        self.record(op, result)
    }

    /// Notes what an operation did that was performed elsewhere; see [`Lane::run`].
    ///
    /// # Errors
    ///
    /// As for [`Lane::run`].
    pub fn record(&mut self, op: Op, result: Result<u64, Errno>) -> Result<Outcome, String> {
        let op = match (op, &result) {
            (Op::Write { path, offset, len }, Ok(written)) => Op::Write {
                path,
                offset,
                len: len.min(*written),
            },
            (
                Op::Allocate {
                    path,
                    offset,
                    len,
                    keep,
                },
                Ok(done),
            ) => Op::Allocate {
                path,
                offset,
                len: len.min(*done),
                keep,
            },
            (op, _) => op,
        };
        let mut next = self.state().clone();
        let expected = next.perform(&op);
        let outcome = match (&result, &expected) {
            (Ok(_), Ok(_)) => Outcome::Done,
            (Err(got), Err(wanted)) if got == wanted => Outcome::Refused(*got),
            (Err(Errno::NOSPC), Ok(_)) if matches!(op, Op::Shift { .. }) => {
                Outcome::Unknown(Errno::NOSPC)
            }
            (Err(Errno::NOSPC), _) => Outcome::Refused(Errno::NOSPC),
            (Err(errno @ (Errno::IO | Errno::ROFS)), _) => Outcome::Unknown(*errno),
            _ => {
                self.stopped = true;
                let number = self.steps.len();
                let name = |result: Option<&Errno>| {
                    result.map_or("success".to_owned(), ToString::to_string)
                };
                return Err(format!(
                    "operation {number} of lane {} ({op}) gave {}, the model expects {}",
                    self.number,
                    name(result.as_ref().err()),
                    name(expected.as_ref().err())
                ));
            }
        };
        self.stopped |= matches!(outcome, Outcome::Unknown(_));
        let mut step = Step {
            op,
            outcome,
            sync: None,
            written: None,
        };
        match (outcome, expected) {
            (Outcome::Done | Outcome::Unknown(_), Ok(effect)) => {
                let number = self.steps.len();
                let (mut touched, mut resized) = (effect.touched, effect.resized);
                // What is cut off before it was written back leaves no trace.
                if let Some((id, DataChange::Cut { size })) = effect.data
                    && let Some(stored) = self.stored.get(&id)
                    && let Some((_, before)) = stored.iter().find(|stored| stored.0 == size)
                    && let Some(changed) = self.changed.get_mut(&id)
                {
                    changed.1 = *before;
                    resized.clear();
                }
                if let Some((id, mut change)) = effect.data {
                    let log = self.data.entry(id).or_default();
                    let is_whole = match &mut change {
                        DataChange::Cut { .. } => true,
                        DataChange::Shift(shift) => {
                            shift.whole = result == Ok(1);
                            shift.whole
                        }
                        _ => false,
                    };
                    if !is_whole {
                        step.written = Some(id);
                    }
                    if let DataChange::Write { offset, len } = change
                        && log.would_map(offset, len, self.block_size)
                    {
                        touched.push(id);
                        resized.push(id);
                    }
                    log.push(number, change);
                }
                for id in touched {
                    self.changed.entry(id).or_insert((number, None)).0 = number;
                }
                for id in resized {
                    self.changed.entry(id).or_insert((number, None)).1 = Some(number);
                }
                step.sync = self.sync_of(&step.op, effect.synced);
                self.note_stored(&next, &step.op, effect.data);
                if let Op::Allocate { path, .. } = &step.op {
                    step.written = next.find(path).ok();
                }
                self.states.push(next);
            }
            _ => {
                let mut same = self.state().clone();
                if let Op::Allocate { path, .. } = &step.op {
                    // What was reserved before space ran out stays, and is a change of the file.
                    step.written = same.touch(path);
                }
                if let (
                    Op::Whiteout { from, to },
                    Outcome::Refused(Errno::NOTEMPTY | Errno::MLINK | Errno::NOSPC),
                ) = (&step.op, outcome)
                {
                    same.touch_refused_whiteout(from, to);
                }
                if let (
                    Op::Zero {
                        path, offset, len, ..
                    },
                    Outcome::Refused(Errno::NOSPC),
                ) = (&step.op, outcome)
                    && let Some(id) = same.touch(path)
                {
                    // The same here: some of it may be zeros.
                    let (offset, len) = (*offset, *len);
                    let change = DataChange::Zero {
                        offset,
                        len,
                        all: false,
                    };
                    self.data
                        .entry(id)
                        .or_default()
                        .push(self.steps.len(), change);
                    step.written = Some(id);
                }
                self.states.push(same);
            }
        }
        self.steps.push(step);
        Ok(outcome)
    }

    /// Notes the sizes that records may have after an operation.
    fn note_stored(&mut self, next: &State, op: &Op, data: Option<(Id, DataChange)>) {
        let certain = op.is_sync() || !matches!(data, Some((_, DataChange::Write { .. })));
        for (id, size) in next.file_sizes() {
            let last = self.changed.get(&id).and_then(|changed| changed.1);
            let stored = self.stored.entry(id).or_default();
            let is_its = match op {
                Op::Fsync { path } | Op::Fdatasync { path } => next.find(path) == Ok(id),
                _ => *op == Op::Syncfs || data.is_some_and(|(written, _)| written == id),
            };
            if is_its && certain {
                stored.clear();
            }
            if !stored.contains(&(size, last)) {
                stored.push((size, last));
            }
        }
    }

    fn sync_of(&self, op: &Op, synced: Option<Id>) -> Option<Sync> {
        match (op, synced) {
            (Op::Syncfs, _) => Some(Sync::All),
            (_, Some(id)) => {
                let (any, resized) = self.changed.get(&id).copied().unzip();
                let last_change = match op {
                    Op::Fdatasync { .. } => resized.flatten(),
                    _ => any,
                };
                Some(Sync::One { id, last_change })
            }
            _ => None,
        }
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The state before operation `op`.
    pub(super) fn state_before(&self, op: usize) -> &State {
        &self.states[op]
    }

    pub(super) fn data_of(&self, id: Id) -> Option<&DataLog> {
        self.data.get(&id)
    }

    pub(super) fn durable_steps(&self) -> usize {
        self.durable_steps
    }
}

/// The mark of an operation's begin or end in the log of the crash device.
pub(super) fn mark_of(lane: u16, op: usize, is_end: bool) -> u64 {
    1 << 63 | u64::from(lane) << 40 | (op as u64) << 1 | u64::from(is_end)
}

/// Everything that was done in a run.
#[derive(Debug)]
pub struct History {
    pub(super) seed: u64,
    pub(super) lanes: Vec<Lane>,
    pub(super) promise: DataPromise,
    pub(super) bystanders: Vec<String>,
}

impl History {
    /// Returns the history of these lanes, which do not share paths. The seed is for messages.
    ///
    /// # Panics
    ///
    /// When two lanes have the same number.
    pub fn new(seed: u64, lanes: Vec<Lane>) -> History {
        let mut numbers: Vec<u16> = lanes.iter().map(|lane| lane.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() == lanes.len(), "lanes have distinct numbers");
        History {
            seed,
            lanes,
            promise: DataPromise::InOrder,
            bystanders: vec!["lost+found".to_owned()],
        }
    }

    /// Sets the promise about data ([`DataPromise::InOrder`] otherwise).
    #[must_use]
    pub fn promising(mut self, promise: DataPromise) -> History {
        self.promise = promise;
        self
    }

    /// Leaves `path` and what is below out of judgement, as `lost+found` is.
    #[must_use]
    pub fn without(mut self, path: &str) -> History {
        self.bystanders.push(path.to_owned());
        self
    }

    /// Returns the lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }
}
