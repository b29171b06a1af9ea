//! One mutant, judged: what is said of it, what a repair makes of it, and what becomes of it when
//! it is written to.

use super::contents::{Contents, Found, Kind, by_engine, by_linux};
use crate::cuts::bytes_of;
use crate::support::problems;
use extant::{Filesystem, MountOptions};
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_fsck::repair::{self, Plan, revert, write_undo};
use extant_fsck::{Code, Options, Report};
use extant_testkit::hostile::meaning::MeantMutant;
use extant_testkit::journal_device::{JournalDevice, JournalTurn};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle;
use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long e2fsck may take for one image.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The time of repairs.
const NOW: u32 = 1_700_000_000;

/// What is wrong with what we make of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Outcome {
    /// Code of ours panicked.
    Panicked,
    /// What could be read cannot be read after a repair, or is another.
    Lost,
    /// An undo file does not give back each byte.
    NotReverted,
    /// A repair says that all is well, and a check of what it made does not.
    NotRepaired,
    /// e2fsck finds fault with what a repair calls repaired.
    RepairedForUsAlone,
    /// Linux does not mount or read what a repair calls repaired.
    RepairedNotForLinux,
    /// e2fsck finds fault with what we call clean.
    CleanForUsAlone,
    /// Linux does not mount or read what we call clean.
    CleanNotForLinux,
    /// The engine reads what we call clean in another way than Linux.
    ReadOtherwise,
    /// The engine does not open or read what we call clean.
    CleanNotForTheEngine,
    /// What we call clean cannot be written to.
    NotWritten,
    /// What was clean is not clean any more once it was written to.
    WrittenWrongly,
    /// What e2fsck leaves of the image before the damage does not come out when it is mended in
    /// memory.
    LessThanE2fsck,
}

/// A fault with one mutant.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) outcome: Outcome,
    pub(super) told: String,
}

/// What was done with a mutant, beside faults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Course {
    pub(super) clean: bool,
    pub(super) unjudged: bool,
    pub(super) refused: bool,
    /// Refused, since files would be lost.
    pub(super) losing: bool,
    pub(super) complete: bool,
    pub(super) mounted: bool,
    /// Mended in memory, and not for the most part read as it lies.
    pub(super) mended: bool,
    /// Names of the image before the damage, and how many of them come out with what they led to:
    /// as the image lies, mended in memory, and after e2fsck.
    pub(super) names: u64,
    pub(super) names_as_it_lies: u64,
    pub(super) names_mended: u64,
    pub(super) names_after_e2fsck: u64,
    /// Names that only e2fsck has, of what was not in the image before.
    pub(super) names_made_by_e2fsck: u64,
}

/// Judges mutants of one kind of image.
pub(super) struct Judge<'a> {
    /// For images that others look at.
    pub(super) dir: &'a Path,
    /// Whether Linux mounts the image unchanged.
    pub(super) for_linux: bool,
    /// Whether the engine writes to the image unchanged.
    pub(super) for_writing: bool,
}

/// Changes after which an inode may be given another type: it was read as what it is not.
pub(super) const TYPE_IS_OPEN: &[&str] = &["inode i_mode", "inode copied", "inodes exchanged"];

pub(super) type Checked = extant_fsck::Result<Report>;

pub(super) fn in_memory(image: &[u8]) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_image(image))
}

pub(super) fn device_of(image: Option<&Vec<u8>>) -> Option<SharedDevice> {
    image.map(|image| in_memory(image) as SharedDevice)
}

pub(super) fn checked(image: &[u8], journal: Option<&Vec<u8>>) -> Checked {
    let options = Options::default();
    extant_fsck::check_with_journal(in_memory(image), device_of(journal), options, &())
}

/// The fixes and what is left, one a line.
fn told(plan: &Plan) -> String {
    let fixes = plan.fixes.iter().take(12);
    let fixes: String = fixes.map(|fix| format!("mended {fix}\n")).collect();
    format!("{fixes}{}", problems(&plan.left))
}

/// The text of a panic.
pub(super) fn panicked(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("no text").to_owned()
}

