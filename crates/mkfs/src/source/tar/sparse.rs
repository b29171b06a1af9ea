//! Where the stored bytes of a sparse member belong.

use super::header::{BLOCK, Kind, unsigned};
use super::input::Input;
use super::pax::parse_decimal;
use super::{Checked, Member};

/// Bytes of an entry of an old GNU map: offset and length, 12 digits each.
const ENTRY: usize = 24;

/// Most runs of one member: a file of 128 GiB in which every second block is a hole.
const RUNS_MAX: usize = 1 << 24;

/// The layout of a regular member.
#[derive(Debug, Default)]
pub(super) struct Map {
    /// Size of the file.
    pub(super) size: u64,
    /// Stored runs in ascending order: offset in the file and length, not 0.
    pub(super) runs: Vec<(u64, u64)>,
    /// How much of the member's data is the map itself, and has been read.
    pub(super) header_bytes: u64,
}

impl Map {
    /// Adds a run; one of no bytes (which ends some maps) says nothing.
    fn push(&mut self, offset: u64, len: u64) -> Checked<()> {
        if self.runs.len() >= RUNS_MAX {
            return Err(format!("sparse map of more than {RUNS_MAX} runs").into());
        }
        if len > 0 {
            self.runs.push((offset, len));
        }
        Ok(())
    }
}

/// The map of a member; its parts that are stored before the data are read.
pub(super) fn map_of(input: &mut Input, member: &Member) -> Checked<Map> {
    let keys = &member.pax.sparse;
    let map = if member.header.kind == Kind::OldSparse {
        old_gnu(input, member)?
    } else if let Some(major) = keys.major {
        let minor = keys.minor.unwrap_or(0);
        if (major, minor) != (1, 0) {
            return Err(format!("sparse map of version {major}.{minor}, expected 1.0").into());
        }
        in_data(input, member)?
    } else if let Some(numbers) = &keys.map {
        if !numbers.len().is_multiple_of(2) {
            return Err("sparse map with an offset but no length at its end".into());
        }
        let mut map = Map {
            size: keys.size.ok_or("sparse map without GNU.sparse.size")?,
            ..Map::default()
        };
        for entry in numbers.chunks_exact(2) {
            map.push(entry[0], entry[1])?;
        }
        map
    } else {
        let size = member.stored;
        return Ok(Map {
            size,
            runs: if size == 0 {
                Vec::new()
            } else {
                vec![(0, size)]
            },
            header_bytes: 0,
        });
    };
    check(map, member.stored)
}

/// Offsets ascend, nothing lies beyond the size, and the lengths add up to what is stored.
fn check(map: Map, stored: u64) -> Checked<Map> {
    let mut end = 0u64;
    let mut sum = map.header_bytes;
    for &(offset, len) in &map.runs {
        if offset < end {
            return Err(format!("sparse map: offset {offset}, expected at least {end}").into());
        }
        end = offset
            .checked_add(len)
            .filter(|&end| end <= map.size)
            .ok_or_else(|| {
                format!(
                    "sparse map: {len} bytes at offset {offset}, beyond the size {}",
                    map.size
                )
            })?;
        sum = sum.saturating_add(len);
    }
    if sum != stored {
        return Err(format!("sparse map: {sum} bytes in it, but {stored} are stored").into());
    }
    Ok(map)
}

/// Four entries in the header, then blocks of 21.
fn old_gnu(input: &mut Input, member: &Member) -> Checked<Map> {
    let header = &member.header.block;
    let mut map = Map {
        size: unsigned("real size", &header[483..495])?,
        ..Map::default()
    };
    let mut more = old_entries(&header[386..386 + 4 * ENTRY], header[482], &mut map)?;
    while more {
        let mut block = [0; BLOCK];
        input.read_exact(&mut block)?;
        more = old_entries(&block[..21 * ENTRY], block[504], &mut map)?;
    }
    Ok(map)
}

fn old_entries(bytes: &[u8], continued: u8, map: &mut Map) -> Checked<bool> {
    for entry in bytes.chunks_exact(ENTRY) {
        // A length of nothing at all ends the map.
        if entry[12] == 0 {
            break;
        }
        map.push(
            unsigned("sparse offset", &entry[..12])?,
            unsigned("sparse length", &entry[12..])?,
        )?;
    }
    Ok(continued != 0 && continued != b'0')
}

/// Lines of decimal numbers before the data: how many entries, then offset and length of each.
fn in_data(input: &mut Input, member: &Member) -> Checked<Map> {
    let mut lines = Lines {
        input,
        block: [0; BLOCK],
        at: BLOCK,
        read: 0,
        stored: member.stored,
    };
    let count = lines.number()?;
    let mut map = Map {
        size: member
            .pax
            .sparse
            .size
            .ok_or("sparse map without GNU.sparse.realsize")?,
        ..Map::default()
    };
    for _ in 0..count {
        map.push(lines.number()?, lines.number()?)?;
    }
    map.header_bytes = lines.read;
    Ok(map)
}

struct Lines<'a> {
    input: &'a mut Input,
    block: [u8; BLOCK],
    at: usize,
    read: u64,
    stored: u64,
}

impl Lines<'_> {
    fn number(&mut self) -> Checked<u64> {
        let mut digits = Vec::with_capacity(20);
        loop {
            match self.byte()? {
                b'\n' => break,
                byte if digits.len() < 20 => digits.push(byte),
                _ => break,
            }
        }
        parse_decimal(&digits).ok_or_else(|| {
            let text = String::from_utf8_lossy(&digits);
            format!("sparse map: line {text:?}, expected a number").into()
        })
    }

    fn byte(&mut self) -> Checked<u8> {
        if self.at == BLOCK {
            self.read += BLOCK as u64;
            if self.read > self.stored {
                return Err("sparse map: longer than the member".into());
            }
            self.input.read_exact(&mut self.block)?;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}
