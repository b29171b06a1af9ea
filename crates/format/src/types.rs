//! Newtypes for every number that could be mistaken for another.
//!
//! There is no conversion between them; where one is computed from another, a named function on
//! the structure that knows the geometry does it.

use core::fmt;

/// Longest name of a file in a directory, and longest name of an extended attribute, in bytes.
pub const NAME_MAX: usize = 255;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($repr);

        impl $name {
            /// Wraps a raw number.
            #[inline]
            #[must_use]
            pub const fn new(raw: $repr) -> Self {
                Self(raw)
            }

            /// Returns the raw number.
            #[inline]
            #[must_use]
            pub const fn get(self) -> $repr {
                self.0
            }

            /// Returns this number plus `n`, or `None` past the end of its range.
            #[inline]
            #[must_use]
            pub const fn checked_add(self, n: $repr) -> Option<Self> {
                match self.0.checked_add(n) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// Returns this number minus `n`, or `None` below zero.
            #[inline]
            #[must_use]
            pub const fn checked_sub(self, n: $repr) -> Option<Self> {
                match self.0.checked_sub(n) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A physical block number, in units of the file-system block size, counted from the start of
    /// the file system. 48 bits are usable on disk.
    Pblk(u64)
}
number! {
    /// A logical block number inside one file, in units of the file-system block size.
    Lblk(u32)
}
number! {
    /// An inode number. Valid numbers start at 1; 0 means "none" in directory entries and lists.
    Ino(u32)
}
number! {
    /// A block group number, counted from 0.
    Group(u32)
}
number! {
    /// A JBD2 transaction number. It wraps; order is decided by [`Tid::is_after`], which is why
    /// the derived order must not be used to compare two transactions.
    Tid(u32)
}

impl Ino {
    /// The inode of the bad-blocks list.
    pub const BAD_BLOCKS: Self = Self(1);
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// User quota.
    pub const USER_QUOTA: Self = Self(3);
    /// Group quota.
    pub const GROUP_QUOTA: Self = Self(4);
    /// Boot loader.
    pub const BOOT_LOADER: Self = Self(5);
    /// Undelete directory (never used).
    pub const UNDELETE: Self = Self(6);
    /// Reserved group descriptors, which let the file system grow.
    pub const RESIZE: Self = Self(7);
    /// The journal.
    pub const JOURNAL: Self = Self(8);
    /// The "exclude" inode of snapshots (never merged).
    pub const EXCLUDE: Self = Self(9);
    /// Replica inode (never merged).
    pub const REPLICA: Self = Self(10);
    /// The first inode that is not reserved on file systems of revision 0.
    pub const FIRST_REV0: Self = Self(11);
}

impl Tid {
    /// Returns the transaction that follows this one; the numbers wrap.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction is later than `other`, on the wrapping circle of numbers.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
}

/// The block size of a file system: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize {
    log2: u8,
}

impl BlockSize {
    /// Smallest block size, 1 KiB.
    pub const MIN: Self = Self { log2: 10 };
    /// 4 KiB, the default.
    pub const K4: Self = Self { log2: 12 };
    /// Largest block size, 64 KiB.
    pub const MAX: Self = Self { log2: 16 };

    /// Returns the block size of `bytes` bytes, or `None` if that is not a power of two from 1024
    /// to 65536.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() {
            Self::from_log2(bytes.trailing_zeros())
        } else {
            None
        }
    }

    /// Returns the block size of `1 << log2` bytes, for `log2` from 10 to 16.
    #[must_use]
    pub const fn from_log2(log2: u32) -> Option<Self> {
        if log2 >= 10 && log2 <= 16 {
            Some(Self { log2: log2 as u8 })
        } else {
            None
        }
    }

    /// Returns the bytes in a block.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.log2
    }

    /// Returns the bytes in a block, as a length.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub const fn len(self) -> usize {
        1 << self.log2
    }

    /// Returns the base-2 logarithm of the block size: 10 to 16.
    #[inline]
    #[must_use]
    pub const fn log2(self) -> u32 {
        self.log2 as u32
    }

    /// Returns the blocks needed to hold `bytes` bytes.
    #[inline]
    #[must_use]
    pub const fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.log2)
    }

    /// Returns the byte offset of a physical block from the start of the file system, or `None` if
    /// it does not fit 64 bits.
    #[inline]
    #[must_use]
    pub const fn offset_of(self, block: Pblk) -> Option<u64> {
        block.0.checked_mul(1 << self.log2)
    }
}

impl fmt::Debug for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockSize({})", self.bytes())
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_order_survives_the_wrap() {
        assert!(Tid::new(1).is_after(Tid::new(u32::MAX)));
        assert!(!Tid::new(u32::MAX).is_after(Tid::new(1)));
        assert_eq!(Tid::new(u32::MAX).next(), Tid::new(0));
    }

    #[test]
    fn block_sizes_outside_the_format_are_refused() {
        assert_eq!(BlockSize::from_bytes(512), None);
        assert_eq!(BlockSize::from_bytes(3000), None);
        assert_eq!(BlockSize::from_bytes(131_072), None);
        assert_eq!(BlockSize::from_bytes(65_536), Some(BlockSize::MAX));
    }
}
