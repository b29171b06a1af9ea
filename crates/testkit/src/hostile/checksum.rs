//! Putting the checksum of a changed structure right.

use super::anatomy::{Anatomy, Checksums, Kind, Site};
use super::bytes::{be32, le16, put};

/// CRC32C as ext4 chains it: without the final inversion.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The checksum over `bytes` with the `hole` read as zeros.
fn with_hole(seed: u32, bytes: &[u8], hole: std::ops::Range<usize>) -> u32 {
    let sum = crc32c(seed, &bytes[..hole.start]);
    let sum = crc32c(sum, &vec![0; hole.len()]);
    crc32c(sum, &bytes[hole.end..])
}

impl Anatomy {
    /// Makes the checksum of `site` right again, and those that depend on it. Fields that say
    /// where the checksum is are taken as they are now; if they point outside, nothing is done.
    pub(super) fn repair(&self, image: &mut [u8], site: &Site) {
        if self.layout.checksums == Checksums::Metadata {
            self.repair_metadata(image, site);
        }
        match site.kind {
            Kind::Descriptor | Kind::BlockBitmap | Kind::InodeBitmap => {
                self.repair_descriptor(image, site.owner);
            }
            Kind::JournalSuperblock
            | Kind::JournalDescriptor
            | Kind::JournalRevoke
            | Kind::JournalCommit => self.repair_journal(image, site),
            _ => {}
        }
    }

    /// Makes all checksums right as the superblock and the generations of inodes ask for now.
    pub(super) fn repair_all(&self, image: &mut [u8]) {
        let now = self.under(image);
        for site in &now.sites {
            let block = &image[site.at..site.at + site.len];
            // Directories made without checksums have no room for one.
            let has_room = site.kind != Kind::DirLeaf
                || block[site.len - 12..site.len - 4] == [0, 0, 0, 0, 12, 0, 0, 0xDE];
            if has_room {
                now.repair(image, site);
            }
        }
    }

    fn repair_metadata(&self, image: &mut [u8], site: &Site) {
        let Site { at, len, seed, .. } = *site;
        let record = &mut image[at..at + len];
        match site.kind {
            Kind::Superblock => {
                let sum = crc32c(!0, &record[..0x3FC]);
                put(record, 0x3FC, &sum.to_le_bytes());
            }
            Kind::BlockBitmap => {
                let covered = self.layout.clusters_per_group / 8;
                let sum = crc32c(seed, &record[..covered]);
                self.store_bitmap_sum(image, site.owner, 0x18, sum);
            }
            Kind::InodeBitmap => {
                let covered = self.layout.inodes_per_group as usize / 8;
                let sum = crc32c(seed, &record[..covered]);
                self.store_bitmap_sum(image, site.owner, 0x1A, sum);
            }
            Kind::Inode => repair_inode(record, seed),
            Kind::ExtentNode => {
                let tail = 12 + 12 * usize::from(le16(record, 4));
                if tail + 4 <= record.len() {
                    let sum = crc32c(seed, &record[..tail]);
                    put(record, tail, &sum.to_le_bytes());
                }
            }
            Kind::DirLeaf => {
                let tail = len - 12;
                let sum = crc32c(seed, &record[..tail]);
                put(record, tail + 8, &sum.to_le_bytes());
            }
            Kind::DirRoot => repair_index(record, 0x20, seed),
            Kind::DirNode => repair_index(record, 8, seed),
            Kind::XattrBlock => {
                let block = (at / self.layout.block) as u64;
                let sum = crc32c(seed, &block.to_le_bytes());
                let sum = with_hole(sum, record, 0x10..0x14);
                put(record, 0x10, &sum.to_le_bytes());
            }
            Kind::OrphanFile => {
                let block = (at / self.layout.block) as u64;
                let sum = crc32c(seed, &block.to_le_bytes());
                let sum = crc32c(sum, &record[..len - 8]);
                put(record, len - 4, &sum.to_le_bytes());
            }
            Kind::Mmp => {
                let sum = crc32c(seed, &record[..1020]);
                put(record, 1020, &sum.to_le_bytes());
            }
            _ => {}
        }
    }

    fn store_bitmap_sum(&self, image: &mut [u8], group: u32, field: usize, sum: u32) {
        let at = self.layout.descriptor_at(group);
        put(image, at + field, &(sum as u16).to_le_bytes());
        if self.layout.desc_size >= 64 {
            put(
                image,
                at + field + 0x20,
                &((sum >> 16) as u16).to_le_bytes(),
            );
        }
    }

    fn repair_descriptor(&self, image: &mut [u8], group: u32) {
        let layout = &self.layout;
        let at = layout.descriptor_at(group);
        let record = &mut image[at..at + layout.desc_size];
        let sum = match layout.checksums {
            Checksums::None => return,
            Checksums::Metadata => {
                let sum = crc32c(layout.seed, &group.to_le_bytes());
                with_hole(sum, record, 0x1E..0x20) as u16
            }
            Checksums::Descriptors => {
                let sum = crc16(!0, &layout.uuid);
                let sum = crc16(sum, &group.to_le_bytes());
                let sum = crc16(sum, &record[..0x1E]);
                crc16(sum, &record[0x20..])
            }
        };
        put(record, 0x1E, &sum.to_le_bytes());
    }

    fn repair_journal(&self, image: &mut [u8], site: &Site) {
        let Some(superblock) = self
            .sites
            .iter()
            .find(|site| site.kind == Kind::JournalSuperblock)
        else {
            return;
        };
        if be32(image, superblock.at + 0x28) & 0x18 == 0 {
            return;
        }
        let record = &mut image[site.at..site.at + site.len];
        let (at, seed) = match site.kind {
            Kind::JournalSuperblock => (0xFC, !0),
            Kind::JournalCommit => (0x10, site.seed),
            _ => (record.len() - 4, site.seed),
        };
        let sum = with_hole(seed, record, at..at + 4);
        put(record, at, &sum.to_be_bytes());
    }
}

fn repair_inode(record: &mut [u8], seed: u32) {
    let extra = if record.len() > 128 {
        le16(record, 0x80)
    } else {
        0
    };
    let high = extra >= 4;
    put(record, 0x7C, &[0; 2]);
    if high {
        put(record, 0x82, &[0; 2]);
    }
    let sum = crc32c(seed, record);
    put(record, 0x7C, &(sum as u16).to_le_bytes());
    if high {
        put(record, 0x82, &((sum >> 16) as u16).to_le_bytes());
    }
}

/// An index block: limit and count at `at`, the checksum behind as many entries as the limit.
fn repair_index(record: &mut [u8], at: usize, seed: u32) {
    let limit = usize::from(le16(record, at));
    let count = usize::from(le16(record, at + 2));
    let tail = at + limit * 8;
    let used = at + count * 8;
    if tail + 8 <= record.len() && used <= tail {
        let sum = crc32c(seed, &record[..used]);
        let sum = crc32c(sum, &record[tail..tail + 4]);
        let sum = crc32c(sum, &[0; 4]);
        put(record, tail + 4, &sum.to_le_bytes());
    }
}

/// CRC16 of group descriptors: polynomial 0x8005, reflected.
fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |sum, byte| {
        (0..8).fold(sum ^ u16::from(*byte), |sum, _| {
            let carry = sum & 1 != 0;
            (sum >> 1) ^ if carry { 0xA001 } else { 0 }
        })
    })
}
