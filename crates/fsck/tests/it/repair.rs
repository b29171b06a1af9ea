//! Repairs: what is repaired is clean for e2fsck too, nothing that could be read is lost, and undo
//! files restore every byte.

use crate::cuts::bytes_of;
use crate::damage::{Base, DAMAGES};
use crate::support::problems;
use extant::{Filesystem, MountOptions};
use extant_blockdev::{MemoryDevice, OpenSpec, SharedDevice};
use extant_format::Ino;
use extant_format::superblock::Superblock;
use extant_fsck::Code;
use extant_fsck::repair::{self, Plan, revert, write_undo};
use extant_testkit::hostile::{load_specimens, make_specimens};
use extant_testkit::oracle;
use extant_testkit::rng::seed_from_env;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What can be read of an image: paths of files and links, with their content.
pub(crate) type Readable = BTreeMap<Vec<u8>, Vec<u8>>;

/// What was read under a wrong name or type: the journal as a file, and a directory as one.
const NEVER_A_FILE: &[&str] = &["ln <8> /second", "sif /deep mode 0100644"];

/// How long e2fsck may take for one image.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of longer files so much is read: the rest are holes.
const LONGEST: u64 = 64 << 20;

pub(crate) fn readable(device: SharedDevice) -> Readable {
    readable_but(device, &HashSet::new())
}

/// Inodes whose maps lead into what the file system uses itself. Linux does not read there: what it
/// holds is no content of a file, and another one once a repair has changed it.
fn over_metadata(device: SharedDevice) -> HashSet<u32> {
    let Ok(report) = extant_fsck::check(device, extant_fsck::Options::default(), &()) else {
        return HashSet::new();
    };
    let findings = report.findings.iter();
    let over = findings.filter(|finding| finding.code == Code::BlockOfMetadata);
    over.filter_map(|finding| finding.place.ino.map(Ino::get))
        .collect()
}

