//! `IMAGE:/path`, and opening what it names.

use crate::args::{SuperblockAt, Whereabouts};
use crate::failure::{Failure, Outcome, in_image, say};
use crate::keeping;
use crate::mended::{self, Way};
use crate::time;
use extant::{Cause, Escaped, Filesystem, JournalChoice, MountOptions, SharedDevice, Transaction};
use extant_blockdev::DeviceError;
use extant_core::Error as EngineError;
use extant_core::fs::SuperblockChoice;
use extant_format::Pblk;
use extant_image::{How, ImageFormat, ImageLocation, Opened, PartitionName};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of file data that are kept in memory where what is written shall not depend on the
/// machine.
const STEADY_CACHE: usize = 256 << 20;

/// An image, and a path inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePath {
    /// With the partition that is named with it, which is stronger than the one for all images of
    /// the command.
    pub(crate) image: ImageLocation,
    /// From the root, never empty.
    pub(crate) path: PathBuf,
    /// Whether a path was given.
    pub(crate) has_path: bool,
}

/// Reads an operand that is an image and nothing in it.
pub(crate) fn whole_image(text: &OsStr) -> Outcome<ImageLocation> {
    ImageLocation::parse(text).map_err(Failure::usage)
}

/// How to open an image, where it does not say by itself which part of it is meant: as what, too.
pub(crate) fn how(place: &Whereabouts, image: &ImageLocation, writable: bool) -> How {
    let how = if writable {
        How::writing()
    } else {
        How::reading()
    };
    how.format(place.format_of(image))
        .offset(place.offset)
        .partition(place.partition.map(PartitionName::Number))
        .tell(|text| say(text))
}

impl ImagePath {
    /// Takes `IMAGE:/path` apart. `IMAGE` alone means its root.
    pub(crate) fn parse(text: &OsStr) -> Outcome<Self> {
        let (image, path) = ImageLocation::split(text).map_err(Failure::usage)?;
        let inside = path.unwrap_or_default().as_bytes();
        let mut from_root = Vec::with_capacity(inside.len() + 1);
        if !inside.starts_with(b"/") {
            from_root.push(b'/');
        }
        from_root.extend_from_slice(inside);
        Ok(Self {
            image,
            path: PathBuf::from(OsString::from_vec(from_root)),
            has_path: path.is_some(),
        })
    }

    /// The root of an image.
    pub(crate) fn root_of(image: ImageLocation) -> Self {
        Self {
            image,
            path: "/".into(),
            has_path: false,
        }
    }

    /// Whether the whole image is meant: no path, or that of the root.
    pub(crate) fn is_root(&self) -> bool {
        !self.has_path || self.path.as_os_str() == "/"
    }

    /// The place inside an image that an operand of a command that changes images names.
    pub(crate) fn inside(text: &OsStr) -> Outcome<Self> {
        let place = Self::parse(text)?;
        if place.has_path {
            Ok(place)
        } else {
            Err(Failure::usage(format!(
                "{} names no file in an image: write IMAGE:/path",
                shown(&place.image)
            )))
        }
    }

    /// The place inside an image that an operand names which could also be a file of the host.
    pub(crate) fn inside_if_any(text: &OsStr) -> Outcome<Option<Self>> {
        let place = Self::parse(text)?;
        let Some(path) = place.image.path() else {
            if place.has_path {
                return Ok(Some(place));
            }
            let image = shown(&place.image);
            return Err(Failure::usage(format!(
                "{image} is an image: write {image}:/path for what is in it"
            )));
        };
        let looks_inside = || text.as_bytes().windows(2).any(|pair| pair == b":/");
        let is_image = match path.metadata() {
            Ok(found) => !found.is_dir(),
            Err(_) => looks_inside(),
        };
        Ok((place.has_path && is_image).then_some(place))
    }

    /// Opens the image for reading. What may be wrong with it although it opened goes to standard
    /// error.
    pub(crate) fn open(&self, location: &Whereabouts) -> Outcome<Filesystem> {
        if let Some(fs) = location.opened(&self.image) {
            return Ok(fs);
        }
        let whole = self.open_whole(location, false)?;
        self.open_in(&whole, location)
    }

