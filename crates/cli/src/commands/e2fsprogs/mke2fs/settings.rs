//! What a file system is to be like: what was asked for, over `mke2fs.conf`, over what mke2fs does.

use super::super::conf::{Conf, Settings};
use super::super::number::{DEFAULT_BLOCK, Length, integer};
use super::asked::{Asked, BlockSizeAsked, errors_behaviour};
use super::extended::Extended;
use super::target::Target;
use crate::commands::tune;
use crate::failure::{Failure, Outcome, say};
use extant::Escaped;
use extant_format::BlockSize;
use extant_format::features::{Compat, Feature, Features, Incompat, RoCompat};
use extant_format::superblock::MountDefaults;
use extant_mkfs::FormatOptions;
use extant_mkfs::defaults::{InodeDensity, JournalSize, SizeClass, TableInit};
use std::path::Path;

/// Blocks in a cluster where nothing says otherwise.
const CLUSTER_BLOCKS: u64 = 16;
/// Bytes of a page of memory, which `blocksize = -1` means.
const PAGE: u64 = 4096;
/// The features of a type that says nothing.
const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";
/// Bytes for an inode where nothing says otherwise.
const INODE_RATIO: u64 = 8192;
/// Bytes of an inode where nothing says otherwise.
const INODE_SIZE: u64 = 128;
/// Where Linux says that it initialises inode tables by itself.
const LAZY_TABLES: &str = "/sys/fs/ext4/features/lazy_itable_init";

/// A file system to be made.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Without an identity that a source has a part in.
    pub(super) format: FormatOptions,
    /// Types of which settings were taken.
    pub(super) types: Vec<String>,
    pub(super) offset: u64,
    pub(super) hash_seed: Option<[u8; 16]>,
    pub(super) discards: bool,
    /// Whether there shall be a journal.
    pub(super) has_journal: bool,
}

impl Wanted {
    /// Works out what is to be made by a program of this name.
    pub(super) fn new(
        name: &str,
        asked: &Asked,
        conf: &Conf,
        target: &Target,
        given: &Extended,
    ) -> Outcome<Self> {
        let exact = match asked.block_size {
            Some(BlockSizeAsked::This(size)) => size,
            _ => DEFAULT_BLOCK,
        };
        let bytes = match asked.length {
            Some(length) => length.bytes(exact).unwrap_or(u64::MAX),
            None => target.room(given.offset.unwrap_or(0)),
        };
        let settings = Settings {
            conf,
            types: types(name, asked, conf, bytes)?,
        };
        refuse_unknown(&settings)?;
        let mut extended = Extended::default();
        if let Some(list) = settings.text("options") {
            extended.take(list)?;
        }
        for list in &asked.extended {
            extended.take(list)?;
        }
        let block = block_size(asked, &settings, target)?;
        let bytes = bytes / block * block;
        let features = features(asked, &settings, bytes / block)?;
        check_features(features, &settings, &mut extended)?;
        let has_journal = features.has(Feature::Compat(Compat::HAS_JOURNAL));
        let mut format = FormatOptions::new(bytes, crate::time::seconds_now());
        format.block_size = u32::try_from(block).ok().and_then(BlockSize::from_bytes);
        format.sector_size = target.sector();
        let names = format!("none,{}", features.names().join(","));
        format.features = names.parse().map_err(Failure::new)?;
        set_sizes(&mut format, asked, &settings, features, block)?;
        set_names(&mut format, asked, &settings)?;
        set_extended(&mut format, &extended, block, bytes)?;
        format.journal = match asked.journal_size {
            _ if !has_journal => JournalSize::None,
            None | Some(0) => JournalSize::BySize,
            Some(mib) => JournalSize::Bytes(mib.saturating_mul(1 << 20)),
        };
        let lazy = match (extended.lazy_tables, settings.flag("lazy_itable_init")?) {
            (Some(lazy), _) | (None, Some(lazy)) => lazy,
            // What is in a file reads as zeros for nothing.
            (None, None) => target.is_device() && Path::new(LAZY_TABLES).exists(),
        };
        format.table_init = if lazy {
            TableInit::Lazy
        } else {
            TableInit::Full
        };
        Ok(Self {
            discards: extended
                .discards
                .or(asked.keeps_blocks.then_some(false))
                .or(settings.flag("discard")?)
                .unwrap_or(true),
            offset: extended.offset.unwrap_or(0),
            hash_seed: extended.hash_seed,
            types: settings.types,
            format,
            has_journal,
        })
    }
}

