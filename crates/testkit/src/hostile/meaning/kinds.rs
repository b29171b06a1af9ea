//! The kinds of image that are changed by meaning, and how each is made.

use super::super::anatomy::{Anatomy, Kind as Structure};
use super::super::bytes::{le32, put};
use super::super::specimen::{UUID, fold_names, set_attributes, set_huge_attribute};
use super::linux::{self, Work};
use crate::facility::{Facility, Missing};
use crate::journal_device::JournalDevice;
use crate::oracle::{debugfs, debugfs_write, e2fsck, mke2fs};
use crate::tool::tool;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// A kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Kind(&'static Recipe);

/// How an image is made.
#[derive(Debug)]
struct Recipe {
    name: &'static str,
    kibibytes: u64,
    options: &'static [&'static str],
    steps: &'static [Step],
    /// How many mutants there are of it for each hundred of another.
    share: u64,
}

/// What is done to an image once `mke2fs` has made it.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    HugeAttribute,
    Fold,
    /// Gives it a block for multiple-mount protection: tools that write to it afterwards wait for
    /// seconds.
    Mmp,
    /// A directory, a file and a link that look encrypted.
    Encrypt,
    /// A file that looks sealed.
    Verity,
    /// A journal on another device, of so many KiB.
    OtherJournal(u64),
    /// What Linux does to it.
    Linux(Work),
}

const fn kind(
    name: &'static str,
    kibibytes: u64,
    options: &'static [&'static str],
    steps: &'static [Step],
) -> Recipe {
    Recipe {
        name,
        kibibytes,
        options,
        steps,
        share: 100,
    }
}

const MIB: u64 = 1024;

const NO_JOURNAL_1K: &str = "^has_journal,64bit,metadata_csum";

