//! `mke2fs`, and `mkfs.ext2`, `mkfs.ext3` and `mkfs.ext4`, which choose the type by their names.
//!
//! | module | owns |
//! |---|---|
//! | `asked` | the command line |
//! | `extended` | `-E` |
//! | `settings` | what was asked for over what `mke2fs.conf` says |
//! | `target` | the file or device that is written to |
//! | `tell` | what is printed |

mod asked;
mod extended;
mod settings;
mod target;
mod tell;

use super::conf::Conf;
use super::version;
use crate::commands::mkfs::{InPlace, warn_of_concerns};
use crate::failure::{Failure, Outcome, say};
use crate::time::stand_still_as_e2fsprogs;
use asked::{Asked, Told};
use extant::Escaped;
use extant_mkfs::layout::plan;
use extant_mkfs::source::{
    Normalisation, Owner, Source, SourceOptions, TimePolicy, Timestamp, Tree, read_sources,
};
use extant_mkfs::{BuildError, BuildOptions, FormatOptions, Silent, Size, build_into};
use extended::Extended;
use settings::Wanted;
use std::ffi::OsString;
use std::path::Path;
use target::Target;

pub(super) fn run(name: &'static str, args: impl IntoIterator<Item = OsString>) -> Outcome {
    let Some(asked) = Asked::read(args)? else {
        version("mke2fs");
        return Ok(());
    };
    if asked.told != Told::Nothing {
        version("mke2fs");
    }
    let epoch = stand_still_as_e2fsprogs()?;
    let conf = Conf::read()?;
    let target = Target::look(&asked.device)?;
    let mut given = Extended::default();
    for list in &asked.extended {
        given.take(list)?;
    }
    check_size(&asked, &target, &given)?;
    let mut wanted = Wanted::new(name, &asked, &conf, &target, &given)?;
    check_room(&wanted, &target)?;
    if !asked.is_dry && !target.is_new() {
        if let Some(root) = &asked.root
            && let Some(place) = InPlace::from_offset(&asked.device, wanted.offset)
        {
            place.refuse_source(&Source::at(root))?;
        }
        target.check(&wanted, asked.is_forced)?;
    }
    let tree = match &asked.root {
        Some(root) if !asked.is_dry => Some(tree(root, &asked, &wanted, epoch)?),
        _ => None,
    };
    identify(&mut wanted, &asked, tree.as_ref(), epoch);
    make(&asked, &target, &wanted, tree.as_ref())
}

/// Refuses to be told no size where nothing has one.
fn check_size(asked: &Asked, target: &Target, given: &Extended) -> Outcome {
    if asked.length.is_some() {
        return Ok(());
    }
    let device = Escaped::path(&asked.device);
    if target.is_new() {
        return Err(Failure::usage(format!(
            "The file {device} does not exist and no size was specified."
        )));
    }
    let offset = given.offset.unwrap_or(0);
    if target.room(offset) == 0 {
        return Err(Failure::new(format!(
            "{device}: Device size reported to be zero.  Say how many blocks there shall be."
        )));
    }
    if offset > 0 {
        say("Warning: offset specified without an explicit file system size.");
    }
    Ok(())
}

/// Refuses more than a device has.
fn check_room(wanted: &Wanted, target: &Target) -> Outcome {
    if target.is_device() && wanted.format.size > target.room(wanted.offset) {
        return Err(Failure::new(format!(
            "{}: Filesystem larger than apparent device size.",
            Escaped::path(&target.path)
        )));
    }
    Ok(())
}

/// Reads what the file system is filled with. The root directory belongs to the file system, as the
/// real program has it.
fn tree(root: &Path, asked: &Asked, wanted: &Wanted, epoch: Option<u64>) -> Outcome<Tree> {
    let failed = |e: &dyn std::fmt::Display| {
        Failure::new(format!(
            "{e} while populating file system from {}",
            Escaped::path(root)
        ))
    };
    let mut source = Source::at(root);
    if let Some(pattern) = crate::commands::mkfs::pattern_for(&asked.device, root) {
        source.leave_out(pattern).map_err(|e| failed(&e))?;
    }
    let gathered = read_sources(&[source], &SourceOptions::default());
    let mut tree = gathered.map_err(|e| failed(&e))?.tree;
    let (uid, gid) = wanted.format.root_owner;
    let gid = Some(gid);
    let times = epoch.map_or(TimePolicy::Keep, |epoch| {
        let secs = i64::try_from(epoch).unwrap_or(i64::MAX);
        TimePolicy::Clamp(Timestamp::from_secs(secs))
    });
    tree.normalise(&Normalisation {
        times,
        root_owner: Some(Owner { uid, gid }),
        root_mode: Some(wanted.format.root_mode),
        ..Normalisation::default()
    });
    Ok(tree)
}

/// Gives the file system an identity that follows from the source where the same input shall give
/// the same bytes.
fn identify(wanted: &mut Wanted, asked: &Asked, tree: Option<&Tree>, epoch: Option<u64>) {
    let format = &mut wanted.format;
    if let Some(epoch) = epoch {
        let mut material = tree.map_or([0; 32], Tree::fingerprint).to_vec();
        material.extend_from_slice(&format.label);
        let derived = FormatOptions::reproducible(format.size, epoch, &material);
        format.uuid = asked.uuid.unwrap_or(derived.uuid);
        format.hash_seed = derived.hash_seed;
        format.time = epoch;
    }
    if let Some(seed) = wanted.hash_seed {
        format.hash_seed = seed;
    }
}

fn make(asked: &Asked, target: &Target, wanted: &Wanted, tree: Option<&Tree>) -> Outcome {
    let failed =
        |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", Escaped::path(&asked.device)));
    let layout = plan(&wanted.format).map_err(|e| failed(&e))?;
    let sb = layout.superblock();
    let size = sb.blocks_count() << sb.block_size().log2();
    let tells = asked.told != Told::Nothing;
    // The real program tells of a new file also where it shall be quiet.
    if target.is_new() && !asked.is_dry {
        let device = Escaped::path(&asked.device);
        tell::line(&format!("Creating regular file {device}"))?;
    }
    if asked.told == Told::All {
        let types = wanted.types.iter().map(|name| format!("'{name}'"));
        let types = types.collect::<Vec<_>>().join(", ");
        tell::line(&format!("fs_types for mke2fs.conf resolution: {types}"))?;
    }
    if tells && wanted.discards && !target.is_new() && !asked.is_dry {
        tell::line("Discarding device blocks: done                            ")?;
    }
    let unused = wanted.format.size.saturating_sub(size) >> sb.block_size().log2();
    if unused > 0 && tells {
        say(format_args!("warning: {unused} blocks unused."));
    }
    if tells {
        tell::beginning(wanted, &layout, asked.told == Told::All)?;
    }
    if asked.is_dry {
        return Ok(());
    }
    let options = BuildOptions::new(wanted.format.clone(), Size::Bytes(wanted.format.size));
    warn_of_concerns(tree, &options);
    let into = |_| -> Result<_, BuildError> { target.output(wanted, size) };
    let report = build_into(tree, into, &options, &Silent).map_err(|e| failed(&e))?;
    if wanted.has_journal && report.journal_blocks == 0 {
        say("Filesystem too small for a journal");
    }
    if tells {
        tell::end(report.journal_blocks, tree.is_some())?;
    }
    Ok(())
}
