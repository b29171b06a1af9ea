//! Colours of names, in the language of `LS_COLORS`.

use extant::{FileType, Filesystem, Metadata};
use std::collections::HashMap;
use std::path::Path;

/// What `ls` takes where `LS_COLORS` does not say anything else.
const DEFAULTS: &[(&str, &str)] = &[
    ("di", "01;34"),
    ("ln", "01;36"),
    ("pi", "33"),
    ("so", "01;35"),
    ("bd", "01;33"),
    ("cd", "01;33"),
    ("ex", "01;32"),
    ("su", "37;41"),
    ("sg", "30;43"),
    ("ca", "30;41"),
    ("st", "37;44"),
    ("ow", "34;42"),
    ("tw", "30;42"),
];

/// The attribute that holds a file's capabilities.
const CAPABILITIES: &str = "security.capability";

/// Which colours names have.
#[derive(Debug)]
pub(super) struct Colors {
    kinds: HashMap<String, String>,
    /// Ends of names, those that count first at the end.
    suffixes: Vec<(String, String)>,
}

impl Colors {
    /// Those that the environment asks for.
    pub(super) fn of_environment() -> Self {
        let text = std::env::var("LS_COLORS").unwrap_or_default();
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let owned = |(kind, color): &(&str, &str)| ((*kind).to_owned(), (*color).to_owned());
        let mut colors = Self {
            kinds: DEFAULTS.iter().map(owned).collect(),
            suffixes: Vec::new(),
        };
        for part in text.split(':') {
            let Some((what, color)) = part.split_once('=') else {
                continue;
            };
            // Only what can be a colour is written to a terminal.
            let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b';';
            let is_color = color.bytes().all(is_plain) || (what, color) == ("ln", "target");
            if !is_color {
                continue;
            }
            match what.strip_prefix('*') {
                Some(suffix) => colors.suffixes.push((suffix.to_owned(), color.to_owned())),
                None => drop(colors.kinds.insert(what.to_owned(), color.to_owned())),
            }
        }
        colors
    }

    /// The colour of a kind, if it has one.
    fn kind(&self, kind: &str) -> Option<&str> {
        let color = self.kinds.get(kind)?;
        (!matches!(color.as_str(), "" | "0" | "00")).then_some(color)
    }

    /// The colour of a name in a listing.
    pub(super) fn of_name(
        &self,
        fs: &Filesystem,
        path: &Path,
        name: &[u8],
        found: &Metadata,
    ) -> Option<&str> {
        if !found.is_symlink() {
            return self.of_file(fs, path, name, found);
        }
        let target = fs.metadata(path);
        match target {
            Err(_) if self.kind("or").is_some() => self.kind("or"),
            Ok(target) if self.kind("ln") == Some("target") => {
                self.of_file(fs, path, name, &target)
            }
            Err(_) if self.kind("ln") == Some("target") => None,
            _ => self.kind("ln"),
        }
    }

    /// The colour of the target of a symbolic link at `path`, behind the arrow. As in ls(1),
    /// targets have colours where those that are missing have one, where links have theirs, or
    /// where targets are looked at in any case.
    pub(super) fn of_target(
        &self,
        fs: &Filesystem,
        path: &Path,
        target: &[u8],
        are_looked_at: bool,
    ) -> Option<&str> {
        let of_missing = self.kind("mi").or_else(|| self.kind("or"));
        let as_target = self.kind("ln") == Some("target") && self.kind("ex").is_some();
        if of_missing.is_none() && !as_target && !are_looked_at {
            return None;
        }
        match fs.metadata(path) {
            Ok(found) => self.of_file(fs, path, target, &found),
            Err(_) => of_missing,
        }
    }

    fn of_file(&self, fs: &Filesystem, path: &Path, name: &[u8], found: &Metadata) -> Option<&str> {
        let mode = found.mode().permissions();
        let first = |kinds: &[(bool, &str)], last: &str| {
            let fitting = kinds.iter().filter(|(fits, _)| *fits);
            let mut colors = fitting.filter_map(|(_, kind)| self.kind(kind));
            colors.next().or_else(|| self.kind(last))
        };
        match found.file_type() {
            FileType::Directory => {
                let (sticky, open) = (mode & 0o1000 != 0, mode & 0o002 != 0);
                first(
                    &[(sticky && open, "tw"), (open, "ow"), (sticky, "st")],
                    "di",
                )
            }
            FileType::Regular => {
                let has_capabilities =
                    self.kind("ca").is_some() && matches!(capabilities(fs, path), Ok(Some(_)));
                let kinds = [
                    (mode & 0o4000 != 0, "su"),
                    (mode & 0o2000 != 0, "sg"),
                    (has_capabilities, "ca"),
                    (mode & 0o111 != 0, "ex"),
                    (found.nlink() > 1, "mh"),
                ];
                let of_kind = kinds.iter().filter(|(fits, _)| *fits);
                let mut of_kind = of_kind.filter_map(|(_, kind)| self.kind(kind));
                let of_kind = of_kind.next();
                of_kind
                    .or_else(|| self.suffix(name))
                    .or_else(|| self.kind("fi"))
            }
            FileType::Symlink => self.kind("ln"),
            FileType::CharDevice => self.kind("cd"),
            FileType::BlockDevice => self.kind("bd"),
            FileType::Fifo => self.kind("pi"),
            FileType::Socket => self.kind("so"),
        }
    }

    fn suffix(&self, name: &[u8]) -> Option<&str> {
        let fits = |(suffix, _): &&(String, String)| {
            let end = name.len().checked_sub(suffix.len());
            let end = end.and_then(|end| name.get(end..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
        };
        let (_, color) = self.suffixes.iter().rev().find(fits)?;
        (!matches!(color.as_str(), "" | "0" | "00")).then_some(color)
    }
}

fn capabilities(fs: &Filesystem, path: &Path) -> extant::Result<Option<Vec<u8>>> {
    fs.get_xattr(path, CAPABILITIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_are_taken_from_the_environment() {
        let colors = Colors::parse("di=1;35:*.gz=31:*.tar.gz=32:ex=00:pi=\x1b[2J:bad:ln=target");
        assert_eq!(colors.kind("di"), Some("1;35"));
        assert_eq!(colors.kind("ex"), None);
        assert_eq!(colors.kind("pi"), Some("33"));
        assert_eq!(colors.kind("ln"), Some("target"));
        assert_eq!(colors.suffix(b"a.tar.gz"), Some("32"));
        assert_eq!(colors.suffix(b"a.GZ"), Some("31"));
        assert_eq!(colors.suffix(b"a.z"), None);
    }
}
