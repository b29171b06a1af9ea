//! What one file has besides content, compared.

use super::side::{Found, Inside, Side};
use super::{Aspects, What, Which};
use crate::read_dir::join;
use crate::{Error, Extent, FileType};
use extant_core::ops;
use extant_format::inode::InodeFlags;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Flags that say something of a file to its users. The others say how it is stored.
const SAID: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETABLE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NO_DUMP)
    .union(InodeFlags::NO_ATIME)
    .union(InodeFlags::NO_COMPRESS)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NO_TAIL)
    .union(InodeFlags::DIR_SYNC)
    .union(InodeFlags::TOP_DIR)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::NO_COW)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD);

/// A file that both sides have, of one kind.
pub(super) struct Both<'a> {
    pub(super) sides: [&'a Side; 2],
    pub(super) at: &'a At<'a>,
    pub(super) found: [&'a Found; 2],
}

/// Where a pair lies: paths are put together where they are asked for.
pub(super) struct At<'a> {
    /// Its directory, as it is told, and on the two sides.
    pub(super) told: &'a Path,
    pub(super) dirs: [&'a Path; 2],
    /// Its name; the start has none.
    pub(super) name: Option<&'a [u8]>,
}

impl At<'_> {
    /// The path as it is told.
    pub(super) fn path(&self) -> PathBuf {
        self.with_name(self.told)
    }

    /// The path on one of the sides.
    pub(super) fn on(&self, side: usize) -> PathBuf {
        // There are two.
        self.with_name(self.dirs[side & 1])
    }

    fn with_name(&self, dir: &Path) -> PathBuf {
        match self.name {
            Some(name) => join(dir, name),
            None => dir.to_owned(),
        }
    }
}

/// Why something was not compared.
type Problem = (Which, Error);

impl Both<'_> {
    /// Compares all but content, names and links. What cannot be read goes to `problems`.
    pub(super) fn attributes(
        &self,
        aspects: Aspects,
        told: &mut Vec<What>,
        problems: &mut Vec<Problem>,
    ) {
        let [first, second] = self.found;
        let kind = first.kind;
        if aspects.content && kind == FileType::Symlink {
            match self.each(Side::target) {
                Ok([first, second]) if first != second => told.push(What::Target(first, second)),
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let modes = (first.permissions, second.permissions);
        if aspects.modes && kind != FileType::Symlink && modes.0 != modes.1 {
            told.push(What::Mode(modes.0, modes.1));
        }
        if aspects.owners && first.owner != second.owner {
            told.push(What::Owner(first.owner, second.owner));
        }
        if aspects.times && !is_same_time(first, second) {
            told.push(What::Time(first.modified, second.modified));
        }
        if aspects.xattrs && !(first.has_no_xattrs && second.has_no_xattrs) {
            match self.each(Side::xattrs) {
                Ok([first, second]) => xattrs(first, second, told),
                Err(problem) => problems.push(problem),
            }
        }
        if aspects.devices && kind.is_device() && first.device != second.device {
            told.push(What::Device(first.device, second.device));
        }
        let (Some(one), Some(other)) = (&first.inside, &second.inside) else {
            return;
        };
        if aspects.projects && one.project != other.project {
            told.push(What::Project(one.project, other.project));
        }
        let flags = (one.flags & SAID, other.flags & SAID);
        if aspects.flags && flags.0 != flags.1 {
            told.push(What::Flags(flags.0, flags.1));
        }
        if aspects.layout && kind == FileType::Regular {
            match self.layout([one, other]) {
                Ok([first, second]) if first.is_empty() && second.is_empty() => {}
                Ok([first, second]) => told.push(What::Layout {
                    first,
                    second,
                    is_same_content: None,
                }),
                Err(problem) => problems.push(problem),
            }
        }
    }

    /// Reads something of each of the two.
    fn each<T>(
        &self,
        read: impl Fn(&Side, &Path, &Found) -> crate::Result<T>,
    ) -> Result<[T; 2], Problem> {
        let [one, other] = self.found;
        let paths = [self.at.on(0), self.at.on(1)];
        let first = read(self.sides[0], &paths[0], one).map_err(|e| (Which::First, e))?;
        let second = read(self.sides[1], &paths[1], other).map_err(|e| (Which::Second, e))?;
        Ok([first, second])
    }

    /// The pieces that only one of the two has where they are.
    fn layout(&self, inside: [&Inside; 2]) -> Result<[Vec<Extent>; 2], Problem> {
        let pieces = |side: Which, inside: &Inside| {
            let number = side.of(0, 1);
            let Some(fs) = self.sides[number].filesystem() else {
                return Ok(Vec::new());
            };
            let all: extant_core::Result<Vec<Extent>> =
                ops::allocated(fs.fs(), &inside.inode).collect();
            all.map_err(|e| (side, Error::engine(self.at.on(number), e)))
        };
        let first = pieces(Which::First, inside[0])?;
        let second = pieces(Which::Second, inside[1])?;
        let key = |piece: &Extent| {
            (
                piece.offset,
                piece.len,
                piece.device_offset,
                piece.unwritten,
            )
        };
        let of_first: HashSet<_> = first.iter().map(key).collect();
        let of_second: HashSet<_> = second.iter().map(key).collect();
        let without = |all: Vec<Extent>, other: &HashSet<_>| {
            let mut all = all;
            all.retain(|piece| !other.contains(&key(piece)));
            all
        };
        Ok([without(first, &of_second), without(second, &of_first)])
    }
}

/// Whether the content was changed last at the same time, as far as both sides say.
pub(super) fn is_same_time(first: &Found, second: &Found) -> bool {
    let (one, other) = (first.modified, second.modified);
    let is_exact = first.has_nanos && second.has_nanos;
    one.secs == other.secs && (!is_exact || one.nanos == other.nanos)
}

/// Compares two lists in the order of their names.
fn xattrs(first: Vec<(Vec<u8>, Vec<u8>)>, second: Vec<(Vec<u8>, Vec<u8>)>, told: &mut Vec<What>) {
    let mut first = first.into_iter().peekable();
    let mut second = second.into_iter().peekable();
    loop {
        let order = match (first.peek(), second.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let one = first.next_if(|_| order != Ordering::Greater);
        let other = second.next_if(|_| order != Ordering::Less);
        let values = (
            one.as_ref().map(|(_, value)| value),
            other.as_ref().map(|(_, value)| value),
        );
        if values.0 == values.1 {
            continue;
        }
        let (one, other) = (one.unzip(), other.unzip());
        let name = one.0.or(other.0).unwrap_or_default();
        told.push(What::Xattr(OsString::from_vec(name), one.1, other.1));
    }
}
