//! The multiple-mount protection block.
//!
//! A host that has the file system open rewrites this block every few seconds with a new sequence
//! number; another host that sees the number change keeps its hands off. Source: the kernel's
//! `Documentation/filesystems/ext4/mmp.rst`.

use crate::checksum::Crc32c;
use crate::{Expected, FormatError, FormatResult, Structure};
use std::time::Duration;

const CHECKSUM_AT: usize = 1020;

/// The user that has the file system open, as the sequence number says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// Nobody: the last user closed it.
    Clean,
    /// A checker.
    Fsck,
    /// A mount, or one that died; the number tells two writes apart.
    InUse(u32),
}

/// The multiple-mount protection block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpBlock {
    /// The user that has the file system open.
    pub state: MmpState,
    /// Seconds since the epoch of the last update; for people only.
    pub time: u64,
    /// Host name of the last user, zero-padded; for people only.
    pub node_name: [u8; 64],
    /// Device name on that host, zero-padded; for people only.
    pub device_name: [u8; 32],
    /// Seconds between two updates.
    pub check_interval: u16,
}

impl MmpState {
    const CLEAN: u32 = 0xFF4D_4D50;
    const FSCK: u32 = 0xE24D_4D50;
    /// Largest sequence number of a mount.
    pub const MAX_IN_USE: u32 = 0xE24D_4D4F;

    /// Returns the sequence number stored on disk.
    #[must_use]
    pub const fn sequence(self) -> u32 {
        match self {
            Self::Clean => Self::CLEAN,
            Self::Fsck => Self::FSCK,
            Self::InUse(n) => n,
        }
    }

    fn from_sequence(raw: u32) -> FormatResult<Self> {
        match raw {
            Self::CLEAN => Ok(Self::Clean),
            Self::FSCK => Ok(Self::Fsck),
            n if n <= Self::MAX_IN_USE => Ok(Self::InUse(n)),
            n => Err(FormatError::new(
                Structure::Mmp,
                "seq",
                u64::from(n),
                Expected::AtMost(u64::from(Self::MAX_IN_USE)),
            )
            .at(4)),
        }
    }
}

impl MmpBlock {
    /// Bytes of the record; the rest of its block is not used.
    pub const LEN: usize = 1024;
    /// The first four bytes.
    pub const MAGIC: u32 = 0x004D_4D50;
    /// Fewest seconds that others are asked to watch the block for.
    pub const MIN_CHECK_INTERVAL: u16 = 5;
    /// Most seconds that others are asked to watch the block for: twice the longest interval that
    /// `mke2fs -E mmp_update_interval=` takes.
    pub const MAX_CHECK_INTERVAL: u16 = 600;

    /// Reads the record at the start of `block`. `seed` is the checksum seed of the file system,
    /// `None` without `metadata_csum`.
    ///
    /// # Errors
    /// A wrong magic or checksum, a sequence number without meaning.
    pub fn parse(block: &[u8], seed: Option<Crc32c>) -> FormatResult<Self> {
        let record: &[u8; Self::LEN] = block
            .first_chunk()
            .ok_or_else(|| FormatError::short(Structure::Mmp, block.len(), Self::LEN))?;
        let magic = le32(record, 0);
        if magic != Self::MAGIC {
            return Err(FormatError::new(
                Structure::Mmp,
                "magic",
                u64::from(magic),
                Expected::Exactly(u64::from(Self::MAGIC)),
            ));
        }
        if let Some(seed) = seed {
            let stored = le32(record, CHECKSUM_AT);
            let computed = seed.update(&record[..CHECKSUM_AT]).value();
            if stored != computed {
                return Err(FormatError::checksum(Structure::Mmp, stored, computed).at(CHECKSUM_AT));
            }
        }
        Ok(Self {
            state: MmpState::from_sequence(le32(record, 4))?,
            time: u64::from(le32(record, 12)) << 32 | u64::from(le32(record, 8)),
            node_name: copy(record, 16),
            device_name: copy(record, 80),
            check_interval: le32(record, 112) as u16,
        })
    }

