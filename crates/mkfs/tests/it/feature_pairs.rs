//! Features on and off, two at a time, beside `mke2fs`: what one of the two refuses the other does
//! not make, and `e2fsck -fn` asks nothing about what is made.
//!
//! A usual run takes some of the pairs, a full one all; `EXTANT_FEATURE_PAIRS` says how many, and
//! `EXTANT_SEED` repeats a run.

use extant_blockdev::FileDevice;
use extant_format::BlockSize;
use extant_mkfs::defaults::FormatOptions;
use extant_mkfs::metadata::{Target, format_empty};
use extant_testkit::facility::is_full_run;
use extant_testkit::oracle::{check_clean, dumpe2fs_header};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::fs::File;
use std::path::Path;

const SIZE: u64 = 4 << 20;
/// Pairs in a usual run: some seconds.
const PAIRS: usize = 200;

/// All that can be asked for by name.
const FEATURES: &[&str] = &[
    "has_journal",
    "ext_attr",
    "resize_inode",
    "dir_index",
    "sparse_super2",
    "fast_commit",
    "stable_inodes",
    "orphan_file",
    "filetype",
    "meta_bg",
    "extent",
    "64bit",
    "mmp",
    "flex_bg",
    "ea_inode",
    "metadata_csum_seed",
    "large_dir",
    "inline_data",
    "encrypt",
    "casefold",
    "sparse_super",
    "large_file",
    "huge_file",
    "uninit_bg",
    "dir_nlink",
    "extra_isize",
    "quota",
    "bigalloc",
    "metadata_csum",
    "project",
    "verity",
    SMALL_INODES,
];

/// In the place of the name of a feature: inodes of 128 bytes.
const SMALL_INODES: &str = "small inodes";

/// What is made here and refused there, by what all such pairs have, and what mke2fs says:
/// `resize_inode` goes where `meta_bg` comes, unless it is asked for.
const MADE_HERE: &[(&[&str], &str)] = &[(
    &["meta_bg"],
    "The resize_inode and meta_bg features are not compatible",
)];

/// What is made there and refused here, and what we say: a feature of the journal means nothing
/// without one.
const MADE_THERE: &[(&[&str], &str)] = &[(&["^has_journal", "fast_commit"], "fast_commit")];

/// Every two that do not say the same of one feature.
fn pairs() -> Vec<[String; 2]> {
    let words: Vec<(&str, String)> = FEATURES
        .iter()
        .flat_map(|name| [(*name, (*name).to_owned()), (*name, format!("^{name}"))])
        .collect();
    let mut pairs = Vec::new();
    for (i, (name, first)) in words.iter().enumerate() {
        for (other, second) in &words[i + 1..] {
            let is_small = |word: &String| word.ends_with(SMALL_INODES);
            if name != other && !first.starts_with(&format!("^{SMALL_INODES}")) {
                let is_usual = is_small(second) && second.starts_with('^');
                if !is_usual {
                    pairs.push([first.clone(), second.clone()]);
                }
            }
        }
    }
    pairs
}

/// Makes it with both; `None` where it is made.
fn both(pair: &[String; 2], ours: &Path, theirs: &Path) -> [Option<String>; 2] {
    let features: Vec<&str> = pair.iter().map(String::as_str).collect();
    let is_small = features.contains(&SMALL_INODES);
    let list: Vec<&str> = features
        .into_iter()
        .filter(|name| *name != SMALL_INODES)
        .collect();
    let list = list.join(",");
    let mut options = FormatOptions::reproducible(SIZE, 1_600_000_000, b"pair");
    options.block_size = Some(BlockSize::MIN);
    options.features = list.parse().expect("names of features");
    options.inode_size = if is_small { 128 } else { 256 };
    let device = FileDevice::create(ours, SIZE).expect("room");
    let made = format_empty(&device, &options, Target::Zeroed);
    File::create(theirs)
        .and_then(|file| file.set_len(SIZE))
        .expect("room");
    let size = options.inode_size.to_string();
    let run = tool("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O", &list])
        .args(["-I", &size, "-E", "nodiscard,lazy_itable_init=0"])
        .arg(theirs)
        .run();
    let refused = (run.code != 0).then(|| String::from_utf8_lossy(&run.stderr).into_owned());
    [made.err().map(|e| e.to_string()), refused]
}

/// What is wrong with a pair, if anything is.
fn judged(pair: &[String; 2], ours: &Path, theirs: &Path) -> Result<(), String> {
    let is_known = |known: &[(&[&str], &str)], why: &str| {
        known.iter().any(|(all, said)| {
            let has = |name: &&str| pair.iter().any(|word| word == name);
            all.iter().all(has) && why.contains(said)
        })
    };
    match both(pair, ours, theirs) {
        [None, refused] => {
            check_clean(ours)?;
            let Some(why) = refused else {
                let names = |image: &Path| {
                    let text = dumpe2fs_header(image);
                    text.field("Filesystem features").to_owned()
                };
                let (a, b) = (names(ours), names(theirs));
                return if a == b {
                    Ok(())
                } else {
                    Err(format!("ours has {a}, theirs {b}"))
                };
            };
            if is_known(MADE_HERE, &why) {
                Ok(())
            } else {
                Err(format!("refused there alone: {why}"))
            }
        }
        [Some(why), None] if !is_known(MADE_THERE, &why) => {
            Err(format!("refused here alone: {why}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn two_features_go_together_where_mke2fs_makes_them() {
    let seed = seed_from_env("pairs of features");
    let mut all = pairs();
    let count = std::env::var("EXTANT_FEATURE_PAIRS").ok();
    let count = count.and_then(|count| count.parse().ok());
    let usual = if is_full_run() { all.len() } else { PAIRS };
    Rng::new(seed).shuffle(&mut all);
    all.truncate(count.unwrap_or(usual));
    let dir = crate::build::scratch();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let wrong: Vec<String> = all
        .iter()
        .filter_map(|pair| {
            let why = judged(pair, &ours, &theirs).err()?;
            Some(format!("{}: {why}", pair.join(",")))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "EXTANT_SEED={seed:#x}: {} of {}:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n")
    );
}
