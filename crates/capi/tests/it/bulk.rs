//! A program in C that is told about all files at once.

use crate::program::{compile, libraries};
use extant_testkit::oracle::{debugfs_write, dumpe2fs_header, mke2fs};
use extant_testkit::tool::tool;
use std::fs;
use std::path::Path;

#[test]
fn a_program_in_c_is_told_about_all_files_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (program, image) = (path("bulk"), path("disk.img"));
    let library = libraries().join("libextant_capi.a");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/bulk.c");
    let watched = "-fsanitize=address,undefined";
    let link = [
        watched,
        "-fno-sanitize-recover=all",
        library.to_str().unwrap(),
        "-pthread",
        "-ldl",
        "-lm",
    ];
    compile(&source, &program, &link);
    for n in 0..900 {
        let below = path(&format!("tree/{}", n % 7));
        fs::create_dir_all(&below).unwrap();
        fs::write(below.join(n.to_string()), vec![0; n]).unwrap();
    }
    fs::hard_link(path("tree/0/0"), path("tree/one more")).unwrap();
    let tree = path("tree");
    mke2fs(
        &image,
        64 << 20,
        &["-t", "ext4", "-N", "2000", "-d", tree.to_str().unwrap()],
    );
    let bulk = |arguments: &[&str]| {
        let program = tool(program.to_str().unwrap()).arg(&image);
        program.args(arguments).ok().text()
    };
    let dump = dumpe2fs_header(&image);
    // Of the reserved ones those are told that are in use: the root, the inode for resizing and
    // that of the journal. The first that is not reserved is lost+found.
    let used = dump.number("Inode count") - dump.number("Free inodes");
    let expected = format!("inodes {} names 910\n", used - 10 + 3);
    for (threads, flags) in [("1", "0"), ("2", "0"), ("2", "1"), ("0", "0")] {
        assert_eq!(bulk(&[threads, flags]), expected, "{threads} {flags}");
    }
    // One that cannot be read is an error, and keeps nobody from the others.
    debugfs_write(&image, &["sif /3/101 checksum 1"]);
    let said = bulk(&["broken"]);
    assert!(
        said.starts_with("error 74 kind 4") || said.starts_with("error 117 kind 4"),
        "{said}"
    );
    let expected = format!("told {} failed 1\n", used - 10 + 2);
    assert!(said.ends_with(&expected), "{said}");
}
