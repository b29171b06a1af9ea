//! The expression of a line: from PCRE's form to that of the `regex-automata` crate, whose automata
//! take time proportional to the path.
//!
//! libselinux matches `^EXPRESSION$` on bytes, with `.` for each of them. Where an expression
//! begins with a directory that has no special character in it (its stem), that is compared first,
//! and what follows is matched on the rest. What automata cannot do (looking around, references to
//! groups, possessive and atomic groups) is refused.

use crate::tables::error::Parsed;
use crate::tables::text::shown;
use regex_automata::Input;
use regex_automata::meta::{Cache, Config, Regex};
use regex_automata::util::syntax;

/// Bytes that one automaton may take.
const SIZE_MAX: usize = 4 << 20;
/// Bytes that what is found out while matching may take.
const CACHE_MAX: usize = 256 << 10;
/// Bytes that the automata of all lines may take together.
const TOGETHER_MAX: usize = 256 << 20;
/// Bytes that one expression may have.
const EXPRESSION_MAX: usize = 64 << 10;
/// How deep groups may lie in each other.
const NEST_MAX: u32 = 100;

/// Characters that make an expression one that is not exact.
const SPECIAL: &[u8] = b".^$?*+|[({";

/// An expression.
#[derive(Debug)]
pub(super) struct Pattern {
    is_exact: bool,
    prefix: Box<[u8]>,
    how: How,
}

#[derive(Debug)]
enum How {
    /// The prefix is the path.
    Literal,
    /// What follows a stem of this length, in the form of the crate, and its automaton once it was
    /// needed.
    Automaton {
        stem: usize,
        text: Box<str>,
        ready: Option<Box<Automaton>>,
    },
}

/// A compiled expression.
#[derive(Debug)]
struct Automaton {
    regex: Regex,
    /// What was found out while matching.
    cache: Cache,
    /// Bytes that both took when that was last counted.
    bytes: usize,
}

impl Pattern {
    /// Parses an expression.
    pub(super) fn parse(expression: &[u8]) -> Parsed<Self> {
        if expression.len() > EXPRESSION_MAX {
            return Err(format!(
                "the expression {} has more than {EXPRESSION_MAX} bytes",
                shown(expression)
            ));
        }
        let (fixed, special) = fixed_text(expression);
        let is_exact = special.is_none();
        if let (true, Some(path)) = (is_exact, literal(expression)) {
            return Ok(Self {
                is_exact,
                prefix: path.into_boxed_slice(),
                how: How::Literal,
            });
        }
        let stem = stem(expression);
        let mut prefix = fixed;
        // What may be missing belongs to what is special.
        if special.is_some_and(|byte| matches!(byte, b'?' | b'*' | b'{')) {
            prefix.pop();
        }
        if has_bare_alternative(expression) {
            // Each is anchored at one end only.
            prefix.truncate(stem);
        }
        let text = translate(&expression[stem..])
            .map_err(|problem| format!("the expression {} {problem}", shown(expression)))?;
        let text = format!("^{text}$");
        regex_syntax::ParserBuilder::new()
            .nest_limit(NEST_MAX)
            .unicode(false)
            .utf8(false)
            .dot_matches_new_line(true)
            .build()
            .parse(&text)
            .map_err(|e| {
                format!(
                    "the expression {} is wrong: {}",
                    shown(expression),
                    reason(&e)
                )
            })?;
        Ok(Self {
            is_exact,
            prefix: prefix.into_boxed_slice(),
            how: How::Automaton {
                stem,
                text: text.into_boxed_str(),
                ready: None,
            },
        })
    }

