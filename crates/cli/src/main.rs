//! The `extant` command.
//!
//! | module | owns |
//! |---|---|
//! | `args` | the command line: every command, its options and its help |
//! | `help` | help laid out at the terminal's width, and manual pages |
//! | `image_path` | `IMAGE:/path`, and opening what it names |
//! | `images` | the images that a command changes: opened once each, closed at the end |
//! | `keeping` | what `--undo` keeps of the image that a command changes |
//! | `operands` | patterns in operands, and reading what each names |
//! | `path` | last names, symbolic links at the end |
//! | `commands` | one command per file |
//! | `container` | images made in a format: which one, and the files it takes |
//! | `log` | what a mount tells of while it runs |
//! | `syslog` | the journal of systemd, or what listens at `/dev/log` |
//! | `failure` | why a command failed, and the exit code for it |
//! | `closed` | standard input and output that the program was started without |
//! | `output` | standard output: terminal or not, names made safe, closed pipes |
//! | `record` | a file as a JSON object |
//! | `names` | what an image calls the owners of its files |
//! | `no_room` | what there is no room for, and the way out |
//! | `mended` | images that are read as a repair would leave them |
//! | `older` | putting a new file in the place of an older one |
//! | `room` | whether something fits, asked before what is there is cut |
//! | `slip` | disks that a slip would replace |
//! | `progress` | the bar on a terminal |
//! | `verbose` | telling what was done |
//! | `size`, `time`, `glob`, `mode`, `owner`, `acl` | numbers of bytes, moments, patterns, permissions, owners and lists as text |
//!
//! # Invariants
//!
//! Exit code 0 means that everything asked for was done; 1 that something was not, which standard
//! error explains; 2 that the command line makes no sense. `check`, `repair` and `tune` have the
//! exit codes of `e2fsck`. A reader that closes the pipe is no failure.
//!
//! A command that changes an image closes it at the end, also after a failure, and an error of
//! closing is a failure: exit code 0 means that the changes are durable.
#![deny(unsafe_code)]

mod acl;
#[allow(
    unsafe_code,
    reason = "the allocator is set up by calls into C, and by code that runs before `main`"
)]
mod allocator;
mod args;
mod chunks;
#[allow(
    unsafe_code,
    reason = "code that runs before `main` is named in a section of the program"
)]
mod closed;
mod commands;
mod container;
mod failure;
mod glob;
mod ground;
mod help;
mod image_path;
mod images;
mod keeping;
mod log;
mod mended;
mod mode;
mod names;
mod no_room;
mod object;
mod older;
mod operands;
mod output;
mod owner;
mod packing;
mod path;
mod progress;
mod record;
mod room;
mod size;
mod slip;
mod standing;
mod syslog;
mod time;
mod verbose;

use clap::error::{ContextKind, ContextValue};
use commands::complete_path;
use commands::e2fsprogs::Called;
use std::io::Write;
use std::process::ExitCode;

/// The exit code for a command line that makes no sense: `check`, `repair`, `tune` and `resize`
/// have those of `e2fsck`.
fn usage_code(mut args: impl Iterator<Item = std::ffi::OsString>) -> u8 {
    const WITH_VALUES: [&str; 6] = [
        "--partition",
        "--offset",
        "--superblock",
        "--journal",
        "--image-format",
        "--undo",
    ];
    const AS_E2FSCK: [&str; 4] = ["check", "repair", "tune", "resize"];
    while let Some(arg) = args.next() {
        if WITH_VALUES.iter().any(|option| arg == *option) {
            args.next();
        } else if !arg.as_encoded_bytes().starts_with(b"-") {
            let is_as_e2fsck = AS_E2FSCK.iter().any(|command| arg == *command);
            return if is_as_e2fsck { 16 } else { 2 };
        }
    }
    2
}

/// The arguments, with the command in front where the program is called as a helper of mount(8):
/// `mount.fuse.extant IMAGE DIR -o ...`. There `-f` means that nothing is to be mounted. Words of
/// find(1) are marked.
fn arguments() -> Vec<std::ffi::OsString> {
    let mut args = std::env::args_os();
    let program = args.next();
    let is_helper = program
        .as_deref()
        .and_then(|program| std::path::Path::new(program).file_name())
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."));
    let words: &[&str] = if is_helper {
        &["mount", "--as-helper"]
    } else {
        &[]
    };
    let command = words.iter().map(|word| (*word).into());
    let args = args.map(move |arg| {
        if is_helper && arg == "-f" {
            "--fake".into()
        } else {
            arg
        }
    });
    commands::marked_words_of_find(program.into_iter().chain(command).chain(args).collect())
}

/// What an error of the command line says. Help is laid out only once it is asked for, since that
/// takes longer than reading the command line.
fn help_text(e: &clap::Error) -> String {
    use clap::error::ErrorKind;
    let is_help = matches!(
        e.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    let again = is_help.then(|| help::command().try_get_matches_from(arguments()));
    match again {
        Some(Err(laid_out)) => help::shown(&laid_out.render().to_string()),
        _ => e.render().to_string(),
    }
}

fn main() -> ExitCode {
    allocator::set_up();
    let code = run();
    allocator::leave_all();
    code
}

fn run() -> ExitCode {
    if let Some(called) = Called::now() {
        return called.run();
    }
    let mut given = std::env::args_os().skip(1);
    if let (Some(asked), Some(word)) = (given.next(), given.next())
        && asked == complete_path::NAME
    {
        return complete_path::run(&word);
    }
    let args = match args::read(arguments()) {
        Ok(args) => args,
        Err(mut e) if e.use_stderr() => {
            // A misspelt option is no question for the version, and a usage line for that does not
            // help.
            if e.get(ContextKind::SuggestedArg)
                == Some(&ContextValue::String("--version".to_owned()))
            {
                e.remove(ContextKind::SuggestedArg);
                e.remove(ContextKind::Usage);
            }
            let text = help_text(&e);
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            failure::say(text.trim_end());
            return ExitCode::from(usage_code(std::env::args_os().skip(1)));
        }
        Err(asked) => {
            let mut stdout = std::io::stdout();
            let text = help_text(&asked);
            let written = write!(stdout, "{text}").and_then(|()| stdout.flush());
            return match written {
                Ok(()) => ExitCode::SUCCESS,
                // A reader that has seen enough of the help is no failure.
                Err(e) => failure::Failure::from(e).report(),
            };
        }
    };
    if let Err(failure) = args.refuse_meaningless_location() {
        return failure.report();
    }
    if let Err(failure) = args.refuse_meaningless_undo() {
        return failure.report();
    }
    let given: Vec<_> = std::env::args_os().skip(1).collect();
    if let Err(failure) = args.location.refuse_formats_of_none(&given) {
        failure.report();
        return ExitCode::from(usage_code(std::env::args_os().skip(1)));
    }
    if args.command.writes()
        && let Err(failure) = time::stand_still()
    {
        failure.report();
        return ExitCode::from(usage_code(std::env::args_os().skip(1)));
    }
    let may_mend = args.may_mend();
    match commands::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = failure.report();
            if may_mend && failure::has_met_damage() {
                failure::say(
                    "damage was found: --mend reads an image as `extant repair` would leave it, and does not \
                     touch it",
                );
            }
            code
        }
    }
}