    /// Opens the image for reading and writing, as [`ImagePath::open`] does for reading.
    pub(crate) fn open_writable(&self, location: &Whereabouts) -> Outcome<Filesystem> {
        let whole = self.open_whole(location, true)?;
        self.open_writable_in(&whole, location)
    }

    /// Opens the whole of what the image is or lies in.
    pub(crate) fn open_whole(
        &self,
        location: &Whereabouts,
        writable: bool,
    ) -> Outcome<SharedDevice> {
        if writable {
            refuse_reading_options(location)?;
        }
        let opened = self.image.open_whole(&how(location, &self.image, writable));
        opened.map_err(|e| self.not_opened(e, writable))
    }

    /// As [`ImagePath::open`], where the whole is open.
    pub(crate) fn open_in(
        &self,
        whole: &SharedDevice,
        location: &Whereabouts,
    ) -> Outcome<Filesystem> {
        let device = self.part_of(whole, location)?;
        let journal = if location.as_is {
            JournalChoice::Ignore
        } else {
            JournalChoice::Replay
        };
        let options = MountOptions::read_only().journal(journal).cut_short(true);
        let options = with_journal(options, location)?;
        let options = match location.superblock {
            Some(wanted) => options.superblock(self.backup(&device, wanted)?),
            None => options,
        };
        if location.mend {
            let name = shown(&self.image);
            if let Some(fs) = mended::open(&device, &name, &options, Way::Command) {
                self.warn(&fs);
                return Ok(fs);
            }
        }
        let fs = Filesystem::open_device(Arc::clone(&device), options).map_err(|e| {
            let failure = self.cannot_open(whole, location, self.why(&e));
            match (location.superblock, e.cause()) {
                (None, Cause::Image(e)) if is_of_superblock(e.engine()) => {
                    with_backup_hint(&device, failure)
                }
                _ => failure,
            }
        })?;
        self.warn(&fs);
        Ok(fs)
    }

    /// As [`ImagePath::open_writable`], where the whole is open for writing.
    pub(crate) fn open_writable_in(
        &self,
        whole: &SharedDevice,
        location: &Whereabouts,
    ) -> Outcome<Filesystem> {
        refuse_reading_options(location)?;
        let device = keeping::over(self.part_of(whole, location)?, location)?;
        self.open_writable_on(device, whole, location)
    }

    /// As [`ImagePath::open_writable_in`], where the part of the whole is open too.
    pub(crate) fn open_writable_on(
        &self,
        device: SharedDevice,
        whole: &SharedDevice,
        location: &Whereabouts,
    ) -> Outcome<Filesystem> {
        let fs = Filesystem::open_device(device, options_for_writing())
            .map_err(|e| self.not_writable(whole, location, &e))?;
        self.warn(&fs);
        Ok(fs)
    }

    /// Opens the image for changes that are made as a whole, or not at all; `dry`: not at all.
    pub(crate) fn begin(&self, location: &Whereabouts, dry: bool) -> Outcome<Transaction> {
        let whole = self.open_whole(location, true)?;
        let device = keeping::over(self.part_of(&whole, location)?, location)?;
        let options = options_for_writing();
        let begun = if dry {
            Transaction::rehearse_device(device, "", options)
        } else {
            Transaction::open_device(device, "", options)
        };
        let begun = begun.map_err(|e| self.not_writable(&whole, location, &e))?;
        self.warn(begun.filesystem());
        Ok(begun)
    }

    /// Why the image did not open for writing.
    fn not_writable(
        &self,
        whole: &SharedDevice,
        location: &Whereabouts,
        e: &extant::Error,
    ) -> Failure {
        let why = match e.cause() {
            Cause::Image(e) => why_not_writable(&self.image, e.engine()),
            _ => None,
        };
        self.cannot_open(whole, location, why.unwrap_or_else(|| self.why(e)))
    }

