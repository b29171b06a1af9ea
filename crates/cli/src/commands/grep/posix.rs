//! Regular expressions of POSIX, with what GNU adds, in the form of the `regex-automata` crate.
//!
//! They mean bytes, and match within one line: nothing in the result matches a new line. Every
//! operator is put behind a group of its own, since a `?` behind another operator means something
//! else to the crate. Back-references cannot be had from automata, and are refused.

use extant::Escaped;
use std::fmt::Write;

/// The largest number of repetitions.
const MOST_REPEATS: u32 = 0x7fff;

/// Bytes that one pattern may have.
const LONGEST: usize = 64 << 10;

/// How patterns are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Basic,
    Extended,
    /// Every byte stands for itself.
    Fixed,
}

type Read<T> = Result<T, String>;

/// A pattern in the form of the crate.
pub(super) fn translated(pattern: &[u8], dialect: Dialect, any_case: bool) -> Read<String> {
    if pattern.len() > LONGEST {
        return Err(format!("a pattern has at most {LONGEST} bytes"));
    }
    if dialect == Dialect::Fixed {
        let mut out = String::new();
        pattern.iter().for_each(|byte| literal(*byte, &mut out));
        return Ok(out);
    }
    let mut translator = Translator {
        pattern,
        at: 0,
        is_extended: dialect == Dialect::Extended,
        any_case,
        out: String::new(),
        atom: None,
        groups: Vec::new(),
    };
    translator
        .all()
        .map_err(|why| format!("{}: {why}", Escaped(pattern)))?;
    Ok(translator.out)
}

struct Translator<'a> {
    pattern: &'a [u8],
    at: usize,
    is_extended: bool,
    any_case: bool,
    out: String,
    /// Where in the output the last thing begins that can be repeated.
    atom: Option<usize>,
    /// Where in the output open groups begin.
    groups: Vec<usize>,
}

/// What stands at a place of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Or,
    Repeat(u32, Option<u32>),
    Start,
    End,
    Bracket,
    Any,
    Byte(u8),
    /// What the crate has under another name, and whether it can be repeated.
    Special(&'static str),
}

