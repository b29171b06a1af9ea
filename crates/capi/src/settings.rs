//! Settings as C passes them: strings `name=value`, of which the names are long options of the
//! command.

use crate::call::Failure;
use crate::tables::{self, Tables};
use extant::BlockSize;
use extant::ErrorsBehaviour;
use extant_format::features::{Feature, RoCompat};
use extant_format::superblock::Superblock;
use extant_fsck::repair::tune::{self, words as tuned};
use extant_mkfs::defaults::{FeatureRequest, InodeDensity, JournalSize, Profile, TableInit};
use extant_mkfs::source::{
    Excludes, Normalisation, Owner, Platform, Source, SourceOptions, TimePolicy, Timestamp,
    Whiteouts,
};
use extant_mkfs::standing::Identity;
use extant_mkfs::{Arrangement, FormatOptions, Headroom, Size, words};
use std::ffi::OsStr;
use std::fmt::Display;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// A file system that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) size: Option<Size>,
    headroom: Option<Headroom>,
    pub(crate) from: Vec<Source>,
    exclude: Vec<Vec<u8>>,
    pub(crate) tables: Tables,
    owner: Option<Owner>,
    root_owner: Option<Owner>,
    root_mode: Option<u16>,
    mtime: Option<i64>,
    pub(crate) epoch: Option<u64>,
    block_size: Option<BlockSize>,
    inode_size: Option<u32>,
    inodes: Option<InodeDensity>,
    journal: Option<JournalSize>,
    features: FeatureRequest,
    profile: Profile,
    pub(crate) label: Option<Vec<u8>>,
    uuid: Option<[u8; 16]>,
    hash_seed: Option<[u8; 16]>,
    reserved_percent: Option<f64>,
    table_init: Option<TableInit>,
    pub(crate) arrangement: Arrangement,
    pub(crate) threads: Option<NonZero<usize>>,
    pub(crate) force: bool,
    /// The word for the format of the image.
    pub(crate) format: Option<String>,
    /// An image that the new one shall be like.
    pub(crate) like: Option<Vec<u8>>,
    /// Of users, groups and projects.
    quotas: Option<[bool; 3]>,
    platform: Option<Platform>,
    whiteouts: Option<Whiteouts>,
}

/// A setting, taken apart.
struct Setting<'a> {
    name: &'a str,
    value: &'a [u8],
}

impl<'a> Setting<'a> {
    fn new(text: &'a [u8]) -> Result<Self, Failure> {
        let equals = text.iter().position(|byte| *byte == b'=');
        let taken_apart = equals.and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?)));
        let (name, value) = taken_apart.ok_or_else(|| {
            let text = text.escape_ascii();
            Failure::invalid(format!("the setting \"{text}\" is not name=value"))
        })?;
        let name = std::str::from_utf8(name)
            .map_err(|_| Failure::invalid("the name of a setting is no word"))?;
        Ok(Self { name, value })
    }

    /// What is wrong with it.
    fn wrong(&self, why: impl Display) -> Failure {
        let (name, value) = (self.name, self.value.escape_ascii());
        Failure::invalid(format!("{name}={value}: {why}"))
    }

    fn unknown(&self, of: &str) -> Failure {
        let name = self.name;
        Failure::invalid(format!("{name} is no setting of {of}: see extant(3)"))
    }

    fn text(&self) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.value).map_err(|_| self.wrong("it is no text"))
    }

    /// The value as `read` understands it.
    fn read<T, E: Display>(&self, read: impl FnOnce(&str) -> Result<T, E>) -> Result<T, Failure> {
        read(self.text()?).map_err(|e| self.wrong(e))
    }

    fn parse<T: FromStr>(&self) -> Result<T, Failure>
    where
        T::Err: Display,
    {
        self.read(T::from_str)
    }

    /// A number of bytes that `check` takes.
    fn bytes<T>(&self, check: impl FnOnce(u64) -> Result<T, String>) -> Result<T, Failure> {
        self.read(|text| words::parse_size(text).and_then(check))
    }

    fn switch(&self) -> Result<bool, Failure> {
        match self.value {
            b"yes" => Ok(true),
            b"no" => Ok(false),
            _ => Err(self.wrong("use yes or no")),
        }
    }
}

