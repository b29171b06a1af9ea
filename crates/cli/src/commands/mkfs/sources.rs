//! What an image is filled from.

use super::config::Config;
use super::failure;
use super::image_source;
use crate::args::{Mkfs, Plan, Whereabouts};
use crate::closed;
use crate::container::second_file;
use crate::failure::{Failure, Outcome};
use crate::ground::Ground;
use crate::image_path::{shown, whole_image};
use extant::Escaped;
use extant_formats::Format as Container;
use extant_image::{ImageLocation, PartitionName};
use extant_mkfs::source::Source;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Most bytes of a file that is taken for a configuration.
const CONFIG_MAX: u64 = 64 << 20;

/// The sources by their names on the command line, none of which may lie where `target` is, which
/// is written in place.
pub(super) fn named(
    args: &Plan,
    location: &Whereabouts,
    target: Option<&InPlace>,
) -> Outcome<Vec<Source>> {
    let from = args.sources.from.iter();
    let from = from.map(|text| match image_source::named(text, location, target)? {
        Some(image) => Ok(image),
        None => {
            let source = Source::parse(text);
            let source = source.map_err(|e| Failure::usage(format!("--from {e}")))?;
            if let Some(target) = target {
                target.refuse_source(&source)?;
            }
            Ok(source)
        }
    });
    let from = from.collect::<Outcome<Vec<Source>>>()?;
    let streams = from.iter().filter(|source| is_stream(source));
    if streams.clone().next().is_some() {
        closed::check_input()?;
    }
    if streams.count() > 1 {
        return Err(Failure::usage(
            "--from -: standard input can be read once, and is named twice",
        ));
    }
    Ok(from)
}

/// The sources of an image that is written; `is_open` where it goes to a device that is open.
pub(super) fn of_image(args: &Mkfs, location: &Whereabouts, is_open: bool) -> Outcome<Vec<Source>> {
    let target = InPlace::of(args, location, is_open)?;
    let from = named(&args.plan, location, target.as_ref())?;
    if target.is_none() {
        for source in &from {
            refuse_same_file(args, source)?;
        }
    }
    Ok(from)
}

/// What exists and is written over, while what it is made from is still read.
#[derive(Debug)]
pub(in crate::commands) struct InPlace {
    name: String,
    ground: Ground,
    /// What to do where a source lies in the same place.
    advice: &'static str,
}

const NAME_A_NEW_FILE: &str = "give the image the name of a new file";

impl InPlace {
    /// The place of an image; `None` where a new file takes its name when it is complete.
    fn of(args: &Mkfs, location: &Whereabouts, is_open: bool) -> Outcome<Option<Self>> {
        let is_device = || {
            let found = args.image.metadata();
            found.is_ok_and(|found| found.file_type().is_block_device())
        };
        let is_part = location.partition.is_some() || location.offset.is_some();
        if !is_open && !is_part && !is_device() {
            return Ok(None);
        }
        let image = if is_open {
            whole_image(args.image.as_os_str())?
        } else {
            ImageLocation::file(&args.image)
        };
        Ok(Self::at(image, location, NAME_A_NEW_FILE))
    }

    /// An image that is changed where it is.
    pub(in crate::commands) fn of_changed(
        image: &ImageLocation,
        location: &Whereabouts,
    ) -> Option<Self> {
        let advice = "copy the source to another image or to a directory first (extant cp)";
        Self::at(image.clone(), location, advice)
    }

    fn at(mut image: ImageLocation, location: &Whereabouts, advice: &'static str) -> Option<Self> {
        let name = shown(&image);
        let is_named = image.partition().is_some();
        if let (Some(number), false) = (location.partition, is_named) {
            image = image.with_partition(PartitionName::Number(number));
        }
        let ground = Ground::of(&image).map(|ground| match location.offset {
            Some(offset) if !is_named => ground.part(&(offset..u64::MAX)),
            _ => ground,
        });
        Some(Self {
            name,
            ground: ground?,
            advice,
        })
    }

    /// A file or a device, from a byte on.
    pub(in crate::commands) fn from_offset(path: &Path, offset: u64) -> Option<Self> {
        let ground = Ground::of(&ImageLocation::file(path))?;
        Some(Self {
            name: Escaped::path(path).to_string(),
            ground: ground.part(&(offset..u64::MAX)),
            advice: NAME_A_NEW_FILE,
        })
    }

