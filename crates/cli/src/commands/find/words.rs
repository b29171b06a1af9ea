//! The words of find(1): how many follow each, which one a misspelt one may have been, and telling
//! them from the options of this program.

use crate::args::Args;
use clap::CommandFactory;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// What follows a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    One,
    /// A command, up to `;`, or to `+` behind `{}`.
    Command,
}

/// Every word that begins with a dash, but for `-newerXY`.
const WORDS: &[(&str, Follows)] = &[
    ("-a", Follows::Nothing),
    ("-amin", Follows::One),
    ("-and", Follows::Nothing),
    ("-anewer", Follows::One),
    ("-atime", Follows::One),
    ("-cmin", Follows::One),
    ("-cnewer", Follows::One),
    ("-ctime", Follows::One),
    ("-delete", Follows::Nothing),
    ("-depth", Follows::Nothing),
    ("-empty", Follows::Nothing),
    ("-exec", Follows::Command),
    ("-false", Follows::Nothing),
    ("-gid", Follows::One),
    ("-group", Follows::One),
    ("-iname", Follows::One),
    ("-inum", Follows::One),
    ("-ipath", Follows::One),
    ("-links", Follows::One),
    ("-ls", Follows::Nothing),
    ("-maxdepth", Follows::One),
    ("-mindepth", Follows::One),
    ("-mmin", Follows::One),
    ("-mtime", Follows::One),
    ("-name", Follows::One),
    ("-newer", Follows::One),
    ("-nogroup", Follows::Nothing),
    ("-not", Follows::Nothing),
    ("-nouser", Follows::Nothing),
    ("-o", Follows::Nothing),
    ("-or", Follows::Nothing),
    ("-path", Follows::One),
    ("-perm", Follows::One),
    ("-print", Follows::Nothing),
    ("-print0", Follows::Nothing),
    ("-printf", Follows::One),
    ("-prune", Follows::Nothing),
    ("-quit", Follows::Nothing),
    ("-size", Follows::One),
    ("-true", Follows::Nothing),
    ("-type", Follows::One),
    ("-uid", Follows::One),
    ("-user", Follows::One),
    ("-wholename", Follows::One),
    ("-xattr", Follows::Nothing),
    ("-xattrname", Follows::One),
];

/// What follows a word; `None` for one that is unknown.
pub(super) fn follows(word: &[u8]) -> Option<Follows> {
    let known = WORDS.iter().find(|(name, _)| name.as_bytes() == word);
    match known {
        Some((_, follows)) => Some(*follows),
        None => is_newer(word).then_some(Follows::One),
    }
}

/// Whether a word is `-newerXY` with times that exist.
fn is_newer(word: &[u8]) -> bool {
    match word.strip_prefix(b"-newer") {
        Some([x, y]) => b"aBcm".contains(x) && b"aBcmt".contains(y),
        _ => false,
    }
}

/// The known word that is most like an unknown one, if one is like it at all.
pub(super) fn nearest(word: &str) -> Option<&'static str> {
    let far = |name: &str| distance(word.as_bytes(), name.as_bytes());
    let (far, name) = WORDS.iter().map(|(name, _)| (far(name), *name)).min()?;
    (far <= 1 + word.len() / 4).then_some(name)
}

