//! Which blocks are used, also as a block map of bmaptool.
//!
//! The format is that of version 2.0, as its header describes it
//! (<https://github.com/yoctoproject/bmaptool>): ranges of blocks with a SHA-256 each, and one over
//! the map itself, made with zeros in its own place.

use super::survey::{Kind, Survey};
use crate::args::Map;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use extant_blockdev::BlockDevice;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::Write;
use std::ops::Range;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Digits of a SHA-256.
const DIGITS: usize = 64;

/// All numbers are blocks.
#[derive(Serialize)]
struct Used {
    block_size: u32,
    blocks: u64,
    used_blocks: u64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    start: u64,
    len: u64,
}

/// Tells which blocks of a device are used: those that the file system does not call free, and all
/// that lies behind it.
pub(super) fn run(survey: &Survey, device: &dyn BlockDevice, args: &Map) -> Outcome {
    if !survey.problems.is_empty() {
        // A map that leaves out what is used loses data.
        return survey.outcome();
    }
    let blocks = device.size().div_ceil(survey.block_size.into());
    let ranges = ranges(survey, blocks);
    let mut output = Output::new();
    if args.bmap {
        let map = bmap(survey, device, blocks, &ranges)?;
        output.write_all(map.as_bytes())?;
    } else if args.json {
        output.json_pretty(&Used {
            block_size: survey.block_size,
            blocks,
            used_blocks: count(&ranges),
            runs: ranges.iter().map(run_of).collect(),
        })?;
    } else {
        writeln!(
            output,
            "{} of {blocks} blocks of {} bytes are used",
            count(&ranges),
            survey.block_size
        )?;
        writeln!(
            output,
            "{:>14} {:>14} {:>12}",
            "first block", "last block", "blocks"
        )?;
        for range in &ranges {
            let len = range.end - range.start;
            writeln!(
                output,
                "{:>14} {:>14} {len:>12}",
                range.start,
                range.end - 1
            )?;
        }
    }
    output.finish()
}

fn run_of(range: &Range<u64>) -> Run {
    Run {
        start: range.start,
        len: range.end - range.start,
    }
}

fn count(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn ranges(survey: &Survey, blocks: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let used = survey.runs.iter().filter(|run| run.kind != Kind::Free);
    let used = used.map(|run| run.start..run.start + run.len);
    let behind = survey.blocks..blocks;
    for run in used.chain(std::iter::once(behind).filter(|run| !run.is_empty())) {
        match ranges.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => ranges.push(run),
        }
    }
    ranges
}

/// The text of a block map.
fn bmap(
    survey: &Survey,
    device: &dyn BlockDevice,
    blocks: u64,
    ranges: &[Range<u64>],
) -> Outcome<String> {
    let mut text = String::from("<?xml version=\"1.0\" ?>\n<bmap version=\"2.0\">\n");
    let fields = [
        ("ImageSize", device.size()),
        ("BlockSize", survey.block_size.into()),
        ("BlocksCount", blocks),
        ("MappedBlocksCount", count(ranges)),
    ];
    for (name, value) in fields {
        let _ = writeln!(text, "    <{name}> {value} </{name}>");
    }
    text.push_str("    <ChecksumType> sha256 </ChecksumType>\n    <BmapFileChecksum> ");
    let place = text.len();
    text.push_str(&"0".repeat(DIGITS));
    text.push_str(" </BmapFileChecksum>\n    <BlockMap>\n");
    let mut piece = vec![0; PIECE];
    for range in ranges {
        let sum = checksum(device, range, survey.block_size.into(), &mut piece)?;
        let (first, last) = (range.start, range.end - 1);
        let _ = if first == last {
            writeln!(text, "        <Range chksum=\"{sum}\"> {first} </Range>")
        } else {
            writeln!(
                text,
                "        <Range chksum=\"{sum}\"> {first}-{last} </Range>"
            )
        };
    }
    text.push_str("    </BlockMap>\n</bmap>\n");
    let sum = digits(&Sha256::digest(text.as_bytes()));
    text.replace_range(place..place + DIGITS, &sum);
    Ok(text)
}

/// The SHA-256 of blocks, as far as the device goes.
fn checksum(
    device: &dyn BlockDevice,
    range: &Range<u64>,
    block: u64,
    piece: &mut [u8],
) -> Outcome<String> {
    let mut hash = Sha256::new();
    let end = (range.end * block).min(device.size());
    let mut at = range.start * block;
    while at < end {
        let len = piece
            .len()
            .min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let piece = &mut piece[..len];
        device.read_at(at, piece).map_err(Failure::new)?;
        hash.update(&*piece);
        at += len as u64;
    }
    Ok(digits(&hash.finalize()))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
