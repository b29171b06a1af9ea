//! `extant verity`: hash trees for an image that exists, and for files in it.

mod files;

use crate::args::{SealImage, Whereabouts};
use crate::commands::mkfs::is_impossible;
use crate::commands::mkfs::verity::{Dm, Files, Hashed, tell};
use crate::commands::resize::{cut, lengthen};
use crate::commands::tune::superblock_of;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, refuse_reading_options, shown, whole_image};
use crate::keeping;
use crate::output::Output;
use crate::progress::Bar;
use crate::record::lossless;
use extant_blockdev::{BlockDevice, SharedDevice};
use extant_format::superblock::{State, Superblock};
use extant_image::{ImageLocation, Opened};
use extant_mkfs::{DmVerityOver, DmVerityReport, Progress};
use serde::Serialize;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that are looked at together.
const PIECE: usize = 1 << 20;

pub(super) fn run(args: &SealImage, location: &Whereabouts) -> Outcome {
    refuse_reading_options(location)?;
    let image = whole_image(args.image.as_ref())?;
    let others = image.path().map(|path| ("the image", path));
    let dm = Dm::new(&args.dm, None, others)?;
    let files = Files::new(&args.fs)?;
    if dm.is_none() && files.is_none() {
        return Err(Failure::usage(
            "say which files fs-verity is to protect: --fs-verity PATTERN; or where a tree for \
             dm-verity goes: --dm-verity append, or --dm-verity FILE",
        ));
    }
    let (protected, done) = if files.is_none() {
        (None, Ok(()))
    } else {
        let (protected, done) = files::protect(&files, &image, location)?;
        (Some(protected), done)
    };
    let make = |dm: Dm| {
        let (target, device) = Target::open(&image, location, &dm)?;
        target.make(args, &dm, device)
    };
    // Files stay protected whatever becomes of the tree over all.
    let (made, done) = match dm.filter(|_| done.is_ok()).map(make).transpose() {
        Ok(made) => (made, done),
        Err(failure) => (None, Err(failure)),
    };
    if args.quiet || (protected.is_none() && made.is_none()) {
        return done;
    }
    let said = say_what(args, &image, protected.as_deref(), made.as_ref());
    done.and(said)
}

/// Tells what was made.
fn say_what(
    args: &SealImage,
    image: &ImageLocation,
    protected: Option<&[files::Protected]>,
    made: Option<&DmVerityReport>,
) -> Outcome {
    let mut output = Output::new();
    if args.json {
        let (image, image_hex) = lossless(image.name().as_bytes());
        output.json_line(&Made {
            image,
            image_hex,
            fs_verity_files: protected.map(|files| files.len() as u64),
            fs_verity: protected.map(|files| files.iter().map(files::Record::new).collect()),
            dm_verity: made.map(Hashed::new),
        })?;
        return output.finish();
    }
    for file in protected.unwrap_or_default() {
        file.tell(&mut output)?;
    }
    if let Some(made) = made {
        tell(&mut output, made)?;
    }
    output.finish()
}

/// What was made, for programs.
#[derive(Debug, Serialize)]
struct Made {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_verity_files: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_verity: Option<Vec<files::Record>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dm_verity: Option<Hashed>,
}

/// The image.
struct Target<'a> {
    image: &'a ImageLocation,
    location: &'a Whereabouts,
    superblock: Superblock,
    /// A file that is nothing but a file system, and may become longer.
    file: Option<&'a Path>,
}

impl<'a> Target<'a> {
    /// Opens it so that nobody else writes to it, and looks whether it is closed.
    fn open(
        image: &'a ImageLocation,
        location: &'a Whereabouts,
        dm: &Dm,
    ) -> Outcome<(Self, SharedDevice)> {
        let writes = dm.is_behind();
        let how = how(location, image, writes).guarded(!writes);
        let opened = image.open_disk(&how).map_err(Failure::new)?;
        let Opened {
            device, container, ..
        } = opened;
        let is_whole = container.is_none() && image.partition().is_none();
        let device = image.part_of(device, &how).map_err(Failure::new)?;
        let superblock = superblock_of(&*device);
        let target = Self {
            image,
            location,
            superblock: superblock.map_err(|e| Failure::new(format!("{}: {e}", shown(image))))?,
            file: image.path().filter(|_| is_whole),
        };
        target.check_closed(&*device)?;
        Ok((target, device))
    }

    fn failed(&self, e: &dyn std::fmt::Display) -> Failure {
        Failure::new(format!("{}: {e}", shown(self.image)))
    }