/// Reads all files that can be read, but for these inodes.
fn readable_but(device: SharedDevice, without: &HashSet<u32>) -> Readable {
    let mut found = Readable::new();
    let Ok(fs) = Filesystem::open_device(device, MountOptions::read_only()) else {
        return found;
    };
    let Ok(walk) = fs.walk("/") else {
        return found;
    };
    for entry in walk.flatten() {
        let metadata = entry.metadata();
        if without.contains(&metadata.ino()) {
            continue;
        }
        let content = if metadata.file_type() == extant::FileType::Regular {
            let mut bytes = Vec::new();
            let read = entry
                .open()
                .map_err(std::io::Error::from)
                .and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
            match read {
                Ok(_) => bytes,
                Err(_) => continue,
            }
        } else if metadata.file_type() == extant::FileType::Symlink {
            match entry.read_link() {
                Ok(target) => target,
                Err(_) => continue,
            }
        } else {
            continue;
        };
        found.insert(entry.path_bytes().to_vec(), content);
    }
    found
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Whether `new` is what was there before, or with more behind it; or, where a node of the map was
/// wrong, with data in the place of what were zeros: what the node hid is seen again.
fn is_kept(content: &[u8], new: &[u8], hidden: bool) -> bool {
    let same = |(old, new): (&u8, &u8)| old == new || hidden && *old == 0;
    new.len() >= content.len() && content.iter().zip(new).all(same)
}

/// The files that are not there any more with what they held, under their name or another. One
/// whose size was too small for its map may have grown, and what wrong nodes of maps hid may be
/// seen again.
pub(crate) fn lost(before: &Readable, after: &Readable, hidden: bool) -> Vec<String> {
    let contents: HashSet<u64> = after.values().map(|content| hash(content)).collect();
    let kept = |path: &Vec<u8>, content: &Vec<u8>| {
        after
            .get(path)
            .is_some_and(|new| is_kept(content, new, hidden))
            || contents.contains(&hash(content))
    };
    before
        .iter()
        .filter(|(path, content)| !kept(path, content))
        .map(|(path, content)| format!("{} ({} bytes)", path.escape_ascii(), content.len()))
        .take(8)
        .collect()
}

/// What a repair made of an image.
struct Repaired {
    plan: Plan,
    image: Vec<u8>,
}

pub(crate) fn in_memory(image: &[u8]) -> SharedDevice {
    Arc::new(MemoryDevice::from_image(image))
}

/// Repairs an image, and sees that the undo file takes everything back.
fn repaired(image: &[u8]) -> extant_fsck::Result<Repaired> {
    let device = Arc::new(MemoryDevice::from_image(image));
    let options = repair::Options::default().now(1_700_000_000);
    let plan = repair::plan(device.clone(), options, &())?;
    assert!(bytes_of(&device) == image, "a plan writes nothing");
    let mut undo = Vec::new();
    let blocks = write_undo(&plan.changes, &mut undo)?;
    plan.apply()?;
    let image_after = bytes_of(&device);
    assert_eq!(revert(&*device, || Ok(&undo[..]))?, blocks);
    assert!(
        bytes_of(&device) == image,
        "the undo file restores every byte"
    );
    Ok(Repaired {
        plan,
        image: image_after,
    })
}

pub(crate) fn told(plan: &Plan) -> String {
    let fixes: String = plan.fixes.iter().map(|fix| format!("  {fix}\n")).collect();
    format!("fixes:\n{fixes}left:\n{}", problems(&plan.left))
}

#[test]
fn every_damage_is_repaired_without_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let options = repair::Options::default().now(1_700_000_000);
    let mut wrong = String::new();
    let mut whole = 0;
    for (request, _) in DAMAGES {
        let (path, _) = base.damaged(request);
        let open = || OpenSpec::read_write(&path).open().unwrap();
        let before = readable(open());
        let plan = match repair::plan(open(), options, &()) {
            Ok(plan) => plan,
            Err(e) => {
                wrong.push_str(&format!("## {request}: {e}\n"));
                continue;
            }
        };
        plan.apply().unwrap();
        let told = told(&plan);
        let complete = plan.is_complete();
        drop(plan);
        let theirs = oracle::e2fsck(&path, &["-fn"]);
        let lost = lost(&before, &readable(open()), false);
        let none_lost = lost.is_empty() || NEVER_A_FILE.contains(request);
        if complete && theirs.code == 0 && none_lost {
            whole += 1;
        } else {
            wrong.push_str(&format!("## {request}: lost {lost:?}\n{told}{theirs}\n"));
        }
    }
    println!("{whole} of {} damages are repaired", DAMAGES.len());
    assert!(wrong.is_empty(), "{wrong}");
}

/// Mutants in an ordinary run, and how many of them must be repaired completely.
const ORDINARY: u64 = 200;
const COMPLETE: u64 = 150;

#[test]
fn what_is_said_to_be_repaired_is_clean_and_whole() {
    let images = std::env::var("EXTANT_HOSTILE_IMAGES").ok();
    let (first, images) = match images {
        Some(n) => (
            seed_from_env("what_is_said_to_be_repaired_is_clean_and_whole"),
            n.parse().expect("EXTANT_HOSTILE_IMAGES is a number"),
        ),
        None => (1, ORDINARY),
    };
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    let specimens = load_specimens(dir.path());
    let path = dir.path().join("mutant");
    let (mut wrong, mut complete, mut refused) = (String::new(), 0, 0);
    for seed in (0..images).map(|n| first.wrapping_add(n)) {
        let specimen = &specimens[(seed % specimens.len() as u64) as usize];
        let mutant = specimen.mutant(seed);
        let story = format!(
            "seed {seed}, {}: {}",
            mutant.specimen,
            mutant.story.join("; ")
        );
        let over = over_metadata(in_memory(&mutant.image));
        let before = readable_but(in_memory(&mutant.image), &over);
        let repaired = match repaired(&mutant.image) {
            Ok(repaired) => repaired,
            Err(e) => {
                refused += 1;
                println!("## {story}\n{e}");
                continue;
            }
        };
        if !repaired.plan.is_complete() {
            println!("## {story}\n{}", told(&repaired.plan));
            continue;
        }
        complete += 1;
        let fixes = repaired.plan.fixes.iter();
        let mut nodes =
            fixes.filter(|fix| matches!(fix.code, Code::ExtentNode | Code::ExtentIndexStart));
        let hidden = nodes.next().is_some();
        let lost = lost(&before, &readable(in_memory(&repaired.image)), hidden);
        let verdict = judge(&path, &repaired.image);
        if !lost.is_empty() || verdict.is_some() {
            let told = told(&repaired.plan);
            let verdict = verdict.unwrap_or_default();
            wrong.push_str(&format!("## {story}\nlost {lost:?}\n{told}{verdict}\n"));
        }
    }
    println!("{complete} of {images} mutants are repaired completely, {refused} are refused");
    assert!(wrong.is_empty(), "{wrong}");
    if first == 1 && images == ORDINARY {
        assert!(complete >= COMPLETE, "{complete} of {images}");
    }
}

