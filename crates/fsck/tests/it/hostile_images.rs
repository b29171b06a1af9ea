//! Mutants of small images: the verdict is that of e2fsck, and there is always one.
//!
//! An ordinary run takes the same mutants every time. `EXTANT_HOSTILE_IMAGES=N` sets their number,
//! and then `EXTANT_SEED` where they begin: runs of several ranges may go side by side.

use crate::support::check_bytes;
use extant_format::Ino;
use extant_fsck::{Code, Error, Evidence, Finding, Report, Severity};
use extant_testkit::hostile::{Mutant, load_specimens, make_specimens};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;
use extant_testkit::tool::Output;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Mutants in an ordinary run.
const ORDINARY: u64 = 200;

/// How long e2fsck may take for one mutant: it waits where the block of multiple-mount protection
/// says that another machine has the file system open.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is wrong, if all of it is what e2fsck does not notice: docs/user/check.md has the list, and
/// says why it is an error.
fn ours_alone(report: &Report) -> Option<BTreeSet<Code>> {
    let bad = |severity| severity > Severity::Warning;
    let errors = || report.findings.iter().filter(|f| bad(f.severity()));
    // What a node of the wrong depth leads to is missed everywhere.
    let depth = |f: &Finding| f.code == Code::ExtentNode && says(f, "depth at byte 6");
    let without_node = errors().any(depth);
    let argued = |f: &Finding| is_unnoticed(f) || without_node && FOLLOWS.contains(&f.code);
    errors()
        .all(argued)
        .then(|| errors().map(|f| f.code).collect())
}

/// What else is wrong where blocks of a file are not found.
const FOLLOWS: &[Code] = &[
    Code::ExtentNode,
    Code::InodeBlocks,
    Code::InodeSize,
    Code::QuotaUsage,
    Code::GroupFreeBlocks,
    Code::BlockBitmap,
];

fn says(finding: &Finding, words: &str) -> bool {
    finding.evidence.to_string().contains(words)
}

/// Whether e2fsck does not notice this, or says so and calls the image clean.
fn is_unnoticed(finding: &Finding) -> bool {
    let says = |words| says(finding, words);
    let of = |ino| finding.place.ino == Some(Ino::new(ino));
    let reserved = finding.place.ino.is_some_and(|ino| ino.get() < 11);
    match finding.code {
        Code::GroupChecksum
        | Code::GroupUnusedInodes
        | Code::DirDuplicateName
        | Code::ResizeInode => true,
        Code::JournalSuperblock => ["first at", "start at", "maxlen at"].into_iter().any(says),
        // Its exit code depends on which of its own writes fails first.
        Code::JournalAborted => true,
        // It may find the journal by the copy of its map.
        Code::JournalInode => says("which has no holes"),
        Code::SuperblockField => {
            let unnoticed = [
                "file is named, but the feature",
                "fast commits",
                "multiple of 8",
            ];
            unnoticed.into_iter().any(says)
        }
        Code::OrphanFile => says("which nothing asks for"),
        Code::InodeFlags => says("not the file system's own"),
        Code::OrphanList => says("not in use") || says("cannot be one"),
        Code::DirIndexHash => says("belong") || says("out of order"),
        Code::XattrInInode | Code::XattrBlock => says("no zero byte in a name"),
        Code::XattrHash => says("hash of the value"),
        Code::InlineData => says("without its attribute"),
        Code::InodeExtraSize | Code::InodeReserved | Code::XattrLocation => reserved,
        Code::QuotaFile => says("magic is") || says("out of place"),
        // Of a link whose target lies in the inode.
        Code::InodeBlocks => matches!(finding.evidence, Evidence::Number { expected: 0, .. }),
        Code::BlockOfMetadata => of(1),
        // Those of groups that were never used, in the bitmap of another.
        Code::BlockBitmap => says("in use are marked free") && !says("are marked in use"),
        _ => false,
    }
}

/// Whether e2fsck asks to repair more than sums that mounting refreshes: it may call the image
/// clean all the same.
fn reports_faults(output: &Output) -> bool {
    let text = output.text();
    let asked = text.matches("? no").count();
    let sums = ["Free blocks count wrong (", "Free inodes count wrong ("];
    asked > sums.iter().filter(|sum| text.contains(*sum)).count()
}

