//! Files and directories whose flags ask that changes are durable at once.

use crate::support::Blank;
use extant::{FileFlags, Filesystem, MountOptions, OpenSpec};

/// What a crash would leave now.
fn after_a_crash(image: &Blank) -> Filesystem {
    let copy = image.path().with_extension("crash");
    std::fs::copy(image.path(), &copy).unwrap();
    Filesystem::open(&copy).unwrap()
}

#[test]
fn what_is_done_to_a_synchronous_file_or_directory_is_durable_when_it_is_done() {
    let image = Blank::new(16);
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_spec(&OpenSpec::read_write(image.path()), options).unwrap();
    let none = FileFlags::empty();
    for (name, file, dir) in [
        ("asks", FileFlags::SYNC, FileFlags::DIR_SYNC),
        ("does-not", none, none),
    ] {
        fs.create_dir(name).unwrap();
        fs.set_flags(name, dir, none).unwrap();
        fs.write(format!("{name}-file"), "old").unwrap();
        fs.set_flags(format!("{name}-file"), file, none).unwrap();
    }
    fs.sync().unwrap();

    let write = |name: &str| {
        let mut options = extant::OpenOptions::new();
        let file = options
            .write(true)
            .open(&fs, format!("{name}-file"))
            .unwrap();
        file.write_all_at(b"new", 0).unwrap();
    };
    write("does-not");
    fs.create_dir("does-not/sub").unwrap();
    let seen = after_a_crash(&image);
    assert_eq!(seen.read("does-not-file").unwrap(), b"old");
    assert!(!seen.exists("does-not/sub").unwrap());

    write("asks");
    assert_eq!(after_a_crash(&image).read("asks-file").unwrap(), b"new");
    fs.set_permissions("asks-file", 0o600).unwrap();
    let seen = after_a_crash(&image);
    assert_eq!(
        seen.metadata("asks-file").unwrap().mode().permissions(),
        0o600
    );
    fs.create_dir("asks/sub").unwrap();
    assert!(after_a_crash(&image).exists("asks/sub").unwrap());
    fs.rename("asks/sub", "asks/moved").unwrap();
    let seen = after_a_crash(&image);
    assert!(seen.exists("asks/moved").unwrap() && !seen.exists("asks/sub").unwrap());
    fs.remove_dir("asks/moved").unwrap();
    assert!(!after_a_crash(&image).exists("asks/moved").unwrap());
    fs.close().unwrap();
    image.check();
}
