//! `FUSE_INIT`: what is agreed upon with the kernel of a guest.
//!
//! The [mount](crate::kernel) leaves this to a library that takes a descriptor of the device.

use crate::answer::Agreed;
use crate::kernel::LARGEST_TRANSFER;
use crate::protocol::Form;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol that is spoken: 7.45, or what the guest speaks if that is less.
const MAJOR: u32 = 7;
const MINOR: u32 = 45;
/// The least that is spoken: answers have their present lengths, and there are extended flags or
/// not. Linux 5.4, which brought virtio-fs, has it.
const LEAST_MINOR: u32 = 31;
/// Requests in the background at a time, and how many of them make the guest's kernel take more
/// time for further ones.
const BACKGROUND: u16 = 64;
const CONGESTION: u16 = 48;
/// Pages of a transfer.
const PAGE: u32 = 4096;

/// What a kernel offers, and what is taken of it: `FUSE_...` of `linux/fuse.h`.
mod flag {
    pub(super) const ASYNC_READ: u64 = 1 << 0;
    pub(super) const BIG_WRITES: u64 = 1 << 5;
    pub(super) const DONT_MASK: u64 = 1 << 6;
    pub(super) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(super) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(super) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(super) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(super) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(super) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(super) const POSIX_ACL: u64 = 1 << 20;
    pub(super) const MAX_PAGES: u64 = 1 << 22;
    pub(super) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(super) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(super) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(super) const SETXATTR_EXT: u64 = 1 << 29;
    pub(super) const INIT_EXT: u64 = 1 << 30;
    pub(super) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// What a guest says. The flags of the upper half follow where the lower half says so.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct InitIn {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
}

/// What it is told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub(super) struct InitOut {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    /// Nanoseconds that times are apart at least.
    time_granularity: u32,
    max_pages: u16,
    map_alignment: u16,
    more_flags: u32,
    max_stack_depth: u32,
    unused: [u16; 12],
}

/// How a guest is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// There may be other guests.
    pub(super) is_shared: bool,
    /// The guest's kernel shall gather writes.
    pub(super) writeback_cache: bool,
    /// It shall keep no data of files.
    pub(super) direct_io: bool,
}

