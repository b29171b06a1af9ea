//! `extant mkfs`.
//!
//! `config` turns options into a checked [`Config`]; `sources` reads what the image is filled from,
//! and `image_source` other images;
//! `tables` has what is put beside the sources, and owners; `replacing` looks at what is in the
//! image's place; `verity` has hash trees that are made with it; this file does the rest.

mod config;
pub(in crate::commands) mod image_source;
pub(super) mod replacing;
pub(super) mod sources;
mod tables;
pub(super) mod verity;

pub(super) use config::{Plan, parse_uuid};
pub(super) use image_source::{named as image_named, remote_name};
pub(super) use sources::{InPlace, pattern_for};
pub(super) use tables::hosts_with_data;

use crate::args::{Mkfs, Whereabouts};
use crate::chunks;
use crate::container::{self, Names};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{how, shown, whole_image};
use crate::object;
use crate::output::Output as Said;
use crate::progress::Bar;
use crate::record::{lossless, uuid};
use crate::size::human;
use config::{Config, Say};
use extant::{Escaped, SharedDevice};
use extant_formats::Format as Container;
use extant_mkfs::defaults::JournalSize;
use extant_mkfs::layout::PlanError;
use extant_mkfs::output::{Output, Replaces};
use extant_mkfs::source::Tree;
use extant_mkfs::standing::Room;
use extant_mkfs::{BuildError, BuildOptions, Progress, Report, build, build_into};
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

pub(super) fn run(args: &Mkfs, location: &Whereabouts) -> Outcome {
    let image = whole_image(args.image.as_os_str())?;
    let names_part =
        image.partition().is_some() || (location.partition, location.offset) != (None, None);
    let is_made = image.path().is_some() || object::url_of(&args.image).is_some();
    if is_made && !names_part {
        if location.format_of(&image).is_some() {
            return Err(Failure::usage(
                "--image-format says what a disk is that exists, of which a part is made anew: \
                 --format says what is made",
            ));
        }
        return make_at(args, location, None);
    }
    if let Some(path) = image.path() {
        let how = how(location, &image, false);
        let opened = image.open_disk(&how).map_err(Failure::new)?;
        if opened.container.is_none() {
            let mut args = args.clone();
            let mut location = location.clone();
            args.image = path.to_owned();
            if let Some(partition) = image.partition() {
                let number = partition.number_on(&opened.device);
                location.partition = Some(number.map_err(Failure::new)?);
                location.offset = None;
            }
            drop(opened);
            return make_at(&args, &location, None);
        }
    }
    if args.format.is_some() {
        return Err(Failure::usage(format!(
            "--format: {} exists, and is written in the format it has",
            shown(&image)
        )));
    }
    let how = how(location, &image, true);
    let opened = image.open_disk(&how).map_err(Failure::new)?;
    let room = match (names_part, opened.is_file) {
        (true, _) => Room::Part,
        (false, true) => Room::File,
        (false, false) => Room::Device,
    };
    let device = image.part_of(opened.device, &how).map_err(Failure::new)?;
    make_at(args, location, Some((device, room)))
}

/// Makes the image under its name; or on a device that is open, perhaps a part of a disk.
fn make_at(args: &Mkfs, location: &Whereabouts, on: Option<(SharedDevice, Room)>) -> Outcome {
    let mut config = Config::new(args, location, on.as_ref().map(|(device, _)| &**device))?;
    let image = match &on {
        Some((device, room)) => {
            let identity = config.plan.identity();
            replacing::check_on(&config.image, &**device, *room, &identity, args.force)?;
            Replaces::Nothing
        }
        None => match object::url_of(&config.image) {
            Some(url) => {
                object::check_vacant(&url, args.force)?;
                Replaces::Nothing
            }
            None => replacing::check(
                &config.image,
                config.window.as_ref(),
                &config.plan.identity(),
                args.force,
            )?,
        },
    };
    let second = match container::second_file(&config.image, config.container) {
        Some(second) => replacing::check(&second, None, &config.plan.identity(), args.force)?,
        None => Replaces::Nothing,
    };
    let names = Names { image, second };
    let spool_dir = config.spool_dir();
    // What was there before stays until all is known to be right.
    let appears = on.is_none() && config.window.is_none() && spool_dir.is_some();
    let tree = config.plan.tree(spool_dir.as_deref(), appears);
    let tree = tree.map_err(|e| failure(&config, e))?;
    sources::check_config(&config)?;
    let options = config.plan.build_options(tree.as_ref());
    let mut options = options.map_err(|e| failure(&config, e))?;
    options.replaces = Some(names.image);
    options.dm_verity = config.verity.of_device(args.force)?;
    let (fs_verity, sealed) = config.verity.of_files(tree.as_ref())?.unzip();
    options.fs_verity = fs_verity;
    warn_of_concerns(tree.as_ref(), &options);
    let progress = Shown(Bar::new("writing"));
    let built = match &on {
        Some((device, room)) => {
            let into = |size| Ok(Output::in_place_of(device, size, *room == Room::Part)?);
            build_into(tree.as_ref(), into, &options, &progress)
        }
        None => make(&config, names, tree.as_ref(), &options, &progress),
    };
    progress.0.finish();
    let report = built.map_err(|e| build_failure(&config, &e))?;
    sources::write_config(&config, args.force)?;
    warn_of_no_journal(&Escaped::path(&config.image), &options, &report);
    match config.say {
        Say::Nothing => Ok(()),
        Say::Text => tell(&config.image, &report, sealed),
        Say::Json => tell_programs(&config, &report, sealed),
    }
}

