//! A program in C, linked in both ways.

use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use std::path::{Path, PathBuf};

/// What the example prints, apart from the order of the names.
const OUTPUT: &[&str] = &[
    "attribute: user.origin",
    "entry: link 120000",
    "entry: log.1 100000",
    "entry: thread-0 100000",
    "entry: thread-1 100000",
    "entry: thread-2 100000",
    "entry: thread-3 100000",
    "error: /tour/missing: no such file or directory",
    "error: NULL was passed where a handle is needed",
    "link: log",
    "log: 8 bytes, the last line at 4",
    "log: size 8, mode 100644",
    "read: two",
];

/// Where cargo has put the libraries: beside this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles the example, runs it on a new image, by itself or by the program `under` with its
/// arguments, and looks what became of that.
fn tour(link: &[&str], under: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let (program, image) = (dir.path().join("tour"), dir.path().join("disk.img"));
    tool("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(here.join("include"))
        .arg(here.join("examples/tour.c"))
        .arg("-o")
        .arg(&program)
        .args(link)
        .ok();
    mke2fs(&image, 64 << 20, &["-t", "ext4"]);
    let program = program.to_str().unwrap();
    let command = match under {
        [] => tool(program),
        [first, arguments @ ..] => tool(first).args(arguments).arg(program),
    };
    let output = command.arg(&image).ok().text();
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, OUTPUT);
    assert_clean(&image);
    let fs = extant::Filesystem::open(&image).unwrap();
    assert_eq!(fs.read("/tour/log.1").unwrap(), b"one\ntwo\n");
    assert_eq!(fs.read("/tour/thread-2").unwrap(), b"written by thread 2\n");
}

#[test]
fn a_program_in_c_uses_the_shared_library() {
    let dir = libraries();
    let dir = dir.to_str().unwrap();
    let link = [
        "-L",
        dir,
        &format!("-Wl,-rpath,{dir}"),
        "-lextant_capi",
        "-pthread",
    ];
    tour(&link, &[]);
}

#[test]
fn a_program_in_c_uses_the_static_library() {
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    tour(&link, &[]);
}

#[test]
fn a_program_in_c_runs_under_valgrind_which_finds_nothing() {
    let dir = libraries();
    let dir = dir.to_str().unwrap();
    let path = format!("-Wl,-rpath,{dir}");
    let link = ["-g", "-L", dir, &path, "-lextant_capi", "-pthread"];
    // What it finds makes it fail; what is kept for good it does not look for.
    let checked = [
        "valgrind",
        "--quiet",
        "--error-exitcode=9",
        "--leak-check=no",
    ];
    tour(&link, &checked);
}
