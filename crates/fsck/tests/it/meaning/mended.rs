//! Mutants that are mended in memory: what comes out of them, beside what `e2fsck -fy` and Linux
//! leave of a copy.
//!
//! What e2fsck leaves of the image before the damage must come out as well, under its name or
//! another. What e2fsck has made of damaged structures, and was not in the image before, is only
//! counted.

use super::contents::{CACHE, Contents, by_engine, by_linux, contents_of};
use super::judge::{
    Course, Fault, Outcome, PATIENCE, TYPE_IS_OPEN, checked, device_of, in_memory, not_in,
    over_metadata, panicked,
};
use super::{Place, one, run};
use extant::mend::{MendOptions, mend};
use extant::{Filesystem, MountOptions, SharedDevice};
use extant_testkit::hostile::meaning::MeantMutant;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Mutants in an ordinary run.
const ORDINARY: u64 = 40;
/// The seed of the ordinary run: one sample, always the same, of the long run in
/// docs/dev/conformance.md.
const SAMPLE: u64 = 30;
/// Runs of e2fsck at most: some mends ask for another one.
const RUNS: u32 = 3;

/// What the engine reads of an image that is not damaged.
pub(super) fn whole(unchanged: &MeantMutant) -> Contents {
    let journal = device_of(unchanged.journal.as_ref());
    by_engine(in_memory(&unchanged.image), journal).unwrap_or_default()
}

/// Judges one mutant.
pub(super) fn judge(
    mutant: &MeantMutant,
    whole: &Contents,
    for_linux: bool,
    dir: &Path,
) -> (Course, Vec<Fault>) {
    let (mut course, mut faults) = (Course::default(), Vec::new());
    let done = catch_unwind(AssertUnwindSafe(|| {
        compare(mutant, whole, for_linux, dir, &mut course, &mut faults);
    }));
    if let Err(payload) = done {
        faults.push(Fault {
            outcome: Outcome::Panicked,
            told: panicked(&*payload),
        });
    }
    (course, faults)
}

fn compare(
    mutant: &MeantMutant,
    whole: &Contents,
    for_linux: bool,
    dir: &Path,
    course: &mut Course,
    faults: &mut Vec<Fault>,
) {
    let journal = || device_of(mutant.journal.as_ref());
    let device: SharedDevice = in_memory(&mutant.image);
    let as_it_lies = by_engine(device.clone(), journal()).unwrap_or_default();
    let (ours, said) = match mended(&device, journal()) {
        Ok((ours, said)) => {
            course.mended = true;
            (ours, said)
        }
        Err(why) => (as_it_lies.clone(), why),
    };
    // What it is compared with takes a device for the journal.
    if mutant.journal.is_some() {
        return;
    }
    let theirs = after_e2fsck(&mutant.image, for_linux, dir);
    let over = over_metadata(&checked(&mutant.image, None));
    let is_open = TYPE_IS_OPEN.contains(&mutant.class.as_str());
    let kept = |after: &Contents| {
        let lost = not_in(whole, after, &over, is_open).len() as u64;
        (whole.len() as u64).saturating_sub(lost)
    };
    course.names = whole.len() as u64;
    course.names_as_it_lies = kept(&as_it_lies);
    course.names_mended = kept(&ours);
    course.names_after_e2fsck = kept(&theirs);
    // Made anew, and empty, where all is lost.
    let is_made = |path: &Vec<u8>| matches!(&path[..], b"/" | b"/lost+found");
    let mut less = not_in(&theirs, &ours, &over, is_open);
    less.retain(|(path, _)| !is_made(path));
    let (of_image, made): (Vec<_>, Vec<_>) = less.into_iter().partition(|(path, found)| {
        let alone = Contents::from([((*path).clone(), (*found).clone())]);
        not_in(&alone, whole, &over, is_open).is_empty()
    });
    course.names_made_by_e2fsck = made.len() as u64;
    if !of_image.is_empty() {
        let told = of_image.iter().take(6).map(|(path, found)| {
            let now = ours.get(*path).map_or("nothing", |now| now.kind.name());
            let (kind, ino) = (found.kind.name(), found.ino);
            format!("{kind} {}, inode {ino} (now {now})\n", path.escape_ascii())
        });
        faults.push(Fault {
            outcome: Outcome::LessThanE2fsck,
            told: told.chain([said]).collect(),
        });
    }
}

/// What comes out when the image is mended in memory, and what is said of that; or why nothing is.
pub(super) fn mended(
    device: &SharedDevice,
    journal: Option<SharedDevice>,
) -> Result<(Contents, String), String> {
    let mut options = MendOptions::default();
    options.journal = journal;
    let mended = mend(device, &options).map_err(|e| e.to_string())?;
    let how = MountOptions::read_only().memory(CACHE);
    let fs = Filesystem::on_mended(&mended, how).map_err(|e| e.to_string())?;
    let fixes = mended.fixes.iter().take(12);
    let fixes: String = fixes.map(|fix| format!("mended {fix}\n")).collect();
    let said = format!(
        "{fixes}partial: {}, without journal: {}",
        mended.is_partial, mended.without_journal
    );
    Ok((contents_of(&fs).unwrap_or_default(), said))
}

/// What can be read of a copy once e2fsck has repaired it: by Linux, and where that does not mount
/// it by the engine.
pub(super) fn after_e2fsck(image: &[u8], for_linux: bool, dir: &Path) -> Contents {
    let path = dir.join("copy");
    std::fs::write(&path, image).unwrap();
    for _ in 0..RUNS {
        match oracle::e2fsck_within(&path, &["-fy"], PATIENCE) {
            Some(report) if report.code != 0 => {}
            _ => break,
        }
    }
    if for_linux && let Ok(mount) = KernelMount::try_mount(&path, Mode::ReadOnly, "") {
        let (shown, _) = by_linux(mount.path());
        mount.unmount();
        return shown;
    }
    let repaired = std::fs::read(&path).unwrap();
    by_engine(in_memory(&repaired), None).unwrap_or_default()
}

#[test]
fn what_comes_out_of_mended_mutants_is_no_less_than_e2fsck_leaves() {
    let place = Place::new();
    if let Ok(wanted) = std::env::var("EXTANT_MUTANT") {
        return one(&wanted, &place, true);
    }
    let name = "what_comes_out_of_mended_mutants_is_no_less_than_e2fsck_leaves";
    let is_asked = std::env::var_os("EXTANT_SEED").is_some();
    let seed = if is_asked {
        seed_from_env(name)
    } else {
        SAMPLE
    };
    run(&place, seed, ORDINARY, true);
}