/// The types of which settings are taken: that of the file system, and those of its use.
fn types(name: &str, asked: &Asked, conf: &Conf, bytes: u64) -> Outcome<Vec<String>> {
    let device = asked.device.to_string_lossy();
    let of_device = |name| conf.setting_in("devices", &device, name);
    let by_name = name.strip_prefix("mkfs.");
    let fs_type = asked
        .fs_type
        .as_deref()
        .or(of_device("fs_type"))
        .or(by_name);
    let fs_type = fs_type.unwrap_or_else(|| match conf.setting("defaults", "fs_type") {
        None | Some("ext2") if asked.has_journal => "ext3",
        None => "ext2",
        Some(name) => name,
    });
    if fs_type != "ext2" && !conf.has_type(fs_type) {
        return Err(Failure::new(format!(
            "Your mke2fs.conf file does not define the {fs_type} filesystem type."
        )));
    }
    let mut types = vec![fs_type.to_owned()];
    let usage = asked.usage.as_deref().or(of_device("usage_types"));
    let usage = usage.unwrap_or(match SizeClass::of(bytes) {
        SizeClass::Floppy => "floppy",
        SizeClass::Small => "small",
        SizeClass::Default => "default",
        SizeClass::Big => "big",
        SizeClass::Huge => "huge",
    });
    for name in usage.split(',').filter(|name| !name.is_empty()) {
        if conf.has_type(name) {
            types.push(name.to_owned());
        } else if asked.usage.is_some() && name != "default" {
            return Err(Failure::new(format!(
                "the fs_type {name} is not defined in mke2fs.conf"
            )));
        }
    }
    Ok(types)
}

/// Refuses features that mke2fs does not make together, and takes the settings that mean something
/// with a feature alone.
fn check_features(features: Features, settings: &Settings<'_>, extended: &mut Extended) -> Outcome {
    let has = |feature| features.has(Feature::Incompat(feature));
    if has(Incompat::BIT64) && !has(Incompat::EXTENTS) {
        return Err(Failure::new(
            "Extents MUST be enabled for a 64-bit filesystem.  Pass -O extents to rectify.",
        ));
    }
    let mut list = Vec::new();
    if features.has(Feature::Compat(Compat::SPARSE_SUPER2)) && extended.backups.is_none() {
        list.push("num_backup_sb");
    }
    if has(Incompat::CASEFOLD) {
        list.extend(["encoding", "encoding_flags"]);
    }
    for name in list {
        if let Some(text) = settings.text(name).filter(|text| !text.is_empty()) {
            extended.take_setting(name, text)?;
        }
    }
    Ok(())
}

/// Refuses settings that say something else than what is made.
fn refuse_unknown(settings: &Settings<'_>) -> Outcome {
    let on = |name| settings.flag(name).map(|flag| flag == Some(true));
    let wrong = [
        ("enable_periodic_fsck", on("enable_periodic_fsck")?),
        ("packed_meta_blocks", on("packed_meta_blocks")?),
        ("make_hugefiles", on("make_hugefiles")?),
        ("force_undo", on("force_undo")?),
        (
            "creator_os",
            settings
                .text("creator_os")
                .is_some_and(|os| !["linux", "0"].contains(&&*os.to_ascii_lowercase())),
        ),
        ("undo_dir", settings.text("undo_dir").is_some()),
        (
            "journal_location",
            settings.text("journal_location").is_some(),
        ),
        (
            "hash_alg",
            settings
                .text("hash_alg")
                .is_some_and(|alg| alg != "half_md4"),
        ),
    ];
    match wrong.into_iter().find(|(_, is_there)| *is_there) {
        None => Ok(()),
        Some((name, _)) => Err(Failure::new(format!(
            "mke2fs.conf: {name} is not understood: MKE2FS_CONFIG names another file"
        ))),
    }
}

fn block_size(asked: &Asked, settings: &Settings<'_>, target: &Target) -> Outcome<u64> {
    if let Some(BlockSizeAsked::This(size)) = asked.block_size {
        return Ok(size);
    }
    let read = |text: &str| match text {
        "-1" => Some(PAGE),
        text => Length::parse_bytes(text),
    };
    let size = settings.value("blocksize", read)?.unwrap_or(PAGE);
    let size = size.max(target.sector().into());
    let size = match asked.block_size {
        Some(BlockSizeAsked::AtLeast(least)) => size.max(least),
        _ => size,
    };
    let is_size = (1024..=65_536).contains(&size) && size.is_power_of_two();
    is_size
        .then_some(size)
        .ok_or_else(|| Failure::new(format!("mke2fs.conf: invalid block size - {size}")))
}

fn features(asked: &Asked, settings: &Settings<'_>, blocks: u64) -> Outcome<Features> {
    let mut features = Features::default();
    let base = settings.text("base_features").unwrap_or(BASE_FEATURES);
    edit(&mut features, base)?;
    for list in settings.of_each("features") {
        edit(&mut features, list)?;
    }
    if asked.features.is_empty() {
        edit(
            &mut features,
            settings.text("default_features").unwrap_or(""),
        )?;
    }
    for list in &asked.features {
        edit(&mut features, list)?;
    }
    if asked.has_journal {
        features.compat |= Compat::HAS_JOURNAL;
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        // It is of no use without.
        features.compat -= Compat::ORPHAN_FILE;
    }
    if blocks > u32::MAX.into() && settings.flag("auto_64-bit_support")? == Some(true) {
        features.incompat |= Incompat::BIT64;
    }
    Ok(features)
}

