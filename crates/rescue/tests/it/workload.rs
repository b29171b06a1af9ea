//! Files that Linux writes, removes and partly overwrites: how many are found, and how many are
//! whole compared with what they held.
//!
//! With `EXTANT_DELETED_FILES` the number of files, and with `EXTANT_DELETED_TABLE` a file that the
//! table is written to, with other programs beside (`cargo xtask deleted`).

use crate::support::{Hash, Image, content, hash, noise, path_of};
use extant_rescue::Verdict;
use extant_testkit::mount::KernelMount;
use extant_testkit::oracle::debugfs_write;
use extant_testkit::require;
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What a run came to.
#[derive(Debug, Default)]
struct Sums {
    files: usize,
    found: usize,
    /// By verdict: how many, and how many of them hold what they held.
    verdicts: BTreeMap<&'static str, (usize, usize)>,
}

/// What the files of a run held, by path; and the hashes of those that were written over them.
#[derive(Default)]
struct Known {
    files: HashMap<String, Hash>,
    later: HashSet<Hash>,
}

const KINDS: [(&str, &[&str]); 4] = [
    ("ext4", &["-t", "ext4"]),
    ("ext4, blocks of 1 KiB", &["-t", "ext4", "-b", "1024"]),
    ("ext3", &["-t", "ext3"]),
    ("ext3, blocks of 1 KiB", &["-t", "ext3", "-b", "1024"]),
];

/// Has Linux write files, remove them and use a part of their blocks for others.
fn run(image: &Image, files: usize, overwritten: bool, rng: &mut Rng) -> Known {
    let mount = image.mount();
    let mut known = Known::default();
    for n in 0..files {
        let path = format!("/dir{}/file{n}", n % 16);
        let len = match rng.below(10) {
            0 => rng.below(60),
            1 => rng.between(100_000, 900_000),
            _ => rng.below(40_000),
        };
        let bytes = noise(rng, len);
        known.files.insert(path.clone(), hash(&bytes));
        let at = mount.join(&path[1..]);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, bytes).unwrap();
    }
    mount.sync();
    let mut names: Vec<&String> = known.files.keys().collect();
    names.sort();
    // In three transactions, the last of which is followed by new files.
    for part in names.chunks(files.div_ceil(3)) {
        for name in part {
            fs::remove_file(mount.join(&name[1..])).unwrap();
        }
        mount.sync();
    }
    if overwritten {
        known.later = overwrite(&mount, files / 5, rng);
    }
    mount.unmount();
    known
}

/// New files, of which some go again; the hashes of what they hold.
fn overwrite(mount: &KernelMount, files: usize, rng: &mut Rng) -> HashSet<Hash> {
    let mut written = HashSet::new();
    for n in 0..files {
        let path = mount.join(format!("dir{}/new{n}", n % 16));
        let len = rng.below(60_000);
        let bytes = noise(rng, len);
        fs::write(&path, &bytes).unwrap();
        written.insert(hash(&bytes));
    }
    mount.sync();
    for n in (0..files).step_by(2) {
        fs::remove_file(mount.join(format!("dir{}/new{n}", n % 16))).unwrap();
    }
    mount.sync();
    written
}

/// Compares what is found with what the files held.
fn judge(image: &Image, known: &Known) -> Sums {
    let (rescue, deleted) = image.deleted();
    assert_eq!(deleted.unproven, None);
    let mut sums = Sums {
        files: known.files.len(),
        ..Sums::default()
    };
    for file in &deleted.files {
        let Some(expected) = path_of(file).and_then(|path| known.files.get(&path).copied()) else {
            continue;
        };
        sums.found += 1;
        let is_right = match file.verdict {
            Verdict::Unmapped | Verdict::NameOnly => false,
            _ => hash(&content(&rescue, file)) == expected,
        };
        let (count, right) = sums.verdicts.entry(file.verdict.name()).or_default();
        *count += 1;
        *right += usize::from(is_right);
        assert!(is_right || file.verdict != Verdict::Whole, "{file:?}");
    }
    sums
}

impl Sums {
    fn of(&self, verdict: Verdict) -> (usize, usize) {
        self.verdicts
            .get(verdict.name())
            .copied()
            .unwrap_or_default()
    }
}

