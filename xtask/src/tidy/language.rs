//! The rules about what comments say, as far as a program can keep them.

use super::rules::Note;
use super::source::Source;

/// Columns of a line of comment.
const WIDEST: usize = 100;

/// The text of a documentation comment, if the line is one.
fn documented(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

/// A summary stands alone: documentation shows it without its neighbours.
pub(super) fn summaries(source: &Source<'_>, note: Note<'_>) {
    let mut before = None;
    for (n, line) in source.text.lines().enumerate() {
        let text = documented(line);
        let is_summary = before.is_none();
        if is_summary && text.is_some_and(|text| text.starts_with("The same")) {
            let what = "a summary stands alone: say what it is or does, not \"the same\"";
            note(n + 1, what.to_owned());
        }
        before = text;
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
