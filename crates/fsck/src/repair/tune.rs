//! Changing what a superblock says about a file system that is closed and sound: identity, reserve,
//! behaviour, features.
//!
//! As a repair, it is worked out in memory first: see [`Plan`].

use super::draft::Draft;
use super::options::Options;
use super::plan::Plan;
use super::reseal::reseal;
use super::rounds::{look, rounds};
use super::{groups, superblock};
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::Survey;
use crate::volume::{Volume, find_superblock};
use crate::{Code, Place, Progress};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::features::{Compat, Feature, Features, Incompat, RoCompat};
use extant_format::superblock::{
    ErrorsBehaviour, MountDefaults, RawSuperblock, SUPERBLOCK_OFFSET, Superblock, SuperblockFlags,
};
use std::sync::Arc;

/// Blocks that Linux wants in a journal beside those for fast commits.
const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// Blocks that Linux sets aside for fast commits where the journal does not say how many.
const FAST_COMMIT_BLOCKS: u64 = 256;

/// Bytes of a text of the superblock, which has a zero behind it.
const TEXT_MAX: usize = 63;

/// What is to be changed; `None` and empty lists leave what there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The label, at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The UUID. Checksums that start from it are computed anew.
    pub uuid: Option<[u8; 16]>,
    /// Blocks that only privileged users may take.
    pub reserved_blocks: Option<u64>,
    /// The user that may take them.
    pub reserved_user: Option<u32>,
    /// The group that may take them.
    pub reserved_group: Option<u32>,
    /// What is done when an error is found.
    pub errors: Option<ErrorsBehaviour>,
    /// Mounts after which a check is due; 0 or less for never.
    pub max_mounts: Option<i16>,
    /// Seconds after which a check is due; 0 for never.
    pub check_interval: Option<u32>,
    /// When it was checked last, in seconds since 1970.
    pub last_check: Option<u64>,
    /// Mount options that hold when nothing is asked for, on or off.
    pub mount_defaults: Vec<(MountDefaults, bool)>,
    /// Mounts since the last check.
    pub mount_count: Option<u16>,
    /// Blocks that go to one disk of a RAID before the next.
    pub stride: Option<u16>,
    /// Blocks that go to all data disks of a RAID.
    pub stripe_width: Option<u32>,
    /// Mount options as text, at most 63 bytes.
    pub mount_options: Option<Vec<u8>>,
    /// Where it was mounted last, at most 63 bytes.
    pub last_mounted: Option<Vec<u8>>,
    /// Whether code that is being developed may be tested on it.
    pub for_tests: Option<bool>,
    /// Features, on or off: see [`switch`].
    pub features: Vec<(Feature, bool)>,
}

/// What can be done with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Switch {
    /// It can be turned on.
    pub on: bool,
    /// It can be turned off.
    pub off: bool,
}

/// Whether a feature can be switched: nothing on the disk but the superblock depends on it, or what
/// does is put right.
#[must_use]
pub fn switch(feature: Feature) -> Switch {
    let (on, off) = match feature {
        Feature::Compat(
            Compat::DIR_INDEX | Compat::EXT_ATTR | Compat::FAST_COMMIT | Compat::STABLE_INODES,
        ) => (true, feature == Feature::Compat(Compat::FAST_COMMIT)),
        Feature::Compat(Compat::HAS_JOURNAL) => (false, true),
        Feature::Incompat(Incompat::LARGEDIR | Incompat::EA_INODE | Incompat::ENCRYPT) => {
            (true, false)
        }
        Feature::RoCompat(
            RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK | RoCompat::VERITY,
        ) => (true, false),
        Feature::Incompat(Incompat::CSUM_SEED) | Feature::RoCompat(RoCompat::READONLY) => {
            (true, true)
        }
        _ => (false, false),
    };
    Switch { on, off }
}

/// Finds out what is to be written, and writes nothing.
///
/// # Errors
/// As for [`super::plan`]; a file system that was not closed or is not sound; a setting that is not
/// possible.
pub fn plan(
    device: SharedDevice,
    settings: &Settings,
    options: Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let found = find_superblock(&*device, &mut Sink::new())?;
    super::special::refuse_if_in_use(&*device, &found)?;
    let mut draft = Draft::new(Arc::clone(&device), found.block_size().bytes());
    let survey = sound(&draft, &found, progress)?;
    let mut sb = found.clone();
    // First: metadata_csum_seed keeps the start that checksums have.
    for (feature, on) in &settings.features {
        sb = set_feature(&mut draft, &sb, *feature, *on)?;
    }
    let sb = set(&sb, settings)?;
    if sb.encode() == found.encode() {
        return Ok(Plan::new(draft, survey));
    }
    if sb.has_metadata_csum() && sb.checksum_seed() != found.checksum_seed() {
        reseal(&draft, &look(&draft, progress)?, sb.checksum_seed())?;
    }
    draft.put_superblock(&sb)?;
    draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, "changed");
    if !sb.has_metadata_csum() && sb.desc_checksum() != found.desc_checksum() {
        groups::seal_all(&draft, &survey.volume, &sb.desc_checksum())?;
    }
    // Nothing but what a journal leaves behind is to be repaired: a change of a name is no wish for
    // a repair.
    let survey = if sb.has_compat(Compat::HAS_JOURNAL) == found.has_compat(Compat::HAS_JOURNAL) {
        look(&draft, progress)?
    } else {
        rounds(&mut draft, options, progress)?
    };
    superblock::refresh_backups(&survey, &mut draft, options)?;
    let survey = look(&draft, progress)?;
    Ok(Plan::new(draft, survey))
}

