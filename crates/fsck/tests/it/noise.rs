//! Noise in inode tables of images that are mended in memory: of what lies there nothing dangerous
//! comes out, and all else comes out as it was, under its name or another.

use extant::mend::{MendOptions, mend};
use extant::{FileType, Filesystem, MountOptions};
use extant_blockdev::{MemoryDevice, SharedDevice};
use extant_format::Ino;
use extant_format::geometry::Geometry;
use extant_format::group_desc::GroupDesc;
use extant_format::superblock::Superblock;
use extant_testkit::facility::is_full_run;
use extant_testkit::oracle::{debugfs_write, mke2fs};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

/// Bytes that a disk gives or loses together.
const SECTOR: usize = 512;
/// Set-ID bits.
const SET_ID: u16 = 0o6000;

/// An image with files of all types, some with set-ID bits.
fn image(dir: &Path, options: &[&str]) -> Vec<u8> {
    let tree = dir.join("tree");
    for n in 0..6 {
        let deep = tree.join(format!("dir-{n}/deeper"));
        fs::create_dir_all(&deep).unwrap();
        for file in 0..12 {
            fs::write(deep.join(format!("file-{file}")), vec![n; 300 * file]).unwrap();
        }
        symlink("file-3", deep.join("link")).unwrap();
    }
    let path = dir.join("image");
    let planted = ["-b", "1024", "-N", "256", "-d", tree.to_str().unwrap()];
    let _ = fs::remove_file(&path);
    mke2fs(&path, 8 << 20, &[options, &planted[..]].concat());
    let requests: Vec<String> = (0..6)
        .flat_map(|n| {
            [
                format!("cd /dir-{n}"),
                "mknod pipe p".to_owned(),
                "mknod characters c 1 3".to_owned(),
                "mknod blocks b 7 0".to_owned(),
                "sif deeper/file-1 mode 0104755".to_owned(),
                "sif deeper/file-2 mode 0102755".to_owned(),
                "sif deeper/file-4 mode 0106755".to_owned(),
            ]
        })
        .collect();
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    debugfs_write(&path, &requests);
    fs::read(&path).unwrap()
}

/// The inodes that can be reached, with type and permissions.
fn modes(fs: &Filesystem) -> BTreeMap<u32, u16> {
    let mut modes = BTreeMap::new();
    for entry in fs.walk("/").unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata();
        modes.insert(metadata.ino(), metadata.mode().bits());
    }
    modes
}

/// The byte at which the slot of an inode begins.
fn slot_of(image: &[u8], ino: u32) -> usize {
    let geo = Geometry::new(&Superblock::parse(&image[1024..]).unwrap());
    let group = geo.locate_inode(Ino::new(ino)).unwrap().group;
    let len = geo.desc_size() as usize;
    let descriptors = geo.desc_block(0).unwrap().get() as usize * 1024;
    let at = descriptors + group.get() as usize * len;
    let desc = GroupDesc::parse_unverified(&image[at..at + len]).unwrap();
    let position = geo.inode_position(Ino::new(ino), desc.inode_table);
    position.unwrap() as usize
}

fn is_dangerous(mode: u16) -> bool {
    let file_type = FileType::from_mode_bits(mode);
    match file_type {
        Some(FileType::Regular | FileType::Symlink) => mode & SET_ID != 0,
        // Nobody runs it: the root, which has to be one, keeps its bits.
        Some(FileType::Directory) => false,
        _ => true,
    }
}

/// Has noise in a run of sectors with inodes, mends that, and says what is wrong with what comes
/// out.
fn judge(
    sound: &[u8],
    before: &BTreeMap<u32, u16>,
    victims: &[u32],
    rng: &mut Rng,
) -> Result<(), String> {
    let first = slot_of(sound, *rng.pick(victims)) / SECTOR * SECTOR;
    let len = SECTOR * rng.between(1, 12) as usize;
    let mut noisy = sound.to_vec();
    rng.fill(&mut noisy[first..first + len]);
    let is_noise = |ino: &u32| (first..first + len).contains(&slot_of(sound, *ino));
    let told = |ino: u32, mode: u16, what: &str| {
        format!("noise of {len} bytes from byte {first} on: inode {ino}, mode {mode:#o}, {what}")
    };

    let device: SharedDevice = Arc::new(MemoryDevice::from_image(&noisy));
    let mended = mend(&device, &MendOptions::default()).map_err(|e| e.to_string())?;
    let fs = Filesystem::on_mended(&mended, MountOptions::read_only());
    let after = modes(&fs.map_err(|e| e.to_string())?);
    for (ino, mode) in &after {
        let was = before.get(ino);
        // Directories are made anew.
        let is_new = was.is_none() && !is_dangerous(*mode);
        if is_noise(ino) && is_dangerous(*mode) {
            return Err(told(*ino, *mode, "comes out of the noise"));
        }
        if !is_noise(ino) && was != Some(mode) && !is_new {
            return Err(told(*ino, *mode, "comes out as another"));
        }
    }
    let mut lost = before.keys().filter(|ino| !is_noise(ino));
    match lost.find(|ino| !after.contains_key(ino)) {
        Some(ino) => Err(told(*ino, before[ino], "does not come out")),
        None => Ok(()),
    }
}

#[test]
fn nothing_dangerous_comes_out_of_noise_and_the_rest_as_it_was() {
    let name = "nothing_dangerous_comes_out_of_noise_and_the_rest_as_it_was";
    let mut rng = Rng::new(seed_from_env(name));
    let rounds = if is_full_run() { 2000 } else { 40 };
    let options: &[&[&str]] = &[
        &["-t", "ext4", "-I", "256"],
        &["-t", "ext4", "-O", "^metadata_csum"],
        &[
            "-t",
            "ext4",
            "-O",
            "^flex_bg,^metadata_csum,uninit_bg",
            "-g",
            "2048",
        ],
        &["-t", "ext3", "-I", "128"],
        &["-t", "ext2", "-I", "128"],
    ];
    let mut wrong = Vec::new();
    for options in options {
        let dir = tempfile::tempdir().unwrap();
        let sound = image(dir.path(), options);
        let device: SharedDevice = Arc::new(MemoryDevice::from_image(&sound));
        let fs = Filesystem::open_device(device, MountOptions::read_only()).unwrap();
        let before = modes(&fs);
        drop(fs);
        let dangerous = before.values().filter(|mode| is_dangerous(**mode));
        assert_eq!(dangerous.count(), 36, "{options:?}");
        let all: Vec<u32> = before.keys().copied().collect();
        let root = [Ino::ROOT.get()];
        for round in 0..rounds {
            let victims = if round % 4 == 0 { &root } else { &all[..] };
            let judged = judge(&sound, &before, victims, &mut rng);
            wrong.extend(judged.err().map(|e| format!("{options:?}: {e}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
