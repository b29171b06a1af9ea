//! Manual pages: their sections, their dates, and the exit codes that they list.

use crate::help::{all_commands, words};
use crate::support::{Place, extant, extant_with};
use extant_testkit::tool::tool;
use std::collections::BTreeMap;
use std::fs;

/// The pages, by the names of their files.
fn pages(place: &Place) -> BTreeMap<String, String> {
    let dir = place.path();
    extant(["man", "--dir", dir.to_str().unwrap()]).ok();
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    files
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            (name, fs::read_to_string(file.path()).unwrap())
        })
        .collect()
}

fn file_name(command: &[String]) -> String {
    let name: Vec<&str> = ["extant"].into_iter().chain(words(command)).collect();
    format!("{}.1", name.join("-"))
}

/// The lines of a section.
fn section<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let heading = [format!(".SH {name}"), format!(".SH \"{name}\"")];
    let lines = page
        .lines()
        .skip_while(|line| !heading.iter().any(|known| known == line));
    lines
        .skip(1)
        .take_while(|line| !line.starts_with(".SH "))
        .collect()
}

/// The terms of the list in a section.
fn terms(page: &str, name: &str) -> Vec<String> {
    let lines = section(page, name);
    let pairs = lines.windows(2).filter(|pair| pair[0] == ".TP");
    pairs
        .map(|pair| pair[1].replace("\\fB", "").replace("\\fR", ""))
        .collect()
}

#[test]
fn each_command_has_a_page_with_all_sections() {
    let place = Place::new();
    let pages = pages(&place);
    let commands = all_commands();
    assert_eq!(pages.len(), commands.len());
    for command in &commands {
        let name = file_name(command);
        let page = pages.get(&name).expect(&name);
        for section_name in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "EXIT STATUS",
            "ENVIRONMENT",
            "SEE ALSO",
        ] {
            assert!(
                !section(page, section_name).is_empty(),
                "{name}: {section_name}\n{page}"
            );
        }
        assert!(
            section(page, "EXAMPLES")
                .iter()
                .any(|line| line.contains("extant ")),
            "{page}"
        );
        let version = format!("\"extant {}\"", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&version), "{page}");
    }
    assert_eq!(extant(["man"]).ok().text(), pages["extant.1"]);
}

#[test]
fn groff_has_no_complaint_about_a_page() {
    let place = Place::new();
    for name in pages(&place).into_keys() {
        let checked = tool("groff")
            .args(["-man", "-ww", "-Tutf8", "-z"])
            .arg(place.join(&name))
            .ok();
        assert!(
            checked.stderr.is_empty() && checked.stdout.is_empty(),
            "{checked}"
        );
    }
}

#[test]
fn pages_of_extant_that_are_named_exist() {
    let place = Place::new();
    let pages = pages(&place);
    for (name, page) in &pages {
        let named = section(page, "SEE ALSO").join(" ").replace("\\-", "-");
        let named = named
            .split(", ")
            .map(|one| one.replace("\\fB", "").replace("\\fR", ""));
        let own: Vec<String> = named.filter(|one| one.starts_with("extant")).collect();
        assert!(!own.is_empty(), "{name}");
        for one in own {
            let file = one.replace("(1)", ".1");
            assert!(pages.contains_key(&file) && file != *name, "{name}: {one}");
        }
    }
}

#[test]
fn pages_are_dated_by_the_release_or_by_the_epoch() {
    let made = || extant(["man"]).ok().text();
    assert_eq!(made(), made());
    let date = made()
        .lines()
        .find_map(|line| Some(line.strip_prefix(".TH EXTANT 1 ")?[..10].to_owned()));
    let date = date.expect("a title with a date");
    assert!(
        date.as_bytes()[4] == b'-' && date.starts_with("20"),
        "{date}"
    );
    let at = |epoch: &str| {
        extant_with(["man"], |command| {
            command.env("SOURCE_DATE_EPOCH", epoch);
        })
    };
    assert!(at("86400").ok().text().contains(".TH EXTANT 1 1970-01-02 "));
    at("yesterday").fails(2);
}

