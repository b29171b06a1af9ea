//! The command under the names of programs of e2fsprogs: `mke2fs`, `mkfs.ext4` and others, by a
//! link or a copy of that name.
//!
//! Each program reads its options as the real one does (their meaning is public in its manual
//! page), and does what it asks for by the code of the commands beside this folder. What is not
//! understood is refused by name: nothing is ignored.
//!
//! | module | owns |
//! |---|---|
//! | `getopt` | short options, as getopt(3) parts them |
//! | `number` | numbers with the suffixes of these programs |
//! | `conf` | `mke2fs.conf` |
//! | `place` | the device that an operand names |
//! | `bad_blocks` | the list of bad blocks |
//! | `header` | a superblock field by field |
//! | `log` | the journal's own superblock |
//! | `mke2fs`, `resize2fs`, `e2fsck`, `tune2fs`, `dumpe2fs`, `e2label` | the program of this name |

mod bad_blocks;
mod conf;
mod dumpe2fs;
mod e2fsck;
mod e2label;
mod getopt;
pub(in crate::commands) mod header;
mod log;
mod mke2fs;
mod number;
mod place;
mod resize2fs;
mod tune2fs;

use crate::failure::{Failure, Outcome, say};
use crate::time::stand_still_as_e2fsprogs;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A program that this one stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Mke2fs,
    Resize2fs,
    E2fsck,
    Tune2fs,
    Dumpe2fs,
    E2label,
}

/// The version of e2fsprogs whose behaviour the programs have.
const VERSION: &str = "1.47.0";

/// Names of programs, and what they are.
const NAMES: &[(&str, Program)] = &[
    ("mke2fs", Program::Mke2fs),
    ("mkfs.ext2", Program::Mke2fs),
    ("mkfs.ext3", Program::Mke2fs),
    ("mkfs.ext4", Program::Mke2fs),
    ("resize2fs", Program::Resize2fs),
    ("e2fsck", Program::E2fsck),
    ("fsck.ext2", Program::E2fsck),
    ("fsck.ext3", Program::E2fsck),
    ("fsck.ext4", Program::E2fsck),
    ("tune2fs", Program::Tune2fs),
    ("dumpe2fs", Program::Dumpe2fs),
    ("e2label", Program::E2label),
];

/// What this program is called as, if it is another one's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Called {
    program: Program,
    /// The name, as messages begin.
    pub(crate) name: &'static str,
}

impl Called {
    /// How this process was called.
    pub(crate) fn now() -> Option<Self> {
        let program = std::env::args_os().next()?;
        let last = Path::new(&program).file_name()?;
        let found = NAMES.iter().find(|(name, _)| last == *name);
        found.map(|&(name, program)| Self { program, name })
    }

    /// All names that are known.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// Does what the arguments of this process ask for.
    pub(crate) fn run(self) -> ExitCode {
        let args = std::env::args_os().skip(1);
        // Also where nothing is made: what is noted has a time.
        if let Err(failure) = stand_still_as_e2fsprogs() {
            failure.report();
            return ExitCode::from(self.usage_code());
        }
        let done = match self.program {
            Program::Mke2fs => mke2fs::run(self.name, args),
            Program::Resize2fs => resize2fs::run(args),
            Program::E2fsck => e2fsck::run(args),
            Program::Tune2fs => tune2fs::run(args),
            Program::Dumpe2fs => dumpe2fs::run(args),
            Program::E2label => e2label::run(args),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Usage(text)) => {
                say(text);
                ExitCode::from(self.usage_code())
            }
            Err(failure) => failure.report(),
        }
    }

    /// Whether what is done goes on when nothing reads any more what is told of it: these tell
    /// before they act, and their exit codes are about the file system.
    pub(crate) fn outlives_reader(self) -> bool {
        self.program != Program::Dumpe2fs
    }

    /// The exit code for a command line that makes no sense.
    const fn usage_code(self) -> u8 {
        match self.program {
            Program::E2fsck => 16,
            _ => 1,
        }
    }
}

/// Says which program this is: the one whose behaviour it has, and by which means.
fn version(name: &str) {
    use std::io::Write;
    // With standard error gone there is no place to tell it.
    let _ = writeln!(std::io::stderr(), "{}", version_of(name));
}

/// The line about the version.
fn version_of(name: &str) -> String {
    format!("{name} {VERSION} (extant {})", env!("CARGO_PKG_VERSION"))
}

/// The command line makes no sense, and this is how the program is called.
fn usage(text: &str) -> Failure {
    Failure::usage(text)
}

/// The text of a value that is text.
fn text_of(letter: char, value: Option<OsString>) -> Outcome<String> {
    let value = value.unwrap_or_default();
    value.into_string().map_err(|value| {
        let shown = extant::Escaped::path(Path::new(&value)).to_string();
        Failure::usage(format!("-{letter} {shown}: this is no text"))
    })
}
