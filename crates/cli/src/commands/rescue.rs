//! What `log`, `deleted`, `recover` and `map --block` share: opening an image that is looked at as
//! it lies, and what its blocks are used for.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, journal_device, shown};
use extant_image::ImageLocation;
use extant_rescue::{Rescue, Use};

/// Opens an image to look at its past.
pub(super) fn open(image: &ImageLocation, location: &Whereabouts) -> Outcome<Rescue> {
    if location.superblock.is_some() || location.mend {
        return Err(Failure::usage(
            "--superblock and --mend are about reading files: the past of an image is looked at as it lies, by its first \
             superblock",
        ));
    }
    let device = image
        .open(&how(location, image, false))
        .map_err(Failure::new)?;
    let opened = if location.as_is {
        Rescue::open_as_it_lies(device)
    } else {
        Rescue::open(device, journal_device(location)?)
    };
    opened.map_err(|e| named(image, e))
}

/// A failure, with the image in front; devices name themselves.
pub(super) fn named(image: &ImageLocation, e: extant_rescue::Error) -> Failure {
    match e {
        extant_rescue::Error::Device(e) => Failure::new(e),
        e => Failure::new(format!("{}: {e}", shown(image))),
    }
}

/// What a block is used for, in words.
pub(super) fn used_for(of: &Use) -> String {
    match of {
        Use::Superblock => "superblock".to_owned(),
        Use::GroupDescriptors => "group descriptors".to_owned(),
        Use::ReservedDescriptors => "kept for group descriptors".to_owned(),
        Use::BlockBitmap(group) => format!("block bitmap of group {}", group.get()),
        Use::InodeBitmap(group) => format!("inode bitmap of group {}", group.get()),
        Use::InodeTable {
            group,
            first,
            count,
        } => format!(
            "inode table of group {}, inodes {} to {}",
            group.get(),
            first.get(),
            first.get().saturating_add(*count).saturating_sub(1)
        ),
        Use::Journal => "journal".to_owned(),
        Use::MultipleMount => "multiple-mount protection".to_owned(),
        Use::Directory { ino, lblk } => format!("directory {}, its block {lblk}", ino.get()),
        Use::MapNode { ino } => format!("map of inode {}", ino.get()),
        Use::Attributes { ino } => format!("attributes of inode {}", ino.get()),
        Use::Quota { ino } => format!("quota file, inode {}", ino.get()),
        Use::OrphanFile { ino } => format!("orphan file, inode {}", ino.get()),
        Use::Resize => "resize inode".to_owned(),
        Use::Data { ino, lblk } => format!("data of inode {}, its block {lblk}", ino.get()),
        Use::FormerDirectory => "once a directory".to_owned(),
        Use::FormerMapNode => "once a map".to_owned(),
        Use::FormerAttributes => "once attributes".to_owned(),
        Use::Outside => "outside of the file system".to_owned(),
        _ => "nothing any more".to_owned(),
    }
}
