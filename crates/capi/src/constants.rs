//! Numbers that the header has as well, by the same names without `EXTANT_`.

pub(crate) const ERROR_MISUSE: u32 = 1;
pub(crate) const ERROR_FILE: u32 = 2;
pub(crate) const ERROR_NOT_EXT4: u32 = 3;
pub(crate) const ERROR_DAMAGED: u32 = 4;
pub(crate) const ERROR_DEVICE: u32 = 5;
pub(crate) const ERROR_UNSUPPORTED: u32 = 6;
pub(crate) const ERROR_REFUSED: u32 = 7;
pub(crate) const ERROR_CANCELLED: u32 = 8;
pub(crate) const ERROR_INTERNAL: u32 = 9;

pub(crate) const WRITABLE: u32 = 1;
pub(crate) const TRANSACTION: u32 = 2;
pub(crate) const MEND: u32 = 4;

/// A time that is left as it is.
pub(crate) const OMIT: u32 = 0xffff_ffff;

pub(crate) const O_READ: u32 = 1;
pub(crate) const O_WRITE: u32 = 2;
pub(crate) const O_APPEND: u32 = 4;
pub(crate) const O_CREATE: u32 = 8;
pub(crate) const O_EXCLUSIVE: u32 = 16;
pub(crate) const O_TRUNCATE: u32 = 32;
pub(crate) const O_DIRECT: u32 = 64;

pub(crate) const RENAME_NO_REPLACE: u32 = 1;
pub(crate) const RENAME_EXCHANGE: u32 = 2;
pub(crate) const RENAME_WHITEOUT: u32 = 4;

pub(crate) const XATTR_CREATE: u32 = 1;
pub(crate) const XATTR_REPLACE: u32 = 2;

pub(crate) const ALLOCATE_KEEP_SIZE: u32 = 1;
pub(crate) const ALLOCATE_PUNCH_HOLE: u32 = 2;
pub(crate) const ALLOCATE_COLLAPSE: u32 = 8;
pub(crate) const ALLOCATE_ZERO: u32 = 16;
pub(crate) const ALLOCATE_INSERT: u32 = 32;

pub(crate) const EXTENT_UNWRITTEN: u32 = 1;
pub(crate) const NOWHERE: u64 = u64::MAX;

pub(crate) const ACL_USER_OBJ: u32 = 1;
pub(crate) const ACL_USER: u32 = 2;
pub(crate) const ACL_GROUP_OBJ: u32 = 4;
pub(crate) const ACL_GROUP: u32 = 8;
pub(crate) const ACL_MASK: u32 = 16;
pub(crate) const ACL_OTHER: u32 = 32;

pub(crate) const ACL_ACCESS: u32 = 0;
pub(crate) const ACL_DEFAULT: u32 = 1;

pub(crate) const QUOTA_USER: u32 = 0;
pub(crate) const QUOTA_GROUP: u32 = 1;
pub(crate) const QUOTA_PROJECT: u32 = 2;

pub(crate) const BULKSTAT_CACHE: u32 = 1;

pub(crate) const WARNING: u32 = 0;
pub(crate) const ERROR: u32 = 1;
pub(crate) const FATAL: u32 = 2;

pub(crate) const CHECK_AS_IS: u32 = 1;
pub(crate) const CHECK_VERITY: u32 = 2;

pub(crate) const REPAIR_DRY_RUN: u32 = 1;
pub(crate) const REPAIR_ALLOW_LOSS: u32 = 2;
pub(crate) const REPAIR_DISCARD_JOURNAL: u32 = 4;

pub(crate) const FINDINGS: u32 = 0;
pub(crate) const FIXES: u32 = 1;
pub(crate) const LOSSES: u32 = 2;

pub(crate) const MINIMUM: u32 = 0;
