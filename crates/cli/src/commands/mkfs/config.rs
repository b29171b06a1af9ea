//! What was asked for, checked in one place: after this no option is text any more.

use super::sources;
use super::tables::Tables as Owners;
use super::verity::Verity;
use crate::args::{self, Layout, Mkfs, TableInit, Whereabouts};
use crate::chunks::Chunking;
use crate::container::format_of;
use crate::failure::{Failure, Outcome};
use crate::image_path::{ImagePath, how, whole_image};
use crate::size;
use crate::time::{TIMES, seconds_now, source_date_epoch};
use extant::{Escaped, Like, OpenSpec};
use extant_blockdev::BlockDevice;
use extant_format::BlockSize;
use extant_format::features::{Feature, RoCompat};
use extant_formats::Format as Container;
use extant_image::ImageLocation;
use extant_mkfs::defaults::{
    FeatureRequest, FormatOptions, InodeDensity, JournalSize, Profile, TableInit as Tables,
};
use extant_mkfs::source::{
    Excludes, Normalisation, Owner, Platform, Source, SourceOptions, TimePolicy, Timestamp, Tree,
    Whiteouts, read_sources,
};
use extant_mkfs::standing::Identity;
use extant_mkfs::words::{self, parse_headroom, parse_mode};
use extant_mkfs::{Arrangement, BuildOptions, Headroom, Size};

pub(in crate::commands) use extant_mkfs::words::parse_uuid;
use std::ffi::OsStr;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// An image to be made.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) image: PathBuf,
    /// What the file of the image is.
    pub(super) container: Container,
    /// Where its chunks go, if it is made in chunks.
    pub(super) chunking: Option<Chunking>,
    /// Where the configuration of a container image goes.
    pub(super) config_out: Option<PathBuf>,
    /// The bytes of something that exists which the file system may take.
    pub(super) window: Option<Range<u64>>,
    /// Hash trees that are made with it.
    pub(super) verity: Verity,
    pub(super) plan: Plan,
    pub(super) say: Say,
}

/// A file system to be made.
#[derive(Debug)]
pub(in crate::commands) struct Plan {
    /// Where the sources are; without one the file system is empty.
    from: Vec<Source>,
    /// The configuration of the container image that was read.
    image_config: Option<Vec<u8>>,
    normalisation: Normalisation,
    /// What is put beside the source, and tables of owners.
    tables: Owners,
    excludes: Excludes,
    platform: Option<Platform>,
    whiteouts: Option<Whiteouts>,
    size: Size,
    format: Format,
    threads: Option<NonZero<usize>>,
    /// Bytes of a sector of what the file system goes to.
    sector_size: u32,
    /// `SOURCE_DATE_EPOCH`: the image shall depend on nothing but the source.
    epoch: Option<u64>,
    arrangement: Arrangement,
    /// The image that this one shall be like.
    like: Option<Like>,
}

/// What is said on standard output about an image that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Say {
    Nothing,
    Text,
    Json,
}

/// The options that become part of [`FormatOptions`]; `None` leaves the default.
#[derive(Debug)]
struct Format {
    block_size: Option<BlockSize>,
    inode_size: Option<u32>,
    inodes: InodeDensity,
    features: FeatureRequest,
    profile: Profile,
    journal: JournalSize,
    reserved_percent: Option<f64>,
    quotas: Option<[bool; 3]>,
    tables: Tables,
    label: Option<Vec<u8>>,
    uuid: Option<[u8; 16]>,
    hash_seed: Option<[u8; 16]>,
    root_owner: Option<Owner>,
    root_mode: Option<u16>,
}

