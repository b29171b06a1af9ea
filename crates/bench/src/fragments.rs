//! In how many pieces files and free space are.

use crate::peer::Figures;
use extant_blockdev::OpenSpec;
use extant_core::dir::Cookie;
use extant_core::fs::{Fs, MountOptions};
use extant_core::inode::FileType;
use extant_core::{Error, ops};
use extant_format::Ino;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

/// Pieces of the files of an image, and of its free space.
///
/// # Errors
/// When the image cannot be read, or `e2freefrag` fails.
pub(crate) fn figures(image: &Path) -> Result<Figures, String> {
    let mut figures = free(image)?;
    let (files, extents) = files(image).map_err(|e| format!("{}: {e}", image.display()))?;
    if files > 0 {
        figures.insert("files", files as f64);
        figures.insert("extents per file", extents as f64 / files as f64);
    }
    Ok(figures)
}

/// Regular files that have blocks, and their extents, however many records these take.
fn files(image: &Path) -> Result<(u64, u64), Error> {
    let device = OpenSpec::read_only(image).open()?;
    let fs = Fs::open(device, MountOptions::read_only())?;
    let (mut files, mut extents) = (0, 0);
    let mut dirs = vec![Ino::ROOT];
    while let Some(dir) = dirs.pop() {
        let dir = fs.inode(dir)?;
        let mut below = Vec::new();
        let _ = ops::readdir(&fs, &dir, Cookie::START, |entry| {
            if entry.name != b"." && entry.name != b".." {
                below.push(entry.ino);
            }
            ControlFlow::<()>::Continue(())
        })?;
        for ino in below {
            let inode = fs.inode(ino)?;
            match inode.file_type() {
                FileType::Directory => dirs.push(ino),
                FileType::Regular => {
                    let mut count = 0;
                    let mut end = None;
                    for piece in ops::allocated(&fs, &inode) {
                        let piece = piece?;
                        // A piece that goes on where the last one ended on the device is no other.
                        count += u64::from(end.is_none() || piece.device_offset != end);
                        end = piece.device_offset.map(|at| at + piece.len);
                    }
                    files += u64::from(count > 0);
                    extents += count;
                }
                _ => {}
            }
        }
    }
    Ok((files, extents))
}

/// What `e2freefrag` says: free extents, how large they are in the middle, and how much of the free
/// space lies in large ones.
fn free(image: &Path) -> Result<Figures, String> {
    let output = Command::new("e2freefrag")
        .arg(image)
        .output()
        .map_err(|e| format!("e2freefrag: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("e2freefrag: {}", said.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(parse(&text))
}

fn parse(text: &str) -> Figures {
    let mut figures = Figures::new();
    let number = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let (mut all, mut large) = (0.0, 0.0);
    for line in text.lines() {
        let Some((label, rest)) = line.split_once(':') else {
            continue;
        };
        match label {
            "Num. free extent" => figures.extend(number(rest).map(|n| ("free extents", n))),
            "Avg. free extent" => figures.extend(number(rest).map(|n| ("mean free extent KiB", n))),
            range if range.contains("...") => {
                let blocks = rest.split_whitespace().nth(1);
                let blocks = blocks.and_then(number).unwrap_or(0.0);
                all += blocks;
                // From 1 MiB on.
                if range.contains("M...") || range.contains("G...") {
                    large += blocks;
                }
            }
            _ => {}
        }
    }
    if all > 0.0 {
        figures.insert("free in extents of 1 MiB and more %", 100.0 * large / all);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_of_e2freefrag_is_added_up() {
        let text = "Device: x\nBlocksize: 4096 bytes\nTotal blocks: 1000\n\
                    Min. free extent: 8 KB \nMax. free extent: 3000 KB\nAvg. free extent: 1500 KB\n\
                    Num. free extent: 2\n\nHISTOGRAM OF FREE EXTENT SIZES:\n\
                    Extent Size Range :  Free extents   Free Blocks  Percent\n\
                    \u{20}   8K...   16K-  :             1             2    1.00%\n\
                    \u{20}   2M...    4M-  :             1           750   99.00%\n";
        let figures = parse(text);
        assert_eq!(figures["free extents"], 2.0);
        assert_eq!(figures["mean free extent KiB"], 1500.0);
        let large = figures["free in extents of 1 MiB and more %"];
        assert!((large - 100.0 * 750.0 / 752.0).abs() < 1e-9);
    }
}