static RECIPES: [Recipe; 29] = [
    kind("ext4-4k", 10 * MIB, &["-b", "4096", "-J", "size=4"], &[]),
    kind(
        "ext4-1k-groups",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-g",
            "1024",
            "-J",
            "size=1",
            "-O",
            "64bit,metadata_csum,^flex_bg",
        ],
        &[],
    ),
    kind("ext2", 2 * MIB, &["-t", "ext2", "-b", "1024"], &[]),
    kind(
        "ext3-128",
        4 * MIB,
        &["-t", "ext3", "-b", "1024", "-I", "128", "-J", "size=1"],
        &[],
    ),
    kind(
        "no-journal-2k",
        4 * MIB,
        &["-b", "2048", "-O", "^has_journal"],
        &[],
    ),
    kind(
        "dirty",
        6 * MIB,
        &["-b", "1024", "-J", "size=1", "-O", "64bit,metadata_csum"],
        &[Step::Linux(Work::Dirty)],
    ),
    kind(
        "dirty-ext3",
        6 * MIB,
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        &[Step::Linux(Work::Dirty)],
    ),
    kind(
        "dirty-data",
        8 * MIB,
        &["-b", "1024", "-J", "size=2"],
        &[Step::Linux(Work::DirtyData)],
    ),
    kind(
        "fast-commits",
        10 * MIB,
        &["-b", "1024", "-J", "size=4", "-O", "fast_commit"],
        &[Step::Linux(Work::FastCommits)],
    ),
    kind(
        "other-journal",
        4 * MIB,
        &["-b", "1024"],
        &[Step::OtherJournal(2 * MIB), Step::Linux(Work::Dirty)],
    ),
    Recipe {
        share: 15,
        ..kind(
            "htree-50000",
            8 * MIB,
            &["-b", "1024", "-N", "256", "-O", NO_JOURNAL_1K],
            &[Step::Linux(Work::ManyNames(50_000))],
        )
    },
    kind(
        "blocks-64k",
        6 * MIB,
        &["-b", "65536", "-N", "64", "-O", "^has_journal"],
        &[],
    ),
    kind(
        "descriptors-128",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-g",
            "1024",
            "-O",
            NO_JOURNAL_1K,
            "-E",
            "desc_size=128",
        ],
        &[],
    ),
    kind(
        "encrypt-verity",
        4 * MIB,
        &["-b", "4096", "-O", "^has_journal,encrypt,verity"],
        &[Step::Encrypt, Step::Verity],
    ),
    kind(
        "casefold",
        4 * MIB,
        &["-b", "1024", "-O", "^has_journal,casefold"],
        &[Step::Fold],
    ),
    kind(
        "casefold-strict",
        3 * MIB,
        &[
            "-b",
            "2048",
            "-O",
            "^has_journal,casefold,inline_data",
            "-E",
            "encoding_flags=strict",
        ],
        &[Step::Fold],
    ),
    kind(
        "inline-data",
        4 * MIB,
        &["-b", "1024", "-I", "512", "-O", "^has_journal,inline_data"],
        &[],
    ),
    kind(
        "bigalloc",
        8 * MIB,
        &["-b", "1024", "-C", "4096", "-O", "^has_journal,bigalloc"],
        &[],
    ),
    kind(
        "quotas",
        4 * MIB,
        &["-b", "1024", "-O", "^has_journal,quota,project"],
        &[],
    ),
    kind(
        "mmp",
        4 * MIB,
        &["-b", "1024", "-O", "^has_journal"],
        &[Step::Mmp],
    ),
    kind(
        "meta-bg",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-g",
            "256",
            "-N",
            "512",
            "-O",
            "^has_journal,meta_bg,^resize_inode",
        ],
        &[],
    ),
    kind(
        "sparse-super2",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-g",
            "1024",
            "-O",
            "^has_journal,sparse_super2",
        ],
        &[],
    ),
    kind(
        "ea-inode",
        4 * MIB,
        &["-b", "1024", "-O", "^has_journal,ea_inode"],
        &[Step::HugeAttribute],
    ),
    kind(
        "orphan-file",
        8 * MIB,
        &[
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "orphan_file,metadata_csum_seed",
        ],
        &[Step::Linux(Work::Orphans)],
    ),
    kind(
        "orphan-list",
        8 * MIB,
        &["-b", "1024", "-J", "size=1", "-O", "^orphan_file"],
        &[Step::Linux(Work::Orphans)],
    ),
    kind(
        "uninit-bg",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-g",
            "1024",
            "-O",
            "^has_journal,^metadata_csum,uninit_bg",
        ],
        &[],
    ),
    kind(
        "no-checksums",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum,^uninit_bg,^64bit",
        ],
        &[],
    ),
    kind(
        "no-extents",
        4 * MIB,
        &[
            "-b",
            "1024",
            "-O",
            "^has_journal,^extents,^64bit,metadata_csum",
        ],
        &[],
    ),
    kind(
        "everything",
        12 * MIB,
        &[
            "-b",
            "1024",
            "-I",
            "512",
            "-C",
            "4096",
            "-J",
            "size=1",
            "-O",
            "bigalloc,quota,project,orphan_file,metadata_csum_seed,inline_data,ea_inode,large_dir",
        ],
        &[Step::HugeAttribute],
    ),
];

/// Returns all kinds of image.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    RECIPES.iter().map(Kind).collect()
}

