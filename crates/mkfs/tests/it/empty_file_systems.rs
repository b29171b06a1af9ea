//! Empty file systems: the same as `mke2fs -t ext4` makes, field by field as `dumpe2fs` prints
//! them, and sound as far as `e2fsck` and the kernel can tell.

use extant_blockdev::FileDevice;
use extant_format::BlockSize;
use extant_mkfs::defaults::{FormatOptions, InodeDensity, JournalSize, Profile, TableInit};
use extant_mkfs::metadata::{FormatWriteError, Target, format_empty};
use std::path::Path;
use std::process::{Command, Output};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const TIME: u64 = 1_600_000_000;

/// Changes the options of a test.
type Choice = fn(&mut FormatOptions);

/// A choice, as options and as arguments of `mke2fs`.
struct Case {
    size: u64,
    args: &'static str,
    choose: Choice,
}

const fn case(size: u64, args: &'static str, choose: Choice) -> Case {
    Case { size, args, choose }
}

fn features(options: &mut FormatOptions, text: &str) {
    options.features = text.parse().unwrap();
}

fn block(options: &mut FormatOptions, bytes: u32) {
    options.block_size = Some(BlockSize::from_bytes(bytes).unwrap());
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        MIB,
        MIB + 512 * KIB,
        2 * MIB,
        3 * MIB,
        8 * MIB + 64 * KIB,
        16 * MIB,
        33 * MIB,
        64 * MIB,
        100 * MIB,
        129 * MIB,
        256 * MIB,
        257 * MIB,
        511 * MIB,
        512 * MIB,
        1000 * MIB,
        GIB,
        2 * GIB + MIB,
        3 * GIB,
        10 * GIB,
        64 * GIB,
        129 * GIB,
        300 * GIB,
        TIB,
    ]
    .into_iter()
    .map(|size| case(size, "", |_| ()))
    .collect();
    cases.extend([
        case(100 * MIB, "-b 1024", |o| block(o, 1024)),
        case(100 * MIB, "-b 2048", |o| block(o, 2048)),
        case(100 * MIB, "-b 4096", |o| block(o, 4096)),
        case(3 * GIB, "-b 1024", |o| block(o, 1024)),
        case(3 * GIB, "-b 2048", |o| block(o, 2048)),
        case(3 * GIB, "-b 8192", |o| block(o, 8192)),
        case(3 * GIB, "-b 16384", |o| block(o, 16_384)),
        case(9 * GIB, "-b 32768", |o| block(o, 32_768)),
        case(20 * GIB, "-b 65536", |o| block(o, 65_536)),
        case(64 * MIB, "-b 65536", |o| block(o, 65_536)),
        case(300 * MIB, "-I 128", |o| o.inode_size = 128),
        case(3 * GIB, "-I 512", |o| o.inode_size = 512),
        case(3 * GIB, "-I 1024", |o| o.inode_size = 1024),
        case(3 * GIB, "-I 4096 -i 65536", |o| {
            o.inode_size = 4096;
            o.inodes = InodeDensity::Ratio(65_536);
        }),
        case(300 * MIB, "-N 1000", |o| {
            o.inodes = InodeDensity::Count(1000)
        }),
        case(3 * GIB, "-N 700000", |o| {
            o.inodes = InodeDensity::Count(700_000)
        }),
        case(3 * GIB, "-i 4096", |o| o.inodes = InodeDensity::Ratio(4096)),
        case(3 * GIB, "-i 1048576", |o| {
            o.inodes = InodeDensity::Ratio(1 << 20)
        }),
        case(3 * GIB, "-m 0", |o| o.reserved_percent = Some(0.0)),
        case(3 * GIB, "-m 1.5", |o| o.reserved_percent = Some(1.5)),
        case(3 * GIB, "-L label -e panic", |o| {
            o.label = b"label".to_vec();
            o.errors = extant_format::superblock::ErrorsBehaviour::Panic;
        }),
        case(3 * GIB, "-G 64", |o| o.groups_per_flex = Some(64)),
        case(3 * GIB, "-G 4", |o| o.groups_per_flex = Some(4)),
        case(3 * GIB, "-g 8192", |o| o.blocks_per_group = Some(8192)),
        case(3 * GIB, "-E stride=16,stripe_width=64", |o| {
            o.stride = Some(16);
            o.stripe_width = Some(64);
        }),
        case(3 * GIB, "-E resize=10485760", |o| {
            o.resize_limit = Some(40 * GIB)
        }),
        case(3 * GIB, "-J size=16", |o| {
            o.journal = JournalSize::Bytes(16 * MIB)
        }),
        case(40 * GIB, "-J size=2048", |o| {
            o.journal = JournalSize::Bytes(2 * GIB)
        }),
        case(3 * GIB, "-O ^has_journal", |o| {
            o.journal = JournalSize::None
        }),
        case(3 * GIB, "-O ^flex_bg", |o| features(o, "^flex_bg")),
        case(3 * GIB, "-O ^flex_bg -E stride=16", |o| {
            features(o, "^flex_bg");
            o.stride = Some(16);
        }),
        case(3 * GIB, "-O ^64bit", |o| features(o, "^64bit")),
        case(3 * GIB, "-O ^64bit,^metadata_csum", |o| {
            features(o, "^64bit,^metadata_csum")
        }),
        case(3 * GIB, "-O ^metadata_csum,uninit_bg", |o| {
            features(o, "^metadata_csum,uninit_bg")
        }),
        case(3 * GIB, "-O ^resize_inode", |o| {
            features(o, "^resize_inode")
        }),
        case(3 * GIB, "-O ^resize_inode,meta_bg", |o| {
            features(o, "^resize_inode,meta_bg")
        }),
        case(40 * GIB, "-b 1024 -O ^resize_inode,meta_bg,^flex_bg", |o| {
            block(o, 1024);
            features(o, "^resize_inode,meta_bg,^flex_bg");
        }),
        case(300 * MIB, "-O quota", |o| features(o, "quota")),
        case(300 * MIB, "-O quota,project,orphan_file -b 4096", |o| {
            features(o, "quota,project,orphan_file");
            block(o, 4096);
        }),
        case(64 * MIB, "-O quota,bigalloc -E root_owner=5:7", |o| {
            features(o, "quota,bigalloc");
            o.root_owner = (5, 7);
        }),
        case(
            64 * MIB,
            "-O quota,^extent,^64bit -E quotatype=usrquota:prjquota",
            |o| {
                features(o, "quota,^extent,^64bit");
                o.quotas = Some([true, false, true]);
            },
        ),
        case(3 * GIB, "-O sparse_super2", |o| {
            features(o, "sparse_super2")
        }),
        case(3 * GIB, "-O sparse_super2 -E num_backup_sb=1", |o| {
            features(o, "sparse_super2");
            o.backup_supers = 1;
        }),
        case(3 * GIB, "-O ^sparse_super,^resize_inode", |o| {
            features(o, "^sparse_super,^resize_inode");
        }),
        case(3 * GIB, "-O orphan_file,metadata_csum_seed", |o| {
            o.profile = Profile::Latest
        }),
        case(300 * MIB, "-O orphan_file", |o| features(o, "orphan_file")),
        case(3 * GIB, "-O mmp", |o| features(o, "mmp")),
        case(3 * GIB, "-O fast_commit", |o| features(o, "fast_commit")),
        case(MIB, "-O fast_commit", |o| features(o, "fast_commit")),
        case(40 * GIB, "-O fast_commit -J size=64", |o| {
            features(o, "fast_commit");
            o.journal = JournalSize::Bytes(64 * MIB);
        }),
        case(3 * GIB, "-O ^extent,^64bit", |o| {
            features(o, "^extent,^64bit")
        }),
        case(
            3 * GIB,
            "-O ea_inode,large_dir,casefold,encrypt,verity,project",
            |o| {
                features(o, "ea_inode,large_dir,casefold,encrypt,verity,project");
            },
        ),
        case(3 * GIB, "-O bigalloc", |o| features(o, "bigalloc")),
        case(100 * GIB, "-O bigalloc -C 262144", |o| {
            features(o, "bigalloc");
            o.cluster_size = Some(262_144);
        }),
        case(300 * MIB, "-b 1024 -O bigalloc -C 16384", |o| {
            block(o, 1024);
            features(o, "bigalloc");
            o.cluster_size = Some(16_384);
        }),
        case(3 * GIB, "-O ^64bit,^metadata_csum,uninit_bg", |o| {
            o.profile = Profile::Linux310
        }),
        case(3 * GIB, "", |o| o.profile = Profile::Grub),
        case(
            300 * MIB,
            "-b 4096 -m 1 -i 4096 \
             -O ^64bit,^metadata_csum,uninit_bg,^flex_bg,^resize_inode",
            |o| {
                o.profile = Profile::Android;
            },
        ),
    ]);
    cases
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|e| panic!("{program} must be installed: {e}"))
}