/// Notes in the primary superblock that the file system was checked now (seconds since 1970), and
/// that it was not mounted since. It is the caller that knows that it is sound.
///
/// # Errors
/// No file system, one that is in use, a device that fails.
pub fn note_check(device: &dyn BlockDevice, now: u32) -> Result<()> {
    let sb = find_superblock(device, &mut Sink::new())?;
    super::special::refuse_if_in_use(device, &sb)?;
    let noted = sb.with(|raw| {
        raw.lastcheck.set(now);
        raw.lastcheck_hi = 0;
        raw.mnt_count.set(0);
    })?;
    if noted.encode() == sb.encode() {
        return Ok(());
    }
    device.write_at(SUPERBLOCK_OFFSET, &noted.encode())?;
    Ok(device.flush()?)
}

/// Checks a file system that is to be changed; refuses one that was not closed or is not sound.
pub(super) fn sound(draft: &Draft, sb: &Superblock, progress: &dyn Progress) -> Result<Survey> {
    if sb.needs_recovery() {
        return Err(refused("it was not closed: replay its journal first"));
    }
    let survey = look(draft, progress)?;
    if survey.report.is_clean() {
        return Ok(survey);
    }
    let mut findings = survey.report.findings.iter();
    let first = findings.find(|finding| finding.severity() > crate::Severity::Warning);
    let what = first.map_or_else(String::new, |finding| format!(" ({finding})"));
    Err(refused(&format!("it is not sound{what}: repair it first")))
}

fn refused(why: &str) -> Error {
    Error::Refused {
        why: why.to_owned(),
    }
}

fn set(sb: &Superblock, settings: &Settings) -> Result<Superblock> {
    let label = settings.label.as_deref();
    if label.is_some_and(|label| label.len() > 16) {
        return Err(refused("a label has at most 16 bytes"));
    }
    for text in [&settings.mount_options, &settings.last_mounted] {
        if text.as_ref().is_some_and(|text| text.len() > TEXT_MAX) {
            let why = format!("mount options and mount points have at most {TEXT_MAX} bytes");
            return Err(refused(&why));
        }
    }
    let most = sb.blocks_count() / 2;
    if settings.reserved_blocks.is_some_and(|blocks| blocks > most) {
        return Err(refused(&format!("at most {most} blocks can be reserved")));
    }
    let stable = Feature::Compat(Compat::STABLE_INODES);
    let is_stable = sb.features().has(stable) || settings.features.contains(&(stable, true));
    if is_stable && settings.uuid.is_some_and(|uuid| uuid != sb.uuid()) {
        let why = "keys of encrypted files may come from the UUID (feature stable_inodes)";
        return Err(refused(why));
    }
    Ok(sb.with(|raw| {
        if let Some(label) = label {
            raw.volume_name = [0; 16];
            raw.volume_name
                .iter_mut()
                .zip(label)
                .for_each(|(to, from)| *to = *from);
        }
        if let Some(uuid) = settings.uuid {
            raw.uuid = uuid;
        }
        set_reserve(raw, settings);
        set_texts(raw, settings);
        set_checks(raw, settings);
    })?)
}

fn set_texts(raw: &mut RawSuperblock, settings: &Settings) {
    for (to, from) in [
        (&mut raw.mount_opts, &settings.mount_options),
        (&mut raw.last_mounted, &settings.last_mounted),
    ] {
        if let Some(from) = from {
            *to = [0; 64];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        }
    }
    if let Some(stride) = settings.stride {
        raw.raid_stride.set(stride);
    }
    if let Some(width) = settings.stripe_width {
        raw.raid_stripe_width.set(width);
    }
    if let Some(on) = settings.for_tests {
        let mut flags = SuperblockFlags::from_bits_retain(raw.flags.get());
        flags.set(SuperblockFlags::TEST_FILESYS, on);
        raw.flags.set(flags.bits());
    }
}

