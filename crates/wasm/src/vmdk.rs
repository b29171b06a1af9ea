//! The disk in a sparse VMDK, which may be compressed ("stream-optimized"), for reading.
//!
//! Fields are those of VMware's "Virtual Disk Format 5.0", "Hosted Sparse Extents" and
//! "Stream-Optimized Compressed Sparse Extents". Disks of several files, of which a page has one,
//! are refused, and so is what stands on a parent.

use crate::failure::{Failure, Told};
use crate::mapped::{Map, Mapped, broken, field, first};
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_PARSE_ZLIB_HEADER, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

const SECTOR: u64 = 512;

/// Most bytes of the directory of grain tables: a disk of 2 TiB in usual grains has 256 KiB.
const MOST_DIRECTORY: u64 = 16 << 20;

/// Most bytes of a grain; programs make them of 64 KiB.
const MOST_GRAIN: u64 = 16 << 20;

/// Longest description that is looked at.
const LONGEST: u64 = 64 << 10;

/// Flags of the header.
const HAS_ZERO_GRAINS: u32 = 1 << 2;
const IS_COMPRESSED: u32 = 1 << 16;

/// The directory of a stream is behind it.
const AT_END: u64 = u64::MAX;

/// Bytes in front of a compressed grain: its sector on the disk, and its length.
const GRAIN_HEADER: u64 = 12;

/// The grains of a disk.
#[derive(Debug)]
struct Grains {
    /// Bytes of a grain.
    grain: u64,
    /// Grains of a table.
    per_table: u64,
    /// Sectors where the tables are.
    directory: Vec<u32>,
    has_zero_grains: bool,
    is_compressed: bool,
}

fn damaged(why: String) -> Failure {
    Failure::damaged(format!("the VMDK is damaged: {why}"))
}

fn refused(what: &str) -> Failure {
    Failure::unsupported(format!(
        "this is a VMDK that {what}; convert it first: qemu-img convert -O qcow2 OLD NEW"
    ))
}

/// Opens the disk.
pub(crate) fn open(file: SharedDevice) -> Told<Mapped<impl Map>> {
    let mut header = sector(&*file, 0)?;
    if !header.starts_with(b"KDMV") {
        return Err(refused("has a format of old servers"));
    }
    if u64::from_le_bytes(field(&header, 56)) == AT_END {
        let at = file.size().checked_sub(2 * SECTOR);
        let at = at.ok_or_else(|| damaged("its end is missing".to_owned()))?;
        header = sector(&*file, at)?;
        if !header.starts_with(b"KDMV") {
            return Err(damaged("its end is missing: it was cut".to_owned()));
        }
    }
    let word = |at| u32::from_le_bytes(field(&header, at));
    let long = |at| u64::from_le_bytes(field(&header, at));
    if !(1..=3).contains(&word(4)) {
        return Err(refused(&format!("has the version {}", word(4))));
    }
    let flags = word(8);
    let algorithm = u16::from_le_bytes(field(&header, 77));
    if flags & IS_COMPRESSED != 0 && algorithm != 1 {
        return Err(refused("is compressed in a way that is not known"));
    }
    check_description(&*file, long(28), long(36))?;
    let (sectors, grain, per_table) = (long(12), long(20), u64::from(word(44)));
    let grain = grain
        .checked_mul(SECTOR)
        .filter(|bytes| (SECTOR..=MOST_GRAIN).contains(bytes));
    let grain = grain.ok_or_else(|| damaged(format!("its grains have {} sectors", long(20))))?;
    let size = sectors.checked_mul(SECTOR).filter(|size| *size > 0);
    let size = size.ok_or_else(|| damaged(format!("its disk has {sectors} sectors")))?;
    if !(1..=1 << 20).contains(&per_table) {
        return Err(damaged(format!("its tables have {per_table} entries")));
    }
    let tables = size.div_ceil(grain * per_table);
    let at = long(56).checked_mul(SECTOR);
    let lies_in = |at: u64| {
        at.checked_add(tables * 4)
            .is_some_and(|last| last <= file.size())
    };
    let at = at.filter(|at| tables <= MOST_DIRECTORY / 4 && lies_in(*at));
    let at = at.ok_or_else(|| damaged("its directory does not lie in the file".to_owned()))?;
    let mut directory = vec![0; tables as usize * 4];
    file.read_at(at, &mut directory)?;
    let (directory, _) = directory.as_chunks::<4>();
    let map = Grains {
        grain,
        per_table,
        directory: directory
            .iter()
            .map(|&entry| u32::from_le_bytes(entry))
            .collect(),
        has_zero_grains: flags & HAS_ZERO_GRAINS != 0,
        is_compressed: flags & IS_COMPRESSED != 0,
    };
    Ok(Mapped::new(file, size, map))
}

