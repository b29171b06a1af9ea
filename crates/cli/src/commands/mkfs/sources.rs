//! What an image is filled from.

use super::config::Config;
use super::failure;
use crate::args::{Mkfs, Plan};
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_mkfs::source::Source;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The sources by their names on the command line.
pub(super) fn named(args: &Plan) -> Outcome<Vec<Source>> {
    let from = args.sources.from.iter();
    let from =
        from.map(|text| Source::parse(text).map_err(|e| Failure::usage(format!("--from {e}"))));
    let from = from.collect::<Outcome<Vec<Source>>>()?;
    let streams = from.iter().filter(|source| is_stream(source));
    if streams.count() > 1 {
        return Err(Failure::usage(
            "--from -: standard input can be read once, and is named twice",
        ));
    }
    Ok(from)
}

/// The sources of an image that is written.
pub(super) fn of_image(args: &Mkfs) -> Outcome<Vec<Source>> {
    let from = named(&args.plan)?;
    for source in &from {
        refuse_same_file(args, source)?;
    }
    if args.config_out.as_deref() == Some(&args.image) {
        return Err(Failure::usage(
            "--config-out names the image: give the configuration another name",
        ));
    }
    Ok(from)
}

fn is_stream(source: &Source) -> bool {
    source.path().as_os_str() == "-"
}

/// An image in place of the archive it is made from would be a slip of the hand.
fn refuse_same_file(args: &Mkfs, source: &Source) -> Outcome {
    let full = |path: &Path| path.canonicalize().ok();
    let is_same = full(source.path()).is_some_and(|from| full(&args.image) == Some(from));
    if !is_stream(source) && is_same {
        return Err(Failure::usage(format!(
            "{} is the source as well as the image: give the image another name",
            Escaped::path(&args.image)
        )));
    }
    Ok(())
}

/// Patterns for the image itself, if it lies in a directory it is made from: the last image of a
/// build that is run again is no part of the next.
pub(super) fn image_inside(args: &Mkfs, from: &[Source]) -> Vec<Vec<u8>> {
    let patterns = from
        .iter()
        .map(|source| pattern_inside(args, source.path()));
    patterns.flatten().collect()
}

/// A pattern for the image itself, if it lies in this directory.
pub(super) fn pattern_inside(args: &Mkfs, dir: &Path) -> Option<Vec<u8>> {
    let image = args.image.canonicalize().or_else(|_| {
        let parent = match args.image.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = args.image.file_name().unwrap_or_default();
        parent.canonicalize().map(|parent| parent.join(name))
    });
    let (image, dir) = (image.ok()?, dir.canonicalize().ok()?);
    let inside = image.strip_prefix(dir).ok()?;
    if inside.as_os_str().is_empty() {
        return None;
    }
    let mut pattern = vec![b'/'];
    for &byte in inside.as_os_str().as_bytes() {
        if b"*?[]\\!".contains(&byte) {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    Some(pattern)
}

/// Refuses to write the configuration of a container image where there is none.
pub(super) fn check_config(config: &Config) -> Outcome {
    if config.config_out.is_some() && config.plan.image_config().is_none() {
        return Err(failure(
            config,
            "--config-out is for container images, and no source is one",
        ));
    }
    Ok(())
}

/// Writes the configuration of a container image where it was asked for.
pub(super) fn write_config(config: &Config) -> Outcome {
    let (Some(path), Some(json)) = (&config.config_out, config.plan.image_config()) else {
        return Ok(());
    };
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let write = || -> std::io::Result<()> {
        // Into what is no regular file it is written as it comes.
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            return std::fs::write(path, json);
        }
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir)?;
        file.write_all(json)?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|e| {
        let image = Escaped::path(&config.image);
        let path = Escaped::path(path);
        Failure::new(format!(
            "{image} was made, and its configuration cannot be written to {path}: {e}"
        ))
    })
}
