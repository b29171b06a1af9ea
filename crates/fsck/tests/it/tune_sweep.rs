//! Features that are turned on and off, alone and several at once, cut off at any write, with
//! writes that are torn: what is left is sound, with the features from before or those from
//! afterwards, or changes wait in it that the next opening puts in place, which others leave alone.
//! A change for whose log there is no room is written in steps: what is left of it keeps names,
//! content, owners, modes and attributes, by our repair and by `e2fsck -fy`. The undo file gives
//! back each byte.
//!
//! `EXTANT_TUNE_CUTS=N` looks at N images of every change, and at all that a crash can leave with
//! `all`. Without it there are a few images of some of the changes, by the seed.
//! `EXTANT_TUNE_ONLY=TEXT` looks at changes whose description has this text.

use crate::support::problems;
use extant::{FileType, Filesystem, MountOptions};
use extant_blockdev::{BlockDevice, OpenSpec, SharedDevice};
use extant_format::features::Feature;
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State, Superblock};
use extant_format::waiting;
use extant_fsck::repair::{self, revert, tune, write_undo};
use extant_testkit::crash::{Budget, Content, CrashDevice, CrashImage};
use extant_testkit::oracle;
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Changes that are looked at where nothing is said, and images of each.
const CHANGES: usize = 18;
const IMAGES: usize = 2;
/// Changes of several features at once, of each image.
const SEVERAL: usize = 12;

const MIB: u64 = 1 << 20;

/// An image: its size in MiB, and what mke2fs is told.
type Base = (u64, &'static [&'static str]);

/// All of them have a copy of the superblock where e2fsck looks for one.
const BASES: &[Base] = &[
    (
        12,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum_seed,^orphan_file",
        ],
    ),
    (
        12,
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"],
    ),
    (
        12,
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,uninit_bg,^flex_bg",
            "-E",
            "lazy_itable_init=1",
        ],
    ),
    (136, &["-t", "ext4", "-b", "4096", "-O", "quota"]),
    (
        136,
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^metadata_csum,^has_journal,^64bit",
        ],
    ),
    (12, &["-t", "ext3", "-b", "1024"]),
    (136, &["-t", "ext3", "-b", "4096", "-I", "256"]),
    (
        12,
        &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-O",
            "^sparse_super,^resize_inode,^filetype",
        ],
    ),
    (136, &["-t", "ext2", "-b", "4096", "-I", "256"]),
];

const FEATURES: &[&str] = &[
    "has_journal",
    "metadata_csum",
    "metadata_csum_seed",
    "uninit_bg",
    "64bit",
    "quota",
    "project",
    "orphan_file",
    "mmp",
    "casefold",
    "dir_index",
    "large_dir",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "extents",
    "filetype",
    "flex_bg",
    "sparse_super",
    "resize_inode",
    "read-only",
];

/// In the place of the name of a feature: inodes twice as large.
const LARGER_INODES: &str = "larger inodes";

/// Directories with and without an index, whose blocks have room for a checksum and have none; maps
/// with blocks of their own; links of all kinds; owners and attributes.
fn made(dir: &Path, base: Base) -> Content {
    let source = dir.join("source");
    if !source.exists() {
        plant(&source);
    }
    let path = dir.join("image");
    let source = source.display().to_string();
    let (mib, options) = base;
    oracle::mke2fs(
        &path,
        mib * MIB,
        &[options, &["-N", "1024", "-d", &source]].concat(),
    );
    let requests = [
        "sif /one/file uid 1001",
        "sif /one/file gid 70000",
        "sif /one mode 041750",
        "ea_set /one/file user.small value",
        "ea_set /in-pieces user.large 0123456789012345678901234567890123456789012345678901234567890123456789",
        "mknod /one/device c 4 64",
        "mknod /one/pipe p",
        "rm /hole-1",
        "rm /hole-3",
        "rm /hole-5",
        "rm /hole-7",
    ];
    oracle::debugfs_write(&path, &requests);
    // Gives large directories an index, where the file system has them.
    let theirs = oracle::e2fsck(&path, &["-fyD"]);
    assert!(theirs.code <= 1, "{theirs}");
    let flat = ["mkdir /flat", "mkdir /flat/below"];
    let mut requests: Vec<String> = flat.map(str::to_owned).to_vec();
    let file = Path::new(&source).join("one/file");
    // Records of one length, which fill blocks to their ends.
    requests.extend((0..150).map(|i| format!("write {} \"/flat/{i:024}\"", file.display())));
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    oracle::debugfs_write(&path, &requests);
    // debugfs keeps no account of quotas.
    let theirs = oracle::e2fsck(&path, &["-fy"]);
    assert!(theirs.code <= 1, "{theirs}");
    oracle::assert_clean(&path);
    Content::of_file(&path)
}

