//! Images that get their names, whatever others do meanwhile.

use super::*;
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;

type Other = Box<dyn FnOnce()>;

thread_local! {
    /// What another program does before a file gets its name back.
    static MEANWHILE: Cell<Option<Other>> = const { Cell::new(None) };
}

pub(super) fn meanwhile() {
    if let Some(other) = MEANWHILE.take() {
        other();
    }
}

fn names(dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(dir).expect("a directory");
    entries.map(|e| e.expect("an entry").file_name()).collect()
}

#[test]
fn an_image_replaces_the_old_one_when_it_is_complete_with_and_without_a_name_before() {
    for unnamed in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let make = |mode| {
            let replaces = Replaces::what_is_at(&path);
            Output::create_new(path.clone(), mode, 8192, replaces, unnamed).expect("room")
        };
        drop(make(None));
        assert!(names(dir.path()).is_empty());
        make(None).commit().expect("a new name");
        fs::write(&path, "old").expect("a file");
        drop(make(None));
        assert_eq!(fs::read(&path).expect("the old file"), b"old");
        let mode = Some(fs::Permissions::from_mode(0o640));
        make(mode).commit().expect("the old name");
        assert_eq!(fs::read(&path).expect("the image"), [0; 8192]);
        let found = fs::metadata(&path).expect("the image");
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        assert_eq!(names(dir.path()), ["image"]);
    }
}

#[test]
fn until_it_is_complete_it_has_no_name_where_that_can_be() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let output = Output::create(&dir.path().join("image"), 8192).expect("room");
    assert!(names(dir.path()).is_empty());
    drop(output);
}

#[test]
fn a_file_that_took_the_name_meanwhile_is_left_as_it_is() {
    for unnamed in [true, false] {
        for existed in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("image");
            if existed {
                fs::write(&path, "looked at").expect("a file");
            }
            let seen = Replaces::what_is_at(&path);
            let make = |replaces| Output::create_new(path.clone(), None, 8192, replaces, unnamed);
            let output = make(seen).expect("room");
            let mut other = tempfile::NamedTempFile::new_in(dir.path()).expect("a file");
            io::Write::write_all(&mut other, b"precious").expect("room");
            other.persist(&path).expect("the name");
            let error = output.commit().expect_err("a file in the way");
            assert!(matches!(error, OutputError::Appeared { .. }), "{error}");
            assert_eq!(fs::read(&path).expect("the other file"), b"precious");
            assert_eq!(names(dir.path()), ["image"], "{unnamed} {existed}");
            // Also when it is there before the first byte is written.
            let error = make(seen).expect_err("a file in the way");
            assert!(matches!(error, OutputError::Appeared { .. }), "{error}");
            assert_eq!(fs::read(&path).expect("the other file"), b"precious");
            // A link is what has the name, not the file it leads to.
            let output = make(Replaces::what_is_at(&path)).expect("room");
            let target = dir.path().join("target");
            fs::rename(&path, &target).expect("a rename");
            std::os::unix::fs::symlink("target", &path).expect("a link");
            output.commit().expect_err("a link in the way");
            assert_eq!(fs::read(&target).expect("the other file"), b"precious");
            fs::remove_file(&path).expect("the link");
            // What is gone is not missed.
            fs::rename(&target, &path).expect("a rename");
            let output = make(Replaces::what_is_at(&path)).expect("room");
            fs::remove_file(&path).expect("a file");
            output.commit().expect("a free name");
            assert_eq!(fs::read(&path).expect("the image"), [0; 8192]);
            assert_eq!(names(dir.path()), ["image"]);
        }
    }
}

#[test]
fn no_file_of_others_is_lost_that_took_the_name_before_another_change() {
    for unnamed in [true, false] {
        for replaced in [true, false] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("image");
            fs::write(&path, "looked at").expect("a file");
            let seen = Replaces::what_is_at(&path);
            let output = Output::create_new(path.clone(), None, 8192, seen, unnamed).expect("room");
            let put = |content: &str, path: &Path| {
                let mut file =
                    tempfile::NamedTempFile::new_in(path.with_file_name("")).expect("a file");
                io::Write::write_all(&mut file, content.as_bytes()).expect("room");
                file.persist(path).expect("the name");
            };
            put("precious", &path);
            let at = path.clone();
            MEANWHILE.set(Some(Box::new(move || {
                assert_eq!(fs::read(&at).expect("the image"), [0; 8192]);
                if replaced {
                    put("third", &at);
                } else {
                    fs::remove_file(&at).expect("the image");
                }
            })));
            let error = output.commit().expect_err("a file in the way");
            assert!(MEANWHILE.take().is_none(), "no exchange: {error}");
            assert_eq!(fs::read(&path).expect("the other file"), b"precious");
            if replaced {
                let OutputError::Kept { kept, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!(fs::read(kept).expect("the third file"), b"third");
                let told = error.to_string();
                assert!(told.contains(&kept.display().to_string()), "{told}");
            } else {
                assert!(matches!(error, OutputError::Appeared { .. }), "{error}");
                assert_eq!(names(dir.path()), ["image"], "{unnamed}");
            }
        }
    }
}

#[test]
fn anything_is_replaced_where_that_is_asked_for_unless_it_is_in_use() {
    for unnamed in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let make = || {
            Output::create_new(path.clone(), None, 8192, Replaces::Anything, unnamed).expect("room")
        };
        let output = make();
        fs::write(&path, "appeared").expect("a file");
        output.commit().expect("the name");
        assert_eq!(fs::read(&path).expect("the image"), [0; 8192]);
        let output = make();
        fs::remove_file(&path).expect("a file");
        fs::write(&path, "in use").expect("a file");
        let file = fs::File::open(&path).expect("the file");
        let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::flock(&file, lock).expect("a lock");
        let error = output.commit().expect_err("a file in use");
        assert!(error.to_string().contains("in use"), "{error}");
        assert_eq!(fs::read(&path).expect("the file"), b"in use");
        assert_eq!(names(dir.path()), ["image"]);
    }
}
