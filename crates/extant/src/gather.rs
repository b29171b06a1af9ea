//! Vectored transfers of devices that have none, in few calls.

use extant_blockdev::{BlockDevice, DeviceResult};
use std::io::{IoSlice, IoSliceMut};

/// Fills buffers as [`BlockDevice::read_vectored_at`] does, by few calls of
/// [`read_at`](BlockDevice::read_at): neighbours that have at most `most` bytes together share one,
/// and are copied.
///
/// For a device each of whose calls costs much, as one does that goes to another language: the
/// engine's cache asks for many blocks of its own size at once, and the trait's own
/// `read_vectored_at` calls once for each.
///
/// # Errors
/// As for `read_at`; the buffers' content is then undefined.
pub fn read_gathered<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    most: usize,
) -> DeviceResult<()> {
    device.check_range("read", offset, total(bufs.iter().map(|buf| buf.len())))?;
    let (mut rest, mut at, mut memory) = (bufs, offset, Vec::new());
    while !rest.is_empty() {
        let (count, len) = together(rest.iter().map(|buf| buf.len()), most);
        let (now, later) = std::mem::take(&mut rest).split_at_mut(count);
        if let [only] = now {
            device.read_at(at, only)?;
        } else {
            memory.resize(len, 0);
            device.read_at(at, &mut memory)?;
            let mut found = memory.as_slice();
            for buf in now {
                let (piece, behind) = found.split_at(buf.len());
                buf.copy_from_slice(piece);
                found = behind;
            }
        }
        at += len as u64;
        rest = later;
    }
    Ok(())
}

/// Writes buffers as [`BlockDevice::write_vectored_at`] does, by few calls of
/// [`write_at`](BlockDevice::write_at): see [`read_gathered`].
///
/// # Errors
/// As for `write_at`; when the system fails, part of the data may have been written.
pub fn write_gathered<D: BlockDevice + ?Sized>(
    device: &D,
    offset: u64,
    bufs: &[IoSlice<'_>],
    most: usize,
) -> DeviceResult<()> {
    device.check_writable("write", offset, total(bufs.iter().map(|buf| buf.len())))?;
    let (mut rest, mut at, mut memory) = (bufs, offset, Vec::new());
    while !rest.is_empty() {
        let (count, len) = together(rest.iter().map(|buf| buf.len()), most);
        let (now, later) = rest.split_at(count);
        if let [only] = now {
            device.write_at(at, only)?;
        } else {
            memory.clear();
            now.iter().for_each(|buf| memory.extend_from_slice(buf));
            device.write_at(at, &memory)?;
        }
        at += len as u64;
        rest = later;
    }
    Ok(())
}

/// Bytes of all; saturates, and then fails the range check.
fn total(lens: impl Iterator<Item = usize>) -> u64 {
    lens.fold(0, |sum, len| sum.saturating_add(len as u64))
}

/// How many of the buffers are transferred at once, and their bytes: one of any size, or several
/// that are small together.
fn together(lens: impl Iterator<Item = usize>, most: usize) -> (usize, usize) {
    let (mut count, mut sum) = (0, 0_usize);
    for len in lens {
        if count > 0 && sum.saturating_add(len) > most {
            break;
        }
        count += 1;
        sum += len;
    }
    (count, sum)
}
