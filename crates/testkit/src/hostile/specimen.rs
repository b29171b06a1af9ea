//! Small valid images that between them have every structure.

use super::anatomy::Anatomy;
use crate::oracle::{debugfs_write, e2fsck, mke2fs};
use crate::tool::tool;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// A valid image and where its structures lie.
#[derive(Clone, Debug)]
pub struct Specimen {
    /// What it has, in a word; also its file name.
    pub name: String,
    /// The image.
    pub image: Vec<u8>,
    pub(super) anatomy: Anatomy,
}

/// How one specimen is made.
struct Recipe {
    name: &'static str,
    mebibytes: u64,
    options: &'static [&'static str],
    /// Whether transactions are left in the journal.
    dirty: bool,
    /// Whether it is given a block for multiple-mount protection, last of all: tools that write
    /// to it afterwards wait for seconds.
    mmp: bool,
}

/// Identity and hash seed of all specimens: chosen at random, they would place names in other
/// blocks each time, and a seed would not make the same mutant again.
pub(super) const UUID: &str = "3d3a5a0c-5c0f-4a7e-9a52-6f0e1c7b2d94";

const RECIPES: [Recipe; 8] = [
    Recipe {
        name: "checksums-1k",
        mebibytes: 8,
        options: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "64bit,metadata_csum",
        ],
        dirty: true,
        mmp: false,
    },
    Recipe {
        name: "inline-4k",
        mebibytes: 8,
        options: &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^has_journal,inline_data,ea_inode,large_dir,metadata_csum",
        ],
        dirty: false,
        mmp: false,
    },
    Recipe {
        name: "indirect",
        mebibytes: 8,
        options: &["-t", "ext3", "-b", "1024", "-I", "128", "-J", "size=1"],
        dirty: true,
        mmp: false,
    },
    Recipe {
        name: "bigalloc-quota",
        mebibytes: 12,
        options: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "512",
            "-J",
            "size=1",
            "-C",
            "4096",
            "-O",
            "bigalloc,quota,project,orphan_file,metadata_csum_seed,fast_commit",
        ],
        dirty: false,
        mmp: true,
    },
    Recipe {
        name: "old-checksums",
        mebibytes: 8,
        options: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "2048",
            "-N",
            "1024",
            "-O",
            "^metadata_csum,uninit_bg,meta_bg,^resize_inode,^has_journal,ea_inode",
        ],
        dirty: false,
        mmp: false,
    },
    Recipe {
        name: "no-checksums",
        mebibytes: 8,
        options: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum,^uninit_bg,^64bit,inline_data,casefold",
        ],
        dirty: true,
        mmp: false,
    },
    // Groups enough for backups of descriptors in several, and for `resize_inode` to name them.
    Recipe {
        name: "casefold-groups",
        mebibytes: 4,
        options: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "1024",
            "-J",
            "size=1",
            "-O",
            "casefold,64bit,metadata_csum,orphan_file,fast_commit,^flex_bg,project",
        ],
        dirty: false,
        mmp: false,
    },
    Recipe {
        name: "inline-quota",
        mebibytes: 6,
        options: &[
            "-t",
            "ext4",
            "-b",
            "2048",
            "-I",
            "512",
            "-N",
            "1024",
            "-O",
            "^has_journal,inline_data,quota,project,ea_inode,metadata_csum_seed,verity",
        ],
        dirty: false,
        mmp: false,
    },
];

/// Makes the specimens as files in `dir`.
///
/// # Panics
///
/// When mke2fs, e2fsck or debugfs fail.
pub fn make_specimens(dir: &Path) {
    let tree = dir.join("tree");
    plant(&tree);
    for recipe in &RECIPES {
        let image = dir.join(format!("{}.img", recipe.name));
        let tree = tree
            .to_str()
            .unwrap_or_else(|| panic!("{} is not text", tree.display()));
        let extended = format!("root_owner,hash_seed={UUID}");
        let options = [recipe.options, &["-U", UUID, "-d", tree, "-E", &extended]].concat();
        mke2fs(&image, recipe.mebibytes << 20, &options);
        set_attributes(dir, &image);
        if recipe.options.iter().any(|word| word.contains("ea_inode")) {
            set_huge_attribute(dir, &image);
        }
        if recipe.name.starts_with("casefold") {
            fold_names(dir, &image);
        }
        // Builds the hashed index of large directories.
        let output = e2fsck(&image, &["-fyD"]);
        assert!(output.code <= 1, "{}: {output}", recipe.name);
        let output = e2fsck(&image, &["-fn"]);
        assert!(output.code == 0, "{}: {output}", recipe.name);
        if recipe.dirty {
            leave_transactions(dir, &image);
        }
        if recipe.mmp {
            tool("tune2fs").args(["-O", "mmp"]).arg(&image).ok();
        }
    }
    fs::remove_dir_all(&tree).unwrap();
}

