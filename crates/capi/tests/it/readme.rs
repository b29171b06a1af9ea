//! The lines of C in the README of the project.

use crate::program::{compile, libraries};
use extant_testkit::oracle::{debugfs_write, mke2fs};
use std::path::Path;
use std::process::Command;

#[test]
fn the_lines_of_the_readme_read_a_file() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let (_, rest) = readme.split_once("```c\n").unwrap();
    let (lines, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("lines.c"), dir.path().join("lines"));
    let whole = format!(
        "#include <extant.h>\n#include <stdio.h>\nint main(void) {{\n\
         char text[256];\n{lines}\
         extant_file_close(file);\nreturn extant_close(fs) != 0;\n}}\n"
    );
    std::fs::write(&source, whole).unwrap();
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&source, &program, &link);
    let run = || {
        let output = Command::new(&program).current_dir(dir.path()).output();
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    // Without an image there is a sentence.
    let (code, _, told) = run();
    assert_eq!(code, Some(1));
    assert!(told.contains("rootfs.img"), "{told}");
    let image = dir.path().join("rootfs.img");
    mke2fs(&image, 16 << 20, &["-t", "ext4"]);
    let name = dir.path().join("name");
    std::fs::write(&name, "box\n").unwrap();
    debugfs_write(
        &image,
        &[
            "mkdir /etc",
            &format!("write {} /etc/hostname", name.display()),
        ],
    );
    assert_eq!(run(), (Some(0), "box\n".to_owned(), String::new()));
}