/// Agrees with a guest that sent this behind the header. Without anything agreed upon it is told
/// which protocol is spoken, and asks again; `None` if it speaks none that is known here.
pub(super) fn agree(body: &[u8], wishes: Wishes) -> Option<(InitOut, Option<Agreed>)> {
    let (init, rest) = InitIn::read_from_prefix(body).ok()?;
    if init.major > MAJOR {
        let answer = InitOut {
            major: MAJOR,
            minor: MINOR,
            ..InitOut::default()
        };
        return Some((answer, None));
    }
    if init.major < MAJOR || init.minor < LEAST_MINOR {
        return None;
    }
    let mut offered = u64::from(init.flags);
    if offered & flag::INIT_EXT != 0
        && let Ok((upper, _)) = u32::read_from_prefix(rest)
    {
        offered |= u64::from(upper) << 32;
    }
    let mut wanted = flag::ASYNC_READ
        | flag::BIG_WRITES
        | flag::DONT_MASK
        | flag::DO_READDIRPLUS
        | flag::READDIRPLUS_AUTO
        | flag::PARALLEL_DIROPS
        | flag::POSIX_ACL
        | flag::MAX_PAGES
        | flag::CACHE_SYMLINKS
        | flag::HANDLE_KILLPRIV_V2
        | flag::SETXATTR_EXT
        | flag::INIT_EXT;
    if wishes.is_shared {
        // Data of a file goes from its memory when size or time of change are others.
        wanted |= flag::AUTO_INVAL_DATA;
    } else {
        wanted |= flag::NO_OPEN_SUPPORT | flag::NO_OPENDIR_SUPPORT;
    }
    if wishes.writeback_cache {
        wanted |= flag::WRITEBACK_CACHE;
    }
    // Without this no file could be mapped.
    let direct_io = wishes.direct_io && offered & flag::DIRECT_IO_ALLOW_MMAP != 0;
    if direct_io {
        wanted |= flag::DIRECT_IO_ALLOW_MMAP;
    }
    let taken = offered & wanted;
    let has = |flags: u64| taken & flags == flags;
    let agreed = Agreed {
        stateless: has(flag::NO_OPEN_SUPPORT | flag::NO_OPENDIR_SUPPORT),
        direct_io,
        writeback_cache: has(flag::WRITEBACK_CACHE),
        checks: true,
        is_shared: wishes.is_shared,
        form: Form {
            extends_setxattr: has(flag::SETXATTR_EXT),
        },
    };
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR.min(init.minor),
        max_readahead: init.max_readahead.min(LARGEST_TRANSFER),
        flags: (taken & u64::from(u32::MAX)) as u32,
        max_background: BACKGROUND,
        congestion_threshold: CONGESTION,
        max_write: LARGEST_TRANSFER,
        time_granularity: 1,
        max_pages: (LARGEST_TRANSFER / PAGE) as u16,
        more_flags: (taken >> 32) as u32,
        ..InitOut::default()
    };
    Some((answer, Some(agreed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Wishes = Wishes {
        is_shared: false,
        writeback_cache: false,
        direct_io: false,
    };

    fn said(major: u32, minor: u32, flags: u64) -> Vec<u8> {
        let init = InitIn {
            major,
            minor,
            max_readahead: 128 << 10,
            flags: flags as u32,
        };
        let mut bytes = init.as_bytes().to_vec();
        bytes.extend(((flags >> 32) as u32).to_ne_bytes());
        bytes.extend([0; 44]);
        bytes
    }

    #[test]
    fn the_answer_is_as_long_as_the_kernel_has_it() {
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(std::mem::offset_of!(InitOut, more_flags), 32);
    }

    #[test]
    fn nothing_is_taken_that_is_not_offered() {
        let (answer, agreed) = agree(&said(7, 38, flag::MAX_PAGES), ALONE).unwrap();
        let agreed = agreed.unwrap();
        assert_eq!(u64::from(answer.flags), flag::MAX_PAGES);
        assert!(!agreed.stateless && !agreed.form.extends_setxattr);
        assert_eq!((answer.major, answer.minor), (7, 38));
        assert_eq!(answer.max_readahead, 128 << 10);
    }

    #[test]
    fn guests_that_are_not_alone_open_files_and_look_whether_data_has_changed() {
        let all = said(7, 99, u64::MAX);
        let (alone, agreed) = agree(&all, ALONE).unwrap();
        assert!(agreed.unwrap().stateless);
        assert_eq!(u64::from(alone.flags) & flag::AUTO_INVAL_DATA, 0);
        assert_eq!(alone.minor, MINOR);
        let shared = Wishes {
            is_shared: true,
            ..ALONE
        };
        let (shared, agreed) = agree(&all, shared).unwrap();
        let agreed = agreed.unwrap();
        assert!(!agreed.stateless && agreed.is_shared);
        assert_ne!(u64::from(shared.flags) & flag::AUTO_INVAL_DATA, 0);
        assert_eq!(u64::from(shared.flags) & flag::NO_OPEN_SUPPORT, 0);
    }

    #[test]
    fn another_protocol_is_told_or_refused() {
        let (answer, agreed) = agree(&said(8, 0, u64::MAX), ALONE).unwrap();
        assert_eq!((answer.major, answer.flags), (7, 0));
        assert!(agreed.is_none());
        assert!(agree(&said(6, 0, 0), ALONE).is_none());
        assert!(agree(&said(7, 12, 0), ALONE).is_none());
        assert!(agree(&said(7, 31, 0)[..12], ALONE).is_none());
    }
}