fn mke2fs(path: &Path, case: &Case) {
    std::fs::File::create(path)
        .unwrap()
        .set_len(case.size)
        .unwrap();
    let lazy = if case.args.contains("-E ") {
        ""
    } else {
        "-E nodiscard,lazy_itable_init=1"
    };
    let args = case.args.replace("-E ", "-E nodiscard,lazy_itable_init=1,");
    let mut all = vec!["-q", "-F", "-t", "ext4"];
    all.extend(args.split_whitespace().chain(lazy.split_whitespace()));
    let log = case.size.trailing_zeros().min(10);
    let size = format!("{}k", case.size >> log);
    all.extend([path.to_str().unwrap(), &size]);
    let output = run("mke2fs", &all);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mke2fs {all:?}: {errors}");
}

fn options(case: &Case) -> FormatOptions {
    let mut options = FormatOptions::reproducible(case.size, TIME, b"test");
    options.table_init = TableInit::Lazy;
    (case.choose)(&mut options);
    options
}

fn make(path: &Path, size: u64, options: &FormatOptions) -> Result<(), FormatWriteError> {
    let device = FileDevice::create(path, size).unwrap();
    format_empty(&device, options, Target::Zeroed).map(|_| ())
}

/// What identity, time and luck decide.
const VARYING: &[&str] = &[
    "Filesystem UUID:",
    "Filesystem created:",
    "Last mount time:",
    "Last write time:",
    "Last checked:",
    "Lifetime writes:",
    "Directory Hash Seed:",
    "Checksum:",
    "Checksum seed:",
    "Journal checksum:",
    "Encryption PW Salt:",
    "    mmp_",
];

