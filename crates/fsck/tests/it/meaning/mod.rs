//! Mutants by meaning: each is an image with one thing changed, and all that we make of it is compared with what others do.
//!
//! For each: the engine reads it, the check judges it, the repair mends it, the undo file takes that back, and what is
//! clean is written to. What could be read must be readable after a repair; what we call clean or repaired must be so
//! for e2fsck; what we call clean Linux must mount, and read as the engine does.
//!
//! An ordinary run takes some of each kind of image, with the seed of the run. `EXTANT_MEANT_IMAGES=N` sets their number,
//! `EXTANT_MUTANT=KIND:NUMBER` takes one and tells all about it, `EXTANT_MUTANT_DIR` keeps the images and what was found.

mod contents;
mod judge;
mod known;

use extant_testkit::hostile::meaning::{Kind, MeantMutant, Subject, kinds};
use extant_testkit::hostile::{Limits, run_all, serve_numbers};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::rng::{Rng, seed_from_env};
use judge::{Course, Fault, Judge};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Mutants in an ordinary run.
const ORDINARY: u64 = 200;
const DIR: &str = "EXTANT_MEANT_DIR";
/// What workers found, in the directory.
const FOUND: &str = "found";
/// Between the parts of a line of that.
const MARK: char = '\t';

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
    let mut subjects: BTreeMap<usize, (Subject, Allowed)> = BTreeMap::new();
    serve_numbers(LIMITS, |number, tell| {
        let (kind, change) = ((number >> 32) as usize, number as u32 as usize);
        // One at a time: mutants come in the order of kinds.
        if !subjects.contains_key(&kind) {
            subjects.clear();
        }
        let (subject, allowed) = subjects.entry(kind).or_insert_with(|| {
            let subject = Subject::new(kinds()[kind], &dir);
            let allowed = Allowed::of(&subject, scratch.path());
            (subject, allowed)
        });
        let mutant = subject.mutant(change);
        tell(&format!("{}:{change} {}", mutant.kind, mutant.story));
        let judge = allowed.judge(scratch.path());
        let (course, faults) = judge.judge(&mutant);
        note(&dir, &mutant, course, &faults);
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

/// Appends to what was found.
fn note(dir: &Path, mutant: &MeantMutant, course: Course, faults: &[Fault]) {
    let mut text = format!("{}{MARK}{course:?}\n", mutant.kind);
    for Fault { outcome, told } in faults {
        let parts = [
            mutant.kind,
            &format!("{outcome:?}"),
            &mutant.number.to_string(),
            &mutant.class,
            &mutant.story,
            &told.replace(['\n', MARK], " | "),
        ];
        text += &parts.join(&MARK.to_string());
        text.push('\n');
    }
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(dir.join(FOUND))
        .unwrap();
    // At once: other workers write too.
    file.write_all(text.as_bytes()).unwrap();
}

/// A fault as a worker has told it.
#[derive(Debug)]
struct Noted {
    kind: String,
    outcome: String,
    number: usize,
    class: String,
    story: String,
    told: String,
}

/// What workers have told: faults, and how many mutants took which course.
fn noted(dir: &Path) -> (Vec<Noted>, BTreeMap<String, BTreeMap<String, u64>>) {
    let (mut faults, mut courses) = (Vec::new(), BTreeMap::new());
    for line in fs::read_to_string(dir.join(FOUND))
        .unwrap_or_default()
        .lines()
    {
        let parts: Vec<&str> = line.split(MARK).collect();
        match parts[..] {
            [kind, course] => {
                let of_kind: &mut BTreeMap<String, u64> =
                    courses.entry(kind.to_owned()).or_default();
                *of_kind.entry("all".to_owned()).or_default() += 1;
                for word in course.split([' ', '{', ',']).collect::<Vec<_>>().windows(2) {
                    if let [name, "true"] = word {
                        let name = name.trim_end_matches(':').to_owned();
                        *of_kind.entry(name).or_default() += 1;
                    }
                }
            }
            [kind, outcome, number, class, story, told] => faults.push(Noted {
                kind: kind.to_owned(),
                outcome: outcome.to_owned(),
                number: number.parse().unwrap(),
                class: class.to_owned(),
                story: story.to_owned(),
                told: told.to_owned(),
            }),
            _ => panic!("a worker has told {line:?}"),
        }
    }
    (faults, courses)
}

/// Where images are made: in memory if that can be, or where the environment says, and then they are kept.
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

/// Judges one mutant, and tells all about it.
fn one(wanted: &str, place: &Place) {
    let (name, number) = wanted.split_once(':').expect("EXTANT_MUTANT=KIND:NUMBER");
    let kind = kinds().into_iter().find(|kind| kind.name() == name);
    let subject = Subject::new(kind.expect("the name of a kind"), &place.path);
    let mutant = subject.mutant(number.parse().expect("a number"));
    println!("{wanted}: {}", mutant.story);
    let judge = Allowed::of(&subject, &place.path).judge(&place.path);
    let (course, faults) = judge.judge(&mutant);
    println!("{course:?}");
    fs::write(place.path.join("mutant.img"), &mutant.image).unwrap();
    for fault in &faults {
        println!("## {:?}\n{}", fault.outcome, fault.told);
    }
    assert!(faults.is_empty(), "{} faults", faults.len());
}

#[test]
fn mutants_by_meaning_lose_nothing_and_are_judged_as_others_judge_them() {
    let place = Place::new();
    if let Ok(wanted) = std::env::var("EXTANT_MUTANT") {
        return one(&wanted, &place);
    }
    let seed = seed_from_env("mutants_by_meaning_lose_nothing_and_are_judged_as_others_judge_them");
    let images = std::env::var("EXTANT_MEANT_IMAGES").ok();
    let images = images.map_or(ORDINARY, |n| {
        n.parse().expect("EXTANT_MEANT_IMAGES is a number")
    });
    let only = std::env::var("EXTANT_MEANT_KIND").ok();
    let mut rng = Rng::new(seed);
    let _ = fs::remove_file(place.path.join(FOUND));
    let mut here = kinds_here();
    here.retain(|(_, kind)| only.as_deref().is_none_or(|only| only == kind.name()));
    let shares: u64 = here.iter().map(|(_, kind)| kind.share()).sum();
    let mut numbers = Vec::new();
    for (index, kind) in &here {
        let subject = Subject::new(*kind, &place.path);
        let count = (images * kind.share()).div_ceil(shares) as usize;
        let chosen = subject.choose(count, &mut rng);
        println!(
            "{}: {} of {} changes",
            kind.name(),
            chosen.len(),
            subject.changes()
        );
        numbers.extend(
            chosen
                .iter()
                .map(|change| (*index as u64) << 32 | *change as u64),
        );
    }
    let command = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "meaning::meaning_worker", "--nocapture"]);
        command.env(DIR, &place.path);
        command
    };
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let (report, broken) = run_all(command, &numbers, workers, LIMITS);
    println!("{report:?}");
    let (faults, courses) = noted(&place.path);
    for (kind, course) in &courses {
        println!("{kind}: {course:?}");
    }
    judge_all(&faults, images);
    let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Prints what was found, by outcome and what was changed, and fails where it is not known.
fn judge_all(faults: &[Noted], images: u64) {
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
        let open = known::OPEN.iter().find(|open| open.outcome == *outcome);
        let verdict = match open {
            Some(open) => open.why,
            None => "FAILED",
        };
        println!("## {outcome}: {class}: {}, {verdict}", faults.len());
        for fault in faults.iter().take(3) {
            println!("{}:{} {}", fault.kind, fault.number, fault.story);
            println!("    {}", fault.told);
        }
        if open.is_none() {
            failures += faults.len();
        }
    }
    for (why, count) in &argued {
        println!("argued, {count} times: {why}");
    }
    assert_eq!(
        failures, 0,
        "faults with {images} mutants; EXTANT_MUTANT=KIND:NUMBER repeats one"
    );
}
