//! Whole trees written by the kernel: names, types, links, attributes, content.

use crate::support::Image;
use crate::walk::tree_of;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::oracle::mke2fs;
use extant_testkit::require;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::{Compare, Holes, Tree};

/// Options of mke2fs; block size, inode size and whether large attribute values are possible.
const KINDS: &[(&[&str], u64, u64, bool)] = &[
    (&["-t", "ext4"], 4096, 256, false),
    (&["-t", "ext4"], 1024, 256, false),
    (&["-t", "ext4", "-O", "ea_inode"], 2048, 256, true),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "inline_data,ea_inode,metadata_csum_seed,orphan_file",
            "-I",
            "1024",
        ],
        4096,
        1024,
        true,
    ),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "inline_data,large_dir,^64bit",
            "-I",
            "256",
        ],
        1024,
        256,
        false,
    ),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "^metadata_csum,^64bit,^extent,^flex_bg",
            "-I",
            "128",
        ],
        4096,
        128,
        false,
    ),
    (
        &[
            "-t",
            "ext4",
            "-O",
            "bigalloc,meta_bg,^resize_inode",
            "-C",
            "16384",
        ],
        4096,
        256,
        false,
    ),
    (&["-t", "ext3"], 1024, 256, false),
    (
        &["-t", "ext2", "-O", "^dir_index,^filetype"],
        4096,
        256,
        false,
    ),
];

#[test]
fn what_the_kernel_wrote_reads_as_the_kernel_shows_it() {
    require!(LoopDevices, KernelExt4);
    for &(options, block_size, inode_size, ea_inode) in KINDS {
        let mut spec = TortureSpec::small().for_image(block_size, inode_size, ea_inode);
        spec.entries_in_one_dir = 1000;
        spec.subdirs_in_one_dir = 60;
        spec.extents = 50;
        let plan = spec.plan();
        let image = Image::make(1, &["-t", "ext2"], |_| ());
        std::fs::remove_file(image.path()).unwrap();
        let block_size_text = block_size.to_string();
        let options = [&["-N", "20000", "-b", &block_size_text], options].concat();
        mke2fs(&image.path(), 256 << 20, &options);
        let mount = KernelMount::mount(&image.path(), Mode::ReadWrite, "");
        plan.plant(mount.path());
        // SEEK_DATA of the kernel passes over delayed data of files without extents.
        mount.sync();
        let shown = Tree::snapshot(mount.path());
        mount.unmount();
        let compare = Compare {
            nlink: true,
            holes: Holes::Ignore,
            ignore: Vec::new(),
            ..Compare::default()
        };
        println!("{options:?}: {} entries", shown.len());
        shown.assert_same(&tree_of(&image.open()), &compare);
    }
}