    pub(super) const fn is_exact(&self) -> bool {
        self.is_exact
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether a path matches that begins with the prefix; `used` is what all automata together
    /// take, in bytes.
    pub(super) fn matches(&mut self, path: &[u8], used: &mut usize) -> Parsed<bool> {
        let (stem, text, ready) = match &mut self.how {
            How::Literal => return Ok(path.len() == self.prefix.len()),
            How::Automaton { stem, text, ready } => (*stem, text, ready),
        };
        // The slash behind the stem is the expression's as well as the path's.
        if stem > 0 && path.get(stem) != Some(&b'/') {
            return Ok(false);
        }
        let automaton = match ready {
            Some(automaton) => automaton,
            None => ready.insert(Box::new(Automaton::compile(text)?)),
        };
        let rest = &path[stem..];
        // `$` is before a line feed at the end as well.
        let matches = automaton.is_match(rest)
            || rest
                .strip_suffix(b"\n")
                .is_some_and(|rest| automaton.is_match(rest));
        *used += automaton.growth();
        if *used > TOGETHER_MAX {
            return Err(format!(
                "the expressions up to here take more than {} MiB together: make their \
                 repetitions smaller",
                TOGETHER_MAX >> 20
            ));
        }
        Ok(matches)
    }
}

impl Automaton {
    fn compile(text: &str) -> Parsed<Self> {
        let syntax = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .dot_matches_new_line(true)
            .nest_limit(NEST_MAX);
        let config = Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(SIZE_MAX))
            .hybrid_cache_capacity(CACHE_MAX);
        let built = Regex::builder()
            .configure(config)
            .syntax(syntax)
            .build(text);
        let regex = built.map_err(|e| match e.size_limit() {
            Some(_) => "the expression takes more memory than one may: make its repetitions \
                        smaller"
                .to_owned(),
            None => format!("the expression is wrong: {e}"),
        })?;
        let cache = regex.create_cache();
        Ok(Self {
            regex,
            cache,
            bytes: 0,
        })
    }

    fn is_match(&mut self, path: &[u8]) -> bool {
        let input = Input::new(path).earliest(true);
        let found = self.regex.search_half_with(&mut self.cache, &input);
        found.is_some()
    }

    /// By how many bytes it takes more than when it was last asked.
    fn growth(&mut self) -> usize {
        let bytes = self.regex.memory_usage() + self.cache.memory_usage();
        let growth = bytes.saturating_sub(self.bytes);
        self.bytes = self.bytes.max(bytes);
        growth
    }
}

/// The one line of an error that says what is wrong.
fn reason(error: &regex_syntax::Error) -> String {
    match error {
        regex_syntax::Error::Parse(e) => e.kind().to_string(),
        regex_syntax::Error::Translate(e) => e.kind().to_string(),
        _ => "it cannot be understood".to_owned(),
    }
}

/// What stands before the first special character, without backslashes, and that character.
fn fixed_text(expression: &[u8]) -> (Vec<u8>, Option<u8>) {
    let mut fixed = Vec::with_capacity(expression.len());
    let mut rest = expression;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (byte, _) if SPECIAL.contains(byte) => return (fixed, Some(*byte)),
            (b'\\', [next, _after @ ..]) if next.is_ascii_alphanumeric() => {
                // A class or a number: whatever it is, nothing is fixed any more.
                let special = tail.iter().any(|byte| SPECIAL.contains(byte));
                return (fixed, special.then_some(b'\\'));
            }
            (b'\\', [next, after @ ..]) => {
                fixed.push(*next);
                rest = after;
            }
            (byte, _) => fixed.push(*byte),
        }
    }
    (fixed, None)
}

/// The text of an expression that has no special character and no class in it.
fn literal(expression: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(expression.len());
    let mut rest = expression;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (next, after) = tail.split_first()?;
        if next.is_ascii_alphanumeric() {
            return None;
        }
        bytes.push(*next);
        rest = after;
    }
    Some(bytes)
}

/// The length of the first directory, where no special character and no backslash is in it.
fn stem(expression: &[u8]) -> usize {
    let slash = expression.iter().skip(1).position(|&byte| byte == b'/');
    let end = slash.map_or(0, |at| at + 1);
    let is_plain = |byte: &u8| !SPECIAL.contains(byte) && *byte != b'\\';
    if expression[..end].iter().all(is_plain) {
        end
    } else {
        0
    }
}

