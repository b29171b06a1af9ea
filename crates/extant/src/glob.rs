//! Files whose paths match a pattern.
//!
//! # Invariants
//!
//! - Directories are entered for one part of the pattern, or by a [`Walk`], which enters each once:
//!   a hostile image cannot make a search endless.
//! - A name is compared with a part in time that is bounded by the product of their lengths.

use crate::filesystem::bytes;
use crate::{Error, FileType, Filesystem, Result, Walk};
use extant_core::Error as EngineError;
use extant_format::errno::{ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Filesystem {
    /// Returns the paths that match a pattern as a shell has them: `*` stands for any bytes of a
    /// name, `?` for one, `[a-z]` for one of these and `[!a-z]` for one of all others, `**` as a
    /// part of its own for any number of directories. A `\` takes the meaning of what follows it.
    /// Names that begin with a dot match as others do. A pattern that ends in `/` means directories
    /// alone.
    ///
    /// Paths come as the pattern is written, absolute or relative to the root, and in order of
    /// bytes within a directory. Symbolic links are followed on the way, but for what `**` stands
    /// for.
    ///
    /// ```
    /// # use extant::Filesystem;
    /// # fn main() -> extant::Result<()> {
    /// # let fs = Filesystem::format_device(extant::MemoryDevice::new(16 << 20))?;
    /// fs.create_dir_all("/etc/app.d")?;
    /// fs.write("/etc/app.d/10-first.conf", "")?;
    /// let found = fs.glob("/etc/**/[0-9]*.conf")?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(found, [std::path::Path::new("/etc/app.d/10-first.conf")]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the pattern is empty or has a `[` without its `]`. Items are errors for what cannot be
    /// read; the search goes on behind it.
    pub fn glob(&self, pattern: impl AsRef<Path>) -> Result<Glob> {
        let pattern = pattern.as_ref();
        let parts = parts(bytes(pattern))
            .map_err(|reason| Error::engine(pattern, EngineError::InvalidInput(reason)))?;
        Ok(Glob {
            fs: self.clone(),
            parts: parts.into(),
            is_relative: !bytes(pattern).starts_with(b"/"),
            dirs_only: bytes(pattern).ends_with(b"/"),
            todo: vec![Todo::At(PathBuf::from("/"), 0)],
        })
    }
}

/// The paths that match a pattern: see [`Filesystem::glob`].
pub struct Glob {
    fs: Filesystem,
    parts: Arc<[Part]>,
    is_relative: bool,
    dirs_only: bool,
    /// What is left to look at, the next thing last.
    todo: Vec<Todo>,
}

enum Todo {
    /// A path that matches so many parts.
    At(PathBuf, usize),
    /// What is below a directory, against the parts from one on.
    Below(Box<Below>),
    /// What could not be read.
    Failed(Error),
}

struct Below {
    walk: Walk,
    /// Bytes of the path that the walk begins at.
    skip: usize,
    /// That directory as the pattern has it.
    dir: PathBuf,
    /// The first of the parts.
    part: usize,
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Glob")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl Iterator for Glob {
    type Item = Result<PathBuf>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let found = match self.todo.pop()? {
                Todo::Failed(e) => Some(Err(e)),
                Todo::At(path, done) if done == self.parts.len() => self.wanted(path),
                Todo::At(path, done) => {
                    if let Err(e) = self.expand(path, done)
                        && !is_absence(&e)
                    {
                        self.todo.push(Todo::Failed(e));
                    }
                    None
                }
                Todo::Below(below) => self.step(below),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Glob {
    /// Puts on the list what matches one part more.
    fn expand(&mut self, path: PathBuf, done: usize) -> Result<()> {
        match &self.parts[done] {
            Part::Name(name) => {
                let at = path.join(OsStr::from_bytes(name));
                self.fs.symlink_metadata(&at)?;
                self.todo.push(Todo::At(at, done + 1));
            }
            Part::Names(tokens) => {
                let names = names(&self.fs, &path, tokens)?;
                let at = names.iter().rev().map(|name| path.join(name));
                self.todo.extend(at.map(|at| Todo::At(at, done + 1)));
            }
            Part::AnyDepth => {
                // A symbolic link is not walked: what it leads to is.
                let real = self.fs.canonicalize(&path)?;
                if self.fs.metadata(&real)?.is_dir() {
                    self.todo.push(Todo::Below(Box::new(Below {
                        walk: self.fs.walk(&real)?,
                        skip: bytes(&real).len(),
                        dir: path,
                        part: done,
                    })));
                }
            }
        }
        Ok(())
    }

    /// Takes one step of a walk; gives what it comes to, if that matches.
    fn step(&mut self, mut below: Box<Below>) -> Option<Result<PathBuf>> {
        let entry = match below.walk.next()? {
            Ok(entry) => entry,
            Err(e) => {
                self.todo.push(Todo::Below(below));
                return Some(Err(e));
            }
        };
        let rest = entry.path_bytes().get(below.skip..).unwrap_or_default();
        let names: Vec<&[u8]> = rest
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
            .collect();
        let is_wanted = !self.dirs_only || entry.file_type() == FileType::Directory;
        let found = is_wanted && matches_parts(&self.parts[below.part..], &names);
        let path = found.then(|| {
            let mut path = below.dir.clone();
            path.extend(names.iter().map(|name| OsStr::from_bytes(name)));
            path
        });
        self.todo.push(Todo::Below(below));
        path.and_then(|path| self.shown(path)).map(Ok)
    }

    /// A path that matches, unless it is no directory and has to be one.
    fn wanted(&self, path: PathBuf) -> Option<Result<PathBuf>> {
        if self.dirs_only {
            match self.fs.metadata(&path) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return None,
                Err(e) if is_absence(&e) => return None,
                Err(e) => return Some(Err(e)),
            }
        }
        self.shown(path).map(Ok)
    }

    /// The path as the pattern is written. Relative to the root, the root has none.
    fn shown(&self, path: PathBuf) -> Option<PathBuf> {
        if !self.is_relative {
            return Some(path);
        }
        let path = path.strip_prefix("/").unwrap_or(&path);
        (!path.as_os_str().is_empty()).then(|| path.to_owned())
    }
}

/// The names in a directory that match, in order of their bytes.
fn names(fs: &Filesystem, dir: &Path, tokens: &[Token]) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs.read_dir(dir)? {
        let entry = entry?;
        if matches(tokens, entry.file_name().as_bytes()) {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whether an error says that there is nothing at a path, or that links to it lead nowhere.
fn is_absence(e: &Error) -> bool {
    matches!(e.errno(), ENOENT | ENOTDIR | ENAMETOOLONG | ELOOP)
}

/// What stands between two `/` of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// This name.
    Name(Vec<u8>),
    /// Names that match.
    Names(Vec<Token>),
    /// Any number of directories.
    AnyDepth,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Any,
    /// A byte in one of these ranges, or in none of them.
    Set {
        ranges: Vec<(u8, u8)>,
        is_negated: bool,
    },
}

impl Token {
    /// Whether it stands for this one byte.
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::One => true,
            Self::Any => false,
            Self::Set { ranges, is_negated } => {
                let is_in = ranges.iter().any(|&(from, to)| (from..=to).contains(&byte));
                is_in != *is_negated
            }
        }
    }
}

fn parts(pattern: &[u8]) -> Result<Vec<Part>, &'static str> {
    if pattern.is_empty() {
        return Err("the pattern is empty");
    }
    let mut parts = Vec::new();
    let texts = pattern.split(|&byte| byte == b'/');
    for text in texts.filter(|text| !text.is_empty()) {
        if text == b"**" {
            if parts.last() != Some(&Part::AnyDepth) {
                parts.push(Part::AnyDepth);
            }
            continue;
        }
        let tokens = tokens(text)?;
        let name = tokens.iter().map(|token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        });
        parts.push(match name.collect() {
            Some(name) => Part::Name(name),
            None => Part::Names(tokens),
        });
    }
    Ok(parts)
}

