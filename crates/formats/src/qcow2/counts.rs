//! Whether an image may be written to: all that it uses is counted, and nothing is used twice.
//!
//! imago takes free clusters from the counts of an image, as QEMU does. Where those are wrong, it
//! would write over what is in use. So all tables are read once before an image is opened for
//! writing: 16 MiB for each 128 GiB of data in clusters of 64 KiB.
//!
//! A cluster that is compressed does not fill one of the file, so that several may lie in one, each
//! of them counted. All others have theirs alone.

use super::header::Tables;
use extant_blockdev::{BlockDevice, DeviceError};
use std::collections::HashMap;

/// Most clusters of a file: three bits of memory for each.
const MOST_CLUSTERS: u64 = 1 << 30;

/// Where an entry of a table leads to, without its flags.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;

/// In an entry of the second level: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;

/// Why an image is not written to.
pub(super) enum Unsound {
    Device(DeviceError),
    Because(String),
}

impl From<DeviceError> for Unsound {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// A bit for each cluster.
struct Marks(Vec<u64>);

impl Marks {
    fn new(clusters: u64) -> Self {
        Self(vec![0; clusters.div_ceil(64) as usize])
    }

    fn has(&self, cluster: u64) -> bool {
        self.0[(cluster / 64) as usize] & (1 << (cluster % 64)) != 0
    }

    fn set(&mut self, cluster: u64) {
        self.0[(cluster / 64) as usize] |= 1 << (cluster % 64);
    }
}

/// The image while it is looked at.
struct Look<'a> {
    device: &'a dyn BlockDevice,
    tables: &'a Tables,
    /// Clusters of the file.
    clusters: u64,
    /// Where the blocks of counts are, in bytes; 0 where there is none.
    blocks: Vec<u64>,
    counted: Marks,
    metadata: Marks,
    /// Clusters that hold one of the disk.
    data: Marks,
    /// How many compressed clusters of the disk lie in a cluster, in whole or in part.
    compressed: HashMap<u64, u64>,
}

/// Looks at all tables of an image. Returns whether clusters of it are compressed.
pub(super) fn check(device: &dyn BlockDevice, tables: &Tables) -> Result<bool, Unsound> {
    let clusters = device.size().div_ceil(tables.cluster);
    if clusters > MOST_CLUSTERS {
        return Err(Unsound::Because(format!(
            "it has {clusters} clusters, too many to look at"
        )));
    }
    let mut look = Look {
        device,
        tables,
        clusters,
        blocks: Vec::new(),
        counted: Marks::new(clusters),
        metadata: Marks::new(clusters),
        data: Marks::new(clusters),
        compressed: HashMap::new(),
    };
    look.counts()?;
    look.take(0, "the header")?;
    let cluster = tables.cluster;
    for (offset, len, what) in [
        (
            tables.counts_offset,
            tables.counts_len,
            "the table of counts",
        ),
        (
            tables.l1_offset,
            tables.l1_len,
            "the table of the first level",
        ),
    ] {
        for at in (offset..offset + len).step_by(cluster as usize) {
            look.take(at, what)?;
        }
    }
    let second: Vec<u64> = look.entries(tables.l1_offset, tables.l1_len)?;
    let second: Vec<u64> = second
        .iter()
        .map(|e| e & OFFSET)
        .filter(|o| *o != 0)
        .collect();
    for &offset in &second {
        look.take(offset, "a table of the second level")?;
    }
    for &offset in &second {
        for entry in look.entries(offset, cluster)? {
            look.data(entry)?;
        }
    }
    look.compressed()?;
    Ok(!look.compressed.is_empty())
}

