//! Systems without a part for NBD: every export is refused, with what to do.

use super::{NbdAddress, NbdOptions};
use crate::{BlockDevice, DeviceError, DeviceResult};
use std::convert::Infallible;

/// An export of an NBD server as a device. On this system there is none: it cannot be connected.
#[derive(Debug)]
pub struct NbdDevice {
    never: Infallible,
}

impl NbdDevice {
    /// Refuses, as this system has no part for NBD.
    ///
    /// # Errors
    /// `Refused`, always.
    pub fn connect(address: &NbdAddress, options: NbdOptions) -> DeviceResult<Self> {
        let _ = options;
        Err(DeviceError::Refused {
            place: address.to_string(),
            reason: "NBD is spoken on Linux only so far: copy the export into a file there, such \
                     as with nbdcopy, and open that"
                .to_owned(),
        })
    }

    /// Returns where the export is.
    pub fn address(&self) -> Option<&NbdAddress> {
        match self.never {}
    }

    /// Returns whether the server says which parts of the export are holes.
    pub fn knows_holes(&self) -> bool {
        match self.never {}
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        match self.never {}
    }

    fn is_read_only(&self) -> bool {
        match self.never {}
    }

    fn read_at(&self, _offset: u64, _buf: &mut [u8]) -> DeviceResult<()> {
        match self.never {}
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        match self.never {}
    }

    fn flush(&self) -> DeviceResult<()> {
        match self.never {}
    }
}
