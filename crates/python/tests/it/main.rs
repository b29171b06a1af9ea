//! Has Python try the module as it was built: the tests in `tests/smoke`, by the interpreter alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The package as a wheel lays it out, in a folder of its own.
fn package(dir: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/extant");
    let target = dir.join("extant");
    fs::create_dir(&target).expect("a folder");
    for entry in fs::read_dir(&source).expect("the package") {
        let entry = entry.expect("a file of the package");
        if entry.file_type().expect("its type").is_file() {
            fs::copy(entry.path(), target.join(entry.file_name())).expect("a copy");
        }
    }
    std::os::unix::fs::symlink(library(), target.join("_native.abi3.so")).expect("a link");
}

/// The library that Cargo built beside this test.
fn library() -> PathBuf {
    let test = env::current_exe().expect("the test's own path");
    let deps = test.parent().expect("the folder of the test");
    let built = deps.join("lib_native.so");
    assert!(built.is_file(), "{} was not built", built.display());
    built
}

#[test]
fn python_uses_the_module() {
    let dir = tempfile::tempdir().expect("a folder");
    package(dir.path());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/smoke");
    let output = Command::new("python3")
        .args([
            "-B", "-X", "dev", "-W", "error", "-m", "unittest", "discover", "-v", "-s",
        ])
        .arg(tests)
        .env("PYTHONPATH", dir.path())
        .env_remove("PYTHONHOME")
        .output()
        .expect("python3 is there (scripts/setup.sh installs it)");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("OK") && !told.contains("Ran 0 tests"),
        "{told}"
    );
}
