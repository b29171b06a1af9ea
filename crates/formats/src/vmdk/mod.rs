//! VMDK disks with flat extents, as in VMware's "Virtual Disk Format 5.0".
//!
//! | file | owns |
//! |---|---|
//! | `descriptor` | the text that describes a disk |
//! | `extents` | files one after the other as one device |
//!
//! The descriptor is a text file; the bytes of the disk lie in files beside it, as they are. What
//! is sparse, compressed or the difference to a parent is refused.

mod descriptor;
mod extents;

pub(crate) use descriptor::is_descriptor;

use crate::follow::follow;
use crate::{FormatError, OpenHow};
use descriptor::{Descriptor, Line, Place};
use extant_blockdev::SharedDevice;
use extents::{Extent, Extents};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name of the format in errors.
const NAME: &str = "VMDK description";

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// Longest description that is read.
const LONGEST: u64 = 1 << 20;

/// Opens the disk that `device` describes.
pub(crate) fn open(device: &SharedDevice, how: &OpenHow) -> Result<SharedDevice, FormatError> {
    let name = device.name();
    let len = device.size();
    if len > LONGEST {
        return Err(FormatError::TooLarge {
            what: format!("the description in {name}"),
            size: len,
            limit: LONGEST,
        });
    }
    let mut text = vec![0; len as usize];
    device.read_at(0, &mut text)?;
    let damaged = |reason: String| FormatError::Damaged {
        device: name.clone(),
        format: NAME,
        reason,
    };
    let unsupported = |what: &str| FormatError::Unsupported {
        device: name.clone(),
        what: what.to_owned(),
        advice: "convert it first (qemu-img convert -O qcow2 OLD NEW), or serve it with qemu-nbd"
            .to_owned(),
    };
    let described = Descriptor::parse(&text).map_err(damaged)?;
    if described.has_parent {
        return Err(unsupported(
            "a VMDK disk that is the difference to its parent",
        ));
    }
    // By identity: one lock is held on a file, whatever its names.
    let mut files: BTreeMap<(u64, u64), SharedDevice> = BTreeMap::new();
    let mut extents = Vec::new();
    let mut start = 0_u64;
    for Line {
        sectors,
        may_be_written,
        place,
    } in described.extents
    {
        let len = sectors.checked_mul(SECTOR);
        let Some((len, end)) = len.and_then(|len| Some((len, start.checked_add(len)?))) else {
            return Err(damaged(format!("an extent of it has {sectors} sectors")));
        };
        let not_written = |which: String| FormatError::Unsupported {
            device: name.clone(),
            what: format!("a VMDK disk whose {which}"),
            advice: "open it for reading, or convert it first: extant convert OLD NEW".to_owned(),
        };
        let place = match place {
            Place::Zero if how.writable => {
                return Err(not_written(format!(
                    "sectors from {} on are zeros without a file, which cannot be written to",
                    start / SECTOR
                )));
            }
            Place::Zero => None,
            Place::Other(kind) => {
                return Err(unsupported(&format!("a VMDK disk with {kind} extents")));
            }
            Place::Flat { file, sector } => {
                if how.writable && !may_be_written {
                    return Err(not_written(format!("extent {file:?} is for reading only")));
                }
                let followed = follow(&name, &file, how, how.writable)?;
                let device = match files.get(&followed.id) {
                    Some(device) => Arc::clone(device),
                    None => {
                        let id = followed.id;
                        let device = followed.device()?;
                        files.insert(id, Arc::clone(&device));
                        device
                    }
                };
                let offset = sector.checked_mul(SECTOR);
                let last = offset.and_then(|offset| offset.checked_add(len));
                match (offset, last) {
                    (Some(offset), Some(last)) if last <= device.size() => Some((device, offset)),
                    _ => {
                        return Err(damaged(format!(
                            "an extent of it has {len} bytes from sector {sector} on of {file:?}, \
                             which has {} bytes",
                            device.size()
                        )));
                    }
                }
            }
        };
        extents.push(Extent { start, len, place });
        start = end;
    }
    if start == 0 {
        return Err(damaged("it has no extents".to_owned()));
    }
    Ok(Arc::new(Extents::new(
        name,
        extents,
        files.into_values().collect(),
        how.writable,
    )))
}

/// Returns the name of the file with the bytes of the disk that the description `path` describes,
/// as it is called when the disk is made: `disk-flat.vmdk` for `disk.vmdk`.
#[must_use]
pub fn flat_extent_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push("-flat.vmdk");
    path.with_file_name(name)
}

/// Returns the text that describes a disk of `size` bytes, all of which are in the file `extent`
/// beside it. `id` changes whenever the content does.
///
/// # Errors
/// `BadSize` where that is not a whole number of sectors; `Unsupported` for a name that such a text
/// cannot have.
pub fn describe_flat(size: u64, extent: &Path, id: u32) -> Result<String, FormatError> {
    if size == 0 || !size.is_multiple_of(SECTOR) {
        return Err(FormatError::BadSize {
            format: "VMDK",
            size,
            reason: "it has a whole number of sectors of 512 bytes, and at least one",
        });
    }
    let name = extent.file_name().and_then(|name| name.to_str());
    let name = name.filter(|name| !name.contains(['"', '\n', '\r']));
    let Some(name) = name else {
        return Err(FormatError::Unsupported {
            device: extent.display().to_string(),
            what: "a name that a VMDK description cannot have".to_owned(),
            advice: "choose one in UTF-8 without quotes and line breaks".to_owned(),
        });
    };
    Ok(descriptor::of_flat(size / SECTOR, name, id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_cannot_be_described_is_refused() {
        assert!(describe_flat(512, Path::new("a/disk-flat.vmdk"), 1).is_ok());
        for size in [0, 1, 511, 513] {
            let error = describe_flat(size, Path::new("disk-flat.vmdk"), 1);
            assert!(matches!(error, Err(FormatError::BadSize { .. })), "{size}");
        }
        for name in [&b"a\"b"[..], b"a\nb", b"a\rb", b"a\xffb"] {
            let error = describe_flat(512, Path::new(OsStr::from_bytes(name)), 1);
            assert!(
                matches!(error, Err(FormatError::Unsupported { .. })),
                "{name:?}"
            );
        }
    }
}
