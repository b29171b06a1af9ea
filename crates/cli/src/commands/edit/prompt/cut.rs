//! A line that is being typed, up to the word that is not complete yet.

/// The last word of a line, and those before it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) before: Vec<String>,
    /// What the last one means so far.
    pub(super) word: String,
    /// Where the last one begins.
    pub(super) start: usize,
    /// The quote that is open at its end.
    pub(super) quote: Option<char>,
}

impl Cut {
    /// Takes a line apart as [`split`](crate::commands::edit::words::split) does. `None` where
    /// there is nothing to complete: in comments, and in text for a file.
    pub(super) fn of(line: &str) -> Option<Self> {
        let mut before = Vec::new();
        let mut chars = line.char_indices().peekable();
        loop {
            while chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
            let start = chars.peek().map_or(line.len(), |(at, _)| *at);
            if line[start..].starts_with(['#', '<', '{']) {
                return None;
            }
            let (mut word, mut quote) = (String::new(), None);
            while let Some((_, c)) =
                chars.next_if(|(_, c)| quote.is_some() || !c.is_ascii_whitespace())
            {
                match (c, quote) {
                    ('\'' | '"', None) => quote = Some(c),
                    (c, Some(open)) if c == open => quote = None,
                    ('\\', None) => word.extend(chars.next().map(|(_, c)| c)),
                    ('\\', Some('"')) => {
                        let follows = chars.next_if(|(_, c)| matches!(c, '"' | '\\'));
                        word.push(follows.map_or('\\', |(_, c)| c));
                    }
                    (c, _) => word.push(c),
                }
            }
            if chars.peek().is_none() {
                return Some(Self {
                    before,
                    word,
                    start,
                    quote,
                });
            }
            before.push(word);
        }
    }
}

/// A word as it is typed after `quote`. `is_done`: another word may follow it.
pub(super) fn quoted(word: &str, quote: Option<char>, is_done: bool) -> String {
    let end = if is_done { " " } else { "" };
    match quote {
        Some('\'') if !word.contains('\'') => {
            let close = if is_done { "'" } else { "" };
            format!("'{word}{close}{end}")
        }
        Some('"') => {
            let inside = word.replace('\\', "\\\\").replace('"', "\\\"");
            let close = if is_done { "\"" } else { "" };
            format!("\"{inside}{close}{end}")
        }
        _ => {
            let mut text = String::new();
            for (at, c) in word.char_indices() {
                let is_special = c.is_ascii_whitespace() || matches!(c, '\'' | '"' | '\\');
                if is_special || at == 0 && matches!(c, '#' | '<' | '{') {
                    text.push('\\');
                }
                text.push(c);
            }
            text + end
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::edit::words::split;

    #[test]
    fn the_last_word_is_what_it_means_so_far() {
        let of = |line: &str| {
            let cut = Cut::of(line).unwrap();
            (cut.before.join("|"), cut.word, cut.start, cut.quote)
        };
        let text = str::to_owned;
        assert_eq!(of(""), (text(""), text(""), 0, None));
        assert_eq!(of("rm /a"), (text("rm"), text("/a"), 3, None));
        assert_eq!(of("rm '/a' "), (text("rm|/a"), text(""), 8, None));
        assert_eq!(of("rm '/a b"), (text("rm"), text("/a b"), 3, Some('\'')));
        assert_eq!(
            of(r#"rm "/a\"b"#),
            (text("rm"), text("/a\"b"), 3, Some('"'))
        );
        assert_eq!(of(r"rm /a\ b"), (text("rm"), text("/a b"), 3, None));
        assert_eq!(of(r"rm /a\"), (text("rm"), text("/a"), 3, None));
    }

    #[test]
    fn a_word_that_is_quoted_is_read_as_it_was() {
        for word in [
            "/a", "/a b", "/it's", "/a\"b", r"/a\b", "#a", "<a", "{a", "/'\"\\ ",
        ] {
            for quote in [None, Some('\''), Some('"')] {
                let typed = quoted(word, quote, true);
                let found = split(typed.as_bytes()).unwrap().words;
                assert_eq!(found, [word], "{typed}");
            }
        }
    }
}
