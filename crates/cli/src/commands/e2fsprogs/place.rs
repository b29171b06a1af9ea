//! The device that an operand names.

use super::number::Length;
use crate::args::{SaidFormat, Whereabouts};
use crate::failure::{Failure, Outcome};
use extant::Escaped;
use extant_image::ImageFormat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What stands between the name of a file and where its file system begins.
const OFFSET: &[u8] = b"?offset=";

/// A file or device, and where in it the file system is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// As the commands take it.
    pub(super) image: OsString,
    pub(super) location: Whereabouts,
    /// As it was given.
    name: OsString,
}

impl Place {
    /// Reads an operand: a path, or one with `?offset=BYTES` behind it. A disk is taken for what
    /// lies on it, as these programs do, whatever it looks like.
    pub(super) fn of(operand: OsString) -> Outcome<Self> {
        let bytes = operand.as_bytes();
        let is_there = Path::new(&operand).exists();
        for tag in [&b"LABEL="[..], b"UUID=", b"PARTUUID=", b"PARTLABEL="] {
            if bytes.starts_with(tag) && !is_there {
                return Err(Failure::new(format!(
                    "{}: devices are not looked for: name the file or device",
                    Escaped(bytes)
                )));
            }
        }
        let at = bytes.windows(OFFSET.len()).rposition(|part| part == OFFSET);
        let (path, offset) = match at.filter(|_| !is_there) {
            None => (bytes, None),
            Some(at) => {
                let (path, number) = bytes.split_at(at);
                let number = number.get(OFFSET.len()..).map(String::from_utf8_lossy);
                let offset = number.and_then(|number| Length::parse_bytes(&number));
                let wrong = || Failure::usage(format!("{}: no offset", Escaped(bytes)));
                (path, Some(offset.ok_or_else(wrong)?))
            }
        };
        // So that no name is taken for an address.
        let mut image = Vec::from(if path.starts_with(b"/") {
            &b""[..]
        } else {
            b"./"
        });
        image.extend_from_slice(path);
        Ok(Self {
            image: OsString::from_vec(image),
            location: Whereabouts {
                offset,
                image_format: vec![SaidFormat {
                    image: None,
                    format: ImageFormat::RAW,
                }],
                ..Whereabouts::default()
            },
            name: operand,
        })
    }

    /// How it is called in messages.
    pub(super) fn shown(&self) -> String {
        Escaped(self.name.as_bytes()).to_string()
    }

    /// The image as a command takes it.
    pub(super) fn image(&self) -> &OsStr {
        &self.image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_may_begin_behind_an_offset() {
        let of = |text: &str| {
            let place = Place::of(text.into()).ok()?;
            let image = place.image().to_str()?.to_owned();
            Some((image, place.location.offset))
        };
        let is = |image: &str, offset| Some((image.to_owned(), offset));
        assert_eq!(of("/dev/x"), is("/dev/x", None));
        assert_eq!(of("nbd://x"), is("./nbd://x", None));
        assert_eq!(of("disk?offset=1M"), is("./disk", Some(1 << 20)));
        assert_eq!(of("disk?offset=0x200"), is("./disk", Some(512)));
        assert_eq!(of("disk?offset=x"), None);
        assert_eq!(of("LABEL=root"), None);
    }
}
