//! `extant ln`.

use crate::args::{Ln, Whereabouts};
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, shown};
use crate::images::{Images, Problems, is_in_the_way};
use crate::operands::{expand, expand_one};
use crate::owner::{Giving, Owner};
use crate::path::{destination, is_dir, look_at_link};
use crate::verbose::Verbose;
use extant::{Escaped, Filesystem, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) fn run(args: &Ln, location: &Whereabouts) -> Outcome {
    let Some((link, targets)) = args
        .paths
        .split_last()
        .filter(|(_, others)| !others.is_empty())
    else {
        return Err(Failure::usage("nothing to link: name a target and a link"));
    };
    let link = ImagePath::inside(link)?;
    let targets = targets
        .iter()
        .map(|text| target(args, text, &link))
        .collect::<Outcome<Vec<_>>>()?;
    let giving = Giving::of(&args.owner)?;
    if giving.is_asked_for() && !args.symbolic {
        return Err(Failure::usage(
            "--owner and --group are about symbolic links: change the owner of the file that a hard \
             link is with `extant chown`",
        ));
    }
    let mut images = Images::new(location);
    let verbose = Verbose::new(args.verbose);
    let done = all(args, &giving, &verbose, &mut images, &targets, &link);
    verbose.finish(images.close(done))
}

/// What a link is to point to: for a symbolic one the text, otherwise the path in the image.
fn target(args: &Ln, text: &OsString, link: &ImagePath) -> Outcome<PathBuf> {
    let inside = ImagePath::inside_if_any(text)?;
    match (args.symbolic, inside) {
        (true, Some(place)) => Err(Failure::usage(format!(
            "the target of a symbolic link is a path as seen inside the image: write {} and not {}",
            Escaped::path(&place.path),
            place.shown()
        ))),
        (true, None) => Ok(PathBuf::from(text)),
        (false, Some(place)) if place.image == link.image => Ok(place.path),
        (false, _) => Err(Failure::usage(format!(
            "{} is not in {}: a hard link is another name of a file of the same image",
            Escaped(text.as_bytes()),
            shown(&link.image)
        ))),
    }
}

fn all(
    args: &Ln,
    giving: &Giving,
    verbose: &Verbose,
    images: &mut Images<'_>,
    targets: &[PathBuf],
    link: &ImagePath,
) -> Outcome {
    let fs = images.writable(link)?;
    let link = &expand_one(&fs, link)?;
    let owner = giving.look_up(&fs)?;
    let targets = &if args.symbolic {
        targets.to_vec()
    } else {
        matched(&fs, targets, link)?
    };
    let fail = |e: extant::Error| link.failure(&e);
    let into = if args.no_dereference {
        look_at_link(&fs, &link.path)
            .map_err(fail)?
            .is_some_and(|found| found.is_dir())
    } else {
        is_dir(&fs, &link.path).map_err(fail)?
    };
    if targets.len() > 1 && (args.no_target_directory || !into) {
        return Err(Failure::new(format!(
            "{} is not a directory, so it cannot take {} links: make it first with `extant mkdir`",
            link.shown(),
            targets.len()
        )));
    }
    let mut problems = Problems::default();
    for target in targets {
        let at = destination(&link.path, into, args.no_target_directory, target);
        let made = one(args, owner, &fs, target, &at).map_err(fail);
        if made.is_ok() {
            let (image, at, target) = (
                shown(&link.image),
                Escaped::path(&at),
                Escaped::path(target),
            );
            verbose.tell(if args.symbolic {
                format!("{image}:{at} -> {target}")
            } else {
                format!("{image}:{at} => {target}")
            });
        }
        problems.check(made);
    }
    problems.outcome()
}

/// Hard links are made to files of the image: a pattern means those that it matches.
fn matched(fs: &Filesystem, targets: &[PathBuf], link: &ImagePath) -> Outcome<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in targets {
        let at = ImagePath {
            path: path.clone(),
            ..link.clone()
        };
        all.extend(expand(fs, &at)?.into_iter().map(|at| at.path));
    }
    Ok(all)
}

fn one(args: &Ln, owner: Option<Owner>, fs: &Filesystem, target: &Path, at: &Path) -> Result<()> {
    let make = |at: &Path| {
        if args.symbolic {
            fs.symlink(target, at)?;
            owner.map_or(Ok(()), |owner| owner.give(fs, at, None))
        } else {
            fs.hard_link(target, at)
        }
    };
    match make(at) {
        Err(e) if args.force && is_in_the_way(&e) => {
            let there = fs.symlink_metadata(at)?;
            if there.is_dir() {
                return Err(e);
            }
            if !args.symbolic && fs.symlink_metadata(target)?.ino() == there.ino() {
                // It is that link already, and renaming one name of a file to another does nothing.
                return Ok(());
            }
            replace(fs, at, make)
        }
        made => made,
    }
}

/// Makes something new in place of the old in one step: under a name of its own first.
fn replace(fs: &Filesystem, at: &Path, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let parent = at.parent().unwrap_or(Path::new("/"));
    let mut number = 0;
    let new = loop {
        // Nothing that is written tells one process from another.
        let name = format!(".extant-ln-{number}");
        let new = parent.join(OsStr::new(&name));
        match make(&new) {
            Err(e) if is_in_the_way(&e) => number += 1,
            made => break made.map(|()| new)?,
        }
    };
    fs.rename(&new, at).inspect_err(|_| {
        // The failure of renaming is what matters.
        let _ = fs.remove_file(&new);
    })
}
