//! `extant tune`. Its exit codes are those of `tune2fs`, with 8 and 16 as `check` has them.

use super::check::Bars;
use super::exit_codes::coded;
use super::journal_device::JournalDevice;
use super::mkfs::parse_uuid;
use super::undo::{half_written, keep, not_in_place};
use crate::args::{ErrorsDo, Tune, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::image_path::{how, refuse_reading_options, shown, whole_image};
use crate::output::Output;
use crate::record::uuid;
use crate::time::seconds_now_32;
use extant_blockdev::SharedDevice;
use extant_format::features::{Compat, Feature};
use extant_format::superblock::{ErrorsBehaviour, Superblock};
use extant_fsck::Severity;
use extant_fsck::repair::{Options, tune};
use extant_mkfs::FormatOptions;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) use extant_fsck::primary_superblock as superblock_of;
pub(super) use extant_fsck::repair::tune::words::{
    self, hash_named, mount_default, quotas, switches,
};

pub(super) fn run(args: &Tune, location: &Whereabouts) -> Outcome {
    tune(args, location).map_err(coded)
}

fn tune(args: &Tune, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)?;
    let image = whole_image(args.image.as_ref())?;
    let named = |e: &dyn std::fmt::Display| Failure::new(format!("{}: {e}", shown(&image)));
    if args.list && args.changes_something() {
        return Err(Failure::usage("--list changes nothing: give it alone"));
    }
    let how = how(location, &image, args.changes_something());
    let device = image.open(&how).map_err(Failure::new)?;
    let sb = superblock_of(&*device).map_err(|e| named(&e))?;
    if !args.changes_something() {
        return list(&sb);
    }
    let mut settings = settings(args, &sb)?;
    let journal = match &args.journal_device {
        Some(path) => Some(JournalDevice::open(path)?),
        None => JournalDevice::of(&sb).filter(|_| sb.has_external_journal()),
    };
    if let Some(journal) = journal.as_ref().filter(|_| args.journal_device.is_some()) {
        if location.undo.is_some() {
            let why = "--undo is of one image, and with --journal-device two devices change";
            return Err(Failure::usage(why));
        }
        take_journal(&mut settings, journal, &sb).map_err(|e| named(&e))?;
    }
    let goes = settings
        .features
        .contains(&(Feature::Compat(Compat::HAS_JOURNAL), false));
    if sb.has_external_journal() && goes && journal.is_none() {
        let image = shown(&image);
        say(format_args!(
            "warning: {image}: the device of its journal was not found, and still lists this file system: name it \
             with --journal-device"
        ));
    }
    let way = Way {
        undo: location.undo.as_deref(),
        journal: journal.as_ref(),
        ..Way::default()
    };
    apply(device, &settings, &way).map_err(|e| named(&e))
}

/// Has a file system without a journal get the one on a device, unless it is the device of the
/// journal that it has.
pub(super) fn take_journal(
    settings: &mut tune::Settings,
    journal: &JournalDevice,
    sb: &Superblock,
) -> Result<(), String> {
    let feature = Feature::Compat(Compat::HAS_JOURNAL);
    if sb.has_external_journal() {
        return if journal.is_of(sb) {
            Ok(())
        } else {
            Err("the device holds another journal than that of the file system".to_owned())
        };
    }
    if sb.features().has(feature) || settings.features.contains(&(feature, false)) {
        return Err(
            "the file system has a journal inside: turn that off first (--features ^has_journal)"
                .to_owned(),
        );
    }
    settings.journal_device = Some(journal.journal_for(sb)?);
    settings.features.push((feature, true));
    Ok(())
}

/// The primary superblock of an image.
pub(super) fn opened_superblock(image: &OsStr, location: &Whereabouts) -> Outcome<Superblock> {
    let image = whole_image(image)?;
    let device = image.open(&how(location, &image, false));
    let device = device.map_err(Failure::new)?;
    superblock_of(&*device).map_err(|e| Failure::new(format!("{}: {e}", shown(&image))))
}

/// Changes settings of an image, which follow from its superblock.
pub(super) fn change(
    image: &OsStr,
    location: &Whereabouts,
    settings: &tune::Settings,
    journal: Option<&JournalDevice>,
) -> Outcome {
    let image = whole_image(image)?;
    let device = image.open(&how(location, &image, true));
    let device = device.map_err(Failure::new)?;
    let named = |e: String| Failure::new(format!("{}: {e}", shown(&image)));
    let way = Way {
        journal,
        ..Way::default()
    };
    apply(device, settings, &way).map_err(named)
}

/// The UUID that a word means.
///
/// # Errors
/// What is wrong with it.
pub(super) fn uuid_of(word: &str) -> Result<[u8; 16], String> {
    match word {
        "random" => Ok(FormatOptions::new(1 << 30, 0).uuid),
        "clear" => Ok([0; 16]),
        text => parse_uuid(text),
    }
}

/// How changes are made.
#[derive(Clone, Copy, Default)]
pub(super) struct Way<'a> {
    /// The undo file that is kept.
    pub(super) undo: Option<&'a Path>,
    /// The device lies in front of another one.
    pub(super) in_front: bool,
    /// The device of the journal that comes or goes.
    pub(super) journal: Option<&'a JournalDevice>,
}

