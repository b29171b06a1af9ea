//! The master boot record and the chain of extended boot records.

use super::{Partition, PartitionTable, PartitionType, TableKind, le_u16, le_u32};
use crate::{BlockDevice, DeviceError, DeviceResult};

const RECORD: usize = 512;
const TABLE_AT: usize = 446;
const ENTRY: usize = 16;
const SIGNATURE_AT: usize = 510;
const SIGNATURE: u16 = 0xaa55;
const PROTECTIVE: u8 = 0xee;

/// Most logical partitions that are followed; Linux stops earlier.
const MAX_LOGICAL: u32 = 256;

#[derive(Debug, Clone, Copy)]
struct Entry {
    boot: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }
}

/// The first sector of a disk, if it is a boot record with a believable table.
#[derive(Debug)]
pub(super) struct Mbr {
    entries: [Entry; 4],
}

impl Mbr {
    /// Reads the record at the start of the device; `None` if there is none, also when what is
    /// there is the boot sector of a file system.
    pub(super) fn read(device: &dyn BlockDevice) -> DeviceResult<Option<Self>> {
        let Some(entries) = read_entries(device, 0)? else {
            return Ok(None);
        };
        let believable = entries.iter().all(|entry| matches!(entry.boot, 0 | 0x80));
        Ok(believable.then_some(Self { entries }))
    }

    /// Whether the record only says that there is a GPT.
    pub(super) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PROTECTIVE)
    }

    /// The primary and logical partitions.
    pub(super) fn partitions(&self, device: &dyn BlockDevice) -> DeviceResult<PartitionTable> {
        // An MBR does not tell its unit: it is the disk's sector.
        let sector = device.logical_sector();
        let mut partitions = Vec::new();
        for (number, entry) in (1..).zip(&self.entries) {
            if entry.is_used() && entry.kind != PROTECTIVE {
                partitions.push(partition(number, 0, entry, sector));
            }
        }
        if let Some(extended) = self.entries.iter().find(|e| e.is_used() && e.is_extended()) {
            logical_partitions(device, extended, sector, &mut partitions)?;
        }
        Ok(PartitionTable {
            kind: TableKind::Mbr,
            sector,
            from_backup: false,
            partitions,
        })
    }
}

fn partition(number: u32, base: u64, entry: &Entry, sector: u32) -> Partition {
    // Two 32-bit sector numbers and a sector of at most 32 bits: saturation is never reached by
    // an honest table, and a dishonest one gives a partition that is not on the device.
    let sector = u64::from(sector);
    Partition {
        number,
        start: (base + u64::from(entry.start)).saturating_mul(sector),
        len: u64::from(entry.sectors).saturating_mul(sector),
        kind: PartitionType::Byte(entry.kind),
        name: None,
    }
}

/// Follows the chain of extended boot records. Each describes one logical partition relative to
/// itself, and the next record relative to the extended partition.
fn logical_partitions(
    device: &dyn BlockDevice,
    extended: &Entry,
    sector: u32,
    partitions: &mut Vec<Partition>,
) -> DeviceResult<()> {
    let damaged = |reason: String| DeviceError::BadPartitionTable {
        device: device.name(),
        table: "MBR",
        reason,
    };
    let first = u64::from(extended.start);
    let mut number = 5;
    let mut at = first;
    for _ in 0..MAX_LOGICAL {
        let Some(entries) = read_entries(device, at.saturating_mul(u64::from(sector)))? else {
            return Err(damaged(format!(
                "there is no extended boot record at sector {at}"
            )));
        };
        let [own, next, ..] = entries;
        if own.is_used() && !own.is_extended() {
            partitions.push(partition(number, at, &own, sector));
            number += 1;
        }
        if !(next.is_used() && next.is_extended()) {
            return Ok(());
        }
        if next.start >= extended.sectors {
            return Err(damaged(format!(
                "the extended boot record at sector {at} points to sector {} of an extended \
                 partition of {} sectors",
                next.start, extended.sectors
            )));
        }
        at = first + u64::from(next.start);
    }
    Err(damaged(format!(
        "its chain of logical partitions has more than {MAX_LOGICAL} links"
    )))
}

/// The four entries of the boot record at byte `offset`, or `None` without one.
fn read_entries(device: &dyn BlockDevice, offset: u64) -> DeviceResult<Option<[Entry; 4]>> {
    let mut record = [0; RECORD];
    if device.check_range("read", offset, RECORD as u64).is_err() {
        return Ok(None);
    }
    device.read_at(offset, &mut record)?;
    if le_u16(&record, SIGNATURE_AT) != SIGNATURE {
        return Ok(None);
    }
    Ok(Some(std::array::from_fn(|index| {
        let at = TABLE_AT + index * ENTRY;
        Entry {
            boot: record.get(at).copied().unwrap_or(0),
            kind: record.get(at + 4).copied().unwrap_or(0),
            start: le_u32(&record, at + 8),
            sectors: le_u32(&record, at + 12),
        }
    })))
}