/// A count in a block of them; the first bits of a byte are its lowest.
fn count(block: &[u8], number: u64, bits: u64) -> u64 {
    let at = (number * bits / 8) as usize;
    if bits < 8 {
        let mask = (1 << bits) - 1;
        return u64::from(block[at]) >> (number * bits % 8) & mask;
    }
    let bytes = &block[at..at + (bits / 8) as usize];
    bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

impl Look<'_> {
    /// Reads which clusters are counted.
    fn counts(&mut self) -> Result<(), Unsound> {
        let Tables {
            cluster,
            count_bits,
            ..
        } = *self.tables;
        let in_block = cluster * 8 / count_bits;
        let blocks = self.entries(self.tables.counts_offset, self.tables.counts_len)?;
        let needed = self.clusters.div_ceil(in_block);
        for (n, entry) in (0_u64..).zip(&blocks) {
            let offset = entry & !0x1ff;
            if offset == 0 && n >= needed {
                continue;
            }
            let is_there = offset != 0 && offset == *entry && self.lies_inside(offset);
            if !is_there || n >= needed {
                return Err(Unsound::Because(format!(
                    "its block {n} of counts would be at byte {entry:#x}"
                )));
            }
            let mut block = vec![0; cluster as usize];
            self.read(offset, &mut block)?;
            for i in 0..in_block.min(self.clusters - n * in_block) {
                if count(&block, i, count_bits) != 0 {
                    self.counted.set(n * in_block + i);
                }
            }
        }
        if (blocks.len() as u64) < needed {
            return Err(Unsound::Because(format!(
                "its table of counts has {} entries, and {needed} are needed",
                blocks.len()
            )));
        }
        for &offset in blocks.iter().filter(|entry| **entry != 0) {
            self.take(offset, "a block of counts")?;
        }
        self.blocks = blocks;
        Ok(())
    }

    /// Looks at whether all that lies in clusters with something compressed is counted.
    fn compressed(&self) -> Result<(), Unsound> {
        let Tables {
            cluster,
            count_bits,
            ..
        } = *self.tables;
        let in_block = cluster * 8 / count_bits;
        let mut found: Vec<(u64, u64)> = self.compressed.iter().map(|(&n, &c)| (n, c)).collect();
        found.sort_unstable();
        let mut block = vec![0; cluster as usize];
        let mut read = None;
        for (n, references) in found {
            let number = n / in_block;
            if read != Some(number) {
                self.read(self.blocks[number as usize], &mut block)?;
                read = Some(number);
            }
            let counted = count(&block, n % in_block, count_bits);
            let wrong = if self.data.has(n) {
                "holds another cluster as well".to_owned()
            } else if references > counted {
                format!("holds {references} of them, and {counted} are counted")
            } else {
                continue;
            };
            return Err(Unsound::Because(format!(
                "the place of compressed clusters at byte {:#x} {wrong}",
                n * cluster
            )));
        }
        Ok(())
    }

    fn lies_inside(&self, offset: u64) -> bool {
        offset.is_multiple_of(self.tables.cluster) && offset / self.tables.cluster < self.clusters
    }

    /// Notes that a cluster is the image's own.
    fn take(&mut self, offset: u64, what: &str) -> Result<(), Unsound> {
        let cluster = offset / self.tables.cluster;
        if !self.lies_inside(offset) {
            return Err(Unsound::Because(format!(
                "{what} would be at byte {offset:#x}"
            )));
        }
        if self.metadata.has(cluster) {
            return Err(Unsound::Because(format!(
                "{what} lies on another table at byte {offset:#x}"
            )));
        }
        if !self.counted.has(cluster) {
            return Err(Unsound::Because(format!(
                "{what} at byte {offset:#x} is not counted as in use"
            )));
        }
        self.metadata.set(cluster);
        Ok(())
    }

    /// Looks at where an entry of the second level leads to.
    fn data(&mut self, entry: u64) -> Result<(), Unsound> {
        let Tables {
            cluster,
            cluster_bits,
            ..
        } = *self.tables;
        let is_compressed = entry & COMPRESSED != 0;
        let (offset, len) = if is_compressed {
            let bits = 62 - (cluster_bits - 8);
            let sectors = (entry & (COMPRESSED - 1)) >> bits;
            let offset = entry & ((1 << bits) - 1);
            (offset, (sectors + 1) * 512 - offset % 512)
        } else {
            let offset = entry & OFFSET;
            if offset == 0 {
                return Ok(());
            }
            if !offset.is_multiple_of(cluster) {
                return Err(Unsound::Because(format!(
                    "a cluster of it would be at byte {offset:#x}"
                )));
            }
            (offset, 1)
        };
        // What is compressed ends in a whole sector, which may lie behind the end of the file.
        let last = (offset + len - 1) / cluster;
        for n in offset / cluster..=last.min(self.clusters.max(offset / cluster + 1) - 1) {
            let wrong = if n >= self.clusters {
                "lies behind the end of the file"
            } else if self.metadata.has(n) {
                "lies on a table"
            } else if !self.counted.has(n) {
                "is not counted as in use"
            } else if is_compressed {
                *self.compressed.entry(n).or_default() += 1;
                continue;
            } else if self.data.has(n) {
                "is in two places of it"
            } else {
                self.data.set(n);
                continue;
            };
            return Err(Unsound::Because(format!(
                "a cluster of its disk at byte {offset:#x} {wrong}"
            )));
        }
        Ok(())
    }

    /// Reads, and zeros behind the end of the file.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        let there = self.device.size().saturating_sub(offset);
        let there = there.min(buf.len() as u64) as usize;
        self.device.read_at(offset, &mut buf[..there])
    }

    fn entries(&self, offset: u64, len: u64) -> Result<Vec<u64>, DeviceError> {
        let mut bytes = vec![0; len as usize];
        self.read(offset, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_be_bytes(*word)).collect())
    }
}
