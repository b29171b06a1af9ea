//! Which dialect a table is in: said, or seen by the form of all its lines.

use super::error::{TableError, TableResult};
use super::text::{is_blank, lines};
use super::{android, device, mtree, own};
use std::path::Path;
use std::str::FromStr;

/// A form of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// Extant's own: `PATTERN OWNER MODE [WORD...]`.
    Own,
    /// A device table in which genext2fs and `makedevs` read the same.
    Devices,
    /// A device table of genext2fs.
    Genext2fs,
    /// A device table of Buildroot's `makedevs`.
    Makedevs,
    /// Android's `fs_config`, which `canned_fs_config` reads too.
    FsConfig,
    /// A specification of the BSDs' `mtree`.
    Mtree,
}

impl Dialect {
    /// Names that may stand before a table, with what they mean.
    const NAMES: [(&str, Self); 7] = [
        ("extant", Self::Own),
        ("devices", Self::Devices),
        ("genext2fs", Self::Genext2fs),
        ("makedevs", Self::Makedevs),
        ("fs_config", Self::FsConfig),
        ("canned_fs_config", Self::FsConfig),
        ("mtree", Self::Mtree),
    ];

    const fn described(self) -> &'static str {
        match self {
            Self::Own => "a table of Extant's",
            Self::Devices | Self::Genext2fs | Self::Makedevs => "a device table",
            Self::FsConfig => "an fs_config table",
            Self::Mtree => "an mtree specification",
        }
    }
}

impl FromStr for Dialect {
    type Err = ();

    /// Finds the dialect that is called so.
    fn from_str(name: &str) -> Result<Self, ()> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, dialect)| *dialect).ok_or(())
    }
}

/// Whether a line has the form of a dialect.
type Fits = fn(&[u8]) -> bool;

/// The one dialect that all lines have the form of.
pub(super) fn detect(path: &Path, text: &[u8]) -> TableResult<Dialect> {
    if lines(text).any(|(_, line)| mtree::is_sure(line)) {
        return Ok(Dialect::Mtree);
    }
    let forms: [(Dialect, Fits); 4] = [
        (Dialect::Own, own::fits),
        (Dialect::Devices, device::fits),
        (Dialect::FsConfig, android::fits),
        (Dialect::Mtree, mtree::fits),
    ];
    let mut possible = forms.to_vec();
    let mut first = None;
    for (number, line) in lines(text).filter(|(_, line)| !is_blank(line)) {
        let before: Vec<Dialect> = possible.iter().map(|(dialect, _)| *dialect).collect();
        possible.retain(|(_, fits)| fits(line));
        if possible.is_empty() {
            return Err(TableError::line(
                path,
                number,
                mixed(&before, first.is_none()),
            ));
        }
        first = first.or(Some(number));
    }
    match possible.as_slice() {
        [(dialect, _)] => Ok(*dialect),
        _ if first.is_none() => Ok(Dialect::Own),
        several => {
            let names: Vec<&str> = several
                .iter()
                .map(|(dialect, _)| dialect.described())
                .collect();
            Err(TableError::table(
                path,
                format!(
                    "could be {}: say which with --owners KIND:FILE (extant, genext2fs, makedevs, \
                     fs_config, mtree)",
                    names.join(" or ")
                ),
            ))
        }
    }
}

fn mixed(before: &[Dialect], is_first: bool) -> String {
    const SAY: &str = "--owners KIND:FILE says which it is (extant, genext2fs, makedevs, \
                       fs_config, mtree)";
    match before {
        [dialect] if !is_first => format!(
            "is no line of {}, which the lines before are; {SAY}",
            dialect.described()
        ),
        _ => format!("is in no form of table that is known; {SAY}"),
    }
}

/// Parts `KIND:FILE`; without a kind that is known, all of it is the file.
#[must_use]
pub fn split_kind(given: &[u8]) -> (Option<Dialect>, &[u8]) {
    let known = given.iter().position(|&byte| byte == b':').and_then(|at| {
        let dialect = std::str::from_utf8(&given[..at]).ok()?.parse().ok()?;
        Some((Some(dialect), &given[at + 1..]))
    });
    known.unwrap_or((None, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Result<Dialect, String> {
        detect(Path::new("t"), text.as_bytes()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_form_of_all_lines_says_the_dialect() {
        for (text, dialect) in [
            ("", Dialect::Own),
            ("# nothing\n\n", Dialect::Own),
            ("/etc/shadow 0:42 0640\n*.sh - 755\n", Dialect::Own),
            ("/ping 0 755 caps=cap_net_raw+ep\n", Dialect::Own),
            (
                "/dev d 755 0 0 - - - - -\n/dev/null c 666 0 0 1 3 0 0 -\n",
                Dialect::Devices,
            ),
            ("/bin/x f 755 0 0\n|xattr cap_chown+p\n", Dialect::Devices),
            (
                " 0 0 755\nsystem/bin 0 2000 0755 capabilities=0x0\n",
                Dialect::FsConfig,
            ),
            ("#mtree v2.0\n. type=dir\n", Dialect::Mtree),
            (". uid=0 mode=755\n", Dialect::Mtree),
        ] {
            assert_eq!(seen(text), Ok(dialect), "{text}");
        }
        assert!(seen("/dev d 755\n").unwrap_err().contains("could be"));
        assert!(
            seen("/etc/shadow 0:42 0640\nwhat is this\n")
                .unwrap_err()
                .starts_with("t:2: ")
        );
        assert!(seen("x\n").is_err());
    }

    #[test]
    fn a_kind_stands_before_the_file() {
        assert_eq!(
            split_kind(b"mtree:a"),
            (Some(Dialect::Mtree), b"a".as_slice())
        );
        assert_eq!(split_kind(b"dir:a"), (None, b"dir:a".as_slice()));
        assert_eq!(split_kind(b"a"), (None, b"a".as_slice()));
    }
}
