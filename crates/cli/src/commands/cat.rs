//! `extant cat`.

use crate::args::{Cat, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::ImagePath;
use crate::operands::read_each;
use crate::output::Output;
use extant::Filesystem;
use std::io::Write;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

pub(super) fn run(args: &Cat, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let done = read_each(&args.paths, location, |fs, from| {
        one(fs, from, args.verify, &mut output)
    });
    output.finish()?;
    done
}

fn one(fs: &Filesystem, from: &ImagePath, verify: bool, output: &mut Output) -> Outcome {
    let file = fs.open_file(&from.path).map_err(|e| from.failure(&e))?;
    let size = usize::try_from(file.metadata().len()).unwrap_or(usize::MAX);
    let mut buffer = vec![0; size.clamp(1, CHUNK)];
    let mut sealed = if verify {
        file.fs_verity().map_err(|e| from.failure(&e))?
    } else {
        None
    };
    let mut at = 0;
    loop {
        let read = match &mut sealed {
            Some(sealed) => sealed.read_at(&mut buffer, at),
            None => file.read_at(&mut buffer, at),
        };
        let read = read.map_err(|e| from.failure(&e))?;
        if read == 0 && fs.is_in_doubt(file.metadata().ino()) {
            return Err(Failure::new(format!(
                "{}: where its content lies was mended: parts of it may be missing, or another file's",
                from.shown()
            )));
        }
        if read == 0 {
            return Ok(());
        }
        output.write_all(buffer.get(..read).unwrap_or(&buffer))?;
        at += read as u64;
    }
}
