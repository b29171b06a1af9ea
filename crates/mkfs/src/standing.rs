//! What is in a place before an image is made there: what would be lost.
//!
//! An image may replace what this builder made, as builds do that run again. Whatever else is there
//! is named, and the caller decides. What this builder made is known by its hash seed, of which the
//! last four bytes follow from the others ([`defaults::is_marked`](crate::defaults::is_marked)), or
//! by bearing the identity that is asked for now.

use crate::defaults::is_marked;
use crate::output::OutputError;
use extant_blockdev::content::{HEAD_LEN, lasting_marks};
use extant_blockdev::{
    BlockDevice, Content, DeviceError, FileOptions, SharedDevice, WindowDevice, hold_for_replacing,
};
use extant_format::superblock::Superblock;
use std::fmt::Write;
use std::fs::{self, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// What is in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Nothing that could be missed.
    Vacant,
    /// A file system that this builder made.
    Own {
        /// Whether it was mounted or written to since.
        changed: bool,
    },
    /// Something else: words that go after "contains".
    Other(String),
}

/// Bytes read at once in search of one that is not zero.
const CHUNK: usize = 1 << 20;

/// Looks at the place for an image: the file or block device at `path`, or `window` of it. `asked`
/// is what shall be made; an identity that was chosen in it and is there already makes the place
/// the builder's own.
///
/// # Errors
/// [`OutputError::NotAFile`] for what cannot hold an image; `InUse` and the like
/// ([`hold_for_replacing`]) for a file that is in use; what reading gives.
pub fn standing(
    path: &Path,
    window: Option<&Range<u64>>,
    asked: Option<&Identity>,
) -> Result<Standing, OutputError> {
    let Ok(found) = fs::metadata(path) else {
        return Ok(Standing::Vacant);
    };
    let is_device = found.file_type().is_block_device();
    if !is_device && !found.is_file() {
        return Err(OutputError::NotAFile {
            path: path.to_owned(),
        });
    }
    if !is_device && window.is_none() {
        hold_for_replacing(path)?;
    }
    let whole: SharedDevice = Arc::new(FileOptions::read_only().open(path)?);
    let place: SharedDevice = match window {
        None => Arc::clone(&whole),
        Some(window) => {
            let end = window.end.min(whole.size());
            let len = end.saturating_sub(window.start);
            Arc::new(WindowDevice::new(Arc::clone(&whole), window.start, len)?)
        }
    };
    // A file system may be inside of what these say, and be this builder's own. The end of the disk
    // says nothing of a part that has no end of its own.
    let has_end = window.is_none_or(|window| window.end <= whole.size());
    if let Some(window) = window.filter(|_| !has_end)
        && let Some(words) = what_reaches(&*whole, window.start)?
    {
        return Ok(Standing::Other(words));
    }
    let marks = if has_end {
        lasting_marks(&*place)?
    } else {
        Vec::new()
    };
    if let Some(mark) = marks.iter().find(|mark| mark.content != Content::Gpt) {
        return Ok(Standing::Other(mark.content.name().to_owned()));
    }
    let content = if has_end {
        Content::on(&*place)?
    } else {
        let mut head = vec![0; HEAD_LEN.min(usize::try_from(place.size()).unwrap_or(usize::MAX))];
        place.read_at(0, &mut head)?;
        Content::of(&head, &[], place.size())
    };
    if content.is_ext() {
        return file_system(&*place, content, asked);
    }
    // Of a device or a part of one only what is known counts: what was there before is never zero.
    let only_known = is_device || window.is_some();
    Ok(match content {
        Content::Empty => Standing::Vacant,
        Content::Unknown | Content::Text | Content::Zeros if only_known => {
            unmarked(&found, &*whole, window)?
        }
        other => in_file(&*place, other)?,
    })
}

/// The disk at the front of which a byte is a part, if that is not the first one: a file system
/// that reaches so far, or a volume or a format of images, which all is a part of.
fn what_reaches(whole: &dyn BlockDevice, byte: u64) -> Result<Option<String>, DeviceError> {
    let size = whole.size();
    if byte == 0 || byte >= size {
        return Ok(None);
    }
    let mut head = vec![0; HEAD_LEN.min(usize::try_from(size).unwrap_or(usize::MAX))];
    whole.read_at(0, &mut head)?;
    let content = Content::of(&head, &[], size);
    let is_table = matches!(content, Content::Gpt | Content::Mbr);
    if is_table || !content.is_disk() {
        return Ok(None);
    }
    let superblock = head.get(1024..2048).filter(|_| content.is_ext());
    let end = superblock
        .and_then(|bytes| Superblock::parse_unverified(bytes).ok())
        .map(|found| found.blocks_count() << found.block_size().log2());
    let reaches = end.is_none_or(|end| byte < end);
    Ok(reaches.then(|| format!("a part of {}, which begins at byte 0", content.name())))
}

/// What is in a regular file that has no file system, all of which counts.
fn in_file(file: &dyn BlockDevice, content: Content) -> Result<Standing, DeviceError> {
    Ok(match content {
        Content::Empty => Standing::Vacant,
        Content::Zeros if is_all_zero(file)? => Standing::Vacant,
        Content::Zeros => Standing::Other(Content::Unknown.name().to_owned()),
        other => Standing::Other(other.name().to_owned()),
    })
}