impl Translator<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.pattern.get(self.at + ahead).copied()
    }

    fn all(&mut self) -> Read<()> {
        while self.at < self.pattern.len() {
            let token = self.token()?;
            self.take(token)?;
        }
        if self.groups.is_empty() {
            Ok(())
        } else {
            Err("a parenthesis is not closed".to_owned())
        }
    }

    /// Whether an expression begins here, so that what would repeat has nothing to.
    fn is_at_start(&self) -> bool {
        self.atom.is_none()
    }

    fn token(&mut self) -> Read<Token> {
        let byte = self.peek(0).unwrap_or_default();
        let extended = self.is_extended;
        self.at += 1;
        Ok(match byte {
            b'\\' => return self.escaped(),
            b'[' => Token::Bracket,
            b'.' => Token::Any,
            b'*' if extended || !self.is_at_start() => Token::Repeat(0, None),
            b'^' if extended || self.is_anchor_start() => Token::Start,
            b'$' if extended || self.is_anchor_end() => Token::End,
            b'(' if extended => Token::Open,
            b')' if extended => Token::Close,
            b'|' if extended => Token::Or,
            b'+' if extended => Token::Repeat(1, None),
            b'?' if extended => Token::Repeat(0, Some(1)),
            b'{' if extended => match self.interval()? {
                Some(token) => token,
                None => Token::Byte(b'{'),
            },
            byte => Token::Byte(byte),
        })
    }

    fn escaped(&mut self) -> Read<Token> {
        let Some(byte) = self.peek(0) else {
            return Err("a backslash at the end means nothing".to_owned());
        };
        let basic = !self.is_extended;
        self.at += 1;
        Ok(match byte {
            b'(' if basic => Token::Open,
            b')' if basic => Token::Close,
            b'|' if basic => Token::Or,
            b'+' if basic && !self.is_at_start() => Token::Repeat(1, None),
            b'?' if basic && !self.is_at_start() => Token::Repeat(0, Some(1)),
            b'{' if basic => self
                .interval()?
                .ok_or_else(|| "\\{ is not the start of a number of repetitions".to_owned())?,
            b'<' => Token::Special("\\b{start}"),
            b'>' => Token::Special("\\b{end}"),
            b'b' => Token::Special("\\b"),
            b'B' => Token::Special("\\B"),
            b'`' => Token::Start,
            b'\'' => Token::End,
            b'w' => Token::Special("[0-9A-Z_a-z]"),
            b'W' => Token::Special("[^0-9A-Z_a-z\\n]"),
            b's' => Token::Special("[\\t\\x0b\\x0c\\r ]"),
            b'S' => Token::Special("[^\\t\\x0b\\x0c\\r \\n]"),
            b'1'..=b'9' => {
                return Err(format!(
                    "\\{} is a back-reference, which is not possible here",
                    char::from(byte)
                ));
            }
            letter if letter.is_ascii_alphanumeric() => {
                return Err(format!("\\{} has no meaning", char::from(letter)));
            }
            byte => Token::Byte(byte),
        })
    }

    /// Whether a `^` of a basic expression is an anchor.
    fn is_anchor_start(&self) -> bool {
        let before = self.pattern.get(..self.at - 1).unwrap_or_default();
        before.is_empty() || before.ends_with(b"\\(") || before.ends_with(b"\\|")
    }

    /// Whether a `$` of a basic expression is an anchor.
    fn is_anchor_end(&self) -> bool {
        let behind = self.pattern.get(self.at..).unwrap_or_default();
        behind.is_empty() || behind.starts_with(b"\\)") || behind.starts_with(b"\\|")
    }

    /// What stands behind `{`, if it says how often; then the place is behind its end.
    fn interval(&mut self) -> Read<Option<Token>> {
        let mut at = self.at;
        let number = |at: &mut usize| {
            let digits = self.pattern.get(*at..).unwrap_or_default();
            let length = digits
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            *at += length;
            let text = std::str::from_utf8(digits.get(..length)?).ok()?;
            // Longer numbers are more than the most in any case.
            (length > 0).then(|| text.parse::<u32>().unwrap_or(u32::MAX))
        };
        let least = number(&mut at);
        let most = if self.pattern.get(at) == Some(&b',') {
            at += 1;
            let most = number(&mut at);
            if least.is_none() && most.is_none() {
                return Ok(None);
            }
            most
        } else if least.is_none() {
            return Ok(None);
        } else {
            least
        };
        let end: &[u8] = if self.is_extended { b"}" } else { b"\\}" };
        if !self.pattern.get(at..).unwrap_or_default().starts_with(end) {
            return Ok(None);
        }
        self.at = at + end.len();
        let least = least.unwrap_or(0);
        if least.max(most.unwrap_or(0)) > MOST_REPEATS {
            return Err(format!(
                "more than {MOST_REPEATS} repetitions are asked for"
            ));
        }
        if most.is_some_and(|most| most < least) {
            return Err("the numbers of repetitions are the wrong way round".to_owned());
        }
        Ok(Some(Token::Repeat(least, most)))
    }

    fn take(&mut self, token: Token) -> Read<()> {
        let start = self.out.len();
        match token {
            Token::Open => {
                self.groups.push(start);
                self.out.push_str("(?:");
                self.atom = None;
                return Ok(());
            }
            Token::Close => {
                let Some(group) = self.groups.pop() else {
                    return Err("a parenthesis is closed that is not open".to_owned());
                };
                self.out.push(')');
                self.atom = Some(group);
                return Ok(());
            }
            Token::Or => {
                self.out.push('|');
                self.atom = None;
                return Ok(());
            }
            Token::Repeat(least, most) => {
                // What has nothing before it repeats nothing.
                let atom = self.atom.unwrap_or(start);
                self.out.insert_str(atom, "(?:");
                self.out.push(')');
                match most {
                    // Writing to a string cannot fail.
                    Some(most) => drop(write!(self.out, "{{{least},{most}}}")),
                    None => drop(write!(self.out, "{{{least},}}")),
                }
                self.atom = Some(atom);
                return Ok(());
            }
            Token::Start => {
                self.out.push('^');
                // In a basic expression a star behind it stands for itself.
                if !self.is_extended {
                    return Ok(());
                }
            }
            Token::End => self.out.push('$'),
            Token::Any => self.out.push_str("[^\\n]"),
            Token::Bracket => self.bracket()?,
            Token::Byte(byte) => literal(byte, &mut self.out),
            Token::Special(text) => self.out.push_str(text),
        }
        self.atom = Some(start);
        Ok(())
    }

    /// What stands between brackets: a set of bytes.
    fn bracket(&mut self) -> Read<()> {
        const OPEN: &str = "a bracket is not closed";
        let negated = self.peek(0) == Some(b'^');
        self.at += usize::from(negated);
        let first = self.at;
        let mut set = [false; 256];
        loop {
            let byte = self.peek(0).ok_or(OPEN)?;
            if byte == b']' && self.at > first {
                break;
            }
            if byte == b'[' && self.peek(1) == Some(b':') {
                self.class(&mut set)?;
                continue;
            }
            let low = self.element()?;
            if self.peek(0) == Some(b'-') && self.peek(1).is_some_and(|next| next != b']') {
                self.at += 1;
                let high = self.element()?;
                if low > high {
                    return Err("a range is the wrong way round".to_owned());
                }
                set[usize::from(low)..=usize::from(high)].fill(true);
            } else {
                set[usize::from(low)] = true;
            }
        }
        let inner = self.pattern.get(first..self.at).unwrap_or_default();
        if inner.len() > 2 && inner.starts_with(b":") && inner.ends_with(b":") {
            return Err("a class is written [[:space:]], not [:space:]".to_owned());
        }
        self.at += 1;
        if self.any_case {
            // Before the set is turned round: what is not `a` is not `A` either.
            for lower in b'a'..=b'z' {
                let (lower, upper) = (usize::from(lower), usize::from(lower.to_ascii_uppercase()));
                let is_in = set[lower] || set[upper];
                (set[lower], set[upper]) = (is_in, is_in);
            }
        }
        if negated {
            set.iter_mut().for_each(|is_in| *is_in = !*is_in);
        }
        set[usize::from(b'\n')] = false;
        self.out.push_str(&class_of(&set));
        Ok(())
    }

    /// One byte of a set, which may stand as `[.x.]` or `[=x=]`.
    fn element(&mut self) -> Read<u8> {
        const OPEN: &str = "a bracket is not closed";
        let byte = self.peek(0).ok_or(OPEN)?;
        let kind = self
            .peek(1)
            .filter(|kind| byte == b'[' && b".=".contains(kind));
        let Some(kind) = kind else {
            self.at += 1;
            return Ok(byte);
        };
        let (element, end) = (self.peek(2).ok_or(OPEN)?, (self.peek(3), self.peek(4)));
        if end != (Some(kind), Some(b']')) {
            return Err("between [. and .] stands one byte".to_owned());
        }
        self.at += 5;
        Ok(element)
    }

    /// `[:name:]` in brackets.
    fn class(&mut self, set: &mut [bool; 256]) -> Read<()> {
        let rest = self.pattern.get(self.at + 2..).unwrap_or_default();
        let end = rest.windows(2).position(|two| two == b":]");
        let name = end.and_then(|end| rest.get(..end));
        let name = name.ok_or("a class of bytes is not closed")?;
        let is_in: fn(&u8) -> bool = match name {
            b"alpha" => u8::is_ascii_alphabetic,
            b"digit" => u8::is_ascii_digit,
            b"alnum" => u8::is_ascii_alphanumeric,
            b"upper" => u8::is_ascii_uppercase,
            b"lower" => u8::is_ascii_lowercase,
            b"space" => |byte| matches!(byte, b'\t'..=b'\r' | b' '),
            b"blank" => |byte| matches!(byte, b'\t' | b' '),
            b"punct" => u8::is_ascii_punctuation,
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"graph" => u8::is_ascii_graphic,
            b"cntrl" => u8::is_ascii_control,
            b"xdigit" => u8::is_ascii_hexdigit,
            name => return Err(format!("there is no class [:{}:]", Escaped(name))),
        };
        self.at += name.len() + 4;
        for byte in 0..=u8::MAX {
            set[usize::from(byte)] |= is_in(&byte);
        }
        Ok(())
    }
}

