//! Images that are made in object stores: they are sent in parts while they are made, and appear
//! when they are complete.

use crate::failure::{Failure, Outcome};
use extant_image::{Carrier, ImageLocation};
use extant_mkfs::output::{Output, OutputError};
use std::path::Path;

/// The URL of an object of a store, if the name of an image is one.
pub(crate) fn url_of(image: &Path) -> Option<String> {
    let location = ImageLocation::parse(image.as_os_str()).ok()?;
    match location.carrier() {
        Carrier::Object(url) if location.partition().is_none() => Some(url.clone()),
        _ => None,
    }
}

/// Refuses to replace an object that exists, unless there is `--force`.
#[cfg(feature = "remote")]
pub(crate) fn check_vacant(url: &str, force: bool) -> Outcome {
    use extant::Escaped;
    use extant_remote::{RemoteOptions, open};
    if force {
        return Ok(());
    }
    match open(url, RemoteOptions::from_env()) {
        Ok(object) if object.size() == 0 => Ok(()),
        Ok(object) => Err(Failure::new(format!(
            "{} exists and has {} bytes: --force replaces it",
            Escaped(object.name().as_bytes()),
            object.size()
        ))),
        Err(e) if is_missing(&e) => Ok(()),
        Err(e) => Err(Failure::new(e)),
    }
}

/// Whether there is no such object.
#[cfg(feature = "remote")]
fn is_missing(error: &extant_blockdev::DeviceError) -> bool {
    use extant_blockdev::DeviceError;
    match error {
        DeviceError::Open { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Makes the place for an image of `size` bytes.
#[cfg(feature = "remote")]
pub(crate) fn output(url: &str, size: u64) -> Result<Output, OutputError> {
    let writer = extant_remote::create(url, size, extant_remote::UploadOptions::default())?;
    let device = writer.device();
    Ok(Output::on_unfinished(device, true, || writer.finish()))
}

/// Refuses: this build writes no objects.
#[cfg(not(feature = "remote"))]
pub(crate) fn check_vacant(_url: &str, _force: bool) -> Outcome {
    Err(Failure::new(
        "this build has no part for object stores (the feature `remote`): write a file and upload \
         it",
    ))
}

/// Refuses: this build writes no objects.
#[cfg(not(feature = "remote"))]
pub(crate) fn output(url: &str, size: u64) -> Result<Output, OutputError> {
    Output::create(Path::new(url), size)
}
