//! Help and completions.

use crate::support::{extant, extant_with};

/// Widths of terminals, from narrow to wide.
const WIDTHS: [usize; 5] = [60, 80, 100, 120, 200];

/// No line of the help is longer, however wide the terminal is.
const WIDEST: usize = 100;

/// The help of a command on a terminal of this width.
fn help_at(width: usize, command: &[&str], flag: &str) -> String {
    let args = command.iter().copied().chain([flag]);
    extant_with(args, |command| {
        command.env("COLUMNS", width.to_string());
    })
    .ok()
    .text()
}

/// The names of all commands, as the help lists them.
pub(crate) fn commands() -> Vec<String> {
    let help = help_at(WIDEST, &[], "--help");
    let groups = help
        .split("\nOptions:\n")
        .next()
        .expect("groups of commands");
    groups
        .lines()
        .filter_map(|line| {
            let name = line.strip_prefix("  ")?.split(' ').next()?;
            (!name.is_empty() && name != "help").then(|| name.to_owned())
        })
        .collect()
}

/// All commands with those below them, and the program itself.
pub(crate) fn all_commands() -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for command in commands() {
        let help = help_at(WIDEST, &[&command], "--help");
        all.push(vec![command.clone()]);
        let below = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let below = below.lines().take_while(|line| !line.is_empty());
        for name in below.filter_map(|line| line.trim().split(' ').next()) {
            if name != "help" {
                all.push(vec![command.clone(), name.to_owned()]);
            }
        }
    }
    all
}

pub(crate) fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

#[test]
fn every_command_explains_itself_with_examples() {
    let commands = all_commands();
    assert!(commands.len() >= 40, "{commands:?}");
    for command in &commands {
        let help = help_at(80, &words(command), "--help");
        let name = ["extant"].into_iter().chain(words(command));
        let name = name.collect::<Vec<_>>().join(" ");
        let examples = help.split("Examples:\n  ").nth(1).unwrap_or_default();
        let examples = examples.split("\n\n").next().unwrap_or_default();
        assert!(examples.contains(&name), "{name}:\n{help}");
    }
}