/// What e2fsck says of an image it does not find clean.
fn judge(path: &Path, image: &[u8]) -> Option<String> {
    std::fs::write(path, image).unwrap();
    let theirs = oracle::e2fsck_within(path, &["-fn"], PATIENCE).expect("e2fsck comes to an end");
    // Of features that Linux ignores, e2fsck knows some by name and then says nothing.
    let is_silent = theirs.code & 8 != 0 && theirs.to_string().contains("unsupported feature(s)");
    (theirs.code != 0 && !is_silent).then(|| theirs.to_string())
}

#[test]
fn a_clean_image_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    make_specimens(dir.path());
    for specimen in load_specimens(dir.path()) {
        let first = repaired(&specimen.image).unwrap();
        let again = repaired(&first.image).unwrap();
        let changed = again.plan.changes.iter().count();
        assert_eq!(changed, 0, "{}: {}", specimen.name, told(&again.plan));
        assert!(again.plan.fixes.is_empty(), "{}", told(&again.plan));
    }
}

#[test]
fn a_damaged_undo_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let (path, _) = base.damaged("sif /large links_count 5");
    let image = std::fs::read(&path).unwrap();
    let device = Arc::new(MemoryDevice::from_image(&image));
    let plan = repair::plan(device.clone(), repair::Options::default(), &()).unwrap();
    let mut undo = Vec::new();
    write_undo(&plan.changes, &mut undo).unwrap();
    plan.apply().unwrap();
    let after = bytes_of(&device);
    for at in [0, 9, 25, 40, undo.len() / 2, undo.len() - 3] {
        let mut bad = undo.clone();
        bad[at] ^= 1;
        assert!(revert(&*device, || Ok(&bad[..])).is_err(), "byte {at}");
        assert!(bytes_of(&device) == after);
    }
    let short = &undo[..undo.len() - 16];
    assert!(revert(&*device, || Ok(short)).is_err());
}

#[test]
fn a_claim_that_would_be_watched_for_hours_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    oracle::mke2fs(&path, 8 << 20, &["-t", "ext4", "-O", "mmp"]);
    let mut image = std::fs::read(&path).unwrap();
    let sb = Superblock::parse(&image[1024..2048]).unwrap();
    let at = sb.block_size().offset_of(sb.mmp_block().unwrap()).unwrap() as usize;
    image[at + 4..at + 8].copy_from_slice(&7_u32.to_le_bytes());
    image[at + 112..at + 114].copy_from_slice(&60_000_u16.to_le_bytes());
    let began = std::time::Instant::now();
    let refused = repair::plan(in_memory(&image), repair::Options::default(), &()).map(drop);
    let told = refused.unwrap_err().to_string();
    assert!(
        told.contains("check_interval") && told.contains("60000"),
        "{told}"
    );
    assert!(began.elapsed().as_secs() < 5, "it was waited for");
}
