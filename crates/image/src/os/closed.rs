//! Systems where no file that is open already is taken over by its number.

use crate::How;
use extant_blockdev::{DeviceError, DeviceResult, FileDevice};

/// Refuses, as this system has no such numbers, or does not tell how the file is locked.
pub(crate) fn open(number: i32, _how: &How) -> DeviceResult<FileDevice> {
    Err(DeviceError::Refused {
        place: format!("fd:{number}"),
        reason: "open files are taken over on Linux only: name the file by its path".to_owned(),
    })
}

/// Whether the descriptor is a regular file that is open: not known here.
pub(crate) fn is_regular_file(_number: i32, _how: &How) -> bool {
    false
}
