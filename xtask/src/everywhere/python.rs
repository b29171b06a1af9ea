//! The Python package: a wheel, installed and tried.

use super::{Outcome, Site};
use crate::programs::{Done, missing, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the wheel is built by, and what tries it.
const PACKAGES: &[&str] = &[
    "maturin>=1.9,<2",
    "mypy",
    "pytest",
    "numpy",
    "pandas",
    "pyarrow",
    "dask[dataframe]",
    "fsspec",
];

/// Bytes of the wheel at most: with what only debuggers read it would have 50 MB.
const LARGEST: u64 = 32 << 20;

/// Whether what is installed has its licences with it.
const LICENCES: &str = "\
import importlib.metadata, sys
names = [file.name for file in importlib.metadata.files('extant-fs')]
sys.exit(not {'LICENSE-APACHE', 'LICENSE-MIT'} <= set(names))
";

/// Builds the wheel with the command in it, installs it, and has its tests, its manual's examples
/// and mypy judge it.
pub(super) fn wheel(site: &Site<'_>) -> Done<Outcome> {
    let without = missing(&[
        ("python3", "python3"),
        ("mke2fs", "e2fsprogs"),
        ("strip", "binutils"),
    ]);
    if !without.is_empty() {
        return Ok(Outcome::Skipped(format!(
            "{} is not installed",
            without.join(", ")
        )));
    }
    let place = site.root.join("target/everywhere/python");
    let package = site.root.join("crates/python");
    let Some(bin) = environment(&place)? else {
        return Ok(Outcome::Skipped(
            "no package index can be reached, which has maturin and pytest".to_owned(),
        ));
    };
    let wheel = build(site, &place, &package, &bin)?;
    let mut install = Command::new(bin.join("pip"));
    succeed(
        install
            .args(["install", "--quiet", "--no-deps", "--force-reinstall"])
            .arg(&wheel),
    )?;
    // Both licences ask to go along with what they are about.
    let mut licences = Command::new(bin.join("python"));
    licences.current_dir(&place).args(["-c", LICENCES]);
    succeed(&mut licences).map_err(|_| "the wheel lacks a licence".to_owned())?;
    // Not beside the sources, which would be found in place of what is installed.
    let mut pytest = Command::new(bin.join("pytest"));
    pytest.current_dir(&package).env_remove("PYTHONPATH");
    pytest.args(["-q", "-rs", "-p", "no:cacheprovider", "tests/full"]);
    let told = succeed(&mut pytest)?;
    let tests = told
        .lines()
        .last()
        .unwrap_or_default()
        .trim_matches(['=', ' '])
        .to_owned();
    let mut smoke = Command::new(bin.join("python"));
    smoke.current_dir(&place).env_remove("PYTHONPATH");
    smoke.args(["-m", "unittest", "discover", "-s"]);
    succeed(smoke.arg(package.join("tests/smoke")))?;
    let mut mypy = Command::new(bin.join("mypy"));
    mypy.current_dir(&package).args(["--strict", "--cache-dir"]);
    mypy.arg(place.join("mypy")).arg("python/extant");
    succeed(&mut mypy)?;
    let size = fs::metadata(&wheel).map_err(|e| e.to_string())?.len();
    if size > LARGEST {
        return Err(format!("the wheel has {size} bytes, more than {LARGEST}"));
    }
    let command = site.version(Command::new(bin.join("extant")).arg("--version"))?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    Ok(Outcome::Passed {
        seen: format!("{name} with the command `{command}`; {tests}; mypy finds nothing"),
        versions: format!(
            "{}, {}",
            site.version(Command::new(bin.join("python")).arg("--version"))?,
            site.version(Command::new(bin.join("maturin")).arg("--version"))?
        ),
    })
}

/// A virtual environment with the packages, or `None` where there is nothing to have them from.
fn environment(place: &Path) -> Done<Option<PathBuf>> {
    let venv = place.join("venv");
    let bin = venv.join("bin");
    if !bin.join("python").exists() {
        fs::create_dir_all(place).map_err(|e| e.to_string())?;
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    }
    let mut pip = Command::new(bin.join("pip"));
    pip.args(["install", "--quiet"]).args(PACKAGES);
    Ok(succeed(&mut pip).is_ok().then_some(bin))
}

/// Builds the wheel. The command lies in its folder of data, which has to be beside its manifest.
fn build(site: &Site<'_>, place: &Path, package: &Path, bin: &Path) -> Done<PathBuf> {
    let mut cargo = site.cargo();
    succeed(cargo.args(["build", "--release", "--locked", "-p", "extant-cli"]))?;
    let scripts = package.join("extant._native.data/scripts");
    let failed = |e: std::io::Error| format!("{}: {e}", scripts.display());
    fs::create_dir_all(&scripts).map_err(failed)?;
    // Without what only debuggers read, which is most of it.
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(scripts.join("extant"));
    succeed(strip.arg(site.root.join("target/release/extant")))?;
    let wheels = place.join("wheels");
    // Those of earlier runs would be found as well.
    let _ = fs::remove_dir_all(&wheels);
    let mut maturin = Command::new(bin.join("maturin"));
    maturin.current_dir(package);
    maturin.args(["build", "--release", "--locked", "--quiet", "--out"]);
    let built = succeed(maturin.arg(&wheels));
    let _ = fs::remove_dir_all(package.join("extant._native.data"));
    built?;
    let mut found = fs::read_dir(&wheels).map_err(|e| e.to_string())?;
    match (found.next(), found.next()) {
        (Some(Ok(wheel)), None) => Ok(wheel.path()),
        _ => Err(format!("not one wheel in {}", wheels.display())),
    }
}
