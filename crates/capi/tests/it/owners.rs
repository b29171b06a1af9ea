//! A program in C that uses access control lists, quotas and walks, judged by Linux or e2fsprogs.

use crate::program::{compile, libraries};
use extant_testkit::oracle::{assert_clean, debugfs, mke2fs};
use extant_testkit::tool::tool;
use std::path::Path;

#[test]
fn a_program_in_c_uses_lists_quotas_and_walks() {
    let dir = tempfile::tempdir().unwrap();
    let (program, image) = (dir.path().join("owners"), dir.path().join("disk.img"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/owners.c");
    let library = libraries().join("libextant_capi.a");
    compile(
        &source,
        &program,
        &[library.to_str().unwrap(), "-pthread", "-ldl", "-lm"],
    );
    let options = [
        "-t",
        "ext4",
        "-O",
        "quota,project",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ];
    mke2fs(&image, 64 << 20, &options);
    let said = tool(program.to_str().unwrap()).arg(&image).ok().text();
    // The permissions of the group are the mask of the list.
    let expected = "0 / 40755\n\
                    1 /lost+found 40700\n\
                    1 /shared 40770\n\
                    2 /shared/below 40755\n\
                    2 /shared/file 100644\n\
                    /shared/file\n";
    assert_eq!(said, expected);
    assert_clean(&image);
    let stat = debugfs(&image, "stat /shared/file");
    assert!(
        stat.contains("User:  1000") && stat.contains("Project:     5"),
        "{stat}"
    );
    // The value is what the system calls carry, with the version in front.
    let value = debugfs(&image, "ea_get -x /shared system.posix_acl_access");
    assert!(value.contains("e8 03 00 00"), "{value}");
    let quota = debugfs(&image, "get_quota user 1000");
    let numbers: Vec<&str> = quota.split_whitespace().collect();
    for number in ["1000", "1024", "2048", "100"] {
        assert!(numbers.contains(&number), "{quota}");
    }
}
