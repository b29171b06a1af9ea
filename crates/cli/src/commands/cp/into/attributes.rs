//! Giving a file of an image what it had besides content.
//!
//! Whatever cannot be given is noted, and the rest is given all the same: content counts for more.

use super::content::inside;
use super::make::{Maker, Why};
use super::plan::{Node, Origin, Reading, Told};
use crate::images::is_final;
use crate::no_room::no_room_for_attribute;
use crate::time::{is_reproducible, now};
use extant::{Cause, Error, Escaped, FileType, Timestamp};
use extant_mkfs::source::Xattr;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const SET_IDS: u16 = 0o6000;
const GROUP: u16 = 0o070;

/// What a file had and its copy has not.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    /// Each as the end of a sentence that begins with "copied without".
    pub(super) what: Vec<String>,
    /// Whether every further file would fail as well.
    pub(super) is_final: bool,
}

impl Lacking {
    pub(super) fn outcome(self) -> Result<(), Why> {
        if self.what.is_empty() {
            Ok(())
        } else {
            Err(Why::Incomplete(self))
        }
    }

    /// What another says besides.
    pub(super) fn add(&mut self, other: Self) {
        self.is_final |= other.is_final;
        self.what.extend(other.what);
    }

    pub(super) fn note(&mut self, what: impl std::fmt::Display, e: &Error) {
        self.is_final |= e.kind() != ErrorKind::StorageFull && is_final(e);
        self.what.push(match e.cause() {
            Cause::Image(e) => format!("{what} ({e})"),
            _ => format!("{what} ({e})"),
        });
    }
}

impl Maker<'_> {
    /// Gives a file or directory its owner, attributes, permissions and times, in the order in
    /// which none undoes another.
    pub(super) fn attributes(&self, node: &Node, at: &Path) -> Lacking {
        let mut lacking = Lacking::default();
        let mut permissions = node.permissions;
        let kept = self
            .keep
            .attributes
            .then_some((Some(node.uid), Some(node.gid)));
        let (kept_uid, kept_gid) = kept.unwrap_or((None, None));
        let (uid, gid) = match self.keep.owner {
            Some(owner) => (owner.uid.or(kept_uid), owner.gid.or(kept_gid)),
            None => (kept_uid, kept_gid),
        };
        if (uid.is_some() || gid.is_some())
            && let Err(e) = self.fs.set_owner(at, uid, gid)
        {
            // The owner's powers are not for the owner that the file gets instead.
            permissions &= !SET_IDS;
            lacking.note("its owner", &e);
        }
        if (self.keep.xattrs || node.told.is_some())
            && let Some(group) = self.xattrs(node, at, &mut lacking)
        {
            permissions &= !GROUP | group;
        }
        let has_mode = self.keep.attributes || self.keep.sets_mode;
        if has_mode
            && node.file_type != FileType::Symlink
            && let Err(e) = self.fs.set_permissions(at, permissions)
        {
            lacking.note("its mode", &e);
        }
        if self.keep.attributes {
            let (accessed, modified) = times(node);
            if let Err(e) = self.fs.set_times(at, Some(accessed), Some(modified)) {
                lacking.note("its times", &e);
            }
        }
        lacking
    }

    /// Gives a file its extended attributes, and takes those away that it has besides. If it could
    /// not be given its access control list, the permissions that this has for the group.
    fn xattrs(&self, node: &Node, at: &Path, lacking: &mut Lacking) -> Option<u16> {
        let wanted = match node.told {
            Some(Told { ref tree, id }) => {
                let all = tree.xattrs(id).iter();
                let owned = |x: &Xattr| (OsString::from_vec(x.name.to_vec()), x.value.to_vec());
                Ok(Some(all.map(owned).collect()))
            }
            None => xattrs_of(node),
        };
        let wanted = match wanted {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return None,
            Err(why) => {
                let text = match why {
                    Why::Source(text) => format!("its extended attributes ({text})"),
                    _ => "its extended attributes".to_owned(),
                };
                lacking.what.push(text);
                return Some(0);
            }
        };
        if let Err(e) = self.remove_other_xattrs(&wanted, at) {
            lacking.note("being rid of other attributes", &e);
        }
        let mut group = None;
        for (name, value) in wanted {
            let Err(e) = self.fs.set_xattr(at, &name, &value) else {
                continue;
            };
            if name.as_bytes() == ACCESS_LIST {
                group = Some(group_in_list(&value));
            }
            let shown = attribute_name(&name);
            let has_blocks = || self.fs.statfs().is_ok_and(|space| space.free > 0);
            match e.kind() {
                ErrorKind::StorageFull if has_blocks() => {
                    let bytes = name.len() + value.len();
                    let why = no_room_for_attribute(self.fs, bytes);
                    lacking.what.push(format!("{shown}: {why}"));
                }
                _ => lacking.note(shown, &e),
            }
        }
        group
    }

    fn remove_other_xattrs(&self, wanted: &[Attribute], at: &Path) -> Result<(), Error> {
        for name in self.fs.list_xattrs(at)? {
            if wanted.iter().all(|(wanted, _)| *wanted != name) {
                self.fs.remove_xattr(at, name)?;
            }
        }
        Ok(())
    }
}

