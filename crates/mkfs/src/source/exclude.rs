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
use super::glob::PathGlob;

/// A list of patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excludes {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    paths: PathGlob,
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

    /// These patterns, and others after them.
    pub(super) fn with(&self, others: &Self) -> Self {
        let rules = self.rules.iter().chain(&others.rules);
        Self {
            rules: rules.cloned().collect(),
        }
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
            .find(|rule| rule.paths.matches(path, is_dir))
            .is_some_and(|rule| !rule.takes_back)
    }
}

impl Rule {
    fn parse(pattern: &[u8]) -> Result<Self, &'static str> {
        let (takes_back, pattern) = match pattern.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        Ok(Self {
            paths: PathGlob::parse(pattern)?,
            takes_back,
        })
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
