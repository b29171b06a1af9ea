//! What programs in C do wrong, with everything that watches memory.

use crate::program::{compile, compile_by, libraries};
use extant_testkit::oracle::mke2fs;
use extant_testkit::tool::tool;
use std::path::Path;

fn source() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/misuse.c")
}

#[test]
fn what_a_program_in_c_does_wrong_is_an_error_under_valgrind() {
    let dir = tempfile::tempdir().unwrap();
    let (program, image) = (dir.path().join("misuse"), dir.path().join("disk.img"));
    let library = libraries().join("libextant_capi.a");
    let link = ["-g", library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&source(), &program, &link);
    mke2fs(&image, 8 << 20, &["-t", "ext4"]);
    let checked = tool("valgrind")
        .args(["--quiet", "--error-exitcode=9", "--leak-check=no"])
        .args([&program, &image]);
    assert_eq!(checked.ok().text(), "refused\n");
}

#[test]
fn what_a_program_in_c_does_wrong_is_an_error_under_sanitizers() {
    let dir = tempfile::tempdir().unwrap();
    let (program, image) = (dir.path().join("misuse"), dir.path().join("disk.img"));
    let library = libraries().join("libextant_capi.a");
    let watched = "-fsanitize=address,undefined";
    let link = [
        watched,
        "-fno-sanitize-recover=all",
        library.to_str().unwrap(),
        "-pthread",
        "-ldl",
        "-lm",
    ];
    compile(&source(), &program, &link);
    mke2fs(&image, 8 << 20, &["-t", "ext4"]);
    let done = tool(program.to_str().unwrap()).arg(&image).ok();
    assert_eq!(done.text(), "refused\n");
}

#[test]
fn the_header_is_one_of_c99_and_of_cpp17() {
    let dir = tempfile::tempdir().unwrap();
    let text = "#include \"extant.h\"\n#include \"extant.h\"\nint main() { return extant_version() == 0; }\n";
    for (compiler, standard, name) in [
        ("cc", "-std=c99", "header.c"),
        ("cc", "-std=c17", "header.c"),
        ("c++", "-std=c++17", "header.cc"),
        ("c++", "-std=c++11", "header.cc"),
    ] {
        let source = dir.path().join(name);
        let arguments = if compiler == "cc" { "(void)" } else { "()" };
        let text = text
            .replace("()", arguments)
            .replace("version(void)", "version()");
        std::fs::write(&source, text).unwrap();
        compile_by(
            compiler,
            standard,
            &source,
            &dir.path().join("out"),
            &["-c"],
        );
    }
}
