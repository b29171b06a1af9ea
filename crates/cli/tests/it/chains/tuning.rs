//! Chains of settings, each beside what `tune2fs` makes of the same image.

use super::{Chain, Step, fill, made, run_chains, seen};
use crate::support::{copy_of, extant};
use crate::tuning::differences;
use extant_testkit::oracle::{check_clean, dumpe2fs_header, e2fsck};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;

#[test]
fn chains_of_settings_keep_what_is_in_the_file_system() {
    require!(Root, LoopDevices, KernelExt4);
    run_chains("chains_of_settings", one);
}

/// One setting, for both.
struct Setting {
    ours: Vec<String>,
    theirs: Vec<String>,
    /// What it is, without its value.
    kind: String,
}

fn one(chain: &mut Chain) -> Step {
    made::make(chain)?;
    fill::write(chain)?;
    for _ in 0..chain.rng.between(3, 8) {
        match chain.rng.below(8) {
            0 => write(chain)?,
            _ => step(chain)?,
        }
    }
    chain.read_by_linux()
}

fn write(chain: &mut Chain) -> Step {
    if dumpe2fs_header(chain.path()).has_feature("read-only") {
        Ok(())
    } else {
        fill::write(chain)
    }
}

const FEATURES: &[&str] = &[
    "has_journal",
    "dir_index",
    "ext_attr",
    "fast_commit",
    "stable_inodes",
    "large_dir",
    "ea_inode",
    "encrypt",
    "casefold",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "verity",
    "metadata_csum",
    "metadata_csum_seed",
    "uninit_bg",
    "resize_inode",
    "sparse_super",
    "filetype",
    "extent",
    "flex_bg",
    "quota",
    "project",
    "orphan_file",
    "read-only",
    "inline_data",
    "meta_bg",
    "64bit",
    "sparse_super2",
];

/// Not `uid16`, with which Linux shows other owners.
const MOUNT_OPTIONS: &[&str] = &[
    "debug",
    "bsdgroups",
    "user_xattr",
    "acl",
    "journal_data_writeback",
    "journal_data_ordered",
    "journal_data",
    "nobarrier",
    "block_validity",
    "nodelalloc",
];

fn setting(rng: &mut Rng) -> Setting {
    let (ours, theirs, value) = match rng.below(16) {
        0 => ("--label", "-L", format!("label {}", rng.below(1000))),
        1 => ("--uuid", "-U", uuid(rng)),
        2 => ("--uuid", "-U", "clear".to_owned()),
        3 => ("--reserved-percent", "-m", rng.below(51).to_string()),
        4 => ("--reserved-blocks", "-r", (1 << rng.below(16)).to_string()),
        5 => ("--reserved-user", "-u", rng.below(1 << 20).to_string()),
        6 => ("--reserved-group", "-g", rng.below(1 << 20).to_string()),
        7 => {
            let how = *rng.pick(&["continue", "remount-ro", "panic"]);
            ("--errors", "-e", how.to_owned())
        }
        8 => ("--max-mounts", "-c", rng.between(1, 300).to_string()),
        9 => {
            let option = *rng.pick(MOUNT_OPTIONS);
            let sign = if rng.one_in(2) { "^" } else { "" };
            ("--mount-options", "-o", format!("{sign}{option}"))
        }
        _ => {
            let feature = *rng.pick(FEATURES);
            let sign = if rng.one_in(2) { "^" } else { "" };
            ("--features", "-O", format!("{sign}{feature}"))
        }
    };
    let kind = match ours {
        "--features" | "--mount-options" => format!("{ours} {value}"),
        _ => ours.to_owned(),
    };
    Setting {
        ours: vec![ours.to_owned(), value.clone()],
        theirs: vec![theirs.to_owned(), value],
        kind,
    }
}

fn uuid(rng: &mut Rng) -> String {
    let (a, b) = (rng.next_u64(), rng.next_u64());
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0xfff,
        b & 0xffff_ffff_ffff
    )
}