/// What kind of place on an open device an image is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// A device, or the disk in a format of images.
    Device,
    /// A part of a disk, whose end is no place for a GPT's backup.
    Part,
    /// A regular file, of which whatever is in it counts.
    File,
}

/// Looks at a device that an image is made on, as [`standing`] does at a path.
///
/// # Errors
/// What reading gives.
pub fn standing_on(
    place: &dyn BlockDevice,
    room: Room,
    asked: Option<&Identity>,
) -> Result<Standing, OutputError> {
    let marks = lasting_marks(place)?;
    let other = |content: Content| Standing::Other(content.name().to_owned());
    if let Some(mark) = marks.iter().find(|mark| mark.content != Content::Gpt) {
        return Ok(other(mark.content));
    }
    Ok(match Content::on(place)? {
        content if content.is_ext() => file_system(place, content, asked)?,
        content if room == Room::File => in_file(place, content)?,
        // Of a device only what is known counts: what was there before is never zero.
        Content::Empty | Content::Unknown | Content::Text | Content::Zeros => {
            if marks.is_empty() || room == Room::Part {
                Standing::Vacant
            } else {
                Standing::Other("the backup of a GPT at its end".to_owned())
            }
        }
        content => other(content),
    })
}

/// The identity that was asked for by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identity {
    /// UUID.
    pub uuid: Option<[u8; 16]>,
    /// Seed of the directory hash.
    pub hash_seed: Option<[u8; 16]>,
}

/// What tells one ext2, ext3 or ext4 file system from another.
fn file_system(
    place: &dyn BlockDevice,
    content: Content,
    asked: Option<&Identity>,
) -> Result<Standing, OutputError> {
    let mut bytes = [0; 1024];
    place.read_at(1024, &mut bytes)?;
    let Ok(superblock) = Superblock::parse_unverified(&bytes) else {
        return Ok(Standing::Other(format!("{content} that is damaged")));
    };
    let raw = superblock.raw();
    let mut seed = [0; 16];
    for (to, word) in seed.chunks_mut(4).zip(raw.hash_seed) {
        to.copy_from_slice(&word.get().to_le_bytes());
    }
    let asked = asked.copied().unwrap_or_default();
    if is_marked(seed) || asked.uuid == Some(raw.uuid) || asked.hash_seed == Some(seed) {
        let changed = raw.mtime.get() != 0
            || raw.mnt_count.get() != 0
            || (raw.wtime.get(), raw.wtime_hi) != (raw.mkfs_time.get(), raw.mkfs_time_hi);
        return Ok(Standing::Own { changed });
    }
    let mut words = content.name().to_owned();
    let text = |field: &[u8]| {
        let end = field
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(field.len());
        String::from_utf8_lossy(&field[..end])
            .escape_debug()
            .to_string()
    };
    let (label, mounted) = (text(&raw.volume_name), text(&raw.last_mounted));
    // Writing to a string cannot fail.
    if !label.is_empty() {
        let _ = write!(words, " labelled {label:?}");
    }
    if !mounted.is_empty() {
        let _ = write!(words, ", last mounted on {mounted}");
    }
    Ok(Standing::Other(words))
}

/// What a place without a mark of its own may still be: a disk whose partitions the kernel knows,
/// or one with a GPT's backup.
fn unmarked(
    found: &Metadata,
    whole: &dyn BlockDevice,
    window: Option<&Range<u64>>,
) -> Result<Standing, DeviceError> {
    if window.is_some() {
        return Ok(Standing::Vacant);
    }
    let partitions = partitions_of(found.rdev());
    Ok(if partitions > 0 {
        Standing::Other(format!("{partitions} partitions that the system knows"))
    } else if lasting_marks(whole)?
        .iter()
        .any(|mark| mark.content == Content::Gpt)
    {
        Standing::Other("the backup of a GPT at its end".to_owned())
    } else {
        Standing::Vacant
    })
}

/// Partitions that the kernel knows on a block device.
fn partitions_of(device: u64) -> usize {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let Ok(entries) = fs::read_dir(format!("/sys/dev/block/{major}:{minor}")) else {
        return 0;
    };
    entries
        .flatten()
        .filter(|entry| entry.path().join("partition").exists())
        .count()
}

/// Whether a device holds nothing but zeros; its holes are not read.
fn is_all_zero(device: &dyn BlockDevice) -> Result<bool, DeviceError> {
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    while let Some(data) = device.next_data(at, device.size())? {
        at = data.start;
        while at < data.end {
            let len = (data.end - at).min(CHUNK as u64) as usize;
            device.read_at(at, &mut chunk[..len])?;
            if chunk[..len].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += len as u64;
        }
    }
    Ok(true)
}

/// Takes the marks off a place that is about to be written to, so that nothing recognises what was
/// there before: what the file system to be (its first `size` bytes) does not write over, and marks
/// at the end. The end of a part of a disk (`is_part`) is no place for a GPT's backup.
pub(crate) fn unmark(place: &dyn BlockDevice, size: u64, is_part: bool) -> Result<(), DeviceError> {
    let marks = lasting_marks(place)?;
    place.zero(0, size.min(HEAD_LEN as u64))?;
    for mark in marks {
        if is_part && mark.content == Content::Gpt {
            continue;
        }
        place.zero(mark.bytes.start, mark.bytes.end - mark.bytes.start)?;
    }
    Ok(())
}
