//! The house is tidy, and tidy sees what it should.

use std::path::Path;

use xtask::tidy::{check, check_file, check_rooms};

#[test]
fn the_workspace_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let findings = check(root);
    let list: String = findings.iter().map(|f| format!("\n  {f}")).collect();
    assert!(findings.is_empty(), "{} findings:{list}", findings.len());
}

/// What is found in a file of `crates/core` with this content after the header.
fn found(code: &str) -> Vec<String> {
    let text = format!("//! A file.\n{code}\n");
    check_file("crates/core/src/x.rs", &text)
        .iter()
        .map(|f| f.to_string())
        .collect()
}

#[test]
fn each_rule_finds_its_breach() {
    let cases = [
        ("use std::sync::Mutex;", "std::sync::Mutex"),
        (
            "use std::sync::{\n    Arc,\n    RwLock,\n};",
            "std::sync::RwLock",
        ),
        ("fn f(c: &std::sync::Condvar) {}", "std::sync::Condvar"),
        ("use parking_lot::RawMutex;", "parking_lot"),
        (
            "fn f(a: &AtomicU32) { a.fetch_add(1, Ordering::Relaxed); }",
            "fetch_add",
        ),
        ("fn f(a: &AtomicU32) { a\n  .swap(1, Relaxed); }", "swap"),
        ("fn f() { unsafe { g() } }", "unsafe"),
        ("fn f() { todo!() }", "todo!"),
        ("fn f() { unimplemented!() }", "unimplemented!"),
        ("fn f() { dbg!(1); }", "dbg!"),
        (concat!("// TO", "DO later"), concat!("TO", "DO")),
        (concat!("/* FIX", "ME */"), concat!("FIX", "ME")),
        ("#[test]\n#[ignore = \"slow\"]\nfn f() {}", "ignored test"),
        (
            "fn f() { std::process::Command::new(\"ls\"); }",
            "another program",
        ),
        ("/// The same for inodes.\nfn f() {}", "summary"),
    ];
    for (code, expected) in cases {
        let found = found(code);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{code}: {found:?}"
        );
    }
    let wide = format!("// {}", "word ".repeat(20).trim_end());
    assert_eq!(found(&wide).len(), 1, "width of comments");
    for fits in [
        format!("// {}", "word ".repeat(19)),
        format!("//! | {} |", "word ".repeat(30)),
        format!("// {}", "w".repeat(120)),
        "/// What it is.\n/// The same as that.".to_owned(),
    ] {
        assert_eq!(found(&fits), [] as [&str; 0], "{fits}");
    }
    assert_eq!(found(&"\n".repeat(800)).len(), 1, "file length");
    assert_eq!(
        check_file("crates/core/src/x.rs", "use a;\n").len(),
        1,
        "module header"
    );
}

#[test]
fn adapters_go_through_the_door_of_the_engine() {
    let in_adapter =
        |code: &str| check_file("crates/extant/src/x.rs", &format!("//! A.\n{code}\n"));
    for code in [
        "use extant_core::data;",
        "use extant_core::{Error, dir};",
        "fn f() { extant_core::xattr::get(a, b, c); }",
    ] {
        assert_eq!(in_adapter(code).len(), 1, "{code}");
    }
    assert!(in_adapter("use extant_core::{Error, fs::Fs, inode::Inode, ops};").is_empty());
    assert!(found("use extant_core::data;").is_empty());
}

