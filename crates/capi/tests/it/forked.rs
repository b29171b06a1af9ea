//! Processes that a program in C forks after it has used the library.

use crate::program::{compile, libraries};
use extant_testkit::nginx::Nginx;
use extant_testkit::oracle::{assert_clean, mke2fs};
use extant_testkit::tool::tool;
use std::path::Path;

#[test]
fn a_forked_process_works_as_the_one_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/forked.c");
    let library = libraries().join("libextant_capi.a");
    let link = [library.to_str().unwrap(), "-pthread", "-ldl", "-lm"];
    compile(&source, &path("forked"), &link);
    // So many directories and groups that they are handed out to threads.
    for number in 0..40 {
        let dir = path(&format!("tree/{number}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), "text").unwrap();
    }
    let groups = ["-t", "ext4", "-b", "1024", "-g", "1024"];
    mke2fs(&path("disk.img"), 16 << 20, &groups);
    // Requests of a process have a thread of their own.
    let server = Nginx::start();
    let image = path("disk.img");
    server.put("disk.img", &std::fs::read(&image).unwrap());
    for image in [image.to_str().unwrap(), &server.url("disk.img")] {
        std::fs::create_dir(path("made")).unwrap();
        let program = tool(path("forked").to_str().unwrap()).arg(image);
        let done = program.args(&[path("tree"), path("made")]).ok();
        assert_eq!(done.text(), "done\n");
        let made: Vec<_> = std::fs::read_dir(path("made")).unwrap().collect();
        assert_eq!(made.len(), 3);
        for image in made {
            assert_clean(&image.unwrap().path());
        }
        std::fs::remove_dir_all(path("made")).unwrap();
    }
}