/// Turns features on and off as a list says.
fn edit(features: &mut Features, list: &str) -> Outcome {
    let words = list.split(|c: char| c == ',' || c.is_whitespace());
    for word in words.filter(|word| !word.is_empty()) {
        if word == "none" {
            *features = Features::default();
            continue;
        }
        let (name, on) = match word.strip_prefix(['^', '-']) {
            Some(name) => (name, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        let Some(feature) = Feature::from_name(name) else {
            return Err(Failure::new(format!(
                "Invalid filesystem option set: {list} (no feature is called {name})"
            )));
        };
        features.set(feature, on);
    }
    Ok(())
}

fn set_sizes(
    format: &mut FormatOptions,
    asked: &Asked,
    settings: &Settings<'_>,
    features: Features,
    block: u64,
) -> Outcome {
    let narrow = |what: &str, number: u64| {
        u32::try_from(number).map_err(|_| Failure::new(format!("invalid {what} - {number}")))
    };
    let bigalloc = features.has(Feature::RoCompat(RoCompat::BIGALLOC));
    let mut cluster = asked.cluster_size;
    if cluster.is_none() && bigalloc {
        let size = settings.value("cluster_size", Length::parse_bytes)?;
        cluster = Some(size.unwrap_or(block * CLUSTER_BLOCKS));
    }
    format.cluster_size = cluster
        .map(|size| narrow("cluster size", size))
        .transpose()?;
    let inode_size = settings.value("inode_size", integer)?;
    let inode_size = asked.inode_size.or(inode_size).unwrap_or(INODE_SIZE);
    format.inode_size = narrow("inode size", inode_size)?;
    if inode_size == 128 && settings.flag("warn_y2038_dates")? != Some(false) {
        say("warning: inodes of 128 bytes have no room for dates after 2038");
    }
    format.inodes = match (asked.inodes, asked.inode_ratio) {
        (Some(count), _) => InodeDensity::Count(narrow("number of inodes", count)?),
        (None, Some(ratio)) => InodeDensity::Ratio(narrow("inode ratio", ratio)?),
        (None, None) => {
            let ratio = settings.value("inode_ratio", Length::parse_bytes)?;
            let ratio = ratio.unwrap_or(INODE_RATIO).max(block);
            let ratio = ratio.max(cluster.unwrap_or(0));
            InodeDensity::Ratio(narrow("inode ratio", ratio)?)
        }
    };
    if let Some(blocks) = asked.blocks_per_group {
        format.blocks_per_group = Some(narrow("blocks per group", blocks)?);
    }
    let flex = settings.value("flex_bg_size", integer)?;
    let flex = flex.filter(|_| features.has(Feature::Incompat(Incompat::FLEX_BG)));
    if let Some(groups) = asked.groups_per_flex.or(flex) {
        format.groups_per_flex = Some(narrow("flex_bg size", groups)?);
    }
    let reserved = settings.value("reserved_ratio", |text| text.parse().ok())?;
    format.reserved_percent = Some(asked.reserved_percent.or(reserved).unwrap_or(5.0));
    Ok(())
}

fn set_names(format: &mut FormatOptions, asked: &Asked, settings: &Settings<'_>) -> Outcome {
    format.label = asked.label.clone();
    format.last_mounted = asked.last_mounted.clone();
    if let Some(uuid) = asked.uuid {
        format.uuid = uuid;
    }
    let errors = settings.text("errors").map(errors_behaviour).transpose()?;
    format.errors = asked.errors.or(errors).unwrap_or(format.errors);
    if let Some(list) = settings.text("default_mntopts") {
        let mut defaults = MountDefaults::empty();
        for (name, on) in tune::switches(&[list.to_owned()]) {
            let option = tune::mount_default(name.trim()).ok_or_else(|| {
                let name = Escaped(name.as_bytes());
                Failure::new(format!("mke2fs.conf: {name} is no default mount option"))
            })?;
            defaults.set(option, on);
        }
        format.mount_defaults = defaults;
    }
    Ok(())
}

fn set_extended(
    format: &mut FormatOptions,
    extended: &Extended,
    block: u64,
    bytes: u64,
) -> Outcome {
    format.stride = extended.stride;
    format.stripe_width = extended.stripe_width;
    if let Some(length) = extended.resize {
        let limit = length.bytes(block).unwrap_or(u64::MAX);
        if limit <= bytes {
            let text = "The resize maximum must be greater than the filesystem size.";
            return Err(Failure::new(text));
        }
        format.resize_limit = Some(limit);
    }
    if let Some(backups) = extended.backups {
        format.backup_supers = backups;
    }
    format.quotas = extended.quotas;
    if let Some(owner) = extended.root_owner {
        format.root_owner = owner;
    }
    if let Some(mode) = extended.root_mode {
        format.root_mode = mode;
    }
    Ok(())
}
