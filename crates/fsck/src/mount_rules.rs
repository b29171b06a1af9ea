//! Fields of the superblock for which Linux refuses to mount, and nothing else reads: how that
//! shows, and what a repair makes of it.

use crate::field_rules::FieldRule;
use extant_format::features::{Compat, Incompat, RoCompat};

/// Bytes of an inode before its extra fields.
const OLD_INODE: u32 = 128;
/// Extra fields that Linux gives inodes, in bytes.
const EXTRA: u32 = 32;
/// The last hash that names may be stored by: a larger number is none, or one of encrypted
/// directories alone.
const HASH_MAX: u8 = 5;
/// The half of MD4, by which names are stored usually.
const HASH_USUAL: u8 = 1;
/// The operating system that has no file systems of 64 bits.
const HURD: u32 = 1;

/// All of them.
pub(crate) const MOUNT_RULES: &[FieldRule] = &[
    FieldRule {
        is_broken: crate::journal::lacks_fast_commits,
        wrong: "fast commits are asked for, and the journal has no room for them",
        mended: "feature fast_commit is off",
        fix: |_, raw| {
            let bits = raw.feature_compat.get() & !Compat::FAST_COMMIT.bits();
            raw.feature_compat.set(bits);
        },
    },
    FieldRule {
        is_broken: |v| v.sb.raw().def_hash_version > HASH_MAX,
        wrong: "names are to be stored by a hash that there is not",
        mended: "names are stored by the usual hash",
        fix: |_, raw| raw.def_hash_version = HASH_USUAL,
    },
    FieldRule {
        is_broken: |v| {
            let raw = v.sb.raw();
            let room = v.sb.inode_size().saturating_sub(OLD_INODE);
            let is_over = |size: u16| u32::from(size) > room;
            v.has_ro_compat(RoCompat::EXTRA_ISIZE)
                && room > 0
                && (is_over(raw.min_extra_isize.get()) || is_over(raw.want_extra_isize.get()))
        },
        wrong: "more extra fields are asked for than an inode has room for",
        mended: "the usual extra fields are asked for",
        fix: |v, raw| {
            let room = v.sb.inode_size().saturating_sub(OLD_INODE);
            let usual = EXTRA.min(room) as u16;
            raw.min_extra_isize.set(usual);
            raw.want_extra_isize.set(usual);
        },
    },
    FieldRule {
        is_broken: |v| v.sb.raw().creator_os.get() == HURD && v.has_incompat(Incompat::BIT64),
        wrong: "the Hurd is said to have made it, which has no 64bit",
        mended: "Linux is said to have made it",
        fix: |_, raw| raw.creator_os.set(0),
    },
    FieldRule {
        is_broken: |v| {
            let raw = v.sb.raw();
            v.has_compat(Compat::HAS_JOURNAL)
                && raw.journal_inum.get() != 0
                && raw.journal_dev.get() != 0
                && raw.journal_uuid == [0; 16]
        },
        wrong: "a journal in an inode and the number of a device with one are named",
        mended: "the journal in an inode alone is named",
        fix: |_, raw| raw.journal_dev.set(0),
    },
    FieldRule {
        is_broken: |v| v.has_incompat(Incompat::ENCRYPT) && v.sb.raw().encryption_level != 0,
        wrong: "encryption has a level that there is not",
        mended: "encryption has its one level",
        fix: |_, raw| raw.encryption_level = 0,
    },
];