/// Loads the specimens [`make_specimens`] made in `dir`, in a fixed order.
///
/// # Panics
///
/// When one is missing or not what it should be.
pub fn load_specimens(dir: &Path) -> Vec<Specimen> {
    RECIPES
        .iter()
        .map(|recipe| {
            let path = dir.join(format!("{}.img", recipe.name));
            let image = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            Specimen {
                name: recipe.name.to_owned(),
                anatomy: Anatomy::of(&image),
                image,
            }
        })
        .collect()
}

/// The tree all specimens have.
fn plant(tree: &Path) {
    let many = tree.join("many");
    fs::create_dir_all(&many).unwrap();
    fs::write(many.join("0"), "many names, one file").unwrap();
    // Long names: enough blocks for an index of two levels with blocks of 1 KiB.
    for i in 0..1400 {
        let name = format!("{i:05}-{}", "n".repeat(90));
        fs::hard_link(many.join("0"), many.join(name)).unwrap();
    }
    // More extents than fit four leaf nodes of 1 KiB.
    let islands = File::create(tree.join("islands")).unwrap();
    for i in 0..360 {
        islands.write_all_at(b"island", i * 8192).unwrap();
    }
    // Reaches the third level of an indirect map with blocks of 1 KiB.
    let far = File::create(tree.join("far")).unwrap();
    for offset in [0, 20 << 10, 1 << 20, 70 << 20] {
        far.write_all_at(b"far away", offset).unwrap();
    }
    fs::write(tree.join("small"), "inline if it can be").unwrap();
    fs::write(tree.join("middle"), vec![b'm'; 9000]).unwrap();
    fs::write(tree.join("attributed"), "has attributes").unwrap();
    fs::write(tree.join("heavy"), "has large attributes").unwrap();
    symlink("small", tree.join("fast")).unwrap();
    symlink("d/".repeat(80), tree.join("slow")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    fs::create_dir(tree.join("folded")).unwrap();
    fs::create_dir_all(tree.join("d/d/d/d/d/d/d/d")).unwrap();
    for i in 0..5 {
        fs::write(tree.join(format!("d/d/file{i}")), "deep").unwrap();
    }
}

pub(super) fn set_attributes(dir: &Path, image: &Path) {
    let big = dir.join("value");
    File::create(&big).unwrap().write_all(&[b'v'; 700]).unwrap();
    let big = big.display();
    debugfs_write(
        image,
        &[
            "ea_set /attributed user.one 1",
            "ea_set /attributed user.two a-second-value",
            &format!("ea_set -f {big} /attributed user.large"),
            &format!("ea_set -f {big} /heavy user.large"),
            "ea_set /heavy trusted.more value",
            "ea_set /d user.on-a-directory yes",
        ],
    );
    fs::remove_file(dir.join("value")).unwrap();
}

/// Gives a file a value that no block has room for: it lies in an inode of its own.
pub(super) fn set_huge_attribute(dir: &Path, image: &Path) {
    let huge = dir.join("value");
    fs::write(&huge, [b'h'; 5000]).unwrap();
    let request = format!("ea_set -f {} /heavy user.huge", huge.display());
    debugfs_write(image, &[&request]);
    fs::remove_file(huge).unwrap();
}

/// Fills a directory whose names are looked up without regard to case: enough for an index, and
/// some beyond ASCII.
pub(super) fn fold_names(dir: &Path, image: &Path) {
    let one = dir.join("one");
    fs::write(&one, "one file").unwrap();
    // Its flags are those of a directory mapped by extents, and the one for folding.
    let mut requests = vec![
        "set_inode_field /folded flags 0x40080000".to_owned(),
        format!("write {} /folded/First", one.display()),
    ];
    for i in 0..40 {
        let (upper, letters) = ("N".repeat(i % 7), "\u{c4}\u{df}\u{130}e".repeat(i % 5));
        let name = format!("Name{i}-{upper}{letters}{}", "x".repeat(90));
        requests.push(format!("ln /folded/First /folded/{name}"));
    }
    requests.push("set_inode_field /folded/First links_count 41".to_owned());
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(image, &requests);
    fs::remove_file(one).unwrap();
}

/// Logs blocks of the image with the content they have, so that it stays valid after replay.
fn leave_transactions(dir: &Path, image: &Path) {
    let bytes = fs::read(image).unwrap();
    let data = dir.join("data");
    let block = |n: usize| &bytes[n * 1024..(n + 1) * 1024];
    let homes = [2usize, 3, 50, 60, 70, 500, 501];
    let content: Vec<u8> = homes.iter().flat_map(|n| block(*n).to_vec()).collect();
    fs::write(&data, content).unwrap();
    let list: Vec<String> = homes.iter().map(ToString::to_string).collect();
    let list = list.join(",");
    let path = data.display();
    // Version 3 checksums in the journal where the file system has checksums.
    let checksums = bytes[1024 + 0x65] & 4 != 0;
    let open = if checksums {
        "journal_open -c"
    } else {
        "journal_open"
    };
    debugfs_write(
        image,
        &[
            open,
            &format!("journal_write -b {list} {path}"),
            "journal_write -r 60,61,70",
            &format!("journal_write -b {list} {path}"),
            "journal_close",
        ],
    );
    fs::remove_file(&data).unwrap();
}
