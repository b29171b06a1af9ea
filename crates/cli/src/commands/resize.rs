//! `extant resize`. Its exit codes are those of `tune`.

use super::check::Bars;
use super::repair::{half_written, keep, seconds_now};
use super::tune::{coded, superblock_of};
use crate::args::{Resize, Where};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use extant::{Escaped, OpenSpec};
use extant_fsck::repair::{Options, resize};
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// What became of it.
#[derive(Serialize)]
struct Resized {
    block_size: u32,
    blocks_before: u64,
    blocks: u64,
}

pub(super) fn run(args: &Resize, place: &Where) -> Outcome {
    resize(args, place).map_err(coded)
}

fn resize(args: &Resize, place: &Where) -> Outcome {
    let image = Path::new(&args.image);
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", Escaped::path(image)));
    let spec = || {
        OpenSpec::read_write(image)
            .offset(place.offset)
            .partition(place.partition)
    };
    let mut device = spec().open().map_err(Failure::new)?;
    let sb = superblock_of(&*device).map_err(|e| named(&e))?;
    let block_size = u64::from(sb.block_size().bytes());
    let blocks = args.size.unwrap_or_else(|| device.size()) / block_size;
    let needed = blocks.saturating_mul(block_size);
    let mut was = None;
    if needed > device.size() {
        // Only a file that is nothing but a file system ends where that ends.
        was = lengthen(image, place, needed).map_err(|e| named(&e))?;
        drop(device);
        device = spec().open().map_err(Failure::new)?;
    }
    let bars = Bars::new("checking");
    let options = Options::default().now(seconds_now());
    let plan = resize::plan(device, blocks, options, &bars);
    bars.finish();
    let kept = plan.and_then(|plan| match &args.undo {
        Some(path) if plan.is_complete() => keep(path, &plan).map(|()| plan),
        _ => Ok(plan),
    });
    let plan = match kept {
        Ok(plan) if plan.is_complete() => plan,
        done => {
            // As if nothing had been tried; a file that is too long does no harm.
            let _ = was.map(|len| File::options().write(true).open(image)?.set_len(len));
            return Err(named(&match done {
                Ok(_) => "the file system would not be sound afterwards".to_owned(),
                Err(e) => e.to_string(),
            }));
        }
    };
    let written = plan.apply();
    written.map_err(|e| named(&half_written(args.undo.as_deref(), &e)))?;
    let now = superblock_of(&*plan.changes.device()).map_err(|e| named(&e))?;
    tell(
        args,
        &Resized {
            block_size: sb.block_size().bytes(),
            blocks_before: sb.blocks_count(),
            blocks: now.blocks_count(),
        },
    )
}

/// Makes the image longer; returns how long it was.
fn lengthen(image: &Path, place: &Where, len: u64) -> std::io::Result<Option<u64>> {
    let file = File::options().write(true).open(image)?;
    let about = file.metadata()?;
    if !about.is_file() || place.partition.is_some() || place.offset.is_some() {
        return Ok(None);
    }
    file.set_len(len)?;
    Ok(Some(about.len()))
}

fn tell(args: &Resize, resized: &Resized) -> Outcome {
    let mut output = Output::new();
    match args.json {
        true => output.json_pretty(resized)?,
        false => writeln!(
            output,
            "{} blocks of {} bytes, before {}",
            resized.blocks, resized.block_size, resized.blocks_before
        )?,
    }
    output.finish()
}
