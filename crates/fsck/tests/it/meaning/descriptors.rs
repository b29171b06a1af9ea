//! Descriptors of groups that are lost, each in turn: what comes out of the image that is mended in
//! memory, and what is left after a repair, is no less than what `e2fsck -fy` leaves.

use super::contents::{Contents, by_engine};
use super::judge::{in_memory, not_in};
use super::mended::{after_e2fsck, mended};
use extant_blockdev::SharedDevice;
use extant_fsck::repair;
use extant_testkit::oracle::{self, dumpe2fs_header};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::HashSet;
use std::path::Path;

/// Where descriptors begin: all are in one block.
const START: usize = 2048;

/// The seed of an ordinary run: always the same noise.
const SAMPLE: u64 = 1;

/// KiB, and options of `mke2fs`.
type Base = (u64, &'static [&'static str]);

const BASES: &[Base] = &[
    (4096, &["-O", "^has_journal,^extents,^64bit,metadata_csum"]),
    (6144, &["-g", "1024"]),
    (
        6144,
        &["-g", "1024", "-O", "^flex_bg,^resize_inode,meta_bg"],
    ),
    (
        6144,
        &["-g", "1024", "-O", "^metadata_csum,uninit_bg,^has_journal"],
    ),
    (
        6144,
        &["-g", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit"],
    ),
    (6144, &["-g", "1024", "-O", "sparse_super2,^has_journal"]),
    (6144, &["-t", "ext2", "-g", "1024"]),
];

/// What becomes of a descriptor.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Zeros,
    Ones,
    Noise,
    /// Where bitmaps and table lie alone.
    Places,
    /// Flags, counts and checksums alone.
    Counts,
}

const DAMAGES: [Damage; 5] = [
    Damage::Zeros,
    Damage::Ones,
    Damage::Noise,
    Damage::Places,
    Damage::Counts,
];

impl Damage {
    fn on(self, descriptor: &mut [u8], rng: &mut Rng) {
        let mut noise = |bytes: &mut [u8]| {
            bytes
                .iter_mut()
                .for_each(|byte| *byte = rng.below(256) as u8)
        };
        match self {
            Self::Zeros => descriptor.fill(0),
            Self::Ones => descriptor.fill(0xff),
            Self::Noise => noise(descriptor),
            // Places that may be: block numbers of the image.
            Self::Places => {
                for at in [0, 4, 8] {
                    noise(&mut descriptor[at..at + 2]);
                    descriptor[at + 1] &= 0xf;
                }
            }
            Self::Counts => noise(&mut descriptor[12..32]),
        }
    }
}

fn plant(dir: &Path) -> String {
    let source = dir.join("source");
    for sub in 0..12 {
        let at = source.join(format!("dir{sub}"));
        std::fs::create_dir_all(&at).unwrap();
        for file in 0..8 {
            let bytes = vec![(sub * 8 + file) as u8 + 1; 200 + file * 900];
            std::fs::write(at.join(format!("file{file}")), bytes).unwrap();
        }
    }
    source.display().to_string()
}

/// The image, and bytes of a descriptor.
fn made(dir: &Path, (kib, options): Base, source: &str) -> (Vec<u8>, usize) {
    let path = dir.join("image");
    let mut usual = vec!["-b", "1024", "-N", "384", "-d", source];
    if !options.contains(&"-t") {
        usual.extend(["-t", "ext4"]);
        if !options.iter().any(|list| list.contains("^has_journal")) {
            usual.extend(["-J", "size=1"]);
        }
    }
    oracle::mke2fs(&path, kib << 10, &[&usual[..], options].concat());
    oracle::assert_clean(&path);
    let is_wide = dumpe2fs_header(&path).has_feature("64bit");
    let size = if is_wide { 64 } else { 32 };
    (std::fs::read(&path).unwrap(), size)
}

/// What is left after a repair.
fn repaired(image: &[u8]) -> Result<Contents, String> {
    let device = in_memory(image);
    let shared: SharedDevice = device.clone();
    let plan = repair::plan(shared, repair::Options::default(), &()).map_err(|e| e.to_string())?;
    plan.apply().map_err(|e| e.to_string())?;
    by_engine(device, None).ok_or_else(|| "it is not opened".to_owned())
}

fn names(found: &[(&Vec<u8>, &super::contents::Found)]) -> String {
    let names = found.iter().take(4);
    let names: Vec<String> = names
        .map(|(path, _)| path.escape_ascii().to_string())
        .collect();
    format!("{} such as {}", found.len(), names.join(", "))
}

#[test]
fn without_the_descriptor_of_a_group_no_less_comes_out_than_after_e2fsck() {
    let is_asked = std::env::var_os("EXTANT_SEED").is_some();
    let seed = if is_asked {
        seed_from_env("descriptors of groups")
    } else {
        SAMPLE
    };
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let source = plant(dir.path());
    let (mut wrong, mut cases, mut all_of_it) = (Vec::new(), 0, 0);
    for base in BASES {
        let (image, size) = made(dir.path(), *base, &source);
        let whole = by_engine(in_memory(&image), None).unwrap();
        assert!(whole.len() > 100);
        let groups =
            (base.0 as usize - 1).div_ceil(if base.1.contains(&"-g") { 1024 } else { 8192 });
        for group in 0..groups {
            for damage in DAMAGES {
                let mut hurt = image.clone();
                let at = START + group * size;
                damage.on(&mut hurt[at..at + size], &mut rng);
                let nothing = HashSet::new();
                let theirs = after_e2fsck(&hurt, false, dir.path());
                let of_image = not_in(&theirs, &whole, &nothing, false);
                let made: HashSet<&Vec<u8>> = of_image.iter().map(|(path, _)| *path).collect();
                let theirs: Contents = theirs
                    .iter()
                    .filter(|(path, _)| !made.contains(path) && !is_always_there(path))
                    .map(|(path, found)| (path.clone(), found.clone()))
                    .collect();
                let device: SharedDevice = in_memory(&hurt);
                let in_memory = mended(&device, None).map(|(contents, _)| contents);
                cases += 1;
                for (how, ours) in [("--mend", in_memory), ("repair", repaired(&hurt))] {
                    let what = format!("{} group {group} {damage:?}, {how}", base.1.join(" "));
                    match ours {
                        Ok(ours) => {
                            let less = not_in(&theirs, &ours, &nothing, false);
                            if !less.is_empty() {
                                wrong.push(format!("{what}: {} names less", names(&less)));
                            }
                            all_of_it +=
                                usize::from(not_in(&whole, &ours, &nothing, false).is_empty());
                        }
                        Err(_) if theirs.is_empty() => {}
                        Err(why) => wrong.push(format!("{what}: {why}")),
                    }
                }
            }
        }
    }
    println!(
        "{cases} cases; of {} results all is there in {all_of_it}",
        cases * 2
    );
    assert!(
        wrong.is_empty(),
        "EXTANT_SEED={seed:#x}: {}\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // Copies of the descriptors say where all lies, or its usual place does.
    assert!(
        all_of_it * 100 >= cases * 2 * 95,
        "{all_of_it} of {}",
        cases * 2
    );
}

/// Made anew where it is lost.
fn is_always_there(path: &[u8]) -> bool {
    matches!(path, b"/" | b"/lost+found")
}
