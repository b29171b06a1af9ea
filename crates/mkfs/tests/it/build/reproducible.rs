//! A source gives the same bytes each time, whatever program reads it, in whatever order.

use super::*;
use extant_mkfs::source::{Normalisation, TimePolicy};
use extant_testkit::plan::TreePlan;
use extant_testkit::require;
use extant_testkit::torture::{TortureSpec, random_plan};
use std::io::Read;

/// A plan made in another order: the last names first, hard links at the end.
fn backwards(plan: &TreePlan) -> TreePlan {
    let depth = |path: &[u8]| path.iter().filter(|&&b| b == b'/').count();
    let mut nodes: Vec<_> = plan.nodes().iter().skip(1).collect();
    nodes.sort_by(|a, b| {
        let link = |n: &extant_testkit::plan::Node| matches!(n.kind, NodeKind::HardLink(_));
        (link(a), depth(&a.path))
            .cmp(&(link(b), depth(&b.path)))
            .then_with(|| b.path.cmp(&a.path))
    });
    let mut other = TreePlan::new();
    *other.node_mut("") = plan.nodes()[0].clone();
    for node in nodes {
        match &node.kind {
            NodeKind::HardLink(target) => other.hard_link(node.path.clone(), target.clone()),
            kind => *other.special(node.path.clone(), kind.clone()) = node.clone(),
        }
    }
    other
}

fn same_bytes(left: &Path, right: &Path) -> bool {
    let open = |path| std::fs::File::open(path).unwrap();
    let (mut a, mut b) = (open(left), open(right));
    if a.metadata().unwrap().len() != b.metadata().unwrap().len() {
        return false;
    }
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = a.read(&mut x).unwrap();
        b.read_exact(&mut y[..n]).unwrap();
        if x[..n] != y[..n] {
            return false;
        }
        if n == 0 {
            return true;
        }
    }
}

/// Scans, normalises and builds as `SOURCE_DATE_EPOCH` asks for.
fn build_reproducibly(root: &Path, image: &Path, threads: usize) {
    let mut tree = scan(root);
    tree.normalise(&Normalisation {
        times: TimePolicy::Clamp(Timestamp::from_secs(TIME as i64)),
        ..Normalisation::default()
    });
    let options = BuildOptions::new(
        FormatOptions::reproducible(0, TIME, &tree.fingerprint()),
        Size::Auto(Headroom::Percent(5.0)),
    )
    .threads(NonZero::new(threads));
    try_build(&tree, image, &options).unwrap();
}

#[test]
fn threads_and_the_order_of_the_source_leave_no_trace() {
    require!(Root, TmpfsXattrs);
    let dir = scratch();
    let plan = TortureSpec {
        entries_in_one_dir: 800,
        subdirs_in_one_dir: 100,
        sparse_file_bytes: 3 << 20,
        ..TortureSpec::small()
    }
    .plan();
    let first = planted(&plan, dir.path(), "first");
    let second = planted(&backwards(&plan), dir.path(), "second");
    let image = |name: &str| dir.path().join(name);
    build_reproducibly(&first, &image("one"), 1);
    oracle::assert_clean(&image("one"));
    build_reproducibly(&first, &image("two"), 2);
    assert!(same_bytes(&image("one"), &image("two")), "2 threads");
    build_reproducibly(&second, &image("seven"), 7);
    assert!(
        same_bytes(&image("one"), &image("seven")),
        "7 threads, another order"
    );

    let leaf = second.join("links/a/file");
    let earlier = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_400_000_000);
    let file = std::fs::File::options().write(true).open(leaf).unwrap();
    file.set_modified(earlier).unwrap();
    drop(file);
    build_reproducibly(&second, &image("changed"), 7);
    assert!(
        !same_bytes(&image("one"), &image("changed")),
        "a changed time must show"
    );
}

#[test]
fn an_archive_and_a_stream_of_it_give_the_same_image() {
    use extant_mkfs::source::{TarOptions, read_tar, read_tar_stream};
    use extant_testkit::plan::{SparseForm, TarForm};
    let dir = scratch();
    let mut archive = Vec::new();
    random_plan(7, 300)
        .write_tar(&mut archive, TarForm::Pax, SparseForm::Pax10)
        .unwrap();
    let path = dir.path().join("archive");
    std::fs::write(&path, &archive).unwrap();
    let mut options = TarOptions::default();
    options.spool_dir = dir.path().to_owned();
    let build = |tree: Tree, name: &str| {
        let image = dir.path().join(name);
        try_build(&tree, &image, &auto()).unwrap();
        image
    };
    let read = build(read_tar(&path, &options).unwrap(), "read");
    let streamed =
        read_tar_stream(std::io::Cursor::new(archive), Path::new("-"), &options).unwrap();
    assert!(same_bytes(&read, &build(streamed, "streamed")));
}