fn without_checksums(line: &str) -> String {
    let mut words = line.split_whitespace().peekable();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "csum" && words.peek().is_some_and(|next| next.starts_with("0x")) {
            words.next();
        } else {
            kept.push(word);
        }
    }
    kept.join(" ")
}

/// All that `dumpe2fs` says of a file system, but for what varies.
pub(crate) fn dump(path: &Path) -> Vec<String> {
    let output = run("dumpe2fs", &[path.to_str().unwrap()]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| !VARYING.iter().any(|start| line.starts_with(start)))
        .map(without_checksums)
        .collect()
}

/// The first few differences, for people.
pub(crate) fn differences(ours: &[String], theirs: &[String]) -> Vec<String> {
    let mut found: Vec<String> = ours
        .iter()
        .zip(theirs)
        .filter(|(a, b)| a != b)
        .take(8)
        .map(|(a, b)| format!("  ours   {a}\n  mke2fs {b}"))
        .collect();
    if ours.len() != theirs.len() {
        found.push(format!("  {} lines, mke2fs {}", ours.len(), theirs.len()));
    }
    found
}

fn check(path: &Path) -> Result<(), String> {
    let output = run("e2fsck", &["-fn", path.to_str().unwrap()]);
    if output.status.code() == Some(0) {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[test]
fn empty_file_systems_are_those_mke2fs_makes() {
    let dir = tempfile::tempdir().unwrap();
    compare(dir.path(), cases());
}

#[test]
fn large_empty_file_systems_are_those_mke2fs_makes() {
    extant_testkit::require_full!("takes minutes, and files of 16 TiB on a tmpfs");
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let sizes = [4 * TIB - MIB, 4 * TIB, 16 * TIB - MIB, 16 * TIB];
    compare(dir.path(), sizes.map(|size| case(size, "", |_| ())).into());
}

fn compare(dir: &Path, cases: Vec<Case>) {
    let (ours, theirs) = (dir.join("ours"), dir.join("theirs"));
    let mut failures = Vec::new();
    for case in cases {
        let name = format!("{} MiB {}", case.size / MIB, case.args);
        if let Err(error) = make(&ours, case.size, &options(&case)) {
            failures.push(format!("{name}: {error}"));
            continue;
        }
        mke2fs(&theirs, &case);
        let found = differences(&dump(&ours), &dump(&theirs));
        if !found.is_empty() {
            failures.push(format!("{name}:\n{}", found.join("\n")));
        }
        if case.size <= 300 * GIB
            && let Err(report) = check(&ours)
        {
            failures.push(format!("{name}: e2fsck:\n{report}"));
        }
        std::fs::remove_file(&ours).unwrap();
        std::fs::remove_file(&theirs).unwrap();
    }
    assert!(
        failures.is_empty(),
        "{}\n{} failures",
        failures.join("\n"),
        failures.len()
    );
}

#[test]
fn choices_mke2fs_makes_otherwise_are_sound_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let cases: [(u64, Choice); 6] = [
        (64 * MIB, |o| features(o, "inline_data")),
        (64 * MIB, |o| o.table_init = TableInit::Full),
        (64 * MIB, |o| {
            o.profile = Profile::Latest;
            o.journal = JournalSize::None;
        }),
        (64 * MIB, |o| o.profile = Profile::Android),
        (512 * MIB, |o| {
            features(o, "bigalloc,orphan_file,mmp,fast_commit");
            o.profile = Profile::Latest;
        }),
        (64 * MIB, |o| {
            o.root_owner = (70_000, 80_000);
            o.root_mode = 0o1777;
            o.last_mounted = b"/mnt".to_vec();
        }),
    ];
    for (index, (size, choose)) in cases.into_iter().enumerate() {
        let mut options = FormatOptions::reproducible(size, TIME, b"test");
        choose(&mut options);
        make(&path, size, &options).unwrap();
        check(&path).unwrap_or_else(|report| panic!("case {index}: {report}"));
    }
}

#[test]
fn stale_content_of_the_target_does_not_shine_through() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let size = 40 * MIB;
    for table_init in [TableInit::Full, TableInit::Lazy] {
        std::fs::write(&path, vec![0xa5; size as usize]).unwrap();
        let mut options = FormatOptions::reproducible(size, TIME, b"test");
        options.table_init = table_init;
        let device = FileDevice::open(&path).unwrap();
        format_empty(&device, &options, Target::Unknown).unwrap();
        check(&path).unwrap();
    }
}

