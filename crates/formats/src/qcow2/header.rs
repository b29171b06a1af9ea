//! What is refused before imago looks at an image, by name; and what an image stands on.
//!
//! Fields are those of `docs/interop/qcow2.txt` of QEMU.

use super::NAME;
use super::counts::{self, Unsound};
use crate::FormatError;
use extant_blockdev::BlockDevice;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Most bytes of the table of the first level: for the largest disk with usual clusters, 8 MiB
/// would do.
const MOST_L1: u64 = 32 << 20;

/// Most bytes of the table of counts.
const MOST_COUNTS: u64 = 8 << 20;

/// The fields of all versions, and of version 3 as far as features go.
#[derive(Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: U32,
    backing_offset: U64,
    backing_len: U32,
    cluster_bits: U32,
    size: U64,
    encryption: U32,
    l1_entries: U32,
    l1_offset: U64,
    counts_offset: U64,
    counts_clusters: U32,
    snapshots: U32,
    snapshots_offset: U64,
    incompatible: U64,
}

/// Features that an image cannot be read without, by bit.
const FEATURES: [(u32, &str); 5] = [
    (
        0,
        "was not closed, so that its counts of clusters are not right",
    ),
    (1, "is marked as corrupt"),
    (2, "has its data in another file"),
    (3, "is compressed with something other than zlib"),
    (4, "has tables with subclusters"),
];

/// Where the tables of an image are, all in bytes; they lie in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables {
    pub(super) cluster: u64,
    pub(super) cluster_bits: u32,
    /// Bits of a count.
    pub(super) count_bits: u64,
    pub(super) counts_offset: u64,
    pub(super) counts_len: u64,
    pub(super) l1_offset: u64,
    pub(super) l1_len: u64,
}

/// What of a header matters here.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) version: u32,
    /// Bytes of a cluster.
    pub(super) cluster: u64,
    /// Whether clusters are compressed, as far as that is known: in images to be written.
    pub(super) has_compressed: bool,
    /// The file that the image stands on, and its format.
    pub(super) backing_file: Option<String>,
    pub(super) backing_format: Option<String>,
}

/// Refuses what is not supported. Tables have to lie in the file and be of a size that can be.
pub(super) fn check(device: &dyn BlockDevice, writable: bool) -> Result<Shape, FormatError> {
    let damaged = |reason: String| FormatError::Damaged {
        device: device.name(),
        format: NAME,
        reason,
    };
    let unsupported = |what: String, advice: &str| FormatError::Unsupported {
        device: device.name(),
        what,
        advice: advice.to_owned(),
    };
    let end = device.size();
    let mut bytes = [0; size_of::<Header>()];
    if end < bytes.len() as u64 {
        return Err(damaged(format!("it has {end} bytes, fewer than a header")));
    }
    device.read_at(0, &mut bytes)?;
    let header: Header = zerocopy::transmute!(bytes);
    let version = header.version.get();
    if !matches!(version, 2 | 3) {
        return Err(unsupported(
            format!("a QCOW image of version {version}"),
            "convert it first: qemu-img convert -O qcow2 OLD NEW",
        ));
    }
    match header.encryption.get() {
        0 => {}
        kind => {
            let what = if kind == 2 { "LUKS" } else { "AES" };
            return Err(unsupported(
                format!("a qcow2 image that is encrypted ({what})"),
                "serve it with qemu-nbd, or decrypt it: qemu-img convert",
            ));
        }
    }
    let incompatible = if version == 3 {
        header.incompatible.get()
    } else {
        0
    };
    if let Some(bit) = (0..64_u32).find(|bit| incompatible & (1 << bit) != 0) {
        let known = FEATURES.iter().find(|(known, _)| *known == bit);
        let what = known.map_or_else(
            || format!("has the feature {bit}, which is not known"),
            |(_, what)| (*what).to_owned(),
        );
        let advice = if bit < 2 {
            "repair it first: qemu-img check -r all IMAGE"
        } else {
            "convert it first: qemu-img convert -O qcow2 OLD NEW"
        };
        return Err(unsupported(format!("a qcow2 image that {what}"), advice));
    }
    let cluster_bits = header.cluster_bits.get();
    if !(9..=21).contains(&cluster_bits) {
        return Err(damaged(format!("its clusters have 2^{cluster_bits} bytes")));
    }
    let cluster = 1_u64 << cluster_bits;
    let tables = [
        (
            "table of the first level",
            header.l1_offset.get(),
            u64::from(header.l1_entries.get()) * 8,
            MOST_L1,
        ),
        (
            "table of counts",
            header.counts_offset.get(),
            u64::from(header.counts_clusters.get()) * cluster,
            MOST_COUNTS,
        ),
    ];
    for (table, offset, len, most) in tables {
        let last = offset.checked_add(len);
        if len > most || last.is_none_or(|last| last > end.next_multiple_of(cluster)) {
            return Err(damaged(format!(
                "its {table} would have {len} bytes at byte {offset}, and the file ends at {end}"
            )));
        }
    }
    // Each entry of the first level stands for a cluster of entries of the second.
    let covered = u128::from(header.l1_entries.get()) * u128::from(cluster / 8 * cluster);
    let size = header.size.get();
    if u128::from(size) > covered {
        return Err(damaged(format!(
            "its disk has {size} bytes, and its tables are for {covered}"
        )));
    }
    if writable && header.snapshots.get() > 0 {
        return Err(unsupported(
            format!("a qcow2 image with {} snapshots inside", header.snapshots),
            "open it for reading, or take them out: qemu-img snapshot -d",
        ));
    }
    let mut has_compressed = false;
    if writable {
        let tables = Tables {
            cluster,
            cluster_bits,
            count_bits: count_bits(device, version).map_err(damaged)?,
            counts_offset: header.counts_offset.get(),
            counts_len: u64::from(header.counts_clusters.get()) * cluster,
            l1_offset: header.l1_offset.get(),
            l1_len: u64::from(header.l1_entries.get()) * 8,
        };
        has_compressed = counts::check(device, &tables).map_err(|unsound| match unsound {
            Unsound::Device(error) => error.into(),
            Unsound::Because(what) => damaged(format!(
                "{what}, so that it is not written to (qemu-img check -r all mends counts; \
                 otherwise convert it first: extant convert OLD NEW)"
            )),
        })?;
    }
    Ok(Shape {
        version,
        cluster,
        has_compressed,
        backing_file: backing_file(device, &header, cluster)?,
        backing_format: extension(device, version, cluster)?,
    })
}

