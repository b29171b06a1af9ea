//! `extant mv`.

use crate::args::{Mv, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::{Identity, Images, Problems};
use crate::operands::{expand, expand_one};
use crate::path::{destination, is_dir, last_name, look_at_link};
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem};
use extant_image::{ImageLocation, PartitionName};
use std::path::Path;

pub(super) fn run(args: &Mv, location: &Whereabouts) -> Outcome {
    let places = args
        .paths
        .iter()
        .map(|text| ImagePath::inside(text))
        .collect::<Outcome<Vec<_>>>()?;
    let Some((dest, sources)) = places.split_last().filter(|(_, others)| !others.is_empty()) else {
        return Err(Failure::usage("nothing to move: name a file and where to"));
    };
    if let Some(other) = sources.iter().find(|source| file(source) != file(dest)) {
        return Err(Failure::usage(format!(
            "{} and {} are two images, and files are moved within one: copy with `extant cp -a`, then \
             remove with `extant rm`",
            shown(&other.image),
            shown(&dest.image)
        )));
    }
    let mut images = Images::new(location);
    let verbose = Verbose::new(args.verbose);
    let done = all(args, &verbose, &mut images, sources, dest);
    verbose.finish(images.close(done))
}

/// The image's file, whatever it is called, and the partition on it.
fn file(place: &ImagePath) -> (Result<Identity, &ImageLocation>, Option<&PartitionName>) {
    let id = Identity::of(&place.image).ok_or(&place.image);
    (id, place.image.partition())
}

fn all(
    args: &Mv,
    verbose: &Verbose,
    images: &mut Images<'_>,
    sources: &[ImagePath],
    dest: &ImagePath,
) -> Outcome {
    let fs = images.writable(dest)?;
    if args.exchange {
        let [source] = sources else {
            return Err(Failure::usage("--exchange takes two names"));
        };
        let exchanged = fs.exchange(&source.path, &dest.path);
        exchanged.map_err(|e| source.failure(&e))?;
        verbose.tell(format_args!(
            "exchanged {} <-> {}",
            source.shown(),
            dest.shown()
        ));
        return Ok(());
    }
    let dest = &expand_one(&fs, dest)?;
    let into = is_dir(&fs, &dest.path).map_err(|e| dest.failure(&e))?;
    let mut problems = Problems::default();
    let mut expanded = Vec::new();
    for source in sources {
        match expand(&fs, source) {
            Ok(found) => expanded.extend(found),
            Err(failure) => problems.note(failure),
        }
    }
    let count = expanded.len().max(sources.len());
    if count > 1 && (args.no_target_directory || !into) {
        return Err(Failure::new(format!(
            "{} is not a directory, so it cannot take {count} files: make it first with `extant mkdir`",
            dest.shown(),
        )));
    }
    for source in &expanded {
        if last_name(&source.path).is_none() {
            problems.note(Failure::new(format!(
                "{} is not moved: name it by its own name, not by `.`, `..` or `/`",
                source.shown()
            )));
            continue;
        }
        let to = destination(&dest.path, into, args.no_target_directory, &source.path);
        let moved = one(args, &fs, source, &to, verbose);
        problems.check(moved);
    }
    problems.outcome()
}

fn one(args: &Mv, fs: &Filesystem, from: &ImagePath, to: &Path, verbose: &Verbose) -> Outcome {
    let tell = || {
        let (image, to) = (shown(&from.image), Escaped::path(to));
        verbose.tell(format_args!("renamed {} -> {image}:{to}", from.shown()))
    };
    let fail = |e: extant::Error| from.failure(&e);
    let source = fs.symlink_metadata(&from.path).map_err(fail)?;
    // Names what is missing, which renaming does not.
    fs.metadata(to.parent().unwrap_or(Path::new("/")))
        .map_err(fail)?;
    if let Some(there) = look_at_link(fs, to).map_err(fail)? {
        if args.no_clobber {
            return Ok(());
        }
        if there.ino() == source.ino() {
            return same_file(fs, from, to).inspect(|()| tell());
        }
    }
    fs.rename(&from.path, to).map_err(fail)?;
    tell();
    Ok(())
}

/// Two names of one file: the one that is moved goes. A name cannot be moved onto itself.
fn same_file(fs: &Filesystem, from: &ImagePath, to: &Path) -> Outcome {
    let fail = |e: extant::Error| from.failure(&e);
    let place = |path: &Path| -> Result<_, extant::Error> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        Ok((
            fs.metadata(parent)?.ino(),
            last_name(path).map(ToOwned::to_owned),
        ))
    };
    if place(&from.path).map_err(fail)? == place(to).map_err(fail)? {
        return Err(Failure::new(format!(
            "{} stays where it is: it would be moved onto itself",
            from.shown()
        )));
    }
    fs.remove_file(&from.path).map_err(fail)
}