impl Kind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns how many mutants there are to be of it, for each hundred of another: images that
    /// take long have fewer.
    #[must_use]
    pub const fn share(self) -> u64 {
        self.0.share
    }

    /// Returns whether the running kernel can mount such an image at all.
    #[must_use]
    pub fn is_for_this_kernel(self) -> bool {
        !self.0.options.contains(&"65536")
    }

    /// Returns what is missing here to make it.
    ///
    /// # Errors
    ///
    /// The facility, where Linux has a part in it and does not play it.
    pub fn can_be_made(self) -> Result<(), Missing> {
        let mut steps = self.0.steps.iter();
        if steps.any(|step| matches!(step, Step::Linux(_) | Step::OtherJournal(_))) {
            Facility::KernelExt4.check()
        } else {
            Ok(())
        }
    }

    fn paths(self, dir: &Path) -> (PathBuf, Option<PathBuf>) {
        let other = self
            .0
            .steps
            .iter()
            .any(|step| matches!(step, Step::OtherJournal(_)));
        let journal = other.then(|| dir.join(format!("{}.journal", self.0.name)));
        (dir.join(format!("{}.img", self.0.name)), journal)
    }

    /// The image and, where it has one, the device of its journal: those in `dir`, made if they are
    /// missing.
    pub(super) fn load(self, dir: &Path) -> (Vec<u8>, Option<Vec<u8>>) {
        let (image, journal) = self.paths(dir);
        if !image.exists() {
            self.make(dir);
        }
        let read =
            |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (read(&image), journal.map(|path| read(&path)))
    }

    fn make(self, dir: &Path) {
        let scratch = tempfile::tempdir_in(dir).expect("a directory");
        let tree = scratch.path().join("tree");
        plant(&tree);
        let (done, journal) = self.paths(dir);
        let image = scratch.path().join("image");
        let device = self.0.steps.iter().find_map(|step| match step {
            Step::OtherJournal(kibibytes) => {
                let path = journal.as_ref()?;
                Some(journal_device(path, *kibibytes, self.0.options))
            }
            _ => None,
        });
        let extended = format!("root_owner,hash_seed={UUID}");
        let (extended, options) = with_extended(self.0.options, extended);
        let (tree, on) = (tree.display().to_string(), device.as_ref().map(on_device));
        let mut all = vec!["-m", "0"];
        if !options.contains(&"-t") {
            all.extend(["-t", "ext4"]);
        }
        all.extend(&options);
        all.extend(["-U", UUID, "-d", &tree, "-E", &extended]);
        all.extend(on.iter().flat_map(|on| ["-J", on]));
        mke2fs(&image, self.0.kibibytes << 10, &all);
        set_attributes(scratch.path(), &image);
        debugfs_write(
            &image,
            &["mknod console c 5 1", "mknod disk b 8 0", "mknod pipe p"],
        );
        for step in self.0.steps {
            match step {
                Step::HugeAttribute => set_huge_attribute(scratch.path(), &image),
                Step::Fold => fold_names(scratch.path(), &image),
                Step::Encrypt => encrypt(scratch.path(), &image),
                Step::Verity => seal(scratch.path(), &image),
                _ => {}
            }
        }
        // Builds the hashed index of large directories.
        let output = e2fsck(&image, &["-fyD"]);
        assert!(output.code <= 1, "{}: {output}", self.0.name);
        let output = e2fsck(&image, &["-fn"]);
        assert!(output.code == 0, "{}: {output}", self.0.name);
        for step in self.0.steps {
            match step {
                Step::Mmp => drop(tool("tune2fs").args(["-O", "mmp"]).arg(&image).ok()),
                Step::Linux(work) => linux::work(*work, &image),
                _ => {}
            }
        }
        drop(device);
        fs::rename(&image, &done).expect("rename the image");
    }
}

/// Options with what is to be added to their extended ones.
fn with_extended(
    options: &'static [&'static str],
    mut extended: String,
) -> (String, Vec<&'static str>) {
    let mut rest = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "-E" => extended = format!("{extended},{}", options.next().unwrap_or(&"")),
            other => rest.push(other),
        }
    }
    (extended, rest)
}

/// Not that of the images: `e2fsck` looks for a journal on all devices of the machine, and takes a
/// mounted image of that UUID for it.
const JOURNAL_UUID: &str = "7b0c1e52-90a4-4c38-a2d1-5e1f0b6d3c87";

fn journal_device(path: &Path, kibibytes: u64, options: &[&str]) -> JournalDevice {
    let block = options.iter().skip_while(|option| **option != "-b").nth(1);
    let block = block.copied().unwrap_or("4096");
    mke2fs(
        path,
        kibibytes << 10,
        &["-b", block, "-U", JOURNAL_UUID, "-O", "journal_dev"],
    );
    JournalDevice::attach(path).expect("attach the journal")
}

fn on_device(device: &JournalDevice) -> String {
    format!("device={}", device.path().display())
}