fn tokens(text: &[u8]) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        tokens.push(match byte {
            b'*' => {
                if tokens.last() == Some(&Token::Any) {
                    continue;
                }
                Token::Any
            }
            b'?' => Token::One,
            b'[' => {
                let (set, after) = set(rest).ok_or("the pattern has a `[` without its `]`")?;
                rest = after;
                set
            }
            b'\\' => match rest.split_first() {
                Some((&byte, after)) => {
                    rest = after;
                    Token::Byte(byte)
                }
                None => Token::Byte(b'\\'),
            },
            byte => Token::Byte(byte),
        });
    }
    Ok(tokens)
}

/// Reads a set up to its `]`, which stands for itself in the first place; gives what comes behind.
fn set(text: &[u8]) -> Option<(Token, &[u8])> {
    let (is_negated, mut rest) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut ranges = Vec::new();
    loop {
        match rest {
            [b']', after @ ..] if !ranges.is_empty() => {
                return Some((Token::Set { ranges, is_negated }, after));
            }
            [from, b'-', to, after @ ..] if *to != b']' => {
                ranges.push((*from, *to));
                rest = after;
            }
            [byte, after @ ..] => {
                ranges.push((*byte, *byte));
                rest = after;
            }
            [] => return None,
        }
    }
}

/// Whether a name matches. Where it stops matching, the last `*` takes one byte more.
fn matches(tokens: &[Token], name: &[u8]) -> bool {
    let (mut token, mut at) = (0, 0);
    let mut last_any: Option<(usize, usize)> = None;
    while at < name.len() {
        match tokens.get(token) {
            Some(Token::Any) => {
                last_any = Some((token, at));
                token += 1;
            }
            Some(one) if one.takes(name[at]) => {
                token += 1;
                at += 1;
            }
            _ => {
                let Some((any, from)) = last_any else {
                    return false;
                };
                last_any = Some((any, from + 1));
                token = any + 1;
                at = from + 1;
            }
        }
    }
    tokens[token..].iter().all(|token| *token == Token::Any)
}

