//! `extant fallocate`.

use crate::args::{Fallocate, Where};
use crate::failure::{Failure, Outcome};
use crate::images::change_each;
use crate::size;
use extant::OpenOptions;

pub(super) fn run(args: &Fallocate, place: &Where) -> Outcome {
    let len = size::parse(&args.length).map_err(Failure::usage)?;
    let at = size::parse(&args.at).map_err(Failure::usage)?;
    change_each(&args.paths, place, |fs, file, _| {
        OpenOptions::new()
            .write(true)
            .create(true)
            .open(fs, &file.path)
            .and_then(|file| match args.keep_size {
                true => file.allocate_keep_size(at, len),
                false => file.allocate(at, len),
            })
            .map_err(|e| file.failure(&e))
    })
}
