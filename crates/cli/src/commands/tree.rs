//! `extant tree`.

use crate::args::{Tree, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::operands::read_each;
use crate::output::Output;
use extant::{FileType, Filesystem};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

pub(super) fn run(args: &Tree, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let mut is_first = true;
    let done = read_each(&args.paths, location, |fs, from| {
        if !std::mem::take(&mut is_first) {
            output.write_all(b"\n")?;
        }
        draw(args, fs, from, &mut output)
    });
    output.finish()?;
    done
}

fn draw(args: &Tree, fs: &Filesystem, from: &ImagePath, output: &mut Output) -> Outcome {
    let mut walk = fs.walk(&from.path).map_err(|e| from.failure(&e))?;
    if args.max_depth.is_none() {
        walk = walk.whole();
    }
    // For each level above the current one: whether more names come after it.
    let mut more: Vec<bool> = Vec::new();
    let (mut directories, mut files, mut all_done) = (0u64, 0u64, true);
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                say(in_image(&from.image, &e));
                all_done = false;
                continue;
            }
        };
        let is_dir = entry.file_type() == FileType::Directory;
        let depth = entry.depth();
        if args.max_depth.is_some_and(|most| depth >= most) {
            walk.skip_children();
        }
        if args.dirs && !is_dir {
            continue;
        }
        more.truncate(depth.saturating_sub(1));
        for &more in &more {
            output.write_all(if more { "│   " } else { "    " }.as_bytes())?;
        }
        if depth == 0 {
            output.name(entry.path_bytes())?;
        } else {
            let branch = if entry.is_last() {
                "└── "
            } else {
                "├── "
            };
            output.write_all(branch.as_bytes())?;
            output.name(entry.file_name().as_bytes())?;
            more.push(!entry.is_last());
            if is_dir {
                directories += 1;
            } else {
                files += 1;
            }
        }
        if entry.file_type() == FileType::Symlink {
            let target = entry.read_link().map_err(|e| from.failure(&e))?;
            output.write_all(b" -> ")?;
            output.name(&target)?;
        }
        output.write_all(b"\n")?;
    }
    writeln!(
        output,
        "\n{directories} {}, {files} {}",
        if directories == 1 {
            "directory"
        } else {
            "directories"
        },
        if files == 1 { "file" } else { "files" },
    )?;
    if all_done { Ok(()) } else { Err(Failure::Said) }
}
