//! Mutants by meaning: each is an image with one thing changed, and all that we make of it is
//! compared with what others do.
//!
//! For each: the engine reads it, the check judges it, the repair fixes it, the undo file takes
//! that back, and what is clean is written to. What could be read must be readable after a repair;
//! what we call clean or repaired must be so for e2fsck; what we call clean Linux must mount, and
//! read as the engine does.
//!
//! `mended` asks another thing of them: what comes out of each that is mended in memory, beside
//! what e2fsck leaves of a copy.
//!
//! `descriptors` damages the descriptors of groups, each in turn.
//!
//! An ordinary run takes some of each kind of image, with the seed of the run. The environment sets
//! more:
//!
//! | variable | what it says |
//! |---|---|
//! | `EXTANT_MEANT_IMAGES=N` | how many mutants |
//! | `EXTANT_MEANT_RANGE=A..B` | of these, only those from number A up to before number B |
//! | `EXTANT_MEANT_KIND=NAME` | of one kind of image alone |
//! | `EXTANT_MEANT_CLASS=TEXT` | of changes alone in whose class this text is |
//! | `EXTANT_MEANT_WORKERS=N` | how many processes |
//! | `EXTANT_MUTANT_DIR=DIR` | the images and what was found are kept there, and the same run goes on where it was ended |
//! | `EXTANT_MUTANT=KIND:NUMBER` | this one alone, and all about it |

mod contents;
mod descriptors;
mod found;
mod judge;
mod known;
mod mended;

use contents::Contents;
use extant_testkit::hostile::meaning::{Kind, Subject, kinds};
use extant_testkit::hostile::{Limits, run_all, serve_numbers};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::rng::{Rng, seed_from_env};
use found::Noted;
use judge::Judge;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Mutants in an ordinary run.
const ORDINARY: u64 = 200;
const DIR: &str = "EXTANT_MEANT_DIR";
/// Set for workers that mend in memory.
const MEND: &str = "EXTANT_MEANT_MEND";

const LIMITS: Limits = Limits {
    time: Duration::from_secs(120),
    memory: 2 << 30,
    resident: 400 << 20,
};

/// Not a test by itself: what the workers run.
#[test]
fn meaning_worker() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let scratch = tempfile::tempdir_in(&dir).unwrap();
    let mends = std::env::var_os(MEND).is_some();
    let mut subjects: BTreeMap<usize, (Subject, Allowed, Contents)> = BTreeMap::new();
    serve_numbers(LIMITS, |number, tell| {
        let (kind, change) = ((number >> 32) as usize, number as u32 as usize);
        // One at a time: mutants come in the order of kinds.
        if !subjects.contains_key(&kind) {
            subjects.clear();
        }
        let (subject, allowed, whole) = subjects.entry(kind).or_insert_with(|| {
            let subject = Subject::new(kinds()[kind], &dir);
            let allowed = Allowed::of(&subject, scratch.path());
            let whole = mended::whole(&subject.unchanged());
            (subject, allowed, whole)
        });
        let mutant = subject.mutant(change);
        tell(&format!("{}:{change} {}", mutant.kind, mutant.story));
        let (course, faults) = if mends {
            mended::judge(&mutant, whole, allowed.for_linux, scratch.path())
        } else {
            allowed.judge(scratch.path()).judge(&mutant)
        };
        found::note(&dir, &mutant, course, &faults);
        course.clean
    });
}

/// What can be done with an image that is unchanged.
#[derive(Clone, Copy)]
struct Allowed {
    for_linux: bool,
    for_writing: bool,
}

impl Allowed {
    fn of(subject: &Subject, scratch: &Path) -> Self {
        let whole = subject.unchanged();
        let path = scratch.join("whole");
        fs::write(&path, &whole.image).unwrap();
        // With a journal elsewhere, it was made by Linux.
        let for_linux =
            whole.journal.is_some() || KernelMount::try_mount(&path, Mode::ReadOnly, "").is_ok();
        fs::remove_file(path).unwrap();
        Self {
            for_linux,
            for_writing: judge::can_be_written(&whole),
        }
    }

    fn judge(self, dir: &Path) -> Judge<'_> {
        let _ = fs::remove_file(dir.join("mutant.journal"));
        Judge {
            dir,
            for_linux: self.for_linux,
            for_writing: self.for_writing,
        }
    }
}

/// Where images are made: in memory if that can be, or where the environment says, and then they
/// are kept.
struct Place {
    path: PathBuf,
    _dir: Option<TempDir>,
}

impl Place {
    fn new() -> Self {
        if let Some(path) = std::env::var_os("EXTANT_MUTANT_DIR").map(PathBuf::from) {
            fs::create_dir_all(&path).unwrap();
            return Self { path, _dir: None };
        }
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        Self {
            path: dir.path().to_owned(),
            _dir: Some(dir),
        }
    }
}

/// The kinds of image that can be made here; those that cannot are named.
fn kinds_here() -> Vec<(usize, Kind)> {
    let here = kinds().into_iter().enumerate().filter(|(_, kind)| {
        let made = kind.can_be_made();
        if let Err(missing) = &made {
            eprintln!("SKIPPED: {missing}: mutants of {}", kind.name());
        }
        made.is_ok()
    });
    here.collect()
}

