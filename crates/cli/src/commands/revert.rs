//! `extant revert`.

use crate::args::{Revert, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, refuse_reading_options, shown, whole_image};
use crate::output::Output;
use extant_fsck::repair::revert;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;

pub(super) fn run(args: &Revert, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)?;
    let image = whole_image(args.image.as_ref())?;
    let device = image.open(&how(location, &image, true));
    let device = device.map_err(Failure::new)?;
    let done = revert(&*device, || Ok(BufReader::new(File::open(&args.file)?)));
    let blocks = done.map_err(|e| Failure::new(format!("{}: {e}", shown(&image))))?;
    let mut output = Output::new();
    if args.json {
        writeln!(output, "{{\"restored_blocks\":{blocks}}}")?;
    } else if !args.quiet {
        output.name(image.name().as_bytes())?;
        writeln!(output, ": {blocks} blocks are as they were before")?;
    }
    output.finish()
}
