//! Mutants of small images: the verdict is that of e2fsck, and there is always one.
//!
//! `EXTANT_HOSTILE_IMAGES=N` sets their number, `EXTANT_SEED` where they begin.

use crate::support::{check_bytes, problems};
use extant_fsck::Error;
use extant_testkit::hostile::{load_specimens, make_specimens};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;

/// Mutants in an ordinary run.
const ORDINARY: u64 = 240;

#[test]
fn hostile_images_are_judged_as_e2fsck_judges_them() {
    let first = seed_from_env("hostile_images_are_judged_as_e2fsck_judges_them");
    let images = std::env::var("EXTANT_HOSTILE_IMAGES").ok();
    let images = images.map_or(ORDINARY, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    let specimens = load_specimens(dir.path());
    let path = dir.path().join("mutant");
    let (mut wrong, mut disagreements, mut clean) = (String::new(), 0, 0);
    for n in 0..images {
        let seed = first.wrapping_add(n);
        let specimen = &specimens[(seed % specimens.len() as u64) as usize];
        if specimen.name == "bigalloc-quota" {
            // e2fsck waits for seconds before it touches a file system with multiple-mount protection.
            continue;
        }
        let mutant = specimen.mutant(seed);
        let ours = check_bytes(&mutant.image, true);
        std::fs::write(&path, &mutant.image).unwrap();
        let theirs = oracle::e2fsck(&path, &["-fn"]);
        let (is_clean, text) = match &ours {
            Ok(report) => (report.is_clean(), problems(report)),
            Err(e @ Error::Device(_)) => panic!("seed {seed}: {e}"),
            Err(e) => (false, e.to_string()),
        };
        clean += u64::from(is_clean);
        if is_clean != (theirs.code == 0) {
            disagreements += 1;
            let story = mutant.story.join("; ");
            wrong.push_str(&format!(
                "## seed {seed}, {}: {story}\n{text}{theirs}\n",
                specimen.name
            ));
        }
    }
    println!("{images} mutants, {clean} clean, {disagreements} disagreements");
    assert!(wrong.is_empty(), "{wrong}");
}