fn step(chain: &mut Chain) -> Step {
    let before = chain.keep();
    let setting = setting(&mut chain.rng);
    let theirs = copy_of(&before, &chain.place.arg("theirs.img"));
    let run = tool("tune2fs")
        .arg("-f")
        .args(&setting.theirs)
        .arg(&theirs)
        .run();
    // With exit code 0 it says that another program does that.
    let said = run.to_string();
    let does_not = run.code != 0 || said.contains("run `resize2fs");
    let wants_e2fsck = said.contains("Please run e2fsck");
    let refused = does_not.then_some(said);
    // What it asks e2fsck to finish is no verdict: `e2fsck -n` may exit with 0 where it finds what
    // it would put right.
    let unclean = check_clean(theirs.as_ref()).err();
    let finished = wants_e2fsck.then(|| {
        let finished = copy_of(&theirs, &chain.place.arg("finished.img"));
        e2fsck(finished.as_ref(), &["-fy"]);
        finished
    });
    let undo = chain.place.arg("undo");
    let _ = fs::remove_file(&undo);
    let undoes = chain.rng.one_in(4);
    let mut args = vec!["tune".to_owned()];
    args.extend(setting.ours.iter().cloned());
    if undoes {
        args.extend(["--undo".to_owned(), undo.clone()]);
    }
    args.push(chain.image.clone());
    chain.tell(args.join(" "));
    let run = extant(&args);
    let kind = &setting.kind;
    match (run.code, &refused) {
        (0, None) => {
            chain.judge()?;
            let mut different = differences(chain.path(), Path::new(&theirs));
            if let Some(finished) = &finished {
                different.retain(|line| !line.contains("Filesystem state:"));
                if !different.is_empty() {
                    different = differences(chain.path(), Path::new(finished));
                }
            }
            match (&unclean, different.is_empty()) {
                (None, true) => chain.count("the same as by tune2fs"),
                (None, false) if takes_fewer_blocks(&different) => {
                    chain.count(format!("in fewer blocks than by tune2fs: {kind}"));
                }
                (None, false) => return Err(format!("beside tune2fs: {different:#?}")),
                (Some(_), _) => chain.count(format!("done, and unclean by tune2fs: {kind}")),
            }
        }
        (0, Some(theirs)) => {
            chain.judge()?;
            let last = theirs.lines().rev().nth(1).unwrap_or_default();
            chain.count(format!("done, and refused by tune2fs: {kind}: {last}"));
        }
        (_, None) => {
            chain.refused(&run)?;
            let why = run
                .stderr
                .rsplit(": ")
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned();
            chain.tell(format!("  refused: {why}"));
            if unclean.is_none() {
                chain.count(format!("refused, and done by tune2fs: {kind}: {why}"))
            } else {
                chain.count(format!("refused, and unclean by tune2fs: {kind}: {why}"))
            }
        }
        (_, Some(_)) => {
            chain.refused(&run)?;
            chain.count("refused by both");
        }
    }
    if run.code == 0 && undoes && Path::new(&undo).exists() && chain.rng.one_in(2) {
        chain.tell("extant repair --revert undo");
        let run = extant(["repair", "--revert", &undo, &chain.image]);
        if run.code != 0 || fs::read(&before).ok() != fs::read(&chain.image).ok() {
            return Err(format!("not every byte is back: {}", run.stderr));
        }
    }
    if refused.is_none() && chain.rng.one_in(4) {
        return theirs_instead(chain, &setting, &theirs);
    }
    Ok(())
}

/// Whether all that differs is that fewer blocks are taken: a quota file in more pieces than its
/// inode can name takes a block for its map, and where its pieces lie is the allocator's choice.
fn takes_fewer_blocks(different: &[String]) -> bool {
    const MOST: u64 = 8;
    let free = |side: &str| {
        let line = different.iter().find_map(|line| line.strip_prefix(side));
        line?.strip_prefix("Free blocks:")?.trim().parse().ok()
    };
    let (ours, theirs): (Option<u64>, Option<u64>) = (free("ours: "), free("theirs: "));
    let (Some(ours), Some(theirs), 2) = (ours, theirs, different.len()) else {
        return false;
    };
    (theirs..=theirs + MOST).contains(&ours)
}

/// Goes on with what tune2fs has made, after a check where it needs one.
fn theirs_instead(chain: &mut Chain, setting: &Setting, theirs: &str) -> Step {
    // tune2fs asks for it where it leaves something half done, of which `e2fsck -n` may only tell.
    e2fsck(theirs.as_ref(), &["-fy"]);
    if check_clean(theirs.as_ref()).is_err() {
        chain.count(format!("beyond repair after tune2fs: {}", setting.kind));
        return Ok(());
    }
    // With a small journal fast_commit is what Linux does not mount.
    if chain.linux_can() && seen(theirs.as_ref()).is_err() {
        chain.count(format!("not mounted after tune2fs: {}", setting.kind));
        return Ok(());
    }
    chain.tell(format!("tune2fs {} fs.img", setting.theirs.join(" ")));
    let _ = fs::remove_file(&chain.image);
    copy_of(theirs, &chain.image);
    chain.judge()
}
