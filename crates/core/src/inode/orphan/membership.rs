//! Where an inode is noted as an orphan.

const TAG: u32 = 62;
const LIST: u64 = 1;
const FILE: u64 = 2;
/// Bits of the place on the list, above those of the next inode.
const AT_SHIFT: u32 = 32;
const AT_MASK: u64 = (1 << (TAG - AT_SHIFT)) - 1;

/// Where an inode is noted as an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// Nowhere: it is none.
    None,
    /// On the list.
    List {
        /// The number of the next inode there, 0 at the end.
        next: u32,
        /// Its place in memory, below 2^30.
        at: u32,
    },
    /// In the orphan file.
    File {
        /// The slot: the block of the file above bit 32, the place in it below.
        slot: u64,
    },
}

impl Membership {
    /// In one word, for an atomic.
    pub(crate) const fn pack(self) -> u64 {
        match self {
            Self::None => 0,
            Self::List { next, at } => {
                LIST << TAG | (at as u64 & AT_MASK) << AT_SHIFT | next as u64
            }
            Self::File { slot } => FILE << TAG | slot,
        }
    }

    /// The opposite of [`pack`](Self::pack).
    pub(crate) const fn unpack(word: u64) -> Self {
        match word >> TAG {
            LIST => Self::List {
                next: word as u32,
                at: (word >> AT_SHIFT & AT_MASK) as u32,
            },
            FILE => Self::File {
                slot: word & ((1 << TAG) - 1),
            },
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_survives_the_word_it_is_kept_in() {
        for membership in [
            Membership::None,
            Membership::List { next: 0, at: 0 },
            Membership::List {
                next: u32::MAX,
                at: (1 << 30) - 1,
            },
            Membership::File { slot: 0 },
            Membership::File { slot: 1 << 40 },
        ] {
            assert_eq!(Membership::unpack(membership.pack()), membership);
        }
    }
}
