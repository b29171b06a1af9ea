//! `extant trim`.

use super::check::Bars;
use super::tune::superblock_of;
use crate::args::{Trim, Whereabouts};
use crate::failure::{Failure, Outcome, in_image};
use crate::image_path::{ImagePath, how, refuse_reading_options, shown, whole_image};
use crate::keeping;
use crate::output::Output;
use crate::record::lossless;
use crate::size::human;
use extant_fsck::repair::trim::find;
use extant_image::ImageLocation;
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// What was given back, for programs: bytes.
#[derive(Debug, Serialize)]
struct Trimmed {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    dry_run: bool,
    /// Whether there was a journal to replay.
    replayed: bool,
    given_back: u64,
    free_blocks: u64,
    inode_tables: u64,
    log: u64,
    /// What the file of the image takes on the host; of no other image is that known.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_before: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<u64>,
}

pub(super) fn run(args: &Trim, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)?;
    let image = whole_image(args.image.as_ref())?;
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", shown(&image)));
    // Nobody may write while it is looked at.
    let how = how(location, &image, !args.dry_run).guarded(args.dry_run);
    let opened = image.open_disk(&how).map_err(Failure::new)?;
    let allocated_before = allocated(&image);
    let part = |how| image.part_of(Arc::clone(&opened.device), how);
    let mut device = part(&how).map_err(Failure::new)?;
    if !args.dry_run {
        device = keeping::over(device, location)?;
    }
    let sb = superblock_of(&*device).map_err(|e| named(&e))?;
    let replayed = sb.needs_recovery() && !args.dry_run;
    if replayed {
        let root = ImagePath::root_of(image.clone());
        let fs = root.open_writable_on(Arc::clone(&device), &opened.device, location)?;
        fs.close().map_err(|e| Failure::new(in_image(&image, &e)))?;
    }
    let bars = Bars::new("checking");
    let spare = find(device, &bars);
    bars.finish();
    let spare = spare.map_err(|e| named(&e))?;
    if !args.dry_run {
        spare.give_back().map_err(|e| named(&e))?;
    }
    let amounts = spare.amounts();
    let (name, name_hex) = lossless(image.name().as_bytes());
    let trimmed = Trimmed {
        image: name,
        image_hex: name_hex,
        dry_run: args.dry_run,
        replayed,
        given_back: amounts.total(),
        free_blocks: amounts.free,
        inode_tables: amounts.tables,
        log: amounts.log,
        allocated_before,
        allocated: allocated(&image),
    };
    tell(args, &image, &trimmed)
}

/// What a regular file takes on the host, in bytes.
fn allocated(image: &ImageLocation) -> Option<u64> {
    let found = image.path()?.metadata().ok()?;
    found.is_file().then(|| found.blocks() * 512)
}

fn tell(args: &Trim, image: &ImageLocation, trimmed: &Trimmed) -> Outcome {
    let mut output = Output::new();
    if args.json {
        output.json_line(trimmed)?;
        return output.finish();
    }
    output.name(image.name().as_bytes())?;
    if trimmed.given_back == 0 {
        writeln!(output, ": nothing to give back")?;
        return output.finish();
    }
    let done = if args.dry_run {
        "would be given back"
    } else {
        "given back"
    };
    write!(
        output,
        ": {} {done}: free blocks {}, inode tables {}, log {}",
        human(trimmed.given_back),
        human(trimmed.free_blocks),
        human(trimmed.inode_tables),
        human(trimmed.log)
    )?;
    if let (Some(before), Some(now), false) =
        (trimmed.allocated_before, trimmed.allocated, args.dry_run)
    {
        write!(
            output,
            "; {} on the disk, before {}",
            human(now),
            human(before)
        )?;
    }
    writeln!(output)?;
    output.finish()
}