/// Reads the settings of a file system to be made.
pub(crate) fn read(given: &[&[u8]]) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    for text in given {
        asked.take(&Setting::new(text)?)?;
    }
    if asked.headroom.is_some() && matches!(asked.size, Some(Size::Bytes(_))) {
        let text = "headroom goes with size=auto: a fixed size has the room it has";
        return Err(Failure::invalid(text));
    }
    if !asked.tables.is_empty() && asked.from.is_empty() {
        let text = "owners, contexts and map-ids are of what from=TREE puts in: give that, too";
        return Err(Failure::invalid(text));
    }
    if !asked.tables.mount_point.is_empty()
        && asked.tables.owners.is_empty()
        && asked.tables.contexts.is_none()
    {
        let text = "mount-point says what the paths of owners and contexts begin with: give one of \
                    these, too";
        return Err(Failure::invalid(text));
    }
    if !asked.tables.ids.is_empty() && asked.owner.is_some() {
        let text = "owner gives all files to one, so that map-ids has nothing to map: give one of \
                    them";
        return Err(Failure::invalid(text));
    }
    if let Some(Size::Auto(_)) = asked.size {
        asked.size = Some(asked.auto());
    }
    Ok(asked)
}

impl Asked {
    fn take(&mut self, setting: &Setting<'_>) -> Result<(), Failure> {
        match setting.name {
            "size" if setting.value == b"auto" => self.size = Some(self.auto()),
            "size" => self.size = Some(Size::Bytes(setting.bytes(Ok)?)),
            "headroom" => self.headroom = Some(setting.read(words::parse_headroom)?),
            "from" => self.from.push(self.source(setting)?),
            "exclude" => self.exclude.push(setting.value.to_vec()),
            "owners" => self.tables.owners.push(setting.value.to_vec()),
            "contexts" => self.tables.contexts = Some(setting.value.to_vec()),
            "map-ids" => self.tables.ids.push(setting.parse()?),
            "mount-point" => {
                let read = tables::mount_point(setting.value);
                self.tables.mount_point = read.map_err(|e| setting.wrong(e))?;
            }
            "owner" => self.owner = Some(setting.parse()?),
            "root-owner" => self.root_owner = Some(setting.parse()?),
            "root-mode" => self.root_mode = Some(setting.read(words::parse_mode)?),
            "mtime" => self.mtime = Some(setting.parse()?),
            "source-date-epoch" => self.epoch = Some(setting.parse()?),
            "block-size" => self.block_size = Some(setting.bytes(words::block_size)?),
            "inode-size" => self.inode_size = Some(setting.bytes(words::inode_size)?),
            "inodes" => {
                self.inodes = Some(words::inodes(setting.parse()?).map_err(|e| setting.wrong(e))?)
            }
            "inode-ratio" => self.inodes = Some(setting.bytes(words::inode_ratio)?),
            "journal-size" => self.journal = Some(setting.read(words::parse_journal_size)?),
            "features" => self.features = setting.parse()?,
            "profile" => self.profile = setting.parse()?,
            "label" => {
                self.label = Some(words::label(setting.value).map_err(|e| setting.wrong(e))?);
            }
            "uuid" => self.uuid = Some(setting.read(words::parse_uuid)?),
            "hash-seed" => self.hash_seed = Some(setting.read(words::parse_uuid)?),
            "reserved-percent" => {
                let percent = words::reserved_percent(setting.parse()?);
                self.reserved_percent = Some(percent.map_err(|e| setting.wrong(e))?);
            }
            "table-init" => {
                self.table_init = Some(match setting.value {
                    b"full" => TableInit::Full,
                    b"lazy" => TableInit::Lazy,
                    _ => return Err(setting.wrong("use full or lazy")),
                });
            }
            "layout" => {
                self.arrangement = match setting.value {
                    b"steady" => Arrangement::Steady,
                    b"dense" => Arrangement::Dense,
                    _ => return Err(setting.wrong("use steady or dense")),
                };
            }
            "threads" => self.threads = NonZero::new(setting.parse()?),
            "force" => self.force = setting.switch()?,
            "format" => self.format = Some(setting.text()?.to_owned()),
            "like" => self.like = Some(setting.value.to_vec()),
            "quota" => self.quotas = Some(setting.read(words::quotas)?),
            "platform" => self.platform = Some(setting.parse()?),
            "whiteouts" => self.whiteouts = Some(setting.parse()?),
            _ => return Err(setting.unknown("mkfs")),
        }
        Ok(())
    }