fn plant(source: &Path) {
    for name in ["one/two/three", "many", "few"] {
        std::fs::create_dir_all(source.join(name)).unwrap();
    }
    let put = |name: String, bytes: &[u8]| std::fs::write(source.join(name), bytes).unwrap();
    put("one/file".to_owned(), b"content of a file");
    put("one/two/three/deep".to_owned(), &[7; 5000]);
    for i in 0..400 {
        put(format!("many/{i:0width$}", width = 20 + i % 9), b"");
    }
    for i in 0..12 {
        put(format!("few/a name that is rather long {i}"), &[i; 100]);
    }
    for i in 0..9 {
        put(format!("hole-{i}"), &[i; 8192]);
    }
    put("in-pieces".to_owned(), &[9; 300_000]);
    std::os::unix::fs::symlink("one/file", source.join("short")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), source.join("long")).unwrap();
    std::fs::hard_link(source.join("one/file"), source.join("again")).unwrap();
}

/// What a name leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    kind: String,
    content: Vec<u8>,
    mode: u16,
    owner: (u32, u32),
    links: u32,
    pub(crate) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(crate) type Tree = BTreeMap<Vec<u8>, Found>;

pub(crate) fn tree(device: SharedDevice) -> Result<Tree, String> {
    let options = MountOptions::read_only().memory(8 << 20);
    let fs = Filesystem::open_device(device, options).map_err(|e| e.to_string())?;
    let mut tree = Tree::new();
    for entry in fs.walk("/").map_err(|e| e.to_string())? {
        let entry = entry.map_err(|e| e.to_string())?;
        let name = entry.path_bytes().escape_ascii().to_string();
        let failed = |e: extant::Error| format!("{name}: {e}");
        let metadata = entry.metadata();
        let mut content = Vec::new();
        match metadata.file_type() {
            FileType::Regular => {
                let file = entry.open().map_err(failed)?;
                content.resize(metadata.len() as usize, 0);
                let read = file.read_at(&mut content, 0).map_err(failed)?;
                assert_eq!(read, content.len(), "{name}");
            }
            FileType::Symlink => content = entry.read_link().map_err(failed)?,
            _ => {}
        }
        let attributes = entry.xattrs().map_err(failed)?.into_iter();
        let found = Found {
            kind: format!("{:?} {:?}", metadata.file_type(), metadata.rdev()),
            content,
            mode: metadata.mode().bits(),
            owner: (metadata.uid(), metadata.gid()),
            links: metadata.nlink(),
            attributes: attributes
                .map(|(name, value)| (name.as_bytes().to_vec(), value))
                .collect(),
        };
        tree.insert(entry.path_bytes().to_vec(), found);
    }
    Ok(tree)
}

pub(crate) fn told_apart(before: &Tree, now: &Tree) -> Option<String> {
    let differs = |path: &&Vec<u8>| before.get(*path) != now.get(*path);
    let paths = before.keys().chain(now.keys());
    let mut apart: Vec<String> = paths
        .filter(differs)
        .map(|path| {
            let what = match (before.get(path), now.get(path)) {
                (Some(_), None) => "is gone",
                (None, Some(_)) => "is new",
                _ => "is another",
            };
            format!("{} {what}", path.escape_ascii())
        })
        .collect();
    apart.sort();
    apart.dedup();
    (!apart.is_empty()).then(|| {
        format!(
            "{} names differ: {:?}",
            apart.len(),
            &apart[..apart.len().min(4)]
        )
    })
}

fn superblock_bytes(device: &dyn BlockDevice) -> [u8; SUPERBLOCK_LEN] {
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    bytes
}

fn superblock_of(device: &dyn BlockDevice) -> Superblock {
    Superblock::parse(&superblock_bytes(device)).unwrap()
}

/// Whether the superblock says that changes wait to be put in place.
pub(crate) fn waits(device: &dyn BlockDevice) -> bool {
    waiting::look(&superblock_bytes(device)).0
}

