//! A line taken apart into words, as a shell does.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// What a line is made of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) words: Vec<OsString>,
    pub(super) input: Option<Input>,
}

/// Where the content of a file comes from that a line writes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The lines that follow, up to this one.
    Lines(Vec<u8>),
    /// This text, with the end of a line behind it.
    Text(Vec<u8>),
}

/// Takes a line apart. `''` keeps everything, `""` all but `\"` and `\\`, a `\` what follows it;
/// `#` where a word could begin ends the line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn split(line: &[u8]) -> Result<Words, &'static str> {
    let mut found = Words::default();
    let mut rest = Rest(line);
    while let Some(first) = rest.skip_blanks() {
        match first {
            b'#' => break,
            b'<' => {
                if found.input.is_some() {
                    return Err("a line writes one text only");
                }
                found.input = Some(rest.input()?);
            }
            _ => {
                let word = rest.word()?;
                found.words.push(OsString::from_vec(word));
            }
        }
    }
    Ok(found)
}

/// What is left of a line.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Skips blanks; what follows them, which is not taken.
    fn skip_blanks(&mut self) -> Option<u8> {
        self.0 = self.0.trim_ascii_start();
        self.0.first().copied()
    }

    /// `<<END` or `<<< text`.
    fn input(&mut self) -> Result<Input, &'static str> {
        let is_text = self.0.starts_with(b"<<<");
        let is_lines = self.0.starts_with(b"<<");
        self.0 = &self.0[self.0.len().min(if is_text { 3 } else { 2 })..];
        if !is_lines {
            return Err("write < as '<' or, for a text, as <<END or <<<");
        }
        if self.skip_blanks().is_none() {
            return Err("a text follows << (the line that ends it) or <<< (itself)");
        }
        let mut word = self.word()?;
        if is_text {
            word.push(b'\n');
            return Ok(Input::Text(word));
        }
        Ok(Input::Lines(word))
    }

    fn word(&mut self) -> Result<Vec<u8>, &'static str> {
        let mut word = Vec::new();
        while let Some(first) = self.0.first().filter(|byte| !byte.is_ascii_whitespace()) {
            let first = *first;
            self.next();
            match first {
                b'\'' => loop {
                    match self.next() {
                        Some(b'\'') => break,
                        Some(byte) => word.push(byte),
                        None => return Err("a ' has no other one behind it"),
                    }
                },
                b'"' => loop {
                    match self.next() {
                        Some(b'"') => break,
                        Some(b'\\') if matches!(self.0.first(), Some(b'"' | b'\\')) => {
                            word.extend(self.next());
                        }
                        Some(byte) => word.push(byte),
                        None => return Err("a \" has no other one behind it"),
                    }
                },
                b'\\' => match self.next() {
                    Some(byte) => word.push(byte),
                    None => return Err("a \\ has nothing behind it"),
                },
                byte => word.push(byte),
            }
        }
        Ok(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let found = split(line.as_bytes()).unwrap();
        assert_eq!(found.input, None);
        let text = |word: OsString| word.into_string().unwrap();
        found.words.into_iter().map(text).collect()
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("  mkdir -p\t/a/b "), ["mkdir", "-p", "/a/b"]);
        assert_eq!(words(r#"a 'b c' "d e"f g\ h"#), ["a", "b c", "d ef", "g h"]);
        assert_eq!(words(r#"'' "" \'"#), ["", "", "'"]);
        assert_eq!(words(r#""a\"b\\c\d" 'e\f'"#), [r#"a"b\c\d"#, r"e\f"]);
        assert_eq!(words("rm /a#b # and this # is not"), ["rm", "/a#b"]);
        assert_eq!(words("# nothing"), [""; 0]);
        assert_eq!(words(""), [""; 0]);
    }

    #[test]
    fn texts_follow_as_lines_or_at_once() {
        let found = split(b"write /a <<END # of it").unwrap();
        assert_eq!(found.words.len(), 2);
        assert_eq!(found.input, Some(Input::Lines(b"END".to_vec())));
        let found = split(b"write <<< 'one line' /a").unwrap();
        assert_eq!(found.words, ["write", "/a"]);
        assert_eq!(found.input, Some(Input::Text(b"one line\n".to_vec())));
    }

    #[test]
    fn what_has_no_end_is_refused() {
        for line in [
            "a 'b",
            "a \"b",
            "a \\",
            "a <",
            "a < b",
            "a <<",
            "a <<<",
            "a <<x <<y",
        ] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
    }
}
