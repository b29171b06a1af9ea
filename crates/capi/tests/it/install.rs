//! What `cargo xtask install` makes of the library, as programs find it.

use crate::program::libraries;
use extant_testkit::oracle::mke2fs;
use extant_testkit::tool::tool;
use std::fs;
use std::path::{Path, PathBuf};

/// Installs the library that the tests are linked with, and gives the place.
fn installed(dir: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent).unwrap();
    // Beside others that do the same at that time.
    let archive = dir.join("libextant_capi.a");
    fs::hard_link(libraries().join("libextant_capi.a"), &archive)
        .or_else(|_| fs::copy(libraries().join("libextant_capi.a"), &archive).map(|_| ()))
        .unwrap();
    let prefix = dir.join("usr");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let arguments = [
        "--archive".to_owned(),
        text(&archive),
        "--prefix".to_owned(),
        text(&prefix),
    ];
    let done = format!("{:?}", xtask::install::install(root, &arguments));
    assert_eq!(done, format!("{:?}", std::process::ExitCode::SUCCESS));
    prefix
}

#[test]
fn programs_find_the_installed_library_by_pkg_config() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = installed(dir.path());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let image = dir.path().join("disk.img");
    let flags = |name: &str, what: &[&str]| -> Vec<String> {
        let found = tool("pkg-config")
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .args(["--cflags", "--libs"])
            .args(what)
            .arg(name)
            .ok();
        let text = found.text();
        text.split_whitespace().map(str::to_owned).collect()
    };
    for (name, shared) in [("extant", true), ("extant-static", false)] {
        let program = dir.path().join(name);
        tool("cc")
            .arg(here.join("examples/tour.c"))
            .arg("-o")
            .arg(&program)
            .args(flags(name, &[]))
            .ok();
        mke2fs(&image, 64 << 20, &["-t", "ext4"]);
        let ran = tool(program.to_str().unwrap()).arg(&image);
        let ran = ran.env("LD_LIBRARY_PATH", prefix.join("lib")).ok().text();
        assert!(ran.ends_with("read: two\n"), "{ran}");
        let needs = tool("readelf").arg("-d").arg(&program).ok().text();
        assert_eq!(needs.contains("[libextant.so.0]"), shared, "{needs}");
    }
}

#[test]
fn the_installed_library_shows_the_functions_of_the_header_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = installed(dir.path());
    let names = |options: &[&str], file: &str| -> Vec<String> {
        let found = tool("nm")
            .args(options)
            .arg(prefix.join("lib").join(file))
            .ok();
        let text = found.text();
        let mut names: Vec<String> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last())
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    };
    let shared = names(&["-D", "--defined-only"], "libextant.so");
    let versions = include_str!("../../extant.map");
    let words = versions.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let expected: Vec<&str> = words.filter(|word| word.starts_with("extant_")).collect();
    assert!(expected.len() > 80);
    for name in &shared {
        let (name, version) = name.split_once("@@").unwrap_or((name, "EXTANT_0.1"));
        assert_eq!(version, "EXTANT_0.1");
        assert!(expected.contains(&name) || name == "EXTANT_0.1", "{name}");
    }
    assert!(shared.len() >= expected.len(), "{shared:?}");
    let fixed = names(&["-g", "--defined-only"], "libextant.a");
    let fixed: Vec<&str> = fixed
        .iter()
        .map(String::as_str)
        .filter(|name| !name.ends_with(':'))
        .collect();
    assert_eq!(fixed, expected);
    let soname = tool("readelf")
        .arg("-d")
        .arg(prefix.join("lib/libextant.so"))
        .ok();
    assert!(soname.text().contains("Library soname: [libextant.so.0]"));
    // Without these a defect of the library would end the program.
    let sections = tool("readelf").args(["-S", "-W"]);
    let sections = sections.arg(prefix.join("lib/libextant.so")).ok().text();
    assert!(sections.contains(".eh_frame_hdr"), "{sections}");
}
