//! Kinds of damage that need more than a request to debugfs: each is found by its name, as e2fsck
//! finds it; after the repair e2fsck has nothing to say, and what could be read is still there.

use crate::repair::{in_memory, lost, readable};
use crate::support::{check_bytes, problems};
use extant_format::checksum::Crc32c;
use extant_format::dir::entry::write_tail;
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupDesc;
use extant_format::inode::{FileType, Inode, InodeContext, InodeFlags, Mode};
use extant_format::superblock::Superblock;
use extant_format::xattr::name::{AttributeName, ENCRYPTION};
use extant_format::xattr::{Attribute, NewValue, encode_in_inode};
use extant_format::{Group, Ino, Pblk};
use extant_fsck::{Code, repair};
use extant_testkit::oracle::{self, debugfs, debugfs_write};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Bytes in a block of the images.
const BLOCK: usize = 1024;
/// Names that can be ciphertext: as long as a block of the cipher.
const LONG_NAMES: [&str; 4] = [
    "ciphertext-of-1-",
    "ciphertext-of-2-",
    "ciphertext-of-3-",
    "ciphertext-of-4-",
];

/// A small image that can be edited by inode and block, with the checksums put right again.
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    geo: Geometry,
    seed: Option<Crc32c>,
    path: PathBuf,
    /// Holds the file for as long as the image is used.
    _dir: TempDir,
}

impl Image {
    pub(crate) fn new(options: &[&str]) -> Self {
        Self::sized(12 << 20, options)
    }

    fn sized(size: u64, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("d/sub")).unwrap();
        fs::create_dir(tree.join("secret")).unwrap();
        for name in LONG_NAMES {
            fs::write(tree.join("secret").join(name), name).unwrap();
        }
        symlink("x".repeat(40), tree.join("secret/ciphertext-of-a-")).unwrap();
        for i in 0..60 {
            fs::write(tree.join(format!("file {i}")), vec![i; usize::from(i) * 37]).unwrap();
        }
        fs::write(tree.join("large"), vec![7; 50_000]).unwrap();
        symlink("file 1", tree.join("short")).unwrap();
        symlink("y".repeat(80), tree.join("long")).unwrap();
        let path = dir.path().join("image");
        let common = ["-t", "ext4", "-b", "1024", "-q", "-d"];
        let options = [&common[..], &[tree.to_str().unwrap()], options].concat();
        oracle::mke2fs(&path, size, &options);
        let mut image = Self {
            bytes: Vec::new(),
            geo: Geometry::new(&Superblock::parse(&fs::read(&path).unwrap()[1024..]).unwrap()),
            seed: None,
            path,
            _dir: dir,
        };
        image.reload();
        image
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn sb(&self) -> Superblock {
        Superblock::parse_unverified(&self.bytes[1024..]).unwrap()
    }

    fn reload(&mut self) {
        self.bytes = fs::read(&self.path).unwrap();
        let sb = self.sb();
        self.geo = Geometry::new(&sb);
        self.seed = sb
            .has_metadata_csum()
            .then(|| Crc32c::seeded(sb.checksum_seed()));
    }

    /// Has debugfs change the image.
    pub(crate) fn debugfs(&mut self, requests: &[&str]) {
        fs::write(&self.path, &self.bytes).unwrap();
        debugfs_write(&self.path, requests);
        self.reload();
    }

    fn ino(&self, name: &str) -> Ino {
        let said = debugfs(self.path(), &format!("imap \"{name}\""));
        Ino::new(said.split_whitespace().nth(1).unwrap().parse().unwrap())
    }