impl Config {
    /// Checks what was asked for; `on` is the device that it goes to, where that is open.
    pub(super) fn new(
        args: &Mkfs,
        location: &Whereabouts,
        on: Option<&dyn BlockDevice>,
    ) -> Outcome<Self> {
        if args.image.as_os_str() == "-" {
            return Err(Failure::usage(
                "an image cannot be written to standard output: name a file (./- is one of that name)",
            ));
        }
        let mut from = sources::of_image(args, location, on.is_some())?;
        if location.as_is {
            return Err(Failure::usage(
                "--as-is is about reading: a new image has no journal to replay",
            ));
        }
        if location.mend {
            return Err(Failure::usage(
                "--mend is about reading: nothing is damaged in a new image",
            ));
        }
        if location.superblock.is_some() {
            return Err(Failure::usage(
                "--superblock is about reading: a new image has all its superblocks",
            ));
        }
        if location.journal.is_some() {
            return Err(Failure::usage(
                "--journal is about reading: a new image has its journal inside",
            ));
        }
        let in_place = on.is_some() || location.partition.is_some() || location.offset.is_some();
        let container = match on {
            Some(_) => Container::Raw,
            None => format_of(&args.image, args.format.as_deref())?,
        };
        if in_place && args.format.is_some() && container != Container::Raw {
            return Err(Failure::usage(format!(
                "--format {}: a part of an image that exists is written in the format it has",
                container.word()
            )));
        }
        let container = if in_place { Container::Raw } else { container };
        let window = match on {
            Some(device) => Window {
                offset: Some(0),
                room: Some(device.size()),
                sector_size: device.logical_sector(),
            },
            None => Window::new(&args.image, container, location)?,
        };
        let size = size_of(&args.plan, &args.image, &window)?;
        let room = match size {
            Size::Bytes(bytes) if args.plan.size.is_none() => Some(bytes),
            _ => None,
        };
        let verity = Verity::new(args, room)?;
        sources::check_config_out(args, container, &from)?;
        sources::leave_image_out(args, &mut from)?;
        let mut plan = Plan::new(&args.plan, from, size, window.sector_size)?;
        let own = |dir: &Path| sources::pattern_inside(args, dir);
        plan.tables.leave_out(own)?;
        Ok(Self {
            image: args.image.clone(),
            container,
            chunking: Chunking::of(container, &args.image, None, None)?,
            config_out: args.config_out.clone(),
            window: window.offset.map(|start| {
                // What begins at an offset alone has no end of its own.
                let room = window.room.filter(|_| location.offset.is_none());
                let end = room.and_then(|room| start.checked_add(room));
                start..end.unwrap_or(u64::MAX)
            }),
            verity,
            plan,
            say: match (args.quiet, args.json) {
                (true, _) => Say::Nothing,
                (false, true) => Say::Json,
                (false, false) => Say::Text,
            },
        })
    }

    /// Where data of an archive goes that cannot be read in place: where there must be room for it
    /// anyway. An image that is not named by a path has no such place, nor has a device: what lies
    /// beside it lies in memory.
    pub(super) fn spool_dir(&self) -> Option<PathBuf> {
        let location = ImageLocation::parse(self.image.as_os_str()).ok()?;
        let path = location.path()?;
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            return None;
        }
        let dir = sources::parent_of(path);
        dir.is_dir().then(|| dir.to_owned())
    }
}

impl Plan {
    /// Checks what was asked for of an image that is nowhere, and made when it is read.
    pub(in crate::commands) fn of_served(args: &args::Plan) -> Outcome<Self> {
        let nowhere = Window {
            offset: None,
            room: None,
            sector_size: 512,
        };
        let size = size_of(args, Path::new(""), &nowhere)?;
        let from = sources::named(args, &Whereabouts::default(), None)?;
        let mut plan = Self::new(args, from, size, nowhere.sector_size)?;
        // Threads of their own end when the plan is made, and are not there when clients come.
        plan.threads = plan
            .threads
            .or_else(|| std::thread::available_parallelism().ok());
        Ok(plan)
    }

    /// Checks what was asked for.
    fn new(args: &args::Plan, from: Vec<Source>, size: Size, sector_size: u32) -> Outcome<Self> {
        let epoch = source_date_epoch()?;
        let mut format = Format::new(args)?;
        let like = args.like.as_deref().map(like).transpose()?;
        let size = match &like {
            Some(like) => {
                format.liken(like);
                // A part of a disk has its size.
                let is_said = args.size.is_some() || args.headroom.is_some();
                match size {
                    Size::Auto(_) if !is_said => Size::Bytes(like.size()),
                    size => size,
                }
            }
            None => size,
        };
        let asked = args.exclude.iter().map(|p| p.as_bytes());
        let excludes =
            Excludes::new(asked).map_err(|e| Failure::usage(format!("--exclude: {e}")))?;
        let owner = args
            .owner
            .as_deref()
            .map(option("--owner", Owner::from_str));
        if let Some(secs) = args.mtime
            && !TIMES.contains(&secs)
        {
            return Err(Failure::usage(format!(
                "--mtime {secs}: ext4 keeps times from {} to {} (1901 to 2446)",
                TIMES.start(),
                TIMES.end()
            )));
        }
        let times = match (args.mtime, epoch) {
            (Some(secs), _) => TimePolicy::Set(Timestamp::from_secs(secs)),
            (None, Some(epoch)) => TimePolicy::Clamp(Timestamp::from_secs(
                i64::try_from(epoch).unwrap_or(i64::MAX),
            )),
            (None, None) => TimePolicy::Keep,
        };
        Ok(Self {
            from,
            image_config: None,
            normalisation: Normalisation {
                owner: owner.transpose()?,
                times,
                root_owner: format.root_owner,
                root_mode: format.root_mode,
            },
            tables: Owners::read(&args.tables)?,
            excludes,
            platform: chosen(args.sources.platform.as_deref(), "--platform")?,
            whiteouts: chosen(args.sources.whiteouts.as_deref(), "--whiteouts")?,
            size,
            sector_size,
            format,
            threads: match args.threads {
                Some(0) | None => None,
                Some(threads) => NonZero::new(threads),
            },
            epoch,
            arrangement: match args.layout {
                Some(Layout::Dense) => Arrangement::Dense,
                Some(Layout::Steady) | None => Arrangement::Steady,
            },
            like,
        })
    }