    /// Returns how long the block is to be watched before its claim is taken for that of a host
    /// that died. `update_interval` is that of the superblock, in seconds.
    ///
    /// # Errors
    /// When that is longer than anybody can have asked for: a program would wait for hours.
    pub fn watch(&self, update_interval: u16) -> FormatResult<Duration> {
        /// Most seconds that are waited on top of the interval.
        const MAX_EXTRA: u64 = 60;
        for (structure, field, seconds) in [
            (Structure::Mmp, "check_interval", self.check_interval),
            (
                Structure::Superblock,
                "mmp_update_interval",
                update_interval,
            ),
        ] {
            if seconds > Self::MAX_CHECK_INTERVAL {
                let most = Expected::AtMost(u64::from(Self::MAX_CHECK_INTERVAL));
                return Err(FormatError::new(structure, field, u64::from(seconds), most));
            }
        }
        let longest = self
            .check_interval
            .max(update_interval)
            .max(Self::MIN_CHECK_INTERVAL);
        let check = u64::from(longest);
        Ok(Duration::from_secs((check * 2 + 1).min(check + MAX_EXTRA)))
    }

    /// Returns the record, with its checksum if there is a `seed`.
    #[must_use]
    pub fn encode(&self, seed: Option<Crc32c>) -> [u8; Self::LEN] {
        let mut record = [0; Self::LEN];
        record[0..4].copy_from_slice(&Self::MAGIC.to_le_bytes());
        record[4..8].copy_from_slice(&self.state.sequence().to_le_bytes());
        record[8..16].copy_from_slice(&self.time.to_le_bytes());
        record[16..80].copy_from_slice(&self.node_name);
        record[80..112].copy_from_slice(&self.device_name);
        record[112..114].copy_from_slice(&self.check_interval.to_le_bytes());
        if let Some(seed) = seed {
            let sum = seed.update(&record[..CHECKSUM_AT]).value();
            record[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        }
        record
    }
}

fn le32(record: &[u8; MmpBlock::LEN], at: usize) -> u32 {
    u32::from_le_bytes(copy(record, at))
}

/// `N` bytes at a constant offset inside the record.
fn copy<const N: usize>(record: &[u8; MmpBlock::LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(record.iter().skip(at)) {
        *to = *from;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = MmpBlock> {
        let state = prop_oneof![
            Just(MmpState::Clean),
            Just(MmpState::Fsck),
            (0..=MmpState::MAX_IN_USE).prop_map(MmpState::InUse),
        ];
        (state, any::<u64>(), any::<[u8; 32]>(), any::<u16>()).prop_map(
            |(state, time, name, check_interval)| {
                let mut node_name = [0; 64];
                node_name[..32].copy_from_slice(&name);
                MmpBlock {
                    state,
                    time,
                    node_name,
                    device_name: name,
                    check_interval,
                }
            },
        )
    }

    #[test]
    fn who_may_be_alive_is_watched_for_some_minutes_at_most() {
        let asked = |check_interval| MmpBlock {
            state: MmpState::InUse(1),
            time: 0,
            node_name: [0; 64],
            device_name: [0; 32],
            check_interval,
        };
        let watch = |check, update| asked(check).watch(update).map(|time| time.as_secs());
        assert_eq!(watch(0, 0), Ok(11));
        assert_eq!(watch(10, 5), Ok(21));
        assert_eq!(watch(5, 100), Ok(160));
        assert_eq!(watch(600, 300), Ok(660));
        assert_eq!(watch(601, 5).unwrap_err().field, "check_interval");
        assert_eq!(watch(5, u16::MAX).unwrap_err().field, "mmp_update_interval");
    }

    proptest! {
        #[test]
        fn a_block_reads_back_as_written(mmp in block(), seed in any::<Option<u32>>()) {
            let seed = seed.map(Crc32c::seeded);
            prop_assert_eq!(MmpBlock::parse(&mmp.encode(seed), seed), Ok(mmp));
        }
    }

    #[test]
    fn a_changed_byte_breaks_the_checksum() {
        let mmp = MmpBlock {
            state: MmpState::InUse(7),
            time: 1,
            node_name: [b'n'; 64],
            device_name: [b'd'; 32],
            check_interval: 5,
        };
        let seed = Some(Crc32c::seeded(42));
        let mut bytes = mmp.encode(seed);
        bytes[500] ^= 1;
        assert!(MmpBlock::parse(&bytes, seed).is_err_and(|e| e.is_checksum()));
    }

    #[test]
    fn no_bytes_make_the_parser_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = MmpBlock::parse(bytes, None);
            let mut long = [0; MmpBlock::LEN];
            for (to, from) in long[4..].iter_mut().zip(bytes) {
                *to = *from;
            }
            long[..4].copy_from_slice(&MmpBlock::MAGIC.to_le_bytes());
            let _ = MmpBlock::parse(&long, None);
        });
    }
}
