//! What single blocks are used for, and by which file.

use crate::args::{Map, Whereabouts};
use crate::commands::rescue;
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::record::lossless;
use extant_format::Pblk;
use extant_rescue::{BlockUse, Use};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Line {
    block: u64,
    used_for: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl Line {
    fn of(found: &BlockUse) -> Self {
        let (path, path_hex) = match found.path.as_deref().map(lossless) {
            Some((text, hex)) => (Some(text), hex),
            None => (None, None),
        };
        Self {
            block: found.block.get(),
            used_for: used_for(&found.used_for),
            inode: found.used_for.ino().map(extant_format::Ino::get),
            path,
            path_hex,
        }
    }
}

pub(super) fn run(args: &Map, from: &ImagePath, location: &Whereabouts) -> Outcome {
    if !from.is_root() {
        return Err(Failure::usage(
            "--block is about whole images: name IMAGE without a path",
        ));
    }
    if location.superblock.is_some() || location.mend {
        return Err(Failure::usage(
            "--block reads an image as it lies, by its first superblock: leave --superblock and \
             --mend out",
        ));
    }
    let blocks: Vec<Pblk> = args.block.iter().map(|&block| Pblk::new(block)).collect();
    let opened = rescue::open(&from.image, location)?;
    let found = opened
        .uses(&blocks)
        .map_err(|e| rescue::named(&from.image, e))?;
    let mut output = Output::new();
    for found in &found {
        if args.json {
            output.json_line(&Line::of(found))?;
            continue;
        }
        write!(
            output,
            "block {}: {}",
            found.block.get(),
            used_for(&found.used_for)
        )?;
        if let Some(path) = &found.path {
            output.write_all(b" ")?;
            output.name(path)?;
        }
        writeln!(output)?;
    }
    output.finish()
}

/// What a block is used for, in words. It may never have been used for anything.
fn used_for(of: &Use) -> String {
    match of {
        Use::Unowned => "nothing".to_owned(),
        of => rescue::used_for(of),
    }
}