    /// The identity that was asked for by name.
    pub(super) fn identity(&self) -> Identity {
        Identity {
            uuid: self.format.uuid,
            hash_seed: self.format.hash_seed,
        }
    }

    /// Makes what the file system is filled with, if it is with anything; tables are used up. Data
    /// of an archive that cannot be read in place goes to `spool_dir`, or else to where the system
    /// has temporary files. With `digests_later`, what is made of the tree may be known to be right
    /// only when it is complete. An error is a sentence.
    pub(in crate::commands) fn tree(
        &mut self,
        spool_dir: Option<&Path>,
        digests_later: bool,
    ) -> Result<Option<Tree>, String> {
        let mut tables = std::mem::take(&mut self.tables);
        let mut tree = if self.from.is_empty() {
            if tables.is_empty() {
                return Ok(None);
            }
            Owners::nothing().map_err(|e| e.to_string())?
        } else {
            let mut options = SourceOptions::default();
            options.excludes = self.excludes.clone();
            options.threads = self.threads;
            options.spool_dir = spool_dir.map(Path::to_owned);
            options.platform = self.platform.clone();
            options.whiteouts = self.whiteouts;
            options.digests_later = digests_later;
            let gathered = read_sources(&self.from, &options).map_err(|e| e.to_string())?;
            self.image_config = gathered.config;
            gathered.tree
        };
        let mut rest = self.normalisation;
        if !tables.is_empty() {
            // What tables say is stronger than an owner for all.
            let owner = rest.owner.take();
            tree = tables
                .apply(tree, owner, self.threads)
                .map_err(|e| e.to_string())?;
        }
        tree.normalise(&rest);
        Ok(Some(tree))
    }

    /// Where the sources are.
    pub(in crate::commands) fn from(&self) -> &[Source] {
        &self.from
    }

    /// The configuration of the container image that was read.
    pub(super) fn image_config(&self) -> Option<&[u8]> {
        self.image_config.as_deref()
    }

    /// How to build the image of `tree`. An error is a sentence.
    pub(in crate::commands) fn build_options(
        &self,
        tree: Option<&Tree>,
    ) -> Result<BuildOptions, String> {
        let Format {
            block_size,
            inode_size,
            inodes,
            features,
            profile,
            journal,
            reserved_percent,
            quotas,
            tables,
            label,
            uuid,
            hash_seed,
            root_owner,
            root_mode,
        } = &self.format;
        let bytes = match self.size {
            Size::Bytes(bytes) => bytes,
            Size::Auto(_) => 0,
        };
        let mut format = match self.epoch {
            None => FormatOptions::new(bytes, seconds_now()),
            Some(epoch) => {
                let mut material = tree.map_or([0; 32], Tree::fingerprint).to_vec();
                material.extend_from_slice(label.as_deref().unwrap_or_default());
                FormatOptions::reproducible(bytes, epoch, &material)
            }
        };
        format.block_size = *block_size;
        format.sector_size = self.sector_size;
        format.inode_size = inode_size.unwrap_or(format.inode_size);
        format.inodes = *inodes;
        format.features = features.clone();
        format.profile = *profile;
        format.journal = *journal;
        format.reserved_percent = *reserved_percent;
        format.quotas = *quotas;
        format.table_init = *tables;
        format.label = label.clone().unwrap_or_default();
        format.uuid = uuid.unwrap_or(format.uuid);
        format.hash_seed = hash_seed.unwrap_or(format.hash_seed);
        if let Some(owner) = root_owner {
            format.root_owner = (owner.uid, owner.gid.unwrap_or(format.root_owner.1));
        }
        format.root_mode = root_mode.unwrap_or(format.root_mode);
        let block_size = format.block_size.unwrap_or(BlockSize::K4);
        let mut options = BuildOptions::new(format, self.size).threads(self.threads);
        options.arrangement = self.arrangement;
        if let (Some(like), Some(tree)) = (&self.like, tree) {
            let former = like.former(tree, block_size).map_err(|e| {
                format!("{e}: it cannot be read to be like it; extant check says more about it")
            })?;
            options.like = Some(Arc::new(former));
        }
        Ok(options)
    }
}

