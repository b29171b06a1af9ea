//! Random options beside `mke2fs`: what `dumpe2fs` says is the same, groups and where their bitmaps
//! and tables lie too, and `e2fsck -fn` accepts what is made.
//!
//! `EXTANT_GEOMETRY_SETS` says how many sets of options; `EXTANT_SEED` repeats a run.

use crate::empty_file_systems::{differences, dump};
use extant_blockdev::FileDevice;
use extant_format::BlockSize;
use extant_mkfs::defaults::{FormatOptions, InodeDensity, JournalSize, TableInit};
use extant_mkfs::metadata::{Target, format_empty};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
use std::fs::File;
use std::path::Path;

/// Sets of options in a usual run: about ten seconds.
const SETS: u64 = 60;

/// Where the two differ on purpose: what `mke2fs` says or does, and why ours is another way.
const DIFFERENCES: &[(Difference, &str)] = &[
    (
        Difference::Unclean,
        "mke2fs makes an image that e2fsck -fn does not accept: refused, or made right",
    ),
    (
        Difference::WithoutJournal,
        "mke2fs ends with an error when the journal does not fit and leaves an image without one: refused",
    ),
    (
        Difference::MoreThanAsked,
        "mke2fs refuses where a journal, or a number of inodes, cannot be had; ours may fit, since its files are placed closer",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    Unclean,
    WithoutJournal,
    MoreThanAsked,
}

/// One set of options, for both.
#[derive(Debug)]
struct Set {
    options: FormatOptions,
    args: Vec<String>,
    extended: Vec<String>,
}

impl Set {
    fn random(rng: &mut Rng) -> Self {
        // Up to 4 GiB, and now and then up to 512 GiB.
        let log = if rng.one_in(12) {
            rng.between(22, 28)
        } else {
            rng.between(10, 21)
        };
        let kib = rng.between(1 << log, 1 << (log + 1));
        let mut set = Self {
            options: FormatOptions::reproducible(kib << 10, 1_600_000_000, b"set"),
            args: vec!["-q".into(), "-F".into(), "-t".into(), "ext4".into()],
            extended: ["nodiscard", "lazy_itable_init=1", "lazy_journal_init=1"]
                .map(String::from)
                .into(),
        };
        set.options.table_init = TableInit::Lazy;
        set.choose_block_and_inodes(rng);
        set.choose_features(rng);
        set.choose_journal(rng);
        set.choose_limit(rng);
        set.choose_raid(rng);
        set
    }

    fn arg(&mut self, option: &str, value: impl ToString) {
        self.args.extend([option.to_owned(), value.to_string()]);
    }

    fn choose_block_and_inodes(&mut self, rng: &mut Rng) {
        if !rng.one_in(3) {
            let bytes = *rng.pick(&[1024, 2048, 4096, 4096, 4096, 8192, 16_384, 32_768, 65_536]);
            self.options.block_size = BlockSize::from_bytes(bytes);
            self.arg("-b", bytes);
        }
        if rng.one_in(3) {
            let bytes = *rng.pick(&[128, 256, 512, 1024, 2048, 4096]);
            self.options.inode_size = bytes;
            self.arg("-I", bytes);
        }
        match rng.below(4) {
            0 => {
                let most = self.options.size / u64::from(self.options.inode_size) / 2;
                let count = rng.between(1, most.max(2)) as u32;
                self.options.inodes = InodeDensity::Count(count);
                self.arg("-N", count);
            }
            1 => {
                let ratio = 1024 << rng.below(8);
                self.options.inodes = InodeDensity::Ratio(ratio);
                self.arg("-i", ratio);
            }
            _ => {}
        }
        if rng.one_in(3) {
            let percent = rng.below(501) as f64 / 10.0;
            self.options.reserved_percent = Some(percent);
            self.arg("-m", percent);
        }
    }

    fn choose_features(&mut self, rng: &mut Rng) {
        const FEATURES: [&str; 25] = [
            "^resize_inode,meta_bg",
            "sparse_super2",
            "^flex_bg",
            "^64bit",
            "^metadata_csum,^64bit",
            "^metadata_csum,uninit_bg",
            "^extent,^64bit",
            "^large_file",
            "^sparse_super,^resize_inode",
            "^resize_inode",
            "orphan_file",
            "inline_data",
            "mmp",
            "verity,encrypt",
            "fast_commit",
            "ea_inode,large_dir",
            "casefold",
            "project",
            "metadata_csum_seed",
            "stable_inodes",
            "^dir_index",
            "^ext_attr",
            "^filetype",
            "^huge_file,^dir_nlink",
            "^extra_isize",
        ];
        let mut chosen = Vec::new();
        for _ in 0..rng.below(4) {
            chosen.push(*rng.pick(&FEATURES));
        }
        let has = |name: &str| chosen.iter().any(|list| list.contains(name));
        let flexes = !has("flex_bg");
        let bigalloc = rng.one_in(6) && !has("^extent");
        if chosen.contains(&"sparse_super2") {
            let backups = rng.below(3) as u32;
            self.options.backup_supers = backups;
            self.extended.push(format!("num_backup_sb={backups}"));
        }
        if bigalloc {
            chosen.push("bigalloc");
            let block = self.options.block_size.get_or_insert(BlockSize::K4).bytes();
            self.arg("-b", block);
            let cluster = block << rng.between(1, 6);
            self.options.cluster_size = Some(cluster);
            self.arg("-C", cluster);
        } else if rng.one_in(4) {
            let block = self.options.block_size.get_or_insert(BlockSize::K4).bytes();
            self.arg("-b", block);
            let most = u64::from(block).min(8191);
            let blocks = rng.between(32, most) as u32 * 8;
            self.options.blocks_per_group = Some(blocks);
            self.arg("-g", blocks);
        }
        if flexes && rng.one_in(3) {
            let groups = 1 << rng.below(9);
            self.options.groups_per_flex = Some(groups);
            self.arg("-G", groups);
        }
        if !chosen.is_empty() {
            let text = chosen.join(",");
            self.options.features = text.parse().expect("features");
            self.arg("-O", text);
        }
    }

    fn choose_journal(&mut self, rng: &mut Rng) {
        match rng.below(5) {
            0 => {
                self.options.journal = JournalSize::None;
                let asks_for = |name: &str| self.args.iter().any(|arg| arg.contains(name));
                let mut off = "^has_journal".to_owned();
                for name in ["orphan_file", "fast_commit"] {
                    if asks_for(name) {
                        off = format!("{off},^{name}");
                    }
                }
                match self.args.iter().position(|arg| arg == "-O") {
                    Some(at) => self.args[at + 1] = format!("{},{off}", self.args[at + 1]),
                    None => self.arg("-O", off),
                }
            }
            1 => {
                let mib = rng.between(1, (self.options.size >> 20).clamp(2, 200));
                self.options.journal = JournalSize::Bytes(mib << 20);
                self.arg("-J", format!("size={mib}"));
            }
            _ => {}
        }
    }

    /// A size to which it can grow. With `^resize_inode` mke2fs turns the feature on again, and
    /// ours refuses the two.
    fn choose_limit(&mut self, rng: &mut Rng) {
        let list = self.args.iter().position(|arg| arg == "-O");
        let list = list.map_or("", |at| self.args[at + 1].as_str());
        if list.contains("^resize_inode") || !rng.one_in(3) {
            return;
        }
        let kib = self.options.size >> 10;
        let most = (kib + 128) << rng.below(12);
        let limit = rng.between(kib + 128, most);
        self.options.resize_limit = Some(limit << 10);
        self.extended.push(format!("resize={limit}k"));
    }

    /// What an array of disks likes, which says where bitmaps and tables begin.
    fn choose_raid(&mut self, rng: &mut Rng) {
        if !rng.one_in(4) {
            return;
        }
        let stride = 1 << rng.below(9);
        self.options.stride = Some(stride);
        self.extended.push(format!("stride={stride}"));
        if rng.one_in(2) {
            let width = u32::from(stride) * rng.between(2, 8) as u32;
            self.options.stripe_width = Some(width);
            self.extended.push(format!("stripe_width={width}"));
        }
    }

    fn make_theirs(&self, image: &Path) -> Result<(), String> {
        File::create(image)
            .and_then(|file| file.set_len(self.options.size))
            .expect("room");
        let run = tool("mke2fs")
            .args(&self.args)
            .args(["-E", &self.extended.join(",")])
            .arg(image)
            .arg(format!("{}k", self.options.size >> 10))
            .run();
        if run.code == 0 {
            Ok(())
        } else {
            Err(format!("{run}"))
        }
    }

    fn make_ours(&self, image: &Path) -> Result<(), String> {
        let _ = std::fs::remove_file(image);
        let device = FileDevice::create(image, self.options.size).expect("room");
        format_empty(&device, &self.options, Target::Zeroed)
            .map(|_| ())
            .map_err(|e| e.to_string())
    }
}

/// All that is said of a file system, but for where the files of an empty one lie: a journal and
/// the blocks of the resize inode are placed a little otherwise in one of 300 sets.
fn geometry(image: &Path) -> Vec<String> {
    let lines = dump(image);
    let has = |feature: &str| {
        let mut features = lines
            .iter()
            .filter(|line| line.starts_with("Filesystem features:"));
        features.any(|line| line.split(' ').any(|word| word == feature))
    };
    let (has_resize_inode, has_inline_data) = (has("resize_inode"), has("inline_data"));
    let has_clusters = has("bigalloc");
    let mut is_group = false;
    let mut is_compared = |line: &String| {
        is_group |= line.starts_with("Group 0:");
        // What is kept for growing means nothing without the inode that has it; mke2fs leaves a
        // number all the same.
        let is_nothing = !has_resize_inode && line.trim_start().starts_with("Reserved GDT blocks");
        // mke2fs has the root directory in its inode then, which Linux does not mount: ours has a
        // block.
        let is_of_root = has_inline_data
            && (line.starts_with("Free blocks:") || line.starts_with("MMP block number:"));
        let is_of_files =
            is_group && (line.contains("free inodes, ") || line.contains("Free blocks:"));
        // A part of a cluster more or less, which Linux counts itself when it mounts.
        let is_counted_later = has_clusters && line.starts_with("Overhead clusters:");
        !(is_nothing || is_of_root || is_of_files || is_counted_later)
    };
    let kept = lines.iter().filter(|line| is_compared(line));
    kept.cloned().collect()
}

fn is_clean(image: &Path) -> Result<(), String> {
    let run = tool("e2fsck").arg("-fn").arg(image).run();
    if run.code == 0 {
        Ok(())
    } else {
        Err(format!("{run}"))
    }
}

/// Compares one set; what is found is either a named difference or a fault.
fn compare(set: &Set, ours: &Path, theirs: &Path) -> Result<Option<Difference>, String> {
    let (made, reference) = (set.make_ours(ours), set.make_theirs(theirs));
    if made.is_ok() {
        is_clean(ours).map_err(|e| format!("ours is not clean: {e}"))?;
    }
    match (made, reference) {
        (Ok(()), Ok(())) => {
            if is_clean(theirs).is_err() {
                return Ok(Some(Difference::Unclean));
            }
            let found = differences(&geometry(ours), &geometry(theirs));
            if found.is_empty() {
                Ok(None)
            } else {
                Err(found.join("\n"))
            }
        }
        (Err(_), Err(_)) => Ok(None),
        (Err(error), Ok(())) => match is_clean(theirs) {
            Ok(()) => Err(format!("ours is refused: {error}")),
            Err(_) => Ok(Some(Difference::Unclean)),
        },
        (Ok(()), Err(error)) if error.replace("lazy_journal", "").contains("ournal") => {
            Ok(Some(Difference::WithoutJournal))
        }
        (Ok(()), Err(_)) => Ok(Some(Difference::MoreThanAsked)),
    }
}

#[test]
fn random_options_give_the_geometry_that_mke2fs_gives() {
    let seed = seed_from_env("geometry");
    let sets =
        std::env::var("EXTANT_GEOMETRY_SETS").map_or(SETS, |text| text.parse().expect("a number"));
    let dir = crate::build::scratch();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let mut rng = Rng::new(seed);
    let mut faults = Vec::new();
    let mut named = vec![0_u32; DIFFERENCES.len()];
    for number in 0..sets {
        let set = Set::random(&mut rng);
        match compare(&set, &ours, &theirs) {
            Ok(None) => {}
            Ok(Some(difference)) => {
                let at = DIFFERENCES
                    .iter()
                    .position(|(known, _)| *known == difference)
                    .expect("a named difference");
                named[at] += 1;
            }
            Err(fault) => {
                let Set {
                    options,
                    args,
                    extended,
                } = &set;
                let args = args.join(" ");
                faults.push(format!(
                    "set {number}: {} KiB {args} -E {}\n{fault}",
                    options.size >> 10,
                    extended.join(",")
                ));
            }
        }
    }
    for ((_, why), count) in DIFFERENCES.iter().zip(named) {
        println!("{count} of {sets}: {why}");
    }
    assert!(
        faults.is_empty(),
        "seed {seed}, {} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
