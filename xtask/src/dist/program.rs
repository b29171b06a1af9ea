//! The static program: building it, and what it has to be.

use crate::programs::{Done, missing};
use crate::toolchain::Toolchain;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built where nothing else is asked for.
pub(crate) const DEFAULT_TARGET: &str = "x86_64-unknown-linux-musl";

/// Bytes of the small program, at most.
const MOST_BYTES: usize = 8_000_000;

/// Arguments of the linker of the small program: functions of the same content are one, and there
/// are no tables for unwinding. Paths are from the workspace on, where cargo links.
const SMALL_LINK: [&str; 4] = [
    "-fuse-ld=lld",
    "-Wl,--icf=all",
    "-Wl,--no-eh-frame-hdr",
    "-Wl,-T,xtask/src/dist/small.ld",
];

/// `cargo` in the workspace.
pub(super) fn cargo(root: &Path) -> Command {
    Toolchain::find().cargo(root)
}

/// A form of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// With all features, and fast.
    Full,
    /// Without those that bring in much, and small.
    Small,
}

impl Variant {
    /// That of this name.
    pub(crate) fn of(name: &str) -> Done<Self> {
        match name {
            "full" => Ok(Self::Full),
            "small" => Ok(Self::Small),
            _ => Err(format!("--variant {name}: use full or small")),
        }
    }

    /// What its packages are called.
    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Full => "extant",
            Self::Small => "extant-small",
        }
    }

    /// The profile it is built by.
    fn profile(self) -> &'static str {
        match self {
            Self::Full => "dist",
            Self::Small => "small",
        }
    }

    /// The arguments of cargo for its features, or for those that are asked for.
    pub(super) fn features(self, asked: Option<&str>) -> Vec<String> {
        let list = match (self, asked) {
            (Self::Full, None) => return Vec::new(),
            (_, asked) => asked.unwrap_or_default(),
        };
        let words = ["--no-default-features", "--features", list];
        words.map(str::to_owned).to_vec()
    }
}

/// A program that is to be built.
pub(super) struct Build<'a> {
    pub(super) root: &'a Path,
    pub(super) target: &'a str,
    pub(super) variant: Variant,
    /// Arguments of cargo.
    pub(super) features: Vec<String>,
}

impl Build<'_> {
    /// Builds it, and says where it is.
    pub(super) fn run(&self, commit: Option<&str>, moment: u64) -> Done<PathBuf> {
        build(self, commit, moment)
    }

    /// Refuses what is not a static program for Linux on this processor, and what is too large.
    pub(super) fn check(&self, program: &[u8]) -> Done<()> {
        check(program, self.target)?;
        if self.variant == Variant::Small && program.len() > MOST_BYTES {
            return Err(format!(
                "the program has {} bytes, and may have {MOST_BYTES}",
                program.len()
            ));
        }
        Ok(())
    }
}

