//! The sweep finds what is wrong with an engine, shown on a toy: its journal is a list of
//! operations, one a sector, and recovery does them all again.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extant_blockdev::SharedDevice;
use extant_testkit::crash::{Budget, Content, Fault, IoKind, SECTOR};
use extant_testkit::model::{Found, FoundKind, Op, Recovered, State, Tag, Universe, tagged};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::sweep::{Engine, FaultSweep, Prepared, Script, Sweep, SweepReport};
use extant_testkit::tree::Time;
use rustix::io::Errno;

/// What the toy does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// fsync and syncfs do not flush.
    NoFlush,
    /// The list on the device runs ahead of its order: its sectors are not checked.
    NoOrder,
    /// Recovery forgets the last operation when it is a rename.
    HalfRename,
    /// A write that failed is reported as done.
    HidesErrors,
    /// fsync and syncfs flush the first time only.
    FlushesOnce,
}

/// The operations that records on devices stand for, by number.
#[derive(Debug)]
struct Toy {
    mistake: Mistake,
    ops: Mutex<Vec<(Op, Tag)>>,
}

#[derive(Debug)]
struct Open {
    device: SharedDevice,
    /// Numbers of the operations in the list.
    list: Mutex<Vec<u64>>,
    /// Whether it was flushed.
    flushed: AtomicBool,
}

impl Toy {
    fn with(mistake: Mistake) -> Toy {
        Toy {
            mistake,
            ops: Mutex::default(),
        }
    }

    /// The tree after the operations of a list.
    fn replay(&self, list: &[u64]) -> Recovered {
        let ops = self.ops.lock().unwrap();
        let mut state = State::new();
        let mut tree = Recovered::new();
        let mut next = 10;
        let mut fresh = |kind, mode| {
            next += 1;
            Found {
                kind,
                mode,
                uid: 0,
                gid: 0,
                nlink: 0,
                inode: next,
                mtime: Time::default(),
                xattrs: BTreeMap::new(),
                no_dump: None,
            }
        };
        tree.insert("", fresh(FoundKind::Directory, 0o755));
        for number in list {
            let (op, tag) = &ops[*number as usize];
            if state.apply(op).is_err() {
                continue;
            }
            match op {
                Op::Create { path, mode } => {
                    let kind = FoundKind::File {
                        size: 0,
                        data: Vec::new(),
                    };
                    tree.insert(path.clone(), fresh(kind, *mode));
                }
                Op::Mkdir { path, mode } => {
                    tree.insert(path.clone(), fresh(FoundKind::Directory, *mode));
                }
                Op::Unlink { path } | Op::Rmdir { path } => {
                    tree.entries.remove(path);
                }
                Op::Rename { from, to } => rename(&mut tree.entries, from, to),
                Op::Write { path, offset, len } => {
                    let found = tree.entries.get_mut(path).unwrap();
                    let FoundKind::File { size, data } = &mut found.kind else {
                        unreachable!("a file");
                    };
                    let mut whole = vec![0; (*size).max(offset + len) as usize];
                    if let Some((_, old)) = data.first() {
                        whole[..old.len()].copy_from_slice(old);
                    }
                    let new = tagged(*tag, *offset, *len);
                    whole[*offset as usize..(offset + len) as usize].copy_from_slice(&new);
                    *size = whole.len() as u64;
                    *data = vec![(0, whole)];
                }
                _ => {}
            }
        }
        tree
    }
}

fn rename(entries: &mut BTreeMap<String, Found>, from: &str, to: &str) {
    if from == to {
        return;
    }
    let moved = |path: &String| {
        let rest = path.strip_prefix(from)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
    };
    entries.remove(to);
    let all: Vec<_> = entries
        .keys()
        .filter_map(|p| Some((p.clone(), moved(p)?)))
        .collect();
    for (old, new) in all {
        let found = entries.remove(&old).unwrap();
        entries.insert(new, found);
    }
}

impl Engine for Toy {
    type Open = Open;

