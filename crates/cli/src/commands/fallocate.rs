//! `extant fallocate`.

use crate::args::{Fallocate, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::images::change_each;
use crate::size;
use extant::{File, OpenOptions};

pub(super) fn run(args: &Fallocate, location: &Whereabouts) -> Outcome {
    let len = size::parse(&args.length).map_err(Failure::usage)?;
    let at = size::parse(&args.at).map_err(Failure::usage)?;
    let changes_content = args.punch_hole || args.collapse_range || args.insert_range;
    change_each(&args.paths, location, |fs, file, _| {
        OpenOptions::new()
            .write(true)
            // Where there is no file there is nothing to take out.
            .create(!changes_content)
            .open(fs, &file.path)
            .and_then(|file| change(args, &file, at, len))
            .map_err(|e| file.failure(&e))
    })
}

fn change(args: &Fallocate, file: &File, at: u64, len: u64) -> extant::Result<()> {
    if args.punch_hole {
        file.punch_hole(at, len)
    } else if args.collapse_range {
        file.collapse_range(at, len)
    } else if args.insert_range {
        file.insert_range(at, len)
    } else {
        match (args.zero_range, args.keep_size) {
            (true, true) => file.zero_range_keep_size(at, len),
            (true, false) => file.zero_range(at, len),
            (false, true) => file.allocate_keep_size(at, len),
            (false, false) => file.allocate(at, len),
        }
    }
}
