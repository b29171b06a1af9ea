//! Values, also those kept in inodes of their own.

use super::acl::AclKind;
use super::own_inode;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::{Error, InPlace, Place, Result};
use extant_format::acl::Acl;
use extant_format::checksum::Crc32c;
use extant_format::xattr::{EaInode, XattrEntry, XattrValue, value_hash};
use extant_format::{Expected, FormatError, Ino, Structure};

/// Longest value that Linux lets a program read.
const VALUE_MAX: u32 = 64 << 10;

/// Returns the value as programs see it: access control lists in the form of the system calls.
pub(super) fn shown(
    fs: &Fs,
    inode: &Inode,
    place: Place,
    entry: XattrEntry<'_>,
) -> Result<Vec<u8>> {
    let is_acl = AclKind::of(&entry.name).is_some();
    let value = stored(fs, inode, place, entry)?;
    if !is_acl {
        return Ok(value);
    }
    let acl = Acl::decode_disk(&value).in_place(place)?;
    Ok(acl.encode_syscall())
}

/// Returns the value as it is stored.
pub(super) fn stored(
    fs: &Fs,
    inode: &Inode,
    place: Place,
    entry: XattrEntry<'_>,
) -> Result<Vec<u8>> {
    match entry.value {
        XattrValue::Bytes(bytes) => Ok(bytes.to_vec()),
        XattrValue::InInode { ino, size } => {
            let holder = value_inode(fs, place, ino, size)?;
            let value = own_inode::read(fs, &holder)?;
            check_value(fs, inode, place, entry, &holder, &value)?;
            Ok(value)
        }
    }
}

/// Returns the inode that holds a value of `size` bytes.
fn value_inode(fs: &Fs, place: Place, ino: Ino, size: u32) -> Result<std::sync::Arc<Inode>> {
    let broken = |field, found: u64, expected| {
        let source = FormatError::new(Structure::Xattr, field, found, expected);
        Error::corrupt(place, source)
    };
    if size > VALUE_MAX {
        let expected = Expected::AtMost(VALUE_MAX.into());
        return Err(broken("value_size", size.into(), expected));
    }
    let not_one = Expected::Said("an inode that holds an attribute value");
    let holder = match fs.inode(ino) {
        Err(Error::Stale) => return Err(broken("value_inum", ino.get().into(), not_one)),
        other => other?,
    };
    if EaInode::from_inode(holder.disk()).is_none() {
        return Err(broken("value_inum", ino.get().into(), not_one));
    }
    if holder.size() != u64::from(size) {
        let expected = Expected::Exactly(holder.size());
        return Err(broken("value_size", size.into(), expected));
    }
    Ok(holder)
}

/// Checks a value against the hash its inode keeps, and that hash against the entry's.
fn check_value(
    fs: &Fs,
    inode: &Inode,
    place: Place,
    entry: XattrEntry<'_>,
    holder: &Inode,
    value: &[u8],
) -> Result<()> {
    // The feature keeps a seed also where metadata has no checksums.
    let seed = Crc32c::seeded(fs.superblock().checksum_seed());
    let computed = value_hash(seed, value);
    let Some(kept) = EaInode::from_inode(holder.disk()) else {
        return Ok(());
    };
    if kept.hash == computed {
        return entry.verify_with_value_hash(computed).in_place(place);
    }
    // Lustre's first form has no hash: the inode names the one inode it belongs to instead.
    let parent = holder.disk().mtime.secs as u32 == inode.ino().get()
        && holder.disk().generation == inode.disk().generation;
    if parent {
        return Ok(());
    }
    let source = FormatError::checksum(Structure::Xattr, kept.hash, computed);
    Err(Error::corrupt(Place::Inode(holder.ino()), source))
}
