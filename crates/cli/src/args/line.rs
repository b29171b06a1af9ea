//! Reading a command line.
//!
//! To describe all commands takes longer than most of them need for their work. So a line is read
//! by the description of the one command that it seems to name. Where that fails, all of them read
//! it again, and say what is wrong.

use super::{Args, Command, Whereabouts};
use clap::{Args as ClapArgs, FromArgMatches, Parser};
use std::cell::RefCell;
use std::ffi::OsString;
use std::mem::ManuallyDrop;

thread_local! {
    /// Descriptions of commands that were read, by name: scripts have several lines of one. To take
    /// them apart at the end is for nothing.
    static KNOWN: ManuallyDrop<RefCell<Vec<(&'static str, clap::Command)>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Reads a command line, the name of the program in front.
///
/// # Errors
/// What is wrong with it, or what it asks for instead.
pub(crate) fn read<W: Into<OsString>>(
    words: impl IntoIterator<Item = W>,
) -> Result<Args, clap::Error> {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    match read_as_one(&words) {
        Some(args) => Ok(args),
        None => Args::try_parse_from(words),
    }
}

/// Reads a line by the description of the first command that is among its words.
fn read_as_one(words: &[OsString]) -> Option<Args> {
    KNOWN.with(|known| {
        let mut known = known.borrow_mut();
        let arguments = || words.iter().skip(1);
        let at = known.iter().position(|(name, _)| {
            // The first word is the command, if no option is in front.
            arguments().next().is_some_and(|word| word == name)
        });
        let at = match at {
            Some(at) => at,
            None => {
                let (name, command) = arguments().find_map(|word| Command::alone(word))?;
                known.push((name, alone().subcommand(command)));
                known.len() - 1
            }
        };
        let (_, line) = known.get_mut(at)?;
        let mut found = line.try_get_matches_from_mut(words).ok()?;
        Args::from_arg_matches_mut(&mut found).ok()
    })
}

/// The program without commands, as far as it matters to lines that are right.
fn alone() -> clap::Command {
    let program = clap::Command::new("extant")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .arg_required_else_help(true);
    Whereabouts::augment_args(program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::ffi::OsStr;

    #[test]
    fn commands_are_described_alone_as_among_all() {
        let all = Args::command();
        for command in all.get_subcommands() {
            let name = command.get_name();
            let (found, alone) = Command::alone(OsStr::new(name)).unwrap();
            assert_eq!(found, name);
            // Where it stands in a list is all that differs.
            let shown = |command: &clap::Command| format!("{:?}", command.clone().display_order(0));
            assert_eq!(shown(&alone), shown(command), "{name}");
        }
        let alone = alone();
        let options = |command: &clap::Command| {
            let options = command.get_arguments();
            options.map(|arg| format!("{arg:?}")).collect::<Vec<_>>()
        };
        assert_eq!(options(&alone), options(&all));
        assert!(alone.get_version().is_some() && all.get_version().is_some());
        for is_set in [
            clap::Command::is_propagate_version_set,
            clap::Command::is_subcommand_required_set,
            clap::Command::is_arg_required_else_help_set,
            clap::Command::is_allow_external_subcommands_set,
        ] {
            assert_eq!(is_set(&alone), is_set(&all));
        }
    }

    #[test]
    fn a_word_that_is_the_value_of_an_option_is_no_command() {
        let read = |line: &str| read(line.split(' ')).map(|args| args.command);
        assert!(matches!(
            read("extant --undo ls cp a img:/"),
            Ok(Command::Cp(_))
        ));
        assert!(matches!(read("extant ls cp"), Ok(Command::Ls(_))));
        assert!(read("extant --undo ls").is_err());
        assert!(read("extant no ls").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_as_of_all_commands() {
        for line in [
            "extant ls --no-such-option x",
            "extant lss x",
            "extant",
            "extant --version",
            "extant ls --version",
            "extant cp",
        ] {
            let words = || line.split(' ');
            let by_all = Args::try_parse_from(words()).unwrap_err();
            let e = read(words()).unwrap_err();
            assert_eq!(e.to_string(), by_all.to_string(), "{line}");
        }
    }
}
