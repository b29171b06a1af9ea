//! A program in C, linked in both ways.

use extant_testkit::oracle::{assert_clean, debugfs_write, mke2fs};
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
pub(crate) fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles a program.
pub(crate) fn compile(source: &Path, program: &Path, link: &[&str]) {
    compile_by("cc", "-std=c11", source, program, link);
}

/// Compiles a program by this compiler, which takes no warnings.
pub(crate) fn compile_by(
    compiler: &str,
    standard: &str,
    source: &Path,
    program: &Path,
    link: &[&str],
) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    tool(compiler)
        .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .args(link)
        .ok();
}

/// Compiles the example, runs it on a new image, by itself or by the program `under` with its
/// arguments, and looks what became of that.
fn tour(link: &[&str], under: &[&str]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let (program, image) = (dir.path().join("tour"), dir.path().join("disk.img"));
    compile(&here.join("examples/tour.c"), &program, link);
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

#[test]
fn the_five_lines_print_a_file() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&here.join("examples/read.c"), &path("read"), &link);
    // The page has the same.
    let source = std::fs::read_to_string(here.join("examples/read.c")).unwrap();
    let page = std::fs::read_to_string(here.join("man/extant.3")).unwrap();
    let page = page.replace("\\-", "-").replace("\\e", "\\");
    let (_, main) = source.split_once("int main").unwrap();
    assert!(
        page.contains(main.trim_end()),
        "extant(3) has another example"
    );
    std::fs::create_dir_all(path("tree/etc")).unwrap();
    std::fs::write(path("tree/etc/hostname"), "box\n").unwrap();
    let tree = path("tree");
    mke2fs(
        &path("disk.img"),
        8 << 20,
        &["-t", "ext4", "-d", tree.to_str().unwrap()],
    );
    let read = || {
        // Where the image is.
        tool("env").args(["-C", dir.path().to_str().unwrap(), "./read"])
    };
    assert_eq!(read().ok().text(), "box\n");
    std::fs::write(path("disk.img"), vec![1; 1 << 16]).unwrap();
    let refused = read().run();
    assert_eq!(refused.code, 1, "{refused}");
}

/// Opens an image as what the second argument says, and prints what came of it; by options of the
/// first version where there is no second argument.
const SAYS_FORMAT: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include "extant.h"

int main(int argc, char **argv)
{
    struct extant_options options = { .size = sizeof options };
    extant_fs *fs;

    if (argc > 2)
        options.format = argv[2];
    else
        options.size = offsetof(struct extant_options, format);
    int result = extant_open(argv[1], &options, &fs);
    printf("%d %s\n", result, result < 0 ? extant_message() : "open");
    return result < 0 ? 0 : -extant_close(fs);
}
"#;

#[test]
fn a_program_in_c_says_what_an_image_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("says.c"), SAYS_FORMAT).unwrap();
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&path("says.c"), &path("says"), &link);
    mke2fs(&path("disk.img"), 8 << 20, &["-t", "ext4"]);
    let says = |format: Option<&str>| {
        let program = tool(path("says").to_str().unwrap()).arg(path("disk.img"));
        program.args(format).ok().text()
    };
    assert_eq!(says(None), "0 open\n");
    assert_eq!(says(Some("raw")), "0 open\n");
    // It has no mark of one; without formats in the library there is no such word.
    let said = says(Some("qcow2"));
    assert!(said.starts_with('-') && said.contains("qcow2"), "{said}");
    let said = says(Some("vdi"));
    assert!(said.contains("use one of raw"), "{said}");
    // What a guest wrote in front is its own affair, where that is said.
    let disk = std::fs::File::options().write(true).open(path("disk.img"));
    std::os::unix::fs::FileExt::write_all_at(&disk.unwrap(), b"QFI\xfb\0\0\0\x03", 0).unwrap();
    assert_eq!(says(Some("raw")), "0 open\n");
}

/// Opens a damaged image as it is mended, prints what was mended and a file, and whether others are
/// in doubt; without a second argument it opens the image as it lies.
const MENDS: &str = r#"
#include <inttypes.h>
#include <stdio.h>
#include "extant.h"

int main(int argc, char **argv)
{
    struct extant_options options = { .size = sizeof options };
    struct extant_mended mended;
    char content[16] = "";
    extant_file *file;
    extant_fs *fs;

    if (argc > 2)
        options.flags = EXTANT_MEND;
    int result = extant_open(argv[1], &options, &fs);
    if (result < 0) {
        printf("%s\n", extant_message());
        return 1;
    }
    if (extant_mended(fs, &mended) || extant_file_open(fs, "/dir/small", EXTANT_O_READ, 0, &file)) {
        printf("%s\n", extant_message());
        return 1;
    }
    if (extant_file_read(file, content, sizeof content - 1, 0) < 0)
        return 1;
    extant_file_close(file);
    printf("%s, mended: %d, missing: %" PRIu64 ", partial: %" PRIu32 "\n", content, mended.fixes > 0, mended.missing,
           mended.partial);
    printf("in doubt: %d %d\n", extant_is_in_doubt(fs, "/dir/small"), extant_is_in_doubt(fs, "/large"));
    printf("error: %d\n", extant_is_in_doubt(fs, "/none"));
    printf("error: %d\n", extant_mkdir(fs, "/new", 0755));
    if (extant_close(fs))
        return 1;
    options.flags = EXTANT_MEND | EXTANT_WRITABLE;
    result = extant_open(argv[1], &options, &fs);
    printf("error: %d %s\n", result, extant_message());
    return 0;
}
"#;

#[test]
fn a_program_in_c_reads_what_is_mended_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("mends.c"), MENDS).unwrap();
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&path("mends.c"), &path("mends"), &link);
    std::fs::create_dir_all(path("tree/dir")).unwrap();
    std::fs::write(path("tree/dir/small"), "small").unwrap();
    std::fs::write(path("tree/large"), vec![7; 1 << 20]).unwrap();
    let (image, tree) = (path("disk.img"), path("tree"));
    let options = ["-t", "ext4", "-b", "1024", "-d", tree.to_str().unwrap()];
    mke2fs(&image, 64 << 20, &options);
    // The blocks of a file lie where the file system has ended; then the superblock goes.
    debugfs_write(&image, &["sif /large block[5] 99999999"]);
    let disk = std::fs::File::options().write(true).open(&image).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, &[0; 1024], 1024).unwrap();
    drop(disk);
    let before = std::fs::read(&image).unwrap();
    let program = || tool(path("mends").to_str().unwrap()).arg(&image);
    let refused = program().run();
    assert_eq!(refused.code, 1, "{refused}");
    let said = program().arg("mend").ok().text();
    let expected = "small, mended: 1, missing: 0, partial: 0\n\
                    in doubt: 0 1\n\
                    error: -2\n\
                    error: -30\n\
                    error: -22 EXTANT_MEND goes with no other flag: what it opens is only read\n";
    assert_eq!(said, expected);
    assert!(std::fs::read(&image).unwrap() == before, "it was touched");
}
