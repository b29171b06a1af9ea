//! A plan is the same tree whichever way it is made.

use std::fs;
use std::path::Path;

use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::plan::{Content, SparseForm, TarForm, TreePlan};
use extant_testkit::rng::seed_from_env;
use extant_testkit::tool::tool;
use extant_testkit::torture::{TortureSpec, random_plan};
use extant_testkit::tree::{Compare, Holes, Time, Tree};
use extant_testkit::{oracle, require};

fn faithful() -> Compare {
    Compare {
        holes: Holes::Same(4096),
        ..Compare::default()
    }
}

#[test]
fn the_torture_tree_survives_a_copy_into_a_kernel_file_system() {
    require!(KernelExt4, TmpfsXattrs);
    let plan = TortureSpec {
        big_xattrs: true,
        ..TortureSpec::small()
    }
    .plan();
    let source = tempfile::tempdir_in("/dev/shm").unwrap();
    plan.plant(source.path());
    let planted = Tree::snapshot(source.path());
    plan.expected().assert_same(&planted, &faithful());

    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("torture.ext4");
    oracle::mke2fs(
        &image,
        256 << 20,
        &["-t", "ext4", "-b", "4096", "-O", "ea_inode", "-N", "20000"],
    );
    let mount = KernelMount::mount(&image, Mode::ReadWrite, "");
    let source_dot = source.path().join(".");
    tool("cp")
        .args(["-a", "--sparse=auto"])
        .arg(source_dot)
        .arg(mount.path())
        .ok();
    mount.unmount();
    oracle::assert_clean(&image);
    let mount = KernelMount::mount(&image, Mode::ReadOnly, "");
    let copied = Tree::snapshot(mount.path());
    // A copier may write a short hole at the end as zeros.
    let mut compare = faithful();
    compare.ignore.push(b"holes/short-tail".to_vec());
    planted.assert_same(&copied, &compare);
}

#[test]
fn an_unprivileged_plan_needs_no_root() {
    let plan = TortureSpec {
        entries_in_one_dir: 50,
        ..TortureSpec::small()
    }
    .plan()
    .unprivileged();
    let dir = tempfile::tempdir().unwrap();
    plan.plant(dir.path());
    let compare = Compare {
        holes: Holes::NoneLost(4096),
        ..Compare::default()
    };
    plan.expected()
        .assert_same(&Tree::snapshot(dir.path()), &compare);
}

fn extract(archive: &Path, into: &Path, flags: &[&str]) {
    let flags = [&["--warning=no-timestamp"], flags].concat();
    tool("tar")
        .arg("-xpf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .args(flags)
        .ok();
}

#[test]
fn gnu_tar_reads_what_a_plan_writes() {
    require!(Root, TmpfsXattrs);
    let spec = TortureSpec {
        sparse_file_bytes: (2 << 30) + 4096 + 7,
        entries_in_one_dir: 200,
        subdirs_in_one_dir: 20,
        longest_path: 2000,
        ..TortureSpec::small()
    };
    let forms = [
        (TarForm::Pax, SparseForm::Pax10),
        (TarForm::Pax, SparseForm::Pax01),
        (TarForm::Gnu, SparseForm::OldGnu),
    ];
    for (form, sparse) in forms {
        let plan = spec.plan().kept_by(form);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let archive = dir.path().join("archive.tar");
        let mut out = std::io::BufWriter::new(fs::File::create(&archive).unwrap());
        plan.write_tar(&mut out, form, sparse).unwrap();
        drop(out);
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let flags = [
            "--numeric-owner",
            "--xattrs",
            "--xattrs-include=*",
            "--same-owner",
        ];
        extract(&archive, &root, &flags);
        let mut expected = plan.expected();
        let mut found = Tree::snapshot(&root);
        // GNU tar sets a directory's time when it leaves it, and these get links later.
        for tree in [&mut expected, &mut found] {
            for dir in ["links/a", "links/b"] {
                tree.entries.get_mut(dir.as_bytes()).unwrap().mtime = Time::default();
            }
        }
        println!("{form:?} {sparse:?}");
        let compare = Compare {
            holes: Holes::NoneLost(4096),
            whole_seconds: form == TarForm::Gnu,
            ..Compare::default()
        };
        expected.assert_same(&found, &compare);
    }
}

#[test]
fn holes_can_be_written_as_zeros() {
    let mut plan = TreePlan::new();
    plan.file("f", Content::sparse(5, 100_000, [(10, 20), (50_000, 4096)]));
    let plan = plan.unprivileged();
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive.tar");
    plan.write_tar(
        &mut fs::File::create(&archive).unwrap(),
        TarForm::Gnu,
        SparseForm::Plain,
    )
    .unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    extract(&archive, &root, &[]);
    let compare = Compare {
        whole_seconds: true,
        ..Compare::default()
    };
    plan.expected()
        .assert_same(&Tree::snapshot(&root), &compare);
}

#[test]
fn random_plans_repeat_by_seed_and_survive_planting() {
    let seed = seed_from_env("random_plans_repeat_by_seed_and_survive_planting");
    let tree = random_plan(seed, 400).expected();
    assert_eq!(tree, random_plan(seed, 400).expected());
    let plan = random_plan(seed, 400).unprivileged();
    let dir = tempfile::tempdir().unwrap();
    plan.plant(dir.path());
    plan.expected()
        .assert_same(&Tree::snapshot(dir.path()), &Compare::default());
}
