//! A Rust file with its comments and strings blanked.

/// One file under examination.
pub(super) struct Source<'a> {
    /// Path relative to the workspace.
    pub(super) name: &'a str,
    /// The text as it is.
    pub(super) text: &'a str,
    /// The text with comments and the contents of literals as spaces; lines stay where they are.
    pub(super) code: String,
    /// The line where a trailing `#[cfg(test)] mod` begins, counted from 1.
    tests_from: usize,
}

impl<'a> Source<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Source<'a> {
        let code = blank(text);
        let lines: Vec<&str> = code.lines().collect();
        let tests_from = lines
            .windows(2)
            .position(|w| {
                let module = w[1].trim();
                // One in a file of its own says nothing of the rest of this one.
                w[0].trim() == "#[cfg(test)]" && module.starts_with("mod ") && module.ends_with('{')
            })
            .map_or(usize::MAX, |at| at + 1);
        Source {
            name,
            text,
            code,
            tests_from,
        }
    }

    /// Whether a line is of a test, or of an example, which is a program of somebody else.
    pub(super) fn is_test(&self, line: usize) -> bool {
        let is_outside = ["/tests/", "/examples/"]
            .iter()
            .any(|folder| self.name.contains(folder));
        is_outside || self.name.ends_with("/tests.rs") || line >= self.tests_from
    }

    /// The code lines with their numbers.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(n, line)| (n + 1, line))
    }

    /// The line of a byte offset into the code.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.code[..offset].matches('\n').count() + 1
    }
}

/// Whether `word` stands in `line` as a word of its own.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(part_of_name) && !line[at + word.len()..].starts_with(part_of_name)
    })
}

/// Replaces comments and the contents of string and character literals by spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            out[at..end]
                .iter_mut()
                .filter(|b| **b != b'\n')
                .for_each(|b| *b = b' ');
            at = end;
        } else {
            at += 1;
        }
    }
    // Only whole characters inside literals were replaced.
    String::from_utf8_lossy(&out).into_owned()
}

/// The end of the comment or literal that begins at `at`, or `at` when none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |from: usize, what: &[u8]| {
        rest[from..]
            .windows(what.len())
            .position(|w| w == what)
            .map_or(rest.len(), |p| from + p)
    };
    let in_name = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    let length = if rest.starts_with(b"//") {
        find(0, b"\n")
    } else if rest.starts_with(b"/*") {
        (find(2, b"*/") + 2).min(rest.len())
    } else if rest[0] == b'"' {
        closing_quote(rest, b'"')
    } else if !in_name && (rest.starts_with(b"r\"") || rest.starts_with(b"r#")) {
        let hashes = rest[1..].iter().take_while(|b| **b == b'#').count();
        if rest.get(1 + hashes) != Some(&b'"') {
            return at;
        }
        let mut close = vec![b'"'];
        close.extend(vec![b'#'; hashes]);
        (find(2 + hashes, &close) + close.len()).min(rest.len())
    } else if rest[0] == b'\'' && (rest.get(1) == Some(&b'\\') || rest.get(2) == Some(&b'\'')) {
        closing_quote(rest, b'\'')
    } else {
        0
    };
    at + length
}

/// The length of a literal up to and with the quote that ends it, escapes skipped.
fn closing_quote(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}
