//! Options that go with another one, which a third may stand in the way of: the reader of the
//! command line takes what is required for given then, and would take the option in silence.

use super::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Id};

/// What some option takes as its value.
const VALUES: [&str; 13] = [
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
    "raw",
    "2024-01-01",
    "+i",
];

/// What no words are found for: these have commands below them, which are looked at, and no option
/// that goes without one.
const PASSED: [&str; 3] = [" xattr", " acl", ""];

/// Options of `serve` that go with `--from`. It looks itself whether there are sources, and says
/// that an image is served as it is.
const OF_SOURCES: [&str; 7] = [
    "writable",
    "platform",
    "whiteouts",
    "exclude",
    "owner",
    "mtime",
    "like",
];

/// What `serve` has instead of sources, or beside an image only.
const OF_IMAGES: [&str; 3] = ["image", "virtiofs", "format"];

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

fn parse(command: &Command, words: &[String]) -> Result<(), clap::Error> {
    let command = command.clone().no_binary_name(true);
    command.try_get_matches_from(words).map(drop)
}

/// Words, and the arguments that they give.
#[derive(Clone, Default)]
struct Given {
    words: Vec<String>,
    ids: Vec<Id>,
}

impl Given {
    fn has(&self, arg: &Arg) -> bool {
        self.ids.contains(arg.get_id())
    }

    /// With `arg` too, unless no value fits it.
    fn with(&self, command: &Command, arg: &Arg) -> Option<Self> {
        let mut given = self.clone();
        if !given.has(arg) {
            given.words.extend(words(command, &self.words, arg)?);
            given.ids.push(arg.get_id().clone());
        }
        Some(given)
    }

    /// With the positional arguments that come before `arg`.
    fn up_to(&self, command: &Command, arg: &Arg) -> Option<Self> {
        let before = command
            .get_positionals()
            .filter(|before| before.get_index() < arg.get_index());
        before
            .into_iter()
            .try_fold(self.clone(), |given, before| given.with(command, before))
    }
}

/// The fewest words that `command` takes.
fn least(command: &Command) -> Option<Given> {
    let mut given = Given::default();
    for arg in command.get_arguments().filter(|arg| arg.is_required_set()) {
        given = given.with(command, arg)?;
    }
    for arg in command.get_positionals() {
        if parse(command, &given.words).is_ok() {
            break;
        }
        given = given.with(command, arg)?;
    }
    parse(command, &given.words).is_ok().then_some(given)
}

/// What an error says is missing, each by its name alone.
fn missing(error: &clap::Error) -> Vec<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => missing.iter().map(|text| name(text)).collect(),
        _ => Vec::new(),
    }
}

/// What an argument is called, of how it is shown.
fn name(shown: &str) -> String {
    let first = shown.split([' ', '=']).next().unwrap_or(shown);
    first.trim_matches(['[', ']', '<', '>', '.']).to_owned()
}

/// What is found out about all commands.
#[derive(Default)]
struct Judged {
    /// An argument, and the one that it requires.
    found: Vec<String>,
    /// An argument that is taken without what it requires, and what is there instead.
    taken: Vec<String>,
    /// Commands and arguments for which no words are found, and why.
    passed: Vec<String>,
}

impl Judged {
    /// Looks at each argument of a command, and of those below it.
    fn look(&mut self, command: &Command, path: &str) {
        for below in command.get_subcommands() {
            self.look(below, &format!("{path} {}", below.get_name()));
        }
        let Some(least) = least(command) else {
            self.passed.push(path.to_owned());
            return;
        };
        for arg in command.get_arguments().filter(|arg| !least.has(arg)) {
            // What has to be there may be in the way, of the argument or of what it requires.
            let before = if arg.is_positional() {
                vec![least.up_to(command, arg)]
            } else {
                vec![Some(least.clone()), Some(Given::default())]
            };
            let before: Vec<Given> = before.into_iter().flatten().collect();
            self.judge(command, path, arg, &before);
        }
    }

    fn judge(&mut self, command: &Command, path: &str, arg: &Arg, before: &[Given]) {
        let row = |other: &str| format!("{path} {} {other}", arg.get_id());
        let mut required = Vec::new();
        let mut refused = "no words".to_owned();
        let mut is_judged = false;
        let mut given = Vec::new();
        for before in before {
            let Some(with) = before.with(command, arg) else {
                continue;
            };
            match parse(command, &with.words) {
                Ok(()) => is_judged = true,
                Err(error) => match error.kind() {
                    ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => is_judged = true,
                    ErrorKind::MissingRequiredArgument => {
                        let anyway = parse(command, &before.words).err();
                        let anyway = anyway.map_or(Vec::new(), |error| missing(&error));
                        required.extend(
                            missing(&error)
                                .into_iter()
                                .filter(|name| !anyway.contains(name)),
                        );
                        is_judged = true;
                    }
                    kind => refused = format!("{kind:?}"),
                },
            }
            given.push(with);
        }
        if !is_judged {
            self.passed.push(row(&refused));
        }
        required.sort_unstable();
        required.dedup();
        for required in required {
            let by_name = |arg: &&Arg| name(&arg.to_string()) == required;
            let Some(required) = command.get_arguments().find(by_name) else {
                self.passed.push(row(&required));
                continue;
            };
            self.found.push(row(required.get_id().as_str()));
            for other in command.get_arguments() {
                self.instead(command, path, [arg, required, other], &given);
            }
        }
    }

    /// Looks whether an argument is taken without the one it requires, where another one excludes
    /// that.
    fn instead(&mut self, command: &Command, path: &str, args: [&Arg; 3], given: &[Given]) {
        let [arg, required, other] = args;
        let conflicts = |one: &Arg, two: &Arg| {
            let all = command.get_arg_conflicts_with(one);
            all.iter().any(|arg| arg.get_id() == two.get_id())
        };
        if !conflicts(required, other) && !conflicts(other, required) {
            return;
        }
        let row = format!("{path} {} {}", arg.get_id(), other.get_id());
        let all = given.iter().map(|given| given.with(command, other));
        let all: Option<Vec<Given>> = all.collect();
        match all {
            None => self.passed.push(row),
            Some(all) if all.iter().any(|all| parse(command, &all.words).is_ok()) => {
                self.taken.push(row);
            }
            Some(_) => {}
        }
    }
}

#[test]
fn what_goes_with_an_option_is_refused_beside_what_that_one_excludes() {
    let mut command = Args::command();
    command.build();
    let mut judged = Judged::default();
    judged.look(&command, "");
    let Judged {
        found,
        taken,
        passed,
    } = judged;
    for known in [
        " digest quiet check",
        " map bmap used",
        " ls mtree recursive",
        " mknod major minor",
    ] {
        assert!(
            found.iter().any(|found| found == known),
            "{known}: {found:?}"
        );
    }
    assert_eq!(passed, PASSED, "found {found:#?}");
    let refused_later = OF_SOURCES.iter().flat_map(|arg| {
        let row = move |other| format!(" serve {arg} {other}");
        OF_IMAGES.iter().map(row)
    });
    assert_eq!(taken, refused_later.collect::<Vec<_>>());
}