fn build(build: &Build<'_>, commit: Option<&str>, moment: u64) -> Done<PathBuf> {
    let (root, target) = (build.root, build.target);
    let profile = build.variant.profile();
    let toolchain = Toolchain::find();
    if !toolchain.has(target) {
        let mut why = format!(
            "the standard library of {target} is not there: rustup target add {target}, or name a cargo that builds it \
             in EXTANT_CROSS_CARGO"
        );
        if target.ends_with("-musl") {
            why.push_str(", or take glibc: --target ");
            why.push_str(&target.replace("-musl", "-gnu"));
        }
        return Err(why);
    }
    if target == DEFAULT_TARGET && std::env::var_os("CC_x86_64_unknown_linux_musl").is_none() {
        let without = missing(&[("musl-gcc", "musl-tools")]);
        if !without.is_empty() {
            return Err(format!("not installed: {}", without.join(", ")));
        }
    }
    let folder = root.join("target/dist-build");
    let mut cargo = toolchain.cargo(root);
    cargo.arg("build").args(toolchain.arguments());
    cargo.args(["--locked", "--profile", profile, "-p", "extant-cli"]);
    cargo.args(["--target", target]).args(&build.features);
    cargo.arg("--target-dir").arg(&folder);
    // With the folder's name in it, it would be another program in each folder.
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")))
        .unwrap_or_default();
    let mut flags = vec![
        format!("--remap-path-prefix={}=extant", root.display()),
        format!("--remap-path-prefix={home}=cargo"),
        "-Ctarget-feature=+crt-static".to_owned(),
    ];
    if target.ends_with("-musl") {
        // Half a megabyte of places to be adjusted at the start becomes some kilobytes.
        flags.push("-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned());
    }
    if build.variant == Variant::Small {
        flags.extend(SMALL_LINK.map(|argument| format!("-Clink-arg={argument}")));
        // Found by the search path: a flag with a folder in it would make another program.
        let found = toolchain.linker()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = found.into_iter().chain(std::env::split_paths(&path));
        let path = std::env::join_paths(folders).map_err(|e| format!("PATH: {e}"))?;
        cargo.env("PATH", path);
    }
    if let Ok(own) = std::env::var("RUSTFLAGS") {
        flags.extend(own.split_whitespace().map(str::to_owned));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let maps = format!(
        "-ffile-prefix-map={}=extant -ffile-prefix-map={home}=cargo",
        root.display()
    );
    cargo.env(format!("CFLAGS_{}", target.replace('-', "_")), maps);
    cargo.env("SOURCE_DATE_EPOCH", moment.to_string());
    match commit {
        Some(commit) => cargo.env("EXTANT_COMMIT", commit),
        None => cargo.env_remove("EXTANT_COMMIT"),
    };
    let ended = cargo
        .status()
        .map_err(|e| format!("cannot start {cargo:?}: {e}"))?;
    if !ended.success() {
        return Err(format!("{cargo:?}: {ended}"));
    }
    Ok(folder.join(target).join(profile).join("extant"))
}

/// Refuses what is not a static program for Linux on this processor.
fn check(program: &[u8], target: &str) -> Done<()> {
    let machine = match target.split('-').next() {
        Some("x86_64") => 62,
        Some("aarch64") => 183,
        Some("armv7") => 40,
        Some("i686") => 3,
        Some("s390x") => 22,
        _ => return Err(format!("{target}: no such processor is known")),
    };
    let elf = Elf::new(program).ok_or("the program is no ELF file")?;
    if elf.number(18, 2) != Some(machine) {
        return Err(format!("the program is not of the processor of {target}"));
    }
    let is_static = elf.is_static().ok_or("the program is cut")?;
    if !is_static {
        return Err(
            "the program needs libraries of the system: it has to be linked statically".to_owned(),
        );
    }
    Ok(())
}

/// An ELF file.
struct Elf<'a> {
    bytes: &'a [u8],
    is_wide: bool,
    is_little: bool,
}

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"\x7fELF")?;
        Some(Self {
            bytes,
            is_wide: *rest.first()? == 2,
            is_little: *rest.get(1)? == 1,
        })
    }

    /// A number of so many bytes.
    fn number(&self, at: usize, len: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at.checked_add(len)?)?;
        let add = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
        Some(if self.is_little {
            bytes.iter().rev().fold(0, add)
        } else {
            bytes.iter().fold(0, add)
        })
    }

    /// Whether no loader is named that finds libraries.
    fn is_static(&self) -> Option<bool> {
        const INTERPRETER: usize = 3;
        let (table, size, count) = if self.is_wide {
            (
                self.number(32, 8)?,
                self.number(54, 2)?,
                self.number(56, 2)?,
            )
        } else {
            (
                self.number(28, 4)?,
                self.number(42, 2)?,
                self.number(44, 2)?,
            )
        };
        for n in 0..count {
            if self.number(table.checked_add(n * size)?, 4)? == INTERPRETER {
                return Some(false);
            }
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{Build, MOST_BYTES, Variant, check};

    /// A file with one program header of this type.
    fn elf(machine: u8, kind: u8) -> Vec<u8> {
        let mut elf = vec![0; 120];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[18], elf[32], elf[54], elf[56], elf[64]) = (machine, 64, 56, 1, kind);
        elf
    }

    #[test]
    fn what_is_static_small_and_of_the_processor_is_taken() {
        let target = "x86_64-unknown-linux-musl";
        assert_eq!(check(&elf(62, 1), target), Ok(()));
        let refused = |program: &[u8], target: &str, why: &str| {
            let error = check(program, target).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        refused(&elf(62, 3), target, "statically");
        refused(&elf(183, 1), target, "processor");
        refused(b"#!/bin/sh", target, "no ELF");
        let mut cut = elf(62, 1);
        cut[56] = 9;
        refused(&cut, target, "cut");
        let mut large = elf(62, 1);
        large.resize(MOST_BYTES + 1, 0);
        assert_eq!(check(&large, target), Ok(()));
        let build = |variant: Variant| Build {
            root: std::path::Path::new("/"),
            target,
            variant,
            features: variant.features(None),
        };
        assert_eq!(build(Variant::Full).check(&large), Ok(()));
        let error = build(Variant::Small).check(&large).unwrap_err();
        assert!(error.contains("8000001 bytes"), "{error}");
        assert_eq!(build(Variant::Small).check(&elf(62, 1)), Ok(()));
    }

    #[test]
    fn the_program_of_the_tests_needs_libraries() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        assert!(check(&own, &target).unwrap_err().contains("statically"));
    }
}