    fn first_block(&self, name: &str) -> Pblk {
        let list = debugfs(self.path(), &format!("blocks \"{name}\""));
        Pblk::new(list.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn table(&self, group: u32) -> Pblk {
        let at = self.geo.desc_block(0).unwrap().get() as usize * BLOCK;
        let len = self.geo.desc_size() as usize;
        let at = at + group as usize * len;
        GroupDesc::parse_unverified(&self.bytes[at..at + len])
            .unwrap()
            .inode_table
    }

    pub(crate) fn slot(&mut self, ino: Ino) -> &mut [u8] {
        let group = self.geo.locate_inode(ino).unwrap().group;
        let table = self.table(group.get());
        let at = self.geo.inode_position(ino, table).unwrap() as usize;
        &mut self.bytes[at..at + self.geo.inode_size() as usize]
    }

    fn context(&self, ino: Ino) -> InodeContext {
        InodeContext {
            inode_size: self.geo.inode_size() as u16,
            seed: self.seed,
            ino,
            large_dir: true,
            huge_file: true,
        }
    }

    /// Changes the bytes of an inode, and computes its checksum anew.
    pub(crate) fn inode(&mut self, ino: Ino, change: impl FnOnce(&mut Inode, &mut [u8])) {
        let context = self.context(ino);
        let mut unverified = context;
        unverified.seed = None;
        let slot = self.slot(ino);
        let mut inode = Inode::parse(slot, &unverified).unwrap();
        change(&mut inode, slot);
        inode.encode(slot, &context).unwrap();
    }

    fn block(&mut self, at: Pblk) -> &mut [u8] {
        let at = at.get() as usize * BLOCK;
        &mut self.bytes[at..at + BLOCK]
    }

    /// Changes a block of a directory, and its checksum unless the tail is what changes.
    fn names(&mut self, dir: Ino, at: Pblk, seal: bool, change: impl FnOnce(&mut [u8])) {
        let context = self.context(dir);
        let generation = Inode::parse(self.slot(dir), &context).unwrap().generation;
        let block = self.block(at);
        change(block);
        if let Some(seed) = context.inode_seed(generation).filter(|_| seal) {
            write_tail(block, seed);
        }
    }

    /// Changes the bytes of the superblock, and computes its checksum anew.
    pub(crate) fn superblock(&mut self, at: usize, value: &[u8]) {
        self.bytes[1024 + at..1024 + at + value.len()].copy_from_slice(value);
        if self.seed.is_some() {
            let sum = Crc32c::INIT.update(&self.bytes[1024..2044]).value();
            self.bytes[2044..2048].copy_from_slice(&sum.to_le_bytes());
        }
    }

    fn encrypt(&mut self, ino: Ino, context: &[u8]) {
        let size = self.geo.inode_size() as u16;
        self.inode(ino, |inode, slot| {
            inode.flags.insert(InodeFlags::ENCRYPT);
            let name = AttributeName {
                index: ENCRYPTION,
                suffix: b"c",
            };
            let value = NewValue::Bytes(context);
            let region = &mut slot[inode.xattr_range(size)];
            assert!(encode_in_inode(region, &[Attribute { name, value }]));
        });
    }

    /// Expects that the damage is found and mended for us and e2fsck. Returns the repaired image.
    pub(crate) fn must_be_mended(self, story: &str, code: Code) -> Self {
        fs::write(&self.path, &self.bytes).unwrap();
        let theirs = oracle::e2fsck(&self.path, &["-fn"]);
        assert_ne!(theirs.code, 0, "{story}: {theirs}");
        self.must_be_mended_here(story, code)
    }

    /// Expects that damage which e2fsck does not notice is found by us, and mended.
    pub(crate) fn must_be_mended_here(self, story: &str, code: Code) -> Self {
        self.must_be_mended_but(story, code, "")
    }

    /// As before, where what is read under one path is no content.
    fn must_be_mended_but(mut self, story: &str, code: Code, path: &str) -> Self {
        let report = check_bytes(&self.bytes, false).unwrap();
        let found = problems(&report);
        assert!(
            report.has(code) && !report.is_clean(),
            "{story}: no {code}:\n{found}"
        );
        let mut before = readable(in_memory(&self.bytes));
        before.remove(path.as_bytes());
        let device = in_memory(&self.bytes);
        let options = repair::Options::default().now(1_700_000_000);
        let plan = repair::plan(device.clone(), options, &()).unwrap();
        let told: String = plan.fixes.iter().map(|fix| format!("{fix}\n")).collect();
        assert!(
            plan.is_complete(),
            "{story}: {found}{told}{}",
            problems(&plan.left)
        );
        plan.apply().unwrap();
        device.read_at(0, &mut self.bytes).unwrap();
        fs::write(&self.path, &self.bytes).unwrap();
        let theirs = oracle::check_clean(&self.path);
        assert_eq!(theirs, Ok(()), "{story}:\n{found}{told}");
        let after = readable(in_memory(&self.bytes));
        // Ciphertext that was handed out as content is none.
        if code != Code::DirEntryPolicy {
            let lost = lost(&before, &after, false);
            assert!(lost.is_empty(), "{story}: {lost:?}\n{told}");
        }
        self
    }

    fn holds(&self, name: &str) -> bool {
        debugfs(self.path(), &format!("stat \"{name}\"")).contains("Inode:")
    }
}

fn le32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn le16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn names_of_a_directory_and_its_parent_end_with_a_zero() {
    for (at, code) in [(9, Code::DirDot), (22, Code::DirDotDot)] {
        let mut image = Image::new(&[]);
        let (dir, block) = (image.ino("/d/sub"), image.first_block("/d/sub"));
        image.names(dir, block, true, |block| block[at] = b'x');
        image.must_be_mended("a longer name", code);
    }
}

#[test]
fn a_record_over_the_place_of_a_checksum_makes_room_for_it() {
    for also in ["", "unlink /d/sub", "sif /d/sub links_count 77"] {
        let mut image = Image::new(&[]);
        let (dir, block) = (image.ino("/d/sub"), image.first_block("/d/sub"));
        image.names(dir, block, false, |block| le16(block, 16, 1012));
        image.debugfs(&[also]);
        image.must_be_mended(also, Code::DirChecksum);
    }
}

#[test]
fn a_directory_that_maps_blocks_beyond_the_last_keeps_its_names() {
    for far in [0x40_0000, 0xffff_ff00] {
        let mut image = Image::new(&[]);
        let dir = image.ino("/secret");
        let one = image.first_block("/secret").get() as u32;
        image.inode(dir, |inode, _| {
            le16(&mut inode.map, 2, 1);
            le32(&mut inode.map, 12, far);
            le16(&mut inode.map, 16, 1);
            le32(&mut inode.map, 20, one);
        });
        let image = image.must_be_mended("a far block", Code::DirTooLarge);
        assert!(image.holds("/secret/ciphertext-of-1-"));
    }
}

#[test]
fn names_in_strict_folded_directories_become_text() {
    let mut image = Image::new(&[
        "-O",
        "casefold",
        "-E",
        "encoding=utf8,encoding_flags=strict",
    ]);
    let (dir, block) = (image.ino("/d/sub"), image.first_block("/d/sub"));
    image.inode(dir, |inode, _| inode.flags.insert(InodeFlags::CASEFOLD));
    image.debugfs(&[
        "ln \"/file 3\" /d/sub/abcd",
        "sif \"/file 3\" links_count 2",
    ]);
    image.names(dir, block, true, |block| {
        let at = block.windows(4).position(|four| four == b"abcd").unwrap();
        block[at + 1..at + 3].fill(0xff);
    });
    let image = image.must_be_mended("no UTF-8", Code::DirEntryName);
    assert!(image.holds("/d/sub/a__d"));
}

#[test]
fn links_with_inline_data_have_the_size_of_what_they_store() {
    for (name, size) in [
        ("/long", 0),
        ("/long", 1),
        ("/long", 1 << 31),
        ("/long", 70),
    ] {
        let mut image = Image::new(&["-O", "inline_data"]);
        let ino = image.ino(name);
        image.inode(ino, |inode, _| inode.size = size);
        image.must_be_mended(name, Code::Symlink);
    }
    for name in ["/short", "/file 2", "/long", "/d/sub"] {
        let mut image = Image::new(&["-O", "inline_data"]);
        let ino = image.ino(name);
        image.inode(ino, |inode, _| inode.flags.toggle(InodeFlags::INLINE_DATA));
        fs::write(image.path(), &image.bytes).unwrap();
        let report = check_bytes(&image.bytes, false).unwrap();
        let code = report
            .findings
            .iter()
            .find(|f| f.severity() > extant_fsck::Severity::Warning);
        let code = code.unwrap_or_else(|| panic!("{name}")).code;
        let image = image.must_be_mended(name, code);
        assert!(image.holds(name), "{name}");
    }
}

/// A context of version 2.
fn context(policy: u8, nonce: u8) -> Vec<u8> {
    [
        vec![2, 1, 4, 2],
        vec![0; 4],
        vec![policy; 16],
        vec![nonce; 16],
    ]
    .concat()
}

/// An image with an encrypted directory, as far as that shows without a key, and what is in it.
fn encrypted() -> (Image, Ino, Vec<Ino>, Ino) {
    let mut image = Image::new(&["-O", "encrypt"]);
    let dir = image.ino("/secret");
    let link = image.ino("/secret/ciphertext-of-a-");
    let files: Vec<Ino> = LONG_NAMES
        .iter()
        .map(|name| image.ino(&format!("/secret/{name}")))
        .collect();
    image.encrypt(dir, &context(5, 1));
    for (i, file) in files.iter().enumerate() {
        image.encrypt(*file, &context(5, 2 + i as u8));
    }
    image.encrypt(link, &context(5, 9));
    image.inode(link, |inode, _| {
        le16(&mut inode.map, 0, 38);
    });
    fs::write(image.path(), &image.bytes).unwrap();
    oracle::assert_clean(image.path());
    let report = check_bytes(&image.bytes, false).unwrap();
    assert!(report.is_clean(), "{}", problems(&report));
    (image, dir, files, link)
}

#[test]
fn what_an_encrypted_directory_names_has_its_policy() {
    // Another policy, an unknown version: the file gets a name elsewhere.
    for other in [context(6, 2), vec![9; 40]] {
        let (mut image, _, files, _) = encrypted();
        image.encrypt(files[1], &other);
        let image = image.must_be_mended("another policy", Code::DirEntryPolicy);
        assert!(image.holds(&format!("/lost+found/#{}", files[1])));
    }
    // The directory's own.
    let (mut image, dir, files, _) = encrypted();
    image.encrypt(dir, &context(6, 1));
    let image = image.must_be_mended("another policy of the directory", Code::DirEntryPolicy);
    assert!(image.holds(&format!("/lost+found/#{}", files[0])));
    // A name for a file that is not encrypted: it has another.
    let (mut image, ..) = encrypted();
    image.debugfs(&[
        "ln \"/file 7\" /secret/ciphertext-of-z-",
        "sif \"/file 7\" links_count 2",
    ]);
    let image = image.must_be_mended("a plain file", Code::DirEntryPolicy);
    assert!(image.holds("/file 7"));
}

#[test]
fn an_encrypted_file_that_does_not_say_so_says_it_again() {
    let (mut image, _, files, _) = encrypted();
    image.inode(files[2], |inode, _| inode.flags.remove(InodeFlags::ENCRYPT));
    let mut image = image.must_be_mended("no flag", Code::DirEntryPolicy);
    let context = image.context(files[2]);
    let inode = Inode::parse(image.slot(files[2]), &context).unwrap();
    assert!(inode.flags.contains(InodeFlags::ENCRYPT));
    assert!(image.holds("/secret/ciphertext-of-3-"));
}

#[test]
fn an_encryption_context_that_is_none_takes_the_flag_with_it() {
    for bad in [vec![2; 39], vec![1; 40], vec![]] {
        let (mut image, _, files, _) = encrypted();
        image.encrypt(files[0], &bad);
        let image = image.must_be_mended(&format!("{} bytes", bad.len()), Code::InodeFlags);
        assert!(image.holds(&format!("/lost+found/#{}", files[0])));
    }
    let (mut image, dir, ..) = encrypted();
    image.encrypt(dir, &[2; 20]);
    let image = image.must_be_mended("the directory", Code::InodeFlags);
    assert!(image.holds("/secret/ciphertext-of-1-"));
}

#[test]
fn links_whose_target_is_ciphertext_get_its_length() {
    for size in [0, 1, 39, 41, 200, 1 << 31] {
        let (mut image, _, _, link) = encrypted();
        image.inode(link, |inode, _| inode.size = size);
        let mut image = image.must_be_mended(&size.to_string(), Code::Symlink);
        let context = image.context(link);
        assert_eq!(Inode::parse(image.slot(link), &context).unwrap().size, 40);
    }
    let (mut image, _, _, link) = encrypted();
    image.inode(link, |inode, _| le16(&mut inode.map, 0, 500));
    image.must_be_mended("a target longer than there is room", Code::Symlink);
}

#[test]
fn an_encrypted_name_that_is_there_twice_goes_and_its_file_stays() {
    let (mut image, dir, files, _) = encrypted();
    let block = image.first_block("/secret");
    image.names(dir, block, true, |block| {
        let name = LONG_NAMES[1].as_bytes();
        let at = block.windows(16).position(|some| some == name).unwrap();
        block[at..at + 16].copy_from_slice(LONG_NAMES[0].as_bytes());
    });
    let image = image.must_be_mended("twice", Code::DirDuplicateName);
    let either = [files[0], files[1]];
    let in_lost = either
        .iter()
        .filter(|ino| image.holds(&format!("/lost+found/#{ino}")));
    assert_eq!(in_lost.count(), 1);
}

#[test]
fn nothing_is_put_into_an_encrypted_lost_and_found() {
    let (mut image, ..) = encrypted();
    let lost_found = image.ino("/lost+found");
    image.encrypt(lost_found, &context(5, 77));
    image.debugfs(&["unlink \"/file 9\""]);
    image.must_be_mended("lost+found", Code::InodeUnattached);
}

#[test]
fn of_a_table_of_noise_no_file_is_made_and_a_wrong_checksum_alone_takes_none() {
    let mut image = Image::new(&[]);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let victim = image.ino("/file 30");
    let at = image.geo.locate_inode(victim).unwrap();
    let table = image.table(at.group.get());
    let block = Pblk::new(table.get() + u64::from(at.table_block));
    for byte in image.block(block) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        *byte = (state >> 33) as u8;
    }
    let per_block = image.geo.inodes_per_block();
    let first = victim.get() - (victim.get() - 1) % per_block;
    let mut image = image.must_be_mended("noise", Code::InodeGarbage);
    for ino in first..first + per_block {
        assert!(
            image.slot(Ino::new(ino)).iter().all(|byte| *byte == 0),
            "inode {ino}"
        );
    }

    let mut image = Image::new(&[]);
    let victim = image.ino("/file 30");
    image.slot(victim)[0x7c] ^= 1;
    let image = image.must_be_mended("a checksum", Code::InodeChecksum);
    assert!(image.holds("/file 30"));
}

#[test]
fn numbers_that_cannot_be_are_replaced_where_no_backup_is() {
    let fields: [(&str, usize, &[u8]); 7] = [
        ("revision", 0x4c, &[0]),
        ("user quota", 0x240, &[0xff; 4]),
        ("project quota", 0x26c, &[0xff; 4]),
        ("orphan file", 0x280, &[0xff; 4]),
        ("journal", 0xe0, &[0xff; 4]),
        ("first inode", 0x54, &[3, 0, 0, 0]),
        ("size of descriptors", 0xfe, &[48, 0]),
    ];
    for (story, at, value) in fields {
        let mut image = Image::sized(6 << 20, &["-O", "quota,project,orphan_file"]);
        assert_eq!(image.geo.groups_count(), 1);
        image.superblock(at, value);
        let image = image.must_be_mended(story, Code::SuperblockField);
        assert!(image.holds("/large"), "{story}");
        assert!(image.sb().journal_ino().is_some(), "{story}");
    }
}

#[test]
fn feature_flags_tell_that_revision_0_is_damage() {
    // Without checksums, nothing else of the superblock tells.
    let plain = ["-O", "^metadata_csum,^uninit_bg"];
    for size in [6 << 20, 200 << 20] {
        let mut image = Image::sized(size, &plain);
        assert_eq!(image.geo.groups_count() == 1, size == 6 << 20);
        let before = image.sb();
        assert_eq!(before.inode_size(), 256);
        image.superblock(0x4c, &[0]);
        // Of the backups of the larger one none is older, but they could be.
        let image = image.must_be_mended("revision 0", Code::SuperblockField);
        assert!(image.holds("/large") && image.holds("/file 30"));
        let after = image.sb();
        assert_eq!(after.inode_size(), 256);
        assert_eq!(after.features(), before.features());
    }
}

#[test]
fn a_revision_that_is_not_known_is_refused() {
    let mut image = Image::sized(6 << 20, &["-O", "^metadata_csum,^uninit_bg"]);
    image.superblock(0x4c, &[2]);
    let refused = check_bytes(&image.bytes, false).unwrap_err();
    assert!(refused.to_string().contains("rev_level"), "{refused}");
}

#[test]
fn a_feature_of_the_layout_that_was_flipped_is_found_by_what_it_moves() {
    for feature in ["-flex_bg", "-64bit"] {
        let mut image = Image::new(&[]);
        image.debugfs(&[&format!("feature {feature}")]);
        let report = check_bytes(&image.bytes, false).unwrap();
        let code = if report.has(Code::GroupLocation) {
            Code::GroupLocation
        } else {
            Code::GroupChecksum
        };
        let image = image.must_be_mended(feature, code);
        assert!(image.holds("/large"), "{feature}");
        let _ = image.geo.group_header(Group::new(0)).unwrap();
    }
}

#[test]
fn reserved_inodes_hold_no_more_than_their_maps_reach() {
    for ino in [5, 9] {
        let mut image = Image::new(&[]);
        let context = image.context(Ino::new(ino));
        image.inode(Ino::new(ino), |_, slot| slot[0x6e] = 1);
        // What has no type has no high half of a size when it is written as an inode.
        let slot = image.slot(Ino::new(ino));
        slot[0x6e] = 1;
        seal(slot, &context);
        image.must_be_mended("size", Code::InodeReserved);
    }
    for ino in [4, 5, 6] {
        let mut image = Image::new(&["-O", "inline_data"]);
        let both = InodeFlags::INLINE_DATA | InodeFlags::EXTENTS;
        image.inode(Ino::new(ino), |inode, _| inode.flags.insert(both));
        image.must_be_mended("inline data and extents", Code::InodeFlags);
    }
}

/// Computes the checksum of an inode anew, as its bytes are.
fn seal(slot: &mut [u8], context: &InodeContext) {
    let Some(seed) = context.seed else {
        return;
    };
    let generation: [u8; 4] = slot[0x64..0x68].try_into().unwrap();
    for at in [0x7c, 0x82] {
        le16(slot, at, 0);
    }
    let number = context.ino.get().to_le_bytes();
    let sum = seed
        .update(&number)
        .update(&generation)
        .update(slot)
        .value();
    le16(slot, 0x7c, sum as u16);
    le16(slot, 0x82, (sum >> 16) as u16);
}

#[test]
fn the_file_system_s_own_files_hold_no_value_of_an_attribute() {
    let mut image = Image::new(&["-O", "ea_inode,orphan_file"]);
    let orphans = image.sb().orphan_file_ino().unwrap();
    for ino in [Ino::JOURNAL, orphans] {
        image.inode(ino, |inode, _| inode.flags.insert(InodeFlags::EA_INODE));
    }
    image.must_be_mended_here("the journal", Code::InodeFlags);
}

#[test]
fn the_first_group_does_not_say_that_its_inodes_were_never_used() {
    let mut image = Image::sized(6 << 20, &["-O", "^metadata_csum,uninit_bg"]);
    image.debugfs(&["set_bg 0 flags 1", "set_bg 0 checksum calc"]);
    image.must_be_mended("bg_flags", Code::GroupFlags);
}

#[test]
fn an_empty_orphan_file_without_checksums_has_none() {
    let mut image = Image::new(&["-O", "orphan_file,^metadata_csum"]);
    let list = debugfs(image.path(), "blocks <12>");
    let first = list.split_whitespace().next().unwrap().parse().unwrap();
    assert_eq!(image.sb().orphan_file_ino(), Some(Ino::new(12)));
    image.block(Pblk::new(first))[BLOCK - 2] = 7;
    image.must_be_mended("a checksum", Code::OrphanFile);
}

#[test]
fn the_feature_for_a_seed_of_checksums_goes_where_there_are_none_and_the_seed_stays() {
    let mut image = Image::new(&["-O", "^metadata_csum"]);
    image.debugfs(&["feature metadata_csum_seed"]);
    image.superblock(0x270, &0x1234_5678_u32.to_le_bytes());
    let mended = image.must_be_mended_here("metadata_csum_seed", Code::SuperblockField);
    // What it was is not given up: the other feature may be what is wrong.
    assert_eq!(mended.sb().raw().checksum_seed.get(), 0x1234_5678);
}

#[test]
fn groups_have_whole_bytes_of_bits() {
    for blocks in [7001u32, 8191, 6147] {
        let mut image = Image::sized(6 << 20, &[]);
        image.superblock(0x20, &blocks.to_le_bytes());
        image.must_be_mended("blocks of a group", Code::SuperblockField);
    }
}

#[test]
fn a_journal_is_as_long_as_its_inode_says() {
    for more in [1, 1024, 1 << 20] {
        let mut image = Image::new(&[]);
        image.inode(Ino::JOURNAL, |inode, _| inode.size += more);
        let image = image.must_be_mended(&format!("{more} more"), Code::JournalInode);
        assert!(image.sb().journal_ino().is_some(), "{more}");
    }
    // With a hole, and no copy of the map in the superblock.
    let mut image = Image::sized(24 << 20, &["-J", "size=4"]);
    image.inode(Ino::JOURNAL, |inode, _| {
        assert_eq!(inode.map[2], 1, "one extent");
        le16(&mut inode.map, 16, 2000);
    });
    image.superblock(0x10c, &[0; 68]);
    image.superblock(0xfd, &[0]);
    let image = image.must_be_mended("a hole", Code::JournalInode);
    assert!(image.sb().journal_ino().is_some());
}

#[test]
fn an_error_that_the_journal_remembers_is_cleared() {
    for errno in [1u32, 0xffff, -5i32 as u32] {
        let mut image = Image::new(&[]);
        let list = debugfs(image.path(), "blocks <8>");
        let first = list.split_whitespace().next().unwrap().parse().unwrap();
        let block = image.block(Pblk::new(first));
        block[0x20..0x24].copy_from_slice(&errno.to_be_bytes());
        // With -n, e2fsck fails to write it to the superblock, and goes on in one way or another.
        image.must_be_mended_here("s_errno", Code::JournalAborted);
    }
}

#[test]
fn leaves_of_a_quota_file_lead_to_blocks_of_it() {
    for (at, value) in [(0, 0x2000u32), (4, 0x2000), (0, 1), (4, u32::MAX)] {
        let mut image = Image::new(&["-O", "quota"]);
        assert!(oracle::e2fsck(image.path(), &["-fy"]).code <= 1);
        image.reload();
        let list = debugfs(image.path(), "blocks <3>");
        // The last block of a small file is its leaf.
        let leaf = list
            .split_whitespace()
            .next_back()
            .unwrap()
            .parse()
            .unwrap();
        le32(image.block(Pblk::new(leaf)), at, value);
        image.must_be_mended_here("a link", Code::QuotaFile);
    }
}

#[test]
fn a_file_whose_mode_says_that_it_is_a_link_is_a_file_again() {
    for features in ["extents", "^extents,^64bit"] {
        for name in [
            "/large", "/file 55", "/file 1", "/file 0", "/d/sub", "/secret",
        ] {
            let mut image = Image::new(&["-O", features]);
            let ino = image.ino(name);
            let blocks = debugfs(image.path(), &format!("blocks \"{name}\""));
            let mut kind = "regular";
            image.inode(ino, |inode, _| {
                if inode.file_type() == Some(FileType::Directory) {
                    kind = "directory";
                }
                inode.mode = Mode::new(FileType::Symlink, inode.mode.permissions());
            });
            let story = format!("{name} {features}");
            fs::write(&image.path, &image.bytes).unwrap();
            assert_ne!(oracle::e2fsck(&image.path, &["-fn"]).code, 0, "{story}");
            // A directory's own bytes up to the first zero are no target.
            let image = image.must_be_mended_but(&story, Code::DirEntryType, name);
            let said = debugfs(image.path(), &format!("stat \"{name}\""));
            assert!(said.contains(&format!("Type: {kind}")), "{story}: {said}");
            let after = debugfs(image.path(), &format!("blocks \"{name}\""));
            assert_eq!(after, blocks, "{story}");
        }
    }
}

#[test]
fn a_short_link_has_no_more_length_than_its_target() {
    for features in ["extents", "ea_inode", "^extents,^64bit"] {
        for size in [0u64, 5, 0x800, 0xff_0000_0006] {
            let mut image = Image::new(&["-O", features]);
            let context = image.context(image.ino("/short"));
            let slot = image.slot(context.ino);
            slot[4..8].copy_from_slice(&(size as u32).to_le_bytes());
            slot[0x6c..0x70].copy_from_slice(&((size >> 32) as u32).to_le_bytes());
            seal(slot, &context);
            let code = match size >> 32 {
                0 => Code::Symlink,
                _ => Code::InodeReserved,
            };
            let image = image.must_be_mended(&format!("{features} {size:#x}"), code);
            let said = debugfs(image.path(), "stat /short");
            assert!(said.contains("Size: 6\n"), "{features} {size:#x}: {said}");
        }
    }
}

#[test]
fn no_inode_with_a_name_is_in_the_part_of_a_table_that_is_said_to_be_unused() {
    for options in [
        "^metadata_csum,^uninit_bg",
        "^metadata_csum,^uninit_bg,^64bit",
    ] {
        let image = Image::new(&["-O", options]);
        let bits = image.geo.inodes_per_group();
        // All are in the first group.
        let last = image.geo.inodes_count() - image.sb().free_inodes_count();
        assert!(last < bits);
        for (unused, is_wrong) in [(bits - last, false), (bits - last + 1, true), (bits, true)] {
            let mut image = Image::new(&["-O", options]);
            image.debugfs(&[&format!("set_bg 0 itable_unused {unused}")]);
            let report = check_bytes(&image.bytes, false).unwrap();
            assert_eq!(report.has(Code::GroupUnusedInodes), is_wrong, "{unused}");
            if is_wrong {
                drop(image.must_be_mended(&format!("{unused}"), Code::GroupUnusedInodes))
            } else {
                assert_eq!(oracle::e2fsck(image.path(), &["-fn"]).code, 0, "{unused}")
            }
        }
    }
}
