//! Lines that belong together: a command, the text that follows it, an `if` up to its `end`.

use crate::commands::edit::words::{Input, split};
use std::ffi::OsStr;

/// What was typed of a command so far.
#[derive(Debug, Default)]
pub(super) struct Statement {
    lines: Vec<String>,
    /// Conditions without their `end`.
    depth: usize,
    /// The line that ends a text.
    end: Option<Vec<u8>>,
}

impl Statement {
    /// Adds a line. Whether it makes sense is found out later.
    pub(super) fn push(&mut self, line: &str) {
        self.lines.push(line.to_owned());
        if let Some(end) = &self.end {
            if line.as_bytes() == end {
                self.end = None;
            }
            return;
        }
        if line.trim_start().starts_with('{') {
            let object: serde_json::Result<serde_json::Value> = serde_json::from_str(line);
            if let Ok(object) = object {
                self.note(object["do"].as_str().unwrap_or_default());
            }
            return;
        }
        let Ok(found) = split(line.as_bytes()) else {
            return;
        };
        let first = found.words.first().map(|word| word.as_os_str());
        self.note(first.and_then(OsStr::to_str).unwrap_or_default());
        if let Some(Input::Lines(end)) = found.input {
            self.end = Some(end);
        }
    }

    fn note(&mut self, word: &str) {
        match word {
            "if" => self.depth += 1,
            "end" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether more lines belong to it.
    pub(super) fn is_open(&self) -> bool {
        self.depth > 0 || self.end.is_some()
    }

    /// Whether what is typed next is text for a file.
    pub(super) fn is_text(&self) -> bool {
        self.end.is_some()
    }

    /// Whether it is a condition with what depends on it.
    pub(super) fn is_block(&self) -> bool {
        let first = self.lines.first();
        first.is_some_and(|line| {
            let mut alone = Self::default();
            alone.push(line);
            alone.depth > 0
        })
    }

    /// What is missing at its end.
    pub(super) fn missing(&self) -> String {
        match &self.end {
            Some(end) => String::from_utf8_lossy(end).into_owned(),
            None => "end".to_owned(),
        }
    }

    pub(super) fn first(&self) -> &str {
        self.lines.first().map_or("", |line| line.trim())
    }

    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(lines: &[&str]) -> bool {
        let mut statement = Statement::default();
        for (number, line) in lines.iter().enumerate() {
            assert!(number == 0 || statement.is_open(), "{lines:?}: {number}");
            statement.push(line);
        }
        statement.is_open()
    }

    #[test]
    fn more_lines_belong_to_texts_and_to_conditions() {
        assert!(!open(&["mkdir /a"]));
        assert!(!open(&["mkdir 'a"]));
        assert!(!open(&["end"]));
        assert!(!open(&["# if exists /a"]));
        assert!(open(&["write /a <<END"]));
        assert!(open(&["write /a <<END", "END "]));
        assert!(!open(&["write /a <<END", "if exists /a", "END"]));
        assert!(!open(&["write /a <<< END"]));
        assert!(open(&["if exists /a", "mkdir 'b"]));
        assert!(open(&["if exists /a", "if exists /b", "end"]));
        assert!(open(&["if exists /a", "write /a <<end", "end"]));
        assert!(!open(&["if exists /a", "else", "mkdir /b", "end"]));
        assert!(open(&[r#"{"do": "if", "args": ["exists", "/a"]}"#]));
        assert!(!open(&["if exists /a", r#"{"do": "end"}"#]));
    }
}