/// Tells what of the source an image does not keep, or keeps in a way that surprises.
pub(super) fn warn_of_concerns(tree: Option<&Tree>, options: &BuildOptions) {
    for concern in tree
        .iter()
        .flat_map(|tree| tree.concerns(options.format.inode_size))
    {
        say(format_args!("warning: {concern}"));
    }
}

/// Tells of a journal that was asked for and is not there.
pub(super) fn warn_of_no_journal(image: &dyn Display, options: &BuildOptions, report: &Report) {
    if matches!(options.format.journal, JournalSize::Bytes(_)) && report.journal_blocks == 0 {
        say(format_args!(
            "warning: {image} has no journal: a file system of {} blocks is too small for one",
            report.blocks
        ));
    }
}

/// Makes the image in the format that is asked for.
fn make(
    config: &Config,
    names: Names,
    tree: Option<&Tree>,
    options: &BuildOptions,
    progress: &Shown,
) -> Result<Report, BuildError> {
    let image = &config.image;
    if let Some(url) = object::url_of(image) {
        return build_into(
            tree,
            |size| Ok(object::output(&url, size)?),
            options,
            progress,
        );
    }
    if config.container == Container::Raw {
        return build(tree, image, config.window.clone(), options, progress);
    }
    let Some(chunking) = &config.chunking else {
        let made = container::container(image, names, config.container);
        return made.build(tree, options, |disk| disk, progress);
    };
    let mut disk = None;
    let into = |size| {
        let spool = container::spool(image, size)?;
        disk = Some(Arc::clone(&spool));
        Ok(Output::on_device(spool, true))
    };
    let report = build_into(tree, into, options, progress)?;
    if let Some(disk) = disk {
        chunks::write(image, names.image, &*disk, chunking, options.threads, &())?;
    }
    Ok(report)
}

/// A failure that says which image does not exist now.
fn failure(config: &Config, e: impl std::fmt::Display) -> Failure {
    let image = Escaped::path(&config.image);
    Failure::new(format!("{image} was not made: {e}"))
}

/// As [`failure`]; options that no image can have are the command line's fault.
fn build_failure(config: &Config, e: &BuildError) -> Failure {
    if is_impossible(e) {
        let image = Escaped::path(&config.image);
        Failure::usage(format!("{image} was not made: {e}"))
    } else {
        failure(config, e)
    }
}

/// Whether no image can have what was asked for, whatever the source is.
pub(super) fn is_impossible(e: &BuildError) -> bool {
    matches!(
        e,
        BuildError::Plan(
            PlanError::Unsupported { .. }
                | PlanError::NotInProfile { .. }
                | PlanError::Conflict { .. }
                | PlanError::OutOfRange { .. },
        ) | BuildError::DmVerity(_)
            | BuildError::FsVerity(_)
    )
}

/// What was made, for programs.
#[derive(Debug, Serialize)]
struct Made {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    offset: u64,
    size: u64,
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    uuid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dm_verity: Option<verity::Hashed>,
    /// Files that are protected by fs-verity.
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_verity_files: Option<u64>,
}

fn tell_programs(config: &Config, report: &Report, sealed: Option<u64>) -> Outcome {
    let (image, image_hex) = lossless(config.image.as_os_str().as_bytes());
    let mut output = Said::new();
    output.json_line(&Made {
        image,
        image_hex,
        offset: config.window.as_ref().map_or(0, |window| window.start),
        size: report.size,
        block_size: report.block_size,
        blocks: report.blocks,
        free_blocks: report.free_blocks,
        inodes: report.inodes,
        free_inodes: report.free_inodes,
        uuid: uuid(report.uuid),
        dm_verity: report.dm_verity.as_ref().map(verity::Hashed::new),
        fs_verity_files: sealed,
    })?;
    output.finish()
}

fn tell(image: &Path, report: &Report, sealed: Option<u64>) -> Outcome {
    let mut output = Said::new();
    output.name(image.as_os_str().as_bytes())?;
    writeln!(
        output,
        ": {}, {} of {} blocks of {} bytes free, {} of {} inodes free",
        human(report.size),
        report.free_blocks,
        report.blocks,
        report.block_size,
        report.free_inodes,
        report.inodes
    )?;
    if let Some(files) = sealed {
        writeln!(output, "fs-verity protects {files} files")?;
    }
    if let Some(tree) = &report.dm_verity {
        verity::tell(&mut output, tree)?;
    }
    output.finish()
}

/// Progress of the builder on the bar.
struct Shown(Bar);

impl Progress for Shown {
    fn start(&self, total: u64) {
        self.0.total(total);
    }

    fn advance(&self, amount: u64) {
        self.0.advance(amount);
    }
}
