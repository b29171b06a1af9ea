//! What is done in a run.

use std::fmt;

use super::{Engine, Failure};
use crate::crash::{Content, CrashDevice};
use crate::model::{Lane, Op, Outcome, State, Universe};
use crate::rng::Rng;

/// A file system with something in it, closed cleanly, and the lanes that know what.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// What the device holds.
    pub content: Content,
    /// The lanes, everything in them settled.
    pub lanes: Vec<Lane>,
    /// Names that are no lane's business.
    pub bystanders: Vec<String>,
}

/// Operations for each lane of a [`Prepared`] file system; each lane runs in a thread of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Operations by lane.
    pub lanes: Vec<Vec<Op>>,
}

impl Prepared {
    /// One lane that owns the whole tree of `content`, which is a new file system.
    pub fn new(content: Content) -> Prepared {
        Prepared {
            content,
            lanes: vec![Lane::new(0, "")],
            bystanders: Vec::new(),
        }
    }

    /// Lanes for so many threads, each with a directory of its own, which `engine` makes.
    ///
    /// # Errors
    ///
    /// What went wrong.
    pub fn with_lanes<E: Engine>(
        engine: &E,
        content: Content,
        lanes: u16,
    ) -> Result<Prepared, Failure> {
        let dirs: Vec<String> = (0..lanes).map(|n| format!("lane{n}")).collect();
        let prefixes: Vec<String> = dirs.iter().map(|dir| format!("{dir}/")).collect();
        Prepared::with_prefixes(engine, content, dirs, &prefixes)
    }

    /// Lanes for so many threads, all of them in one directory, which `engine` makes: each owns the
    /// names that begin with its number.
    ///
    /// # Errors
    ///
    /// What went wrong.
    pub fn with_lanes_together<E: Engine>(
        engine: &E,
        content: Content,
        lanes: u16,
    ) -> Result<Prepared, Failure> {
        let prefixes: Vec<String> = (0..lanes).map(|n| format!("all/{n}-")).collect();
        Prepared::with_prefixes(engine, content, vec!["all".to_owned()], &prefixes)
    }

    fn with_prefixes<E: Engine>(
        engine: &E,
        content: Content,
        dirs: Vec<String>,
        prefixes: &[String],
    ) -> Result<Prepared, Failure> {
        let mkdirs = dirs.into_iter().map(|path| Op::Mkdir { path, mode: 0o755 });
        let made = Prepared::new(content).done(engine, &Script::one(mkdirs.collect()))?;
        let lanes = (0..).zip(prefixes);
        Ok(Prepared {
            lanes: lanes.map(|(n, prefix)| Lane::new(n, prefix)).collect(),
            ..made
        })
    }

    /// Prepares what is there after `engine` did `script` and closed; used as the start of many
    /// runs.
    ///
    /// # Errors
    ///
    /// What went wrong.
    pub fn done<E: Engine>(&self, engine: &E, script: &Script) -> Result<Prepared, Failure> {
        let failed = |what| Failure {
            what,
            script: script.to_string(),
        };
        let device = CrashDevice::over(self.content.clone());
        let fs = engine
            .open(std::sync::Arc::new(device.clone()))
            .map_err(failed)?;
        let mut lanes = self.lanes.clone();
        for (lane, ops) in lanes.iter_mut().zip(&script.lanes) {
            for op in ops {
                run_one(engine, &fs, lane, None, op).map_err(failed)?;
            }
            lane.mark_durable();
        }
        engine.close(fs).map_err(failed)?;
        Ok(Prepared {
            content: device.content(),
            lanes,
            bystanders: self.bystanders.clone(),
        })
    }
}

/// Does one operation of a lane.
pub(super) fn run_one<E: Engine>(
    engine: &E,
    fs: &E::Open,
    lane: &mut Lane,
    device: Option<&CrashDevice>,
    op: &Op,
) -> Result<Outcome, String> {
    let whole = op.map_paths(|path| lane.path(path));
    lane.run(device, op.clone(), |_, tag| engine.perform(fs, &whole, tag))
}

impl Script {
    /// Operations of one lane.
    pub fn one(ops: Vec<Op>) -> Script {
        Script { lanes: vec![ops] }
    }

    /// Returns every operation of `universe` that is possible in `state`, alone, and then made
    /// durable.
    pub fn singles(universe: &Universe, state: &State) -> Vec<Script> {
        let ops = universe.possible(state).into_iter();
        ops.map(|op| Script::one(vec![op, Op::Syncfs])).collect()
    }

    /// Returns every two operations of `universe` that are possible one after the other, in one
    /// transaction and in two.
    pub fn pairs(universe: &Universe, state: &State) -> Vec<Script> {
        let mut all = Vec::new();
        for first in universe.possible(state) {
            let mut between = state.clone();
            if between.apply(&first).is_err() {
                continue;
            }
            for second in universe.possible(&between) {
                let (first, second) = (first.clone(), second.clone());
                all.push(Script::one(vec![first.clone(), second.clone(), Op::Syncfs]));
                all.push(Script::one(vec![first, Op::Syncfs, second, Op::Syncfs]));
            }
        }
        all
    }

    /// `len` random operations for each lane of `prepared`, most of them possible.
    pub fn random(universe: &Universe, rng: &mut Rng, prepared: &Prepared, len: usize) -> Script {
        let lane = |lane: &Lane| {
            let mut state = lane.state().clone();
            let mut ops = Vec::new();
            for _ in 0..len {
                let op = universe.random(rng, &state);
                let _ = state.apply(&op);
                ops.push(op);
            }
            ops
        };
        Script {
            lanes: prepared.lanes.iter().map(lane).collect(),
        }
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(Vec::len).sum()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lane, ops) in self.lanes.iter().enumerate() {
            for op in ops {
                writeln!(f, "  lane {lane}: {op}")?;
            }
        }
        Ok(())
    }
}
