//! Fields of the superblock that say where everything lies: where no root directory is found, or
//! groups are not where it says, other values are tried one by one, and what is found then decides.

use super::entries::is_really_dir;
use super::net;
use super::trial::{errors_of, is_better};
use super::work::Work;
use crate::error::{Error, Result};
use crate::report::Sink;
use crate::survey::{self, Input};
use crate::volume::Volume;
use crate::{Code, Place};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use extant_format::Ino;
use extant_format::features::{Incompat, RoCompat};
use extant_format::inode::FileType;
use extant_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use std::sync::Arc;

/// Another value of one field.
type Trial = (&'static str, fn(&mut RawSuperblock));

fn toggle_incompat(raw: &mut RawSuperblock, feature: Incompat) {
    let bits = raw.feature_incompat.get() ^ feature.bits();
    raw.feature_incompat.set(bits);
}

fn wide_descriptors(raw: &mut RawSuperblock, size: u16) {
    let bits = raw.feature_incompat.get() | Incompat::BIT64.bits();
    raw.feature_incompat.set(bits);
    raw.desc_size.set(size);
}

const TRIALS: &[Trial] = &[
    ("inodes have 128 bytes", |raw| raw.inode_size.set(128)),
    ("inodes have 256 bytes", |raw| raw.inode_size.set(256)),
    ("inodes have 512 bytes", |raw| raw.inode_size.set(512)),
    ("inodes have 1024 bytes", |raw| raw.inode_size.set(1024)),
    ("inodes have 2048 bytes", |raw| raw.inode_size.set(2048)),
    ("inodes have 4096 bytes", |raw| raw.inode_size.set(4096)),
    ("descriptors have 32 bytes", |raw| {
        let bits = raw.feature_incompat.get() & !Incompat::BIT64.bits();
        raw.feature_incompat.set(bits);
        raw.desc_size.set(0);
    }),
    ("descriptors have 64 bytes", |raw| wide_descriptors(raw, 64)),
    ("descriptors have 128 bytes", |raw| {
        wide_descriptors(raw, 128)
    }),
    ("the other first block", |raw| {
        let first = raw.first_data_block.get();
        raw.first_data_block.set(1 - first.min(1));
    }),
    ("feature meta_bg is another", |raw| {
        toggle_incompat(raw, Incompat::META_BG);
    }),
    (
        "groups with descriptors of their own begin with the first",
        |raw| {
            raw.first_meta_bg.set(0);
        },
    ),
    ("feature sparse_super is another", |raw| {
        let bits = raw.feature_ro_compat.get() ^ RoCompat::SPARSE_SUPER.bits();
        raw.feature_ro_compat.set(bits);
    }),
];

/// Features by which other structures are looked for, or at other places.
const FEATURES: [Incompat; 3] = [Incompat::FLEX_BG, Incompat::BIT64, Incompat::META_BG];

/// Takes other values with which what is lost is found; returns whether there are some.
pub(super) fn fix(work: &mut Work<'_>) -> Result<bool> {
    if work.has(Code::RootMissing) && !has_root(work.volume())? && by_reach(work)? {
        return Ok(true);
    }
    if work.has(Code::GroupLocation) || work.has(Code::GroupChecksum) {
        by_errors(work)
    } else {
        Ok(false)
    }
}

/// Turns a feature on or off where a check then finds fewer errors.
fn by_errors(work: &mut Work<'_>) -> Result<bool> {
    let primary = work.superblock()?;
    let size = work.volume().block_size().bytes();
    for feature in FEATURES {
        let Ok(other) = primary.with(|raw| toggle_incompat(raw, feature)) else {
            continue;
        };
        let writes = [(SUPERBLOCK_OFFSET, other.encode().to_vec())];
        let now = &work.survey.report;
        let inodes = now.totals.inodes;
        if is_better(work.draft.device(), size, &writes, now, inodes)? {
            let verb = if other.has_incompat(feature) {
                "on"
            } else {
                "off"
            };
            let name = feature.names_of_bits().join(", ");
            let text = format!("feature {name} is {verb}: so everything is found in its place");
            return take(work, &other, text);
        }
    }
    Ok(false)
}

fn take(work: &mut Work<'_>, other: &Superblock, text: String) -> Result<bool> {
    work.put_superblock(other)?;
    work.fix(Code::SuperblockField, Place::FILE_SYSTEM, text);
    Ok(true)
}

/// Takes the value with which most can be reached, if a check then finds a root directory and fewer
/// errors.
fn by_reach(work: &mut Work<'_>) -> Result<bool> {
    let primary = work.superblock()?;
    let mut best: Option<(u64, &str, Superblock)> = None;
    for (what, change) in TRIALS {
        let Ok(other) = primary.with(change) else {
            continue;
        };
        if other.encode() == primary.encode() {
            continue;
        }
        let device = with_superblock(work, &other)?;
        let volume = match Volume::open(Arc::clone(&device), &mut Sink::new()) {
            Ok(volume) => volume,
            Err(e @ Error::Device(_)) => return Err(e),
            Err(_) => continue,
        };
        if !has_root(&volume)? {
            continue;
        }
        let reached = net::reachable(device)?;
        if reached > best.as_ref().map_or(1, |(most, _, _)| *most) {
            best = Some((reached, what, other));
        }
    }
    let Some((_, what, other)) = best else {
        return Ok(false);
    };
    let input = Input {
        device: with_superblock(work, &other)?,
        recovered: false,
        remembers_errors: false,
        has_journal: false,
        as_is: false,
        verity: false,
    };
    let then = match survey::run(input, Sink::new(), &()) {
        Ok(survey) => survey.report,
        Err(e @ Error::Device(_)) => return Err(e),
        Err(_) => return Ok(false),
    };
    if then.has(Code::RootMissing) || errors_of(&then) >= errors_of(&work.survey.report) {
        return Ok(false);
    }
    let text = format!("{what}: with that the root directory is found");
    take(work, &other, text)
}

/// Whether the root directory is one by its type and its content.
fn has_root(volume: &Volume) -> Result<bool> {
    let Some((_, inode)) = volume.inode(Ino::ROOT)? else {
        return Ok(false);
    };
    Ok(inode.file_type() == Some(FileType::Directory) && is_really_dir(volume, Ino::ROOT, &inode)?)
}

fn with_superblock(work: &Work<'_>, sb: &Superblock) -> Result<SharedDevice> {
    let size = work.volume().block_size().bytes();
    let trial = OverlayDevice::new(work.draft.device(), size).keep_writes();
    trial.write_at(SUPERBLOCK_OFFSET, &sb.encode())?;
    Ok(Arc::new(trial))
}