impl Judge<'_> {
    /// Judges one mutant.
    pub(super) fn judge(&self, mutant: &MeantMutant) -> (Course, Vec<Fault>) {
        let (mut course, mut faults) = (Course::default(), Vec::new());
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.all(mutant, &mut course, &mut faults);
        }));
        if let Err(payload) = done {
            faults.push(Fault {
                outcome: Outcome::Panicked,
                told: panicked(&*payload),
            });
        }
        (course, faults)
    }

    fn all(&self, mutant: &MeantMutant, course: &mut Course, faults: &mut Vec<Fault>) {
        let (image, journal) = (&mutant.image, mutant.journal.as_ref());
        let before = by_engine(in_memory(image), device_of(journal));
        let report = checked(image, journal);
        course.unjudged = report.is_err();
        course.clean = report.as_ref().is_ok_and(Report::is_clean);
        if course.clean {
            self.clean(mutant, before.as_ref(), course, faults);
        }
        let over = over_metadata(&report);
        self.repaired(mutant, &before.unwrap_or_default(), &over, course, faults);
    }

    /// What we call clean is clean for all others, can be read, and can be written to.
    fn clean(
        &self,
        mutant: &MeantMutant,
        before: Option<&Contents>,
        course: &mut Course,
        faults: &mut Vec<Fault>,
    ) {
        let mut fault = |outcome, told| faults.push(Fault { outcome, told });
        if before.is_none() {
            let why = why_not_open(&mutant.image, mutant.journal.as_ref());
            fault(Outcome::CleanNotForTheEngine, why);
        }
        let path = self.place(&mutant.image, mutant.journal.as_ref());
        if let Some(report) = self.e2fsck_finds(&path, &mutant.image) {
            fault(Outcome::CleanForUsAlone, report);
        }
        if self.for_linux {
            course.mounted = true;
            // Again: e2fsck may have recovered it.
            let path = self.place(&mutant.image, mutant.journal.as_ref());
            match self.linux_reads(&path) {
                Err(why) => fault(Outcome::CleanNotForLinux, why),
                Ok(shown) => {
                    let empty = Contents::new();
                    let other = otherwise(before.unwrap_or(&empty), &shown);
                    if !other.is_empty() {
                        fault(Outcome::ReadOtherwise, other.join("\n"));
                    }
                }
            }
        }
        if self.for_writing {
            self.written(mutant, faults);
        }
    }

    /// Writes a file and a directory, as a command does, to what we call clean.
    fn written(&self, mutant: &MeantMutant, faults: &mut Vec<Fault>) {
        let mut fault = |outcome, told| faults.push(Fault { outcome, told });
        let device = in_memory(&mutant.image);
        let journal = mutant.journal.as_ref().map(|journal| in_memory(journal));
        if let Err(e) = write(device.clone(), journal.clone()) {
            if !is_sealed(device) {
                fault(Outcome::NotWritten, e.to_string());
            }
            return;
        }
        let (image, journal) = (bytes_of(&device), journal.map(|device| bytes_of(&device)));
        match checked(&image, journal.as_ref()) {
            Ok(report) if report.is_clean() => {}
            Ok(report) => return fault(Outcome::WrittenWrongly, problems(&report)),
            Err(e) => return fault(Outcome::WrittenWrongly, e.to_string()),
        }
        // As closed images are all much the same, some are enough.
        if mutant.number.is_multiple_of(4) {
            let path = self.place(&image, journal.as_ref());
            if let Some(report) = self.e2fsck_finds(&path, &image) {
                fault(Outcome::WrittenWrongly, report);
            }
        }
    }

    /// Repairs, takes it back, and compares.
    fn repaired(
        &self,
        mutant: &MeantMutant,
        before: &Contents,
        over: &HashSet<u64>,
        course: &mut Course,
        faults: &mut Vec<Fault>,
    ) {
        let mut fault = |outcome, told| faults.push(Fault { outcome, told });
        let device = in_memory(&mutant.image);
        let options = repair::Options::default().now(NOW);
        let Ok(plan) = repair::plan(device.clone(), options, &()) else {
            course.refused = true;
            return;
        };
        if plan.may_be_written().is_err() {
            // What would be lost is named, and nothing is written.
            course.refused = true;
            course.losing = true;
            assert!(plan.apply().is_err(), "a plan that loses files was written");
            assert!(
                bytes_of(&device) == mutant.image,
                "a refusal writes nothing"
            );
            return;
        }
        let mut undo = Vec::new();
        write_undo(&plan.changes, &mut undo).expect("write to memory");
        plan.apply().expect("write to memory");
        let after = bytes_of(&device);
        match revert(&*device, || Ok(&undo[..])) {
            Err(e) => fault(Outcome::NotReverted, e.to_string()),
            Ok(_) if bytes_of(&device) != mutant.image => {
                fault(Outcome::NotReverted, "some bytes differ".to_owned());
            }
            Ok(_) => {}
        }
        if after == mutant.image {
            course.complete = plan.is_complete();
            return;
        }
        let now = by_engine(in_memory(&after), device_of(mutant.journal.as_ref()));
        // Which of two types an inode has had, is a guess where another inode lies over it.
        let type_is_open = TYPE_IS_OPEN.contains(&mutant.class.as_str());
        let lost = lost(before, &now.unwrap_or_default(), over, type_is_open);
        if !lost.is_empty() {
            fault(
                Outcome::Lost,
                format!("{}\n{}", lost.join("\n"), told(&plan)),
            );
        }
        course.complete = plan.is_complete();
        if !course.complete {
            return;
        }
        match checked(&after, mutant.journal.as_ref()) {
            Ok(report) if report.is_clean() => {}
            Ok(report) => fault(Outcome::NotRepaired, problems(&report)),
            Err(e) => fault(Outcome::NotRepaired, e.to_string()),
        }
        let path = self.place(&after, mutant.journal.as_ref());
        if let Some(report) = self.e2fsck_finds(&path, &after) {
            fault(
                Outcome::RepairedForUsAlone,
                format!("{report}\n{}", told(&plan)),
            );
        }
        // Reading all of it takes longer than the repair: every other one.
        if self.for_linux && mutant.number.is_multiple_of(2) {
            course.mounted = true;
            let path = self.place(&after, mutant.journal.as_ref());
            if let Err(why) = self.linux_reads(&path) {
                fault(
                    Outcome::RepairedNotForLinux,
                    format!("{why}\n{}", told(&plan)),
                );
            }
        }
    }

    /// Writes the image, and its journal, where others can look at it.
    fn place(&self, image: &[u8], journal: Option<&Vec<u8>>) -> PathBuf {
        let path = self.dir.join("mutant");
        std::fs::write(&path, image).unwrap();
        if let Some(journal) = journal {
            std::fs::write(self.dir.join("mutant.journal"), journal).unwrap();
        }
        path
    }

    /// What e2fsck says of an image it does not find clean, once it has recovered it if that is
    /// due.
    fn e2fsck_finds(&self, path: &Path, image: &[u8]) -> Option<String> {
        let waits = waits(image);
        let has_journal = self.dir.join("mutant.journal").exists();
        let _turn = has_journal.then(JournalTurn::take);
        let theirs = oracle::e2fsck_within(path, &["-fn"], PATIENCE);
        let Some(theirs) = theirs else {
            return Some("e2fsck does not come to an end".to_owned());
        };
        // Of features that Linux ignores, e2fsck knows some by name and then says nothing.
        let silent = theirs.code & 8 != 0 && theirs.to_string().contains("unsupported feature(s)");
        match theirs.code {
            0 => None,
            _ if silent => None,
            // It would need the device that the superblock names.
            _ if waits && has_journal => None,
            _ if waits => oracle::e2fsck_recover_over_damage(path)
                .err()
                .filter(|report| !oracle::e2fsck_drops_attribute_blocks(report)),
            _ => Some(theirs.to_string()),
        }
    }

    /// What Linux shows of an image, which it recovers if that is due; or why it does not, or does
    /// not read all of it.
    pub(super) fn linux_reads(&self, path: &Path) -> Result<Contents, String> {
        let beside = self.dir.join("mutant.journal");
        let journal = beside
            .exists()
            .then(|| JournalDevice::attach(&beside).expect("attach the journal"));
        let options = journal
            .as_ref()
            .map(|device| format!("journal_path={}", device.path().display()))
            .unwrap_or_default();
        let mut tries = 0;
        let mount = loop {
            match KernelMount::try_mount(path, Mode::ReadOnly, &options) {
                Ok(mount) => break mount,
                // The mount before may still have the device of the journal.
                Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy && tries < 50 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(e) => return Err(format!("Linux does not mount it: {e}")),
            }
        };
        let (shown, failures) = by_linux(mount.path());
        mount.unmount();
        // Linux has no key for what is encrypted, and may not be able to read what is sealed.
        let failures: Vec<String> = failures
            .into_iter()
            .filter(|failure| !failure.contains("os error 126") && !failure.contains("os error 95"))
            .take(6)
            .collect();
        if failures.is_empty() {
            Ok(shown)
        } else {
            Err(format!("Linux does not read {}", failures.join("\n")))
        }
    }
}