fn number() -> usize {
    let asked = std::env::var("EXTANT_DELETED_FILES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(120)
}

#[test]
fn what_is_told_to_be_whole_holds_what_it_held() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::workload"));
    let files = number();
    let size = (files as u64) << 19;
    let mut table = String::new();
    for (kind, options) in KINDS {
        for overwritten in [false, true] {
            let image = Image::new(size.max(96 << 20), options);
            let known = run(&image, files, overwritten, &mut rng);
            let sums = judge(&image, &known);
            println!("{kind}, overwritten {overwritten}: {sums:?}");
            // All inodes of the last transactions are in the log, with their names.
            assert!(sums.found * 10 >= sums.files * 9, "{kind}: {sums:?}");
            let (whole, likely) = (sums.of(Verdict::Whole), sums.of(Verdict::Likely));
            if overwritten {
                let (partly, lost) = (sums.of(Verdict::Partly).0, sums.of(Verdict::Lost).0);
                assert!(partly + lost > 0, "nothing was overwritten: {sums:?}");
            } else {
                // The last third at least, of which nothing near was freed before.
                assert!(whole.0 + likely.0 == sums.found, "{kind}: {sums:?}");
                assert!(whole.0 * 4 >= sums.files, "{kind}: {sums:?}");
                assert_eq!(likely.0, likely.1, "{kind}: {sums:?}");
            }
            row(&mut table, kind, overwritten, &sums, &image, &known);
        }
    }
    if let Ok(to) = std::env::var("EXTANT_DELETED_TABLE") {
        fs::write(to, table).unwrap();
    }
}

/// A row of the table, with what other programs bring back.
fn row(
    table: &mut String,
    kind: &str,
    overwritten: bool,
    sums: &Sums,
    image: &Image,
    known: &Known,
) {
    if std::env::var_os("EXTANT_DELETED_TABLE").is_none() {
        return;
    }
    let what = if overwritten {
        "removed, a fifth as many written, half of these removed"
    } else {
        "removed"
    };
    let of = |verdict: Verdict| {
        let (count, right) = sums.of(verdict);
        format!("{right} of {count}")
    };
    let mut others = String::new();
    for (program, args) in [
        ("extundelete", &["--restore-all"][..]),
        ("ext4magic", &["-M", "-d", "out"][..]),
        ("ext4magic", &["-R", "-d", "out"][..]),
    ] {
        let right = beside(program, args, &image.path, known);
        write!(others, " {right} |").unwrap();
    }
    writeln!(
        table,
        "| {kind} | {what} | {} of {} | {} | {} |{others}",
        sums.found,
        sums.files,
        of(Verdict::Whole),
        of(Verdict::Likely),
    )
    .unwrap();
}

/// How many files of the run another program brings back as they were, each counted once, and how
/// many in all that are none of those written later.
fn beside(program: &str, args: &[&str], image: &Path, known: &Known) -> String {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("image");
    tool("cp").arg("--sparse=always").arg(image).arg(&copy).ok();
    fs::create_dir(dir.path().join("out")).unwrap();
    let mut command = Command::new("timeout");
    command.arg("600").arg(program);
    if program == "extundelete" {
        command.args(args).arg(&copy);
    } else {
        command.arg(&copy).args(args);
    }
    let ran = command.current_dir(dir.path()).output();
    if ran.is_err() {
        return "not installed".to_owned();
    }
    let of_hash: HashSet<&Hash> = known.files.values().collect();
    let (mut right, mut all) = (HashSet::new(), 0);
    let mut left = vec![dir.path().join("out"), dir.path().join("RECOVERED_FILES")];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let found = hash(&fs::read(entry.path()).unwrap());
                if of_hash.contains(&found) {
                    // Copies of one file count once.
                    all += usize::from(right.insert(found));
                } else if !known.later.contains(&found) {
                    all += 1;
                }
            }
        }
    }
    format!("{} of {all}", right.len())
}

#[test]
fn names_left_in_directories_and_maps_left_in_inodes_are_found_and_not_sure() {
    require!(KernelExt4);
    let mut rng = Rng::new(seed_from_env("rescue::left_behind"));
    for options in [&["-t", "ext4"][..], &["-t", "ext3", "-b", "1024"][..]] {
        let image = Image::new(64 << 20, options);
        let mount = image.mount();
        fs::create_dir(mount.join("d")).unwrap();
        let bytes = noise(&mut rng, 30_000);
        for n in 0..6 {
            fs::write(mount.join(format!("d/f{n}")), &bytes).unwrap();
        }
        mount.unmount();
        // It leaves size, map and name, and no log has it.
        debugfs_write(&image.path, &["rm /d/f3", "unlink /d/f4"]);
        let (rescue, deleted) = image.deleted();
        assert!(deleted.unproven.is_some());
        let of = |name: &str| {
            let mut files = deleted.files.iter();
            files.find(|file| path_of(file).as_deref() == Some(name))
        };
        let file = of("/d/f3").unwrap_or_else(|| panic!("{options:?}: {deleted:?}"));
        assert_eq!(file.verdict, Verdict::Likely, "{file:?}");
        assert!(content(&rescue, file) == bytes && file.deleted.is_some());
        // Its inode is in use still: it is no deleted file.
        assert!(of("/d/f4").is_none(), "{options:?}");
    }
}
