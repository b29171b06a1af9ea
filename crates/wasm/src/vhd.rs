//! The disk in a VHD, fixed or dynamic, for reading.
//!
//! Fields are those of Microsoft's "Virtual Hard Disk Image Format Specification" (version 1.0).
//! `extant-formats` reads and writes such images too, on systems that have files; this reader needs
//! none.

use crate::failure::{Failure, Told};
use crate::mapped::{Map, Mapped, broken, field, first};
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice, WindowDevice};
use std::sync::Arc;

const SECTOR: u64 = 512;

/// Bytes of the header of a dynamic disk.
const HEADER: usize = 1024;

/// Most entries of a table: 2 TiB in blocks of 512 KiB.
const MOST_BLOCKS: u64 = 1 << 22;

/// An entry of the table that stands for no block.
const NONE: u32 = u32::MAX;

/// Bytes of a bitmap that are looked at together.
const LOOKED_AT: u64 = 512;

/// Sectors that the largest geometry has: 65,535 cylinders, 16 heads, 255 sectors.
const MOST_BY_GEOMETRY: u64 = 65_535 * 16 * 255;

/// Programs that mean the size in the footer, and not the product of the geometry, as QEMU takes
/// them.
const EXACT: [&[u8; 4]; 6] = [b"qem2", b"win ", b"d2v ", b"tap\0", b"CTXS", b"wa\0\0"];

/// The blocks of a dynamic disk.
#[derive(Debug)]
struct Blocks {
    block: u64,
    /// Bytes of the bitmap in front of a block.
    bitmap: u64,
    /// Sectors where they are.
    table: Vec<u32>,
}

fn damaged(why: String) -> Failure {
    Failure::damaged(format!("the VHD is damaged: {why}"))
}

/// Whether the one's complement of the sum of all bytes, without those of the sum itself, is the
/// sum that stands at a place.
fn is_sound(bytes: &[u8], at: usize) -> bool {
    let add = |sum: u32, byte: &u8| sum.wrapping_add(u32::from(*byte));
    let all = bytes.iter().fold(0, add);
    let own = field::<4>(bytes, at);
    u32::from_be_bytes(own) == !all.wrapping_sub(own.iter().fold(0, add))
}

/// A footer, as a sector has it.
type Footer = [u8; SECTOR as usize];

/// The footer in the sector at a place, if a sound one is there.
fn footer_at(file: &dyn BlockDevice, at: u64) -> Told<Option<Footer>> {
    let mut sector = [0; SECTOR as usize];
    file.read_at(at, &mut sector)?;
    let is_footer = sector.starts_with(b"conectix") && is_sound(&sector, 64);
    Ok(is_footer.then_some(sector))
}

/// Whether a footer is that of a fixed disk with so many bytes in front of it.
fn is_fixed_of(footer: &Footer, bytes: u64) -> bool {
    u32::from_be_bytes(field(footer, 60)) == 2 && u64::from_be_bytes(field(footer, 48)) == bytes
}

/// Whether a file, which begins as its disk does, is a fixed VHD.
pub(crate) fn is_fixed(file: &dyn BlockDevice) -> Told<bool> {
    let Some(last) = file.size().checked_sub(SECTOR).filter(|last| *last > 0) else {
        return Ok(false);
    };
    Ok(footer_at(file, last)?.is_some_and(|footer| is_fixed_of(&footer, last)))
}

/// The footer: the last sector, or its copy in the first one.
fn footer(file: &dyn BlockDevice) -> Told<Footer> {
    let last = file.size().checked_sub(SECTOR);
    let last = last.ok_or_else(|| damaged(format!("it has {} bytes", file.size())))?;
    let at_end = footer_at(file, last)?;
    // In front of a footer that has just so many bytes before it is the disk's own content.
    if let Some(footer) = at_end
        && is_fixed_of(&footer, last)
    {
        return Ok(footer);
    }
    let found = footer_at(file, 0)?.or(at_end);
    found.ok_or_else(|| damaged("neither its footer nor the copy of that is sound".to_owned()))
}

