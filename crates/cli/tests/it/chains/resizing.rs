//! Chains of sizes.

use super::{Chain, Step, compare, fill, made, run_chains};
use crate::support::{copy_of, extant};
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::{check_clean, dumpe2fs_header, e2fsck};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::tree::Compare;
use std::fs;
use std::path::Path;

/// More groups than these take long to check.
const GROUPS_MAX: u64 = 300;

#[test]
fn chains_of_sizes_keep_what_is_in_the_file_system() {
    require!(Root, LoopDevices, KernelExt4);
    run_chains("chains_of_sizes", one);
}

fn one(chain: &mut Chain) -> Step {
    made::make(chain)?;
    fill::write(chain)?;
    for _ in 0..chain.rng.between(3, 8) {
        match chain.rng.below(10) {
            0 | 1 => fill::write(chain)?,
            2 => theirs(chain)?,
            3 if chain.rng.one_in(2) && chain.linux_can() => online(chain)?,
            _ => ours(chain)?,
        }
    }
    chain.read_by_linux()
}

/// Bytes to grow or to shrink to.
fn target(chain: &mut Chain) -> u64 {
    let header = dumpe2fs_header(chain.path());
    let number = |field| header.number(field);
    let block = number("Block size");
    let now = number("Block count") * block;
    let most = (GROUPS_MAX * number("Blocks per group") * block).min(2 << 30);
    let rng = &mut chain.rng;
    let target = match rng.below(12) {
        0..5 => now + now / 1000 * rng.between(1, 3000),
        5 => now + now * rng.between(3, 40),
        6 => now + rng.below(9) * block,
        7 => now.saturating_sub(rng.below(9) * block),
        _ => now / 1000 * rng.between(150, 999),
    };
    let target = target.min(most.max(now));
    target / 1024 * 1024
}

fn ours(chain: &mut Chain) -> Step {
    let before = chain.keep();
    let mut args = vec!["resize".to_owned(), "--json".to_owned()];
    let minimum = chain.rng.one_in(4);
    let wanted = (!minimum).then(|| target(chain));
    if minimum {
        args.push("--minimum".to_owned());
    }
    let undo = chain.place.arg("undo");
    let _ = fs::remove_file(&undo);
    let undoes = chain.rng.one_in(5);
    if undoes {
        args.extend(["--undo".to_owned(), undo.clone()]);
    }
    args.push(chain.image.clone());
    args.extend(wanted.map(|bytes| bytes.to_string()));
    chain.tell(args.join(" "));
    let run = extant(&args);
    if run.code != 0 {
        chain.refused(&run)?;
        return refusal_is_right(chain, &before, wanted, &run.stderr);
    }
    chain.judge()?;
    let said = run.json();
    let blocks = chain.header("Block count");
    if said["blocks"].as_u64() != Some(blocks) {
        return Err(format!("it says {said}, and has {blocks} blocks"));
    }
    // What changes nothing leaves no undo file.
    if undoes && Path::new(&undo).exists() && chain.rng.one_in(2) {
        chain.tell("extant repair --revert undo");
        let run = extant(["repair", "--revert", &undo, &chain.image]);
        if run.code != 0 {
            return Err(format!("{}: {}", run.code, run.stderr));
        }
        chain.judge()?;
    }
    Ok(())
}

/// Asks resize2fs for what was refused.
fn refusal_is_right(chain: &mut Chain, before: &str, wanted: Option<u64>, why: &str) -> Step {
    let copy = copy_of(before, &chain.place.arg("theirs.img"));
    let why = why.rsplit(": ").next().unwrap_or(why).trim();
    let bare: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
    chain.tell(format!("  refused: {why}"));
    let size = match wanted {
        Some(bytes) => format!("{}K", bytes >> 10),
        None => "-M".to_owned(),
    };
    let run = tool("resize2fs").args(["-f", &copy, &size]).run();
    let theirs = dumpe2fs_header(copy.as_ref()).number("Block count");
    if run.code == 0 && check_clean(copy.as_ref()).is_ok() && theirs != chain.header("Block count")
    {
        chain.count(format!("refused here, and resize2fs does it: {bare}"));
    } else {
        chain.count(format!("refused, as by resize2fs: {bare}"));
    }
    Ok(())
}

/// A size by resize2fs, if it does it well.
fn theirs(chain: &mut Chain) -> Step {
    chain.keep();
    let size = if chain.rng.one_in(5) {
        "-M".to_owned()
    } else {
        format!("{}K", target(chain) >> 10)
    };
    chain.tell(format!("resize2fs -f fs.img {size}"));
    let run = tool("resize2fs").args(["-f", &chain.image, &size]).run();
    theirs_or_before(chain, run.code == 0, "resize2fs")
}

/// A larger size by Linux, if it does it well.
fn online(chain: &mut Chain) -> Step {
    chain.keep();
    let now = chain.header("Block count") * chain.header("Block size");
    let size = target(chain).max(now + (now >> 2));
    chain.tell(format!("Linux makes it larger: {size} bytes"));
    let file = fs::File::options().write(true).open(&chain.image);
    file.and_then(|file| file.set_len(size))
        .map_err(|e| e.to_string())?;
    let mount = KernelMount::try_mount(chain.path(), Mode::ReadWrite, "")
        .map_err(|e| format!("Linux does not mount it: {e}"))?;
    let run = tool("resize2fs").arg(mount.device().path()).run();
    mount.unmount();
    theirs_or_before(chain, run.code == 0, "Linux")
}

/// What others have made of the image, if that is sound and has what it had; otherwise the image as
/// it was before.
fn theirs_or_before(chain: &mut Chain, done: bool, who: &str) -> Step {
    // This one e2fsck says, and exits with 0.
    let theirs = e2fsck(chain.path(), &["-fn"]);
    let is_valid = !theirs.text().contains("Resize inode not valid");
    let is_sound = is_valid && check_clean(chain.path()).is_ok();
    // Other numbers of inodes are other times of directories for resize2fs.
    if is_sound && chain.differences(&times_left_out())?.is_empty() {
        return chain.learn();
    }
    let what = if done {
        "makes something unsound"
    } else {
        "fails, and leaves something unsound"
    };
    chain.tell(format!("  {who} {what}: as before"));
    chain.count(format!("{who} {what}"));
    chain.put_back();
    Ok(())
}

fn times_left_out() -> Compare {
    Compare {
        mtime: false,
        ctime: false,
        ..compare()
    }
}
