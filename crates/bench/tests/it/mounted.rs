//! What programs do on a mount. The command that is measured is the one beside the bench.

use crate::{cases, check_row, refused, rows};
use extant_testkit::require;

#[test]
fn programs_on_a_mount_are_measured_beside_linux_with_what_the_mount_did() {
    require!(KernelExt4, Fuse);
    let rows = rows(&[
        "mounted",
        "--variant",
        "create,create-others,smallfiles,unpack,copy,remove,read-cold,read-again,git-status-again",
        "--against",
        "kernel,device",
        "--peers-only",
        "--files",
        "200",
        "--entries",
        "300",
        "--bytes",
        "1000000",
    ]);
    rows.iter().for_each(check_row);
    let mut expected = Vec::new();
    for (variant, workers) in [
        ("create", &[1, 2][..]),
        ("create-others", &[1, 2]),
        ("smallfiles", &[64]),
        ("unpack", &[1]),
        ("copy", &[1]),
        ("remove", &[1]),
        ("read-cold", &[1]),
        ("read-again", &[1]),
        ("git-status-again", &[1]),
    ] {
        for &workers in workers {
            expected.push(("kernel", variant, workers));
            expected.push(("device", variant, workers));
        }
    }
    assert_eq!(cases(&rows), expected);
    for row in rows.iter().filter(|row| row["side"] == "device") {
        let requests = row["figures"]["requests per operation"].as_f64();
        // What was read once is in the kernel's memory.
        let least = if row["variant"] == "read-again" {
            0.0
        } else {
            0.01
        };
        assert!(requests >= Some(least), "{row}");
        let options = row["options"].as_str().unwrap();
        assert!(options.contains("no_io_uring"), "{row}");
    }
}

#[test]
fn one_program_is_not_several_workers() {
    require!(KernelExt4, Fuse);
    let small = [
        "--entries",
        "300",
        "--bytes",
        "1000000",
        "--image-mib",
        "64",
    ];
    let args = [
        "mounted",
        "--variant",
        "unpack",
        "--workers",
        "2",
        "--peers-only",
    ];
    let said = refused(&[&args[..], &small].concat());
    assert!(
        said.contains("unpack is one program: --workers 1"),
        "{said}"
    );
}