#[test]
fn words_in_comments_and_strings_break_no_rule() {
    let fine = [
        "// A std::sync::Mutex would be unsafe here.",
        "/* unsafe { todo!() } */",
        "const S: &str = \"unsafe \\\" dbg!\";",
        "const S: &str = r#\"unsafe \" todo!()\"#;",
        "const C: [char; 2] = ['\"', '\\''];\nfn g() {}",
        "fn f<'a>(x: &'a str) -> &'a str { x }",
        "fn f(v: &mut [u8]) { v.swap(0, 1); }",
        "use std::sync::{Arc, OnceLock};",
        "struct S { used: CountedAtomicBool }\nfn f(s: &S) { s.used.swap(true, Relaxed); }",
        "#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}",
    ];
    for code in fine {
        assert_eq!(found(code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn a_room_of_the_engine_names_and_calls_only_what_is_below_it() {
    let found = |files: &[(&str, &str)]| -> Vec<String> {
        let findings = check_rooms(files);
        findings.iter().map(|f| f.to_string()).collect()
    };
    let dir = (
        "dir/add.rs",
        "impl Fs {\n    pub(crate) fn add_name(&self) {}\n}\n",
    );
    // Down is no finding, whether it is named or called.
    let down = "use crate::{Error, meta::Cache};\nfn f(fs: &Fs) {\n    fs.add_name();\n}\n";
    assert_eq!(found(&[dir, ("ops/x.rs", down)]), [] as [&str; 0]);
    let cases = [
        (
            "map/x.rs",
            "use crate::dir::Listing;\n",
            "names something of dir",
        ),
        (
            "map/x.rs",
            "use crate::{Error, dir::{Entry, Form}};\n",
            "names something of dir",
        ),
        (
            "journal/x.rs",
            "fn f(fs: &crate::fs::Fs) {}\n",
            "names something of fs",
        ),
        (
            "map/x.rs",
            "fn f(fs: &Fs) {\n    fs.add_name();\n}\n",
            "calls Fs::add_name of dir",
        ),
        (
            "map/x.rs",
            "fn f() {\n    handle.fs()\n        .add_name();\n}\n",
            "Fs::add_name",
        ),
        (
            "map/x.rs",
            "impl Fs {\n    fn g(&self) {\n        self.add_name();\n    }\n}\n",
            "Fs::add_name",
        ),
        ("alloc/x.rs", "impl Fs {\n}\n", "impl Fs below fs"),
        (
            "map/x.rs",
            "fn f(fs: &Fs) {\n    Fs::add_name(fs);\n}\n",
            "Fs::add_name",
        ),
        (
            "map/x.rs",
            "fn f(fs: &Fs) {\n    fs.add_name::<u8>();\n}\n",
            "Fs::add_name",
        ),
        (
            "map/x.rs",
            "use super::super::dir::Form;\n",
            "names something of dir",
        ),
        (
            "map/mod.rs",
            "use super::dir::Form;\n",
            "names something of dir",
        ),
        (
            "map/tree/x.rs",
            "use super::super::super::dir::Form;\n",
            "names something of dir",
        ),
        (
            "clock.rs",
            "use crate::inode::Inode;\n",
            "names something of inode",
        ),
        ("attic/x.rs", "fn f() {}\n", "without a place"),
    ];
    for (path, code, expected) in cases {
        let found = found(&[dir, (path, code)]);
        assert!(
            found.len() == 1 && found[0].contains(expected),
            "{path}: {code}: {found:?}"
        );
    }
    // A method of another type, defined above it, whose name no other function has.
    let live = ("inode/live.rs", "pub struct Live {}\n");
    let size = (
        "data/cache.rs",
        "impl Live {\n    fn live_size(&self) {}\n}\n",
    );
    let caller = ("map/load.rs", "fn f(l: &Live) {\n    l.live_size();\n}\n");
    let steps = found(&[live, size, caller]);
    assert!(
        steps.len() == 1 && steps[0].contains("Live::live_size"),
        "{steps:?}"
    );
    let other = ("ops/y.rs", "fn live_size() {}\n");
    assert_eq!(found(&[live, size, caller, other]), [] as [&str; 0]);
    // Within a room `super` is its own.
    let own = "use super::lookup;\nuse super::tree::Tree;\n";
    assert_eq!(
        found(&[
            ("map/tree/x.rs", "use super::super::lookup;\n"),
            ("map/x.rs", own)
        ]),
        [] as [&str; 0]
    );
    // Comments, tests and methods of other things of that name are none.
    let others = "// use crate::dir::Form;\nfn f(cache: &Cache) {\n    cache.add_name();\n}\n\n\
                  #[cfg(test)]\nmod tests {\n    use crate::ops;\n}\n";
    assert_eq!(found(&[dir, ("map/x.rs", others)]), [] as [&str; 0]);
}

#[test]
fn a_table_of_files_names_each_of_them() {
    let found = |header: &str, code: &str| {
        let text =
            format!("//! A room.\n//!\n//! | file | owns |\n//! |---|---|\n{header}\n{code}");
        check_file("crates/core/src/x/mod.rs", &text).len()
    };
    let both = "//! | `a`, `b` | this |\n//! | [`c`] | that |";
    assert_eq!(
        found(
            both,
            "mod a;\npub mod b;\nmod c;\n#[cfg(test)]\nmod tests;\n"
        ),
        0
    );
    assert_eq!(found(both, "mod a;\npub(crate) mod d;\n"), 1);
    assert_eq!(found("//! | `d/x` | this |", "mod d;\n"), 0);
}
