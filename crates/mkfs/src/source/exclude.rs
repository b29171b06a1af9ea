//! Patterns for names that stay out of the image, in the manner of `.gitignore`.
//!
//! * `*` matches any bytes but `/`, `?` one of them, `[a-z]` and `[!a-z]` one of a set; a
//!   backslash takes the next byte as it is.
//! * A pattern without `/` (a final one aside) matches a name at any depth. With one, it is
//!   anchored at the root of the source: `/var/cache`, `boot/*.old`.
//! * `**/` matches any number of directories, none included; a final `/**` everything inside.
//! * A final `/` makes a pattern match directories only.
//! * A leading `!` takes back what an earlier pattern excluded. The last pattern that matches
//!   decides. What lies in an excluded directory is out and cannot be taken back.
//!
//! Names are bytes; nothing depends on a locale. Matching takes time proportional to the product of
//! the lengths at worst.

use super::error::{SourceError, SourceResult};

/// A list of patterns.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    /// One for each component; `None` is `**`.
    parts: Vec<Option<Glob>>,
    anchored: bool,
    directories_only: bool,
    takes_back: bool,
}

impl Excludes {
    /// Parses patterns, in the order in which they apply.
    ///
    /// # Errors
    ///
    /// [`SourceError::Pattern`] for an empty pattern, a set without its `]`, or a final backslash.
    pub fn new<P: AsRef<[u8]>>(patterns: impl IntoIterator<Item = P>) -> SourceResult<Self> {
        let rules = patterns
            .into_iter()
            .map(|pattern| {
                let pattern = pattern.as_ref();
                Rule::parse(pattern).map_err(|problem| SourceError::Pattern {
                    pattern: String::from_utf8_lossy(pattern).into_owned(),
                    problem,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Returns whether there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns whether the file at `path` (names from the root of the source, at least one) is
    /// excluded by itself; that no directory above it is excluded is the caller's to know.
    #[must_use]
    pub fn excludes(&self, path: &[&[u8]], is_dir: bool) -> bool {
        self.rules
            .iter()
            .rev()
            .find(|rule| rule.matches(path, is_dir))
            .is_some_and(|rule| !rule.takes_back)
    }
}

impl Rule {
    fn parse(pattern: &[u8]) -> Result<Self, &'static str> {
        let (takes_back, pattern) = match pattern.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let (directories_only, pattern) = match pattern.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let anchored = pattern.contains(&b'/');
        let pattern = pattern.strip_prefix(b"/").unwrap_or(pattern);
        if pattern.is_empty() {
            return Err("is empty");
        }
        let parts = pattern
            .split(|&b| b == b'/')
            .filter(|part| !part.is_empty() && part != b".")
            .map(|part| match part {
                b"**" => Ok(None),
                glob => Glob::parse(glob).map(Some),
            })
            .collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err("names nothing");
        }
        Ok(Self {
            parts,
            anchored,
            directories_only,
            takes_back,
        })
    }

    fn matches(&self, path: &[&[u8]], is_dir: bool) -> bool {
        if self.directories_only && !is_dir {
            return false;
        }
        let path = match path {
            [.., last] if !self.anchored => std::slice::from_ref(last),
            all => all,
        };
        match self.parts.as_slice() {
            // What is inside, not the directory itself: a directory above must match.
            [before @ .., None] if !before.is_empty() => {
                (1..path.len()).any(|above| matches_parts(before, &path[..above]))
            }
            parts => matches_parts(parts, path),
        }
    }
}

/// Matches names against components; on a mismatch the last `**` takes one name more.
fn matches_parts(parts: &[Option<Glob>], names: &[&[u8]]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (parts.get(p), names.get(n)) {
            (None, None) => return true,
            (Some(None), _) => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            (Some(Some(glob)), Some(name)) if glob.matches(name) => {
                p += 1;
                n += 1;
                continue;
            }
            _ => {}
        }
        match retry {
            Some((after, from)) if from < names.len() => {
                (p, n) = (after, from + 1);
                retry = Some((after, from + 1));
            }
            _ => return false,
        }
    }
}

/// A pattern for one name.
#[derive(Clone, Debug)]
struct Glob(Vec<Token>);

#[derive(Clone, Debug)]
enum Token {
    Byte(u8),
    Any,
    Star,
    Set {
        ranges: Vec<(u8, u8)>,
        negated: bool,
    },
}

impl Glob {
    fn parse(pattern: &[u8]) -> Result<Self, &'static str> {
        let mut tokens = Vec::new();
        let mut rest = pattern;
        while let [first, tail @ ..] = rest {
            rest = tail;
            tokens.push(match first {
                b'*' => Token::Star,
                b'?' => Token::Any,
                b'[' => {
                    let (set, after) = parse_set(rest)?;
                    rest = after;
                    set
                }
                b'\\' => {
                    let (byte, after) = rest.split_first().ok_or("ends with a backslash")?;
                    rest = after;
                    Token::Byte(*byte)
                }
                byte => Token::Byte(*byte),
            });
        }
        Ok(Self(tokens))
    }

    /// Matches a whole name; on a mismatch the last star takes one byte more.
    fn matches(&self, name: &[u8]) -> bool {
        let (mut t, mut n) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(t), name.get(n)) {
                (None, None) => return true,
                (Some(Token::Star), _) => {
                    retry = Some((t + 1, n));
                    t += 1;
                    continue;
                }
                (Some(token), Some(&byte)) if token.matches(byte) => {
                    t += 1;
                    n += 1;
                    continue;
                }
                _ => {}
            }
            match retry {
                Some((after, from)) if from < name.len() => {
                    (t, n) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                _ => return false,
            }
        }
    }
}

