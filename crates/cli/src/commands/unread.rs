//! What was not copied or archived, or not all of it, for programs.

use crate::record::lossless;
use extant::{Cause, Error};
use extant_image::ImageLocation;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;

/// A file that was not taken out of an image, or not all of it.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    /// None where it is the host that refuses something: then the path is one there.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    reason: String,
    /// Whether there is a copy, which lacks what the reason says.
    kept: bool,
    /// The bytes that could not be read, where that is known: at most the first thousand ranges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unread: Vec<Bytes>,
}

#[derive(Debug, Serialize)]
struct Bytes {
    offset: u64,
    length: u64,
}

impl Problem {
    pub(super) fn of(image: &ImageLocation, e: &Error) -> Self {
        let (path, path_hex) = lossless(e.path().as_os_str().as_bytes());
        let (unread, kept) = match e.cause() {
            Cause::Unread(unread) => {
                let bytes = unread.ranges().iter().map(|range| Bytes {
                    offset: range.start,
                    length: range.end - range.start,
                });
                (bytes.collect(), unread.is_kept())
            }
            Cause::InDoubt | Cause::Incomplete(_) => (Vec::new(), true),
            _ => (Vec::new(), false),
        };
        let text = e.to_string();
        let named = extant::Escaped::path(e.path()).to_string();
        let reason = text
            .strip_prefix(&named)
            .and_then(|rest| rest.strip_prefix(": "));
        let is_outside = matches!(e.cause(), Cause::Host { .. });
        let image = (!is_outside).then(|| lossless(image.name().as_bytes()));
        let (image, image_hex) = image.unzip();
        Self {
            image,
            image_hex: image_hex.flatten(),
            path,
            path_hex,
            reason: reason.unwrap_or(&text).to_owned(),
            kept,
            unread,
        }
    }
}
