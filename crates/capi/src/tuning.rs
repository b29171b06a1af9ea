//! Changing the size and the settings of file systems, and telling what they are.

use crate::call::Failure;
use crate::checking::{options, refuse_read_only, write};
use crate::constants::MINIMUM;
use crate::settings;
use crate::watch::Watching;
use extant::{ErrorsBehaviour, SharedDevice};
use extant_format::features::{Compat, Feature};
use extant_fsck::repair::resize::{self, Size};
use extant_fsck::repair::tune::{self, Settings, words};
use extant_fsck::repair::{Options, Plan};
use extant_fsck::{Severity, primary_superblock};
use std::path::Path;
use std::sync::Arc;

/// Times that a file system is made smaller: each makes room for the next.
const ROUNDS_MAX: u32 = 16;

/// Gives a file system another size in bytes. Returns what it has then. What was there is kept in a
/// file, if one is named: that is of one round.
pub(crate) fn resize(
    device: &SharedDevice,
    bytes: u64,
    undo: Option<&Path>,
    watching: &Watching,
) -> Result<u64, Failure> {
    refuse_read_only(device)?;
    let block_size = u64::from(primary_superblock(&**device)?.block_size().bytes());
    if bytes != u64::from(MINIMUM) {
        let device = watching.over(device);
        let size = Size::Blocks(bytes / block_size);
        return Ok(once(&device, size, undo, watching)? * block_size);
    }
    let mut blocks = once(&watching.over(device), Size::Minimum, undo, watching)?;
    let rounds = if undo.is_some() { 1 } else { ROUNDS_MAX };
    for _ in 1..rounds {
        // The rounds before are written: what is left to do is less, and can be left.
        watching.may_end_again();
        // One that cannot be planned leaves what the round before has written.
        let Ok(plan) = round(&watching.over(device), Size::Minimum, watching) else {
            break;
        };
        match written(&plan, None, watching) {
            Ok(again) if again < blocks => blocks = again,
            Ok(_) => break,
            // It was ended before anything of this round was written.
            Err(failure) if failure.is_cancelled() => break,
            Err(failure) => return Err(failure),
        }
    }
    Ok(blocks * block_size)
}

/// One round. Returns how many blocks there are then.
fn once(
    device: &SharedDevice,
    size: Size,
    undo: Option<&Path>,
    watching: &Watching,
) -> Result<u64, Failure> {
    written(&round(device, size, watching)?, undo, watching)
}

/// Works one round out.
fn round(device: &SharedDevice, size: Size, watching: &Watching) -> Result<Plan, Failure> {
    let planned = resize::plan(Arc::clone(device), size, options(), watching);
    let plan = watching.outcome(planned.map_err(Failure::from))?;
    refuse_unsound(&plan)?;
    Ok(plan)
}

/// Writes one round. Returns how many blocks there are then.
fn written(plan: &Plan, undo: Option<&Path>, watching: &Watching) -> Result<u64, Failure> {
    write(plan, undo, watching)?;
    Ok(primary_superblock(&*plan.changes.device())?.blocks_count())
}

/// The bytes that a file system can be brought down to.
pub(crate) fn minimum(device: &SharedDevice, watching: &Watching) -> Result<u64, Failure> {
    let block_size = u64::from(primary_superblock(&**device)?.block_size().bytes());
    let blocks = resize::minimum(watching.over(device), options(), watching);
    Ok(watching.outcome(blocks.map_err(Failure::from))? * block_size)
}

fn refuse_unsound(plan: &Plan) -> Result<(), Failure> {
    if plan.is_complete() {
        return Ok(());
    }
    let mut findings = plan.left.findings.iter();
    let first = findings.find(|finding| finding.severity() > Severity::Warning);
    let what = first.map_or_else(String::new, |finding| format!(" ({finding})"));
    Err(Failure::refused(format!(
        "the file system would not be sound afterwards{what}: nothing is changed"
    )))
}

/// Changes settings.
pub(crate) fn tune(
    device: &SharedDevice,
    given: &[&[u8]],
    watching: &Watching,
) -> Result<(), Failure> {
    let superblock = primary_superblock(&**device)?;
    let (settings, undo) = settings::of_tune(given, &superblock)?;
    refuse_read_only(device)?;
    let plan = planned(device, &settings, watching)?;
    write(&plan, undo.as_deref(), watching)
}

fn planned(
    device: &SharedDevice,
    settings: &Settings,
    watching: &Watching,
) -> Result<Plan, Failure> {
    let options: Options = options();
    let planned = tune::plan(watching.over(device), settings, options, watching);
    let plan = watching.outcome(planned.map_err(Failure::from))?;
    refuse_unsound(&plan)?;
    Ok(plan)
}