/// The tree all images have: small, and with each kind of file and map.
fn plant(tree: &Path) {
    let many = tree.join("many");
    fs::create_dir_all(&many).unwrap();
    fs::write(many.join("0"), "many names, one file").unwrap();
    // Enough for an index with blocks of 4 KiB.
    for i in 0..130 {
        let name = format!("{i:03}-{}", "n".repeat(60));
        fs::hard_link(many.join("0"), many.join(name)).unwrap();
    }
    // More extents than an inode has room for.
    let islands = File::create(tree.join("islands")).unwrap();
    for i in 0..12 {
        islands.write_all_at(b"island", i * 16_384).unwrap();
    }
    // Reaches the third level of an indirect map with blocks of 1 KiB.
    let far = File::create(tree.join("far")).unwrap();
    for offset in [0, 20 << 10, 1 << 20, 70 << 20] {
        far.write_all_at(b"far away", offset).unwrap();
    }
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("small"), "inline if it can be").unwrap();
    fs::write(tree.join("middle"), vec![b'm'; 9000]).unwrap();
    fs::write(tree.join("attributed"), "has attributes").unwrap();
    fs::write(tree.join("heavy"), "has large attributes").unwrap();
    symlink("small", tree.join("fast")).unwrap();
    symlink("d/".repeat(80), tree.join("slow")).unwrap();
    fs::create_dir(tree.join("folded")).unwrap();
    fs::create_dir_all(tree.join("d/e/f/g")).unwrap();
    fs::create_dir(tree.join("other")).unwrap();
    for i in 0..3 {
        fs::write(tree.join(format!("d/e/file{i}")), format!("deep {i}")).unwrap();
    }
}

fn ino(image: &Path, path: &str) -> u32 {
    let text = debugfs(image, &format!("stat {path}"));
    let mut words = text.split_whitespace().skip_while(|word| *word != "Inode:");
    let word = words.nth(1).unwrap_or_else(|| panic!("{path}: {text}"));
    word.parse()
        .unwrap_or_else(|e| panic!("{path}: {word}: {e}"))
}

/// Makes a directory, a file and a link in it that look encrypted: of another key each, as policies
/// go, but of one policy.
fn encrypt(dir: &Path, image: &Path) {
    // Version 2: modes of contents and names, padding of 16, reserved bytes, key, nonce.
    let mut context = vec![2, 1, 4, 2, 0, 0, 0, 0];
    context.extend([b'k'; 16]);
    context.extend([b'n'; 16]);
    let (value, content) = (dir.join("context"), dir.join("ciphertext"));
    fs::write(&value, context).unwrap();
    fs::write(&content, [0xC5; 4096]).unwrap();
    let (file, link) = ("/vault/0123456789abcdef", "/vault/fedcba9876543210");
    let set = |path: &str| format!("ea_set -f {} {path} user.c", value.display());
    debugfs_write(
        image,
        &[
            "mkdir /vault",
            &format!("write {} {file}", content.display()),
            &format!("symlink {link} 0123456789abcdef01"),
            &set("/vault"),
            &set(file),
            &set(link),
            "set_inode_field /vault flags 0x80800",
            &format!("set_inode_field {file} flags 0x80800"),
            &format!("set_inode_field {link} flags 0x800"),
        ],
    );
    let inodes = ["/vault", file, link].map(|path| ino(image, path));
    let mut bytes = fs::read(image).unwrap();
    let anatomy = Anatomy::of(&bytes);
    for (n, ino) in inodes.into_iter().enumerate() {
        let mut sites = anatomy.sites.iter();
        let site = sites.find(|site| site.kind == Structure::Inode && site.owner == ino);
        let site = site.expect("the inode is in use");
        let body = site.at + 128 + 32;
        assert_eq!(le32(&bytes, body), 0xEA02_0000, "an attribute in the inode");
        // The prefix of attributes of encryption, which no tool writes.
        put(&mut bytes, body + 5, &[9]);
        if n == 2 {
            // The length of the ciphertext, before it.
            put(&mut bytes, site.at + 0x28, &[16, 0]);
        }
        anatomy.repair(&mut bytes, site);
    }
    fs::write(image, bytes).unwrap();
}

/// Makes a file that looks sealed: its tree lies behind its end.
fn seal(dir: &Path, image: &Path) {
    let source = dir.join("sealed");
    let file = File::create(&source).unwrap();
    file.write_all_at(&[b's'; 9000], 0).unwrap();
    file.write_all_at(&[b't'; 5000], 65536).unwrap();
    debugfs_write(
        image,
        &[
            &format!("write {} /sealed", source.display()),
            "set_inode_field /sealed size 9000",
            "set_inode_field /sealed flags 0x180000",
        ],
    );
}