impl Token {
    fn matches(&self, byte: u8) -> bool {
        match self {
            Self::Byte(b) => *b == byte,
            Self::Any => true,
            Self::Star => false,
            Self::Set { ranges, negated } => {
                ranges.iter().any(|&(lo, hi)| (lo..=hi).contains(&byte)) != *negated
            }
        }
    }
}

/// Parses what follows `[`; gives the set and what follows its `]`.
fn parse_set(mut rest: &[u8]) -> Result<(Token, &[u8]), &'static str> {
    const OPEN: &str = "has a [ without its ]";
    let negated = matches!(rest, [b'!' | b'^', ..]);
    if negated {
        rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    loop {
        let (lo, after) = match rest {
            // A `]` that comes first is one of the set.
            [b']', after @ ..] if !ranges.is_empty() => {
                return Ok((Token::Set { ranges, negated }, after));
            }
            [b'\\', byte, after @ ..] | [byte, after @ ..] => (*byte, after),
            [] => return Err(OPEN),
        };
        match after {
            [b'-', hi, after @ ..] if *hi != b']' => {
                ranges.push((lo, *hi));
                rest = after;
            }
            _ => {
                ranges.push((lo, lo));
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(patterns: &[&str], path: &str) -> bool {
        let is_dir = path.ends_with('/');
        let parts: Vec<&[u8]> = path
            .trim_end_matches('/')
            .split('/')
            .map(str::as_bytes)
            .collect();
        Excludes::new(patterns).unwrap().excludes(&parts, is_dir)
    }

    #[test]
    fn a_pattern_without_a_slash_matches_a_name_at_any_depth() {
        for path in ["a.o", "x/a.o", "x/y/.o"] {
            assert!(excluded(&["*.o"], path), "{path}");
        }
        for path in ["a.oo", "a.o/x", "ao"] {
            assert!(!excluded(&["*.o"], path), "{path}");
        }
        assert!(excluded(&["c?t[0-9a]"], "cat7"));
        assert!(excluded(&["c?t[!0-9a]"], "cutb"));
        assert!(!excluded(&["c?t[!0-9a]"], "cuta"));
        assert!(excluded(&["[]x]"], "]"));
        assert!(excluded(&["\\*"], "*") && !excluded(&["\\*"], "x"));
        assert!(excluded(&["a*b*c"], "aXbbYbc") && !excluded(&["a*b*c"], "aXbbYb"));
    }

    #[test]
    fn a_slash_anchors() {
        assert!(excluded(&["/tmp"], "tmp") && !excluded(&["/tmp"], "x/tmp"));
        assert!(excluded(&["boot/*.old"], "boot/k.old"));
        assert!(!excluded(&["boot/*.old"], "x/boot/k.old"));
        assert!(!excluded(&["boot/*.old"], "boot/x/k.old"));
        assert!(excluded(&["cache/"], "x/cache/") && !excluded(&["cache/"], "x/cache"));
    }

    #[test]
    fn two_stars_cross_directories() {
        for path in ["b", "a/b", "a/x/b", "a/x/y/b"] {
            assert!(excluded(&["**/b"], path), "{path}");
            assert_eq!(excluded(&["a/**/b"], path), path != "b", "{path}");
        }
        assert!(excluded(&["a/**"], "a/x") && excluded(&["a/**"], "a/x/y"));
        assert!(!excluded(&["a/**"], "a/") && !excluded(&["a/**"], "b/x"));
        assert!(excluded(&["**/t/**"], "x/t/y") && !excluded(&["**/t/**"], "x/t/"));
    }

    #[test]
    fn the_last_match_decides() {
        assert!(!excluded(&["*.o", "!keep.o"], "keep.o"));
        assert!(excluded(&["!keep.o", "*.o"], "keep.o"));
        for bad in ["", "/", "[a", "x\\", "!"] {
            assert!(Excludes::new([bad]).is_err(), "{bad:?}");
        }
    }
}
