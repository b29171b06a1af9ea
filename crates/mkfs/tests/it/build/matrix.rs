//! The torture tree through the ways of making a file system.
//!
//! Each test plants one tree and builds it with several variants, which are chosen so that every
//! choice meets most others once; `EXTANT_FULL=1` tries them all with the tree in full size.

use super::*;
use extant_mkfs::source::{TarOptions, read_tar, read_tar_stream};
use extant_testkit::oracle::debugfs;
use extant_testkit::plan::{SparseForm, TarForm};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::torture::TortureSpec;
use std::fs::File;
use std::io::{BufWriter, Write};

const PROFILES: [Profile; 5] = Profile::ALL;

/// The torture tree for a kind of image, of a size for the occasion.
fn spec(block: u32, inode: u32, ea_inode: bool) -> TortureSpec {
    let spec = if in_full() {
        TortureSpec {
            // Planted as files, tens of thousands are enough: `many` has the rest in memory.
            entries_in_one_dir: 20_000,
            subdirs_in_one_dir: 5_000,
            ..TortureSpec::full()
        }
    } else {
        TortureSpec {
            entries_in_one_dir: 1200,
            subdirs_in_one_dir: 150,
            extents: 400,
            ..TortureSpec::small()
        }
    };
    TortureSpec {
        // A path in a mount point is longer than in the tree.
        longest_path: 3700,
        ..spec.for_image(block.into(), inode.into(), ea_inode)
    }
}

/// Builds the planted tree with each variant and compares what the kernel shows.
fn through_the_kernel(spec: &TortureSpec, variants: &[Variant]) {
    let dir = scratch();
    let plan = spec.plan();
    let source = scan(&planted(&plan, dir.path(), "source"));
    let expected = plan.expected();
    for variant in variants {
        println!("{variant:?}");
        let image = dir.path().join("image");
        build_clean(&source, &image, &variant.auto());
        let compare = everything(variant.block.into(), variant.inode);
        expected.assert_same(&mounted(&image), &compare);
    }
}

#[test]
fn blocks_of_4k_under_every_profile_and_layout() {
    require!(KernelExt4, TmpfsXattrs);
    let mut variants: Vec<Variant> = PROFILES
        .into_iter()
        .map(|profile| Variant::new(4096, 256, profile, ""))
        .collect();
    let default = |features| Variant::new(4096, 256, Profile::Default, features);
    variants.extend([
        default("^has_journal,^metadata_csum,^64bit").without_journal(),
        default("^extent,^64bit"),
        default("bigalloc").clusters(65_536),
        default("^resize_inode,meta_bg,^flex_bg"),
        default("sparse_super2,large_dir"),
        Variant::new(4096, 1024, Profile::Latest, "^dir_index,^filetype"),
    ]);
    if in_full() {
        for features in [
            "^extent,^has_journal,^64bit",
            "^has_journal",
            "bigalloc,^metadata_csum",
            "^dir_index",
            "^flex_bg",
            "^64bit",
            "^metadata_csum",
            "^metadata_csum,uninit_bg",
            "^filetype",
            "^huge_file",
            "^dir_nlink",
            "^large_file",
            "^sparse_super,^resize_inode",
            "metadata_csum_seed",
            "orphan_file",
            "project",
            "none,filetype",
            "none",
        ] {
            variants.push(default(features));
        }
        variants.push(
            default("bigalloc,^has_journal")
                .without_journal()
                .clusters(8192),
        );
    }
    through_the_kernel(&spec(4096, 256, false), &variants);
}

