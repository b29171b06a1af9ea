//! Bytes that say at the end of a device, as the formats have them, what it is a part of. What they
//! say is for `wipefs` to confirm: its formats, not ours, are the oracle.

/// What a kind of device has where.
#[derive(Debug, Clone)]
pub struct Lasting {
    /// The name of the kind that `wipefs` knows.
    pub wipefs: &'static str,
    /// Bytes, and where they lie.
    pub places: Vec<(u64, Vec<u8>)>,
}

/// Returns all kinds on a device of `size` bytes, which are 64 MiB or more: fewer are no ZFS device
/// for `wipefs`.
#[must_use]
pub fn lasting_marks(size: u64) -> Vec<Lasting> {
    let kind = |wipefs, places| Lasting { wipefs, places };
    let v1 = (size & !0xfff) - (8 << 10);
    let v0 = (size / (64 << 10) - 1) * (64 << 10);
    let label = 256 << 10;
    let labels = size / label;
    let zfs = |numbers: &[u64]| {
        let labels = numbers.iter().map(|n| (n * label, zfs_label(label)));
        labels.collect::<Vec<_>>()
    };
    vec![
        kind("linux_raid_member", vec![(v1, raid_v1(v1))]),
        kind("linux_raid_member", vec![(v0, raid_v0(false))]),
        kind("linux_raid_member", vec![(v0, raid_v0(true))]),
        kind("zfs_member", zfs(&[0, 1, labels - 2, labels - 1])),
        // As something that was written over the front leaves it.
        kind("zfs_member", zfs(&[labels - 2, labels - 1])),
        kind(
            "isw_raid_member",
            vec![(size - 1024, b"Intel Raid ISM Cfg Sig. 1.0.00".to_vec())],
        ),
        kind("ddf_raid_member", vec![(size - 512, ddf(size / 512 - 1))]),
    ]
}

fn words(bytes: &mut [u8], at: usize, words: &[u32], is_big: bool) {
    for (to, word) in bytes[at..].chunks_mut(4).zip(words) {
        to.copy_from_slice(&if is_big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }
}

/// A superblock of version 1.0, which says where it lies.
fn raid_v1(at: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    words(&mut bytes, 0, &[0xa92b_4efc, 1, 0, 0], false);
    bytes[16..32].fill(7);
    bytes[0x90..0x98].copy_from_slice(&(at / 512).to_le_bytes());
    bytes
}

fn raid_v0(is_big: bool) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    words(
        &mut bytes,
        0,
        &[0xa92b_4efc, 0, 90, 0, 0, 0x0102_0304],
        is_big,
    );
    bytes
}

/// A label: the list that describes the pool, and eight uberblocks.
fn zfs_label(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let list = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\0\0\x24\0\0\0\x20\0\0\0\x07version\0";
    bytes[0x4000..0x4000 + list.len()].copy_from_slice(list);
    for (i, uberblock) in bytes[128 << 10..].chunks_mut(1024).take(8).enumerate() {
        uberblock[..8].copy_from_slice(&0x00ba_b10c_u64.to_le_bytes());
        uberblock[8..16].copy_from_slice(&5000_u64.to_le_bytes());
        uberblock[16] = i as u8 + 1;
    }
    bytes
}

/// The anchor of the common format of controllers, which names the sector of the first header: its
/// own.
fn ddf(sector: u64) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[..4].copy_from_slice(&[0xde, 0x11, 0xde, 0x11]);
    bytes[8..32].fill(b'A');
    bytes[32..40].copy_from_slice(b"01.02.00");
    bytes[96..104].copy_from_slice(&sector.to_be_bytes());
    bytes
}