fn why_not_open(image: &[u8], journal: Option<&Vec<u8>>) -> String {
    let mut options = MountOptions::read_only();
    if let Some(journal) = device_of(journal) {
        options = options.journal_device(journal);
    }
    match Filesystem::open_device(in_memory(image), options) {
        Ok(_) => "the root cannot be walked".to_owned(),
        Err(e) => e.to_string(),
    }
}

/// Whether something waits to be recovered: a journal, orphans in a list or a file.
fn waits(image: &[u8]) -> bool {
    let word = |at: usize| {
        let bytes = image[1024 + at..1024 + at + 4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes"))
    };
    word(0x60) & 4 != 0 || word(0xE8) != 0 || word(0x64) & 0x1_0000 != 0
}

/// Whether the engine writes to this image.
pub(super) fn can_be_written(mutant: &MeantMutant) -> bool {
    write(
        in_memory(&mutant.image),
        mutant.journal.as_ref().map(|journal| in_memory(journal)),
    )
    .is_ok()
}

/// Makes a directory and a file in it, writes, renames, removes, and closes.
fn write(device: Arc<MemoryDevice>, journal: Option<Arc<MemoryDevice>>) -> extant::Result<()> {
    let mut options = MountOptions::read_write().memory(8 << 20).background(false);
    if let Some(journal) = journal {
        options = options.journal_device(journal);
    }
    let fs = Filesystem::open_device(device, options)?;
    fs.create_dir("/written")?;
    fs.write("/written/file", [b'w'; 3000])?;
    fs.rename("/written/file", "/written-file")?;
    fs.remove_dir("/written")?;
    fs.close()
}

/// Whether the root directory is immutable, or names are only added to it.
fn is_sealed(device: SharedDevice) -> bool {
    const IMMUTABLE_OR_APPEND: u32 = 0x30;
    let fs = Filesystem::open_device(device, MountOptions::read_only());
    let root = fs.and_then(|fs| fs.metadata("/"));
    root.is_ok_and(|root| root.flags() & IMMUTABLE_OR_APPEND != 0)
}

/// Inodes whose maps lead into what the file system uses itself. Linux does not read there: what it
/// holds is no content of a file, and another one once a repair has changed it.
pub(super) fn over_metadata(report: &Checked) -> HashSet<u64> {
    let Ok(report) = report else {
        return HashSet::new();
    };
    let findings = report.findings.iter();
    let over = findings.filter(|finding| finding.code == Code::BlockOfMetadata);
    over.filter_map(|finding| finding.place.ino.map(|ino| ino.get().into()))
        .collect()
}

/// What was there and is not there any more with what it held, under its name or another.
fn lost(
    before: &Contents,
    after: &Contents,
    over: &HashSet<u64>,
    type_is_open: bool,
) -> Vec<String> {
    let lost = not_in(before, after, over, type_is_open);
    lost.into_iter()
        .map(|(path, found)| {
            let now = after.get(path).map_or("nothing", |now| now.kind.name());
            let kind = found.kind.name();
            format!(
                "lost: {kind} {}, inode {} (now {now})",
                path.escape_ascii(),
                found.ino
            )
        })
        .take(6)
        .collect()
}

/// What is in one with what it holds, and not in the other under its name or another.
pub(super) fn not_in<'a>(
    before: &'a Contents,
    after: &Contents,
    over: &HashSet<u64>,
    type_is_open: bool,
) -> Vec<(&'a Vec<u8>, &'a Found)> {
    let mut by_ino: BTreeMap<u64, Vec<&Found>> = BTreeMap::new();
    for found in after.values() {
        by_ino.entry(found.ino).or_default().push(found);
    }
    let kept = |path: &Vec<u8>, found: &Found| {
        let same = |other: &Found| found.kind.is_kept_in(&other.kind);
        let is_same =
            |other: &Found| same(other) || type_is_open && other.kind.name() != found.kind.name();
        after.get(path).is_some_and(is_same)
            || by_ino
                .get(&found.ino)
                .is_some_and(|inodes| inodes.iter().any(|other| same(other)))
            || found.kind.says_something() && after.values().any(same)
    };
    before
        .iter()
        .filter(|(_, found)| !over.contains(&found.ino))
        .filter(|(path, found)| !kept(path, found))
        .collect()
}

