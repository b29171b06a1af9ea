//! `FS_IOC_ENABLE_VERITY`: protecting a file by fs-verity.

use super::naming::changing_of;
use super::permission::{OpContext, READ, WRITE, access};
use crate::data::{self, Seal};
use crate::inode::Held;
use crate::{Error, Result};

/// Has fs-verity protect a regular file: what `seal` makes of its content is put behind it, and the
/// file gets the flag. It cannot be written to from then on. The feature `verity` is turned on with
/// the first one, in the superblock and in its copies. Copies that a crash left without it get it
/// with the next call, also with one that finds the file protected.
///
/// Times stay, as under Linux. A crash leaves the file protected or as it was.
///
/// # Errors
/// [`Error::AlreadyProtected`] for a file that is; [`Error::PermissionDenied`] for a caller that
/// may not read and write it; [`Error::NotPermitted`] for what is immutable or append-only;
/// [`Error::IsADirectory`], [`Error::NotARegularFile`], [`Error::Encrypted`];
/// [`Error::Unsupported`] for a file that is mapped by indirect blocks or has the flag `DAX`, and
/// for a file system of the first revision; [`Error::FileTooLarge`], [`Error::NoSpace`],
/// [`Error::QuotaExceeded`]; [`Error::ReadOnly`]; [`Error::Corrupt`] when the map breaks the
/// format, [`Error::Device`] when the device fails.
///
/// [`Error::AlreadyProtected`]: crate::Error::AlreadyProtected
/// [`Error::PermissionDenied`]: crate::Error::PermissionDenied
/// [`Error::NotPermitted`]: crate::Error::NotPermitted
/// [`Error::IsADirectory`]: crate::Error::IsADirectory
/// [`Error::NotARegularFile`]: crate::Error::NotARegularFile
/// [`Error::Encrypted`]: crate::Error::Encrypted
/// [`Error::Unsupported`]: crate::Error::Unsupported
/// [`Error::FileTooLarge`]: crate::Error::FileTooLarge
/// [`Error::NoSpace`]: crate::Error::NoSpace
/// [`Error::QuotaExceeded`]: crate::Error::QuotaExceeded
/// [`Error::ReadOnly`]: crate::Error::ReadOnly
/// [`Error::Corrupt`]: crate::Error::Corrupt
/// [`Error::Device`]: crate::Error::Device
pub fn seal<'a>(ctx: impl Into<OpContext<'a>>, file: &Held, seal: &mut dyn Seal) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    access(ctx, file, READ | WRITE)?;
    changing_of(ctx, &[file], || match data::seal(fs, file, seal) {
        Ok(seq) => fs.note_verity_in_copies(seq),
        Err(Error::AlreadyProtected) => {
            fs.note_verity_in_copies(None)?;
            Err(Error::AlreadyProtected)
        }
        Err(e) => Err(e),
    })
}
