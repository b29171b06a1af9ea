//! The GUID partition table: primary header, or its backup at the end of the device.

use super::{Partition, PartitionTable, PartitionType, TableKind, le_u16, le_u32, le_u64};
use crate::{BlockDevice, DeviceError, DeviceResult};
use crc::{CRC_32_ISO_HDLC, Crc};

const CRC32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
const SIGNATURE: &[u8; 8] = b"EFI PART";
const HEADER_MIN: u32 = 92;
const HEADER_CRC_AT: usize = 16;
const ENTRY_MIN: u32 = 128;
const ENTRY_MAX: u32 = 4096;
const NAME_AT: usize = 56;
const NAME_UNITS: usize = 36;

/// Most entries read. The usual number is 128.
const MAX_ENTRIES: u32 = 4096;

/// Why one copy of the table cannot be used.
enum Flaw {
    /// There is no header here at all.
    Absent,
    /// There is one and it is wrong.
    Damaged(String),
}

/// Reads the table, from the primary header or else from the backup, with sectors of 512 or
/// 4096 bytes. `None` if there is no trace of one and none was `announced`.
pub(super) fn read(
    device: &dyn BlockDevice,
    announced: bool,
) -> DeviceResult<Option<PartitionTable>> {
    let mut reason = None;
    for from_backup in [false, true] {
        for sector in [512_u32, 4096] {
            let last = (device.size() / u64::from(sector)).saturating_sub(1);
            let at = if from_backup { last } else { 1 };
            match read_copy(device, sector, at, from_backup)? {
                Ok(table) => return Ok(Some(table)),
                Err(Flaw::Absent) => {}
                Err(Flaw::Damaged(why)) => {
                    reason.get_or_insert(why);
                }
            }
        }
    }
    let reason = match reason {
        Some(why) => format!("{why}, and no backup at the end of the device is intact"),
        None if announced => "its protective MBR is there, but neither header is".to_owned(),
        None => return Ok(None),
    };
    Err(DeviceError::BadPartitionTable {
        device: device.name(),
        table: "GPT",
        reason,
    })
}

/// Reads the copy whose header is in sector `at`. The outer error is the device's.
fn read_copy(
    device: &dyn BlockDevice,
    sector: u32,
    at: u64,
    from_backup: bool,
) -> DeviceResult<Result<PartitionTable, Flaw>> {
    let sector_len = u64::from(sector);
    let offset = at.saturating_mul(sector_len);
    if at == 0 || device.check_range("read", offset, sector_len).is_err() {
        return Ok(Err(Flaw::Absent));
    }
    let mut block = vec![0; sector as usize];
    device.read_at(offset, &mut block)?;
    let header = match Header::parse(&block, at) {
        Ok(header) => header,
        Err(flaw) => return Ok(Err(flaw)),
    };
    let len = u64::from(header.entries) * u64::from(header.entry_size);
    let array_at = header.array_sector.saturating_mul(sector_len);
    if device.check_range("read", array_at, len).is_err() {
        return Ok(Err(Flaw::Damaged(format!(
            "its entries should be at sector {}, which is not on the device",
            header.array_sector
        ))));
    }
    let mut array = vec![0; len as usize];
    device.read_at(array_at, &mut array)?;
    let crc = CRC32.checksum(&array);
    if crc != header.array_crc {
        return Ok(Err(Flaw::Damaged(format!(
            "the checksum of its entries is {crc:#010x}, and the header says {:#010x}",
            header.array_crc
        ))));
    }
    let entries = array.chunks_exact(header.entry_size as usize);
    let partitions = (1..)
        .zip(entries)
        .filter_map(|(number, entry)| partition(number, entry, sector_len));
    Ok(Ok(PartitionTable {
        kind: TableKind::Gpt,
        sector,
        from_backup,
        partitions: partitions.collect(),
    }))
}

/// The fields of a header that are needed, within bounds.
struct Header {
    array_sector: u64,
    entries: u32,
    entry_size: u32,
    array_crc: u32,
}

impl Header {
    /// Takes apart the header found in sector `at`.
    fn parse(block: &[u8], at: u64) -> Result<Self, Flaw> {
        if !block.starts_with(SIGNATURE) {
            return Err(Flaw::Absent);
        }
        let size = le_u32(block, 12);
        let Some(header) = block.get(..size as usize).filter(|_| size >= HEADER_MIN) else {
            return Err(Flaw::Damaged(format!(
                "its header says it is {size} bytes long"
            )));
        };
        let stored = le_u32(header, HEADER_CRC_AT);
        let mut blanked = header.to_vec();
        blanked[HEADER_CRC_AT..HEADER_CRC_AT + 4].fill(0);
        let crc = CRC32.checksum(&blanked);
        if crc != stored {
            return Err(Flaw::Damaged(format!(
                "the checksum of its header is {crc:#010x}, and the header says {stored:#010x}"
            )));
        }
        let own = le_u64(header, 24);
        if own != at {
            return Err(Flaw::Damaged(format!(
                "its header in sector {at} is meant for {own}"
            )));
        }
        let entries = le_u32(header, 80);
        let entry_size = le_u32(header, 84);
        if entries > MAX_ENTRIES
            || !(ENTRY_MIN..=ENTRY_MAX).contains(&entry_size)
            || !entry_size.is_power_of_two()
        {
            return Err(Flaw::Damaged(format!(
                "its header describes {entries} entries of {entry_size} bytes"
            )));
        }
        let array_sector = le_u64(header, 72);
        Ok(Self {
            array_sector,
            entries,
            entry_size,
            array_crc: le_u32(header, 88),
        })
    }
}

/// A partition from its entry; `None` for unused entries and those that end before they start.
fn partition(number: u32, entry: &[u8], sector: u64) -> Option<Partition> {
    let kind = entry.first_chunk::<16>()?;
    if kind.iter().all(|&byte| byte == 0) {
        return None;
    }
    let (first, last) = (le_u64(entry, 32), le_u64(entry, 40));
    let sectors = last.checked_sub(first)?.saturating_add(1);
    let units = (0..NAME_UNITS)
        .map(|i| le_u16(entry, NAME_AT + 2 * i))
        .take_while(|&u| u != 0);
    let name: String = char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect();
    Some(Partition {
        number,
        start: first.saturating_mul(sector),
        len: sectors.saturating_mul(sector),
        kind: PartitionType::Guid(guid_text(kind)),
        name: (!name.is_empty()).then_some(name),
    })
}

/// The usual text of a GUID, whose first three fields are little-endian.
fn guid_text(guid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    format!(
        "{:08x}-{:04x}-{:04x}-{}-{}",
        le_u32(guid, 0),
        le_u16(guid, 4),
        le_u16(guid, 6),
        hex(&guid[8..10]),
        hex(&guid[10..])
    )
}