/// Works changes out and makes them.
///
/// # Errors
/// Why that is not possible, or how far it was done.
pub(super) fn apply(
    device: SharedDevice,
    settings: &tune::Settings,
    way: &Way<'_>,
) -> Result<(), String> {
    let undo = way.undo;
    let before = superblock_of(&*device).map_err(|e| e.to_string())?;
    let bars = Bars::new("checking");
    let options = Options::default()
        .now(seconds_now_32())
        .in_front(way.in_front);
    let plan = tune::plan(device, settings, options, &bars);
    bars.finish();
    let plan = plan.map_err(|e| e.to_string())?;
    if !plan.is_complete() {
        let mut findings = plan.left.findings.iter();
        let first = findings.find(|finding| finding.severity() > Severity::Warning);
        let what = first.map_or_else(String::new, |finding| format!(" ({finding})"));
        return Err(format!(
            "the file system would not be sound afterwards{what}: nothing is changed"
        ));
    }
    plan.may_be_written().map_err(|e| e.to_string())?;
    if plan.changes.is_empty().map_err(|e| e.to_string())? {
        return Ok(());
    }
    if let Some(path) = undo {
        keep(path, &plan).map_err(|e| e.to_string())?;
    }
    let after = superblock_of(&*plan.changes.device()).map_err(|e| e.to_string())?;
    if let Some(journal) = way.journal {
        journal.before(&before, &after)?;
    }
    let written = plan.apply();
    written.map_err(|e| {
        if plan.is_whole() {
            not_in_place(undo, &e)
        } else {
            half_written(undo, &e)
        }
    })?;
    way.journal
        .map_or(Ok(()), |journal| journal.after(&before, &after))
}

fn settings(args: &Tune, sb: &Superblock) -> Outcome<tune::Settings> {
    let bytes = |text: &OsString| text.as_bytes().to_vec();
    let mut settings = tune::Settings {
        label: args.label.as_ref().map(bytes),
        last_mounted: args.last_mounted.as_ref().map(bytes),
        mount_options: args.mount_string.as_ref().map(bytes),
        reserved_blocks: args.reserved_blocks,
        reserved_user: args.reserved_user,
        reserved_group: args.reserved_group,
        max_mounts: args.max_mounts,
        check_interval: args.check_interval.map(|days| days.saturating_mul(86_400)),
        last_check: args.last_check,
        journal_size: args.journal_size,
        journal_location: args.journal_location,
        inode_size: args.inode_size,
        orphan_file_size: args.orphan_file_size,
        mmp_interval: args.mmp_interval,
        stride: args.stride,
        stripe_width: args.stripe_width,
        mount_count: args.mount_count,
        hash: args.hash.as_deref().and_then(hash_named),
        force_check: args.force_check,
        clear_mmp: args.clear_mmp,
        ..tune::Settings::default()
    };
    let uuid = args.uuid.as_deref().map(uuid_of).transpose();
    settings.uuid = uuid.map_err(Failure::usage)?;
    if let Some(percent) = args.reserved_percent {
        if !(0.0..=50.0).contains(&percent) {
            return Err(Failure::usage("between 0 and 50 percent can be reserved"));
        }
        settings.reserved_blocks = Some((sb.blocks_count() as f64 * percent / 100.0) as u64);
    }
    settings.errors = args.errors.map(|errors| match errors {
        ErrorsDo::Continue => ErrorsBehaviour::Continue,
        ErrorsDo::RemountRo => ErrorsBehaviour::RemountReadOnly,
        ErrorsDo::Panic => ErrorsBehaviour::Panic,
    });
    for (name, on) in switches(&args.mount_options) {
        let Some(option) = mount_default(name) else {
            return Err(Failure::usage(format!(
                "{name:?} is no default mount option"
            )));
        };
        settings.mount_defaults.push((option, on));
    }
    settings.quotas = quotas(&args.quota).map_err(Failure::usage)?;
    for (name, on) in switches(&args.features) {
        let Some(feature) = Feature::from_name(name) else {
            return Err(Failure::usage(format!("{name:?} is no feature")));
        };
        settings.features.push((feature, on));
    }
    Ok(settings)
}

/// Shows what can be changed.
fn list(sb: &Superblock) -> Outcome {
    let mut output = Output::new();
    write!(output, "label: ")?;
    output.name_line(sb.label())?;
    let (user, group) = sb.reserved_for();
    let errors = match sb.errors_behaviour() {
        ErrorsBehaviour::Continue => "continue",
        ErrorsBehaviour::RemountReadOnly => "remount-ro",
        ErrorsBehaviour::Panic => "panic",
        ErrorsBehaviour::Unknown(_) => "unknown",
    };
    let defaults = sb.mount_defaults();
    let options = words::mount_defaults(defaults);
    let raw = sb.raw();
    writeln!(output, "uuid: {}", uuid(sb.uuid()))?;
    writeln!(output, "reserved blocks: {}", sb.reserved_blocks_count())?;
    writeln!(output, "reserved for user: {user}")?;
    writeln!(output, "reserved for group: {group}")?;
    writeln!(output, "errors: {errors}")?;
    writeln!(output, "max mounts: {}", raw.max_mnt_count.get() as i16)?;
    writeln!(
        output,
        "check interval: {} days",
        raw.checkinterval.get() / 86_400
    )?;
    writeln!(output, "last check: {}", sb.last_check())?;
    writeln!(output, "mount options: {}", options.join(","))?;
    writeln!(output, "features: {}", sb.features().names().join(","))?;
    output.finish()
}
