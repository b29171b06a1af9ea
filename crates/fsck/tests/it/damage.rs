//! Images damaged one structure at a time: each damage is found, by its name.

use crate::support::{check, problems};
use extant_fsck::{Code, Severity};
use extant_testkit::oracle::{self, debugfs, debugfs_write};
use extant_testkit::tool::tool;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

fn plant(tree: &Path) {
    fs::create_dir_all(tree.join("deep/er/and/deeper")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    for i in 0..1500 {
        let name = format!("file number {i} {}", "n".repeat(40));
        fs::write(tree.join("deep").join(name), vec![i as u8; i % 300]).unwrap();
    }
    fs::write(tree.join("large"), vec![7; 300_000]).unwrap();
    fs::write(tree.join("huge"), vec![5; 1_500_000]).unwrap();
    fs::write(tree.join("small"), "small").unwrap();
    let islands = File::create(tree.join("islands")).unwrap();
    for i in 0..600 {
        islands.write_all_at(b"island", i * 8192).unwrap();
    }
    symlink("deep/er", tree.join("short")).unwrap();
    symlink("x/".repeat(200), tree.join("long")).unwrap();
}

/// Requests to debugfs, and what must be found then. `B` stands for the first block of `/large`,
/// `N` for the block of the first node of `/islands`, `I` for the number of the inode of `/huge`.
pub(crate) const DAMAGES: &[(&str, Code)] = &[
    ("sif /large size 100", Code::InodeSize),
    ("sif /large blocks 8", Code::InodeBlocks),
    ("sif /large links_count 5", Code::LinkCount),
    ("sif /large mode 0", Code::InodeMode),
    ("sif /large mode 0170644", Code::InodeMode),
    ("sif /large dtime 1234567", Code::InodeDeletionTime),
    ("sif /large flags 0", Code::InodeFlags),
    ("sif /large flags 0x81000", Code::InodeFlags),
    ("sif /large flags 0x10080000", Code::InodeFlags),
    ("sif /large faddr 7", Code::InodeReserved),
    ("sif /large file_acl 99999999", Code::XattrLocation),
    ("sif /large file_acl B", Code::XattrBlock),
    ("sif /small block[0] 0", Code::ExtentNode),
    ("sif /small block[0] 0x0008f30a", Code::ExtentNode),
    ("sif /islands block[4] 99999999", Code::ExtentNode),
    ("zap_block N", Code::ExtentNode),
    ("zap_block -o 1000 -l 4 -p 77 N", Code::ExtentChecksum),
    ("sif /small bmap[0] B", Code::BlockShared),
    ("sif /small bmap[0] 3", Code::BlockOfMetadata),
    ("clri /large", Code::DirEntryUnused),
    ("kill_file /large", Code::InodeDeletionTime),
    ("freeb B", Code::BlockBitmap),
    ("setb 60000", Code::BlockBitmap),
    ("freei /large", Code::InodeBitmap),
    ("seti <1700>", Code::InodeBitmap),
    ("ssv free_blocks_count 1", Code::SuperblockFreeBlocks),
    ("ssv free_inodes_count 1", Code::SuperblockFreeInodes),
    ("ssv r_blocks_count 60000", Code::SuperblockField),
    ("ssv reserved_gdt_blocks 3", Code::ResizeInode),
    ("ssv journal_inum 12", Code::JournalInode),
    ("set_bg 0 free_blocks_count 1", Code::GroupFreeBlocks),
    ("set_bg 0 free_inodes_count 1", Code::GroupFreeInodes),
    ("set_bg 0 used_dirs_count 99", Code::GroupUsedDirs),
    ("set_bg 0 itable_unused 1900", Code::GroupChecksum),
    ("set_bg 0 checksum 1", Code::GroupChecksum),
    ("set_bg 0 block_bitmap 99999999", Code::GroupLocation),
    ("set_bg 0 inode_table 1", Code::GroupLocation),
    ("set_bg 0 block_bitmap_csum 5", Code::BlockBitmapChecksum),
    ("set_bg 0 inode_bitmap_csum 5", Code::InodeBitmapChecksum),
    ("unlink /large", Code::InodeUnattached),
    ("unlink /deep", Code::DirUnattached),
    ("ln /large /second", Code::LinkCount),
    ("ln /deep /second", Code::DirHardLink),
    ("ln <7000> /second", Code::DirEntryUnused),
    ("ln <8> /second", Code::DirEntryInode),
    ("ln <2> /second", Code::DirHardLink),
    ("sif /deep size 1024", Code::InodeSize),
    ("sif /deep size 0", Code::InodeSize),
    ("sif /deep flags 0x80000", Code::DirChecksum),
    ("sif /empty flags 0x81000", Code::DirIndex),
    ("sif /deep mode 0100644", Code::DirEntryType),
    ("sif /empty links_count 7", Code::LinkCount),
    ("sif /short size 3", Code::Symlink),
    ("sif /long size 3", Code::Symlink),
    ("sif /large extra_isize 3", Code::InodeExtraSize),
    ("sif <2> mode 0100644", Code::RootMissing),
    ("sif <7> block[DIND] 0", Code::ResizeInode),
    ("sif <8> mode 0", Code::InodeMode),
    ("sif <8> links_count 0", Code::JournalInode),
    ("sif <8> size 1024", Code::JournalInode),
    ("sif <9> mode 0100644", Code::InodeMode),
    ("zap_block -f /deep 0", Code::DirDot),
    ("zap_block -f /deep -p 255 5", Code::DirEntry),
    (
        "zap_block -f /deep -o 40 -l 2 -p 90 0",
        Code::DirIndexChecksum,
    ),
    ("zap_block -f /deep -o 1016 -l 2 -p 90 6", Code::DirChecksum),
    ("zap_block -f <8> 0", Code::JournalSuperblock),
    ("ssv usr_quota_inum 12", Code::SuperblockField),
    ("ssv orphan_file_inum 12", Code::SuperblockField),
    ("ssv journal_uuid random", Code::SuperblockField),
];

/// The sound image that is damaged.
pub(crate) struct Base {
    image: PathBuf,
    path: PathBuf,
    block: String,
    node: String,
    ino: String,
}

impl Base {
    pub(crate) fn new(dir: &Path) -> Self {
        Self::with(dir, &[])
    }

    /// Makes the image with more options.
    pub(crate) fn with(dir: &Path, more: &[&str]) -> Self {
        let tree = dir.join("tree");
        plant(&tree);
        let path = dir.join("base");
        let options = ["-t", "ext4", "-b", "1024", "-q", "-J", "size=4", "-d"];
        let options = [&options[..], &[tree.to_str().unwrap()], more].concat();
        oracle::mke2fs(&path, 64 << 20, &options);
        // Builds the index of the large directory.
        assert!(oracle::e2fsck(&path, &["-fyD"]).code <= 1);
        oracle::assert_clean(&path);
        let first_block = |of: &str| {
            let list = debugfs(&path, &format!("blocks {of}"));
            list.split_whitespace().next().unwrap().to_owned()
        };
        let said = debugfs(&path, "imap /huge");
        Self {
            ino: said.split_whitespace().nth(1).unwrap().to_owned(),
            image: dir.join("image"),
            block: first_block("/large"),
            node: first_block("/islands"),
            path,
        }
    }

    /// The sound image.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A copy with one damage, and what debugfs said.
    pub(crate) fn damaged(&self, request: &str) -> (PathBuf, String) {
        tool("cp")
            .arg("--sparse=always")
            .arg(&self.path)
            .arg(&self.image)
            .ok();
        let words: Vec<&str> = request
            .split(' ')
            .map(|word| match word {
                "B" => self.block.as_str(),
                "N" => self.node.as_str(),
                "I" => self.ino.as_str(),
                other => other,
            })
            .collect();
        let said = debugfs_write(&self.image, &[&words.join(" ")]);
        (self.image.clone(), said.to_string())
    }
}

#[test]
fn every_damage_is_found_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let base = Base::new(dir.path());
    let sound = check(&base.path, false);
    assert!(sound.is_clean(), "{}", problems(&sound));
    let mut wrong = String::new();
    for (request, expected) in DAMAGES {
        let (image, said) = base.damaged(request);
        let report = check(&image, false);
        let theirs = oracle::e2fsck(&image, &["-fn"]);
        // e2fsck reports a wrong checksum of a descriptor, and calls the image clean.
        let is_error = expected.severity() > Severity::Warning && !request.contains(" checksum");
        if !report.has(*expected) || is_error != (theirs.code != 0) {
            let ours = problems(&report);
            wrong.push_str(&format!(
                "## {request}: expected {expected}\n{said}\n{ours}{theirs}\n"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