/// How two verdicts compare.
enum Comparison {
    BothClean,
    BothNot,
    /// e2fsck finds nothing, and what we find is argued: its codes, and what it is.
    Argued(BTreeSet<Code>, String),
    /// e2fsck finds faults as we do, but calls the image clean.
    Reported,
    /// e2fsck did not come to an end in time, or crashed: what the check said.
    Unjudged(String),
    Different(String),
}

/// Compares the verdicts on a mutant.
fn compare(mutant: &Mutant, path: &Path) -> Comparison {
    let ours = match catch_unwind(AssertUnwindSafe(|| {
        // Whatever it holds, replaying it in memory gives a verdict too.
        let _ = check_bytes(&mutant.image, false);
        check_bytes(&mutant.image, true)
    })) {
        Ok(ours) => ours,
        Err(_) => return Comparison::Different("the check panicked".into()),
    };
    std::fs::write(path, &mutant.image).unwrap();
    let Some(theirs) = oracle::e2fsck_within(path, &["-fn"], PATIENCE) else {
        let said = ours.map_or_else(
            |e| e.to_string(),
            |report| crate::support::problems(&report),
        );
        return Comparison::Unjudged(said);
    };
    let text = match &ours {
        Ok(report) => match (report.is_clean(), theirs.code == 0) {
            (true, true) => return Comparison::BothClean,
            (false, false) => return Comparison::BothNot,
            (true, false) => String::new(),
            (false, true) if reports_faults(&theirs) => return Comparison::Reported,
            (false, true) => match ours_alone(report) {
                Some(codes) => {
                    return Comparison::Argued(codes, crate::support::problems(report));
                }
                None => crate::support::problems(report),
            },
        },
        Err(e @ Error::Device(_)) => panic!("{e}"),
        Err(_) if theirs.code != 0 => return Comparison::BothNot,
        Err(_) if reports_faults(&theirs) => return Comparison::Reported,
        Err(e) => e.to_string(),
    };
    Comparison::Different(format!("{text}\n{theirs}"))
}

/// What a run found, by specimen.
#[derive(Debug, Default)]
struct Tally {
    clean: u64,
    damaged: u64,
    reported: u64,
    argued: BTreeMap<String, u64>,
    unjudged: u64,
    different: u64,
}

#[test]
fn hostile_images_are_judged_as_e2fsck_judges_them() {
    let images = std::env::var("EXTANT_HOSTILE_IMAGES").ok();
    let (first, images) = match images {
        Some(n) => (
            seed_from_env("hostile_images_are_judged_as_e2fsck_judges_them"),
            n.parse().expect("EXTANT_HOSTILE_IMAGES is a number"),
        ),
        None => (1, ORDINARY),
    };
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    let specimens = load_specimens(dir.path());
    let path = dir.path().join("mutant");
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let began = Instant::now();
    for seed in (0..images).map(|n| first.wrapping_add(n)) {
        let specimen = &specimens[(seed % specimens.len() as u64) as usize];
        let mutant = specimen.mutant(seed);
        let tally = tallies.entry(specimen.name.clone()).or_default();
        let story = || format!("{}: {}", mutant.specimen, mutant.story.join("; "));
        match compare(&mutant, &path) {
            Comparison::BothClean => tally.clean += 1,
            Comparison::BothNot => tally.damaged += 1,
            Comparison::Reported => tally.reported += 1,
            Comparison::Argued(codes, problems) => {
                print!("seed {seed}, argued: {problems}");
                let names: Vec<&str> = codes.iter().map(|code| code.name()).collect();
                *tally.argued.entry(names.join(" ")).or_default() += 1;
            }
            Comparison::Unjudged(said) => {
                tally.unjudged += 1;
                println!("## seed {seed}, {}: e2fsck did not end\n{said}", story());
            }
            Comparison::Different(difference) => {
                tally.different += 1;
                println!("## seed {seed}, {}\n{difference}", story());
            }
        }
    }
    println!("{images} mutants in {:?}", began.elapsed());
    for (specimen, tally) in &tallies {
        println!("{specimen}: {tally:?}");
    }
    let sum = |of: fn(&Tally) -> u64| tallies.values().map(of).sum::<u64>();
    assert_eq!(sum(|tally| tally.different), 0, "of {images} mutants");
    // An oracle that says nothing, or always the same, would agree with anybody.
    assert!(sum(|tally| tally.unjudged) * 20 <= images);
    let both_kinds = |tally: &Tally| tally.clean > 0 && tally.damaged > 0;
    assert!(tallies.values().all(both_kinds) || images < ORDINARY);
}
