//! One POSIX operation per file.
//!
//! Operations take a mounted file system and inodes, never paths, and never touch raw bytes: they
//! check what POSIX asks for and call into the rooms.
//!
//! Adapters go through this door for everything they do to an inode; besides, they need [`Fs`] to
//! open and ask about the whole, and [`inode`] for what an inode is. Operations that ask for no
//! checks beyond those of a room are the room's own, named here.
//!
//! | operation | of POSIX or Linux |
//! |---|---|
//! | [`lookup`], [`lookup_with`], [`lookup_held`] | one step of a path |
//! | [`stat`], [`stat_of`] | `stat` |
//! | [`read`], [`stream`] | `pread`, copying a file out |
//! | [`read_seal`] | `FS_IOC_READ_VERITY_METADATA` |
//! | [`seek_data`], [`seek_hole`], [`extents`], [`allocated`] | `lseek`, `FIEMAP` |
//! | [`readdir`], [`DirReader`] | `getdents`, by cookie, and of many directories |
//! | [`in_flight`], [`parallel_reads`], [`takes_streams`], [`inodes_ahead`], [`content_ahead`], [`making_ahead`], [`whole_ahead`], [`write_behind`], [`read_together`] | none: hints before a walk and between files, and reading many small files at once |
//! | [`readlink`] | `readlink` |
//! | [`open`], [`access`], [`search`] | whether `open`, `access` and `chdir` are allowed |
//! | [`create`], [`mkdir`], [`symlink`], [`link`] | `open(O_CREAT)` and the calls of these names |
//! | [`tmpfile`] | `open(O_TMPFILE)` |
//! | [`unlink`], [`rmdir`], [`rename`] | the calls of these names |
//! | [`rename_with`], [`exchange`] | `renameat2` |
//! | [`pread`], [`pwrite`], [`append`], [`truncate`], [`ftruncate`] | file content that may change meanwhile |
//! | [`pread_direct`], [`pwrite_direct`], [`append_direct`] | the same past memory |
//! | [`copy_range`] | `copy_file_range` |
//! | [`fallocate`] | reserving blocks |
//! | [`punch_hole`], [`zero_range`], [`collapse_range`], [`insert_range`] | the other modes of `fallocate` |
//! | [`chmod`], [`chown`], [`utimens`], [`utimens_dated`], [`touch`] | the record |
//! | [`chattr`] | `FS_IOC_SETFLAGS` |
//! | [`seal`] | `FS_IOC_ENABLE_VERITY` |
//! | [`set_project`] | `FS_IOC_FSSETXATTR` |
//! | [`statfs_at`] | `statfs` |
//! | [`quota`], [`quotas`], [`quota_grace`], [`set_quota`], [`set_quota_grace`] | `quotactl` |
//! | [`set_label`], [`trim`] | `FS_IOC_SETFSLABEL`, `FITRIM` |
//! | [`release`] | `close` |
//! | [`fsync`], [`fsync_file`], [`fdatasync`], [`fdatasync_file`], [`syncfs`] | durability |
//! | [`getxattr`], [`listxattr`], [`for_each_xattr`], [`acl`] | attributes |
//! | [`setxattr`], [`removexattr`], [`setacl`] | the calls of these names, and `setfacl` |
//!
//! Operations that may be refused take an [`OpContext`]: the file system, and the user they act
//! for. They ask by themselves whether the [`Caller`] may, so an adapter that acts for others
//! passes it on and asks nothing itself.
//!
//! [`Fs`]: crate::fs::Fs
//! [`inode`]: crate::inode

mod accessed;
mod ahead;
mod bulkstat;
mod copy_range;
mod create;
mod dir_reader;
mod fallocate;
mod flags;
mod fsync;
mod getxattr;
mod link;
mod listxattr;
mod lookup;
mod mkdir;
mod naming;
mod new_inode;
mod open;
mod permission;
mod pread;
mod project;
mod pwrite;
mod quota;
mod read;
mod readdir;
mod readlink;
mod release;
mod rename;
mod seal;
mod setattr;
mod setxattr;
mod shed;
mod spending;
mod stat;
mod statfs;
mod symlink;
mod sync;
mod tmpfile;
mod unlink;
mod whole;

pub use crate::data::{
    Extent, FallocateMode, Seal, Sink, WriteSeal, allocated, allocated_live, extents, extents_live,
    now, read_seal, read_together, seek_data, seek_data_live, seek_hole, seek_hole_live, stream,
};
pub use crate::dir::{Cookie, Entry};
pub use crate::xattr::{AclKind, SetXattr, acl, for_each as for_each_xattr};
pub use ahead::{
    Ahead, content_ahead, in_flight, inodes_ahead, making_ahead, parallel_reads, takes_streams,
    whole_ahead, write_behind,
};
pub use bulkstat::{bulkstat, bulkstat_fold};
pub use copy_range::copy_range;
pub use create::create;
pub use dir_reader::DirReader;
pub use fallocate::{collapse_range, fallocate, insert_range, punch_hole, zero_range};
pub use flags::{CHANGEABLE, changeable, chattr};
pub use fsync::{ErrorMark, fdatasync, fdatasync_file, fsync, fsync_file, syncfs};
pub use getxattr::{getacl, getxattr, getxattr_live};
pub use link::link;
pub use listxattr::{for_each_xattr_live, listxattr, listxattr_live};
pub use lookup::{look_along, lookup, lookup_held, lookup_with};
pub use mkdir::mkdir;
pub use open::{OpenFor, open};
pub use permission::{Caller, EXECUTE, OpContext, READ, WRITE, Wanted, access, search};
pub use pread::{pread, pread_direct};
pub use project::{set_project, statfs_at};
pub use pwrite::{append, append_direct, ftruncate, pwrite, pwrite_direct, truncate};
pub use quota::{quota, quota_grace, quota_in_use, quotas, set_quota, set_quota_grace};
pub use read::read;
pub use readdir::readdir;
pub use readlink::readlink;
pub use release::release;
pub use rename::{RenameFlags, exchange, rename, rename_with};
pub use seal::seal;
pub use setattr::{chmod, chown, touch, touch_dated, utimens, utimens_dated};
pub use setxattr::{removexattr, set_access_list_from_outside, setacl, setxattr};
pub use stat::{stat, stat_of};
pub use symlink::symlink;
pub use tmpfile::tmpfile;
pub use unlink::{rmdir, unlink};
pub use whole::{set_label, trim};