#[test]
fn the_same_options_give_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let image = |name: &str| {
        let path = dir.path().join(name);
        let options = FormatOptions::reproducible(48 * MIB, TIME, b"material");
        make(&path, 48 * MIB, &options).unwrap();
        std::fs::read(path).unwrap()
    };
    assert!(image("a") == image("b"));
}

#[test]
fn what_cannot_be_made_is_refused_in_words() {
    let cases: [(u64, Choice, &str); 14] = [
        (8192, |_| (), "8192 bytes are too small"),
        (
            64 * MIB,
            |o| o.inode_size = 300,
            "the inode size cannot be 300",
        ),
        (
            64 * MIB,
            |o| o.inode_size = 2048,
            "power of two from 128 to 1024",
        ),
        (64 * MIB, |o| o.label = vec![b'x'; 17], "at most 16 bytes"),
        (
            64 * MIB,
            |o| o.reserved_percent = Some(51.0),
            "0 to 50 percent",
        ),
        (
            64 * MIB,
            |o| features(o, "^extent"),
            "64bit needs the feature extent",
        ),
        (64 * MIB, |o| features(o, "FEATURE_I27"), "FEATURE_I27"),
        (
            64 * MIB,
            |o| features(o, "resize_inode,meta_bg"),
            "exclude each other",
        ),
        (
            64 * MIB,
            |o| features(o, "bigalloc,^extent"),
            "bigalloc needs the feature extent",
        ),
        (
            64 * MIB,
            |o| {
                o.profile = Profile::Grub;
                features(o, "inline_data");
            },
            "inline_data is not for profile grub",
        ),
        (
            64 * MIB,
            |o| {
                o.profile = Profile::Linux310;
                features(o, "metadata_csum");
            },
            "metadata_csum is not for profile linux-3.10",
        ),
        (
            64 * MIB,
            |o| o.inodes = InodeDensity::Count(10_000_000),
            "the number of inodes",
        ),
        (
            64 * MIB,
            |o| o.journal = JournalSize::Bytes(KIB),
            "the journal size cannot be 1024",
        ),
        (64 * TIB, |o| features(o, "^64bit"), "too large"),
    ];
    for (size, choose, words) in cases {
        let mut options = FormatOptions::reproducible(size, TIME, b"test");
        choose(&mut options);
        let error = extant_mkfs::layout::plan(&options).unwrap_err().to_string();
        assert!(error.contains(words), "{error} does not say {words}");
    }
}

