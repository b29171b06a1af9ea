//! Patterns for paths, in the manner of `.gitignore`: those of [`exclude`](super::exclude), without
//! its `!`.

/// A pattern for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathGlob {
    /// One for each component; `None` is `**`.
    parts: Vec<Option<Glob>>,
    anchored: bool,
    directories_only: bool,
}

impl PathGlob {
    /// Parses a pattern; the error is the rest of a sentence about it.
    pub(crate) fn parse(pattern: &[u8]) -> Result<Self, &'static str> {
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
        })
    }

    /// The names that a path begins with if it matches, as far as they are given byte by byte.
    pub(crate) fn fixed_directories(&self) -> Vec<Box<[u8]>> {
        // The last part is the name itself.
        let above = self.parts.len().saturating_sub(1);
        self.parts[..above]
            .iter()
            .map_while(|part| part.as_ref()?.literal())
            .filter(|_| self.anchored)
            .collect()
    }

    /// The path that it is, where nothing in it matches more than one.
    pub(crate) fn literal_path(&self) -> Option<Vec<Box<[u8]>>> {
        let parts = self.parts.iter();
        let names = parts.map(|part| part.as_ref()?.literal());
        names.collect::<Option<_>>().filter(|_| self.anchored)
    }

    /// Whether it is about directories alone.
    pub(crate) const fn directories_only(&self) -> bool {
        self.directories_only
    }

    /// Whether the file at `path` (names from the root, at least one) matches.
    pub(crate) fn matches(&self, path: &[&[u8]], is_dir: bool) -> bool {
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
#[derive(Clone, Debug, PartialEq, Eq)]
struct Glob(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// The one name that it matches, where it is one.
    fn literal(&self) -> Option<Box<[u8]>> {
        let byte = |token: &Token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        };
        self.0.iter().map(byte).collect()
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