    fn source(&self, setting: &Setting<'_>) -> Result<Source, Failure> {
        // The standard input is the program's.
        if setting.value == b"-" {
            return Err(setting.wrong("name a directory or an archive"));
        }
        Source::parse(OsStr::from_bytes(setting.value)).map_err(|e| setting.wrong(e))
    }

    pub(crate) fn has_source(&self) -> bool {
        !self.from.is_empty()
    }

    /// The size that is found out.
    pub(crate) fn auto(&self) -> Size {
        Size::Auto(self.headroom.unwrap_or(Headroom::ForChanges))
    }

    /// The identity that is asked for by name.
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            uuid: self.uuid,
            hash_seed: self.hash_seed,
        }
    }

    pub(crate) fn source_options(&self) -> Result<SourceOptions, Failure> {
        let mut options = SourceOptions::default();
        let patterns = self.exclude.iter().map(Vec::as_slice);
        options.excludes =
            Excludes::new(patterns).map_err(|e| Failure::invalid(format!("exclude: {e}")))?;
        options.threads = self.threads;
        options.platform = self.platform.clone();
        options.whiteouts = self.whiteouts;
        Ok(options)
    }

    pub(crate) fn normalisation(&self) -> Normalisation {
        let clamp = |epoch| {
            let seconds = i64::try_from(epoch).unwrap_or(i64::MAX);
            TimePolicy::Clamp(Timestamp::from_secs(seconds))
        };
        let set = |seconds| TimePolicy::Set(Timestamp::from_secs(seconds));
        Normalisation {
            owner: self.owner,
            times: self
                .mtime
                .map(set)
                .or_else(|| self.epoch.map(clamp))
                .unwrap_or_default(),
            root_owner: self.root_owner,
            root_mode: self.root_mode,
        }
    }

    /// Changes what is chosen by default.
    pub(crate) fn apply(&self, format: &mut FormatOptions) {
        format.block_size = self.block_size.or(format.block_size);
        format.inode_size = self.inode_size.unwrap_or(format.inode_size);
        format.inodes = self.inodes.unwrap_or(format.inodes);
        format.features = self.features.clone();
        if self.quotas.is_some() {
            format
                .features
                .push(Feature::RoCompat(RoCompat::QUOTA), true);
            format.quotas = self.quotas;
        }
        format.profile = self.profile;
        format.journal = self.journal.unwrap_or(format.journal);
        format.reserved_percent = self.reserved_percent;
        format.table_init = self.table_init.unwrap_or(format.table_init);
        // An empty one is asked for, too.
        if let Some(label) = &self.label {
            format.label = label.clone();
        }
        format.uuid = self.uuid.unwrap_or(format.uuid);
        format.hash_seed = self.hash_seed.unwrap_or(format.hash_seed);
        if let Some(owner) = self.root_owner {
            format.root_owner = (owner.uid, owner.gid.unwrap_or(format.root_owner.1));
        }
        format.root_mode = self.root_mode.unwrap_or(format.root_mode);
    }
}