/// Unmounts when dropped.
struct Mount(std::path::PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // A process that another test is starting has what this one has open, for a moment.
        for _ in 0..250 {
            let tried = Command::new("umount").arg(&self.0).output();
            if tried.is_ok_and(|tried| tried.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn the_kernel_mounts_fills_and_leaves_a_sound_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let (path, at) = (dir.path().join("image"), dir.path().join("mount"));
    std::fs::create_dir(&at).unwrap();
    let cases: [(u64, Choice); 8] = [
        (64 * MIB, |_| ()),
        (600 * MIB, |_| ()),
        (64 * MIB, |o| o.profile = Profile::Latest),
        (64 * MIB, |o| o.profile = Profile::Linux310),
        (64 * MIB, |o| o.profile = Profile::Android),
        (64 * MIB, |o| features(o, "^resize_inode,meta_bg")),
        (600 * MIB, |o| {
            features(o, "bigalloc,inline_data,fast_commit")
        }),
        (64 * MIB, |o| features(o, "^extent,^64bit,^metadata_csum")),
    ];
    for (size, choose) in cases {
        let mut options = FormatOptions::reproducible(size, TIME, b"test");
        choose(&mut options);
        make(&path, size, &options).unwrap();
        let (image, target) = (path.to_str().unwrap(), at.to_str().unwrap());
        let mounted = run("mount", &["-o", "loop", image, target]);
        if !mounted.status.success() {
            let why = String::from_utf8_lossy(&mounted.stderr);
            let lacking = [
                "permission denied",
                "failed to setup loop",
                "must be superuser",
            ];
            assert!(
                lacking.iter().any(|words| why.contains(words)),
                "mount: {why}"
            );
            println!("skipped: no loop mounts here: {why}");
            return;
        }
        let mount = Mount(at.clone());
        for number in 0..200 {
            let file = at.join(format!("file {number}"));
            std::fs::write(file, vec![b'x'; number * 500]).unwrap();
        }
        drop(mount);
        check(&path).unwrap();
    }
}