#[test]
fn blocks_of_1k_with_extents_and_without() {
    require!(KernelExt4, TmpfsXattrs);
    let variant = |profile, features| Variant::new(1024, 256, profile, features);
    let mut variants = vec![
        variant(Profile::Default, ""),
        variant(Profile::Linux310, "^extent,^has_journal").without_journal(),
        variant(Profile::Default, "bigalloc").clusters(8192),
        variant(Profile::Default, "^resize_inode,meta_bg"),
        Variant::new(1024, 1024, Profile::Android, "^flex_bg"),
    ];
    if in_full() {
        for features in ["^dir_index", "^flex_bg,^metadata_csum", "sparse_super2"] {
            variants.push(variant(Profile::Default, features));
        }
        variants.push(variant(Profile::Latest, "large_dir"));
        variants.push(variant(Profile::Grub, "^extent,^64bit"));
    }
    through_the_kernel(&spec(1024, 256, false), &variants);
}

#[test]
fn inodes_of_128_bytes_keep_all_but_fractions_of_seconds() {
    require!(KernelExt4, TmpfsXattrs);
    let mut variants = vec![
        Variant::new(2048, 128, Profile::Default, ""),
        Variant::new(2048, 128, Profile::Linux310, "^extent"),
        Variant::new(1024, 128, Profile::Default, "none,filetype,ext_attr").without_journal(),
    ];
    if in_full() {
        variants.push(Variant::new(4096, 128, Profile::Latest, ""));
        variants.push(Variant::new(1024, 128, Profile::Default, "bigalloc"));
    }
    through_the_kernel(&spec(1024, 128, false), &variants);
}

#[test]
fn large_attribute_values_live_in_inodes_of_their_own() {
    require!(KernelExt4, TmpfsXattrs);
    let default = |block, inode| Variant::new(block, inode, Profile::Default, "ea_inode");
    let mut variants = vec![default(4096, 256), default(1024, 1024)];
    let with_more = |features| Variant::new(2048, 256, Profile::Default, features);
    variants.push(with_more("ea_inode,^metadata_csum,bigalloc"));
    if in_full() {
        variants.push(with_more("ea_inode,large_dir,^64bit"));
        variants.push(with_more("ea_inode,^extent,^64bit"));
        variants.push(with_more("ea_inode,metadata_csum_seed,sparse_super2"));
        variants.push(default(1024, 128));
    }
    let spec = TortureSpec {
        wide_times: false,
        ..spec(1024, 256, true)
    };
    through_the_kernel(&spec, &variants);
}

#[test]
fn blocks_larger_than_a_page_read_back_through_debugfs() {
    require!(Root, TmpfsXattrs);
    let dir = scratch();
    let spec = TortureSpec {
        // debugfs copies holes byte by byte and knows no paths beyond its buffer.
        sparse_file_bytes: 3 << 20,
        longest_path: 1500,
        entries_in_one_dir: 6000,
        extents: 60,
        ..spec(65_536, 256, false)
    };
    let plan = spec.plan();
    let source = scan(&planted(&plan, dir.path(), "source"));
    let whole = plan.expected();
    // What `rdump` writes: files, directories, symbolic links, and of them no attributes.
    let plain = plan.filtered(|n| {
        matches!(
            n.kind,
            NodeKind::File(_) | NodeKind::Directory | NodeKind::Symlink(_) | NodeKind::HardLink(_)
        )
    });
    let mut expected = plain.expected();
    let compare = Compare {
        whole_seconds: true,
        links: false,
        xattrs: false,
        root: false,
        ..Compare::default()
    };
    // It keeps neither set-id bits nor times beyond 32 bits, and of symbolic links no attributes.
    let blurred = |found: &mut tree::Tree| {
        for (path, entry) in &mut found.entries {
            entry.mode &= 0o777;
            if matches!(entry.kind, tree::Kind::Symlink(_)) {
                (entry.uid, entry.gid, entry.mtime) = (0, 0, tree::Time::default());
            } else if path.windows(5).any(|w| w == b"time+" || w == b"time-") {
                entry.mtime = tree::Time::default();
            }
        }
    };
    blurred(&mut expected);
    for (block, features) in [
        (65_536, ""),
        (16_384, "bigalloc"),
        (65_536, "^extent,^64bit"),
    ] {
        let variant = Variant::new(block, 256, Profile::Default, features);
        println!("{variant:?}");
        let image = dir.path().join("image");
        build_clean(&source, &image, &variant.auto());
        let out = dir.path().join(format!("out-{block}-{}", features.len()));
        std::fs::create_dir(&out).unwrap();
        let said = tool("debugfs")
            .args(["-R", &format!("rdump / {}", out.display())])
            .arg(&image)
            .ok();
        let complaints = String::from_utf8_lossy(&said.stderr);
        assert!(complaints.lines().count() <= 1, "{complaints}");
        let mut found = tree::Tree::snapshot(&out);
        blurred(&mut found);
        expected.assert_same(&found, &compare);
        // Linux mounts blocks larger than a page from 6.19 on.
        if let Ok(mount) = KernelMount::try_mount(&image, Mode::Untouched, "") {
            let compare = everything(block.into(), 256);
            whole.assert_same(&tree::Tree::snapshot(mount.path()), &compare);
        }
        let value = debugfs(&image, "ea_get /xattrs/small user.a");
        assert_eq!(value.trim(), "user.a (1) = \"1\"");
        let stat = debugfs(&image, "stat /types/big-device");
        assert!(stat.contains("4095:1048575"), "{stat}");
    }
}