    /// The part of the whole that holds the file system.
    pub(crate) fn part_of(
        &self,
        whole: &SharedDevice,
        location: &Whereabouts,
    ) -> Outcome<SharedDevice> {
        let how = how(location, &self.image, false);
        let part = self.image.part_of(Arc::clone(whole), &how);
        part.map_err(Failure::new)
    }

    /// An error of opening the file system. Those of devices name the device themselves.
    fn why(&self, e: &extant::Error) -> String {
        match e.cause() {
            Cause::Image(image) if matches!(image.engine(), EngineError::Device(_)) => {
                e.to_string()
            }
            Cause::Image(e) if is_half_way(e.engine()) => {
                format!("{}: {HALF_WAY}", shown(&self.image))
            }
            _ => in_image(&self.image, e),
        }
    }

    /// Opens all of what holds the file system, without looking at it; for reading as long as no
    /// process writes it. If a process uses it that `may_be` about to end, its end is waited for,
    /// at most for `patience`. `in_format` says whether it may lie in a format of disk images.
    pub(crate) fn open_when_free(
        &self,
        location: &Whereabouts,
        writable: bool,
        patience: Duration,
        may_be: impl Fn() -> bool,
        in_format: bool,
    ) -> Outcome<SharedDevice> {
        const PAUSE: Duration = Duration::from_millis(10);
        let how = how(&only_formats(location), &self.image, writable).guarded(!writable);
        let end = Instant::now() + patience;
        loop {
            match self.image.open_disk(&how) {
                Err(DeviceError::InUse { .. }) if Instant::now() < end && may_be() => {
                    std::thread::sleep(PAUSE);
                }
                Err(e) => return Err(self.not_opened(e, writable)),
                Ok(Opened {
                    container: Some(container),
                    ..
                }) if !in_format => {
                    return Err(Failure::new(format!(
                        "{} has become {} meanwhile: mount it again",
                        shown(&self.image),
                        container.name
                    )));
                }
                Ok(opened) => return Ok(opened.device),
            }
        }
    }

    fn not_opened(&self, e: DeviceError, writable: bool) -> Failure {
        let text = e.to_string();
        let engine = EngineError::from(e);
        let why = why_not_writable(&self.image, &engine).filter(|_| writable);
        Failure::new(why.unwrap_or(text))
    }

    /// Opens the file system that lies at a place on a device that [`ImagePath::open_when_free`]
    /// has opened, for a mount. `spool` is where mending it puts what memory has no room for.
    pub(crate) fn open_on(
        &self,
        device: SharedDevice,
        location: &Whereabouts,
        mut options: MountOptions,
        spool: Option<SharedDevice>,
    ) -> Outcome<Filesystem> {
        let part = self.part_of(&device, location)?;
        if let Some(wanted) = location.superblock {
            options = options.superblock(self.backup(&part, wanted)?);
        }
        if location.mend {
            let name = shown(&self.image);
            if let Some(fs) = mended::open(&part, &name, &options, Way::Mount(spool)) {
                self.warn(&fs);
                return Ok(fs);
            }
        }
        let fs = Filesystem::open_device(part, options).map_err(|e| {
            let why = match e.cause() {
                Cause::Image(e) => why_not_writable(&self.image, e.engine()),
                _ => None,
            };
            let why = why.unwrap_or_else(|| in_image(&self.image, &e));
            self.cannot_open(&device, location, why)
        })?;
        self.warn(&fs);
        Ok(fs)
    }

    fn warn(&self, fs: &Filesystem) {
        for notice in fs.notices().iter().filter(|notice| notice.is_warning()) {
            say(format_args!("warning: {}: {notice}", shown(&self.image)));
        }
    }

