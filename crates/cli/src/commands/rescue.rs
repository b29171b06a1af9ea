//! What `log`, `deleted` and `recover` share: opening an image whose past is looked at.

use crate::args::Whereabouts;
use crate::failure::{Failure, Outcome};
use crate::image_path::{how, journal_device, shown};
use extant_image::ImageLocation;
use extant_rescue::Rescue;

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