/// A tar archive of the plan, then the image, then what the kernel shows.
fn through_tar(spec: &TortureSpec, form: TarForm, sparse: SparseForm, wrap: Wrap) {
    let dir = scratch();
    let plan = spec.plan().kept_by(form);
    let archive = dir.path().join("archive.tar");
    let mut out = BufWriter::new(File::create(&archive).unwrap());
    plan.write_tar(&mut out, form, sparse).unwrap();
    out.flush().unwrap();
    let mut options = TarOptions::default();
    options.spool_dir = dir.path().to_owned();
    let source = match wrap {
        Wrap::Nothing => read_tar(&archive, &options),
        Wrap::Stream => {
            let file = File::open(&archive).unwrap();
            read_tar_stream(file, Path::new("-"), &options)
        }
        Wrap::Program(program, suffix) => {
            tool(program).arg("-q").arg("-1").arg(&archive).ok();
            read_tar(&dir.path().join(format!("archive.tar.{suffix}")), &options)
        }
    };
    let image = dir.path().join("image");
    build_clean(&source.unwrap(), &image, &auto());
    let mut compare = everything(4096, 256);
    if sparse == SparseForm::Plain {
        compare.holes = Holes::Ignore;
    }
    plan.expected().assert_same(&mounted(&image), &compare);
}

#[derive(Clone, Copy)]
enum Wrap {
    Nothing,
    Stream,
    Program(&'static str, &'static str),
}

fn tar_spec() -> TortureSpec {
    TortureSpec {
        entries_in_one_dir: 500,
        subdirs_in_one_dir: 50,
        ..spec(4096, 256, false)
    }
}

#[test]
fn tar_keeps_everything_in_every_way_of_writing_holes() {
    require!(KernelExt4);
    let spec = tar_spec();
    through_tar(&spec, TarForm::Pax, SparseForm::Pax01, Wrap::Nothing);
    through_tar(&spec, TarForm::Pax, SparseForm::Pax10, Wrap::Stream);
    through_tar(&spec, TarForm::Gnu, SparseForm::OldGnu, Wrap::Nothing);
}

#[test]
fn compressed_tar_keeps_everything() {
    require!(KernelExt4);
    let spec = TortureSpec {
        sparse_file_bytes: 5_000_000,
        ..tar_spec()
    };
    let gzip = Wrap::Program("gzip", "gz");
    let zstd = Wrap::Program("zstd", "zst");
    through_tar(&spec, TarForm::Pax, SparseForm::Plain, gzip);
    through_tar(&spec, TarForm::Pax, SparseForm::Pax10, zstd);
}