/// Puts what waits in place, as the next opening for writing does, also of what is then for reading
/// only.
pub(crate) fn settle(device: &SharedDevice) -> Result<(), String> {
    let options = MountOptions::read_write().background(false);
    let opened = Filesystem::open_device(device.clone(), options);
    let closed = opened.and_then(Filesystem::close);
    match closed {
        Err(e) if waits(&**device) || !e.to_string().contains("read-only") => Err(e.to_string()),
        _ => Ok(()),
    }
}

/// A change of features of an image.
struct Change<'a> {
    before: &'a Content,
    tree: &'a Tree,
    undo: Vec<u8>,
    /// It is made as a whole.
    is_whole: bool,
    /// Names of features before and afterwards, and what `e2fsck -fy` makes of these.
    features: [Vec<String>; 3],
    place: PathBuf,
}

impl Change<'_> {
    fn judge_features(&self, sb: &Superblock) -> Result<(), String> {
        let now = names(sb);
        if self.features.contains(&now) {
            return Ok(());
        }
        let [before, after, _] = &self.features;
        Err(format!(
            "features are {now:?}, were {before:?}, are to be {after:?}"
        ))
    }

    fn judge_tree(&self, device: SharedDevice) -> Result<(), String> {
        let now = tree(device)?;
        told_apart(self.tree, &now).map_or(Ok(()), Err)
    }

    /// What is left of a change that is made as a whole, once what waits is in its place: it is
    /// sound without any repair, but for a superblock that a crash has torn.
    fn as_it_is(&self, image: &CrashImage) -> Result<(), String> {
        let device = image.open();
        if Superblock::parse(&superblock_bytes(&*device)).is_err_and(|e| e.is_checksum()) {
            // For the next opening, or a repair.
            return Ok(());
        }
        let waits = waits(&*device);
        if waits {
            self.left_alone(image)?;
            settle(&device)?;
        }
        let report = extant_fsck::check(device.clone(), extant_fsck::Options::default(), &());
        let report = report.map_err(|e| e.to_string())?;
        if !report.is_clean() {
            return Err(problems(&report));
        }
        let sb = superblock_of(&*device);
        if !sb.state().contains(State::CLEAN) || waits && names(&sb) != self.features[1] {
            return Err(format!("it is {:?} with {:?}", sb.state(), names(&sb)));
        }
        self.judge_features(&sb)?;
        let content = Content::of_device(&*device).unwrap();
        content.write_to(&self.place).unwrap();
        oracle::check_clean(&self.place)?;
        self.judge_tree(device)
    }

    /// Others write nothing while changes wait.
    fn left_alone(&self, image: &CrashImage) -> Result<(), String> {
        image.write_to(&self.place);
        let before = std::fs::read(&self.place).unwrap();
        let theirs = oracle::e2fsck(&self.place, &["-fy"]);
        if theirs.code & 8 == 0 || std::fs::read(&self.place).unwrap() != before {
            return Err(format!("e2fsck does not leave alone what waits: {theirs}"));
        }
        Ok(())
    }

    fn by_us(&self, image: &CrashImage) -> Result<(), String> {
        let device = image.open();
        if waits(&*device) {
            let refused = repair::plan(device.clone(), repair::Options::default(), &());
            let why = refused.err().map_or_else(String::new, |e| e.to_string());
            if !why.contains("extant replay") {
                return Err(format!("a repair of what waits: {why:?}"));
            }
            settle(&device)?;
        }
        let plan = repair::plan(device.clone(), repair::Options::default(), &());
        let plan = plan.map_err(|e| e.to_string())?;
        if !plan.is_complete() {
            return Err(problems(&plan.left));
        }
        plan.apply().map_err(|e| e.to_string())?;
        let report = extant_fsck::check(device.clone(), extant_fsck::Options::default(), &());
        let report = report.map_err(|e| e.to_string())?;
        if !report.is_clean() {
            return Err(problems(&report));
        }
        self.judge_features(&superblock_of(&*device))?;
        Content::of_device(&*device)
            .unwrap()
            .write_to(&self.place)
            .unwrap();
        let mended = || {
            self.judge_tree(device)?;
            oracle::check_clean(&self.place)
        };
        mended().map_err(|e| {
            let fixes: Vec<String> = plan.fixes.iter().map(ToString::to_string).collect();
            format!("{e}\n{}", fixes.join("\n"))
        })
    }

    fn by_e2fsck(&self, image: &CrashImage) -> Result<(), String> {
        let device = image.open();
        if waits(&*device) {
            settle(&device)?;
        }
        let content = Content::of_device(&*device).unwrap();
        content.write_to(&self.place).unwrap();
        let theirs = oracle::e2fsck(&self.place, &["-fy"]);
        let again = || {
            if theirs.code > 1 {
                return Err("it ends with an error".to_owned());
            }
            let said = theirs.text();
            let again = ["Orphan file inode ", "Update quota info for quota type 2"];
            if again.iter().any(|again| said.contains(again)) {
                // It counts the number of an orphan file that it clears as used, and does not count
                // the blocks of a quota file that it makes, until it looks again (1.47.0).
                oracle::e2fsck(&self.place, &["-fy"]);
            }
            // Our checker names more than it mends: the number of a quota file or of an orphan file
            // whose feature is off.
            let left = oracle::e2fsck(&self.place, &["-fn"]);
            if left.code != 0 {
                return Err(format!("it is not clean then: {left}"));
            }
            let device = OpenSpec::read_only(&self.place).open().unwrap();
            self.judge_features(&superblock_of(&*device))?;
            self.judge_tree(device)
        };
        again().map_err(|e| format!("{e}\n{theirs}"))
    }

    fn back(&self, image: &CrashImage) -> Result<(), String> {
        let device = image.open();
        revert(&*device, || Ok(&self.undo[..])).map_err(|e| e.to_string())?;
        let (mut now, mut then) = (vec![0; MIB as usize], vec![0; MIB as usize]);
        for at in (0..device.size()).step_by(MIB as usize) {
            let len = (device.size() - at).min(MIB) as usize;
            device.read_at(at, &mut now[..len]).unwrap();
            self.before.read(at, &mut then[..len]);
            if now[..len] != then[..len] {
                return Err(format!("not every byte is back from {at} on"));
            }
        }
        Ok(())
    }

    fn judge(&self, image: &CrashImage) -> Vec<String> {
        let as_it_is = if self.is_whole {
            self.as_it_is(image)
        } else {
            Ok(())
        };
        let all = [
            ("nobody", as_it_is),
            ("repair", self.by_us(image)),
            ("e2fsck -fy", self.by_e2fsck(image)),
            ("revert", self.back(image)),
        ];
        let wrong = all.into_iter().filter_map(|(by, done)| {
            let why = done.err()?;
            Some(format!("by {by}: {why}"))
        });
        wrong.collect()
    }
}

