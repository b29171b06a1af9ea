//! Devices: what C passes as one, and one whose use can be ended.
#![allow(unsafe_code)]

use crate::call::Failure;
use crate::constants::{TRANSACTION, WRITABLE};
use crate::types::{DeviceOps, Options};
use extant::device::{read_gathered, write_gathered};
use extant::image::{How, ImageFormat, ImageLocation, PartitionName};
use extant::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_blockdev::{WindowDevice, open_partition};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

/// A device: `extant_device`.
#[derive(Debug)]
pub struct Device(pub(crate) SharedDevice);

/// How options ask for an image to be opened.
pub(crate) fn how(options: &Options, format: Option<&str>) -> Result<How, Failure> {
    let how = if options.writes() {
        How::writing()
    } else {
        How::reading()
    };
    let format: Option<ImageFormat> = format.map(str::parse).transpose()?;
    let partition = (options.partition != 0).then_some(options.partition);
    Ok(how
        .format(format)
        .offset((options.offset != 0).then_some(options.offset))
        .partition(partition.map(PartitionName::Number)))
}

/// Opens what is at a name or address.
pub(crate) fn from_options(
    image: &Path,
    options: &Options,
    format: Option<&str>,
) -> Result<Device, Failure> {
    options.check_flags(WRITABLE)?;
    let location = ImageLocation::parse(image)?;
    Ok(Device(location.open(&how(options, format)?)?))
}

/// Takes an open file.
pub(crate) fn from_descriptor(
    fd: RawFd,
    options: &Options,
    format: Option<&str>,
) -> Result<Device, Failure> {
    if fd < 0 {
        return Err(Failure::invalid(format!("{fd} is no descriptor")));
    }
    options.check_flags(WRITABLE)?;
    // Libraries open files so that no other program gets them.
    let how = how(options, format)?.own_descriptors(true);
    Ok(Device(ImageLocation::descriptor(fd).open(&how)?))
}

/// A part of a device, or all of it.
pub(crate) fn part_of(
    whole: SharedDevice,
    partition: u32,
    offset: u64,
) -> Result<SharedDevice, Failure> {
    Ok(match (partition, offset) {
        (0, 0) => whole,
        (0, offset) => Arc::new(WindowDevice::from_offset(whole, offset)?),
        (partition, 0) => Arc::new(open_partition(whole, partition)?),
        (partition, offset) => return Err(DeviceError::TwoPlaces { partition, offset }.into()),
    })
}

/// A device of functions that C passed. The header asks them to be what they say.
struct Callbacks {
    ops: DeviceOps,
    user: *mut c_void,
    size: u64,
    sector: u32,
}

// SAFETY: the header asks for functions that any thread may call, with that pointer.
unsafe impl Send for Callbacks {}
// SAFETY: as above, at once.
unsafe impl Sync for Callbacks {}

/// Makes a device of functions.
pub(crate) fn from_ops(ops: DeviceOps, user: *mut c_void) -> Result<Device, Failure> {
    let (Some(capacity), Some(_)) = (ops.capacity, ops.read) else {
        return Err(Failure::null(
            "read or capacity of struct extant_device_ops",
        ));
    };
    let sector = match ops.sector {
        0 => 512,
        sector if sector.is_power_of_two() && (512..=65536).contains(&sector) => sector,
        sector => {
            return Err(Failure::invalid(format!(
                "extant_device_ops.sector is {sector}: use 0, or a power of two from 512 to 65536"
            )));
        }
    };
    let mut size = 0;
    // SAFETY: as the header asks of the function.
    let result = unsafe { capacity(user, &raw mut size) };
    if result != 0 {
        return Err(said("size", 0, 0, result).into());
    }
    if i64::try_from(size).is_err() {
        return Err(Failure::invalid(format!(
            "extant_device_ops.capacity says {size} bytes, which no device has"
        )));
    }
    Ok(Device(Arc::new(Callbacks {
        ops,
        user,
        size,
        sector,
    })))
}

/// What errors call such a device.
const NAME: &str = "the program's device";

/// What a function said.
fn said(op: &'static str, offset: u64, len: u64, result: c_int) -> DeviceError {
    // A function that forgets the sign means the same.
    let errno = match result.checked_abs() {
        Some(errno @ 1..=4095) => errno,
        _ => extant::errno::EIO,
    };
    DeviceError::Io {
        op,
        device: NAME.to_owned(),
        offset,
        len,
        source: io::Error::from_raw_os_error(errno),
    }
}

fn outcome(op: &'static str, offset: u64, len: u64, result: c_int) -> DeviceResult<()> {
    match result {
        0 => Ok(()),
        result => Err(said(op, offset, len, result)),
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(release) = self.ops.release {
            // SAFETY: as the header asks of the function; nothing uses the device any more.
            unsafe { release(self.user) };
        }
    }
}

impl BlockDevice for Callbacks {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        self.ops.write.is_none()
    }

    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn logical_sector(&self) -> u32 {
        self.sector
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_range("read", offset, len)?;
        if buf.is_empty() {
            return Ok(());
        }
        let Some(read) = self.ops.read else {
            return Err(said("read", offset, len, 0));
        };
        // SAFETY: as the header asks of the function; there are so many bytes.
        let result = unsafe { read(self.user, buf.as_mut_ptr().cast(), buf.len(), offset) };
        outcome("read", offset, len, result)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_writable("write", offset, len)?;
        let Some(write) = self.ops.write.filter(|_| !buf.is_empty()) else {
            return Ok(());
        };
        // SAFETY: as the header asks of the function; there are so many bytes.
        let result = unsafe { write(self.user, buf.as_ptr().cast(), buf.len(), offset) };
        outcome("write", offset, len, result)
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> DeviceResult<()> {
        read_gathered(self, offset, bufs, GATHERED)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> DeviceResult<()> {
        write_gathered(self, offset, bufs, GATHERED)
    }

    fn flush(&self) -> DeviceResult<()> {
        let Some(flush) = self.ops.flush else {
            return Ok(());
        };
        // SAFETY: as the header asks of the function.
        outcome("flush", 0, self.size, unsafe { flush(self.user) })
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.try_discard(offset, len).map(|_| ())
    }

    fn try_discard(&self, offset: u64, len: u64) -> DeviceResult<bool> {
        self.check_writable("discard", offset, len)?;
        let Some(discard) = self.ops.discard else {
            return Ok(false);
        };
        if len == 0 {
            return Ok(true);
        }
        // SAFETY: as the header asks of the function.
        let result = unsafe { discard(self.user, offset, len) };
        outcome("discard", offset, len, result).map(|()| true)
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        if let Some(zero) = self.ops.zero {
            if len == 0 {
                return Ok(());
            }
            // SAFETY: as the header asks of the function.
            return outcome("zero", offset, len, unsafe { zero(self.user, offset, len) });
        }
        let zeros = vec![0; usize::try_from(len.min(ZEROS)).unwrap_or(0)];
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(ZEROS);
            self.write_at(offset + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
    }
}

/// Bytes of several buffers that are passed to the program at once.
const GATHERED: usize = 1 << 20;

/// Zeros that are written at once.
const ZEROS: u64 = 1 << 20;

impl Options {
    /// Whether what is opened is written to.
    pub(crate) fn writes(&self) -> bool {
        self.flags & (WRITABLE | TRANSACTION) != 0
    }

    /// Refuses flags beyond `all`.
    pub(crate) fn check_flags(&self, all: u32) -> Result<(), Failure> {
        match self.flags & !all {
            0 => Ok(()),
            beyond => Err(Failure::unknown("extant_options.flags", beyond)),
        }
    }
}
