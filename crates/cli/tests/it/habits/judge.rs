//! The ways in which two sides are compared.

use super::{Desk, Side, reading};
use crate::e2fsprogs::VARYING;
use crate::support::seen_by_linux;
use extant_testkit::oracle::{assert_clean, dumpe2fs_header};
use extant_testkit::tool::tool;
use extant_testkit::tree::{Compare, Difference, Tree};
use std::collections::BTreeMap;
use std::path::Path;

/// What is read out of a text.
type Reading = fn(&str) -> String;

/// How two sides are compared.
#[derive(Debug)]
pub(super) enum By {
    /// How they end is the answer.
    Codes,
    /// What they write to standard output is the same.
    Output,
    /// They write the same lines, in an order of their own.
    Lines,
    /// What is read out of what each writes is the same, and something.
    Read(Reading, Reading),
    /// Linux shows the same tree of this image, times apart.
    Tree(&'static str),
    /// Linux shows the same tree of this image as before; ours with times.
    TreeKept(&'static str),
    /// Linux shows the same tree of this image, with times.
    TreeAndTimes(&'static str),
    /// Linux shows the same tree of this image, with the blocks that files have and times apart.
    TreeAndBlocks(&'static str),
    /// These fields of the superblock of this image are the same; without names all are that no
    /// clock or luck decides.
    Fields(&'static str, &'static [&'static str]),
    /// The directory `out` has the same files, times apart.
    Out,
    /// The directory `out` has the same files with owners, modes and times.
    OutAndTimes,
    /// What is read out of what this command line writes on each side is the same, and not what it
    /// was before.
    Asked(&'static str, Reading),
    /// What is read out of what this command line writes is the same on the right as on an
    /// untouched copy, and as on the left.
    AsBefore(&'static str),
}

/// Whether something came of the right side, as far as it was looked at.
#[derive(Default)]
struct Seen {
    something: bool,
}

/// Compares two sides. Something must have come of the right one: output, a file, a change.
pub(super) fn judge(desk: &Desk, by: &[By], left: &Side, right: &Side, what: &str) {
    let mut seen = Seen::default();
    for by in by {
        one(desk, by, left, right, what, &mut seen);
    }
    assert!(seen.something, "{what}\nnothing came of it");
}

fn one(desk: &Desk, by: &By, left: &Side, right: &Side, what: &str, seen: &mut Seen) {
    match *by {
        By::Codes => seen.something = true,
        By::Output => {
            assert_eq!(right.text(), left.text(), "{what}");
            seen.something |= !right.stdout.is_empty();
        }
        By::Lines => {
            let sorted = |side: &Side| {
                let text = side.text();
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(right), sorted(left), "{what}");
            seen.something |= !right.stdout.is_empty();
        }
        By::Read(of_left, of_right) => {
            let (theirs, ours) = (of_left(&left.text()), of_right(&right.text()));
            assert_eq!(ours, theirs, "{what}\n{}\n{}", left.text(), right.text());
            seen.something |= !ours.is_empty();
        }
        By::Tree(image) => tree(desk, image, [left, right], &without_times(), what, seen),
        By::TreeKept(image) => {
            let before = desk.tree(image).expect("an image of the desk");
            // Theirs set times now and then.
            tree_is(left, image, &before, &without_times(), what);
            tree_is(right, image, &before, &Compare::default(), what);
            assert_clean(&right.at(image));
        }
        By::TreeAndTimes(image) => {
            tree(desk, image, [left, right], &Compare::default(), what, seen);
        }
        By::TreeAndBlocks(image) => {
            let compare = Compare {
                blocks: true,
                ..without_times()
            };
            tree(desk, image, [left, right], &compare, what, seen);
        }
        By::Fields(image, names) => fields(desk, image, names, [left, right], what, seen),
        By::Out => out(left, right, &without_times(), what, seen),
        By::OutAndTimes => {
            let compare = Compare {
                root: false,
                ..Compare::default()
            };
            out(left, right, &compare, what, seen);
        }
        By::Asked(line, reading) => {
            let read = |side| asked(desk, line, side, reading);
            let (theirs, ours) = (read(left), read(right));
            assert_eq!(ours, theirs, "{what}\n{line}");
            assert!(!ours.is_empty(), "{what}\n{line} tells nothing");
            let before = desk.types(line);
            let is_told = before.code == 0 && !before.stdout.is_empty();
            seen.something |= !is_told || reading(&before.text()) != ours;
        }
        By::AsBefore(line) => {
            let [theirs, ours] = [left, right].map(|side| asked(desk, line, side, reading::whole));
            let before = desk.types(line);
            assert_eq!(ours, before.text(), "{what}\n{line}");
            assert_eq!(theirs, before.text(), "{what}\n{line}");
            seen.something |= !ours.is_empty();
        }
    }
}

fn told(differences: &[Difference]) -> String {
    let lines = differences.iter().map(|found| format!("\n  {found}"));
    lines.take(20).collect()
}

fn without_times() -> Compare {
    Compare {
        mtime: false,
        ..Compare::default()
    }
}

/// What is read out of what a command line writes on a side, which it may change.
fn asked(desk: &Desk, line: &str, side: &Side, reading: Reading) -> String {
    let (code, stdout, stderr) = desk.shell(line, side.place.path());
    assert_eq!(code, 0, "{line}: {stderr}");
    reading(&String::from_utf8_lossy(&stdout))
}

/// Compares what Linux shows of an image. Ours must be sound, and no longer be what it was.
fn tree(
    desk: &Desk,
    image: &str,
    [left, right]: [&Side; 2],
    compare: &Compare,
    what: &str,
    seen: &mut Seen,
) {
    assert_clean(&right.at(image));
    let theirs = seen_by_linux(&left.arg(image));
    let ours = seen_by_linux(&right.arg(image));
    let differences = theirs.diff(&ours, compare);
    assert!(
        differences.is_empty(),
        "{what}\n{image}: {}",
        told(&differences)
    );
    seen.something |= match desk.tree(image) {
        Some(before) => !before.diff(&ours, compare).is_empty(),
        None => !ours.is_empty(),
    };
}

/// Expects that Linux shows this tree.
fn tree_is(side: &Side, image: &str, expected: &Tree, compare: &Compare, what: &str) {
    let is = seen_by_linux(&side.arg(image));
    let differences = expected.diff(&is, compare);
    assert!(
        differences.is_empty(),
        "{what}\n{image}: {}",
        told(&differences)
    );
}

/// Compares fields of superblocks. Ours must be sound, and no longer be what it was.
fn fields(
    desk: &Desk,
    image: &str,
    names: &[&str],
    [left, right]: [&Side; 2],
    what: &str,
    seen: &mut Seen,
) {
    assert_clean(&right.at(image));
    let chosen = |path: &Path| -> BTreeMap<String, String> {
        let mut fields = dumpe2fs_header(path).fields;
        fields.retain(|name, _| match names {
            [] => !VARYING.contains(&&**name),
            names => names.contains(&&**name),
        });
        fields
    };
    let (theirs, ours) = (chosen(&left.at(image)), chosen(&right.at(image)));
    assert_eq!(ours, theirs, "{what}\n{image}");
    assert!(ours.len() >= names.len().max(1), "{what}\n{ours:?}");
    let before = desk.place.join("desk").join(image);
    // Nothing is there yet, or nothing that dumpe2fs reads.
    let is_readable = tool("dumpe2fs").arg("-h").arg(&before).run().code == 0;
    seen.something |= !is_readable || chosen(&before) != ours;
}

fn out(left: &Side, right: &Side, compare: &Compare, what: &str, seen: &mut Seen) {
    let theirs = Tree::snapshot(&left.at("out"));
    let ours = Tree::snapshot(&right.at("out"));
    let differences = theirs.diff(&ours, compare);
    assert!(
        differences.is_empty(),
        "{what}\nout: {}",
        told(&differences)
    );
    // The root of `out` is an entry as well.
    seen.something |= ours.len() > 1;
}