    fn open(&self, device: SharedDevice) -> Result<Open, String> {
        let mut list = Vec::new();
        let mut sector = [0; SECTOR];
        for at in 0..device.size() / SECTOR as u64 {
            device
                .read_at(at * SECTOR as u64, &mut sector)
                .map_err(|e| e.to_string())?;
            match u64::from_le_bytes(sector[..8].try_into().unwrap()) {
                0 if self.mistake == Mistake::NoOrder && at < 64 => {}
                0 => break,
                number => list.push(number - 1),
            }
        }
        let ops = self.ops.lock().unwrap();
        if self.mistake == Mistake::HalfRename
            && list
                .last()
                .is_some_and(|n| matches!(ops[*n as usize].0, Op::Rename { .. }))
        {
            list.pop();
        }
        drop(ops);
        let list = Mutex::new(list);
        Ok(Open {
            device,
            list,
            flushed: AtomicBool::new(false),
        })
    }

    fn perform(&self, fs: &Open, op: &Op, tag: Tag) -> Result<u64, Errno> {
        let mut list = fs.list.lock().unwrap();
        let mut ops = self.ops.lock().unwrap();
        let mut state = State::new();
        for number in list.iter() {
            let _ = state.apply(&ops[*number as usize].0);
        }
        state.apply(op)?;
        if op.is_sync() {
            let again = fs.flushed.swap(true, Ordering::Relaxed);
            let flush = match self.mistake {
                Mistake::NoFlush => false,
                Mistake::FlushesOnce => !again,
                _ => true,
            };
            return match flush.then(|| fs.device.flush()) {
                Some(Err(_)) => Err(Errno::IO),
                _ => Ok(0),
            };
        }
        ops.push((op.clone(), tag));
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(&(ops.len() as u64).to_le_bytes());
        let at = list.len() as u64 * SECTOR as u64;
        if fs.device.write_at(at, &sector).is_err() && self.mistake != Mistake::HidesErrors {
            return Err(Errno::IO);
        }
        list.push(ops.len() as u64 - 1);
        match op {
            Op::Write { len, .. } => Ok(*len),
            _ => Ok(0),
        }
    }

    fn tree(&self, fs: &Open) -> Result<Recovered, String> {
        Ok(self.replay(&fs.list.lock().unwrap()))
    }

    fn close(&self, fs: Open) -> Result<(), String> {
        fs.device.flush().map_err(|e| e.to_string())
    }
}

/// What the toy can do.
fn toy_universe() -> Universe {
    Universe {
        writes: vec![(0, 4096), (4096, 1000)],
        allows: can_do,
        ..Universe::small()
    }
}

