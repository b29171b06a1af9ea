//! Where one file's blocks lie.

use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::record::lossless;
use crate::size::human;
use extant::{Extent, Filesystem, Metadata};
use extant_core::ops;
use extant_format::Ino;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

#[derive(Serialize)]
struct FileMap {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    size: u64,
    block_size: u32,
    extents: Vec<Piece>,
}

/// All numbers are bytes.
#[derive(Serialize)]
struct Piece {
    offset: u64,
    len: u64,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_offset: Option<u64>,
}

pub(super) fn run(fs: &Filesystem, from: &ImagePath, as_json: bool) -> Outcome {
    let (metadata, extents) = looked_up(fs, from)?;
    let pieces = with_holes(&extents, metadata.len());
    let mut output = Output::new();
    if as_json {
        let (path, path_hex) = lossless(from.path.as_os_str().as_bytes());
        output.json_pretty(&FileMap {
            path,
            path_hex,
            size: metadata.len(),
            block_size: metadata.blksize(),
            extents: pieces,
        })?;
        return output.finish();
    }
    let block = u64::from(metadata.blksize()).max(1);
    writeln!(
        output,
        "{} bytes in {} extents; a block has {block} bytes",
        metadata.len(),
        extents.len()
    )?;
    writeln!(
        output,
        "{:>16} {:>12} {:>14} {:>12}",
        "offset", "length", "device block", "state"
    )?;
    for piece in &pieces {
        let at = piece
            .device_offset
            .map_or_else(|| "-".to_owned(), |offset| (offset / block).to_string());
        writeln!(
            output,
            "{:>16} {:>12} {at:>14} {:>12}",
            piece.offset,
            human(piece.len),
            piece.state
        )?;
    }
    output.finish()
}

/// What is known of a file or a directory, and where its blocks lie.
fn looked_up(fs: &Filesystem, from: &ImagePath) -> Outcome<(Metadata, Vec<Extent>)> {
    let metadata = fs.metadata(&from.path).map_err(|e| from.failure(&e))?;
    if metadata.is_dir() {
        let engine = fs.engine();
        let inode = engine.inode(Ino::new(metadata.ino()));
        let extents = inode.and_then(|inode| ops::allocated(engine, &inode).collect());
        let named = |e| Failure::new(format!("{}: {e}", from.shown()));
        return Ok((metadata, extents.map_err(named)?));
    }
    let file = fs.open_file(&from.path).map_err(|e| from.failure(&e))?;
    let extents = file.extents().map_err(|e| from.failure(&e))?;
    Ok((metadata, extents))
}

/// The extents with the holes between and behind them.
fn with_holes(extents: &[Extent], size: u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut at = 0;
    let hole = |from: u64, to: u64| Piece {
        offset: from,
        len: to - from,
        state: "hole",
        device_offset: None,
    };
    for extent in extents {
        if extent.offset > at {
            pieces.push(hole(at, extent.offset));
        }
        pieces.push(Piece {
            offset: extent.offset,
            len: extent.len,
            state: match (extent.unwritten, extent.device_offset) {
                (true, _) => "unwritten",
                (false, Some(_)) => "data",
                (false, None) => "inline",
            },
            device_offset: extent.device_offset,
        });
        at = extent.offset.saturating_add(extent.len).max(at);
    }
    if size > at {
        pieces.push(hole(at, size));
    }
    pieces
}
