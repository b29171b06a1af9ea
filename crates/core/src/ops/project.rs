//! Giving files to projects, and what is left for one.

use super::flags::check_not_immutable;
use super::naming::changing_of;
use super::permission::OpContext;
use super::setattr::change_record;
use crate::fs::{Fs, StatFs};
use crate::inode::Held;
use crate::quota::QuotaKind;
use crate::{Error, Result};
use extant_format::features::RoCompat;
use extant_format::inode::InodeFlags;

/// Gives a file to a project, which then pays for it. What is in a directory stays where it is;
/// what comes into it follows only with the flag `project inherited`.
///
/// # Errors
/// [`Error::NotPermitted`] for a caller that does not own the file, and for an immutable one;
/// [`Error::Unsupported`] when the file system has no projects, or the record no room for one;
/// [`Error::QuotaExceeded`] when the project may not have it; [`Error::ReadOnly`];
/// [`Error::Device`] when the record's block cannot be read.
pub fn set_project<'a>(ctx: impl Into<OpContext<'a>>, inode: &Held, project: u32) -> Result<()> {
    let ctx = ctx.into();
    let fs = ctx.fs();
    changing_of(ctx, &[inode], || {
        let _exclusive = inode.op().write();
        let image = inode.snapshot();
        let disk = image.disk();
        if disk.project.unwrap_or(0) == project {
            return Ok(());
        }
        ctx.must_own(&image)?;
        check_not_immutable(&image)?;
        let lacks = |features: &str| Error::Unsupported {
            features: features.to_owned(),
        };
        if !fs.superblock().has_ro_compat(RoCompat::PROJECT) {
            return Err(lacks("project (the file system does not have it)"));
        }
        if disk.project.is_none() {
            return Err(lacks(
                "a project of a file whose record has no room for its number",
            ));
        }
        let mut _let_in = None;
        if fs.counts_usage() {
            let owners = [disk.uid, disk.gid, project];
            fs.prepare_owners(owners)?;
            _let_in = fs.admit_owners(inode, owners)?;
        }
        change_record(fs, inode, |image| image.disk_mut().project = Some(project))
    })
}

/// Space and inodes as they are for users of a directory: as [`Fs::statfs`] says, but where
/// projects are held to limits and the directory hands its project down, there is no more than the
/// project may have, as under Linux.
///
/// # Errors
/// As for [`Fs::statfs`].
pub fn statfs_at(fs: &Fs, dir: &Held) -> Result<StatFs> {
    let mut counted = fs.statfs()?;
    let image = dir.snapshot();
    let bounds = fs
        .ledger()
        .filter(|_| image.flags().contains(InodeFlags::PROJECT_INHERIT))
        .and_then(|ledger| ledger.bounds(QuotaKind::Project, image.disk().project?));
    let Some([(bytes, most_bytes), (inodes, most_inodes)]) = bounds else {
        return Ok(counted);
    };
    let shift = counted.block_size.log2();
    if most_bytes != 0 && most_bytes >> shift < counted.blocks {
        counted.blocks = most_bytes >> shift;
        let left = most_bytes.saturating_sub(bytes) >> shift;
        counted.free = counted.free.min(left);
        counted.available = counted.available.min(left);
    }
    if most_inodes != 0 && most_inodes < counted.inodes {
        counted.inodes = most_inodes;
        counted.free_inodes = counted.free_inodes.min(most_inodes.saturating_sub(inodes));
    }
    Ok(counted)
}
