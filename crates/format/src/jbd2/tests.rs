//! Round trips and hostile bytes, through the public records.

use super::*;
use crate::{Ino, Lblk, Pblk};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn formats() -> impl Strategy<Value = LogFormat> {
    let checksum = prop_oneof![
        Just(LogChecksum::None),
        Just(LogChecksum::CommitOnly),
        Just(LogChecksum::V2),
        Just(LogChecksum::V3),
    ];
    let size = prop_oneof![Just(BlockSize::MIN), Just(BlockSize::K4)];
    (checksum, size, any::<bool>(), any::<[u8; 16]>()).prop_map(
        |(checksum, block_size, wide, uuid)| LogFormat {
            block_size,
            wide,
            checksum,
            uuid,
        },
    )
}

fn number(format: &LogFormat, raw: u64) -> Pblk {
    Pblk::new(if format.wide { raw } else { raw & 0xffff_ffff })
}

fn some_superblock() -> impl Strategy<Value = JournalSuperblock> {
    let incompat = prop_oneof![Just(0u32), Just(0x13), Just(0x0b), Just(0x7), Just(0x32)];
    (
        any::<bool>(),
        incompat,
        any::<[u8; 16]>(),
        1100u32..9000,
        any::<[u32; 8]>(),
    )
        .prop_map(|(v2, incompat, uuid, max_len, n)| {
            let mut sb = JournalSuperblock::empty(BlockSize::K4, max_len, uuid);
            sb.sequence = Tid::new(n[0]);
            sb.errno = n[1] as i32;
            sb.start = n[2] % 1000;
            if v2 {
                sb.incompat = IncompatFeatures::from_bits_retain(incompat);
                if incompat & 0x18 != 0 {
                    sb.checksum_type = 4;
                } else {
                    sb.compat = CompatFeatures::from_bits_retain(n[3]);
                }
                sb.ro_compat = n[4];
                sb.head = n[5];
                sb.fast_commit_blocks = n[6] % 64;
                sb.users[47] = uuid;
            } else {
                sb.v2 = false;
                sb.uuid = [0; 16];
                sb.users_count = 0;
            }
            sb
        })
}