    /// The backup superblock to read by.
    fn backup(&self, device: &SharedDevice, wanted: SuperblockAt) -> Outcome<SuperblockChoice> {
        let image = shown(&self.image);
        let found = match wanted {
            SuperblockAt::Auto => extant_fsck::find_backup_superblock(&**device),
            SuperblockAt::Block(block) => {
                extant_fsck::superblock_in_block(&**device, Pblk::new(block))
            }
        };
        let found = found.map_err(|e| Failure::new(format!("{image}: {e}")))?;
        match (found, wanted) {
            (Some((block, block_size)), _) => Ok(SuperblockChoice::Backup { block, block_size }),
            (None, SuperblockAt::Auto) => Err(Failure::new(format!(
                "{image}: no backup superblock was found where groups begin by the first one, or by \
                 their usual size; if you know the block of one, name it with --superblock BLOCK"
            ))),
            (None, SuperblockAt::Block(block)) => Err(Failure::new(format!(
                "{image}: there is no superblock in block {block}, whatever the size of blocks is; --superblock auto \
                 looks for one"
            ))),
        }
    }

    /// Why the image did not open, with advice where there is some.
    fn cannot_open(
        &self,
        whole: &SharedDevice,
        place: &Whereabouts,
        why: impl fmt::Display,
    ) -> Failure {
        let is_whole =
            self.image.partition().is_none() && (place.offset, place.partition) == (None, None);
        match is_whole.then(|| hint_of(whole)).flatten() {
            Some(hint) => Failure::new(format!("{why}\n{hint}")),
            None => Failure::new(why),
        }
    }

    /// The place as it is named on the command line, safe for a terminal.
    pub(crate) fn shown(&self) -> String {
        format!("{}:{}", shown(&self.image), Escaped::path(&self.path))
    }

    /// Another place in this image.
    pub(crate) fn with_path(&self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            has_path: true,
            ..self.clone()
        }
    }

    /// The place as an operand that names it, with the secrets that an address may have.
    pub(crate) fn typed(&self) -> OsString {
        let mut text = self.image.address().to_owned();
        if let Some(partition) = self.image.partition() {
            text.push(format!("#{partition}"));
        }
        text.push(":");
        text.push(&self.path);
        text
    }

    /// A failure inside this image.
    pub(crate) fn failure(&self, e: &extant::Error) -> Failure {
        Failure::Failed(in_image(&self.image, e))
    }
}

fn options_for_writing() -> MountOptions {
    if time::is_reproducible() {
        // Neither the machine's speed nor its memory decides what is written when.
        MountOptions::read_write()
            .background(false)
            .cache_bytes(STEADY_CACHE)
    } else {
        MountOptions::read_write()
    }
}

/// What an operand that names an image is called: without the secrets of an address.
pub(crate) fn name_of(text: &OsStr) -> OsString {
    whole_image(text).map_or_else(|_| text.to_owned(), |image| image.name())
}

/// An image as it is named on the command line, safe for a terminal.
pub(crate) fn shown(image: &ImageLocation) -> String {
    Escaped(image.name().as_bytes()).to_string()
}

/// Adds to a failure of reading the superblock where a sound backup of it is.
fn with_backup_hint(device: &SharedDevice, failure: Failure) -> Failure {
    let backup = extant_fsck::find_backup_superblock(&**device)
        .ok()
        .flatten();
    match (failure, backup) {
        (Failure::Failed(text), Some((block, _))) => Failure::Failed(format!(
            "{text}\nThere is a backup superblock in block {block}: read by it with --superblock auto, or mend the \
             image with `extant repair`; --mend reads it as that would leave it."
        )),
        (failure, _) => failure,
    }
}

/// Whether an error may be one of the superblock alone, so that a backup of it may help.
fn is_of_superblock(e: &EngineError) -> bool {
    match e {
        EngineError::NotExt4 { .. } => true,
        EngineError::Corrupt { place, .. } => *place == extant_core::Place::Superblock,
        _ => false,
    }
}

/// Refuses what a command that changes an image has no use for.
pub(crate) fn refuse_reading_options(place: &Whereabouts) -> Outcome {
    if place.as_is {
        return Err(Failure::usage(
            "--as-is is about reading: nothing can be changed before the journal is replayed",
        ));
    }
    if place.mend {
        return Err(Failure::usage(
            "--mend is about reading: what is damaged is changed after `extant repair`",
        ));
    }
    if place.superblock.is_some() {
        return Err(Failure::usage(
            "--superblock is about reading: an image whose first superblock is damaged is changed after `extant repair`, \
             which finds a backup by itself",
        ));
    }
    if place.journal.is_some() {
        return Err(Failure::usage(
            "--journal is about reading: images with a journal on another device are not changed",
        ));
    }
    Ok(())
}

