//! What a word that is being typed may become.

use super::cut::{Cut, quoted};
use super::session::OWN;
use crate::args::Args;
use crate::commands::complete_path::below;
use crate::commands::edit::step::COMMANDS;
use clap::CommandFactory;
use extant::Filesystem;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names offered at most.
const MOST: usize = 1000;

/// What a word can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One of these.
    Words(&'static [&'static str]),
    Command,
    /// An option of the command.
    Option,
    /// A path in the image.
    Image,
    /// A path of the host.
    Host,
}

/// Something that a word may become.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) shown: String,
    /// In place of the word, quoted as it was begun.
    pub(super) text: String,
}

/// What the word at the end of a line may become, and where that begins.
pub(super) fn candidates(line: &str, fs: &Filesystem) -> (usize, Vec<Candidate>) {
    let Some(cut) = Cut::of(line) else {
        return (line.len(), Vec::new());
    };
    let mut found: Vec<String> = Vec::new();
    for kind in kinds(&cut.before, &cut.word) {
        found.extend(match kind {
            Kind::Words(words) => beginning(words.iter().copied(), &cut.word),
            Kind::Command => beginning(COMMANDS.iter().chain(OWN).copied(), &cut.word),
            Kind::Option => options(&cut.before, &cut.word),
            Kind::Image => in_image(fs, &cut.word),
            Kind::Host => on_host(&cut.word),
        });
    }
    found.sort();
    found.dedup();
    let is_only = found.len() == 1;
    let candidates = found.into_iter().map(|word| {
        let is_whole = !word.ends_with(['/', '=']);
        Candidate {
            shown: shown(&word).to_owned(),
            text: quoted(&word, cut.quote, is_only && is_whole),
        }
    });
    (cut.start, candidates.collect())
}

/// What is shown of a word: the last name of a path.
fn shown(word: &str) -> &str {
    let path = word.strip_suffix('/').unwrap_or(word);
    let start = path.rfind('/').map_or(0, |at| at + 1);
    &word[start..]
}

/// What a word can be behind these.
fn kinds(before: &[String], word: &str) -> Vec<Kind> {
    const CONDITIONS: Kind = Kind::Words(&["exists", "absent", "size=", "sha256=", "target="]);
    let Some(command) = before.first() else {
        return vec![Kind::Command];
    };
    let last = before.last().map_or("", String::as_str);
    let operands = before.iter().skip(1).filter(|word| !word.starts_with('-'));
    let operands = operands.count();
    let image = || {
        if word.is_empty() || word.starts_with('/') {
            vec![Kind::Image]
        } else {
            Vec::new()
        }
    };
    match &**command {
        "if" | "expect" if operands == 0 => vec![CONDITIONS],
        "help" => vec![Kind::Command],
        "uuid" if operands == 0 => vec![Kind::Words(&["random", "clear"])],
        "label" | "uuid" | "else" | "end" => Vec::new(),
        _ if word.starts_with('-') => vec![Kind::Option],
        "xattr" if operands == 0 => vec![Kind::Words(&["ls", "get", "set", "rm"])],
        "acl" if operands == 0 => vec![Kind::Words(&["get", "set", "rm"])],
        "put" if matches!(last, "-t" | "--target-directory") => image(),
        "get" if matches!(last, "-t" | "--target-directory") => vec![Kind::Host],
        "apply" if last == "--root" => image(),
        "apply" => vec![Kind::Host],
        "put" | "tar-in" if operands == 0 => vec![Kind::Host],
        // The last of them lies elsewhere than the others.
        "put" => [image(), vec![Kind::Host]].concat(),
        "get" if operands > 0 => [image(), vec![Kind::Host]].concat(),
        _ => image(),
    }
}

fn beginning<'a>(words: impl Iterator<Item = &'a str>, typed: &str) -> Vec<String> {
    let found = words.filter(|word| word.starts_with(typed));
    found.map(str::to_owned).collect()
}

/// The long options of a command.
fn options(before: &[String], typed: &str) -> Vec<String> {
    let name = match before.first().map_or("", String::as_str) {
        "put" | "get" => "cp",
        "tar-in" => "tar",
        name => name,
    };
    let line = Args::command();
    let Some(mut command) = line.find_subcommand(name) else {
        return Vec::new();
    };
    let below = before.get(1).and_then(|word| command.find_subcommand(word));
    command = below.unwrap_or(command);
    let all = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let all = all.filter_map(|arg| Some(format!("--{}", arg.get_long()?)));
    all.filter(|option| option.starts_with(typed)).collect()
}