fn names(sb: &Superblock) -> Vec<String> {
    let names = sb.features().names();
    let inodes = format!("inodes of {} bytes", sb.inode_size());
    names
        .iter()
        .map(ToString::to_string)
        .chain([inodes])
        .collect()
}

/// What is looked at of a change.
struct Asked {
    changes: usize,
    budget: Budget,
}

fn asked(seed: u64) -> Asked {
    let (changes, budget) = match std::env::var("EXTANT_TUNE_CUTS").ok().as_deref() {
        None => (CHANGES, Budget::limited(IMAGES, seed)),
        Some("all") => (usize::MAX, Budget::exhaustive()),
        Some(many) => {
            let many = many.parse().expect("a number of images, or `all`");
            (usize::MAX, Budget::limited(many, seed))
        }
    };
    Asked { changes, budget }
}

/// Features of an image that are to be on or off.
type Wanted = (usize, Vec<(&'static str, bool)>);

fn title((base, features): &Wanted) -> String {
    let features: Vec<String> = features
        .iter()
        .map(|(name, on)| format!("{}{name}", if *on { "" } else { "^" }))
        .collect();
    format!("{:?} {}", BASES[*base].1, features.join(","))
}

/// Each feature alone, and some of several.
fn changes(seed: u64) -> Vec<Wanted> {
    let mut rng = Rng::new(seed);
    let mut all: Vec<Wanted> = Vec::new();
    for base in 0..BASES.len() {
        let singles = FEATURES
            .iter()
            .flat_map(|name| [(*name, true), (*name, false)]);
        all.extend(singles.map(|single| (base, vec![single])));
        all.push((base, vec![(LARGER_INODES, true)]));
        for _ in 0..SEVERAL {
            let mut names = [FEATURES, &[LARGER_INODES]].concat();
            rng.shuffle(&mut names);
            names.truncate(rng.between(2, 5) as usize);
            let several = names
                .into_iter()
                .map(|name| (name, name == LARGER_INODES || rng.one_in(2)));
            all.push((base, several.collect()));
        }
    }
    if let Ok(only) = std::env::var("EXTANT_TUNE_ONLY") {
        all.retain(|change| title(change).contains(&only));
    }
    rng.shuffle(&mut all);
    all
}

/// What may be refused, by a part of the reason. Nothing else is.
const REFUSALS: &[&str] = &[
    "cannot be turned on here",
    "cannot be turned off here",
    "metadata_csum_seed needs metadata_csum",
    "64bit needs the feature extent",
    "metadata_csum does what uninit_bg does",
    "metadata_csum and uninit_bg exclude each other",
    "orphan_file needs a journal",
    "have no room for the number of a project",
    "have no room for more fields",
    "lie in other groups than their own",
    "descriptors would take",
    "are built anew beside what they are",
    "free ones in a row",
    "there is no room for it",
];

fn may_be_refused(why: &str) -> bool {
    REFUSALS.iter().any(|known| why.contains(known))
}

#[test]
fn a_change_of_features_that_is_cut_off_loses_nothing_by_any_program() {
    let seed = seed_from_env("features cut off");
    let asked = asked(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut bases: BTreeMap<usize, (Content, Tree)> = BTreeMap::new();
    let mut wrong = Vec::new();
    let (mut changed, mut images, mut wholes) = (0, 0, 0);
    for wanted in changes(seed) {
        if changed >= asked.changes {
            break;
        }
        let (number, features) = &wanted;
        let (before, tree) = &*bases.entry(*number).or_insert_with(|| {
            let content = made(dir.path(), BASES[*number]);
            let tree = tree(content.open()).unwrap();
            (content, tree)
        });
        let old = superblock_of(&*before.open());
        let inode_size = features
            .iter()
            .any(|(name, _)| *name == LARGER_INODES)
            .then(|| old.inode_size() * 2);
        let features: Vec<(Feature, bool)> = features
            .iter()
            .filter(|(name, _)| *name != LARGER_INODES)
            .map(|(name, on)| (Feature::from_name(name).unwrap(), *on))
            .filter(|(feature, on)| old.features().has(*feature) != *on)
            .collect();
        if features.is_empty() && inode_size.is_none() {
            continue;
        }
        let device = CrashDevice::over(before.clone());
        // Some as where there is no room for a log.
        let in_steps = changed % 4 == 3 && features.len() <= 1 && inode_size.is_none();
        let settings = tune::Settings {
            features,
            inode_size,
            ..tune::Settings::default()
        };
        let options = repair::Options::default()
            .now(1_700_000_000)
            .in_front(in_steps);
        let title = format!(
            "{}{}",
            title(&wanted),
            if in_steps { " in steps" } else { "" }
        );
        // What is refused changes nothing.
        let plan = match tune::plan(Arc::new(device.clone()), &settings, options, &()) {
            Ok(plan) if plan.is_complete() => plan,
            Ok(plan) => {
                wrong.push(format!("{title}: {}", problems(&plan.left)));
                continue;
            }
            Err(e) => {
                let why = e.to_string();
                println!("{title}: refused: {why}");
                if !may_be_refused(&why) {
                    wrong.push(format!("{title}: refused: {why}"));
                }
                continue;
            }
        };
        let mut undo = Vec::new();
        write_undo(&plan.changes, &mut undo).unwrap();
        plan.apply().unwrap();
        let now = superblock_of(&device);
        let place = dir.path().join("cut");
        device.content().write_to(&place).unwrap();
        let theirs = oracle::e2fsck(&place, &["-fy"]);
        assert!(theirs.code <= 1, "{title}: {theirs}");
        let after = superblock_of(&*OpenSpec::read_only(&place).open().unwrap());
        let change = Change {
            before,
            tree,
            undo,
            is_whole: plan.is_whole(),
            features: [names(&old), names(&now), names(&after)],
            place,
        };
        assert!(
            change.features[0] != change.features[1],
            "{title}: {:#?}",
            plan.fixes
        );
        changed += 1;
        wholes += usize::from(change.is_whole);
        let log = device.log();
        let mut found = log.images(asked.budget);
        for image in &mut found {
            images += 1;
            for why in change.judge(&image) {
                println!("{title}, {image}: {why}");
                wrong.push(format!("{title}, {image}: {why}"));
            }
        }
        println!(
            "{title}: {}, {} writes, {} images",
            if change.is_whole {
                "as a whole"
            } else {
                "in steps"
            },
            log.writes(),
            found.distinct()
        );
    }
    println!(
        "{changed} changes, {wholes} as a whole, {images} images, {} found wrong",
        wrong.len()
    );
    assert!(images >= changed && changed > 0);
    assert!(
        wrong.is_empty(),
        "seed {seed:#x}: {} are wrong\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
}
