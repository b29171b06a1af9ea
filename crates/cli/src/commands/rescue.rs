//! What `log`, `deleted` and `recover` share: opening an image whose past is looked at.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, journal_device, shown};
use extant_image::ImageLocation;
use extant_rescue::Rescue;

/// Opens an image to look at its past.
pub(super) fn open(image: &ImageLocation, location: &Whereabouts) -> Outcome<Rescue> {
    if location.as_is || location.superblock.is_some() {
        return Err(Failure::usage(
            "--as-is and --superblock are about reading files: the past of an image is looked at by its first superblock, \
             with the journal",
        ));
    }
    let device = image
        .open(&how(location, image, false))
        .map_err(Failure::new)?;
    let journal = journal_device(location)?;
    Rescue::open(device, journal).map_err(|e| named(image, e))
}

/// A failure, with the image in front; devices name themselves.
pub(super) fn named(image: &ImageLocation, e: extant_rescue::Error) -> Failure {
    match e {
        extant_rescue::Error::Device(e) => Failure::new(e),
        e => Failure::new(format!("{}: {e}", shown(image))),
    }
}