    /// Refuses a source that is read from the same bytes.
    pub(in crate::commands) fn refuse_source(&self, source: &Source) -> Outcome {
        let image = if is_stream(source) {
            ImageLocation::descriptor(0)
        } else {
            ImageLocation::file(source.path())
        };
        self.refuse(&image).map(|_| ())
    }

    /// Refuses an image that is read from the same bytes. Returns whether it is another part of
    /// what is written.
    pub(super) fn refuse(&self, image: &ImageLocation) -> Outcome<bool> {
        let Some(ground) = Ground::of(image) else {
            return Ok(false);
        };
        if ground.meets(&self.ground) {
            return Err(Failure::usage(format!(
                "{} is the source as well as the image, {}, and would be overwritten while it is \
                 read: {}",
                shown(image),
                self.name,
                self.advice
            )));
        }
        Ok(ground.is_beside(&self.ground))
    }
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

/// The directory of a path.
pub(in crate::commands) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A path without links and dots on the way to its last name, which need not be there.
pub(super) fn place_of(path: &Path) -> Option<PathBuf> {
    let parent = parent_of(path).canonicalize().ok()?;
    Some(parent.join(path.file_name()?))
}

/// Leaves the image itself out of directories it is made from: the last image of a build that is
/// run again is no part of the next.
pub(super) fn leave_image_out(args: &Mkfs, from: &mut [Source]) -> Outcome {
    for source in from {
        if let Some(pattern) = pattern_inside(args, source.path()) {
            source.leave_out(pattern).map_err(Failure::new)?;
        }
    }
    Ok(())
}

/// A pattern for the image itself, if it lies in this directory.
pub(super) fn pattern_inside(args: &Mkfs, dir: &Path) -> Option<Vec<u8>> {
    pattern_for(&args.image, dir)
}

/// A pattern for an image, if it lies in this directory.
pub(in crate::commands) fn pattern_for(image: &Path, dir: &Path) -> Option<Vec<u8>> {
    let full = image.canonicalize().ok();
    let image = full.or_else(|| place_of(image))?;
    let dir = dir.canonicalize().ok()?;
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

/// Refuses a configuration in the place of the image or a source, or of what is none.
pub(super) fn check_config_out(args: &Mkfs, container: Container, from: &[Source]) -> Outcome {
    let Some(out) = &args.config_out else {
        return Ok(());
    };
    let places = |path: &Path| [place_of(path), path.canonicalize().ok()];
    let taken: Vec<PathBuf> = places(out).into_iter().flatten().collect();
    let is_taken = |path: &Path| places(path).iter().flatten().any(|at| taken.contains(at));
    let location = ImageLocation::parse(args.image.as_os_str()).ok();
    let disk = location.as_ref().and_then(ImageLocation::path);
    let second = second_file(&args.image, container);
    let images = [Some(&*args.image), disk, second.as_deref()];
    if images.into_iter().flatten().any(is_taken) {
        return Err(Failure::usage(
            "--config-out names the image: give the configuration another name",
        ));
    }
    let mut files = from.iter().filter(|source| !is_stream(source));
    if files.any(|source| is_taken(source.path())) {
        return Err(Failure::usage(
            "--config-out names a source: give the configuration another name",
        ));
    }
    if !args.force && !may_be_replaced(out) {
        return Err(Failure::new(format!(
            "{} contains something else than a configuration: --force replaces it",
            Escaped::path(out)
        )));
    }
    Ok(())
}

/// Whether at a path is nothing to lose: no regular file, an empty one, or a configuration.
fn may_be_replaced(path: &Path) -> bool {
    let Ok(meta) = path.metadata() else {
        return true;
    };
    if !meta.is_file() || meta.len() == 0 {
        return true;
    }
    let Ok(file) = File::open(path) else {
        return false;
    };
    let parsed =
        || serde_json::from_reader::<_, BTreeMap<String, IgnoredAny>>(BufReader::new(file)).is_ok();
    meta.len() <= CONFIG_MAX && parsed()
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
pub(super) fn write_config(config: &Config, force: bool) -> Outcome {
    let (Some(path), Some(json)) = (&config.config_out, config.plan.image_config()) else {
        return Ok(());
    };
    let dir = parent_of(path);
    let write = || -> std::io::Result<()> {
        // The image may have come there by another name, such as `fd:3`.
        if !force && !may_be_replaced(path) {
            return Err(std::io::Error::other(
                "something else than a configuration is there now",
            ));
        }
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