impl Format {
    fn new(args: &args::Plan) -> Outcome<Self> {
        let block_size = args
            .block_size
            .map(checked("--block-size", words::block_size));
        let inode_size = args
            .inode_size
            .map(checked("--inode-size", words::inode_size));
        let inodes = match (args.inodes, args.inode_ratio) {
            (Some(count), _) => checked("--inodes", words::inodes)(count)?,
            (None, Some(ratio)) => option_of("--inode-ratio", words::inode_ratio(ratio))?,
            (None, None) => InodeDensity::BySize,
        };
        let journal = args.journal_size.as_deref();
        let journal = journal.map(option("--journal-size", words::parse_journal_size));
        if let Some(percent) = args.reserved_percent {
            checked("--reserved-percent", words::reserved_percent)(percent)?;
        }
        let label = args.label.as_ref();
        let label = label.map(|label| option_of("--label", words::label(label.as_bytes())));
        let profile = args.profile.as_deref();
        let profile = profile.map(option("--profile", Profile::from_str));
        let features = args.features.join(",");
        let mut features = option("--features", FeatureRequest::from_str)(&features)?;
        let quotas = args.quota.as_deref();
        let quotas = quotas.map(option("--quota", words::quotas)).transpose()?;
        if quotas.is_some() {
            let words = args.features.iter().flat_map(|list| list.split(','));
            let mut words = words.map(str::trim);
            if words.rfind(|word| word.ends_with("quota")) == Some("^quota") {
                return Err(Failure::usage(
                    "--quota makes quota files, and --features ^quota leaves them out: give one of them",
                ));
            }
            features.push(Feature::RoCompat(RoCompat::QUOTA), true);
        }
        let uuid = args.uuid.as_deref().map(option("--uuid", parse_uuid));
        let hash_seed = args.hash_seed.as_deref();
        let hash_seed = hash_seed.map(option("--hash-seed", parse_uuid));
        let root_owner = args.root_owner.as_deref();
        let root_owner = root_owner.map(option("--root-owner", Owner::from_str));
        let root_mode = args.root_mode.as_deref();
        let root_mode = root_mode.map(option("--root-mode", parse_mode));
        Ok(Self {
            block_size: block_size.transpose()?,
            inode_size: inode_size.transpose()?,
            inodes,
            features,
            profile: profile.transpose()?.unwrap_or_default(),
            journal: journal.transpose()?.unwrap_or(JournalSize::BySize),
            reserved_percent: args.reserved_percent,
            quotas,
            tables: match args.table_init {
                Some(TableInit::Lazy) => Tables::Lazy,
                Some(TableInit::Full) | None => Tables::Full,
            },
            label: label.transpose()?,
            uuid: uuid.transpose()?,
            hash_seed: hash_seed.transpose()?,
            root_owner: root_owner.transpose()?,
            root_mode: root_mode.transpose()?,
        })
    }
}

impl Format {
    /// Takes from an older image what is not said otherwise.
    fn liken(&mut self, like: &Like) {
        let mut old = FormatOptions::new(0, 0);
        like.liken(&mut old);
        self.block_size = self.block_size.or(old.block_size);
        self.inode_size.get_or_insert(old.inode_size);
        self.uuid.get_or_insert(old.uuid);
        self.hash_seed.get_or_insert(old.hash_seed);
        if self.inodes == InodeDensity::BySize {
            self.inodes = old.inodes;
        }
        // An empty one is asked for, too.
        self.label.get_or_insert(old.label);
    }
}

/// Opens an older image that the new one shall be like.
fn like(text: &OsStr) -> Outcome<Like> {
    let image = whole_image(text)?;
    let how = how(&Whereabouts::default(), &image, false);
    Like::open(&image, &how).map_err(|e| ImagePath::root_of(image).failure(&e))
}