/// Whether names on the way down match these parts.
fn matches_parts(parts: &[Part], names: &[&[u8]]) -> bool {
    // Which numbers of names match the parts so far.
    let mut reached = vec![false; names.len() + 1];
    reached[0] = true;
    for part in parts {
        if *part == Part::AnyDepth {
            let first = reached.iter().position(|&reached| reached);
            let first = first.unwrap_or(reached.len());
            reached[first..].fill(true);
            continue;
        }
        for (at, name) in names.iter().enumerate().rev() {
            reached[at + 1] = reached[at]
                && match part {
                    Part::Name(own) => own == name,
                    Part::Names(tokens) => matches(tokens, name),
                    Part::AnyDepth => true,
                };
        }
        reached[0] = false;
    }
    reached[names.len()]
}

#[cfg(test)]
mod tests {
    use super::{matches, matches_parts, parts, tokens};

    fn is_match(pattern: &str, name: &str) -> bool {
        matches(&tokens(pattern.as_bytes()).unwrap(), name.as_bytes())
    }

    #[test]
    fn a_name_matches_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", ".hidden", true),
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("?x", "ax", true),
            ("?x", "x", false),
            ("[a-c]1", "b1", true),
            ("[a-c]1", "d1", false),
            ("[!a-c]1", "d1", true),
            ("[]-]", "]", true),
            ("[]-]", "-", true),
            ("[a-]", "-", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_take_no_time_without_end() {
        let (pattern, name) = ("*a".repeat(100) + "b", "a".repeat(255));
        assert!(!is_match(&pattern, &name));
    }

    #[test]
    fn two_stars_stand_for_any_number_of_directories() {
        for (pattern, path, expected) in [
            ("**", "", true),
            ("**", "a/b", true),
            ("**/b", "b", true),
            ("**/b", "a/c/b", true),
            ("**/b", "a/b/c", false),
            ("a/**/b", "a/b", true),
            ("a/**/b/*", "a/x/b/b/y", true),
            ("a/**/b", "x/a/b", false),
            ("**/a/**/b", "a/a/b/b", true),
        ] {
            let parts = parts(pattern.as_bytes()).unwrap();
            let names: Vec<&[u8]> = path
                .split('/')
                .filter(|n| !n.is_empty())
                .map(str::as_bytes)
                .collect();
            assert_eq!(matches_parts(&parts, &names), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_mean_nothing_are_refused() {
        assert!(parts(b"").is_err());
        assert!(parts(b"a/[b").is_err());
        assert!(parts(b"a/[]").is_err());
    }
}
