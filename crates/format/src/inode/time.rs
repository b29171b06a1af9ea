//! Times of an inode: 32-bit seconds in the fixed part, widened to 34 bits and given nanoseconds by
//! the extra word.
//!
//! The extra word keeps two epoch bits (how often 2^32 seconds are added to the *signed* base)
//! below thirty bits of nanoseconds, so times run from 1901-12-13 to 2446-05-10. Inodes without the
//! extra word end in January 2038. Source: "Inode Timestamps" in the kernel's `ext4/inodes` page.

/// A point in time: seconds since 1970-01-01 00:00 UTC and nanoseconds after that second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub secs: i64,
    /// Nanoseconds after `secs`: 0 to 999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// The earliest time an inode can hold.
    pub const MIN: Self = Self {
        secs: i32::MIN as i64,
        nanos: 0,
    };
    /// The latest time an inode with extra fields can hold.
    pub const MAX: Self = Self {
        secs: i32::MAX as i64 + (3 << 32),
        nanos: 999_999_999,
    };
    /// The latest time an inode without extra fields can hold.
    pub const MAX_SHORT: Self = Self {
        secs: i32::MAX as i64,
        nanos: 0,
    };

    /// Makes a time of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self { secs, nanos: 0 }
    }

    /// Decodes the two words of a time; `extra` is `None` where the inode has no such field.
    ///
    /// Nanoseconds beyond the second, which no sound writer leaves, are cut to the last one.
    #[must_use]
    pub const fn decode(base: u32, extra: Option<u32>) -> Self {
        let secs = base as i32 as i64;
        match extra {
            None => Self { secs, nanos: 0 },
            Some(extra) => {
                let nanos = extra >> 2;
                Self {
                    secs: secs + (((extra & 3) as i64) << 32),
                    nanos: if nanos > 999_999_999 {
                        999_999_999
                    } else {
                        nanos
                    },
                }
            }
        }
    }

    /// Encodes to the two words of an inode with extra fields; times out of range become the
    /// nearest whole second the format can hold.
    #[must_use]
    pub fn encode(self) -> (u32, u32) {
        let time = if self.secs > Self::MAX.secs {
            Self::from_secs(Self::MAX.secs)
        } else {
            self.max(Self::MIN)
        };
        let base = time.secs as i32;
        let epoch = ((time.secs - i64::from(base)) >> 32) as u32 & 3;
        (base as u32, epoch | (time.nanos.min(999_999_999) << 2))
    }

    /// Encodes to the one word of an inode without extra fields, cutting to its range.
    #[must_use]
    pub fn encode_short(self) -> u32 {
        self.secs.clamp(Self::MIN.secs, Self::MAX_SHORT.secs) as i32 as u32
    }

    /// Says what is left of this time once an inode has stored it, which has an extra word for it
    /// or not.
    #[must_use]
    pub fn stored(self, has_extra: bool) -> Self {
        if has_extra {
            let (base, extra) = self.encode();
            Self::decode(base, Some(extra))
        } else {
            Self::decode(self.encode_short(), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_epochs_decode_as_the_table_says() {
        let secs = |base, extra| Timestamp::decode(base, Some(extra)).secs;
        assert_eq!(secs(0x8000_0000, 0), -0x8000_0000);
        assert_eq!(secs(0xffff_ffff, 0), -1);
        assert_eq!(secs(0x8000_0000, 1), 0x8000_0000);
        assert_eq!(secs(0, 1), 0x1_0000_0000);
        assert_eq!(secs(0x7fff_ffff, 3), 0x3_7fff_ffff);
        assert_eq!(Timestamp::decode(0x8000_0000, None).secs, -0x8000_0000);
    }

    #[test]
    fn times_out_of_range_are_cut_to_it() {
        let far = Timestamp::from_secs(i64::MAX);
        let (base, extra) = far.encode();
        assert_eq!(
            Timestamp::decode(base, Some(extra)).secs,
            Timestamp::MAX.secs
        );
        assert_eq!(far.encode_short(), i32::MAX as u32);
        assert_eq!(Timestamp::from_secs(i64::MIN).encode(), (0x8000_0000, 0));
    }

    #[test]
    fn what_is_stored_of_a_time_is_told() {
        let time = |secs, nanos| Timestamp { secs, nanos };
        let max = Timestamp::MAX.secs;
        for (asked, long, short) in [
            (time(5, 7), time(5, 7), time(5, 0)),
            (time(-5, 7), time(-5, 7), time(-5, 0)),
            (
                time(4_000_000_000, 7),
                time(4_000_000_000, 7),
                time(0x7fff_ffff, 0),
            ),
            (time(max + 1, 7), time(max, 0), time(0x7fff_ffff, 0)),
            (
                time(-0x8000_0001, 7),
                time(-0x8000_0000, 0),
                time(-0x8000_0000, 0),
            ),
        ] {
            assert_eq!((asked.stored(true), asked.stored(false)), (long, short));
        }
    }

    proptest! {
        #[test]
        fn every_time_in_range_survives(secs in Timestamp::MIN.secs..=Timestamp::MAX.secs, nanos in 0u32..1_000_000_000) {
            let time = Timestamp { secs, nanos };
            let (base, extra) = time.encode();
            prop_assert_eq!(Timestamp::decode(base, Some(extra)), time);
        }
    }
}