/// Where Linux and the engine read another thing.
fn otherwise(ours: &Contents, theirs: &Contents) -> Vec<String> {
    let closed: Vec<&Vec<u8>> = ours
        .iter()
        .filter(|(_, found)| found.closed)
        .map(|(path, _)| path)
        .collect();
    let is_closed = |path: &Vec<u8>| {
        let mut closed = closed.iter();
        closed.any(|above| {
            path.starts_with(above) && path.get(above.len()).is_none_or(|b| *b == b'/')
        })
    };
    let mut differ = Vec::new();
    let paths: HashSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
    let mut paths: Vec<_> = paths.into_iter().filter(|path| !is_closed(path)).collect();
    paths.sort_unstable();
    for path in paths {
        let what = match (ours.get(path), theirs.get(path)) {
            (Some(our), Some(their)) if our.kind == their.kind && our.ino == their.ino => continue,
            (Some(our), Some(their)) if our.ino != their.ino => {
                format!("inode {} and {}", our.ino, their.ino)
            }
            (Some(our), Some(their)) => match (&our.kind, &their.kind) {
                (Kind::File(a, _), Kind::File(b, _)) if a != b => format!("sizes {a} and {b}"),
                (our, their) if our.name() == their.name() => "other content".to_owned(),
                (our, their) => format!("{} and {}", our.name(), their.name()),
            },
            (Some(_), None) => "Linux does not show it".to_owned(),
            (None, Some(_)) => "the engine does not read it".to_owned(),
            (None, None) => continue,
        };
        differ.push(format!("{}: {what}", path.escape_ascii()));
        if differ.len() == 6 {
            break;
        }
    }
    differ
}
