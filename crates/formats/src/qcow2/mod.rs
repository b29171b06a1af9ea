//! qcow2, by the crate imago.
//!
//! | file | owns |
//! |---|---|
//! | `below` | one of our devices as what imago reads and writes |
//! | `counts` | whether an image may be written to: what it uses is counted |
//! | `disk` | imago's virtual disk as one of our devices |
//! | `header` | what is refused before imago looks at the image |
//!
//! Backing files are opened here, not by imago: each passes the rule of `follow`, is opened for
//! reading only, and is raw or qcow2.

mod below;
mod counts;
mod disk;
mod header;

use crate::follow::follow;
use crate::{Format, FormatError, OpenHow, recognise};
use below::Below;
use disk::Disk;
use extant_blockdev::SharedDevice;
use header::Shape;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatCreateBuilder, FormatDriverBuilder};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The name of the format in errors.
const NAME: &str = "qcow2 image";

/// Most files that stand on each other.
const DEEPEST: usize = 32;

/// Opens the virtual disk.
pub(crate) fn open(device: SharedDevice, how: &OpenHow) -> Result<SharedDevice, FormatError> {
    let name = device.name();
    let read_only = !how.writable || device.is_read_only();
    let below = Arc::clone(&device);
    let (access, shape, in_order) = layer(device, how, !read_only, 0)?;
    let disk = Disk::new(access, below, name, read_only, &shape, in_order);
    Ok(Arc::new(disk))
}

/// Opens an image and what it stands on. What is returned last says whether writes to the device
/// are there one after the other.
fn layer(
    device: SharedDevice,
    how: &OpenHow,
    writable: bool,
    depth: usize,
) -> Result<(FormatAccess<Below>, Shape, Arc<AtomicBool>), FormatError> {
    let name = device.name();
    let damaged = |reason: String| FormatError::Damaged {
        device: name.clone(),
        format: NAME,
        reason,
    };
    let header = header::check(&*device, writable)?;
    let storage = Below::new(device);
    let in_order = storage.in_order();
    let mut image = guarded(|| {
        Qcow2::<Below>::builder(storage)
            .backing(None)
            .data_file(None)
            .write(writable)
            .open(DenyImplicitOpenGate::default())
    })
    .map_err(|e| damaged(e.to_string()))?;
    if let Some(named) = &header.backing_file {
        if depth == DEEPEST {
            return Err(damaged(format!(
                "more than {DEEPEST} backing files stand on each other"
            )));
        }
        let followed = follow(&name, Path::new(named), how, false)?;
        let how = how.clone().beside(&followed.path);
        let below = followed.device()?;
        // What a guest wrote to a raw file must not become a format: where the image says nothing,
        // the file is raw, and not used if it does not look so.
        let format = match header.backing_format.as_deref() {
            Some("raw" | "file") => Format::Raw,
            Some("qcow2") => Format::Qcow2,
            None => match recognise(&*below)? {
                None => Format::Raw,
                Some(seen) => {
                    return Err(FormatError::Unsupported {
                        device: name,
                        what: format!(
                            "a qcow2 image that does not say whether its backing file {named:?}, \
                             which looks like {}, is that or raw",
                            seen.name()
                        ),
                        advice: "state it with qemu-img rebase -u -F FORMAT -b FILE IMAGE"
                            .to_owned(),
                    });
                }
            },
            Some(other) => {
                return Err(FormatError::Unsupported {
                    device: name,
                    what: format!("a qcow2 image that stands on a file of the format {other:?}"),
                    advice: "convert it first: qemu-img convert -O qcow2 OLD NEW".to_owned(),
                });
            }
        };
        let backing = match format {
            Format::Raw => {
                let storage = Below::new(below);
                let raw = guarded(|| Raw::builder(storage).open(DenyImplicitOpenGate::default()));
                FormatAccess::new(raw.map_err(|e| damaged(e.to_string()))?)
            }
            Format::Qcow2 => layer(below, &how, false, depth + 1)?.0,
            other => {
                return Err(FormatError::Unsupported {
                    device: name,
                    what: format!("a qcow2 image that stands on {}", other.name()),
                    advice: "convert it first: qemu-img convert -O qcow2 OLD NEW".to_owned(),
                });
            }
        };
        image.set_backing(Some(backing));
    }
    Ok((FormatAccess::new(image), header, in_order))
}

/// Makes an empty image.
pub(crate) fn create(device: SharedDevice, size: u64) -> Result<SharedDevice, FormatError> {
    if size == 0 || !size.is_multiple_of(512) {
        return Err(FormatError::BadSize {
            format: NAME,
            size,
            reason: "it has a whole number of sectors of 512 bytes, and at least one",
        });
    }
    let name = device.name();
    let made = |e: io::Error| FormatError::File {
        op: "make a qcow2 image in",
        path: name.clone().into(),
        source: e,
    };
    let storage = Below::new(Arc::clone(&device));
    guarded(|| Qcow2::<Below>::create_builder(storage).size(size).create()).map_err(made)?;
    open(device, &OpenHow::read_write())
}

/// Calls into imago. A panic there, which no input should cause, is an error here.
fn guarded<T>(call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(io::Error::other(
            "its tables contradict each other (qemu-img check says more)",
        ))
    })
}