/// What a word may become as a path in the image.
fn in_image(fs: &Filesystem, word: &str) -> Vec<String> {
    let found = below(fs, word.as_bytes()).unwrap_or_default();
    found
        .into_iter()
        .filter_map(|path| String::from_utf8(path).ok())
        .collect()
}

/// What a word may become as a path of the host.
fn on_host(word: &str) -> Vec<String> {
    let (dir, prefix) = word.split_at(word.rfind('/').map_or(0, |at| at + 1));
    let place = if dir.is_empty() { "." } else { dir };
    let Ok(entries) = std::fs::read_dir(Path::new(OsStr::from_bytes(place.as_bytes()))) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| {
        let is_hidden = name.starts_with('.') && !prefix.starts_with('.');
        name.starts_with(prefix) && !is_hidden && !name.chars().any(char::is_control)
    });
    let paths = names.take(MOST).map(|name| {
        let path = format!("{dir}{name}");
        let end = if Path::new(&path).is_dir() { "/" } else { "" };
        format!("{path}{end}")
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::oracle::mke2fs;

    fn kinds_of(line: &str) -> Vec<Kind> {
        let cut = Cut::of(line).unwrap();
        kinds(&cut.before, &cut.word)
    }

    #[test]
    fn a_word_is_what_its_place_says() {
        for (line, expected) in [
            ("", &[Kind::Command][..]),
            ("mk", &[Kind::Command]),
            ("help mk", &[Kind::Command]),
            ("mkdir ", &[Kind::Image]),
            ("mkdir -p /a", &[Kind::Image]),
            ("mkdir a", &[]),
            ("mkdir --p", &[Kind::Option]),
            ("chmod 600 /a /b", &[Kind::Image]),
            ("put ", &[Kind::Host]),
            ("put /etc/h", &[Kind::Host]),
            ("put -a a ", &[Kind::Image, Kind::Host]),
            ("put a b", &[Kind::Host]),
            ("put a -t /", &[Kind::Image]),
            ("get ", &[Kind::Image]),
            ("get /a ", &[Kind::Image, Kind::Host]),
            ("get -t ", &[Kind::Host]),
            ("tar-in a", &[Kind::Host]),
            ("tar-in a.tar ", &[Kind::Image]),
            ("apply a", &[Kind::Host]),
            ("apply a --root /", &[Kind::Image]),
            ("expect exists ", &[Kind::Image]),
            ("xattr set /a", &[Kind::Image]),
            ("label x", &[]),
        ] {
            assert_eq!(kinds_of(line), expected, "{line}");
        }
        for line in ["# mk", "write /a <<E", "write /a <<< t"] {
            assert!(Cut::of(line).is_none(), "{line}");
        }
    }

    #[test]
    fn paths_become_those_of_the_image_quoted_as_they_were_begun() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("fs.img");
        mke2fs(&image, 16 << 20, &["-t", "ext4"]);
        let fs = Filesystem::open_writable(&image).unwrap();
        fs.create_dir("/etc").unwrap();
        for name in ["hostname", "hosts", "it's", "two words", "#mark"] {
            fs.write(format!("/etc/{name}"), "").unwrap();
        }
        let texts = |line: &str| {
            let (start, found) = candidates(line, &fs);
            let head = line[..start].to_owned();
            let texts = found
                .into_iter()
                .map(|found| format!("{head}{}", found.text));
            texts.collect::<Vec<_>>()
        };
        assert_eq!(texts("chmod 600 /e"), ["chmod 600 /etc/"]);
        assert_eq!(texts("rm /etc/host"), ["rm /etc/hostname", "rm /etc/hosts"]);
        assert_eq!(texts("rm /etc/hostn"), ["rm /etc/hostname "]);
        assert_eq!(texts("rm /etc/tw"), [r"rm /etc/two\ words "]);
        assert_eq!(texts(r"rm /etc/two\ w"), [r"rm /etc/two\ words "]);
        assert_eq!(texts("rm '/etc/tw"), ["rm '/etc/two words' "]);
        assert_eq!(texts("rm \"/etc/it"), ["rm \"/etc/it's\" "]);
        assert_eq!(texts("rm '/etc/it"), [r"rm /etc/it\'s "]);
        assert_eq!(texts("rm /etc/#"), ["rm /etc/#mark "]);
        assert_eq!(texts("expect ab"), ["expect absent "]);
        assert_eq!(texts("expect siz"), ["expect size="]);
        assert_eq!(texts("trunc"), ["truncate "]);
        assert_eq!(texts("mkdir --par"), ["mkdir --parents "]);
        assert_eq!(texts("xattr s"), ["xattr set "]);
        let found = candidates("rm /etc/host", &fs).1;
        assert_eq!(found[0].shown, "hostname");
    }
}
