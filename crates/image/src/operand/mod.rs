//! Telling a path inside an image, and a partition, from the image's own name.
//!
//! A file that exists wins: over a shorter one that has a partition or a path inside behind it, and
//! over an address of just this name.

use crate::PartitionName;
use crate::location::{Carrier, ImageLocation, fragment_of, is_known};
use crate::os::{bytes, os};
use crate::uri::{AddressError, scheme};
use std::ffi::OsStr;
use std::path::Path;

impl ImageLocation {
    /// Reads what a user writes for an image: a path, or an address, each perhaps with `#N` or
    /// `#LABEL` for a partition. A path need not exist.
    ///
    /// # Errors
    /// When it is an address that names nothing, with what to write.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Self, AddressError> {
        Self::parse_with(bytes(text.as_ref())?, &|path| path.exists())
    }

    /// Reads what a user writes for a file inside an image, `IMAGE:PATH`, or for an image alone,
    /// and returns the path as it was written.
    ///
    /// The path begins behind the last colon in front of which there is a file; in an address at
    /// the first `:/`, or at a colon that ends it. An address has `%3A/` for a `:/` of its own.
    ///
    /// # Errors
    /// As for [`ImageLocation::parse`].
    pub fn split(text: &OsStr) -> Result<(Self, Option<&OsStr>), AddressError> {
        let (location, path) = Self::split_with(bytes(text)?, &|path| path.exists())?;
        Ok((location, path.map(os)))
    }

    fn parse_with(text: &[u8], exists: &dyn Fn(&Path) -> bool) -> Result<Self, AddressError> {
        if !text.iter().any(|byte| matches!(byte, b':' | b'#')) || exists(Path::new(os(text))) {
            return Ok(Self::file(os(text)));
        }
        if let Some(address) = Address::of(text, exists) {
            let (location, path) = address.read(text)?;
            return match path {
                None => Ok(location),
                Some(_) => Err(AddressError::new(
                    text,
                    format!("a whole image is meant here: write {location}"),
                )),
            };
        }
        let part = with_partition(text, b"/");
        let part = part.filter(|(whole, _)| exists(Path::new(os(whole))));
        Ok(match part {
            Some((whole, partition)) => Self::file(os(whole)).with_partition(partition),
            None => Self::file(os(text)),
        })
    }

    fn split_with<'a>(
        text: &'a [u8],
        exists: &dyn Fn(&Path) -> bool,
    ) -> Result<(Self, Option<&'a [u8]>), AddressError> {
        if let Some(address) = Address::of(text, exists) {
            return address.read(text);
        }
        let colons = || (0..text.len()).filter(|&at| text.get(at) == Some(&b':'));
        let at = |end: usize| {
            let (image, path) = text.split_at(end.min(text.len()));
            (image, path.get(1..))
        };
        for (image, path) in std::iter::once(text.len()).chain(colons().rev()).map(at) {
            if image.is_empty() {
                continue;
            }
            if exists(Path::new(os(image))) {
                return Ok((Self::file(os(image)), path));
            }
            if let Some((whole, partition)) = with_partition(image, b":/")
                && exists(Path::new(os(whole)))
            {
                return Ok((Self::file(os(whole)).with_partition(partition), path));
            }
        }
        let (image, path) = at(colons().find(|&at| at > 0).unwrap_or(text.len()));
        Ok((Self::file(os(image)), path))
    }
}

/// Takes a partition off the end of a name, `IMAGE#N` or `IMAGE#LABEL`, if one is there. Labels
/// with a byte of `not` are no such.
fn with_partition<'a>(name: &'a [u8], not: &[u8]) -> Option<(&'a [u8], PartitionName)> {
    let mark = name.iter().rposition(|byte| *byte == b'#')?;
    let (whole, label) = name.split_at(mark);
    let label = label.get(1..)?;
    if whole.is_empty() || label.iter().any(|byte| not.contains(byte)) {
        return None;
    }
    let partition = PartitionName::read(std::str::from_utf8(label).ok()?)?;
    Some((whole, partition))
}

/// What kind of address a text is.
enum Address {
    Uri,
    /// The number, and where the text goes on behind it.
    Descriptor(i32, usize),
}

impl Address {
    fn of(text: &[u8], exists: &dyn Fn(&Path) -> bool) -> Option<Self> {
        if let Some(digits) = text.strip_prefix(b"fd:") {
            let len = digits
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            let (number, behind) = digits.split_at(len);
            let number = std::str::from_utf8(number).ok()?.parse().ok()?;
            let ends = matches!(behind.first(), None | Some(b'#' | b':'));
            let end = text.len() - behind.len();
            let is_file = || exists(Path::new(os(text.get(..end).unwrap_or(text))));
            return (ends && !is_file()).then_some(Self::Descriptor(number, end));
        }
        let scheme = scheme(text)?;
        // Up to which colons there may be a file: an address has one behind its scheme, which a
        // file of the scheme's name does not make a path of.
        let least = if is_known(scheme) {
            scheme.len() + 1
        } else {
            1
        };
        let mut ends =
            (least..=text.len()).filter(|&end| matches!(text.get(end), None | Some(b':')));
        let is_file = ends.any(|end| exists(Path::new(os(text.get(..end).unwrap_or(text)))));
        (!is_file).then_some(Self::Uri)
    }

    /// The location, and the path inside that is behind it.
    fn read(self, text: &[u8]) -> Result<(ImageLocation, Option<&[u8]>), AddressError> {
        match self {
            Self::Uri => {
                let start = scheme(text).map_or(0, |scheme| scheme.len() + 3);
                let rest = text.get(start..).unwrap_or_default();
                let inside = rest.windows(2).position(|pair| pair == b":/");
                let last = rest.len().checked_sub(1);
                let inside = inside.or(last.filter(|&at| rest.get(at) == Some(&b':')));
                match inside.map(|at| text.split_at(start + at)) {
                    None => Ok((ImageLocation::from_uri(text)?, None)),
                    Some((address, path)) => Ok((ImageLocation::from_uri(address)?, path.get(1..))),
                }
            }
            Self::Descriptor(number, end) => {
                let behind = text.get(end..).unwrap_or_default();
                let colon = behind.iter().position(|byte| *byte == b':');
                let (fragment, path) = behind.split_at(colon.unwrap_or(behind.len()));
                let location = ImageLocation::descriptor(number);
                let partition = match fragment.strip_prefix(b"#") {
                    None => None,
                    Some(fragment) => Some(
                        fragment_of(fragment).map_err(|reason| AddressError::new(text, reason))?,
                    ),
                };
                Ok((location.with_partition(partition), path.get(1..)))
            }
        }
    }
}

impl ImageLocation {
    /// Returns whether it is an address, as opposed to a path.
    #[must_use]
    pub fn is_address(&self) -> bool {
        !matches!(self.carrier(), Carrier::File(_))
    }
}

#[cfg(test)]
mod tests;