/// Judges one mutant, repaired or mended in memory, and tells all about it.
fn one(wanted: &str, place: &Place, mends: bool) {
    let (name, number) = wanted.split_once(':').expect("EXTANT_MUTANT=KIND:NUMBER");
    let kind = kinds().into_iter().find(|kind| kind.name() == name);
    let subject = Subject::new(kind.expect("the name of a kind"), &place.path);
    let mutant = subject.mutant(number.parse().expect("a number"));
    println!("{wanted}: {}", mutant.story);
    fs::write(place.path.join("mutant.img"), &mutant.image).unwrap();
    let allowed = Allowed::of(&subject, &place.path);
    let (course, faults) = if mends {
        let whole = mended::whole(&subject.unchanged());
        mended::judge(&mutant, &whole, allowed.for_linux, &place.path)
    } else {
        allowed.judge(&place.path).judge(&mutant)
    };
    println!("{course:?}");
    for fault in &faults {
        println!("## {:?}\n{}", fault.outcome, fault.told);
    }
    assert!(faults.is_empty(), "{} faults", faults.len());
}

#[test]
fn mutants_by_meaning_lose_nothing_and_are_judged_as_others_judge_them() {
    let place = Place::new();
    if let Ok(wanted) = std::env::var("EXTANT_MUTANT") {
        return one(&wanted, &place, false);
    }
    let seed = seed_from_env("mutants_by_meaning_lose_nothing_and_are_judged_as_others_judge_them");
    run(&place, seed, ORDINARY, false);
}

/// Judges mutants in processes, an ordinary number of them unless another is asked for.
fn run(place: &Place, seed: u64, ordinary: u64, mends: bool) {
    let images = number_from_env("EXTANT_MEANT_IMAGES").unwrap_or(ordinary);
    let (only, class) = (
        text_from_env("EXTANT_MEANT_KIND"),
        text_from_env("EXTANT_MEANT_CLASS"),
    );
    let class = class.unwrap_or_default();
    let name = format!("{seed} {images} {only:?} {class} {mends}");
    found::begin(&place.path, &name);
    let mut here = kinds_here();
    here.retain(|(_, kind)| only.as_deref().is_none_or(|only| only == kind.name()));
    let mut numbers = chosen(&here, images, &class, seed, place);
    let range = range_from_env().unwrap_or(0..numbers.len());
    let range = range.start.min(numbers.len())..range.end.min(numbers.len());
    println!("numbers {range:?} of {} mutants", numbers.len());
    numbers = numbers[range].to_vec();
    let judged = found::read(&place.path).judged;
    numbers.retain(|number| {
        let kind = kinds()[(number >> 32) as usize].name();
        !judged.contains(&(kind.to_owned(), *number as u32 as usize))
    });
    if !judged.is_empty() {
        println!("{} of them were judged before", judged.len());
    }
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "meaning::meaning_worker", "--nocapture"]);
        command.env(DIR, &place.path);
        if mends {
            command.env(MEND, "1");
        }
        command
    };
    let workers = number_from_env("EXTANT_MEANT_WORKERS").map(|n| n as usize);
    let workers =
        workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let (report, broken) = run_all(command, &numbers, workers, LIMITS);
    println!("{report:?}");
    let found = found::read(&place.path);
    for (kind, course) in &found.courses {
        println!("{kind}: {course:?}");
    }
    judge_all(&found.faults, found.judged.len());
    let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn text_from_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number_from_env(name: &str) -> Option<u64> {
    let number = |text: String| {
        text.parse()
            .unwrap_or_else(|e| panic!("{name}={text}: {e}"))
    };
    text_from_env(name).map(number)
}

/// Which of the mutants are wanted, by their place in the list of all.
fn range_from_env() -> Option<Range<usize>> {
    let text = text_from_env("EXTANT_MEANT_RANGE")?;
    let (from, to) = text.split_once("..").expect("EXTANT_MEANT_RANGE=A..B");
    let number = |text: &str, other| match text {
        "" => other,
        text => text.parse().expect("a number in EXTANT_MEANT_RANGE"),
    };
    Some(number(from, 0)..number(to, usize::MAX))
}

/// The numbers of `images` mutants of these kinds, in the order of kinds: the seed decides which.
fn chosen(kinds: &[(usize, Kind)], images: u64, class: &str, seed: u64, place: &Place) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let shares: u64 = kinds.iter().map(|(_, kind)| kind.share()).sum();
    let mut numbers = Vec::new();
    for (index, kind) in kinds {
        let subject = Subject::new(*kind, &place.path);
        let count = (images * kind.share()).div_ceil(shares) as usize;
        let chosen = subject.choose(count, class, &mut rng);
        let (some, all) = (chosen.len(), subject.changes());
        println!("{}: {some} of {all} changes", kind.name());
        let number = |change: &usize| (*index as u64) << 32 | *change as u64;
        numbers.extend(chosen.iter().map(number));
    }
    numbers
}

/// Prints what was found, by outcome and what was changed, and fails where it is not known.
fn judge_all(faults: &[Noted], images: usize) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Noted>> = BTreeMap::new();
    let mut argued: BTreeMap<&str, u64> = BTreeMap::new();
    for fault in faults {
        match known::why(fault) {
            Some(why) => *argued.entry(why).or_default() += 1,
            None => groups
                .entry((&fault.outcome, &fault.class))
                .or_default()
                .push(fault),
        }
    }
    let mut failures = 0;
    for ((outcome, class), faults) in &groups {
        println!("## {outcome}: {class}: {}", faults.len());
        for fault in faults.iter().take(3) {
            println!("{}:{} {}", fault.kind, fault.number, fault.story);
            println!("    {}", fault.told);
        }
        failures += faults.len();
    }
    for (why, count) in &argued {
        println!("argued, {count} times: {why}");
    }
    assert_eq!(
        failures, 0,
        "faults with {images} mutants; EXTANT_MUTANT=KIND:NUMBER repeats one"
    );
}