/// The part of something that exists which the file system goes into.
struct Window {
    offset: Option<u64>,
    /// Bytes from there on, where that is known.
    room: Option<u64>,
    sector_size: u32,
}

impl Window {
    fn new(image: &Path, container: Container, location: &Whereabouts) -> Outcome<Self> {
        let open = || OpenSpec::read_only(image).open();
        if let Some(number) = location.partition {
            let device = open().map_err(Failure::new)?;
            let table = extant_blockdev::list_partitions(&*device).map_err(Failure::new)?;
            let found = table.partitions.iter().find(|p| p.number == number);
            let found = found.ok_or_else(|| {
                let image = Escaped::path(image);
                Failure::new(format!("{image} has no partition {number}"))
            })?;
            return Ok(Self {
                offset: Some(found.start),
                room: Some(found.len),
                sector_size: table.sector.max(device.logical_sector()),
            });
        }
        if let Some(offset) = location.offset {
            let device = open().map_err(Failure::new)?;
            let end = device.size();
            let room = end.checked_sub(offset).filter(|&room| room > 0);
            let room = room.ok_or_else(|| {
                let image = Escaped::path(image);
                Failure::new(format!(
                    "{image} ends at byte {end}, before the offset {offset}"
                ))
            })?;
            return Ok(Self {
                offset: Some(offset),
                room: Some(room),
                // A disk image counts in the sectors of its table.
                sector_size: extant_blockdev::list_partitions(&*device)
                    .map_or(0, |table| table.sector)
                    .max(device.logical_sector()),
            });
        }
        // The size of a file says nothing of the disk in it.
        let is_raw = container == Container::Raw;
        let device = open().ok().filter(|_| is_raw);
        Ok(Self {
            offset: None,
            room: device.as_ref().map(|device| device.size()),
            sector_size: device.map_or(512, |device| device.logical_sector()),
        })
    }
}

fn size_of(args: &args::Plan, image: &Path, window: &Window) -> Outcome<Size> {
    let headroom = args.headroom.as_deref();
    let headroom = headroom
        .map(option("--headroom", parse_headroom))
        .transpose()?;
    let has_source = !args.sources.from.is_empty() || !args.tables.is_empty();
    let size = match args.size.as_deref() {
        Some("auto") => None,
        Some(text) => Some(option("--size", size::parse)(text)?),
        // A window has its size already.
        None if has_source && window.offset.is_some() => window.room,
        None if has_source => None,
        None => Some(window.room.filter(|&room| room > 0).ok_or_else(|| {
            let image = Escaped::path(image);
            Failure::usage(format!(
                "{image} does not exist yet: say how large it shall be with --size, such as --size 1G"
            ))
        })?),
    };
    if let (Some(size), Some(_), Some(room)) = (size, window.offset, window.room)
        && size > room
    {
        return Err(Failure::new(format!(
            "--size {size}: only {room} bytes are there"
        )));
    }
    match (size, headroom) {
        (None, headroom) => Ok(Size::Auto(headroom.unwrap_or(Headroom::ForChanges))),
        (Some(size), None) => Ok(Size::Bytes(size)),
        (Some(_), Some(_)) => Err(Failure::usage(
            "--headroom goes with --size auto: a fixed size has the room it has",
        )),
    }
}

/// Parses the value of an option; errors name the option.
fn option<T, E: std::fmt::Display>(
    name: &'static str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> impl Fn(&str) -> Outcome<T> {
    move |text| parse(text).map_err(|e| Failure::usage(format!("{name}: {e}")))
}

/// Checks a value of an option; errors name both.
fn checked<T, V: Copy + std::fmt::Display>(
    name: &'static str,
    check: impl Fn(V) -> Result<T, String>,
) -> impl Fn(V) -> Outcome<T> {
    move |value| check(value).map_err(|e| Failure::usage(format!("{name} {value}: {e}")))
}

/// Names the option in what is wrong with its value.
fn option_of<T>(name: &'static str, value: Result<T, String>) -> Outcome<T> {
    value.map_err(|e| Failure::usage(format!("{name}: {e}")))
}

/// The value of an option that may be left out.
fn chosen<T: FromStr>(text: Option<&str>, name: &'static str) -> Outcome<Option<T>>
where
    T::Err: std::fmt::Display,
{
    text.map(option(name, T::from_str)).transpose()
}
