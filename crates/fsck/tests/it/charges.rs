//! Attribute values in inodes of their own, as files are charged for them: what e2fsck counts is
//! what the check counts, and what a repair writes.

use crate::support::{assert_clean, check, problems};
use extant_blockdev::OpenSpec;
use extant_fsck::{Code, repair};
use extant_testkit::oracle::{self, debugfs, debugfs_write, e2fsck};
use extant_testkit::require;
use std::os::unix::fs::chown;
use std::path::Path;

const FORMS: [&[&str]; 3] = [
    &["-b", "1024", "-I", "256", "-O", "quota,project,ea_inode"],
    &[
        "-b",
        "1024",
        "-I",
        "128",
        "-O",
        "quota,ea_inode,^metadata_csum",
    ],
    &[
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "quota,ea_inode,bigalloc",
        "-C",
        "8192",
    ],
];

/// Files of several owners; some have the same large values, and those of the last two in a block
/// that they share.
fn plant(tree: &Path) {
    let flags = rustix::fs::XattrFlags::empty();
    for n in 0..6_u8 {
        let file = tree.join(format!("f{n}"));
        std::fs::write(&file, vec![n; 900 * usize::from(n)]).unwrap();
        chown(&file, Some(10 + u32::from(n)), Some(50)).unwrap();
        let set = |name: &str, value: &[u8]| {
            rustix::fs::setxattr(&file, name, value, flags).expect("the machine keeps attributes");
        };
        match n {
            0 => {}
            1 | 2 => set("user.large", &[n; 3000]),
            3 => {
                set("user.large", &[1; 3000]);
                set("user.small", &[3; 200]);
            }
            _ => {
                set("user.first", &[7; 2000]);
                set("user.then", &[8; 1800]);
            }
        }
    }
}

/// What the quota files say of each owner that uses something, as debugfs lists it.
fn listed(image: &Path) -> Vec<String> {
    let kinds = ["user", "group"].into_iter();
    let rows = kinds.flat_map(|kind| {
        let text = debugfs(image, &format!("list_quota {kind}"));
        let rows = text.lines().skip(1).map(|row| {
            let fields: Vec<&str> = row.split_whitespace().collect();
            fields.join(" ")
        });
        let rows = rows.filter(|row| !row.ends_with(" 0 0 0 0 0 0"));
        rows.map(|row| format!("{kind} {row}")).collect::<Vec<_>>()
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn values_in_inodes_are_charged_as_e2fsck_charges_them() {
    require!(Root);
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    plant(&tree);
    for form in FORMS {
        let image = dir.path().join("image");
        let mut options = vec!["-t", "ext4", "-q", "-F", "-d", tree.to_str().unwrap()];
        options.extend(form);
        oracle::mke2fs(&image, 24 << 20, &options);
        // mke2fs counts before it fills.
        assert!(e2fsck(&image, &["-fy"]).code <= 1);
        oracle::assert_clean(&image);
        assert_clean(&format!("{form:?}"), &check(&image, false));
        // Each owner of one file gives it to one that has another, and the counts stay as they are.
        let given = ["sif f1 uid 12", "sif f3 uid 10", "sif f5 uid 14"];
        debugfs_write(&image, &given);
        assert_eq!(e2fsck(&image, &["-fn"]).code, 4);
        let report = check(&image, false);
        let usages = report.findings.iter();
        let usages = usages.filter(|finding| finding.code == Code::QuotaUsage);
        assert_eq!(usages.count(), 6, "{form:?}: {}", problems(&report));
        let theirs = dir.path().join("theirs");
        std::fs::copy(&image, &theirs).unwrap();
        assert_eq!(e2fsck(&theirs, &["-fy"]).code, 1);
        let device = OpenSpec::read_write(&image).open().unwrap();
        let plan = repair::plan(device, repair::Options::default(), &()).unwrap();
        plan.apply().unwrap();
        let expected = listed(&theirs);
        // Two files, and a value each.
        let is_whole = |row: &String| {
            let fields: Vec<&str> = row.split(' ').collect();
            fields.starts_with(&["user", "12"]) && fields.get(5) == Some(&"4")
        };
        assert!(expected.iter().any(is_whole), "{expected:?}");
        assert_eq!(listed(&image), expected, "{form:?}");
        oracle::assert_clean(&image);
        assert_clean(&format!("{form:?}, repaired"), &check(&image, false));
    }
}
