//! The programs that are run: where they come from, and in which version.

use super::{Setting, cargo, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where a program comes from.
enum Source {
    /// This version from crates.io.
    Crate(&'static str),
    /// A package of Debian.
    Debian(&'static str),
}

struct Tool {
    program: &'static str,
    source: Source,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "pjdfstest",
        source: Source::Crate("0.2.2"),
    },
    Tool {
        program: "fsx",
        source: Source::Crate("0.3.2"),
    },
    Tool {
        program: "fio",
        source: Source::Debian("fio"),
    },
    Tool {
        program: "fs_mark",
        source: Source::Debian("fsmark"),
    },
    Tool {
        program: "dbench",
        source: Source::Debian("dbench"),
    },
    Tool {
        program: "stress-ng",
        source: Source::Debian("stress-ng"),
    },
    Tool {
        program: "git",
        source: Source::Debian("git"),
    },
    Tool {
        program: "cc",
        source: Source::Debian("gcc"),
    },
    Tool {
        program: "sqlite3",
        source: Source::Debian("sqlite3"),
    },
    Tool {
        program: "mke2fs",
        source: Source::Debian("e2fsprogs"),
    },
    Tool {
        program: "fusermount3",
        source: Source::Debian("fuse3"),
    },
];

/// Installs what is missing.
pub(super) fn install(setting: &Setting) -> Result<(), String> {
    let mut packages = Vec::new();
    for tool in TOOLS {
        match tool.source {
            Source::Crate(version) => install_crate(setting, tool.program, version)?,
            Source::Debian(package) if !is_there(tool.program) => packages.push(package),
            Source::Debian(_) => {}
        }
    }
    if packages.is_empty() {
        return Ok(());
    }
    println!("installing the Debian packages {}", packages.join(", "));
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").args(args);
        succeed(&mut apt).map_err(|e| {
            let packages = packages.join(" ");
            format!("install these packages, or what brings their programs here: {packages}\n{e}")
        })
    };
    apt(&["update", "-q"])?;
    let how = ["install", "-y", "-q", "--no-install-recommends"];
    apt(&[&how, packages.as_slice()].concat())?;
    Ok(())
}

/// Programs and versions, for the report.
pub(super) fn versions() -> Vec<(&'static str, String)> {
    let version = |tool: &Tool| match tool.source {
        Source::Crate(version) => version.to_owned(),
        Source::Debian(package) => {
            let mut query = Command::new("dpkg-query");
            let version = succeed(query.args(["-W", "-f", "${Version}", package]));
            version.unwrap_or_else(|_| "not from a package".to_owned())
        }
    };
    let named = TOOLS.iter().map(|tool| (tool.program, version(tool)));
    named.collect()
}

/// Where programs from crates.io are.
pub(super) fn crates_at(setting: &Setting) -> PathBuf {
    setting.home.join("bin")
}

fn install_crate(setting: &Setting, name: &str, version: &str) -> Result<(), String> {
    let program = crates_at(setting).join(name);
    let told = succeed(Command::new(&program).arg("--version"));
    if told.is_ok_and(|told| told.split_whitespace().any(|word| word == version)) {
        return Ok(());
    }
    println!("installing {name} {version} from crates.io into target/conformance");
    let mut install = cargo(&setting.root);
    install.args(["install", "--quiet", "--locked", "--force", name]);
    install.args(["--version", version, "--root"]);
    succeed(install.arg(&setting.home)).map(drop)
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .any(|dir: PathBuf| Path::new(&dir).join(program).is_file())
}
