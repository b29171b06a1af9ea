//! Marks that outlast a new file system at the front of a device: at its end, or in places that a
//! file system leaves as they are. A program that looks for them takes the device for what it was
//! before.

use super::{Content, marks};
use crate::{BlockDevice, DeviceResult};
use std::ops::Range;

/// A mark, and the bytes that have to be zeros for it to be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastingMark {
    /// What it says that the device is.
    pub content: Content,
    /// Where it lies.
    pub bytes: Range<u64>,
}

/// Bytes of a superblock of Linux' software RAID.
const RAID_LEN: u64 = 4096;
/// Superblocks of version 0.90 begin at a multiple of this, and have so many bytes behind them at
/// least.
const RAID_090_ALIGN: u64 = 64 << 10;
const RAID_MAGIC: u32 = 0xa92b_4efc;
/// Bytes of one of the four labels of a ZFS device, of which two are at each end.
const ZFS_LABEL: u64 = 256 << 10;
/// Where in a label the list begins that describes the pool.
const ZFS_LIST: u64 = 0x4000;
/// Where in a label uberblocks begin, and how far they are from each other at least.
const ZFS_UBERBLOCKS: u64 = 128 << 10;
const ZFS_UBERBLOCK: usize = 1024;
const ZFS_MAGIC: u64 = 0x00ba_b10c;
/// So many uberblocks are no chance.
const ZFS_ENOUGH: usize = 4;
const SECTOR: u64 = 512;

/// Finds the marks that would outlast a new file system at the front of `device`, each with its
/// place, ascending by kind.
///
/// # Errors
/// When it cannot be read.
pub fn lasting_marks(device: &dyn BlockDevice) -> DeviceResult<Vec<LastingMark>> {
    let mut found = Vec::new();
    gpt(device, &mut found)?;
    raid(device, &mut found)?;
    firmware_raid(device, &mut found)?;
    zfs(device, &mut found)?;
    Ok(found)
}

/// The bytes at `at`; zeros where the device has none.
fn read<const N: usize>(device: &dyn BlockDevice, at: u64) -> DeviceResult<[u8; N]> {
    let mut bytes = [0; N];
    let is_inside = at
        .checked_add(N as u64)
        .is_some_and(|end| end <= device.size());
    if is_inside {
        device.read_at(at, &mut bytes)?;
    }
    Ok(bytes)
}

fn gpt(device: &dyn BlockDevice, found: &mut Vec<LastingMark>) -> DeviceResult<()> {
    for sector in [SECTOR, 4096] {
        let Some(at) = device.size().checked_sub(sector) else {
            continue;
        };
        if read(device, at)? == *marks::GPT {
            found.push(LastingMark {
                content: Content::Gpt,
                bytes: at..at + sector,
            });
        }
    }
    Ok(())
}

/// Superblocks of Linux' software RAID that lie at the end: versions 1.0 and 0.90.
fn raid(device: &dyn BlockDevice, found: &mut Vec<LastingMark>) -> DeviceResult<()> {
    let size = device.size();
    let word = |bytes: &[u8; 8], at: usize| {
        let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
        found.map_or([0; 4], |word| *word)
    };
    let mut take = |at: u64| {
        found.push(LastingMark {
            content: Content::LinuxRaid,
            bytes: at..(at + RAID_LEN).min(size),
        });
    };
    let v1 = (size & !0xfff).checked_sub(8 << 10);
    if let Some(at) = v1 {
        let bytes = read(device, at)?;
        if u32::from_le_bytes(word(&bytes, 0)) == RAID_MAGIC
            && u32::from_le_bytes(word(&bytes, 4)) == 1
        {
            take(at);
        }
    }
    let v0 = (size / RAID_090_ALIGN).checked_sub(1);
    if let Some(at) = v0.map(|last| last * RAID_090_ALIGN) {
        let bytes = read(device, at)?;
        let first = word(&bytes, 0);
        // Its numbers are those of the processor that made it.
        let is_raid = [u32::from_le_bytes(first), u32::from_be_bytes(first)].contains(&RAID_MAGIC);
        if is_raid && word(&bytes, 4) == [0; 4] {
            take(at);
        }
    }
    Ok(())
}

/// What the firmware of controllers writes into the last sectors of the disks of a RAID: Intel's,
/// and the common format.
fn firmware_raid(device: &dyn BlockDevice, found: &mut Vec<LastingMark>) -> DeviceResult<()> {
    const INTEL: &[u8; 24] = b"Intel Raid ISM Cfg Sig. ";
    const COMMON: [u8; 4] = [0xde, 0x11, 0xde, 0x11];
    let mut take = |at: u64, len: u64| {
        found.push(LastingMark {
            content: Content::FirmwareRaid,
            bytes: at..at + len,
        });
    };
    for sector in [SECTOR, 4096] {
        if let Some(at) = device.size().checked_sub(2 * sector)
            && read(device, at)? == *INTEL
        {
            take(at, 2 * sector);
        }
    }
    for sectors in [1, 257] {
        let Some(at) = (device.size() / SECTOR).checked_sub(sectors) else {
            continue;
        };
        let mark: [u8; 4] = read(device, at * SECTOR)?;
        let mut swapped = mark;
        swapped.reverse();
        if [mark, swapped].contains(&COMMON) {
            take(at * SECTOR, SECTOR);
        }
    }
    Ok(())
}

fn zfs(device: &dyn BlockDevice, found: &mut Vec<LastingMark>) -> DeviceResult<()> {
    let labels = device.size() / ZFS_LABEL;
    if labels < 4 {
        return Ok(());
    }
    for label in [0, 1, labels - 2, labels - 1] {
        let at = label * ZFS_LABEL;
        if is_zfs_label(device, at)? {
            found.push(LastingMark {
                content: Content::Zfs,
                bytes: at..at + ZFS_LABEL,
            });
        }
    }
    Ok(())
}

/// Whether a label has the list that describes a pool, or its uberblocks.
fn is_zfs_label(device: &dyn BlockDevice, at: u64) -> DeviceResult<bool> {
    let list: [u8; marks::ZFS_LIST.len()] = read(device, at + ZFS_LIST + marks::ZFS_LIST_AT)?;
    if list == *marks::ZFS_LIST {
        return Ok(true);
    }
    let mut bytes = vec![0; (ZFS_LABEL - ZFS_UBERBLOCKS) as usize];
    device.read_at(at + ZFS_UBERBLOCKS, &mut bytes)?;
    let uberblocks = bytes.chunks(ZFS_UBERBLOCK).filter(|block| {
        block.first_chunk().is_some_and(|magic| {
            [u64::from_le_bytes(*magic), u64::from_be_bytes(*magic)].contains(&ZFS_MAGIC)
        })
    });
    Ok(uberblocks.count() >= ZFS_ENOUGH)
}