/// Arguments with which a command finds no image, no mount or no directory.
pub(crate) fn without_an_image(command: &[&str]) -> Vec<&'static str> {
    match command {
        ["mkfs"] => vec!["/none/image", "--size", "1M"],
        ["mv" | "cp" | "cmp"] => vec!["/none/image:/a", "/none/image:/b"],
        ["grep"] => vec!["a", "/none/image:/a"],
        ["apply"] => vec!["/none/layer", "/none/image"],
        ["edit"] => vec!["/none/image", "-e", "rm /a"],
        ["ln"] => vec!["-s", "a", "/none/image:/b"],
        ["chmod"] => vec!["600", "/none/image:/a"],
        ["chown"] => vec!["0", "/none/image:/a"],
        ["relabel"] => vec!["/none/image", "--contexts", "/dev/null"],
        ["chattr"] => vec!["+i", "/none/image:/a"],
        ["truncate"] => vec!["-s", "0", "/none/image:/a"],
        ["fallocate"] => vec!["-l", "1", "/none/image:/a"],
        ["mknod"] => vec!["/none/image:/a", "p"],
        ["xattr", "get" | "rm"] => vec!["/none/image:/a", "user.a"],
        ["xattr", "set"] => vec!["/none/image:/a", "user.a", "b"],
        ["acl", "set"] => vec!["u:1:r", "/none/image:/a"],
        ["mount"] => vec!["/none/image", "/none/directory"],
        ["umount" | "stats"] => vec!["/none/directory"],
        ["convert"] => vec!["/none/image", "/none/target"],
        ["diff"] => vec!["/none/image:/a", "/none/image:/b"],
        ["sync"] => vec!["/none/source", "/none/image:/a"],
        ["serve"] => vec!["/none/image", "--nbd", "unix:/none/socket"],
        ["man"] => vec!["--dir", "/none/directory"],
        ["check" | "repair" | "replay" | "trim" | "info" | "df" | "quota"] => vec!["/none/image"],
        ["recover"] => vec!["/none/image", "--all", "-d", "/none/directory"],
        ["tune"] => vec!["--label", "a", "/none/image"],
        ["verity"] => vec!["--dm-verity", "append", "/none/image"],
        ["resize"] => vec!["/none/image", "1G"],
        ["revert"] => vec!["/none/undo", "/none/image"],
        _ => vec!["/none/image:/a"],
    }
}

#[test]
fn exit_codes_are_those_of_the_page() {
    let place = Place::new();
    let pages = pages(&place);
    for command in all_commands() {
        let words = words(&command);
        let codes = terms(&pages[&file_name(&command)], "EXIT STATUS");
        let expected: &[&str] = match words.first() {
            Some(&"check") => &["0", "4", "8", "16"],
            Some(&"repair") => &["0", "1", "4", "8", "16"],
            Some(&"tune" | &"resize") => &["0", "8", "16"],
            _ => &["0", "1", "2"],
        };
        assert_eq!(codes, expected, "{command:?}");
        let is_as_e2fsck = codes.iter().any(|code| code == "8");
        let (failure, usage) = match words.first() {
            _ if is_as_e2fsck => (8, 16),
            // 1 says that there are differences, or that nothing was found.
            Some(&"cmp" | &"diff" | &"grep") => (2, 2),
            _ => (1, 2),
        };
        extant(words.iter().chain(&["--nonsense"])).fails(usage);
        let behind_an_option = ["--partition", "2"].iter().chain(&words);
        extant(behind_an_option.chain(&["--nonsense"])).fails(usage);
        // What has commands below it, and what needs no image, cannot fail so.
        if !["", "xattr", "acl", "completions"].contains(&words.join(" ").as_str()) {
            let args = without_an_image(&words);
            extant(words.iter().chain(&args)).fails(failure);
        }
    }
}
