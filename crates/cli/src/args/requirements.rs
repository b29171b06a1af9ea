//! Options that go with another one, which a third may stand in the way of: the reader of the
//! command line takes what is required for given then, and would take the option in silence.

use super::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

/// What some option takes as its value.
const VALUES: [&str; 12] = [
    "1",
    "1M",
    "x",
    "/x",
    "x:/y",
    "unix:x",
    "u",
    "p",
    "10:20",
    "ext4",
    "2024-01-01",
    "+i",
];

/// The words that give `arg` to `command`, beside `before`.
fn words(command: &Command, before: &[String], arg: &Arg) -> Option<Vec<String>> {
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => Some(format!("--{long}")),
        (None, Some(short)) => Some(format!("-{short}")),
        (None, None) => None,
    };
    if !arg.get_action().takes_values() {
        return name.map(|name| vec![name]);
    }
    let values = VALUES.map(str::to_owned).into_iter();
    let possible = arg.get_possible_values();
    let possible = possible.iter().map(|value| value.get_name().to_owned());
    possible.chain(values).find_map(|value| {
        let given = match &name {
            Some(name) => vec![format!("{name}={value}")],
            None => vec![value],
        };
        let refused = parse(command, &[before, &given].concat()).err();
        let is_wrong = refused.is_some_and(|refused| {
            matches!(
                refused.kind(),
                ErrorKind::InvalidValue | ErrorKind::ValueValidation
            )
        });
        (!is_wrong).then_some(given)
    })
}

/// Options and flags.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_positional())
}

fn parse(command: &Command, words: &[String]) -> Result<(), clap::Error> {
    let command = command.clone().no_binary_name(true);
    command.try_get_matches_from(words).map(drop)
}

/// The fewest words that `command` takes.
fn least(command: &Command) -> Option<Vec<String>> {
    let mut given = Vec::new();
    for arg in command.get_arguments().filter(|arg| arg.is_required_set()) {
        given.extend(words(command, &given, arg)?);
    }
    for arg in command.get_positionals() {
        match parse(command, &given) {
            Ok(()) => break,
            Err(_) if arg.is_required_set() => {}
            Err(_) => given.extend(words(command, &given, arg)?),
        }
    }
    parse(command, &given).is_ok().then_some(given)
}

/// What an error says is missing, as it is shown.
fn missing(error: &clap::Error) -> Vec<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.clone(),
        _ => Vec::new(),
    }
}

/// Options of a command, the option that each requires, and those that stand in its way.
fn look(command: &Command, path: &str, found: &mut Vec<String>, taken: &mut Vec<String>) {
    for below in command.get_subcommands() {
        look(below, &format!("{path} {}", below.get_name()), found, taken);
    }
    let Some(given) = least(command) else {
        return;
    };
    for arg in options(command) {
        let Some(with) = words(command, &given, arg) else {
            continue;
        };
        let with = [&given[..], &with].concat();
        let Err(refused) = parse(command, &with) else {
            continue;
        };
        if refused.kind() != ErrorKind::MissingRequiredArgument {
            continue;
        }
        let missing = missing(&refused);
        let required = options(command).filter(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let is_named = |text: &String| text.split([' ', '=']).next() == long.as_deref();
            long.is_some() && missing.iter().any(is_named)
        });
        for required in required {
            found.push(format!("{path} {} {}", arg.get_id(), required.get_id()));
            for other in options(command) {
                let conflicts = |one: &Arg, two: &Arg| {
                    let all = command.get_arg_conflicts_with(one);
                    all.iter().any(|arg| arg.get_id() == two.get_id())
                };
                if !conflicts(required, other) && !conflicts(other, required) {
                    continue;
                }
                let Some(more) = words(command, &with, other) else {
                    continue;
                };
                if parse(command, &[&with[..], &more].concat()).is_ok() {
                    taken.push(format!("{path} {} {}", arg.get_id(), other.get_id()));
                }
            }
        }
    }
}

#[test]
fn what_goes_with_an_option_is_refused_beside_what_that_one_excludes() {
    let mut command = Args::command();
    command.build();
    let (mut found, mut taken) = (Vec::new(), Vec::new());
    look(&command, "", &mut found, &mut taken);
    for known in [
        " digest quiet check",
        " map bmap used",
        " ls mtree recursive",
    ] {
        assert!(
            found.iter().any(|found| found == known),
            "{known}: {found:?}"
        );
    }
    // `serve` refuses a plan without sources itself.
    taken.retain(|taken| !taken.starts_with(" serve "));
    assert!(taken.is_empty(), "{taken:?}");
}