/// The name and the value of an extended attribute.
pub(super) type Attribute = (OsString, Vec<u8>);

/// The extended attributes of a source; `None` of one that has none to hand down.
pub(super) fn xattrs_of(node: &Node) -> Result<Option<Vec<Attribute>>, Why> {
    match &node.from {
        Origin::Host {
            how: Reading::Stream,
            ..
        }
        | Origin::Input
        | Origin::Tree(_) => Ok(None),
        Origin::Host { path, .. } => host_xattrs(path).map(Some).map_err(|e| {
            let path = Escaped::path(path);
            Why::Source(format!("those of {path} cannot be read: {e}"))
        }),
        Origin::Image { entry, image, .. } => {
            let all = entry.xattrs().map_err(|e| inside(image, &e))?;
            Ok(Some(all))
        }
    }
}

/// When a file was read and changed last. Where what is written shall depend on nothing but the
/// source: no later than now, and when it was read, which no two copies of a tree share, is when it
/// was changed.
fn times(node: &Node) -> (Timestamp, Timestamp) {
    if is_reproducible() {
        let modified = node.modified.min(now());
        (modified, modified)
    } else {
        (node.accessed, node.modified)
    }
}

fn attribute_name(name: &OsStr) -> String {
    match name.as_bytes() {
        ACCESS_LIST => "its access control list".to_owned(),
        b"system.posix_acl_default" => "its default access control list".to_owned(),
        name => format!("its attribute {}", Escaped(name)),
    }
}

/// What an access control list has for the file's group, as bits of a mode: version, then entries
/// of tag, permissions and number. Of one that cannot be read, nothing.
fn group_in_list(value: &[u8]) -> u16 {
    const GROUP_TAG: u16 = 4;
    let entries = value.get(4..).unwrap_or_default().chunks_exact(8);
    let word = |entry: &[u8], at: usize| match entry.get(at..at + 2) {
        Some(&[low, high]) => u16::from_le_bytes([low, high]),
        _ => 0,
    };
    let mut groups = entries.filter(|entry| word(entry, 0) == GROUP_TAG);
    groups.next().map_or(0, |entry| (word(entry, 2) & 7) << 3)
}

/// Names and values of the extended attributes of a file of the host, which is not followed. Where
/// there can be none there are none.
fn host_xattrs(path: &Path) -> rustix::io::Result<Vec<Attribute>> {
    use rustix::io::Errno;
    // The most that Linux returns of either.
    let mut buffer = vec![0; 64 << 10];
    let len = match extant_host::llistxattr(path.as_os_str().as_bytes(), &mut buffer) {
        Ok(len) => len,
        Err(Errno::NOTSUP) => 0,
        Err(e) => return Err(e),
    };
    let names = buffer.get(..len).unwrap_or_default().to_vec();
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        match extant_host::lgetxattr(path.as_os_str().as_bytes(), name, &mut buffer) {
            Ok(len) => {
                let value = buffer.get(..len).unwrap_or_default().to_vec();
                all.push((OsString::from_vec(name.to_vec()), value));
            }
            // Gone meanwhile.
            Err(Errno::NODATA) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}