#[test]
fn commands_are_listed_in_groups() {
    let help = help_at(80, &[], "--help");
    let of = |command: &str| {
        let before = help.split(&format!("\n  {command} ")).next().unwrap();
        before
            .rsplit("\n\n")
            .next()
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(of("mkfs"), "Make an image");
    assert_eq!(of("lsattr"), "Look into an image");
    assert_eq!(of("tar"), "Take files out, or put them in");
    assert_eq!(of("chattr"), "Change files in an image");
    assert_eq!(of("repair"), "Check, repair and adjust an image");
    assert_eq!(of("umount"), "Mount or serve an image");
}

/// Columns of white space in front of a line.
fn indent(line: &str) -> usize {
    line.chars().take_while(|c| *c == ' ').count()
}

/// The column at which a line that goes on after this one would begin: that of the text, which in a
/// list stands behind the term and at least two spaces.
fn text_column(line: &str) -> usize {
    let indent = indent(line);
    if indent == 0 {
        return 0;
    }
    let text = line.trim_start();
    let Some(gap) = text.find("  ") else {
        return indent;
    };
    let behind = text[gap..].chars().take_while(|c| *c == ' ').count();
    indent + text[..gap].chars().count() + behind
}

/// The lines of a help that words fill: not those of usage, nor what is to be typed.
fn filled(help: &str) -> Vec<&str> {
    let mut typed = false;
    let mut lines = Vec::new();
    for line in help.lines() {
        typed &= line.starts_with("  ");
        if !typed && !line.starts_with("Usage: ") && !line.starts_with("       extant ") {
            lines.push(line);
        }
        typed |= line == "Examples:" || line.ends_with("to this program:");
    }
    lines
}

/// What is wrong with how a help fills this width.
fn raggedness(help: &str, width: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let lines = filled(help);
    for line in &lines {
        if line.chars().count() > width {
            wrong.push(format!("longer than {width}: {line}"));
        }
        if line.ends_with(' ') || line.contains('\t') || line.contains('\u{a0}') {
            wrong.push(format!("stray white space: {line:?}"));
        }
    }
    for pair in lines.windows(2) {
        let [line, next] = [pair[0], pair[1]];
        let begins_item = next.trim_start().starts_with("- ");
        if line.is_empty() || next.is_empty() || begins_item || indent(next) != text_column(line) {
            continue;
        }
        let word = next.split_whitespace().next().unwrap_or_default();
        if line.chars().count() + 1 + word.chars().count() <= width {
            wrong.push(format!("{word:?} would have fitted behind: {line}"));
        }
    }
    wrong
}

#[test]
fn help_fills_every_width() {
    let mut wrong = Vec::new();
    for command in all_commands() {
        for width in WIDTHS {
            for flag in ["--help", "-h"] {
                // There -h is another option.
                if flag == "-h"
                    && words(&command)
                        .first()
                        .is_some_and(|name| ["ls", "df", "du", "grep", "chown"].contains(name))
                {
                    continue;
                }
                let help = help_at(width, &words(&command), flag);
                let found = raggedness(&help, width.min(WIDEST));
                wrong.extend(
                    found
                        .iter()
                        .map(|found| format!("{command:?} at {width}: {found}")),
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ragged_help_is_recognised() {
    assert!(raggedness("one two\nthree\n", 7).is_empty());
    assert_eq!(raggedness("one two\nthree\n", 13).len(), 1);
    assert_eq!(raggedness("one two\nthree\n", 6).len(), 1);
    assert!(raggedness("  -a  one\n      two\n  -b  six\n", 9).is_empty());
    assert_eq!(raggedness("  -a  one\n      two\n  -b  six\n", 13).len(), 1);
}

#[test]
fn options_of_a_mount_are_an_aligned_list() {
    let help = help_at(100, &["mount"], "--help");
    let list = help.split("Options of -o:\n").nth(1).unwrap();
    let list: Vec<&str> = list.lines().take_while(|line| !line.is_empty()).collect();
    assert!(list.len() > 25, "{help}");
    let column = text_column(list[0]);
    for line in list {
        let at = match indent(line) {
            2 => text_column(line),
            deeper => deeper,
        };
        assert_eq!(at, column, "{line}");
    }
}

#[test]
fn options_about_a_place_are_shown_where_they_mean_something() {
    let shown = |command: &[&str]| {
        let help = help_at(100, command, "--help");
        let all = [
            "partition",
            "offset",
            "superblock",
            "as-is",
            "journal",
            "undo",
        ];
        let is_shown = |name: &&&str| {
            help.lines().any(|line| {
                let option = line.trim_start().strip_prefix("--");
                option.is_some_and(|option| option.split(' ').next() == Some(**name))
            })
        };
        all.iter().filter(is_shown).copied().collect::<Vec<_>>()
    };
    assert_eq!(shown(&["umount"]), [""; 0]);
    assert_eq!(shown(&["man"]), [""; 0]);
    assert_eq!(shown(&["revert"]), ["partition", "offset"]);
    assert_eq!(shown(&["mkdir"]), ["partition", "offset", "undo"]);
    assert_eq!(shown(&["tune"]), ["partition", "offset", "undo"]);
    assert_eq!(shown(&["xattr", "set"]), ["partition", "offset", "undo"]);
    assert_eq!(
        shown(&["check"]),
        ["partition", "offset", "as-is", "journal"]
    );
    assert_eq!(
        shown(&["ls"]),
        ["partition", "offset", "superblock", "as-is", "journal"]
    );
    for command in [
        &["umount", "/none"][..],
        &["stats", "/none"],
        &["man"],
        &["completions", "bash"],
    ] {
        extant(command.iter().copied().chain(["--partition", "2"])).fails(2);
        extant(["--as-is"].into_iter().chain(command.iter().copied())).fails(2);
    }
    extant(["mkdir", "none.img:/x", "--as-is"]).fails(2);
}

#[test]
fn nonsense_on_the_command_line_exits_with_2_and_a_sentence() {
    extant(["ls"]).fails(2);
    extant(["frobnicate"]).fails(2);
    extant(["ls", "--frobnicate", "x"]).fails(2);
    extant(["completions", "elephant"]).fails(2);
    // What looks like another option is not offered in its place.
    let told = extant(["mkfs", "--verbos", "x"]).fails(2).stderr;
    assert!(told.contains("unexpected argument '--verbos'"), "{told}");
    assert!(!told.contains("--version"), "{told}");
}

#[test]
fn version_and_help_are_no_failures() {
    assert!(extant(["--version"]).ok().text().starts_with("extant "));
    extant(["help", "ls"]).ok();
}

#[test]
fn the_version_names_commit_target_and_features() {
    let told = extant(["--version"]).ok().text();
    let lines: Vec<&str> = told.lines().collect();
    let [first, commit, target, features] = lines[..] else {
        panic!("{told}");
    };
    assert_eq!(first, format!("extant {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(extant(["-V"]).ok().text(), format!("{first}\n"));
    let value = |line: &str, name: &str| {
        let value = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    assert!(!value(commit, "commit").is_empty());
    let target = value(target, "target");
    assert!(target.starts_with(std::env::consts::ARCH), "{target}");
    assert!(target.contains(std::env::consts::OS), "{target}");
    // Tests are built with all that the command has by default.
    assert_eq!(
        value(features, "features"),
        "fast-patterns formats prompt remote tls virtiofs"
    );
    // A command has no features of its own.
    assert!(
        extant(["ls", "--version"])
            .ok()
            .text()
            .starts_with("extant-ls ")
    );
}

#[test]
fn completions_are_written_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = extant(["completions", shell]).ok().text();
        assert!(script.contains("mkfs"), "{shell}");
    }
    let script = extant(["completions", "bash"]).ok().text();
    let options_of = |command: &str| {
        let case = format!("extant__subcmd__{command})\n");
        let found = script.rsplit(&case).next().unwrap();
        found.lines().next().unwrap().trim().to_owned()
    };
    assert!(
        options_of("ls").contains(" --as-is "),
        "{}",
        options_of("ls")
    );
    assert!(
        options_of("mkdir").contains(" --partition "),
        "{}",
        options_of("mkdir")
    );
    assert!(
        !options_of("mkdir").contains("--as-is"),
        "{}",
        options_of("mkdir")
    );
    assert!(
        options_of("umount").contains(" --lazy "),
        "{}",
        options_of("umount")
    );
    assert!(
        !options_of("umount").contains("--partition"),
        "{}",
        options_of("umount")
    );
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for line in [
        &["--help"][..],
        &["--version"],
        &["ls", "--help"],
        &["help", "cp"],
    ] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let status = std::process::Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(line)
            .stdout(full)
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(1), "{line:?}");
    }
}
