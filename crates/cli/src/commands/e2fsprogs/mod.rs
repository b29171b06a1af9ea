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
//! | `mke2fs` | making file systems |

mod conf;
mod getopt;
mod mke2fs;
mod number;

use crate::failure::{Failure, Outcome, say};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// A program that this one stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Mke2fs,
}

/// The version of e2fsprogs whose behaviour the programs have.
const VERSION: &str = "1.47.0";

/// Names of programs, and what they are.
const NAMES: &[(&str, Program)] = &[
    ("mke2fs", Program::Mke2fs),
    ("mkfs.ext2", Program::Mke2fs),
    ("mkfs.ext3", Program::Mke2fs),
    ("mkfs.ext4", Program::Mke2fs),
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

    /// Does what the arguments of this process ask for.
    pub(crate) fn run(self) -> ExitCode {
        let args = std::env::args_os().skip(1);
        let done = match self.program {
            Program::Mke2fs => mke2fs::run(self.name, args),
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

    /// The exit code for a command line that makes no sense.
    const fn usage_code(self) -> u8 {
        match self.program {
            Program::Mke2fs => 1,
        }
    }
}

/// Says which program this is: the one whose behaviour it has, and by which means.
fn version(name: &str) {
    use std::io::Write;
    let own = env!("CARGO_PKG_VERSION");
    // With standard error gone there is no place to tell it.
    let _ = writeln!(std::io::stderr(), "{name} {VERSION} (extant {own})");
}

/// The text of a value that is text.
fn text_of(letter: char, value: Option<OsString>) -> Outcome<String> {
    let value = value.unwrap_or_default();
    value.into_string().map_err(|value| {
        let shown = extant::Escaped::path(Path::new(&value)).to_string();
        Failure::usage(format!("-{letter} {shown}: this is no text"))
    })
}
