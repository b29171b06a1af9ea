//! What the tests of this crate share.

use extant_blockdev::{DeviceError, DeviceResult, SharedDevice};
use extant_remote::RemoteOptions;
use std::time::{Duration, Instant};

/// Bytes that differ from place to place.
pub(crate) fn object(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Options that give up soon.
pub(crate) fn hasty() -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.timeouts.connect = Duration::from_millis(500);
    options.timeouts.idle = Duration::from_millis(500);
    options.timeouts.retry = Duration::from_millis(1500);
    options
}

/// All bytes of a device.
pub(crate) fn read_all(device: &SharedDevice) -> DeviceResult<Vec<u8>> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The error with all that is inside it, as a user sees it.
pub(crate) fn text(error: &DeviceError) -> String {
    error.to_string()
}

/// Runs something that must end soon.
pub(crate) fn soon<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(20), "{what} took {took:?}");
    result
}
