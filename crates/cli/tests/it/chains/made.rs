//! Images with random options.

use super::{Chain, Step};
use crate::support::extant;
use extant_testkit::rng::Rng;
use extant_testkit::tool::tool;
use std::fs;

const MIB: u64 = 1 << 20;

/// Features beside the defaults, for both.
const FEATURES: &[&str] = &[
    "^resize_inode,meta_bg",
    "sparse_super2",
    "^flex_bg",
    "^64bit",
    "^metadata_csum,^64bit",
    "^metadata_csum,uninit_bg",
    "^metadata_csum,uninit_bg,^flex_bg",
    "^extent,^64bit",
    "^large_file",
    "^sparse_super,^resize_inode",
    "^resize_inode",
    "orphan_file",
    "inline_data",
    "quota",
    "quota,project",
    "ea_inode",
    "verity,encrypt",
    "casefold",
    "metadata_csum_seed",
    "^has_journal",
    "^dir_index",
];

/// Makes an image, by one of the two; there is one in the end.
pub(super) fn make(chain: &mut Chain) -> Step {
    for _ in 0..20 {
        let _ = fs::remove_file(&chain.image);
        let (command, made) = if chain.rng.one_in(2) {
            theirs(&mut chain.rng, &chain.image)
        } else {
            ours(&mut chain.rng, &chain.image)
        };
        if made {
            chain.tell(command);
            return Ok(());
        }
    }
    Err("no set of options makes an image".to_owned())
}

fn features(rng: &mut Rng) -> Vec<&'static str> {
    let mut chosen: Vec<&str> = Vec::new();
    for _ in 0..rng.below(4) {
        let list = *rng.pick(FEATURES);
        let bare = |name: &str| name.trim_start_matches('^').to_owned();
        let is_new = |name: &str| !chosen.iter().any(|other| bare(other) == bare(name));
        if list.split(',').all(is_new) {
            chosen.extend(list.split(','));
        }
    }
    let off = chosen.contains(&"^has_journal");
    chosen.retain(|name| !(off && *name == "orphan_file"));
    chosen
}

/// Bytes of a block and of the file system.
fn sizes(rng: &mut Rng) -> (u64, u64) {
    let block = *rng.pick(&[1024, 1024, 2048, 4096]);
    let mib = match block {
        1024 => rng.between(5, 48),
        2048 => rng.between(8, 80),
        _ => rng.between(12, 160),
    };
    (block, mib * MIB + rng.below(1024) * 1024)
}

fn theirs(rng: &mut Rng, image: &str) -> (String, bool) {
    let (block, size) = sizes(rng);
    let mut chosen = features(rng);
    let mut args: Vec<String> = Vec::new();
    let mut arg = |name: &str, value: String| args.extend([name.to_owned(), value]);
    let mut extended = vec!["nodiscard".to_owned()];
    arg("-b", block.to_string());
    if rng.one_in(6) && !chosen.contains(&"^extent") {
        chosen.push("bigalloc");
        arg("-C", (block << rng.between(1, 4)).to_string());
    } else if rng.one_in(2) {
        let most = block.min(8191);
        arg("-g", (rng.between(most / 16, most) * 8).to_string());
    }
    if !chosen.contains(&"^flex_bg") && rng.one_in(2) {
        arg("-G", (1 << rng.below(6)).to_string());
    }
    if rng.one_in(3) {
        arg("-I", rng.pick(&[128, 256, 512]).to_string());
    }
    if rng.one_in(3) {
        arg("-N", rng.between(150, 3000).to_string());
    }
    if rng.one_in(3) {
        arg("-m", rng.below(20).to_string());
    }
    if !chosen.contains(&"^has_journal") && rng.one_in(2) {
        arg(
            "-J",
            format!("size={}", if block == 4096 { 4 } else { block / 1024 }),
        );
    }
    if chosen.contains(&"sparse_super2") {
        extended.push(format!("num_backup_sb={}", rng.below(3)));
    }
    if rng.one_in(4) && !chosen.contains(&"^resize_inode") {
        let blocks = size / block;
        extended.push(format!("resize={}", rng.between(blocks + 1, blocks * 40)));
    }
    extended.push(format!("lazy_itable_init={}", rng.below(2)));
    if !chosen.is_empty() {
        arg("-O", chosen.join(","));
    }
    arg("-E", extended.join(","));
    arg(
        "-t",
        (*rng.pick(&["ext4", "ext4", "ext4", "ext3"])).to_owned(),
    );
    let kib = size >> 10;
    let run = tool("mke2fs")
        .args(["-q", "-F"])
        .args(&args)
        .arg(image)
        .arg(format!("{kib}k"));
    (
        format!("mke2fs {} fs.img {kib}k", args.join(" ")),
        run.run().code == 0,
    )
}

fn ours(rng: &mut Rng, image: &str) -> (String, bool) {
    let (block, size) = sizes(rng);
    let mut args: Vec<String> = vec!["mkfs".into(), "-q".into()];
    let mut arg = |name: &str, value: String| args.extend([name.to_owned(), value]);
    arg("--size", size.to_string());
    arg("--block-size", block.to_string());
    let chosen = features(rng);
    let named = rng
        .one_in(5)
        .then(|| *rng.pick(&["latest", "linux-3.10", "grub", "android"]));
    match named {
        Some(profile) => arg("--profile", profile.to_owned()),
        None if !chosen.is_empty() => arg("--features", chosen.join(",")),
        None => {}
    }
    if named.is_none() && rng.one_in(3) {
        arg("--inode-size", rng.pick(&[128, 256, 512]).to_string());
    }
    if rng.one_in(3) {
        arg("--inodes", rng.between(150, 3000).to_string());
    }
    if rng.one_in(3) {
        arg("--reserved-percent", rng.below(20).to_string());
    }
    if !chosen.contains(&"^has_journal") && rng.one_in(2) {
        let mib = if block == 4096 { 4 } else { block / 1024 };
        arg("--journal-size", (mib * MIB).to_string());
    }
    if rng.one_in(2) {
        arg("--table-init", "lazy".to_owned());
    }
    args.push(image.to_owned());
    let made = extant(&args).code == 0;
    args.pop();
    (format!("extant {} fs.img", args.join(" ")), made)
}