fn literal(byte: u8, out: &mut String) {
    if byte.is_ascii_alphanumeric() {
        out.push(char::from(byte));
    } else {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// A set of bytes as a class of the crate; one that nothing is in matches nothing.
fn class_of(set: &[bool; 256]) -> String {
    let mut out = String::from("[");
    let mut byte = 0;
    while byte < 256 {
        if !set[byte] {
            byte += 1;
            continue;
        }
        let end = (byte..256).take_while(|at| set[*at]).last().unwrap_or(byte);
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}-\\x{end:02x}");
        byte = end + 1;
    }
    if out.len() == 1 {
        return "[a&&b]".to_owned();
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_the_dialect() {
        for (pattern, dialect, expected) in [
            ("a*b", Dialect::Basic, "(?:a){0,}b"),
            ("*a", Dialect::Basic, "\\x2aa"),
            ("^*a", Dialect::Basic, "^\\x2aa"),
            ("\\(*a\\)", Dialect::Basic, "(?:\\x2aa)"),
            ("a^b$c$", Dialect::Basic, "a\\x5eb\\x24c$"),
            ("a+\\+", Dialect::Basic, "a(?:\\x2b){1,}"),
            ("a\\{2,3\\}", Dialect::Basic, "(?:a){2,3}"),
            ("a|b\\|c", Dialect::Basic, "a\\x7cb|c"),
            ("a+?", Dialect::Extended, "(?:(?:a){1,}){0,1}"),
            ("(a|b)*", Dialect::Extended, "(?:(?:a|b)){0,}"),
            ("a{,2}{", Dialect::Extended, "(?:a){0,2}\\x7b"),
            ("\\<a\\>", Dialect::Extended, "\\b{start}a\\b{end}"),
            (
                "[]a-c-]",
                Dialect::Basic,
                "[\\x2d-\\x2d\\x5d-\\x5d\\x61-\\x63]",
            ),
            (
                "[^[:print:]\n]",
                Dialect::Basic,
                "[\\x00-\\x09\\x0b-\\x1f\\x7f-\\xff]",
            ),
            ("[[.a.][=b=]\\]", Dialect::Basic, "[\\x5c-\\x5c\\x61-\\x62]"),
            ("a.*", Dialect::Fixed, "a\\x2e\\x2a"),
        ] {
            let found = translated(pattern.as_bytes(), dialect, false).expect(pattern);
            assert_eq!(found, expected, "{pattern}");
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        for (pattern, said) in [
            ("(a", "not closed"),
            ("a)", "not open"),
            ("[a", "bracket is not closed"),
            ("[[:alpha:]", "bracket is not closed"),
            ("[[:no:]]", "no class"),
            ("[:alpha:]", "[[:space:]]"),
            ("(a)\\1", "back-reference"),
            ("a\\", "backslash at the end"),
            ("\\d", "\\d has no meaning"),
            ("a{3,2}", "wrong way round"),
            ("[z-a]", "wrong way round"),
            ("a{99999}", "repetitions"),
        ] {
            let e = translated(pattern.as_bytes(), Dialect::Extended, false).expect_err(pattern);
            assert!(e.contains(said), "{pattern}: {e}");
        }
    }
}
