//! Help, completions and manual pages.

use crate::support::{Place, extant};

/// The names of all commands, as the help lists them.
pub(crate) fn commands() -> Vec<String> {
    let help = extant(["--help"]).ok().text();
    let list = help
        .split("Commands:\n")
        .nth(1)
        .expect("a list of commands");
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            let name = line.strip_prefix("  ")?.split(' ').next()?;
            (!name.is_empty() && name != "help").then(|| name.to_owned())
        })
        .collect()
}

#[test]
fn every_command_explains_itself_with_examples() {
    let commands = commands();
    assert!(commands.len() >= 12, "{commands:?}");
    for command in &commands {
        let help = extant([command, "--help"]).ok().text();
        assert!(help.contains("Examples:\n  "), "{command}:\n{help}");
        assert!(
            help.contains(&format!("extant {command}")),
            "{command}:\n{help}"
        );
    }
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
fn completions_are_written_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = extant(["completions", shell]).ok().text();
        assert!(script.contains("mkfs"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let place = Place::new();
    extant(["man", "--dir", place.path().to_str().unwrap()]).ok();
    for command in commands() {
        let page = place.join(&format!("extant-{command}.1"));
        assert!(page.is_file(), "{}", page.display());
    }
    assert!(extant(["man"]).ok().text().contains(".TH extant 1"));
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
