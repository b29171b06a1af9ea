//! VHD, as in Microsoft's "Virtual Hard Disk Image Format Specification" (version 1.0, 2006).
//!
//! | file | owns |
//! |---|---|
//! | `footer` | the footer and the header of a dynamic disk: fields, checksums, geometry |
//! | `dynamic` | the virtual disk of a dynamic VHD, read and written in place |
//!
//! A fixed disk is the bytes of the disk and a footer. A dynamic one has a copy of the footer in
//! front, a header, a table of blocks, blocks in any order, and the footer at the end. A
//! differencing disk, which needs its parent, is refused.

mod dynamic;
mod footer;

use crate::{CreateHow, Format, FormatError, OpenHow};
use dynamic::Dynamic;
use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice, WindowDevice};
use footer::{COOKIE, DiskType, Footer, SECTOR};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The name of the format in errors.
pub(super) const NAME: &str = "VHD";

/// Most bytes of a disk: what the geometry of the specification and 32 bits of sectors allow.
const LARGEST: u64 = 0xff00_0000 * SECTOR;

/// Whether a first sector begins as the copy of a footer does, which dynamic disks have there.
pub(crate) fn is_copy(head: &[u8]) -> bool {
    head.starts_with(COOKIE)
}

/// What the last sector of a device says, where it is a sound footer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtEnd {
    /// Which VHD it is.
    pub(crate) format: Format,
    /// Whether it is a fixed disk, of just so many bytes as are in front of the footer.
    pub(crate) is_fixed_and_fits: bool,
}

/// Looks for a footer in the last sector of a device. What the content of a raw disk may be by
/// chance has no checksum.
pub(crate) fn at_end(device: &dyn BlockDevice) -> DeviceResult<Option<AtEnd>> {
    let Some(last) = device.size().checked_sub(SECTOR) else {
        return Ok(None);
    };
    let mut tail = [0; SECTOR as usize];
    device.read_at(last, &mut tail)?;
    Ok(Footer::parse(&tail).ok().map(|footer| AtEnd {
        format: match footer.kind() {
            Some(DiskType::Fixed) | None => Format::VhdFixed,
            Some(_) => Format::Vhd,
        },
        is_fixed_and_fits: footer.is_fixed_of(last),
    }))
}

/// Reads the footer: the last sector, or its copy in the first one.
fn read_footer(device: &dyn BlockDevice) -> Result<Footer, FormatError> {
    let damaged = |reason| FormatError::Damaged {
        device: device.name(),
        format: NAME,
        reason,
    };
    let size = device.size();
    let Some(last) = size.checked_sub(SECTOR) else {
        return Err(damaged(format!("it has {size} bytes, fewer than a footer")));
    };
    let mut sector = [0; SECTOR as usize];
    device.read_at(last, &mut sector)?;
    let at_end = Footer::parse(&sector);
    device.read_at(0, &mut sector)?;
    match (Footer::parse(&sector), at_end) {
        // In front of a footer that has just so many bytes before it is the disk's own content.
        (_, Ok(footer)) if footer.is_fixed_of(last) => Ok(footer),
        // The copy says more of a dynamic disk whose end was being written.
        (Ok(copy), _) => Ok(copy),
        (Err(_), Ok(footer)) => Ok(footer),
        (Err(in_copy), Err(in_footer)) => Err(damaged(if sector.starts_with(COOKIE) {
            format!("{in_copy} in the copy of the footer, and at the end, {in_footer}")
        } else {
            format!("{in_footer} in the footer")
        })),
    }
}

/// Opens the virtual disk.
pub(crate) fn open(device: SharedDevice, how: &OpenHow) -> Result<SharedDevice, FormatError> {
    let footer = read_footer(&*device)?;
    let mut size = footer.disk_size();
    // A fixed disk whose footer states just the bytes that are there has all of them.
    let room = device.size().saturating_sub(SECTOR);
    if footer.kind() == Some(DiskType::Fixed) && footer.current_size() == room {
        size = room / SECTOR * SECTOR;
    }
    if size == 0 && footer.kind().is_some() {
        return Err(FormatError::Damaged {
            device: device.name(),
            format: NAME,
            reason: "its disk has no bytes".to_owned(),
        });
    }
    match footer.kind() {
        Some(DiskType::Fixed) => {
            if size > room {
                return Err(FormatError::Damaged {
                    device: device.name(),
                    format: NAME,
                    reason: format!("its disk has {size} bytes, and {room} are there"),
                });
            }
            let window = WindowDevice::new(device, 0, size)?;
            Ok(Arc::new(if how.writable {
                window
            } else {
                window.read_only()
            }))
        }
        Some(DiskType::Dynamic) => Ok(Arc::new(Dynamic::open(device, &footer, how.writable)?)),
        Some(DiskType::Differencing) => Err(FormatError::Unsupported {
            device: device.name(),
            what: "a differencing VHD disk image, which needs its parent".to_owned(),
            advice:
                "merge it into its parent first, or convert it: qemu-img convert -O vpc OLD NEW"
                    .to_owned(),
        }),
        None => Err(FormatError::Unsupported {
            device: device.name(),
            what: format!("a VHD disk image of the type {}", footer.kind_number()),
            advice: "only fixed (2) and dynamic (3) ones are known".to_owned(),
        }),
    }
}

fn check_size(size: u64) -> Result<(), FormatError> {
    let reason = if size == 0 || !size.is_multiple_of(SECTOR) {
        "it has a whole number of sectors of 512 bytes, and at least one"
    } else if size > LARGEST {
        "2040 GiB are the most"
    } else {
        return Ok(());
    };
    Err(FormatError::BadSize {
        format: NAME,
        size,
        reason,
    })
}

/// Makes a fixed VHD.
pub(crate) fn create_fixed(
    device: SharedDevice,
    size: u64,
    how: &CreateHow,
) -> Result<SharedDevice, FormatError> {
    check_size(size)?;
    device.grow(size + SECTOR)?;
    let footer = Footer::new(DiskType::Fixed, size, how);
    device.write_at(device.size() - SECTOR, footer.as_bytes())?;
    Ok(Arc::new(WindowDevice::new(device, 0, size)?))
}

/// Makes a dynamic VHD without blocks.
pub(crate) fn create_dynamic(
    device: SharedDevice,
    size: u64,
    how: &CreateHow,
) -> Result<SharedDevice, FormatError> {
    check_size(size)?;
    let footer = Footer::new(DiskType::Dynamic, size, how);
    Ok(Arc::new(Dynamic::create(device, &footer)?))
}
