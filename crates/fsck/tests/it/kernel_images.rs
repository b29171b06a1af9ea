//! Images that the kernel filled, closed or not.

use crate::support::{check, problems};
use extant_testkit::facility::is_full_run;
use extant_testkit::images::corpus;
use extant_testkit::{oracle, require, tool::tool};

#[test]
fn what_the_kernel_writes_is_clean_also_after_a_crash() {
    require!(KernelExt4);
    let mut wrong = String::new();
    // An image costs seconds: an ordinary run takes every fourth.
    let step = if is_full_run() { 1 } else { 4 };
    for spec in corpus().into_iter().step_by(step) {
        let image = spec.build();
        let path = image.path();
        let report = check(path, false);
        if !report.is_clean() {
            wrong.push_str(&format!("{}:\n{}", spec.name, problems(&report)));
        }
        if spec.dirty {
            let as_is = check(path, true);
            let theirs = oracle::e2fsck(path, &["-fn"]);
            if as_is.is_clean() != (theirs.code == 0) {
                let ours = problems(&as_is);
                wrong.push_str(&format!("{} as it is:\n{ours}{theirs}\n", spec.name));
            }
            let copy = path.with_extension("recovered");
            tool("cp").arg("--sparse=always").arg(path).arg(&copy).ok();
            oracle::e2fsck_recover(&copy).unwrap();
            let report = check(&copy, false);
            if !report.is_clean() {
                let ours = problems(&report);
                wrong.push_str(&format!("{} recovered:\n{ours}", spec.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