fn can_do(op: &Op) -> bool {
    !matches!(
        op,
        Op::Link { .. }
            | Op::Symlink { .. }
            | Op::Truncate { .. }
            | Op::Allocate { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::RenameNew { .. }
            | Op::Exchange { .. }
            | Op::Temporary { .. }
            | Op::Zero { .. }
            | Op::Shift { .. }
            | Op::Whiteout { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Mknod { .. }
            | Op::NoDump { .. }
            | Op::Inherit { .. }
    )
}

fn prepared(toy: &Toy) -> Prepared {
    Prepared::new(Content::zeros(1 << 20))
        .done(
            toy,
            &Script::one(vec![
                Op::Mkdir {
                    path: "a".to_owned(),
                    mode: 0o755,
                },
                Op::Create {
                    path: "f".to_owned(),
                    mode: 0o644,
                },
            ]),
        )
        .expect("a start")
}

/// Sweeps pairs of operations and random runs until something is found.
fn sweep(mistake: Mistake, seed: u64) -> Result<SweepReport, String> {
    let toy = Toy::with(mistake);
    let start = prepared(&toy);
    let mut report = SweepReport::default();
    let mut rng = Rng::new(seed);
    let state = start.lanes[0].state().clone();
    let mut scripts = Script::pairs(&toy_universe(), &state);
    scripts.retain(|_| rng.one_in(8));
    for _ in 0..5 {
        scripts.push(Script::random(&toy_universe(), &mut rng, &start, 60));
    }
    for script in scripts {
        let one = Sweep::of(200, seed).run(&toy, &start, &script);
        report += one.map_err(|e| e.to_string())?;
    }
    Ok(report)
}

#[test]
fn a_sound_engine_passes() {
    let seed = seed_from_env("a_sound_engine_passes");
    let report = sweep(Mistake::None, seed).unwrap_or_else(|e| panic!("{e}"));
    println!("{report}");
    assert!(
        report.distinct > 300 && report.judged > report.distinct / 2,
        "{report}"
    );
}

#[test]
fn every_mistake_is_found() {
    let seed = seed_from_env("every_mistake_is_found");
    for (mistake, tells) in [
        (Mistake::NoFlush, "was promised to last"),
        (Mistake::NoOrder, "no state in between fits"),
        (Mistake::HalfRename, "no state in between fits"),
    ] {
        let why = sweep(mistake, seed).expect_err("it must be found");
        println!("{mistake:?}: {why}");
        assert!(
            why.contains(tells) && why.contains("in the run of"),
            "{mistake:?}: {why}"
        );
    }
}

#[test]
fn lanes_run_in_threads_and_images_are_judged_in_threads() {
    let seed = seed_from_env("lanes_run_in_threads_and_images_are_judged_in_threads");
    let toy = Toy::with(Mistake::None);
    let content = || Content::zeros(1 << 20);
    for start in [
        Prepared::with_lanes(&toy, content(), 3),
        Prepared::with_lanes_together(&toy, content(), 3),
    ] {
        let start = start.expect("a start");
        let mut rng = Rng::new(seed);
        let script = Script::random(&toy_universe(), &mut rng, &start, 40);
        let sweep = Sweep {
            threads: 2,
            budget: Budget::limited(300, seed),
            ..Sweep::of(300, seed)
        };
        let report = sweep
            .run(&toy, &start, &script)
            .unwrap_or_else(|e| panic!("{e}"));
        println!("{report}");
        assert!(report.judged > 100, "{report}");
    }
}

#[test]
fn hidden_faults_are_found_and_reported_ones_are_legal() {
    let script = |toy: &Toy| {
        let mut rng = Rng::new(3);
        Script::random(&toy_universe(), &mut rng, &prepared(toy), 60)
    };
    for kind in [IoKind::Write, IoKind::Flush] {
        let toy = Toy::with(Mistake::None);
        let report = FaultSweep::of(kind)
            .run(&toy, &prepared(&toy), &script(&toy))
            .unwrap_or_else(|e| panic!("{e}"));
        println!("{kind:?}: {report}");
        assert!(
            report.runs > 0 && report.reported == report.runs,
            "{report}"
        );
    }
    let toy = Toy::with(Mistake::HidesErrors);
    let why = FaultSweep::of(IoKind::Write)
        .run(&toy, &prepared(&toy), &script(&toy))
        .expect_err("a lost write");
    println!("{why}");

    let lost = FaultSweep {
        fault: Fault::Lost,
        ..FaultSweep::of(IoKind::Flush)
    };
    let toy = Toy::with(Mistake::None);
    let report = lost
        .run(&toy, &prepared(&toy), &script(&toy))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(report.runs > 0 && report.judged > report.runs, "{report}");
    let toy = Toy::with(Mistake::FlushesOnce);
    let why = lost
        .run(&toy, &prepared(&toy), &script(&toy))
        .expect_err("no flush after the one that was lost");
    assert!(why.what.contains("was promised to last"), "{why}");
    let late = FaultSweep {
        fault: Fault::Late(Duration::from_micros(10)),
        ..FaultSweep::of(IoKind::Any)
    };
    let toy = Toy::with(Mistake::None);
    let report = late
        .run(&toy, &prepared(&toy), &script(&toy))
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(report.runs > 0, "{report}");
}