/// How many letters have to be put in, taken out, changed or exchanged with their neighbour to make
/// one word of the other.
fn distance(one: &[u8], other: &[u8]) -> usize {
    // Nobody needs a suggestion for what is much longer than any word.
    const LONGEST: usize = 64;
    if one.len().max(other.len()) > LONGEST {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let exchanged =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            let cost = |row: &[usize], at: usize, more: usize| row.get(at).map(|n| n + more);
            let ways = [
                cost(&row, j, usize::from(a != b)),
                cost(&row, j + 1, 1),
                cost(&next, j, 1),
                exchanged.then(|| cost(&before, j - 1, 1)).flatten(),
            ];
            next.push(ways.into_iter().flatten().min().unwrap_or(usize::MAX));
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(usize::MAX)
}

/// The command line with each word of find(1) marked as one, where the command is `find`.
///
/// The parser of options takes `-name` for letters in a row; marked, it reads `--expression=-name`.
pub(crate) fn marked(args: Vec<OsString>) -> Vec<OsString> {
    let is_find = args.iter().any(|arg| arg == "find");
    if !is_find {
        return args;
    }
    let with_values = with_values();
    let takes_value = |arg: &OsStr| with_values.contains(arg.as_bytes());
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    // Up to the command: only options of the program stand there.
    for arg in args.by_ref() {
        let is_command = !arg.as_bytes().starts_with(b"-")
            && !out
                .last()
                .is_some_and(|before| out.len() > 1 && takes_value(before));
        let is_find = arg == "find";
        out.push(arg);
        if is_command && is_find {
            break;
        }
        if is_command {
            out.extend(args);
            return out;
        }
    }
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            out.push(arg);
            out.extend(args.by_ref());
        } else if bytes.starts_with(b"--") {
            let has_value = takes_value(&arg);
            out.push(arg);
            if has_value {
                out.extend(args.next());
            }
        } else if is_word(bytes) {
            mark_with_what_follows(arg, &mut args, &mut out);
        } else {
            out.push(arg);
        }
    }
    out
}

/// The options of `find` and of the program that take a value, as they are written.
fn with_values() -> HashSet<Vec<u8>> {
    let program = Args::command();
    let find = program.find_subcommand("find");
    let all = program
        .get_arguments()
        .chain(find.into_iter().flat_map(clap::Command::get_arguments));
    all.filter(|arg| arg.get_action().takes_values())
        .filter_map(|arg| Some(format!("--{}", arg.get_long()?).into_bytes()))
        .collect()
}

/// Whether this is a word of find(1), and neither a place nor an option of one letter.
fn is_word(arg: &[u8]) -> bool {
    match arg {
        b"(" | b")" | b"!" | b"," => true,
        b"-0" | b"-h" | b"-V" | b"-" => false,
        _ => arg.starts_with(b"-"),
    }
}

fn mark_with_what_follows(
    word: OsString,
    args: &mut impl Iterator<Item = OsString>,
    out: &mut Vec<OsString>,
) {
    let follows = follows(word.as_bytes());
    out.push(mark(&word));
    match follows {
        Some(Follows::One) => out.extend(args.next().map(|value| mark(&value))),
        Some(Follows::Command) => {
            let mut was_place = false;
            for part in args.by_ref() {
                let is_end = part == ";" || (part == "+" && was_place);
                was_place = part == "{}";
                out.push(mark(&part));
                if is_end {
                    break;
                }
            }
        }
        Some(Follows::Nothing) | None => {}
    }
}

fn mark(word: &OsStr) -> OsString {
    let mut marked = OsString::from("--expression=");
    marked.push(word);
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked_text(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let marked = marked(args);
        let words: Vec<_> = marked.iter().map(|arg| arg.to_str().unwrap()).collect();
        words.join(" ").replace("--expression=", "=")
    }

    #[test]
    fn words_of_find_are_told_from_options() {
        for (line, expected) in [
            ("x find a -name b -o c", "x find a =-name =b =-o c"),
            ("x find a --name -b -0", "x find a --name -b -0"),
            (
                "x find a --size -1M -size -1M",
                "x find a --size -1M =-size =-1M",
            ),
            ("x --offset 1 find ( a ) !", "x --offset 1 find =( a =) =!"),
            ("x --partition find ls -l", "x --partition find ls -l"),
            ("x ls find -name", "x ls find -name"),
            (
                "x find a -exec b {} c ; -print",
                "x find a =-exec =b ={} =c =; =-print",
            ),
            ("x find -exec + {} + a", "x find =-exec =+ ={} =+ a"),
            (
                "x find --json a -newermt b c",
                "x find --json a =-newermt =b c",
            ),
            ("x find a -nmae b", "x find a =-nmae b"),
            ("x find a -- -name", "x find a -- -name"),
        ] {
            assert_eq!(marked_text(line), expected, "{line}");
        }
    }

    #[test]
    fn misspelt_words_are_recognised() {
        for (word, name) in [
            ("-nmae", Some("-name")),
            ("-maxdept", Some("-maxdepth")),
            ("-prnt", Some("-print")),
            ("-pirnt0", Some("-print0")),
            ("-execute-everything", None),
        ] {
            assert_eq!(nearest(word), name, "{word}");
        }
    }
}
