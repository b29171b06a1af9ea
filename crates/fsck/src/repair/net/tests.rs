//! Drafts that were sabotaged: each loss is seen, and what is none is not told as one.

use super::view::View;
use super::{Lost, losses};
use crate::Error;
use crate::repair::draft::Draft;
use crate::repair::plan::Plan;
use crate::repair::rounds::look;
use crate::report::Sink;
use crate::volume::Volume;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::inode::{FileType, Inode, InodeFlags, MAP_BYTES, Mode};
use extant_format::xattr::name::INLINE_DATA;
use extant_format::xattr::{Attribute, NewValue, encode_in_inode};
use extant_format::{Ino, dir};
use extant_testkit::oracle::{self, debugfs};
use std::path::Path;
use std::sync::Arc;

/// A sound image and the numbers of some inodes.
struct Image {
    bytes: Vec<u8>,
    dir: Ino,
    file: Ino,
    link: Ino,
}

fn number(image: &Path, path: &str) -> Ino {
    let said = debugfs(image, &format!("imap {path}"));
    Ino::new(said.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn image() -> Image {
    let place = tempfile::tempdir().unwrap();
    let tree = place.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::write(tree.join("dir/file"), vec![7; 10_000]).unwrap();
    std::fs::write(tree.join("dir/other"), vec![8; 10_000]).unwrap();
    std::os::unix::fs::symlink("target", tree.join("link")).unwrap();
    let path = place.path().join("image");
    let options = ["-t", "ext4", "-b", "1024", "-d", tree.to_str().unwrap()];
    oracle::mke2fs(&path, 8 << 20, &options);
    oracle::debugfs_write(&path, &["ea_set /dir/file user.color red"]);
    Image {
        dir: number(&path, "/dir"),
        file: number(&path, "/dir/file"),
        link: number(&path, "/link"),
        bytes: std::fs::read(&path).unwrap(),
    }
}

/// A draft, and the file system that it is over.
struct Sabotage {
    draft: Draft,
    volume: Volume,
}

impl Sabotage {
    fn new(image: &Image) -> Self {
        let device = Arc::new(MemoryDevice::from_image(&image.bytes));
        let draft = Draft::new(device, 1024);
        let volume = Volume::open(draft.device(), &mut Sink::new()).unwrap();
        Self { draft, volume }
    }

    fn inode(&self, ino: Ino, change: impl FnOnce(&mut Inode, &mut [u8])) {
        let (mut slot, mut inode) = self.volume.inode(ino).unwrap().unwrap();
        change(&mut inode, &mut slot);
        let context = self.volume.inode_context(ino);
        inode.encode(&mut slot, &context).unwrap();
        let offset = self.volume.inode_offset(ino).unwrap();
        self.draft.write(offset, &slot).unwrap();
    }

    fn first_block(&self, ino: Ino) -> u64 {
        let (_, inode) = self.volume.inode(ino).unwrap().unwrap();
        crate::maps::runs(&self.volume, ino, &inode).unwrap()[0].pblk
    }

    /// What is told of each file, by number.
    fn told(&self) -> Vec<(Ino, Lost)> {
        let (losses, count) = losses(&self.draft).unwrap();
        assert_eq!(losses.len() as u64, count);
        let told = losses.into_iter().map(|loss| {
            assert!(loss.path.starts_with(b"/"), "{loss}");
            (loss.ino, loss.what)
        });
        told.collect()
    }
}

#[test]
fn every_loss_of_a_sabotaged_draft_is_seen() {
    let image = image();
    let file = image.file;
    type Cut = fn(&Sabotage, &Image);
    let cases: &[(&str, Cut, Lost)] = &[
        (
            "zeros over the inode",
            |s, i| {
                let offset = s.volume.inode_offset(i.file).unwrap();
                s.draft.write(offset, &[0; 256]).unwrap();
            },
            Lost::Inode,
        ),
        (
            "another type",
            |s, i| {
                s.inode(i.file, |inode, _| {
                    inode.mode = Mode::new(FileType::Fifo, 0o644)
                })
            },
            Lost::Type,
        ),
        (
            "another owner",
            |s, i| s.inode(i.file, |inode, _| inode.uid = 77),
            Lost::Owner,
        ),
        (
            "a smaller size",
            |s, i| s.inode(i.file, |inode, _| inode.size = 5000),
            Lost::Size(5000),
        ),
        (
            "one byte of content",
            |s, i| {
                let at = s.first_block(i.file) * 1024 + 3000;
                s.draft.write(at, &[0]).unwrap();
            },
            Lost::Content(3000),
        ),
        (
            "no map",
            |s, i| s.inode(i.file, |inode, _| inode.map[2] = 0),
            Lost::Content(0),
        ),
        (
            "no attributes",
            |s, i| s.inode(i.file, |_, slot| slot[160..].fill(0)),
            Lost::Attribute {
                name: b"user.color".to_vec(),
            },
        ),
    ];
    for (what, cut, lost) in cases {
        let sabotage = Sabotage::new(&image);
        cut(&sabotage, &image);
        assert_eq!(sabotage.told(), [(file, lost.clone())], "{what}");
    }
    let sabotage = Sabotage::new(&image);
    sabotage.inode(image.link, |inode, _| {
        inode.map[..6].copy_from_slice(b"TARGET")
    });
    assert_eq!(sabotage.told(), [(image.link, Lost::Target)]);
}

#[test]
fn a_directory_that_loses_its_names_loses_all_below_it() {
    let image = image();
    let sabotage = Sabotage::new(&image);
    let volume = &sabotage.volume;
    // The root has but the names of itself.
    let at = sabotage.first_block(Ino::ROOT);
    let mut block = volume.block(extant_format::Pblk::new(at)).unwrap();
    let (_, inode) = volume.inode(Ino::ROOT).unwrap().unwrap();
    let layout = volume.dir_layout(inode.flags);
    let second = 12;
    dir::entry::write_free(&mut block, second, &layout, 1024 - 12 - second);
    dir::entry::write_tail(&mut block, volume.inode_seed(Ino::ROOT, &inode).unwrap());
    sabotage.draft.write(at * 1024, &block).unwrap();
    let told = sabotage.told();
    let has = |ino: Ino| told.contains(&(ino, Lost::Name));
    assert!(
        has(image.dir) && has(image.file) && has(image.link),
        "{told:?}"
    );
    let (losses, _) = losses(&sabotage.draft).unwrap();
    let path = |ino| {
        losses
            .iter()
            .find(|loss| loss.ino == ino)
            .unwrap()
            .path
            .clone()
    };
    assert_eq!(path(image.file), b"/dir/file");
}

#[test]
fn a_file_whose_mode_says_that_it_is_a_link_may_become_one_again_and_is_not_cut() {
    let mut image = image();
    let sabotage = Sabotage::new(&image);
    sabotage.inode(image.file, |inode, _| {
        inode.mode = Mode::new(FileType::Symlink, inode.mode.permissions());
    });
    let at = sabotage.volume.inode_offset(image.file).unwrap();
    let slot = sabotage.draft.read(at, 256).unwrap();
    image.bytes[at as usize..at as usize + 256].copy_from_slice(&slot);

    let cut = Sabotage::new(&image);
    cut.inode(image.file, |inode, _| {
        inode.flags.remove(InodeFlags::EXTENTS);
        inode.map = [0; MAP_BYTES];
        inode.map[0] = b'x';
        (inode.size, inode.blocks) = (1, 0);
    });
    assert_eq!(cut.told(), [(image.file, Lost::Type)]);
    let deleted = Sabotage::new(&image);
    deleted.inode(image.file, |inode, _| inode.links = 0);
    assert_eq!(deleted.told(), [(image.file, Lost::Inode)]);
    let short = Sabotage::new(&image);
    let regular = |inode: &mut Inode| {
        inode.mode = Mode::new(FileType::Regular, inode.mode.permissions());
    };
    short.inode(image.file, |inode, _| {
        regular(inode);
        inode.size = 3000;
    });
    assert_eq!(short.told(), [(image.file, Lost::Size(3000))]);
    let right = Sabotage::new(&image);
    right.inode(image.file, |inode, _| regular(inode));
    assert_eq!(right.told(), []);
}

#[test]
fn a_size_that_cannot_be_may_be_cut_to_what_is_mapped_and_no_further() {
    let mut image = image();
    let sabotage = Sabotage::new(&image);
    sabotage.inode(image.file, |inode, _| inode.size |= 0x600 << 32);
    let at = sabotage.volume.inode_offset(image.file).unwrap();
    let slot = sabotage.draft.read(at, 256).unwrap();
    image.bytes[at as usize..at as usize + 256].copy_from_slice(&slot);
    let cut = |size: u64| {
        let sabotage = Sabotage::new(&image);
        sabotage.inode(image.file, |inode, _| inode.size = size);
        sabotage.told()
    };
    for size in [10_000, 10_001, 10_240, 1 << 20] {
        assert_eq!(cut(size), [], "{size}");
    }
    for size in [0, 5000, 9216, 9999] {
        assert_eq!(cut(size), [(image.file, Lost::Size(size))]);
    }
}

#[test]
fn what_no_file_consists_of_may_change() {
    let image = image();
    let sabotage = Sabotage::new(&image);
    sabotage.inode(image.file, |inode, _| {
        inode.links = 9;
        inode.mtime.secs = 5;
        inode.blocks = 1;
        inode.size = 1 << 20;
    });
    let bitmap = sabotage.volume.groups[0].desc.block_bitmap.get();
    sabotage.draft.write(bitmap * 1024, &[0xff; 1024]).unwrap();
    assert_eq!(sabotage.told(), []);
    assert_eq!(Sabotage::new(&image).told(), []);
}

#[test]
fn a_plan_that_loses_something_is_not_written_unless_that_is_allowed() {
    let image = image();
    for allow_loss in [false, true] {
        let device = Arc::new(MemoryDevice::from_image(&image.bytes));
        let draft = Draft::new(device.clone(), 1024);
        let volume = Volume::open(draft.device(), &mut Sink::new()).unwrap();
        let sabotage = Sabotage { draft, volume };
        sabotage.inode(image.file, |inode, _| inode.size = 5000);
        let (losses, losses_count) = losses(&sabotage.draft).unwrap();
        let survey = look(&sabotage.draft, &()).unwrap();
        let plan = Plan {
            losses,
            losses_count,
            allow_loss,
            ..Plan::new(sabotage.draft, survey)
        };
        let applied = plan.apply();
        let mut bytes = vec![0; image.bytes.len()];
        device.read_at(0, &mut bytes).unwrap();
        match applied {
            Ok(()) => assert!(allow_loss && bytes != image.bytes),
            Err(Error::Loss { count: 1, first }) => {
                assert!(!allow_loss && bytes == image.bytes);
                let said = format!("inode {}, \"/dir/file\": only 5000 bytes", image.file);
                assert!(first.to_string().starts_with(&said), "{first}");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

/// An image with two files inside their inodes, one that says to be larger than what is stored of
/// it, and a file with a map.
fn image_with_inline_data() -> (Vec<u8>, [Ino; 3]) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image");
    let options = ["-t", "ext4", "-b", "1024", "-O", "inline_data"];
    oracle::mke2fs(&path, 8 << 20, &options);
    let source = |name: &str, bytes: &[u8]| {
        std::fs::write(place.path().join(name), bytes).unwrap();
        format!("write {} {name}", place.path().join(name).display())
    };
    let mut large = vec![0; 80_000];
    large[..40].fill(5);
    large[79_999] = 1;
    let requests = [
        source("short", &[3; 40]),
        source("long", &[4; 100]),
        source("large", &large),
        "sif /long size 3000".to_owned(),
    ];
    oracle::debugfs_write(&path, &requests.each_ref().map(String::as_str));
    let numbers = ["/short", "/long", "/large"].map(|name| number(&path, name));
    (std::fs::read(&path).unwrap(), numbers)
}

/// Gives a file inside its inode a map that leads to blocks with `bytes`.
fn to_map(sabotage: &Sabotage, ino: Ino, bytes: &[u8]) {
    let at = 5000;
    sabotage.draft.write(at * 1024, bytes).unwrap();
    sabotage.inode(ino, |inode, slot| {
        inode.flags.remove(InodeFlags::INLINE_DATA);
        inode.map = [0; MAP_BYTES];
        for (i, to) in inode.map.chunks_mut(4).take(bytes.len() / 1024).enumerate() {
            to.copy_from_slice(&(at as u32 + i as u32).to_le_bytes());
        }
        slot[160..].fill(0);
    });
}

/// Puts the content of a file into its inode.
fn to_inline(sabotage: &Sabotage, ino: Ino, bytes: &[u8; MAP_BYTES]) {
    sabotage.inode(ino, |inode, slot| {
        inode.flags.remove(InodeFlags::EXTENTS);
        inode.flags.insert(InodeFlags::INLINE_DATA);
        inode.map = *bytes;
        let data = Attribute {
            name: INLINE_DATA,
            value: NewValue::Bytes(&[]),
        };
        assert!(encode_in_inode(&mut slot[160..], &[data]));
    });
}

#[test]
fn content_that_moves_between_inode_and_blocks_is_compared_to_its_last_byte() {
    let (bytes, [short, long, large]) = image_with_inline_data();
    let image = Image {
        bytes,
        dir: short,
        file: long,
        link: large,
    };
    let told = |cut: &dyn Fn(&Sabotage)| {
        let sabotage = Sabotage::new(&image);
        cut(&sabotage);
        sabotage.told()
    };
    let padded = |content: &[u8], len: usize| {
        let mut bytes = content.to_vec();
        bytes.resize(len, 0);
        bytes
    };
    let lost = |ino: Ino, byte: u64| vec![(ino, Lost::Content(byte))];

    // What is behind the end of a file is no content.
    let mut block = padded(&[3; 40], 1024);
    block[40..].fill(9);
    assert_eq!(told(&|s| to_map(s, short, &block)), []);
    block[7] = 0;
    assert_eq!(told(&|s| to_map(s, short, &block)), lost(short, 7));

    // What is not stored of a larger file reads as zeros.
    let mut blocks = padded(&[4; 100], 3072);
    assert_eq!(told(&|s| to_map(s, long, &blocks)), []);
    blocks[3071] = 1;
    assert_eq!(told(&|s| to_map(s, long, &blocks)), []);
    for stale in [100, 1024, 2999] {
        let mut blocks = blocks.clone();
        blocks[stale] = 1;
        assert_eq!(
            told(&|s| to_map(s, long, &blocks)),
            lost(long, stale as u64)
        );
    }
    assert_eq!(told(&|s| to_map(s, long, &[])), lost(long, 0));

    // A file with a map, however long it is.
    let mut content = [0; MAP_BYTES];
    content[..40].fill(5);
    let to_end = lost(large, 79_999);
    assert_eq!(told(&|s| to_inline(s, large, &content)), to_end);
    let sabotage = Sabotage::new(&image);
    let (_, inode) = sabotage.volume.inode(large).unwrap().unwrap();
    let runs = crate::maps::runs(&sabotage.volume, large, &inode).unwrap();
    let last = crate::maps::lookup(&runs, 78).unwrap().get() * 1024;
    let mut zeros = Image { ..image };
    zeros.bytes[last as usize + 127] = 0;
    let told = |content: &[u8; MAP_BYTES]| {
        let sabotage = Sabotage::new(&zeros);
        to_inline(&sabotage, large, content);
        sabotage.told()
    };
    assert_eq!(told(&content), []);
    content[59] = 1;
    assert_eq!(told(&content), lost(large, 59));
}

#[test]
fn a_block_of_names_that_a_directory_maps_a_million_times_is_read_once() {
    let image = image();
    let sabotage = Sabotage::new(&image);
    let names = sabotage.first_block(image.dir) as u32;
    // A triply indirect map: 16 blocks that lead to 256 each, and each of these 256 times to the
    // names.
    let first = 3000u32;
    let pointers = |to: &dyn Fn(u32) -> u32| -> Vec<u8> {
        (0..256).flat_map(|i| to(i).to_le_bytes()).collect()
    };
    let leaf = pointers(&|_| names);
    let (level, leaves) = (first + 1, first + 17);
    let root = pointers(&|i| if i < 16 { level + i } else { 0 });
    let put = |at: u32, bytes: &[u8]| {
        sabotage.draft.write(u64::from(at) * 1024, bytes).unwrap();
    };
    put(first, &root);
    for i in 0..16 {
        put(level + i, &pointers(&|j| leaves + 256 * i + j));
        for j in 0..256 {
            put(leaves + 256 * i + j, &leaf);
        }
    }
    sabotage.inode(image.dir, |inode, _| {
        inode.flags.remove(InodeFlags::EXTENTS);
        inode.map = [0; MAP_BYTES];
        inode.map[56..].copy_from_slice(&first.to_le_bytes());
        inode.size = (12 + 256 + 65536 + (1 << 20)) * 1024;
    });
    let view = View::new(sabotage.draft.device()).unwrap();
    let dir = view.inode(image.dir).unwrap().unwrap();
    let mut blocks = 0;
    view.walk(&dir, &mut |piece| {
        blocks += u32::from(matches!(piece, crate::maps::Piece::Data(_)));
    })
    .unwrap();
    assert_eq!(blocks, 1 << 20);
    let mut handed_on = 0;
    assert!(view.names(&dir, &mut |_, _| handed_on += 1).unwrap());
    assert_eq!(handed_on, 2);
    // The root, lost+found, the link, the directory and its two files.
    assert_eq!(super::reachable(sabotage.draft.device()).unwrap(), 6);
}
