//! Tests of inode records: round trips, field positions, times and checksums.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn context(inode_size: u16) -> InodeContext {
    InodeContext {
        inode_size,
        seed: Some(Crc32c::INIT.update(b"some uuid")),
        ino: Ino::new(12),
        large_dir: true,
        huge_file: true,
    }
}

fn time() -> impl Strategy<Value = Timestamp> {
    (
        Timestamp::MIN.secs..=Timestamp::MAX.secs,
        0u32..1_000_000_000,
    )
        .prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

pub(super) fn arbitrary_inode() -> impl Strategy<Value = Inode> {
    let owner = (any::<u16>(), any::<u32>(), any::<u32>(), any::<u16>());
    let times = (time(), time(), time(), time());
    let rest = (
        any::<u64>(),
        0u64..1 << 48,
        any::<u32>(),
        any::<u32>(),
        any::<u32>(),
        0u64..1 << 48,
        any::<u64>(),
        any::<u32>(),
    );
    let map = proptest::collection::vec(any::<u8>(), MAP_BYTES);
    (owner, times, rest, map).prop_map(|(owner, times, rest, map)| Inode {
        mode: Mode::from_bits(owner.0),
        uid: owner.1,
        gid: owner.2,
        links: owner.3,
        atime: times.0,
        ctime: times.1,
        mtime: times.2,
        crtime: Some(times.3),
        size: rest.0,
        blocks: rest.1,
        flags: InodeFlags::from_bits_retain(rest.2),
        dtime: rest.3,
        generation: rest.4,
        file_acl: Pblk::new(rest.5),
        version: rest.6,
        project: Some(rest.7),
        extra_isize: 32,
        map: map.try_into().unwrap(),
    })
}

/// What is left of an inode when only `extra_isize` bytes of extra fields exist.
fn narrowed(mut inode: Inode, extra_isize: u16) -> Inode {
    inode.extra_isize = extra_isize;
    let has = |at| reaches(extra_isize, at, 4);
    let cut = |time: Timestamp, at| {
        if has(at) {
            time
        } else {
            Timestamp::decode(time.encode_short(), None)
        }
    };
    inode.ctime = cut(inode.ctime, 0x84);
    inode.mtime = cut(inode.mtime, 0x88);
    inode.atime = cut(inode.atime, 0x8c);
    inode.crtime = inode
        .crtime
        .filter(|_| has(0x90))
        .map(|time| cut(time, 0x94));
    if !has(0x98) {
        inode.version &= u64::from(u32::MAX);
    }
    inode.project = inode.project.filter(|_| has(0x9c));
    inode
}

proptest! {
    #[test]
    fn an_inode_survives_encoding(inode in arbitrary_inode(), words in 0u16..=8, large in any::<bool>()) {
        let context = context(if large { 1024 } else { 256 });
        let mut slot = vec![0xa5; usize::from(context.inode_size)];
        let written = Inode { extra_isize: words * 4, ..inode };
        written.encode(&mut slot, &context).unwrap();
        prop_assert_eq!(Inode::parse(&slot, &context).unwrap(), narrowed(written.clone(), words * 4));
        let after = FIXED_BYTES + usize::from(words * 4).max(2);
        prop_assert!(slot[after..].iter().all(|&byte| byte == 0xa5), "bytes past the extra fields changed");
        prop_assert_eq!(slot.len() - written.xattr_region(&slot, context.inode_size).len(),
            if words == 0 { slot.len() } else { FIXED_BYTES + usize::from(words * 4) });
    }

    #[test]
    fn an_inode_of_128_bytes_survives_encoding(inode in arbitrary_inode()) {
        let context = context(128);
        let mut slot = vec![0; 128];
        let written = Inode { extra_isize: 0, ..inode };
        written.encode(&mut slot, &context).unwrap();
        prop_assert_eq!(Inode::parse(&slot, &context).unwrap(), narrowed(written, 0));
    }

    #[test]
    fn a_flipped_bit_is_noticed(inode in arbitrary_inode(), bit in 0usize..256 * 8) {
        let context = context(256);
        let mut slot = vec![0; 256];
        inode.encode(&mut slot, &context).unwrap();
        slot[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Inode::parse(&slot, &context).is_err());
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    bolero::check!()
        .with_type::<(Vec<u8>, u16, bool)>()
        .for_each(|(bytes, size, checked)| {
            let mut context = context(*size);
            context.seed = context.seed.filter(|_| *checked);
            let mut bytes = bytes.clone();
            if let Ok(inode) = Inode::parse(&bytes, &context) {
                let _ = inode.sectors(BlockSize::MAX);
                let _ = inode.xattr_region(&bytes, *size);
                let _ = inode.device();
                let _ = inode.encode(&mut bytes, &context);
            }
        });
}

#[test]
fn extra_fields_that_pass_the_slot_are_refused() {
    let context = InodeContext {
        seed: None,
        ..context(256)
    };
    let mut slot = vec![0; 256];
    slot[FIXED_BYTES..FIXED_BYTES + 2].copy_from_slice(&132u16.to_le_bytes());
    let error = Inode::parse(&slot, &context).unwrap_err();
    assert_eq!((error.field, error.found), ("extra_isize", 132));
    slot[FIXED_BYTES..FIXED_BYTES + 2].copy_from_slice(&30u16.to_le_bytes());
    assert!(Inode::parse(&slot, &context).is_err());
}

#[test]
fn a_slot_that_was_never_written_needs_no_checksum() {
    let inode = Inode::parse(&[0; 256], &context(256)).unwrap();
    assert_eq!(inode.file_type(), None);
}

#[test]
fn directory_sizes_are_32_bit_without_large_dir() {
    let context = InodeContext {
        seed: None,
        large_dir: false,
        ..context(128)
    };
    let mut slot = vec![0; 128];
    slot[..2].copy_from_slice(&Mode::new(FileType::Directory, 0o755).bits().to_le_bytes());
    slot[4..8].copy_from_slice(&4096u32.to_le_bytes());
    slot[0x6c..0x70].copy_from_slice(&7u32.to_le_bytes());
    assert_eq!(Inode::parse(&slot, &context).unwrap().size, 4096);
}

#[test]
fn block_counts_choose_their_unit() {
    let mut inode = Inode::parse(&[0; 128], &context(128)).unwrap();
    inode.set_sectors(8, BlockSize::K4, true).unwrap();
    assert_eq!((inode.blocks, inode.sectors(BlockSize::K4)), (8, 8));
    inode.set_sectors(1 << 48, BlockSize::K4, true).unwrap();
    assert!(inode.flags.contains(InodeFlags::HUGE_FILE));
    assert_eq!(inode.blocks, 1 << 45);
    assert_eq!(inode.sectors(BlockSize::K4), 1 << 48);
    assert!(inode.set_sectors(1 << 33, BlockSize::K4, false).is_err());
}

proptest! {
    #[test]
    fn checksums_looked_at_together_are_sound_where_parse_says_so(
        inodes in proptest::collection::vec(arbitrary_inode(), 4),
        tails in proptest::collection::vec(any::<[u8; 96]>(), 4),
        first in 1_u32..1000,
        damage in proptest::option::of((0_usize..4, 0_usize..256, 1_u8..)),
    ) {
        let mut slots = vec![];
        let inos: [Ino; 4] = core::array::from_fn(|n| Ino::new(first + n as u32));
        for ((inode, tail), ino) in inodes.iter().zip(&tails).zip(inos) {
            let mut slot = vec![0; 256];
            slot[160..].copy_from_slice(tail);
            inode.encode(&mut slot, &InodeContext { ino, ..context(256) }).unwrap();
            slots.push(slot);
        }
        if let Some((which, at, mask)) = damage {
            slots[which][at] ^= mask;
        }
        let parsed: [_; 4] = core::array::from_fn(|n| {
            Inode::parse(&slots[n], &InodeContext { ino: inos[n], ..context(256) })
        });
        let whole: [&[u8]; 4] = core::array::from_fn(|n| &*slots[n]);
        let sound = are_sound(whole, inos, &context(256));
        // A damaged number of extra fields may make one that is looked at by itself.
        let seldom = damage.is_some_and(|(_, at, _)| (0x80..0x82).contains(&at));
        for n in 0..4 {
            prop_assert!(parsed[n].is_ok() || !sound[n]);
            prop_assert!(sound[n] || seldom || parsed[n].is_err());
            let [alone] = are_sound([whole[n]], [inos[n]], &context(256));
            prop_assert!(alone == sound[n] || seldom);
            if sound[n] {
                let again = Inode::parse_sound(&slots[n], &InodeContext { ino: inos[n], ..context(256) });
                prop_assert_eq!(&again, &parsed[n]);
            }
        }
        // Of another number, none is.
        let others = inos.map(|ino| Ino::new(ino.get() + 1));
        prop_assert_eq!(are_sound(whole, others, &context(256)), [false; 4]);
    }
}

#[test]
fn what_is_seldom_is_not_called_sound() {
    let slot = [0; 256];
    let ino = Ino::new(12);
    // Never written: `parse` lets it pass without a checksum.
    assert!(Inode::parse(&slot, &context(256)).is_ok());
    assert_eq!(are_sound([&slot], [ino], &context(256)), [false]);
    let mut small = [0; 128];
    let inode = Inode {
        extra_isize: 0,
        crtime: None,
        project: None,
        ..Inode::parse(&slot, &context(256)).unwrap()
    };
    inode.encode(&mut small, &context(128)).unwrap();
    assert_eq!(are_sound([&small], [ino], &context(128)), [false]);
    let mut sound = [0; 256];
    let inode = Inode {
        extra_isize: 32,
        ..inode
    };
    inode.encode(&mut sound, &context(256)).unwrap();
    assert_eq!(are_sound([&sound], [ino], &context(256)), [true]);
    let without = InodeContext {
        seed: None,
        ..context(256)
    };
    assert_eq!(are_sound([&sound], [ino], &without), [false]);
    // Short, and long.
    assert_eq!(are_sound([&sound[..255]], [ino], &context(256)), [false]);
    assert_eq!(
        are_sound([&[sound; 2].as_flattened()[..264]], [ino], &context(256)),
        [false]
    );
}