fn set_reserve(raw: &mut RawSuperblock, settings: &Settings) {
    if let Some(blocks) = settings.reserved_blocks {
        raw.r_blocks_count_lo.set(blocks as u32);
        raw.r_blocks_count_hi.set((blocks >> 32) as u32);
    }
    if let Some(uid) = settings.reserved_user {
        raw.def_resuid.set(uid as u16);
        raw.def_resuid_hi.set((uid >> 16) as u16);
    }
    if let Some(gid) = settings.reserved_group {
        raw.def_resgid.set(gid as u16);
        raw.def_resgid_hi.set((gid >> 16) as u16);
    }
}

fn set_checks(raw: &mut RawSuperblock, settings: &Settings) {
    if let Some(errors) = settings.errors {
        raw.errors.set(errors.to_raw());
    }
    if let Some(mounts) = settings.max_mounts {
        raw.max_mnt_count.set(mounts as u16);
    }
    if let Some(mounts) = settings.mount_count {
        raw.mnt_count.set(mounts);
    }
    if let Some(seconds) = settings.check_interval {
        raw.checkinterval.set(seconds);
    }
    if let Some(seconds) = settings.last_check {
        raw.lastcheck.set(seconds as u32);
        raw.lastcheck_hi = (seconds >> 32) as u8;
    }
    let mut defaults = raw.default_mount_opts.get();
    for (option, on) in &settings.mount_defaults {
        let bits = option.bits();
        let journal = MountDefaults::JOURNAL_WRITEBACK.bits();
        // The three ways of keeping data are one number.
        if bits & journal != 0 {
            defaults &= !journal;
        }
        defaults = if *on {
            defaults | bits
        } else {
            defaults & !bits
        };
    }
    raw.default_mount_opts.set(defaults);
}

fn set_feature(
    draft: &mut Draft,
    sb: &Superblock,
    feature: Feature,
    on: bool,
) -> Result<Superblock> {
    let now: Features = sb.features();
    if now.has(feature) == on {
        return Ok(sb.clone());
    }
    let mut then = now;
    then.set(feature, on);
    let names = |features: Features| features.names();
    let name = if on {
        names(then)
            .into_iter()
            .find(|name| !names(now).contains(name))
    } else {
        names(now)
            .into_iter()
            .find(|name| !names(then).contains(name))
    };
    let name = name.unwrap_or_default();
    let possible = switch(feature);
    if (on && !possible.on) || (!on && !possible.off) {
        let verb = if on { "on" } else { "off" };
        return Err(refused(&format!(
            "feature {name} cannot be turned {verb} here"
        )));
    }
    let journal = Feature::Compat(Compat::HAS_JOURNAL);
    if feature == Feature::Compat(Compat::FAST_COMMIT) && on && !now.has(journal) {
        return Err(refused("fast_commit needs a journal"));
    }
    if feature == Feature::Compat(Compat::FAST_COMMIT) && on {
        room_for_fast_commits(draft, sb)?;
    }
    if feature == journal {
        let sb = super::journal::turn_off(draft, sb)?;
        return turn_off_orphan_file(draft, &sb);
    }
    let seed = Feature::Incompat(Incompat::CSUM_SEED);
    if feature == seed && on && !sb.has_metadata_csum() {
        return Err(refused("metadata_csum_seed needs metadata_csum"));
    }
    Ok(sb.with(|raw| {
        if feature == seed {
            raw.checksum_seed
                .set(if on { sb.checksum_seed() } else { 0 });
        }
        raw.feature_compat.set(then.compat.bits());
        raw.feature_incompat.set(then.incompat.bits());
        raw.feature_ro_compat.set(then.ro_compat.bits());
    })?)
}

/// Refuses a journal of which Linux could not set blocks for fast commits aside: it would not mount
/// the file system.
fn room_for_fast_commits(draft: &Draft, sb: &Superblock) -> Result<()> {
    let Some(ino) = sb.journal_ino() else {
        return Ok(());
    };
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    let blocks = match volume.inode(ino)? {
        Some((_, inode)) => inode.size / u64::from(volume.block_size().bytes()),
        None => 0,
    };
    let needed = JOURNAL_BLOCKS_MIN + FAST_COMMIT_BLOCKS;
    if blocks < needed {
        Err(refused(&format!(
            "the journal has {blocks} blocks, and fast_commit needs {needed} for Linux to mount it: make the file system anew with a larger journal"
        )))
    } else {
        Ok(())
    }
}

/// Gives up the orphan file, which is of no use without a journal.
fn turn_off_orphan_file(draft: &Draft, sb: &Superblock) -> Result<Superblock> {
    let Some(ino) = sb.orphan_file_ino() else {
        return Ok(sb.clone());
    };
    if sb.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        let why = "files wait to be deleted or cut: repair it first, or mount it once";
        return Err(refused(why));
    }
    let volume = Volume::open(draft.device(), &mut Sink::new())?;
    if let Some(offset) = volume.inode_offset(ino) {
        draft.write(offset, &vec![0; usize::from(volume.inode_size())])?;
    }
    super::system_files::without_orphan_file(sb)
}