proptest! {
    #[test]
    fn a_superblock_reads_back_as_written(sb in some_superblock()) {
        prop_assert_eq!(JournalSuperblock::parse(&sb.encode()), Ok(sb));
    }

    #[test]
    fn a_descriptor_reads_back_as_written(
        format in formats(),
        sequence in any::<u32>(),
        raw in proptest::collection::vec((any::<u64>(), any::<[bool; 2]>(), any::<u32>()), 1..60),
    ) {
        let tags = raw
            .into_iter()
            .map(|(n, [escaped, deleted], sum)| Tag {
                block: number(&format, n),
                escaped,
                deleted,
                checksum: match format.checksum {
                    LogChecksum::V3 => sum,
                    LogChecksum::V2 => sum & 0xffff,
                    _ => 0,
                },
            })
            .collect();
        let want = DescriptorBlock { sequence: Tid::new(sequence), tags };
        let block = want.encode(&format).unwrap();
        prop_assert_eq!(DescriptorBlock::parse(&block, &format), Ok(want));
    }

    #[test]
    fn a_revoke_block_reads_back_as_written(
        format in formats(),
        sequence in any::<u32>(),
        raw in proptest::collection::vec(any::<u64>(), 0..120),
    ) {
        let blocks = raw.into_iter().map(|n| number(&format, n)).collect();
        let want = RevokeBlock { sequence: Tid::new(sequence), blocks };
        let block = want.encode(&format).unwrap();
        prop_assert_eq!(RevokeBlock::parse(&block, &format), Ok(want));
    }

    #[test]
    fn a_commit_block_reads_back_as_written(
        format in formats(),
        sequence in any::<u32>(),
        seconds in any::<u64>(),
        nanoseconds in any::<u32>(),
        crc in any::<u32>(),
    ) {
        let want = CommitBlock {
            sequence: Tid::new(sequence),
            seconds,
            nanoseconds,
            transaction_crc: (format.checksum == LogChecksum::CommitOnly).then_some(crc),
        };
        let block = want.encode(&format);
        prop_assert_eq!(CommitBlock::read(&block, &format), Ok(want));
        prop_assert_eq!(CommitBlock::verify(&block, &format), Ok(()));
    }

    #[test]
    fn a_flipped_bit_in_a_checksummed_record_is_noticed(
        v3 in any::<bool>(),
        bit in 96usize..1024 * 8,
    ) {
        let format = LogFormat {
            block_size: BlockSize::MIN,
            wide: true,
            checksum: if v3 { LogChecksum::V3 } else { LogChecksum::V2 },
            uuid: [7; 16],
        };
        let sequence = Tid::new(5);
        let data = [1; 1024];
        let tag = Tag::new(&format, sequence, Pblk::new(1 << 40), &data, false);
        prop_assert_eq!(tag.verify(&format, sequence, &data), Ok(()));
        prop_assert!(tag.verify(&format, sequence.next(), &data).is_err());

        let flip = |mut block: Vec<u8>| {
            block[bit / 8] ^= 1 << (bit % 8);
            block
        };
        let descriptor = DescriptorBlock { sequence, tags: vec![tag] };
        let block = flip(descriptor.encode(&format).unwrap());
        prop_assert!(DescriptorBlock::parse(&block, &format).is_err());
        let revoke = RevokeBlock { sequence, blocks: vec![Pblk::new(9)] };
        let block = flip(revoke.encode(&format).unwrap());
        prop_assert!(RevokeBlock::parse(&block, &format).is_err());
    }

    #[test]
    fn a_fast_commit_reads_back_as_written(
        tid in any::<u32>(),
        names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..255), 1..40),
        raw_inode in proptest::collection::vec(any::<u8>(), 128..257),
    ) {
        let tid = Tid::new(tid);
        let mut records = vec![FastCommitRecord::Head { features: 0, tid }];
        for (i, name) in names.iter().enumerate() {
            let entry = DirEntryChange { parent: Ino::ROOT, ino: Ino::new(12 + i as u32), name };
            records.push(match i % 3 {
                0 => FastCommitRecord::Create(entry),
                1 => FastCommitRecord::Link(entry),
                _ => FastCommitRecord::Unlink(entry),
            });
            records.push(FastCommitRecord::Inode { ino: entry.ino, raw: &raw_inode });
            records.push(FastCommitRecord::AddRange {
                ino: entry.ino,
                lblk: Lblk::new(3),
                len: 1 + i as u16,
                unwritten: i % 2 == 0,
                start: Pblk::new(0xffff_1234_5678),
            });
            records.push(FastCommitRecord::DelRange {
                ino: entry.ino,
                lblk: Lblk::new(9),
                len: 77,
            });
        }
        let bytes = encode_fast_commit(&records, tid, 1024).unwrap();
        prop_assert_eq!(bytes.len() % 1024, 0);
        let mut read = Vec::new();
        let mut crc = Crc32c::seeded(0);
        let mut tail = None;
        for block in bytes.chunks(1024) {
            for item in FastCommitRecords::new(block) {
                let (record, bytes) = item.unwrap();
                crc = crc.update(record.checksummed(bytes));
                match record {
                    FastCommitRecord::Pad { .. } => {}
                    FastCommitRecord::Tail { tid, crc, .. } => tail = Some((tid, crc)),
                    other => read.push(other),
                }
            }
        }
        prop_assert_eq!(read, records);
        prop_assert_eq!(tail, Some((tid, crc.value())));
    }
}

#[test]
fn tag_sizes_are_those_of_the_format() {
    let mut format = LogFormat {
        block_size: BlockSize::K4,
        wide: false,
        checksum: LogChecksum::None,
        uuid: [0; 16],
    };
    let mut sizes = Vec::new();
    for checksum in [LogChecksum::None, LogChecksum::V2, LogChecksum::V3] {
        for wide in [false, true] {
            format.checksum = checksum;
            format.wide = wide;
            sizes.push(format.tag_len());
        }
    }
    assert_eq!(sizes, [8, 12, 10, 14, 16, 16]);
}