/// Whether there is a `|` outside of groups and sets.
fn has_bare_alternative(expression: &[u8]) -> bool {
    let (mut depth, mut in_set, mut escaped) = (0_i64, false, false);
    for &byte in expression {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b']' => in_set = false,
            b'[' => in_set = true,
            b'(' if !in_set => depth += 1,
            b')' if !in_set => depth -= 1,
            b'|' if !in_set && depth <= 0 => return true,
            _ => {}
        }
    }
    false
}

/// Writes an expression in the form of the crate. An error is the rest of a sentence about it.
fn translate(expression: &[u8]) -> Result<String, &'static str> {
    const GROUPS: &str = "looks around, or has groups that only a search with steps back can match";
    let mut text = String::with_capacity(expression.len() + 8);
    let mut rest = expression;
    // Whether a repetition ends here, on which another one would mean something else.
    let mut repeated = false;
    while let [first, tail @ ..] = rest {
        rest = tail;
        let was_repeated = std::mem::take(&mut repeated);
        match first {
            b'\\' => rest = escape(tail, &mut text, false)?,
            b'[' => rest = set(tail, &mut text)?,
            b'(' if tail.starts_with(b"*") => return Err("has a verb of PCRE in it"),
            b'(' if tail.starts_with(b"?:") || !tail.starts_with(b"?") => text.push('('),
            b'(' => return Err(GROUPS),
            b'*' | b'?' | b'+' => {
                if was_repeated && *first == b'+' {
                    return Err("has a repetition that gives nothing back");
                }
                text.push(char::from(*first));
                // A question mark on a repetition makes it a lazy one, which matches the same.
                repeated = true;
            }
            b'{' => match repetition(tail) {
                Some(after) => {
                    let len = tail.len() - after.len();
                    text.push('{');
                    text.extend(tail[..len].iter().map(|&byte| char::from(byte)));
                    rest = after;
                    repeated = true;
                }
                None => text.push_str("\\{"),
            },
            b'}' => text.push_str("\\}"),
            b']' => text.push_str("\\]"),
            b'#' | b'&' | b'~' | b'-' => byte(*first, &mut text),
            b if b.is_ascii_graphic() => text.push(char::from(*b)),
            b => byte(*b, &mut text),
        }
    }
    Ok(text)
}

/// One byte that stands for itself.
fn byte(byte: u8, text: &mut String) {
    text.push_str(&format!("\\x{byte:02x}"));
}

/// What follows `{` if it is a repetition: `N}`, `N,}` or `N,M}`; gives what is behind it.
fn repetition(tail: &[u8]) -> Option<&[u8]> {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let first = digits(tail);
    if first == 0 {
        return None;
    }
    match &tail[first..] {
        [b'}', after @ ..] => Some(after),
        [b',', more @ ..] => match &more[digits(more)..] {
            [b'}', after @ ..] => Some(after),
            _ => None,
        },
        _ => None,
    }
}

/// Writes what follows a backslash, and gives what is behind it.
fn escape<'e>(tail: &'e [u8], text: &mut String, in_set: bool) -> Result<&'e [u8], &'static str> {
    let (&next, after) = tail.split_first().ok_or("ends with a backslash")?;
    match next {
        b'd' | b'D' | b'w' | b'W' | b's' | b'S' => {
            text.push('\\');
            text.push(char::from(next));
        }
        b'b' if in_set => byte(0x08, text),
        b'b' | b'B' | b'A' | b'z' if !in_set => {
            text.push('\\');
            text.push(char::from(next));
        }
        b'a' => byte(0x07, text),
        b'e' => byte(0x1b, text),
        b'f' => byte(0x0c, text),
        b'n' => byte(b'\n', text),
        b'r' => byte(b'\r', text),
        b't' => byte(b'\t', text),
        b'x' => {
            let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            let number = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
            byte(number.ok_or("has \\x without two digits")?, text);
            return Ok(&after[2..]);
        }
        next if next.is_ascii_alphanumeric() => {
            return Err("has a reference, or an escape that is not known here");
        }
        next => byte(next, text),
    }
    Ok(after)
}

