//! The disk in a qcow2 image, for reading.
//!
//! Fields are those of `docs/interop/qcow2.txt` of QEMU. `extant-formats` reads and writes such
//! images too, by a library that needs a system; this reader needs none.

use crate::failure::{Failure, Told};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_IGNORE_ADLER32, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use std::io;

/// Bytes of a header of version 3, without what may follow.
const HEADER: usize = 104;

/// Most bytes of the table of the first level: for the largest disk with usual clusters, 8 MiB
/// would do.
const MOST_L1: u64 = 32 << 20;

/// Bits of an entry of a table that are an offset.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// The cluster is compressed.
const COMPRESSED: u64 = 1 << 62;

/// The cluster reads as zeros.
const ZEROS: u64 = 1;

/// Features that an image cannot be read without, by bit. The first, counts that may be wrong,
/// matters to writers alone.
const FEATURES: [(u32, &str); 4] = [
    (1, "is marked as corrupt"),
    (2, "has its data in another file"),
    (3, "is compressed with something other than zlib"),
    (4, "has tables with subclusters"),
];

/// The disk.
#[derive(Debug)]
pub(crate) struct Qcow2 {
    inner: SharedDevice,
    size: u64,
    cluster_bits: u32,
    /// Whether the image knows clusters that read as zeros.
    has_zeros: bool,
    /// Where the tables of the second level are.
    l1: Vec<u64>,
}

/// What a cluster of the disk is.
enum Cluster {
    Zeros,
    At(u64),
    /// Compressed, at most so many bytes from there on.
    Compressed(u64, u64),
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        field.copy_from_slice(found);
    }
    field
}

impl Qcow2 {
    pub(crate) fn open(inner: SharedDevice) -> Told<Self> {
        let damaged = |why: String| Failure::damaged(format!("the qcow2 image is damaged: {why}"));
        let end = inner.size();
        if end < HEADER as u64 {
            return Err(damaged(format!("it has {end} bytes, fewer than a header")));
        }
        let mut header = [0; HEADER];
        inner.read_at(0, &mut header)?;
        let short = |at| u32::from_be_bytes(field(&header, at));
        let long = |at| u64::from_be_bytes(field(&header, at));
        let version = short(4);
        check_features(&header, version)?;
        let (cluster_bits, size) = (short(20), long(24));
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged(format!("its clusters have 2^{cluster_bits} bytes")));
        }
        let (entries, at) = (u64::from(short(36)), long(40));
        let per_entry = 1_u64 << (2 * cluster_bits - 3);
        if size.div_ceil(per_entry) > entries {
            return Err(damaged(format!(
                "its disk has {size} bytes, and its table of the first level {entries} entries"
            )));
        }
        let entries = size.div_ceil(per_entry);
        if entries * 8 > MOST_L1 || at.checked_add(entries * 8).is_none_or(|last| last > end) {
            return Err(damaged(
                "its table of the first level does not lie in the file".to_owned(),
            ));
        }
        let mut table = vec![0; entries as usize * 8];
        inner.read_at(at, &mut table)?;
        let entries = table.chunks_exact(8).map(|entry| field(entry, 0));
        Ok(Self {
            l1: entries.map(u64::from_be_bytes).collect(),
            inner,
            size,
            cluster_bits,
            has_zeros: version >= 3,
        })
    }

    /// Finds a cluster of the disk.
    fn cluster(&self, number: u64) -> DeviceResult<Cluster> {
        let l2_bits = self.cluster_bits - 3;
        let table = usize::try_from(number >> l2_bits).ok();
        let table = table.and_then(|at| self.l1.get(at)).copied().unwrap_or(0) & OFFSET;
        if table == 0 {
            return Ok(Cluster::Zeros);
        }
        let at = table + (number & ((1 << l2_bits) - 1)) * 8;
        let mut entry = [0; 8];
        self.inner.read_at(at, &mut entry)?;
        let entry = u64::from_be_bytes(entry);
        if entry & COMPRESSED != 0 {
            let offset_bits = 62 - (self.cluster_bits - 8);
            let at = entry & ((1 << offset_bits) - 1);
            let sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
            return Ok(Cluster::Compressed(at, (sectors + 1) * 512 - at % 512));
        }
        let at = entry & OFFSET;
        if at == 0 || self.has_zeros && entry & ZEROS != 0 {
            return Ok(Cluster::Zeros);
        }
        Ok(Cluster::At(at))
    }

    /// Decompresses a cluster.
    fn decompressed(&self, at: u64, len: u64) -> DeviceResult<Vec<u8>> {
        let len = len.min(self.inner.size().saturating_sub(at));
        let mut bytes = vec![0; len as usize];
        self.inner.read_at(at, &mut bytes)?;
        let mut cluster = vec![0; 1 << self.cluster_bits];
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_IGNORE_ADLER32;
        let mut oxide = Box::new(DecompressorOxide::new());
        let (status, _, given) = decompress(&mut oxide, &bytes, &mut cluster, 0, flags);
        let is_whole = given == cluster.len()
            && matches!(status, TINFLStatus::Done | TINFLStatus::HasMoreOutput);
        if is_whole {
            return Ok(cluster);
        }
        Err(DeviceError::Io {
            op: "decompress",
            device: self.name(),
            offset: at,
            len,
            source: io::Error::other("a compressed cluster of the qcow2 image is damaged"),
        })
    }
}

/// Refuses what cannot be read.
fn check_features(header: &[u8], version: u32) -> Told<()> {
    let refused = |what: &str| {
        Failure::unsupported(format!(
            "this is a qcow2 image that {what}; convert it first: qemu-img convert -O qcow2 OLD NEW"
        ))
    };
    if !matches!(version, 2 | 3) {
        return Err(refused(&format!("has the version {version}")));
    }
    if u64::from_be_bytes(field(header, 8)) != 0 {
        return Err(refused("stands on another image"));
    }
    if u32::from_be_bytes(field(header, 32)) != 0 {
        return Err(refused("is encrypted"));
    }
    let features = u64::from_be_bytes(field(header, 72));
    let is_needed = |bit: &u32| version == 3 && features & (1 << bit) != 0;
    let Some(bit) = (1..64_u32).find(is_needed) else {
        return Ok(());
    };
    let known = FEATURES.iter().find(|(known, _)| *known == bit);
    Err(known.map_or_else(
        || refused(&format!("has the feature {bit}, which is not known")),
        |(_, what)| refused(what),
    ))
}

impl BlockDevice for Qcow2 {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let within = at & ((1 << self.cluster_bits) - 1);
            let left = (1 << self.cluster_bits) - within;
            let len = left.min(rest.len() as u64) as usize;
            let (now, later) = rest.split_at_mut(len);
            match self.cluster(at >> self.cluster_bits)? {
                Cluster::Zeros => now.fill(0),
                // Behind the end of a file that grows as it is written there are zeros.
                Cluster::At(start) if start >= self.inner.size() => now.fill(0),
                Cluster::At(start) => {
                    let there = self.inner.size().saturating_sub(start + within);
                    let (stored, behind) = now.split_at_mut(len.min(there as usize));
                    self.inner.read_at(start + within, stored)?;
                    behind.fill(0);
                }
                Cluster::Compressed(start, most) => {
                    let cluster = self.decompressed(start, most)?;
                    let from = cluster.get(within as usize..).unwrap_or(&[]);
                    now.copy_from_slice(from.get(..len).unwrap_or(&[]));
                }
            }
            (at, rest) = (at + len as u64, later);
        }
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}
