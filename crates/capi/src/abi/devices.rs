//! Devices.
#![allow(unsafe_code)]
#![expect(
    clippy::missing_safety_doc,
    reason = "the header has the contract of each"
)]
#![expect(missing_docs, reason = "the header documents each")]

use crate::call::{Failure, counted, done};
use crate::device::{Device, from_descriptor, from_ops, from_options, part_of};
use crate::pointers::{bytes, bytes_mut, give, object, path, sized, taken, word};
use crate::types::{DeviceOps, Options};
use extant::MemoryDevice;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_open(
    image: *const c_char,
    options: *const Options,
    device: *mut *mut Device,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(device, || {
            let options: Options = sized(options)?;
            from_options(path(image)?, &options, word(options.format)?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_from_fd(
    fd: c_int,
    options: *const Options,
    device: *mut *mut Device,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(device, || {
            let options: Options = sized(options)?;
            from_descriptor(fd, &options, word(options.format)?)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_from_ops(
    ops: *const DeviceOps,
    user: *mut c_void,
    device: *mut *mut Device,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(device, || {
            if ops.is_null() {
                return Err(Failure::null("struct extant_device_ops"));
            }
            from_ops(sized(ops)?, user)
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_in_memory(bytes: u64, device: *mut *mut Device) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(device, || {
            Ok(Device(Arc::new(MemoryDevice::new(in_range(bytes)?))))
        })
    })
}

/// The size that a device in memory can have: its index takes memory too.
fn in_range(bytes: u64) -> Result<u64, Failure> {
    const MOST: u64 = 1 << 50;
    if bytes > MOST {
        return Err(Failure::invalid(format!(
            "a device in memory has at most {MOST} bytes"
        )));
    }
    Ok(bytes)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_part(
    whole: *const Device,
    partition: u32,
    offset: u64,
    part: *mut *mut Device,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        give(part, || {
            let whole = Arc::clone(&object(whole)?.0);
            Ok(Device(part_of(whole, partition, offset)?))
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_size(device: *const Device) -> i64 {
    // SAFETY: as the header asks of callers.
    counted(|| Ok(unsafe { object(device)? }.0.size()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_read(
    device: *const Device,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe {
        let device = &object(device)?.0;
        device.check_range("read", offset, size as u64)?;
        Ok(device.read_at(offset, bytes_mut(buffer, size)?)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_write(
    device: *const Device,
    buffer: *const c_void,
    size: usize,
    offset: u64,
) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| unsafe { Ok(object(device)?.0.write_at(offset, bytes(buffer, size)?)?) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_flush(device: *const Device) -> c_int {
    // SAFETY: as the header asks of callers.
    done(|| Ok(unsafe { object(device)? }.0.flush()?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_device_close(device: *mut Device) {
    done(|| {
        // SAFETY: as the header asks of callers.
        drop(unsafe { taken(device) });
        Ok(())
    });
}
