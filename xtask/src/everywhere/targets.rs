//! Other processors and other systems.
//!
//! What is built is chosen by the caller's toolchain ([`Toolchain`]): a target that it has not is
//! skipped.

use super::{Outcome, Site};
use crate::programs::{Done, missing, succeed};
use crate::toolchain::Toolchain;

/// What is built where there is Linux.
const LINUX: &[&str] = &[
    "extant",
    "extant-image",
    "extant-mkfs",
    "extant-fsck",
    "extant-rescue",
];
/// What is built on other systems.
const ENGINE: &[&str] = &["extant-core", "extant-fsck", "extant-rescue"];

/// A processor with a system.
struct Target {
    /// Its name for the compiler.
    name: &'static str,
    /// The C compiler that also links, as Debian calls it; none where only Rust is built.
    gcc: Option<&'static str>,
    /// What runs its programs: nothing, or an emulator and where its libraries are.
    runner: Option<Runner>,
    crates: &'static [&'static str],
}

/// What runs the programs of a target.
struct Runner {
    /// The emulator; none where this machine's processor does it.
    qemu: Option<&'static str>,
    /// Where the C library of the target is.
    libraries: &'static str,
}

const TARGETS: &[Target] = &[
    Target {
        name: "x86_64-unknown-linux-musl",
        gcc: Some("musl-gcc"),
        runner: None,
        crates: LINUX,
    },
    Target {
        name: "aarch64-unknown-linux-musl",
        gcc: Some("aarch64-linux-gnu-gcc"),
        runner: None,
        crates: LINUX,
    },
    Target {
        name: "aarch64-unknown-linux-gnu",
        gcc: Some("aarch64-linux-gnu-gcc"),
        runner: Some(Runner {
            qemu: Some("qemu-aarch64"),
            libraries: "/usr/aarch64-linux-gnu",
        }),
        crates: LINUX,
    },
    Target {
        name: "armv7-unknown-linux-gnueabihf",
        gcc: Some("arm-linux-gnueabihf-gcc"),
        runner: Some(Runner {
            qemu: Some("qemu-arm"),
            libraries: "/usr/arm-linux-gnueabihf",
        }),
        crates: LINUX,
    },
    Target {
        name: "i686-unknown-linux-gnu",
        gcc: Some("i686-linux-gnu-gcc"),
        runner: Some(Runner {
            qemu: None,
            libraries: "/usr/i686-linux-gnu",
        }),
        crates: LINUX,
    },
    Target {
        name: "s390x-unknown-linux-gnu",
        gcc: Some("s390x-linux-gnu-gcc"),
        runner: Some(Runner {
            qemu: Some("qemu-s390x"),
            libraries: "/usr/s390x-linux-gnu",
        }),
        crates: LINUX,
    },
    Target {
        name: "x86_64-pc-windows-gnu",
        gcc: None,
        runner: None,
        crates: ENGINE,
    },
    Target {
        name: "aarch64-apple-darwin",
        gcc: None,
        runner: None,
        crates: ENGINE,
    },
    Target {
        name: "wasm32-unknown-unknown",
        gcc: None,
        runner: None,
        crates: ENGINE,
    },
];

/// The libraries, checked for every target whose standard library is there.
pub(super) fn targets(site: &Site<'_>) -> Done<Outcome> {
    of_each(site, "check", |target| {
        let packages = target.crates.iter().flat_map(|name| ["-p", *name]);
        Ok(Some(packages.map(str::to_owned).collect()))
    })
}

/// The tests of the format, run on every processor that can be had.
pub(super) fn processors(site: &Site<'_>) -> Done<Outcome> {
    of_each(site, "test", |target| {
        let Some(runner) = &target.runner else {
            return Ok(None);
        };
        if let Some(qemu) = runner.qemu
            && !missing(&[(qemu, "qemu-user")]).is_empty()
        {
            return Err(format!("{qemu} is not installed (qemu-user)"));
        }
        let packages = ["-p", "extant-format"];
        Ok(Some(packages.map(str::to_owned).to_vec()))
    })
}

/// Has cargo do `what` for each target that is there, with the arguments that `of` gives for it:
/// nothing where it is none for this, an error where something is missing.
fn of_each(
    site: &Site<'_>,
    what: &str,
    of: impl Fn(&Target) -> Result<Option<Vec<String>>, String>,
) -> Done<Outcome> {
    let toolchain = Toolchain::find();
    let (mut done, mut skipped) = (Vec::new(), Vec::new());
    for target in TARGETS {
        let arguments = match of(target) {
            Ok(None) => continue,
            Ok(Some(arguments)) => is_there(&toolchain, target).map(|()| arguments),
            Err(why) => Err(why),
        };
        match arguments {
            Ok(arguments) => {
                println!("{}", target.name);
                run(&toolchain, site, target, what, &arguments)
                    .map_err(|why| format!("{}: {why}", target.name))?;
                done.push(target.name);
            }
            Err(why) => {
                println!("SKIPPED: {}: {why}", target.name);
                skipped.push(format!("{} ({why})", target.name));
            }
        }
    }
    let skipped = skipped.join(", ");
    if done.is_empty() {
        return Ok(Outcome::Skipped(skipped));
    }
    let mut seen = done.join(", ");
    if !skipped.is_empty() {
        seen.push_str("; not: ");
        seen.push_str(&skipped);
    }
    let versions = site.version(toolchain.cargo(site.root).arg("--version"))?;
    Ok(Outcome::Passed { seen, versions })
}

/// What is missing for a target, if anything is.
fn is_there(toolchain: &Toolchain, target: &Target) -> Result<(), String> {
    if let Some(gcc) = target.gcc
        && !missing(&[(gcc, gcc)]).is_empty()
    {
        return Err(format!("{gcc} is not installed"));
    }
    if toolchain.has(target.name) {
        return Ok(());
    }
    Err(format!(
        "its standard library is not there: rustup target add {}",
        target.name
    ))
}

/// Has cargo do something for a target.
fn run(
    toolchain: &Toolchain,
    site: &Site<'_>,
    target: &Target,
    what: &str,
    arguments: &[String],
) -> Done<String> {
    let mut cargo = toolchain.cargo(site.root);
    cargo.arg(what).args(toolchain.arguments());
    cargo.args(["--locked", "--target", target.name]);
    cargo
        .arg("--target-dir")
        .arg(site.root.join("target/everywhere-cross"));
    cargo.args(arguments);
    let name = target.name.replace('-', "_");
    if let Some(gcc) = target.gcc {
        cargo.env(format!("CC_{name}"), gcc);
        let linker = format!("CARGO_TARGET_{}_LINKER", name.to_uppercase());
        cargo.env(linker, gcc);
    }
    if let Some(runner) = &target.runner {
        let run = match runner.qemu {
            Some(qemu) => format!("{qemu} -L {}", runner.libraries),
            None => format!(
                "{}/lib/ld-linux.so.2 --library-path {}/lib",
                runner.libraries, runner.libraries
            ),
        };
        cargo.env(format!("CARGO_TARGET_{}_RUNNER", name.to_uppercase()), run);
    }
    succeed(&mut cargo)
}
