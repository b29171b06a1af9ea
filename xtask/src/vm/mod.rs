//! `cargo xtask vm`: a second kernel as witness. What it sees is recorded in
//! `docs/dev/conformance.md`.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | the command, its record |
//! | `machine` | the root that `extant mkfs` makes, and machines that run it |
//! | `kinds` | images with what the kernel of this machine may not have: made here, made there, crashed there |
//! | `files` | guests that use the files of an image by virtio-fs, and `virtiofsd` beside it |
//! | `processors` | the engine on as many processors as this machine has not |

mod files;
mod kinds;
mod machine;
mod processors;

use crate::guest::{self, Kernel};
use crate::programs::{Done, build_extant, make_dir, missing};
use crate::record::{self, Steps};
use machine::Place;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) const HELP: &str = "\
A second kernel as witness: Debian's, in QEMU, with a root that `extant mkfs` makes. Images with directories that
ignore case, quotas, hash trees of fs-verity and encrypted files are made here and judged there, made there and judged
here, and left behind there by a machine that loses its power. Guests use the files of an image by virtio-fs, two at a
time, and one is killed. The engine runs on 16 processors, in a build that checks the order of its locks.

Usage: cargo xtask vm [PART...] [--package NAME] [--program FILE] [--release FILE] [--record]

Arguments:
  PART             Of kinds, files, processors [default: all]

Options:
  --package NAME   The package of the kernel [default: what linux-image-amd64 depends on]
  --program FILE   The command `extant`, as a debug build [default: what is built here]
  --release FILE   The same as a release build, for what is measured beside `virtiofsd` [default: the debug build]
  --record         Write what was seen into docs/dev/conformance.md

It needs root. Programs that are missing are named, and then nothing is done. KVM is used where the processor offers
it. The kernel is downloaded once, into target/vm. It takes some minutes.";

const PARTS: &[(&str, Part)] = &[
    ("kinds", kinds::run),
    ("files", files::run),
    ("processors", processors::run),
];

type Part = fn(&Place, &mut Steps);

/// `cargo xtask vm`.
pub(crate) fn vm(root: &Path, args: &[String]) -> ExitCode {
    let (mut package, mut program, mut release) = (None, None, None);
    let (mut record, mut parts) = (false, Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let known = match arg.as_str() {
            "--package" => rest.next().map(|n| package = Some(n.clone())).is_some(),
            "--program" => rest.next().map(|n| program = Some(n.into())).is_some(),
            "--release" => rest.next().map(|n| release = Some(n.into())).is_some(),
            "--record" => {
                record = true;
                true
            }
            name => match PARTS.iter().find(|(known, _)| *known == name) {
                Some(part) => {
                    parts.push(*part);
                    true
                }
                None => false,
            },
        };
        if !known {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    }
    if parts.is_empty() {
        parts = PARTS.to_vec();
    } else if record {
        eprintln!("vm: what is recorded is all parts of one run: leave the parts out");
        return ExitCode::from(2);
    }
    let gone = missing(&[guest::PROGRAMS, machine::PROGRAMS].concat());
    if !gone.is_empty() {
        println!("SKIPPED: needs {}: vm", gone.join(", "));
        // What is to be recorded was not seen.
        return ExitCode::from(u8::from(record));
    }
    match run(root, package.as_deref(), (program, release), &parts, record) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("vm: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    root: &Path,
    package: Option<&str>,
    (program, release): (Option<PathBuf>, Option<PathBuf>),
    parts: &[(&str, Part)],
    record: bool,
) -> Done<()> {
    let dir = root.join("target/vm");
    make_dir(&dir)?;
    let kernel = Kernel::get(&dir, package)?;
    let extant = match program {
        Some(program) => program,
        None => build_extant(root)?,
    };
    let mut steps = Steps::new();
    let place = steps
        .step("a root made by `extant mkfs`", || {
            Place::make(dir, kernel, extant, release)
        })
        .ok_or("without a root there is no machine")?;
    for (_, part) in parts {
        part(&place, &mut steps);
    }
    let table = steps.table()?;
    let packages = [
        "qemu-system-x86",
        "e2fsprogs",
        "xfsprogs",
        "quota",
        "fsverity",
    ];
    let help = match place.accelerator {
        "kvm" => "with hardware's help (KVM)",
        _ => "without hardware's help (TCG): times are no measurement of anything else",
    };
    let text = format!(
        "{}\nDebian's kernel {} in QEMU {help}. The host has {}:\n\n{table}",
        record::machine(root, &packages)?,
        place.kernel.version,
        processors::of_host(),
    );
    println!("\n{text}");
    if record {
        record::write(root, "vm", &text)?;
    }
    Ok(())
}