/// Has a file system without a journal use the one on a device of its own, which Linux finds by its
/// number. The journal lists the file system before that names the journal: what is cut off in
/// between is put right by the same call.
pub(crate) fn add_journal(
    device: &SharedDevice,
    journal: &SharedDevice,
    (major, minor): (u32, u32),
    watching: &Watching,
) -> Result<(), Failure> {
    if major > 0xfff || minor > 0xf_ffff {
        let text =
            format!("{major}:{minor} is no number of a device: as stat(2) has it in st_rdev");
        return Err(Failure::invalid(text));
    }
    refuse_read_only(device)?;
    refuse_read_only(journal)?;
    let before = primary_superblock(&**device)?;
    if before.has_compat(Compat::HAS_JOURNAL) {
        if before.has_external_journal() && tune::holds_journal_of(&**journal, &before) {
            return Ok(());
        }
        return Err(Failure::refused(
            "the file system has a journal: take that away first",
        ));
    }
    // As Linux encodes it: the minor number is around the major one.
    let number = minor & 0xff | major << 8 | (minor & !0xff) << 12;
    let settings = Settings {
        features: vec![(Feature::Compat(Compat::HAS_JOURNAL), true)],
        journal_device: Some(tune::external_journal(&**journal, number, &before)?),
        ..Settings::default()
    };
    let plan = planned(device, &settings, watching)?;
    plan.may_be_written()?;
    watching.check()?;
    tune::enlist(&**journal, before.uuid())?;
    write(&plan, None, watching)
}

/// Takes away the journal that is on a device of its own. That device is told afterwards, where it
/// is given.
pub(crate) fn remove_journal(
    device: &SharedDevice,
    journal: Option<&SharedDevice>,
    watching: &Watching,
) -> Result<(), Failure> {
    refuse_read_only(device)?;
    let before = primary_superblock(&**device)?;
    if !before.has_external_journal() {
        return Err(Failure::refused(
            "the file system has no journal on a device of its own",
        ));
    }
    if let Some(journal) = journal {
        if !tune::holds_journal_of(&**journal, &before) {
            return Err(Failure::refused(
                "the device holds another journal than that of the file system",
            ));
        }
        refuse_read_only(journal)?;
    }
    let settings = Settings {
        features: vec![(Feature::Compat(Compat::HAS_JOURNAL), false)],
        ..Settings::default()
    };
    let plan = planned(device, &settings, watching)?;
    write(&plan, None, watching)?;
    let Some(journal) = journal else {
        return Ok(());
    };
    let dismissed = tune::dismiss(&**journal, before.raw().journal_uuid, before.uuid());
    dismissed.map_err(|e| {
        Failure::from(e).adding("; the file system is changed, and the journal still lists it")
    })
}

/// What a setting is, as text.
pub(crate) fn setting(device: &SharedDevice, name: &[u8]) -> Result<Vec<u8>, Failure> {
    let sb = primary_superblock(&**device)?;
    let raw = sb.raw();
    let (user, group) = sb.reserved_for();
    let text = match name {
        b"label" => return Ok(sb.label().to_vec()),
        b"uuid" => settings::uuid_text(&sb.uuid()),
        b"features" => sb.features().names().join(","),
        b"block-size" => sb.block_size().bytes().to_string(),
        b"blocks" => sb.blocks_count().to_string(),
        b"free-blocks" => sb.free_blocks_count().to_string(),
        b"inodes" => sb.inodes_count().to_string(),
        b"free-inodes" => sb.free_inodes_count().to_string(),
        b"inode-size" => sb.inode_size().to_string(),
        b"reserved-blocks" => sb.reserved_blocks_count().to_string(),
        b"reserved-user" => user.to_string(),
        b"reserved-group" => group.to_string(),
        b"max-mounts" => (raw.max_mnt_count.get() as i16).to_string(),
        b"mount-count" => raw.mnt_count.get().to_string(),
        b"check-interval" => (raw.checkinterval.get() / 86_400).to_string(),
        b"last-check" => sb.last_check().to_string(),
        b"mount-options" => words::mount_defaults(sb.mount_defaults()).join(","),
        b"errors" => match sb.errors_behaviour() {
            ErrorsBehaviour::Continue => "continue",
            ErrorsBehaviour::RemountReadOnly => "remount-ro",
            ErrorsBehaviour::Panic => "panic",
            ErrorsBehaviour::Unknown(_) => "unknown",
        }
        .to_owned(),
        _ => {
            return Err(Failure::invalid(format!(
                "\"{}\" is no setting that can be told",
                name.escape_ascii()
            )));
        }
    };
    Ok(text.into_bytes())
}
