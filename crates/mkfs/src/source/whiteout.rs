//! Names with which a layer says what it takes away from those below it.
//!
//! `.wh.NAME` hides `NAME`, and `.wh..wh..opq` all that lower layers have in its directory (OCI
//! image specification, "Image Layer Filesystem Changeset"). Other names that begin with `.wh..wh.`
//! are the housekeeping of AUFS, and say nothing.

use std::str::FromStr;

/// What every whiteout's name begins with.
pub(super) const PREFIX: &[u8] = b".wh.";
/// What AUFS gives its own files.
const AUFS: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What becomes of whiteouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whiteouts {
    /// They take away what the sources before have, and are not in the image.
    #[default]
    Apply,
    /// They do, and the image says it as overlayfs does, to be put over other layers: character
    /// devices 0:0, and `trusted.overlay.opaque`.
    Overlay,
    /// A source with a whiteout is refused.
    Refuse,
    /// They are files like others, which is what they are in an archive that is no layer.
    Keep,
}

impl FromStr for Whiteouts {
    type Err = String;

    /// Parses `apply`, `overlay` or `refuse`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "apply" => Ok(Self::Apply),
            "overlay" => Ok(Self::Overlay),
            "refuse" => Ok(Self::Refuse),
            _ => Err(format!("{text:?} is not one of apply, overlay, refuse")),
        }
    }
}

/// What a whiteout says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark<'p> {
    /// That lower layers' `name` in the directory `dir` is gone.
    Hides { dir: &'p [u8], name: &'p [u8] },
    /// That all is gone that lower layers have in the directory `dir`.
    Opaque { dir: &'p [u8] },
    /// Nothing.
    Housekeeping,
}

impl<'p> Mark<'p> {
    /// Whether a path has a name in it that begins as whiteouts do.
    pub(super) fn is_in(path: &[u8]) -> bool {
        path.split(|&b| b == b'/')
            .any(|part| part.starts_with(PREFIX))
    }

    /// What the last name of a path says; `None` if it is no whiteout.
    ///
    /// # Errors
    ///
    /// A sentence about a whiteout that is not one: with something beneath it, or for a name that
    /// cannot be.
    pub(super) fn of(path: &'p [u8]) -> Result<Option<Self>, String> {
        let (dir, last) = match path.iter().rposition(|&b| b == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let mut above = dir.split(|&b| b == b'/');
        if let Some(part) = above.find(|part| part.starts_with(PREFIX)) {
            if part.starts_with(AUFS) && part != OPAQUE {
                return Ok(Some(Self::Housekeeping));
            }
            let part = String::from_utf8_lossy(part);
            return Err(format!(
                "lies beneath {part:?}, a whiteout, which has nothing in it"
            ));
        }
        if last == OPAQUE {
            return Ok(Some(Self::Opaque { dir }));
        }
        if last.starts_with(AUFS) {
            return Ok(Some(Self::Housekeeping));
        }
        match last.strip_prefix(PREFIX) {
            None => Ok(None),
            Some(b"" | b"." | b"..") => {
                let last = String::from_utf8_lossy(last);
                Err(format!("{last:?} is a whiteout of no name that a file has"))
            }
            Some(name) => Ok(Some(Self::Hides { dir, name })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_take_away() {
        let hides = |dir: &'static str, name: &'static str| {
            Ok(Some(Mark::Hides {
                dir: dir.as_bytes(),
                name: name.as_bytes(),
            }))
        };
        assert_eq!(Mark::of(b"a/b/.wh.c"), hides("a/b", "c"));
        assert_eq!(Mark::of(b".wh.c"), hides("", "c"));
        assert_eq!(Mark::of(b"a/.wh...x"), hides("a", "..x"));
        assert_eq!(Mark::of(b"a/.wh..wh"), hides("a", ".wh"));
        assert_eq!(
            Mark::of(b"a/.wh..wh..opq"),
            Ok(Some(Mark::Opaque { dir: b"a" }))
        );
        for housekeeping in [&b".wh..wh.plnk/7.1"[..], b".wh..wh.aufs", b"d/.wh..wh.orph"] {
            assert_eq!(Mark::of(housekeeping), Ok(Some(Mark::Housekeeping)));
        }
        assert_eq!(Mark::of(b"a/.where"), Ok(None));
        for wrong in [
            &b".wh.a/b"[..],
            b"d/.wh..wh..opq/b",
            b".wh.",
            b"d/.wh..",
            b"d/.wh...",
        ] {
            assert!(Mark::of(wrong).is_err(), "{wrong:?}");
        }
    }
}
