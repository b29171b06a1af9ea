//! Help and manual pages, made of the command line in `args`.
//!
//! | module | owns |
//! |---|---|
//! | `text` | the text behind the options: its blocks, and how they are laid out at a width |
//! | `groups` | the groups of commands, and the options that mean something to each |
//! | `page` | one manual page, in roff |
//! | `pages` | the sections of the manual pages of all commands |

mod groups;
mod page;
mod pages;
mod text;

pub(crate) use pages::{all as manual_pages, main as main_page};

use crate::args::Args;
use clap::{Arg, Command, CommandFactory};
use groups::GROUPS;
use std::borrow::Cow;

/// Longer lines are hard to read, however wide the terminal is.
const WIDEST: usize = 100;

/// Stands for a space at which no line is broken, until the help is shown.
const FIXED_SPACE: char = '\u{a0}';

/// The command line, with its help laid out at the width of the terminal.
pub(crate) fn command() -> Command {
    laid_out(width())
}

/// The command line without the options that mean nothing to a command.
pub(crate) fn without_meaningless_options() -> Command {
    hide_meaningless(Args::command()).propagate_version(false)
}

/// Help as it is shown: no line ends in white space, and none of what is to be typed is broken.
pub(crate) fn shown(rendered: &str) -> String {
    let lines: Vec<&str> = rendered.split('\n').map(str::trim_end).collect();
    lines.join("\n").replace(FIXED_SPACE, " ")
}

/// Columns to fill: those of the terminal that the help goes to, or else of `COLUMNS`.
fn width() -> usize {
    let terminal = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let columns = terminal.map(|size| usize::from(size.ws_col));
    let of_environment = || std::env::var("COLUMNS").ok()?.parse().ok();
    let columns = columns
        .filter(|&columns| columns > 0)
        .or_else(of_environment);
    columns.unwrap_or(WIDEST).min(WIDEST)
}

fn laid_out(width: usize) -> Command {
    let command = without_meaningless_options().term_width(width);
    let overview = overview(&command, width);
    lay_out_below(command, width).help_template(overview)
}

/// Lays out the text behind the options, of a command and of those below it.
fn lay_out_below(command: Command, width: usize) -> Command {
    let text = command.get_after_help().map(ToString::to_string);
    let command = match text {
        Some(text) => command.after_help(text::lay_out(&text::blocks(&text), width)),
        None => command,
    };
    command.mut_subcommands(|below| lay_out_below(below, width))
}

/// The template of the help of the program itself: its commands in groups, and its options.
fn overview(command: &Command, width: usize) -> String {
    let mut built = command.clone();
    built.build();
    let about = |name: &&'static str| {
        let below = built.find_subcommand(name);
        let about = below.and_then(Command::get_about).map(ToString::to_string);
        (Cow::Borrowed(*name), about.unwrap_or_default())
    };
    let mut sections: Vec<(&str, Vec<text::Row>)> = GROUPS
        .iter()
        .map(|(heading, names)| (*heading, names.iter().map(about).collect()))
        .collect();
    sections.push(("Options", Vec::new()));
    for arg in built.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let heading = arg.get_help_heading().unwrap_or("Options");
        let help = arg.get_help().map(ToString::to_string);
        let row = (Cow::Owned(named(arg)), help.unwrap_or_default());
        match sections.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, rows)) => rows.push(row),
            None => sections.push((heading, vec![row])),
        }
    }
    // One column for all commands, and one for each kind of options.
    let widest = text::widest(
        sections
            .iter()
            .take(GROUPS.len())
            .flat_map(|(_, rows)| rows),
    );
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (number, (heading, rows)) in sections.iter().enumerate() {
        let column = if number < GROUPS.len() {
            widest
        } else {
            text::widest(rows)
        };
        let rows = text::table(rows, column, width);
        template.push_str(&format!("\n{heading}:\n{rows}\n"));
    }
    template.truncate(template.trim_end().len());
    template.push_str("{after-help}");
    template
}

