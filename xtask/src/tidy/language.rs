//! The rules about what comments say, as far as a program can keep them.

use super::rules::Note;
use super::source::Source;

/// Columns of a line of comment.
const WIDEST: usize = 100;

/// The mark and the text of a documentation comment, if the line is one.
fn documented(line: &str) -> Option<(&str, &str)> {
    let (mark, text) = line.trim_start().split_at_checked(3)?;
    matches!(mark, "///" | "//!").then_some((mark, text.trim_start()))
}

/// A summary stands alone: documentation shows it without its neighbours.
pub(super) fn summaries(source: &Source<'_>, note: Note<'_>) {
    let mut before = None;
    for (n, line) in source.text.lines().enumerate() {
        let found = documented(line);
        let mark = found.map(|(mark, _)| mark);
        if let Some((mark, text)) = found
            && before != Some(mark)
            && text.starts_with("The same")
        {
            let what = "a summary stands alone: say what it is or does, not \"the same\"";
            note(n + 1, what.to_owned());
        }
        before = mark;
    }
}

/// Lines of comments fit beside each other; rows of tables cannot be broken, nor can long words.
pub(super) fn width(source: &Source<'_>, note: Note<'_>) {
    for (n, line) in source.text.lines().enumerate() {
        let text = line.trim_start();
        if !text.starts_with("//") || line.chars().count() <= WIDEST {
            continue;
        }
        let text = text.trim_start_matches(['/', '!', ' ']);
        if !text.starts_with('|') && text.contains(' ') {
            note(
                n + 1,
                format!("a comment of more than {WIDEST} columns: wrap it"),
            );
        }
    }
}

/// A module with a table of its files names each of them there, so that a reader finds the room for
/// a line of code from the table.
pub(super) fn tables(source: &Source<'_>, note: Note<'_>) {
    let header: Vec<&str> = source
        .text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .collect();
    let heads = [
        "//! | file | owns |",
        "//! | module | owns |",
        "//! | room | owns |",
    ];
    // The page of a crate is for those that use it, and names no private modules.
    let is_room = source.name.ends_with("/mod.rs");
    if !is_room || !header.iter().any(|line| heads.contains(line)) {
        return;
    }
    let cells: Vec<&str> = header
        .iter()
        .filter_map(|line| line.strip_prefix("//! | ")?.split(" | ").next())
        .collect();
    for (n, line) in source.lines() {
        let declared = line
            .trim_end()
            .rsplit_once("mod ")
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        let Some(name) = declared.and_then(|(_, name)| name.strip_suffix(';')) else {
            continue;
        };
        // Alone, in a list, as a link, or with what is in its folder.
        let named = |cell: &&str| {
            cell.split(", ").any(|word| {
                let word = word.trim_matches(['[', ']', '`']);
                let word = word.strip_suffix(".rs").unwrap_or(word);
                word == name || word.starts_with(&format!("{name}/"))
            })
        };
        if !name.ends_with("tests") && !source.is_test(n) && !cells.iter().any(named) {
            note(n, format!("the table at the head has no row for `{name}`"));
        }
    }
}
