//! Mutants of small images: the verdict is that of e2fsck, and there is always one.
//!
//! An ordinary run takes the same mutants every time. `EXTANT_HOSTILE_IMAGES=N` sets their number, and then
//! `EXTANT_SEED` where they begin.

use crate::support::check_bytes;
use extant_fsck::{Code, Error, Report, Severity};
use extant_testkit::hostile::{Mutant, load_specimens, make_specimens};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;
use std::path::Path;

/// Mutants in an ordinary run.
const ORDINARY: u64 = 200;

/// What we call an error and e2fsck does not; docs/check.md says why.
const OURS_ALONE: &[Code] = &[
    Code::GroupChecksum,
    Code::GroupUnusedInodes,
    Code::JournalSuperblock,
    Code::DirDuplicateName,
];

/// Whether all that is wrong is what only we call wrong.
fn is_ours_alone(report: &Report) -> bool {
    let bad = |severity| severity > Severity::Warning;
    let mut errors = report.findings.iter().filter(|f| bad(f.severity()));
    errors.all(|finding| OURS_ALONE.contains(&finding.code))
}

/// Compares the verdicts on a mutant; `None` when they agree or the difference is argued.
fn disagreement(mutant: &Mutant, path: &Path) -> Option<String> {
    let ours = check_bytes(&mutant.image, true);
    std::fs::write(path, &mutant.image).unwrap();
    let theirs = oracle::e2fsck(path, &["-fn"]);
    let (is_clean, text) = match &ours {
        Ok(report) => (
            report.is_clean() || (theirs.code == 0 && is_ours_alone(report)),
            crate::support::problems(report),
        ),
        Err(e @ Error::Device(_)) => panic!("{e}"),
        Err(e) => (false, e.to_string()),
    };
    let story = mutant.story.join("; ");
    let name = &mutant.specimen;
    (is_clean != (theirs.code == 0)).then(|| format!("{name}: {story}\n{text}{theirs}\n"))
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
    let mut disagreements = 0;
    for seed in (0..images).map(|n| first.wrapping_add(n)) {
        let specimen = &specimens[(seed % specimens.len() as u64) as usize];
        let mutant = specimen.mutant(seed);
        if specimen.name == "bigalloc-quota" {
            // e2fsck waits for seconds before it touches a file system with multiple-mount protection.
            let _ = check_bytes(&mutant.image, seed % 2 == 0);
            continue;
        }
        // Whatever it holds, replaying it in memory gives a verdict too.
        let _ = check_bytes(&mutant.image, false);
        if let Some(difference) = disagreement(&mutant, &path) {
            disagreements += 1;
            println!("## seed {seed}, {difference}");
        }
    }
    assert_eq!(disagreements, 0, "of {images} mutants");
}
