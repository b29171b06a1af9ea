//! Directories that do not tell upper from lower case: what is made under one spelling is found
//! under all, and `e2fsck`, which folds and hashes names by tables of its own, finds every name
//! where it belongs.

use crate::support::Blank;
use extant::{FileFlags, Filesystem};
use extant_testkit::rng::{Rng, seed_from_env};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Barrier;

/// Spellings of words that are the same.
const WORDS: [&[&str]; 4] = [
    &["plain", "PLAIN", "pLaiN"],
    &["größe", "GRÖSSE", "Gro\u{308}sse", "GRO\u{308}ẞE"],
    &["éclair", "E\u{301}CLAIR", "e\u{301}clair", "ÉCLAIR"],
    &["ΣΊΣΥΦΟΣ", "σίσυφος", "σίσυφοσ"],
];

fn image(encoding: &str) -> Blank {
    let mode = ["-t", "ext4", "-O", "casefold", "-E"];
    Blank::with(32, &[&mode[..], &[encoding, "-b", "1024"]].concat())
}

/// One spelling of the name of that number.
fn spelled(rng: &mut Rng, number: u64) -> String {
    let words = WORDS[number as usize % WORDS.len()];
    let word = words[rng.below(words.len() as u64) as usize];
    let letter = |rng: &mut Rng, letter: char| match rng.below(2) {
        0 => letter.to_ascii_uppercase(),
        _ => letter,
    };
    let name: String = "name".chars().map(|c| letter(rng, c)).collect();
    format!("{name}-{number}-{word}")
}

fn folding(fs: &Filesystem, path: &str) {
    fs.create_dir(path).unwrap();
    fs.set_flags(path, FileFlags::CASEFOLD, FileFlags::empty())
        .unwrap();
}

/// Names as they are written.
fn listed(fs: &Filesystem, path: &str) -> BTreeSet<String> {
    let entries = fs.read_dir(path).unwrap();
    let names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned())
        .filter(|name| name != "." && name != "..")
        .collect();
    let count = names.len();
    let names = BTreeSet::from_iter(names);
    assert_eq!(names.len(), count, "a name is listed twice");
    names
}