fn sector(file: &dyn BlockDevice, at: u64) -> Told<[u8; SECTOR as usize]> {
    if at + SECTOR > file.size() {
        return Err(damaged(format!("it has {} bytes", file.size())));
    }
    let mut sector = [0; SECTOR as usize];
    file.read_at(at, &mut sector)?;
    Ok(sector)
}

/// Refuses what the description inside says to be a part of something.
fn check_description(file: &dyn BlockDevice, at: u64, sectors: u64) -> Told<()> {
    let one_of_several = || {
        Failure::unsupported(
            "this is one of the files of a VMDK disk: convert the disk to one file first \
             (qemu-img convert -O qcow2 DESCRIPTION NEW)",
        )
    };
    if at == 0 || sectors == 0 {
        return Err(one_of_several());
    }
    let from = at.saturating_mul(SECTOR);
    let left = file.size().saturating_sub(from);
    let mut text = vec![0; sectors.saturating_mul(SECTOR).min(LONGEST).min(left) as usize];
    file.read_at(from, &mut text)?;
    for line in text.split(|&byte| byte == b'\n' || byte == 0) {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        match (name.trim(), value.trim().trim_matches('"')) {
            ("parentcid", parent) if parent != "ffffffff" => {
                return Err(refused("stands on another one"));
            }
            ("createtype", kind) if kind != "monolithicsparse" && kind != "streamoptimized" => {
                return Err(one_of_several());
            }
            _ => {}
        }
    }
    Ok(())
}

impl Grains {
    /// Where a grain is: its sector in the file, 0 for one of zeros.
    fn find(&self, file: &dyn BlockDevice, number: u64) -> DeviceResult<u32> {
        let table = usize::try_from(number / self.per_table).ok();
        let table = table.and_then(|table| self.directory.get(table));
        let table = table.copied().unwrap_or(0);
        if table == 0 || table == 1 && self.has_zero_grains {
            return Ok(0);
        }
        let mut entry = [0; 4];
        let within = number % self.per_table * 4;
        file.read_at(u64::from(table) * SECTOR + within, &mut entry)?;
        Ok(match u32::from_le_bytes(entry) {
            1 if self.has_zero_grains => 0,
            sector => sector,
        })
    }

    /// Decompresses the grain at a place.
    fn decompressed(&self, file: &dyn BlockDevice, at: u64) -> DeviceResult<Vec<u8>> {
        let mut header = [0; GRAIN_HEADER as usize];
        file.read_at(at, &mut header)?;
        let len = u64::from(u32::from_le_bytes(field(&header, 8)));
        let wrong = || broken(file, at, len, "a grain of the VMDK is damaged".to_owned());
        // What does not get smaller gets hardly larger.
        if len > 2 * self.grain + SECTOR {
            return Err(wrong());
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(at + GRAIN_HEADER, &mut bytes)?;
        let mut grain = vec![0; self.grain as usize];
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | TINFL_FLAG_PARSE_ZLIB_HEADER;
        let mut oxide = Box::new(DecompressorOxide::new());
        let (status, _, _) = decompress(&mut oxide, &bytes, &mut grain, 0, flags);
        // The last one of a disk may be shorter.
        if status == TINFLStatus::Done {
            Ok(grain)
        } else {
            Err(wrong())
        }
    }
}

impl Map for Grains {
    fn fill(&self, file: &dyn BlockDevice, at: u64, buf: &mut [u8]) -> DeviceResult<usize> {
        let within = at % self.grain;
        let part = first(buf, self.grain - within);
        let place = u64::from(self.find(file, at / self.grain)?) * SECTOR;
        if place == 0 {
            part.fill(0);
        } else if self.is_compressed {
            let grain = self.decompressed(file, place)?;
            let from = grain.iter().skip(within as usize);
            part.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        } else {
            file.read_at(place + within, part)?;
        }
        Ok(part.len())
    }
}
