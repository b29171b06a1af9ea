//! Changing what a superblock says about a file system that is closed and sound: identity, reserve,
//! behaviour, features.
//!
//! As a repair, it is worked out in memory first: see [`Plan`].
//!
//! | module | owns |
//! |---|---|
//! | `features` | features turned on and off, in an order in which each finds what it needs |
//! | `checksums` | checksums of metadata and of descriptors, and their absence |
//! | `directories` | directories with room for checksums, or without |
//! | `external` | a journal on a device of its own |
//! | `inode_size` | larger inodes, in tables in other places |
//! | `files` | the journal, the orphan file, quota files, multiple-mount protection |
//! | `wide` | descriptors of 64 bytes, and of 32 |
//! | [`words`] | words for what can be changed |

mod checksums;
mod directories;
mod external;
mod features;
mod files;
mod inode_size;
mod wide;
pub mod words;

pub use external::{ExternalJournal, dismiss, enlist, external_journal, holds_journal_of};
pub use features::{Switch, switch};

use super::draft::Draft;
use super::options::Options;
use super::plan::Plan;
use super::reseal::reseal;
use super::rounds::{look, rounds};
use super::{groups, net, superblock};
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::Survey;
use crate::volume::find_superblock;
use crate::{Code, Place, Progress};
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::dir::HashVersion;
use extant_format::features::{Compat, Feature, Incompat};
use extant_format::superblock::{
    ErrorsBehaviour, MountDefaults, RawSuperblock, SUPERBLOCK_OFFSET, State, Superblock,
    SuperblockFlags,
};
use std::ops::Range;
use std::sync::Arc;

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
    /// Bytes of the journal, where one is made; by default as many as suit the file system.
    pub journal_size: Option<u64>,
    /// The block from which on the journal is put, where one is made and there is room.
    pub journal_location: Option<u64>,
    /// The journal on a device of its own, where one is given.
    pub journal_device: Option<ExternalJournal>,
    /// Bytes of an inode: a power of two, as many as now or more.
    pub inode_size: Option<u32>,
    /// Bytes of the orphan file, where one is made; by default as many as suit the file system.
    pub orphan_file_size: Option<u64>,
    /// Quota files of users, groups and projects, on or off.
    pub quotas: [Option<bool>; 3],
    /// Seconds between two updates of multiple-mount protection.
    pub mmp_interval: Option<u16>,
    /// The hash by which new directories are indexed.
    pub hash: Option<HashVersion>,
    /// Have the superblock ask for a check.
    pub force_check: bool,
    /// Have multiple-mount protection forget who had the file system open: only where it is certain
    /// that nobody has.
    pub clear_mmp: bool,
}

/// A file system on its way to what is wanted.
struct Tuning<'a> {
    draft: &'a mut Draft,
    /// What a check says of it now.
    survey: Survey,
    options: Options,
    progress: &'a dyn Progress,
    /// The blocks of each group's inode table that were not used before anything changed.
    unused: Vec<Range<u64>>,
    /// The superblock as it is to be, once all else is done.
    wanted: Superblock,
    /// The numbers of files that are made and have no name: see [`files::announce`].
    announced: files::Announced,
}

impl Tuning<'_> {
    /// Writes the superblock.
    fn put(&mut self, sb: &Superblock) -> Result<()> {
        self.draft.put_superblock(sb)?;
        self.draft
            .fix(Code::SuperblockField, Place::FILE_SYSTEM, "changed");
        Ok(())
    }

    /// Checks what there is now.
    fn look(&mut self) -> Result<()> {
        self.survey = look(self.draft, self.progress)?;
        Ok(())
    }

    /// Has sums and all that depends on what changed put right.
    fn settle(&mut self) -> Result<()> {
        self.look()?;
        // What copies say must not be taken for better.
        superblock::refresh_backups(&self.survey, self.draft, self.options)?;
        self.survey = rounds(self.draft, self.options, self.progress)?;
        match unsound(&self.survey) {
            None => Ok(()),
            Some(what) => Err(refused(&format!(
                "the file system would not be sound afterwards{what}"
            ))),
        }
    }
}

/// The first thing that is wrong, if anything is.
fn unsound(survey: &Survey) -> Option<String> {
    if survey.report.is_clean() {
        return None;
    }
    let mut findings = survey.report.findings.iter();
    let first = findings.find(|finding| finding.severity() > crate::Severity::Warning);
    Some(first.map_or_else(String::new, |finding| format!(" ({finding})")))
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
    let mut draft = Draft::that_zeroes_first(Arc::clone(&device), found.block_size().bytes());
    if settings.clear_mmp {
        files::clear_mmp(&mut draft, options)?;
    } else {
        super::special::refuse_if_in_use(&*device, &found)?;
    }
    let survey = sound(&draft, &found, progress)?;
    draft.note_in_use(&survey);
    let mut tuning = Tuning {
        draft: &mut draft,
        unused: checksums::unused_blocks(&survey.volume),
        survey,
        options,
        progress,
        wanted: found.clone(),
        announced: files::Announced::default(),
    };
    // First: metadata_csum_seed keeps the start that checksums have.
    features::switch_all(&mut tuning, settings)?;
    let sb = set(&tuning.wanted, settings)?;
    let survey = tuning.survey;
    let is_settled = sb.encode() == draft.superblock()?.encode() && draft.count() == 0;
    if is_settled && !settings.force_check {
        return Ok(Plan::new(draft, survey));
    }
    let before = &survey.volume.sb;
    if sb.has_metadata_csum() && sb.checksum_seed() != before.checksum_seed() {
        reseal(&draft, &survey, &survey.volume.with_superblock(&sb))?;
    }
    draft.put_superblock(&sb)?;
    draft.fix(Code::SuperblockField, Place::FILE_SYSTEM, "changed");
    if !sb.has_metadata_csum() && sb.desc_checksum() != before.desc_checksum() {
        groups::seal_all(&draft, &survey.volume, &sb.desc_checksum())?;
    }
    // A change of a name is no wish for a repair: nothing else is put right here.
    let survey = look(&draft, progress)?;
    superblock::refresh_backups(&survey, &mut draft, options)?;
    let survey = look(&draft, progress)?;
    let (losses, count) = net::losses(&draft)?;
    if settings.force_check {
        let mut sb = draft.superblock()?;
        sb.set_state(sb.state() | State::ERRORS);
        draft.put_superblock(&sb)?;
    }
    let grows = sb.inode_size() != found.inode_size();
    let plan = Plan::of_sound(draft, survey, !options.in_front)?;
    if grows && !options.in_front && !plan.is_whole() {
        // Between descriptors and the superblock nobody could tell how large inodes are.
        let why = "there is no room for the log of a change of the size of inodes: make room, or the file system larger";
        return Err(refused(why));
    }
    Ok(Plan {
        losses,
        losses_count: count,
        ..plan
    })
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
    crate::superblock::refuse_too_short(&*draft.device(), sb)?;
    let survey = look(draft, progress)?;
    match unsound(&survey) {
        None => Ok(survey),
        Some(what) => Err(refused(&format!("it is not sound{what}: repair it first"))),
    }
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
    if settings.mmp_interval.is_some() && !sb.has_incompat(Incompat::MMP) {
        return Err(refused(
            "there is no multiple-mount protection (feature mmp)",
        ));
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
    if let Some(hash) = settings.hash {
        raw.def_hash_version = hash.stored().raw();
    }
    if let Some(interval) = settings.mmp_interval {
        raw.mmp_update_interval.set(interval);
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
