//! What was asked for.

use super::Profile;
use super::identity::marked;
use extant_format::BlockSize;
use extant_format::features::Feature;
use extant_format::superblock::{ErrorsBehaviour, MountDefaults};
use std::str::FromStr;

/// How many inodes there shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InodeDensity {
    /// By the size class.
    #[default]
    BySize,
    /// One inode for this many bytes.
    Ratio(u32),
    /// At least this many inodes.
    Count(u32),
}

/// How large the journal shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum JournalSize {
    /// By the size of the file system; none if that is too small for one.
    #[default]
    BySize,
    /// No journal.
    None,
    /// This many bytes, at least 1024 blocks.
    Bytes(u64),
}

/// Whether inode tables are initialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TableInit {
    /// Every table is zero and says so. Costs nothing where the target is a fresh sparse file.
    #[default]
    Full,
    /// Tables of unused inodes are left as they are; the kernel zeroes them after the first mount.
    Lazy,
}

/// Features to turn on and off, in order, as `mke2fs -O` takes them: `a,^b,c`; `none` turns all
/// off.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FeatureRequest {
    pub(crate) changes: Vec<FeatureChange>,
}

impl FeatureRequest {
    /// Turns a feature on, whatever was asked for before.
    pub(crate) fn turn_on(&mut self, feature: Feature) {
        self.changes.push(FeatureChange::Set(feature, true));
    }
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureChange {
    Clear,
    Set(Feature, bool),
}

/// A feature name that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no feature is called {name}")]
pub struct FeatureRequestError {
    /// The name.
    pub name: String,
}

impl FeatureRequest {
    /// Adds one change.
    pub fn push(&mut self, feature: Feature, on: bool) {
        self.changes.push(FeatureChange::Set(feature, on));
    }

    /// Returns whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What is said last about a feature, if anything is.
    pub(crate) fn last_word(&self, feature: Feature) -> Option<bool> {
        self.changes.iter().rev().find_map(|change| match change {
            FeatureChange::Clear => Some(false),
            FeatureChange::Set(named, on) => (*named == feature).then_some(*on),
        })
    }
}

impl FromStr for FeatureRequest {
    type Err = FeatureRequestError;

    fn from_str(text: &str) -> Result<Self, FeatureRequestError> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        let changes = words
            .filter(|word| !word.is_empty())
            .map(|word| {
                if word == "none" {
                    return Ok(FeatureChange::Clear);
                }
                let (name, on) = match word.strip_prefix(['^', '-']) {
                    Some(name) => (name, false),
                    None => (word.strip_prefix('+').unwrap_or(word), true),
                };
                Feature::from_name(name)
                    .map(|feature| FeatureChange::Set(feature, on))
                    .ok_or_else(|| FeatureRequestError {
                        name: name.to_owned(),
                    })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { changes })
    }
}

/// Everything that can be chosen when a file system is made. [`FormatOptions::new`] chooses what
/// `mke2fs -t ext4` does, and the fields change it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FormatOptions {
    /// Size in bytes; rounded down to whole blocks.
    pub size: u64,
    /// Block size; by the size class if `None`.
    pub block_size: Option<BlockSize>,
    /// Bytes of a sector of the device, of which a block has at least one.
    pub sector_size: u32,
    /// Cluster size in bytes under `bigalloc`; 16 blocks if `None`.
    pub cluster_size: Option<u32>,
    /// Blocks in a group; as many as a bitmap block covers if `None`.
    pub blocks_per_group: Option<u32>,
    /// Bytes in an inode: 128 to 4096.
    pub inode_size: u32,
    /// How many inodes.
    pub inodes: InodeDensity,
    /// Feature set.
    pub profile: Profile,
    /// Features to turn on and off on top of the profile.
    pub features: FeatureRequest,
    /// Label, at most 16 bytes.
    pub label: Vec<u8>,
    /// Where it will be mounted, as a note in the superblock; at most 63 bytes.
    pub last_mounted: Vec<u8>,
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of the directory hash.
    pub hash_seed: [u8; 16],
    /// Returns the percentage of the blocks reserved for privileged users, 0 to 50; by the profile
    /// if `None`.
    pub reserved_percent: Option<f64>,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Permissions of the root directory.
    pub root_mode: u16,
    /// Journal.
    pub journal: JournalSize,
    /// Inode tables.
    pub table_init: TableInit,
    /// Groups in a flexible group: a power of two; 16 if `None`.
    pub groups_per_flex: Option<u32>,
    /// RAID stride in blocks.
    pub stride: Option<u16>,
    /// RAID stripe width in blocks.
    pub stripe_width: Option<u32>,
    /// Size in bytes the file system can grow to online without `meta_bg`; 1024 times its size if
    /// `None`, or if the descriptors of so many groups need no more blocks than there are.
    pub resize_limit: Option<u64>,
    /// Backup superblocks under `sparse_super2`: 0 to 2.
    pub backup_supers: u32,
    /// Quota files of users, of groups and of projects, with the feature `quota`; those of users
    /// and groups if `None`. With the feature `project` there is one of projects in any case.
    pub quotas: Option<[bool; 3]>,
    /// What the kernel does when it finds an error.
    pub errors: ErrorsBehaviour,
    /// Default mount options.
    pub mount_defaults: MountDefaults,
    /// Time of creation, seconds since 1970.
    pub time: u64,
}

impl FormatOptions {
    /// Returns the defaults for a file system of `size` bytes, made at `time` (seconds since 1970),
    /// with a random identity.
    #[must_use]
    pub fn new(size: u64, time: u64) -> Self {
        Self::with_identity(
            size,
            time,
            uuid::Uuid::new_v4().into_bytes(),
            uuid::Uuid::new_v4().into_bytes(),
        )
    }

    /// Returns the defaults for a file system of `size` bytes whose identity follows from `time`
    /// and `material` alone: the same input gives the same image.
    #[must_use]
    pub fn reproducible(size: u64, time: u64, material: &[u8]) -> Self {
        let derive = |purpose: &[u8]| {
            let mut name = purpose.to_vec();
            name.extend_from_slice(&time.to_le_bytes());
            name.extend_from_slice(material);
            uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &name).into_bytes()
        };
        Self::with_identity(
            size,
            time,
            derive(b"extant uuid"),
            derive(b"extant hash seed"),
        )
    }

    /// The kinds of quota files, users first, that there are with the feature `quota`.
    pub(crate) fn quota_kinds(&self) -> [bool; 3] {
        self.quotas.unwrap_or([true, true, false])
    }

    fn with_identity(size: u64, time: u64, uuid: [u8; 16], hash_seed: [u8; 16]) -> Self {
        Self {
            size,
            block_size: None,
            sector_size: 512,
            cluster_size: None,
            blocks_per_group: None,
            inode_size: 256,
            inodes: InodeDensity::BySize,
            profile: Profile::Default,
            features: FeatureRequest::default(),
            label: Vec::new(),
            last_mounted: Vec::new(),
            uuid,
            hash_seed: marked(hash_seed),
            reserved_percent: None,
            root_owner: (0, 0),
            root_mode: 0o755,
            journal: JournalSize::BySize,
            table_init: TableInit::Full,
            groups_per_flex: None,
            stride: None,
            stripe_width: None,
            resize_limit: None,
            backup_supers: 2,
            quotas: None,
            errors: ErrorsBehaviour::Continue,
            mount_defaults: MountDefaults::USER_XATTR | MountDefaults::ACL,
            time,
        }
    }
}