#[test]
fn names_are_found_under_every_spelling_and_written_as_they_were_made() {
    let image = image("encoding=utf8");
    let fs = image.open_writable();
    folding(&fs, "/d");
    fs.write("/d/Größe", b"one").unwrap();
    assert_eq!(
        fs.read("/D/größe").unwrap_err().kind(),
        ErrorKind::NotFound,
        "the root tells them apart"
    );
    assert_eq!(fs.read("/d/GRÖSSE").unwrap(), b"one");
    assert_eq!(
        fs.create_dir("/d/grösse").unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    // A new content for the old name.
    fs.write("/d/grösse", b"two").unwrap();
    assert_eq!(listed(&fs, "/d"), BTreeSet::from(["Größe".to_owned()]));
    // Two spellings of one file: as for two links of it, nothing happens.
    fs.rename("/d/größe", "/d/GRÖSSE").unwrap();
    assert_eq!(listed(&fs, "/d"), BTreeSet::from(["Größe".to_owned()]));
    fs.write("/d/other", b"three").unwrap();
    fs.rename("/d/OTHER", "/d/GRÖSSE").unwrap();
    assert_eq!(listed(&fs, "/d"), BTreeSet::from(["Größe".to_owned()]));
    assert_eq!(fs.read("/d/größe").unwrap(), b"three");
    // What is made in it does not tell them apart either.
    fs.create_dir("/d/Sub").unwrap();
    fs.write("/d/SUB/File", b"four").unwrap();
    assert_eq!(fs.read("/d/sub/FILE").unwrap(), b"four");
    let asked = |set, clear| fs.set_flags("/d", set, clear).unwrap_err().kind();
    assert_eq!(
        asked(FileFlags::empty(), FileFlags::CASEFOLD),
        ErrorKind::DirectoryNotEmpty
    );
    // What was known of a directory before it took the flag is not what it says then, nor the other
    // way round.
    fs.create_dir("/e").unwrap();
    assert!(!fs.exists("/e/a").unwrap());
    fs.set_flags("/e", FileFlags::CASEFOLD, FileFlags::empty())
        .unwrap();
    fs.write("/e/A", b"").unwrap();
    assert!(fs.exists("/e/a").unwrap());
    fs.remove_file("/e/a").unwrap();
    assert!(!fs.exists("/e/A").unwrap());
    fs.set_flags("/e", FileFlags::empty(), FileFlags::CASEFOLD)
        .unwrap();
    fs.write("/e/A", b"").unwrap();
    assert!(!fs.exists("/e/a").unwrap());
    // Only where there are names that the flag would change.
    let kept = fs.set_flags("/e", FileFlags::CASEFOLD, FileFlags::empty());
    assert_eq!(kept.unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs.close().unwrap();
    image.check();
}

#[test]
fn many_names_in_any_spelling_are_made_moved_and_removed() {
    let mut rng = Rng::new(seed_from_env("casefolded names"));
    let image = image("encoding=utf8");
    let mut fs = image.open_writable();
    folding(&fs, "/d");
    // The number of a name, and how it is written.
    let mut there: BTreeMap<u64, String> = BTreeMap::new();
    for step in 0..6000_u64 {
        // More are made than removed, and then the other way.
        let (makes, number) = (step % 3000 < 1800, rng.below(1200));
        let path = format!("/d/{}", spelled(&mut rng, number));
        match rng.below(10) {
            0..7 if makes => {
                let made = fs.create_dir(&path).map_err(|e| e.kind());
                match there.entry(number) {
                    Entry::Occupied(_) => {
                        assert_eq!(made, Err(ErrorKind::AlreadyExists), "{path}");
                    }
                    Entry::Vacant(free) => {
                        made.unwrap();
                        free.insert(path[3..].to_owned());
                    }
                }
            }
            0..7 => {
                let removed = fs.remove_dir(&path).map_err(|e| e.kind());
                match there.remove(&number) {
                    Some(_) => removed.unwrap(),
                    None => assert_eq!(removed, Err(ErrorKind::NotFound), "{path}"),
                }
            }
            7 => {
                let other = rng.below(1200);
                let to = format!("/d/{}", spelled(&mut rng, other));
                let moved = fs.rename(&path, &to).map_err(|e| e.kind());
                match there.get(&number) {
                    None => assert_eq!(moved, Err(ErrorKind::NotFound), "{path}"),
                    Some(_) => {
                        moved.unwrap();
                        if number != other {
                            there.remove(&number);
                            // What was there before keeps its spelling.
                            there.entry(other).or_insert_with(|| to[3..].to_owned());
                        }
                    }
                }
            }
            _ => assert_eq!(
                fs.exists(&path).unwrap(),
                there.contains_key(&number),
                "{path}"
            ),
        }
        if step % 1500 == 1499 {
            assert_eq!(listed(&fs, "/d"), there.values().cloned().collect());
            fs.close().unwrap();
            image.check();
            fs = image.open_writable();
        }
    }
    assert!(!there.is_empty());
    fs.close().unwrap();
    image.check();
}

#[test]
fn of_two_who_make_a_name_in_two_spellings_one_makes_it() {
    let image = image("encoding=utf8");
    let fs = image.open_writable();
    folding(&fs, "/d");
    let begin = Barrier::new(2);
    for round in 0..200 {
        let make = |name: String| {
            begin.wait();
            fs.create_dir(format!("/d/{name}")).is_ok()
        };
        let (a, b) = std::thread::scope(|scope| {
            let upper = scope.spawn(|| make(format!("NAME-{round}")));
            let lower = scope.spawn(|| make(format!("name-{round}")));
            (upper.join().unwrap(), lower.join().unwrap())
        });
        assert!(a != b, "round {round}: {a} {b}");
    }
    assert_eq!(listed(&fs, "/d").len(), 200);
    fs.close().unwrap();
    image.check();
}

#[test]
fn names_that_are_not_utf8_are_taken_unless_the_encoding_is_strict() {
    for (encoding, is_strict) in [
        ("encoding=utf8", false),
        ("encoding=utf8,encoding_flags=strict", true),
    ] {
        let image = image(encoding);
        let fs = image.open_writable();
        folding(&fs, "/d");
        let odd = |name: &'static [u8]| Path::new("/d").join(OsStr::from_bytes(name));
        let made = fs.create_dir(odd(b"\xffName"));
        assert_eq!(made.is_err(), is_strict, "{made:?}");
        if let Err(e) = made {
            assert!(e.to_string().contains("UTF-8"), "{e}");
        } else {
            // It stands for its bytes.
            fs.create_dir(odd(b"\xffnAME")).unwrap();
            assert!(!fs.exists(odd(b"\xffname")).unwrap());
        }
        fs.close().unwrap();
        image.check();
    }
}
