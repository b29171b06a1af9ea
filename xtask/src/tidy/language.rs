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
