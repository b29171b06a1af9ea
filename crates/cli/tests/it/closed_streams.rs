//! Commands that are started without standard input, output or error.

use crate::support::{Place, extant, small_plan};
use extant_testkit::oracle::assert_clean;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `"$0" line` in a shell, the command being this program.
fn shell(line: &str) -> Output {
    Command::new("sh")
        .args(["-c", &format!("\"$0\" {line}")])
        .arg(env!("CARGO_BIN_EXE_extant"))
        .output()
        .unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_said_is_a_failure() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    for (line, code) in [
        ("--version", 1),
        ("ls --help", 1),
        ("completions bash", 1),
        (&format!("ls '{image}'"), 1),
        (&format!("ls --json '{image}'"), 1),
        (&format!("info '{image}'"), 1),
        (&format!("find '{image}'"), 1),
        (&format!("tar '{image}'"), 1),
        (&format!("cat '{image}:/etc/hostname'"), 1),
        (&format!("check '{image}'"), 8),
    ] {
        let output = shell(&format!("{line} >&-"));
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        // The library that writes archives does not know why.
        let why = if line.starts_with("tar") {
            "cannot write the archive"
        } else {
            "standard output is closed"
        };
        assert!(told(&output).contains(why), "{line}: {output:?}");
    }
}

#[test]
fn commands_with_nothing_to_say_need_no_output() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    for line in [
        &format!("mkdir '{image}:/made'")[..],
        &format!("cp /etc/passwd '{image}:/made/passwd'"),
        &format!("mv '{image}:/made/passwd' '{image}:/made/other'"),
    ] {
        let output = shell(&format!("{line} <&- >&- 2>&-"));
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    }
    let output = shell(&format!("ls '{image}:/missing' <&- >&- 2>&-"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        extant(["cat", &format!("{image}:/made/other")]).stdout,
        std::fs::read("/etc/passwd").unwrap()
    );
    assert_clean(Path::new(&image));
}

#[test]
fn input_that_is_not_there_is_not_an_empty_file() {
    let place = Place::new();
    let image = place.image(&small_plan(), &[]);
    let names = || extant(["find", &image]).ok().text();
    let before = names();
    for line in [
        format!("write '{image}:/new'"),
        format!("cp - '{image}:/new'"),
        format!("xattr set '{image}:/etc/hostname' user.x -"),
        format!("edit '{image}' -f -"),
        format!("apply - '{image}'"),
        format!("cmp - '{image}:/etc/hostname'"),
        format!("digest --check - '{image}:/'"),
        format!("tar -x '{image}'"),
        format!("mkfs '{image}.new' --from -"),
    ] {
        let output = shell(&format!("{line} <&-"));
        assert_ne!(output.status.code(), Some(0), "{line}: {output:?}");
        assert!(
            told(&output).contains("standard input is closed"),
            "{line}: {output:?}"
        );
        assert_eq!(names(), before, "{line}");
    }
    assert!(!Path::new(&format!("{image}.new")).exists());
}