/// Opens the disk, and says what it is called.
pub(crate) fn open(file: SharedDevice) -> Told<(SharedDevice, &'static str)> {
    let footer = footer(&*file)?;
    let word = |at| u32::from_be_bytes(field(&footer, at));
    let long = |at| u64::from_be_bytes(field(&footer, at));
    let stated = long(48);
    let geometry = u64::from(u16::from_be_bytes(field(&footer, 56)))
        * u64::from(footer[58])
        * u64::from(footer[59]);
    let is_exact = EXACT.iter().any(|name| **name == field::<4>(&footer, 28));
    let size = if is_exact || geometry == MOST_BY_GEOMETRY {
        stated / SECTOR * SECTOR
    } else {
        geometry * SECTOR
    };
    let room = file.size() - SECTOR;
    match word(60) {
        2 => {
            let size = if stated == room {
                room / SECTOR * SECTOR
            } else {
                size
            };
            if size == 0 || size > room {
                let why = format!("its disk has {size} bytes, and {room} are there");
                return Err(damaged(why));
            }
            let window = WindowDevice::new(file, 0, size)?.read_only();
            Ok((Arc::new(window), "vhd-fixed"))
        }
        3 => Ok((Arc::new(dynamic(file, long(16), size)?), "vhd")),
        4 => Err(Failure::unsupported(
            "this is a differencing VHD, which needs its parent: merge it into that first",
        )),
        kind => Err(Failure::unsupported(format!(
            "this is a VHD of the type {kind}, and only fixed (2) and dynamic (3) ones are known"
        ))),
    }
}

/// Opens a dynamic disk of so many bytes, whose header is at a place.
fn dynamic(file: SharedDevice, at: u64, size: u64) -> Told<Mapped<impl Map>> {
    let end = file.size();
    if at.checked_add(HEADER as u64).is_none_or(|last| last > end) {
        return Err(damaged(format!("its header would be at byte {at}")));
    }
    let mut header = [0; HEADER];
    file.read_at(at, &mut header)?;
    if !header.starts_with(b"cxsparse") || !is_sound(&header, 36) {
        return Err(damaged("its header is not sound".to_owned()));
    }
    let table_at = u64::from_be_bytes(field(&header, 16));
    let entries = u64::from(u32::from_be_bytes(field(&header, 28)));
    let block = u64::from(u32::from_be_bytes(field(&header, 32)));
    if !block.is_power_of_two() || !(SECTOR..=1 << 30).contains(&block) {
        return Err(damaged(format!("its blocks have {block} bytes")));
    }
    let blocks = size.div_ceil(block);
    if size == 0 || blocks > entries {
        let why = format!("its disk has {size} bytes, and its table {entries} entries");
        return Err(damaged(why));
    }
    let behind = table_at.checked_add(blocks.saturating_mul(4));
    if blocks > MOST_BLOCKS || behind.is_none_or(|last| last > end) {
        let why = format!("its table of {blocks} entries would be at byte {table_at}");
        return Err(damaged(why));
    }
    let mut table = vec![0; blocks as usize * 4];
    file.read_at(table_at, &mut table)?;
    let (entries, _) = table.as_chunks::<4>();
    let map = Blocks {
        block,
        bitmap: (block / SECTOR).div_ceil(8).next_multiple_of(SECTOR),
        table: entries
            .iter()
            .map(|&entry| u32::from_be_bytes(entry))
            .collect(),
    };
    Ok(Mapped::new(file, size, map))
}

impl Map for Blocks {
    fn fill(&self, file: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> DeviceResult<usize> {
        let within = at % self.block;
        let entry = usize::try_from(at / self.block).ok();
        let entry = entry.and_then(|number| self.table.get(number));
        let entry = *entry.unwrap_or(&NONE);
        let part = first(buf, self.block - within);
        if entry == NONE {
            part.fill(0);
            return Ok(part.len());
        }
        // A bit of the bitmap says whether a sector was ever written.
        let place = u64::from(entry) * SECTOR;
        let sector = within / SECTOR;
        let from = sector / 8;
        let mut bits = [0; LOOKED_AT as usize];
        let bits = first(&mut bits, self.bitmap - from);
        file.read_at(place + from, bits)?;
        let is_set = |sector: u64| {
            let byte = bits.get((sector / 8 - from) as usize).copied();
            byte.map(|byte| byte << (sector % 8) & 0x80 != 0)
        };
        let Some(is_written) = is_set(sector) else {
            return Err(broken(file, at, 1, "a bitmap of the VHD is cut".to_owned()));
        };
        let mut end = sector + 1;
        while end * SECTOR < within + part.len() as u64 && is_set(end) == Some(is_written) {
            end += 1;
        }
        let part = first(part, end * SECTOR - within);
        if is_written {
            file.read_at(place + self.bitmap + within, part)?;
        } else {
            part.fill(0);
        }
        Ok(part.len())
    }
}
