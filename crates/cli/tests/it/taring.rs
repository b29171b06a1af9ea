//! `tar`: archives that other programs read.

use crate::support::{Place, as_mke2fs_keeps, extant, faithful, on_a_terminal, small_plan};
use extant_testkit::plan::{Content, NodeKind, TarForm, TreePlan};
use extant_testkit::require;
use extant_testkit::tool::tool;
use extant_testkit::torture::TortureSpec;
use extant_testkit::tree::{Compare, Tree};

/// Extracts with the system's tar and compares.
fn assert_extracts(place: &Place, archive: &str, plan: &TreePlan, compare: &Compare) {
    let back = place.join("back");
    std::fs::create_dir(&back).unwrap();
    tool("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--numeric-owner",
        ])
        .args(["-xpf", archive, "-C"])
        .arg(&back)
        .ok();
    plan.expected().assert_same(&Tree::snapshot(&back), compare);
}

#[test]
fn the_system_tar_reads_back_a_torture_tree() {
    require!(Root, KernelExt4, TmpfsXattrs);
    let place = Place::in_memory();
    let plan = TortureSpec::small().for_image(4096, 256, false).plan();
    let plan = plan.kept_by(TarForm::Pax);
    let image = place.kernel_image(&plan, 512 << 20, &[]);
    let archive = place.arg("out.tar");
    extant(["tar", &image, "-o", &archive]).ok();
    assert_extracts(&place, &archive, &plan, &faithful());
}

#[test]
fn archives_are_the_same_every_time_and_on_standard_output() {
    let place = Place::in_memory();
    let plan = small_plan();
    let image = place.image(&plan, &[]);
    let once = extant(["tar", &image]).ok().stdout;
    let again = extant(["tar", &image]).ok().stdout;
    assert!(once == again);
    assert_eq!(once.len() % 10_240, 0);
    extant(["tar", &image, "-o", &place.arg("out.tar")]).ok();
    assert!(std::fs::read(place.join("out.tar")).unwrap() == once);
    assert_extracts(&place, &place.arg("out.tar"), &plan, &as_mke2fs_keeps());
}

#[test]
fn an_archive_does_not_go_to_a_terminal() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let said = on_a_terminal(&["tar", &image]);
    assert!(
        said.starts_with("extant: an archive does not belong"),
        "{said:?}"
    );
    assert!(said.contains("-o"), "{said:?}");
}

#[test]
fn a_part_of_an_image_is_named_from_there_on() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let list = |path: &str| {
        extant([
            "tar",
            &format!("{image}:{path}"),
            "-o",
            &place.arg("part.tar"),
        ])
        .ok();
        tool("tar")
            .args(["-tf", &place.arg("part.tar")])
            .ok()
            .text()
    };
    assert_eq!(list("/etc"), "./\n.hidden\nabsolute\nhostname\nlink\nup\n");
    assert_eq!(list("/etc/hostname"), "hostname\n");
}

#[test]
fn long_names_targets_and_large_numbers_survive() {
    require!(Root);
    let place = Place::in_memory();
    let mut plan = TreePlan::new();
    let long = "n".repeat(255);
    plan.dir(long.clone());
    plan.file(format!("{long}/{long}"), Content::filled(1, 1000))
        .owner(3_000_000_000, 4_000_000_000)
        .time(-1_000_000_000, 5);
    plan.symlink("link", "t".repeat(900));
    plan.hard_link("hard", format!("{long}/{long}"));
    plan.special("null", NodeKind::CharDevice(1, 3));
    let image = place.image(&plan, &[]);
    extant(["tar", &image, "-o", &place.arg("out.tar")]).ok();
    assert_extracts(&place, &place.arg("out.tar"), &plan, &as_mke2fs_keeps());
}

#[test]
fn a_socket_is_reported_because_tar_cannot_hold_it() {
    require!(KernelExt4);
    let place = Place::new();
    let mut plan = TreePlan::new();
    plan.special("socket", NodeKind::Socket);
    plan.file("file", Content::filled(1, 10));
    let image = place.kernel_image(&plan, 16 << 20, &[]);
    let run = extant(["tar", &image, "-o", &place.arg("out.tar")]).fails(1);
    assert!(run.stderr.contains("socket was left out"), "{}", run.stderr);
}
