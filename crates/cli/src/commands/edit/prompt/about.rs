//! What `help` says.

use super::session::OWN;
use crate::commands::edit::step::COMMANDS;
use crate::failure::{Failure, Outcome};
use crate::help;
use crate::output::Output;
use std::ffi::OsString;
use std::io::Write;

/// What commands do that the command line has not, or not so.
const SPECIAL: &[(&str, &str)] = &[
    ("abort", "Forget all changes, and end"),
    (
        "apply",
        "apply [OPTIONS] LAYER...: put layers onto the image",
    ),
    ("commit", "Put all changes into the image, and end"),
    ("df", "Show how much of the file system is used"),
    (
        "else",
        "What follows is done if the condition of `if` does not hold",
    ),
    ("end", "End what `if` began"),
    (
        "expect",
        "expect CONDITION /path: fail unless it holds: exists, absent, size=BYTES, sha256=HEX, target=TEXT",
    ),
    ("exit", "End, if nothing is changed"),
    (
        "get",
        "get [OPTIONS] /path... DEST: copy files out of the image, at once",
    ),
    ("help", "help COMMAND: say what it does"),
    (
        "if",
        "if CONDITION /path: do what follows, up to `else` or `end`, if it holds",
    ),
    ("label", "label TEXT: give the file system this label"),
    (
        "put",
        "put [OPTIONS] SOURCE... /path: copy files of the host into the image",
    ),
    ("quit", "End, if nothing is changed"),
    ("status", "Say what is done so far"),
    (
        "tar-in",
        "tar-in [OPTIONS] ARCHIVE /dir: put an archive into a directory",
    ),
    (
        "uuid",
        "uuid UUID: give the file system this UUID, or `random` or `clear`",
    ),
    (
        "write",
        "write [OPTIONS] /path <<END: the lines up to END become the file's content; <<< TEXT: this text does",
    ),
];

/// Says what there is, or what a command does.
pub(super) fn help(words: &[OsString]) -> Outcome {
    let mut output = Output::new();
    match words {
        [] => {
            let mut all: Vec<&str> = COMMANDS.iter().chain(OWN).copied().collect();
            all.sort_unstable();
            for name in all {
                writeln!(output, "  {name:9}  {}", about(name))?;
            }
            output.write_all(
                b"\nPaths in the image begin with /. Words are quoted as in a shell. Nothing is in the image \
                  before `commit`.\n`help COMMAND` says more.\n",
            )?;
        }
        [word] => {
            let name = word.to_str().unwrap_or_default();
            if !COMMANDS.contains(&name) && !OWN.contains(&name) {
                return Err(Failure::usage(format!(
                    "there is no command `{}`: `help` has them all",
                    extant::Escaped::path(word.as_ref())
                )));
            }
            match of_command(name) {
                Some(text) => output.write_all(text.as_bytes())?,
                None => writeln!(output, "{}", about(name))?,
            }
        }
        _ => return Err(Failure::usage("one command follows `help`")),
    }
    output.finish()
}

/// One line about a command.
fn about(name: &str) -> String {
    if let Some((_, about)) = SPECIAL.iter().find(|(special, _)| *special == name) {
        return (*about).to_owned();
    }
    let line = help::without_meaningless_options();
    let command = line.find_subcommand(name);
    let about = command.and_then(clap::Command::get_about);
    about.map(ToString::to_string).unwrap_or_default()
}

/// The help of the command that a line is as.
fn of_command(name: &str) -> Option<String> {
    let called = match name {
        "put" | "get" => "cp",
        "tar-in" => "tar",
        name => name,
    };
    let mut line = help::command();
    let command = line.find_subcommand_mut(called)?;
    let mut command = command.clone().bin_name(format!("extant {called}"));
    let text = help::shown(&command.render_help().to_string());
    let before = if called == name {
        "Here without `extant`, and without IMAGE: in front of paths:".to_owned()
    } else {
        format!(
            "{}\nIts options are those of `extant {called}`:",
            about(name)
        )
    };
    Some(format!("{before}\n\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_something_to_say_of_each_command() {
        for name in COMMANDS.iter().chain(OWN) {
            assert!(!about(name).is_empty(), "{name}");
        }
        for (name, _) in SPECIAL {
            assert!(COMMANDS.contains(name) || OWN.contains(name), "{name}");
        }
    }
}