    /// Refuses what the next mount would change, or could not be mounted.
    fn check_closed(&self, device: &dyn BlockDevice) -> Outcome {
        let superblock = &self.superblock;
        extant_fsck::refuse_unreadable(superblock).map_err(|e| self.failed(&e))?;
        if superblock.needs_recovery() {
            return Err(self.failed(
                &"its journal has changes that are not in their place, which no mount through \
                  dm-verity can put there: extant replay does, first",
            ));
        }
        let state = superblock.state();
        if !state.contains(State::CLEAN) || state.contains(State::ERRORS) {
            return Err(self.failed(
                &"it was not closed, or has errors that somebody noted: extant check, and extant \
                  repair, first",
            ));
        }
        let size = superblock.blocks_count() << superblock.block_size().log2();
        if size > device.size() {
            return Err(self.failed(&format_args!(
                "the file system has {size} bytes, of which only {} are here",
                device.size()
            )));
        }
        Ok(())
    }

    fn make(&self, args: &SealImage, dm: &Dm, device: SharedDevice) -> Outcome<DmVerityReport> {
        let over = DmVerityOver::new(&dm.how(args.force)?, &self.superblock);
        let over = over.map_err(|e| Failure::usage(format!("{}: {e}", shown(self.image))))?;
        let (device, was) = if dm.is_behind() {
            if !args.force {
                self.check_behind(&over, &*device)?;
            }
            let (device, was) = self.make_room(&over, device)?;
            let device = keeping::over(device, self.location).inspect_err(|_| self.shorten(was))?;
            if let Some((file, len)) = self.file.zip(was) {
                keeping::note_length(self.location, file, len);
            }
            (device, was)
        } else {
            (device, None)
        };
        let bar = Shown(Bar::new("hashing"));
        let made = over.make(&*device, NonZero::new(args.threads), &bar);
        bar.0.finish();
        made.map_err(|e| {
            self.shorten(was);
            if is_impossible(&e) {
                Failure::usage(format!("{}: {e}", shown(self.image)))
            } else {
                self.failed(&e)
            }
        })
    }

    /// Refuses to write over anything but zeros and another tree of the same file system.
    fn check_behind(&self, over: &DmVerityOver, device: &dyn BlockDevice) -> Outcome {
        let end = over.image_len().min(device.size());
        let mut at = over.data_len();
        let mut bytes = vec![0; PIECE];
        while at < end {
            let len = (end - at).min(PIECE as u64) as usize;
            let read = device.read_at(at, &mut bytes[..len]);
            read.map_err(Failure::new)?;
            if at == over.data_len()
                && let Some(former) = over.former_end(&bytes[..len])
            {
                at = former;
                continue;
            }
            if bytes[..len].iter().any(|&byte| byte != 0) {
                return Err(self.failed(&format_args!(
                    "something lies behind the file system, from byte {} on, where the tree would \
                     go: --force writes over it, and --dm-verity FILE leaves it alone",
                    over.data_len()
                )));
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Makes the image longer if the tree does not fit; returns how long the file was then.
    fn make_room(
        &self,
        over: &DmVerityOver,
        device: SharedDevice,
    ) -> Outcome<(SharedDevice, Option<u64>)> {
        let (needed, there) = (over.image_len(), device.size());
        if needed <= there {
            return Ok((device, None));
        }
        let mut was = None;
        if let Some(file) = self.file {
            was = lengthen(file, self.location, needed).map_err(|e| self.failed(&e))?;
        }
        if was.is_none() {
            return Err(self.failed(&format_args!(
                "the tree needs {} bytes more behind the file system than there are: make that \
                 smaller (extant resize), or give the tree a file of its own (--dm-verity FILE)",
                needed - there
            )));
        }
        // One after the other: the first has the lock.
        drop(device);
        let opened = self.image.open(&how(self.location, self.image, true));
        let device = opened.map_err(|e| {
            self.shorten(was);
            Failure::new(e)
        });
        Ok((device?, was))
    }

    /// Makes the file as long as it was. One that is too long does no harm.
    fn shorten(&self, was: Option<u64>) {
        if let Some((file, was)) = self.file.zip(was) {
            let _ = cut(file, self.location, was);
        }
    }
}

/// Progress on the bar.
struct Shown(Bar);

impl Progress for Shown {
    fn start(&self, total: u64) {
        self.0.total(total);
    }

    fn advance(&self, amount: u64) {
        self.0.advance(amount);
    }
}