/// An option by its names, as clap shows it in help.
fn named(arg: &Arg) -> String {
    let short = match arg.get_short() {
        Some(short) => format!("-{short}, "),
        None => "    ".to_owned(),
    };
    let long = arg.get_long().unwrap_or_default();
    let values = arg.get_value_names().unwrap_or_default();
    match values.first().filter(|_| arg.get_action().takes_values()) {
        Some(value) => format!("{short}--{long} <{value}>"),
        None => format!("{short}--{long}"),
    }
}

/// Takes the options out of the help of each command that mean nothing to it.
fn hide_meaningless(command: Command) -> Command {
    let global = global_options(&command);
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        let hidden = |path: &[&str]| {
            let hidden = global.iter().filter(|arg| !is_shown(arg, path));
            hidden.map(|arg| arg.clone().hide(true)).collect::<Vec<_>>()
        };
        // What is hidden here would be hidden in the commands below as well.
        let below = if below.has_subcommands() {
            below
        } else {
            below.args(hidden(&[&name]))
        };
        below.mut_subcommands(|leaf| {
            let hidden = hidden(&[&name, leaf.get_name()]);
            leaf.args(hidden)
        })
    })
}

/// The command line for completions: each command has the options alone that mean something to it.
pub(crate) fn for_completions() -> Command {
    let command = Args::command().propagate_version(false);
    let global = global_options(&command);
    let shown = |path: &[&str]| {
        let shown = global.iter().filter(|arg| is_shown(arg, path));
        shown
            .map(|arg| arg.clone().global(false))
            .collect::<Vec<_>>()
    };
    let command = command.mut_args(|arg| arg.global(false));
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        let options = shown(&[&name]);
        below.args(options).mut_subcommands(|leaf| {
            let options = shown(&[&name, leaf.get_name()]);
            leaf.args(options)
        })
    })
}

fn global_options(command: &Command) -> Vec<Arg> {
    let all = command.get_arguments();
    all.filter(|arg| arg.is_global_set()).cloned().collect()
}

/// Whether an option about the place of a file system means something to a command.
fn is_shown(arg: &Arg, path: &[&str]) -> bool {
    groups::location_options(path).contains(&arg.get_id().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_command_is_in_one_group() {
        let command = Args::command();
        for below in command.get_subcommands() {
            let name = below.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(groups.count(), 1, "{name}");
        }
        let mut grouped = GROUPS.iter().flat_map(|(_, names)| names.iter());
        assert!(grouped.all(|name| *name == "help" || command.find_subcommand(name).is_some()));
    }

    /// Gathers the commands that have the option --json.
    fn gather_json(command: &Command, above: &str, all: &mut BTreeSet<String>) {
        for below in command.get_subcommands() {
            let name = format!("{above}{}", below.get_name());
            gather_json(below, &format!("{name} "), all);
            if below
                .get_arguments()
                .any(|arg| arg.get_long() == Some("json"))
            {
                all.insert(name);
            }
        }
    }

    #[test]
    fn the_schema_has_the_commands_that_write_json() {
        let mut all = BTreeSet::new();
        gather_json(&Args::command(), "", &mut all);
        assert!(all.len() > 25, "{all:?}");
        let schema = include_str!("../../../../docs/user/json.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).expect("it is JSON");
        let definitions = schema["$defs"].as_object().expect("definitions").iter();
        // Those of commands say what the output is as a whole.
        let commands = definitions.filter(|(_, definition)| {
            let about = definition["description"].as_str();
            about.is_some_and(|about| about.starts_with("One object"))
        });
        let commands: BTreeSet<String> = commands.map(|(name, _)| name.clone()).collect();
        assert_eq!(
            commands, all,
            "docs/user/json.schema.json and docs/user/json.md"
        );
    }

    #[test]
    fn the_command_line_for_help_is_sound() {
        for width in [1, 60, WIDEST] {
            laid_out(width).debug_assert();
        }
        for_completions().debug_assert();
    }
}