/// Writes a set of characters whose `[` was read, and gives what is behind its `]`.
fn set<'e>(tail: &'e [u8], text: &mut String) -> Result<&'e [u8], &'static str> {
    const OPEN: &str = "has a [ without its ]";
    text.push('[');
    let mut rest = tail;
    if let [b'^', after @ ..] = rest {
        text.push('^');
        rest = after;
    }
    let mut is_first = true;
    loop {
        let (&next, after) = rest.split_first().ok_or(OPEN)?;
        rest = after;
        match next {
            b']' if !is_first => {
                text.push(']');
                return Ok(rest);
            }
            b'[' if after.starts_with(b":") => match class(after) {
                Some((name, behind)) => {
                    text.push_str("[:");
                    text.push_str(name);
                    text.push_str(":]");
                    rest = behind;
                }
                None => byte(next, text),
            },
            b'\\' => rest = escape(after, text, true)?,
            // Between two characters it is a range; elsewhere it stands for itself.
            b'-' if !is_first && !after.starts_with(b"]") => text.push('-'),
            next => byte(next, text),
        }
        is_first = false;
    }
}

/// The name of a class that follows its first `[`, and what is behind it.
fn class(tail: &[u8]) -> Option<(&str, &[u8])> {
    let inner = tail.strip_prefix(b":")?;
    let end = inner.windows(2).position(|two| two == b":]")?;
    let name = std::str::from_utf8(&inner[..end]).ok()?;
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'^');
    is_name.then_some((name, &inner[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, path: &str) -> bool {
        let mut pattern = Pattern::parse(expression.as_bytes()).unwrap();
        path.as_bytes().starts_with(pattern.prefix())
            && pattern.matches(path.as_bytes(), &mut 0).unwrap()
    }

    #[test]
    fn expressions_match_whole_paths() {
        for (expression, path, expected) in [
            ("/usr/bin/.*", "/usr/bin/x", true),
            ("/usr/bin/.*", "/usr/bin", false),
            ("/usr(/.*)?", "/usr", true),
            ("/usr(/.*)?", "/usr2", false),
            ("/etc/passwd[-\\+]?", "/etc/passwd+", true),
            ("/etc/passwd[-\\+]?", "/etc/passwd", true),
            ("/opt/a{x", "/opt/a{x", true),
            ("/opt/a{2}", "/opt/aa", true),
            ("/dev/[0-9].*", "/dev/7x", true),
            ("/dev/[^/]*tty[^/]*", "/dev/ttyS0", true),
            ("/dev/[[:digit:]a-]+", "/dev/7-a", true),
            ("/dev/[]x]", "/dev/]", true),
            ("/lib/x\\.so", "/lib/x.so", true),
            ("/lib/x\\.so", "/lib/xyso", false),
            ("/a/b|/c/d", "/a/b", true),
            ("/a.?", "/a", true),
            ("/ab?", "/a", true),
            ("/a\\d", "/a7", true),
            ("/.*", "/\n", true),
            ("/usr/a", "/usr/a\n", false),
            ("/usr/a.", "/usr/ab\n", true),
        ] {
            assert_eq!(matches(expression, path), expected, "{expression} {path:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_bytes() {
        let mut pattern = Pattern::parse(b"/a\xff.[\x80-\xbf]*").unwrap();
        assert!(pattern.matches(b"/a\xff\x01\x80\xbf", &mut 0).unwrap());
        assert!(!pattern.matches(b"/a\xff\x01\x7f", &mut 0).unwrap());
    }

    #[test]
    fn what_needs_steps_back_is_refused() {
        for wrong in [
            "/a(?=b)",
            "/a(?!b).*",
            "/(a)\\1",
            "/a*+b",
            "/(?>a)b.",
            "/a(",
            "/a[b",
            "/(*UTF8)a",
            "/\\Qa\\E.",
        ] {
            assert!(Pattern::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let deep = format!("/{}a{}.", "(".repeat(5000), ")".repeat(5000));
        assert!(Pattern::parse(deep.as_bytes()).is_err());
        let mut large = Pattern::parse(b"/((a{500}){500}){500}").unwrap();
        assert!(large.matches(b"/a", &mut 0).is_err());
    }
}
