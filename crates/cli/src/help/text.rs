//! The text behind the options of a command: its blocks, and how they are laid out at a width.
//!
//! Blocks are separated by an empty line. A block is a paragraph, which is one line however long,
//! or a heading that ends in a colon, with lines below it that begin with two spaces. Where these
//! hold a tab, they are rows of a list: a term, and what it means. Otherwise they stand as they
//! are.

use std::borrow::Cow;

/// Rows of a list: a term, and what it means.
pub(super) type Row = (Cow<'static, str>, String);

/// A part of the text of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Block {
    Paragraph(String),
    /// A list of terms.
    List {
        heading: String,
        rows: Vec<Row>,
    },
    /// Lines that are not filled, such as examples.
    Lines {
        heading: String,
        lines: Vec<String>,
    },
}

/// Indent of lists and examples.
const INDENT: usize = 2;

/// Space between a term and its meaning.
const GAP: usize = 2;

/// Indent of a meaning that stands below its term.
const BELOW: usize = 10;

/// Takes the text of a command apart.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    text.split("\n\n").map(block).collect()
}

fn block(text: &str) -> Block {
    let Some((heading, below)) = text.split_once("\n  ") else {
        return Block::Paragraph(text.to_owned());
    };
    let heading = heading.trim_end_matches(':').to_owned();
    let lines = || below.split('\n').map(|line| line.trim().to_owned());
    let rows: Option<Vec<Row>> = lines()
        .map(|line| {
            let (term, meaning) = line.split_once('\t')?;
            Some((Cow::Owned(term.to_owned()), meaning.to_owned()))
        })
        .collect();
    match rows {
        Some(rows) => Block::List { heading, rows },
        None => Block::Lines {
            heading,
            lines: lines().collect(),
        },
    }
}

/// Lays blocks out at a width.
pub(super) fn lay_out(blocks: &[Block], width: usize) -> String {
    let laid: Vec<String> = blocks
        .iter()
        .map(|block| match block {
            Block::Paragraph(text) => fill(text, width).join("\n"),
            Block::List { heading, rows } => {
                let rows = table(rows, widest(rows), width);
                format!("{}:\n{rows}", fill(heading, width).join("\n"))
            }
            Block::Lines { heading, lines } => {
                let mut laid = format!("{}:", fill(heading, width).join("\n"));
                for line in lines {
                    let fixed = format!("\n  {line}").replace(' ', &super::FIXED_SPACE.to_string());
                    laid.push_str(&fixed);
                }
                laid
            }
        })
        .collect();
    laid.join("\n\n")
}

/// Length of the longest term.
pub(super) fn widest<'a, T: AsRef<str> + 'a>(
    rows: impl IntoIterator<Item = &'a (T, String)>,
) -> usize {
    rows.into_iter()
        .map(|(term, _)| term.as_ref().chars().count())
        .max()
        .unwrap_or(0)
}

/// Lays a list out: terms in one column, which has room for `widest` characters as long as that
/// leaves most of the width, and meanings in another.
pub(super) fn table<T: AsRef<str>>(rows: &[(T, String)], widest: usize, width: usize) -> String {
    let beside = INDENT + widest + GAP;
    let is_beside = beside <= width * 2 / 5;
    let column = if is_beside { beside } else { BELOW };
    let mut lines = Vec::new();
    for (term, meaning) in rows {
        let term = term.as_ref();
        let mut filled = fill(meaning, width.saturating_sub(column)).into_iter();
        lines.push(if is_beside {
            let first = filled.next().unwrap_or_default();
            format!("{:INDENT$}{term:widest$}{:GAP$}{first}", "", "")
        } else {
            format!("{:INDENT$}{term}", "")
        });
        lines.extend(filled.map(|line| format!("{:column$}{line}", "")));
    }
    lines.join("\n")
}

/// Breaks a text into lines that are as full as its words allow.
fn fill(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = |text: &str| text.chars().count();
        match lines.last_mut() {
            Some(line) if length(line) + 1 + length(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "Examples:\n  a  b\n\nOne line of words.\n\nOptions:\n  ro\tread\n  long=N\tall of it";

    #[test]
    fn blocks_are_told_apart() {
        let found = blocks(TEXT);
        assert!(
            matches!(&found[0], Block::Lines { heading, lines } if heading == "Examples" && lines == &["a  b"])
        );
        assert_eq!(found[1], Block::Paragraph("One line of words.".to_owned()));
        assert!(matches!(&found[2], Block::List { rows, .. } if rows.len() == 2));
    }

    #[test]
    fn lists_are_aligned_where_there_is_room() {
        let laid = lay_out(&blocks(TEXT), 40);
        let laid = crate::help::shown(&laid);
        assert!(
            laid.ends_with("Options:\n  ro      read\n  long=N  all of it"),
            "{laid}"
        );
        let narrow = lay_out(&blocks(TEXT), 16);
        let below = "Options:\n  ro\n          read\n  long=N\n          all of\n          it";
        assert!(narrow.ends_with(below), "{narrow}");
    }

    #[test]
    fn lines_are_as_full_as_words_allow() {
        assert_eq!(fill("one two three four", 8), ["one two", "three", "four"]);
        assert_eq!(fill("abcdefghij", 4), ["abcdefghij"]);
    }
}