/// Reads what is to change of a file system with this superblock, and the file in which what was
/// there is kept.
pub(crate) fn of_tune(
    given: &[&[u8]],
    sb: &Superblock,
) -> Result<(tune::Settings, Option<PathBuf>), Failure> {
    let mut settings = tune::Settings::default();
    let mut undo = None;
    for text in given {
        let setting = Setting::new(text)?;
        if setting.name == "undo" {
            undo = Some(PathBuf::from(OsStr::from_bytes(setting.value)));
            continue;
        }
        take(&mut settings, &setting, sb)?;
    }
    Ok((settings, undo))
}

fn take(
    settings: &mut tune::Settings,
    setting: &Setting<'_>,
    sb: &Superblock,
) -> Result<(), Failure> {
    match setting.name {
        "label" => settings.label = Some(setting.value.to_vec()),
        "last-mounted" => settings.last_mounted = Some(setting.value.to_vec()),
        "mount-string" => settings.mount_options = Some(setting.value.to_vec()),
        "uuid" => settings.uuid = Some(uuid(setting)?),
        "reserved-blocks" => settings.reserved_blocks = Some(setting.parse()?),
        "reserved-percent" => {
            let percent = words::reserved_percent(setting.parse()?);
            let percent = percent.map_err(|e| setting.wrong(e))?;
            settings.reserved_blocks = Some((sb.blocks_count() as f64 * percent / 100.0) as u64);
        }
        "reserved-user" => settings.reserved_user = Some(setting.parse()?),
        "reserved-group" => settings.reserved_group = Some(setting.parse()?),
        "max-mounts" => settings.max_mounts = Some(setting.parse()?),
        "mount-count" => settings.mount_count = Some(setting.parse()?),
        "check-interval" => {
            let days: u32 = setting.parse()?;
            settings.check_interval = Some(days.saturating_mul(86_400));
        }
        "last-check" => settings.last_check = Some(setting.parse()?),
        "journal-size" => settings.journal_size = Some(setting.bytes(Ok)?),
        "inode-size" => settings.inode_size = Some(setting.bytes(words::inode_size)?),
        "orphan-file-size" => settings.orphan_file_size = Some(setting.bytes(Ok)?),
        "mmp-interval" => settings.mmp_interval = Some(setting.parse()?),
        "stride" => settings.stride = Some(setting.parse()?),
        "stripe-width" => settings.stripe_width = Some(setting.parse()?),
        "hash" => {
            let hash = tuned::hash_named(setting.text()?);
            let hash = hash.ok_or_else(|| setting.wrong("use legacy, half_md4 or tea"))?;
            settings.hash = Some(hash);
        }
        "errors" => {
            settings.errors = Some(match setting.value {
                b"continue" => ErrorsBehaviour::Continue,
                b"remount-ro" => ErrorsBehaviour::RemountReadOnly,
                b"panic" => ErrorsBehaviour::Panic,
                _ => return Err(setting.wrong("use continue, remount-ro or panic")),
            });
        }
        "mount-options" => {
            for (name, on) in tuned::switches(&[setting.text()?]) {
                let option = tuned::mount_default(name).ok_or_else(|| {
                    setting.wrong(format_args!("{name:?} is no default mount option"))
                })?;
                settings.mount_defaults.push((option, on));
            }
        }
        "features" => {
            for (name, on) in tuned::switches(&[setting.text()?]) {
                let feature = Feature::from_name(name)
                    .ok_or_else(|| setting.wrong(format_args!("{name:?} is no feature")))?;
                settings.features.push((feature, on));
            }
        }
        "quota" => {
            let quotas = tuned::quotas(&[setting.text()?]);
            settings.quotas = quotas.map_err(|e| setting.wrong(e))?;
        }
        "force-check" => settings.force_check = setting.switch()?,
        "clear-mmp" => settings.clear_mmp = setting.switch()?,
        _ => return Err(setting.unknown("tune")),
    }
    Ok(())
}

fn uuid(setting: &Setting<'_>) -> Result<[u8; 16], Failure> {
    match setting.value {
        b"random" => Ok(FormatOptions::new(1 << 30, 0).uuid),
        b"clear" => Ok([0; 16]),
        _ => setting.read(words::parse_uuid),
    }
}

/// A UUID as text.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