#[test]
fn the_transaction_crc_matches_the_published_check_value() {
    let mut crc = TransactionCrc::new();
    crc.update(b"12345");
    crc.update(b"6789");
    // CRC-32/MPEG-2 of "123456789".
    assert_eq!(crc.value(), 0x0376_e6e7);
}

#[test]
fn an_unknown_feature_is_refused_with_its_bit() {
    let mut sb = JournalSuperblock::empty(BlockSize::K4, 1024, [1; 16]);
    sb.incompat = IncompatFeatures::from_bits_retain(0x40);
    let e = JournalSuperblock::parse(&sb.encode()).unwrap_err();
    assert_eq!((e.field, e.found), ("feature_incompat", 0x40));
    assert_eq!(IncompatFeatures::bit_name(0x20), Some("fast_commit"));
    assert_eq!(IncompatFeatures::bit_name(0x40), None);
}

#[test]
fn the_fast_commit_area_lies_behind_the_log() {
    let mut sb = JournalSuperblock::empty(BlockSize::K4, 2048, [1; 16]);
    sb.incompat = IncompatFeatures::FAST_COMMIT;
    let area = sb.area();
    assert_eq!((area.first, area.end), (1, 1792));
    assert_eq!((area.fast_commit_first, area.fast_commit_end), (1793, 2048));
    assert_eq!(area.advance(1790, 3), 2);
    sb.max_len = 1100;
    assert_eq!(sb.area().end, 1100, "too small to split");
}

#[test]
fn no_bytes_make_a_parser_panic() {
    bolero::check!().for_each(|bytes: &[u8]| {
        let _ = JournalSuperblock::parse(bytes);
        let mut record = [0; JournalSuperblock::LEN];
        JournalSuperblock::empty(BlockSize::K4, 1024, [0; 16])
            .encode()
            .iter()
            .zip(bytes.iter().chain(core::iter::repeat(&0)))
            .zip(&mut record)
            .for_each(|((good, noise), out)| *out = good ^ noise);
        let _ = JournalSuperblock::parse(&record);
        for item in FastCommitRecords::new(bytes) {
            let _ = item;
        }
        for checksum in [LogChecksum::None, LogChecksum::CommitOnly, LogChecksum::V2] {
            let format = LogFormat {
                block_size: BlockSize::MIN,
                wide: bytes.len().is_multiple_of(2),
                checksum,
                uuid: [0; 16],
            };
            let mut block = vec![0; 1024];
            for (to, from) in block.iter_mut().zip(bytes) {
                *to = *from;
            }
            for block_type in [BlockType::Descriptor, BlockType::Revoke, BlockType::Commit] {
                Header {
                    block_type,
                    sequence: Tid::new(1),
                }
                .encode(&mut block);
                assert!(DescriptorBlock::read_tags(&block, &format).len() <= 1024 / 8);
                let _ = DescriptorBlock::parse(&block, &format);
                let _ = RevokeBlock::parse(&block, &format);
                let _ = CommitBlock::read(&block, &format);
                let _ = CommitBlock::verify(&block, &format);
            }
        }
    });
}

#[test]
fn a_log_is_read_as_one_that_begins_in_its_second_block_where_that_is_all_that_is_wrong() {
    let mut sound = JournalSuperblock::empty(BlockSize::K4, 1024, [7; 16]);
    sound.start = 5;
    for first in [0, 6, 1024, u32::MAX] {
        let wrong = JournalSuperblock {
            first,
            ..sound.clone()
        };
        let record = wrong.encode();
        assert!(JournalSuperblock::parse(&record).is_err(), "{first}");
        let read = JournalSuperblock::parse_with_usual_first(&record);
        assert_eq!(read.as_ref(), Ok(&sound), "{first}");
    }
    for (start, max_len) in [(1024, 1024), (5, 2)] {
        let wrong = JournalSuperblock {
            start,
            max_len,
            ..sound.clone()
        };
        assert!(JournalSuperblock::parse_with_usual_first(&wrong.encode()).is_err());
    }
}