/// Bits of a count, which version 3 says.
fn count_bits(device: &dyn BlockDevice, version: u32) -> Result<u64, String> {
    const ORDER_AT: u64 = 96;
    let mut word = [0, 0, 0, 4];
    if version == 3 {
        device
            .read_at(ORDER_AT, &mut word)
            .map_err(|e| e.to_string())?;
    }
    match u32::from_be_bytes(word) {
        order @ 0..=6 => Ok(1 << order),
        order => Err(format!("its counts have 2^{order} bits")),
    }
}

/// The name of the file that the image stands on.
fn backing_file(
    device: &dyn BlockDevice,
    header: &Header,
    cluster: u64,
) -> Result<Option<String>, FormatError> {
    let offset = header.backing_offset.get();
    if offset == 0 {
        return Ok(None);
    }
    let len = u64::from(header.backing_len.get());
    let fits = offset
        .checked_add(len)
        .is_some_and(|last| last <= cluster.min(device.size()) && (1..=1023).contains(&len));
    let damaged = |reason: String| FormatError::Damaged {
        device: device.name(),
        format: NAME,
        reason,
    };
    if !fits {
        return Err(damaged(format!(
            "the name of its backing file would have {len} bytes at byte {offset}"
        )));
    }
    let mut name = vec![0; len as usize];
    device.read_at(offset, &mut name)?;
    let name = String::from_utf8(name)
        .map_err(|_| damaged("the name of its backing file is not UTF-8".to_owned()))?;
    Ok(Some(name))
}

/// The format of that file, from the extensions of the header.
fn extension(
    device: &dyn BlockDevice,
    version: u32,
    cluster: u64,
) -> Result<Option<String>, FormatError> {
    const BACKING_FORMAT: u32 = 0xe279_2aca;
    const FEATURE_NAMES: u32 = 0x6803_f857;
    const FEATURE_NAME: u64 = 48;
    const LENGTH_AT: u64 = 100;
    let mut word = [0; 4];
    let end = cluster.min(device.size());
    let mut at = if version == 2 {
        72
    } else if end < LENGTH_AT + 4 {
        return Ok(None);
    } else {
        device.read_at(LENGTH_AT, &mut word)?;
        u64::from(u32::from_be_bytes(word))
    };
    // Each has at least eight bytes, and they end in the first cluster.
    while at + 8 <= end {
        device.read_at(at, &mut word)?;
        let kind = u32::from_be_bytes(word);
        device.read_at(at + 4, &mut word)?;
        let len = u64::from(u32::from_be_bytes(word));
        if kind == 0 || at + 8 + len > end {
            break;
        }
        if kind == FEATURE_NAMES && !len.is_multiple_of(FEATURE_NAME) {
            return Err(FormatError::Damaged {
                device: device.name(),
                format: NAME,
                reason: format!("its names of features have {len} bytes"),
            });
        }
        if kind == BACKING_FORMAT {
            let mut name = vec![0; len as usize];
            device.read_at(at + 8, &mut name)?;
            return Ok(Some(String::from_utf8_lossy(&name).into_owned()));
        }
        at += 8 + len.next_multiple_of(8);
    }
    Ok(None)
}
