//! Partitions of whole-disk images: GPT, MBR and logical partitions.
//!
//! Everything here is read from the device and trusted with nothing: tables are bounded, ranges
//! are computed with overflow checks, and a partition that does not lie on the device is listed
//! but cannot be opened.
//!
//! # Sources
//! UEFI specification, chapter 5 (GUID partition table); the MBR has no specification but
//! its practice, of which Linux's numbering is followed: primary partitions are 1 to 4, logical
//! ones start at 5.

mod gpt;
mod mbr;

use crate::{BlockDevice, DeviceError, DeviceResult, SharedDevice, WindowDevice};
use mbr::Mbr;

/// Most partitions listed in errors.
const LISTED: usize = 16;

/// How a partition table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
}

/// What a partition says it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionType {
    /// GPT type, in its usual text form.
    Guid(String),
    /// MBR type.
    Byte(u8),
}

/// One partition as its table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// The number that Linux gives it; from 1, with gaps.
    pub number: u32,
    /// First byte on the device.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// What it says it holds.
    pub kind: PartitionType,
    /// GPT partitions may have a name.
    pub name: Option<String>,
}

/// A device's partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionTable {
    /// How it is written.
    pub kind: TableKind,
    /// Bytes per sector that the table counts in.
    pub sector: u32,
    /// Whether it was read from the GPT's backup, because the primary one is damaged.
    pub from_backup: bool,
    /// The partitions, ascending by number.
    pub partitions: Vec<Partition>,
}

/// Reads the partition table of a whole-disk image.
///
/// # Errors
/// `NoPartitionTable`, `BadPartitionTable`, or what reading gives.
pub fn list_partitions(device: &dyn BlockDevice) -> DeviceResult<PartitionTable> {
    let mbr = Mbr::read(device)?;
    // A protective MBR announces a GPT. Without any MBR a GPT is believed too; beside an
    // ordinary MBR it is a leftover of an earlier life of the disk.
    if mbr.as_ref().is_none_or(Mbr::is_protective)
        && let Some(table) = gpt::read(device, mbr.is_some())?
    {
        return Ok(table);
    }
    match mbr {
        Some(mbr) => mbr.partitions(device),
        None => Err(DeviceError::NoPartitionTable {
            device: device.name(),
        }),
    }
}

/// Opens partition `number` of a whole-disk image.
///
/// # Errors
/// As [`list_partitions`]; `NoSuchPartition`, which names those that exist; `BadWindow` if the
/// image is too short for the partition.
pub fn open_partition(device: SharedDevice, number: u32) -> DeviceResult<WindowDevice> {
    let table = list_partitions(&*device)?;
    match table
        .partitions
        .iter()
        .find(|partition| partition.number == number)
    {
        Some(found) => {
            let label = Some(format!("partition {number}"));
            WindowDevice::labelled(device, found.start, found.len, label)
        }
        None => Err(DeviceError::NoSuchPartition {
            device: device.name(),
            wanted: number,
            present: describe(&table.partitions),
        }),
    }
}

/// The partitions that exist, as a clause.
fn describe(partitions: &[Partition]) -> String {
    if partitions.is_empty() {
        return "its partition table is empty".to_owned();
    }
    let mut listed: Vec<String> = partitions
        .iter()
        .take(LISTED)
        .map(|p| format!("{} ({} bytes from {})", p.number, p.len, p.start))
        .collect();
    if partitions.len() > LISTED {
        listed.push(format!("{} more", partitions.len() - LISTED));
    }
    format!("it has {}", listed.join(", "))
}

/// Fixed-width little-endian numbers at fixed places of a sector; zero when out of bounds.
fn le_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn le_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}