/// Adds to the options the device that holds the journal, if one was named.
pub(crate) fn with_journal(options: MountOptions, place: &Whereabouts) -> Outcome<MountOptions> {
    Ok(match journal_device(place)? {
        Some(device) => options.journal_device(device),
        None => options,
    })
}

/// The device that holds the journal, if one was named.
pub(crate) fn journal_device(place: &Whereabouts) -> Outcome<Option<SharedDevice>> {
    let Some(path) = &place.journal else {
        return Ok(None);
    };
    let journal = whole_image(path.as_os_str())?;
    let opened = journal.open(&how(&only_formats(place), &journal, false));
    opened.map(Some).map_err(Failure::new)
}

/// As raw, which an `option` of the command says too.
pub(crate) fn as_raw(
    how: How,
    place: &Whereabouts,
    image: &ImageLocation,
    option: &str,
) -> Outcome<How> {
    match place.format_of(image) {
        Some(said) if said != ImageFormat::RAW => Err(Failure::usage(format!(
            "{option} raw and --image-format {said} contradict each other: give one of them"
        ))),
        _ => Ok(how.format(ImageFormat::RAW)),
    }
}

/// What is said of images in whole, without which part of them is meant.
fn only_formats(place: &Whereabouts) -> Whereabouts {
    Whereabouts {
        image_format: place.image_format.clone(),
        ..Whereabouts::default()
    }
}

/// What to do about a whole disk that was taken for a file system.
fn hint_of(device: &SharedDevice) -> Option<String> {
    let table = extant_blockdev::list_partitions(&**device).ok()?;
    let numbers: Vec<String> = table
        .partitions
        .iter()
        .map(|partition| partition.number.to_string())
        .collect();
    if numbers.is_empty() {
        return None;
    }
    Some(format!(
        "This is a disk with partitions {}: say which with --partition N, or IMAGE#N (`extant info` tells more of them).",
        numbers.join(", ")
    ))
}

/// What an error of opening for writing is called: with what to do about it, where that is known.
pub(crate) fn why_not_writable(image: &ImageLocation, e: &EngineError) -> Option<String> {
    let image = shown(image);
    // A block device that cannot be written to says so when it is first written to.
    let cannot = |e: &dyn std::fmt::Display| {
        format!("{image} cannot be written to: {e}. Reading it may still be possible")
    };
    Some(match e {
        EngineError::Device(device) => match &**device {
            DeviceError::InUse { .. } => format!(
                "{image} is open elsewhere: another program writes to it, or it is mounted. Try again when \
                 that has ended"
            ),
            DeviceError::Open { source, .. } if is_refusal(source) => cannot(source),
            _ if is_refused(e) => cannot(e),
            _ => return None,
        },
        EngineError::Log(_) if is_refused(e) => cannot(e),
        e if is_half_way(e) => format!("{image}: {HALF_WAY}"),
        EngineError::Unsupported { .. } => format!(
            "{image}: {e}; it can still be read: take the files out with `extant cp`, and make a new image with \
             `extant mkfs`"
        ),
        _ => return None,
    })
}

/// What is said of an image of which a part is put back.
const HALF_WAY: &str = "taking changes back was cut off here, and the image is neither what it was nor what it \
                        became: run `extant revert` again with the same undo file";

/// Whether an image has the feature that it has while changes are taken back.
fn is_half_way(e: &EngineError) -> bool {
    matches!(e, EngineError::Unsupported { features } if features.contains("FEATURE_I30"))
}

/// Whether the system refused what is at the bottom of an error.
fn is_refused(e: &EngineError) -> bool {
    let mut below: Option<&dyn std::error::Error> = Some(e);
    while let Some(error) = below {
        if error.downcast_ref().is_some_and(is_refusal) {
            return true;
        }
        below = error.source();
    }
    false
}

/// Whether the system refuses to open a file for writing, as opposed to not finding it.
fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}
