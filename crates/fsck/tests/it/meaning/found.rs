//! What workers found, in a file: a line for each mutant that was judged, and one for each fault.

use super::judge::{Course, Fault};
use extant_testkit::hostile::meaning::MeantMutant;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// The file, in the directory of the images.
const FOUND: &str = "found";
/// What run it is of.
const RUN: &str = "run";
/// Between the parts of a line.
const MARK: char = '\t';

/// Begins a run, or goes on with the same one: with another, what is there is of no use.
pub(super) fn begin(dir: &Path, run: &str) {
    if fs::read_to_string(dir.join(RUN)).is_ok_and(|old| old == run) {
        return;
    }
    let _ = fs::remove_file(dir.join(FOUND));
    fs::write(dir.join(RUN), run).unwrap();
}

/// Appends to what was found.
pub(super) fn note(dir: &Path, mutant: &MeantMutant, course: Course, faults: &[Fault]) {
    let mut text = String::new();
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
    let number = mutant.number;
    text += &format!("{}{MARK}{number}{MARK}{course:?}\n", mutant.kind);
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
pub(super) struct Noted {
    pub(super) kind: String,
    pub(super) outcome: String,
    pub(super) number: usize,
    pub(super) class: String,
    pub(super) story: String,
    pub(super) told: String,
}

/// What workers have told.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) faults: Vec<Noted>,
    /// How many mutants of each kind took which course.
    pub(super) courses: BTreeMap<String, BTreeMap<String, u64>>,
    /// The mutants that were judged, by kind and number.
    pub(super) judged: BTreeSet<(String, usize)>,
}

/// Reads what workers have told so far.
pub(super) fn read(dir: &Path) -> Found {
    let mut found = Found::default();
    let text = fs::read_to_string(dir.join(FOUND)).unwrap_or_default();
    for line in text.lines() {
        let parts: Vec<&str> = line.split(MARK).collect();
        match parts[..] {
            [kind, number, course] => {
                let number = number.parse().unwrap();
                found.judged.insert((kind.to_owned(), number));
                let of_kind = found.courses.entry(kind.to_owned()).or_default();
                *of_kind.entry("all".to_owned()).or_default() += 1;
                let words: Vec<_> = course.split([' ', '{', ',', '}']).collect();
                for word in words.windows(2) {
                    let [name, value] = word else { continue };
                    let count = match *value {
                        "true" => 1,
                        number => number.parse().unwrap_or(0),
                    };
                    if count > 0 {
                        let name = name.trim_end_matches(':').to_owned();
                        *of_kind.entry(name).or_default() += count;
                    }
                }
            }
            [kind, outcome, number, class, story, told] => found.faults.push(Noted {
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
    found
}
