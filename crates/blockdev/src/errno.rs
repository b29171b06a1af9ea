//! Error numbers of Linux, on whatever system.

use std::io;

pub(crate) const NOENT: i32 = 2;
pub(crate) const IO: i32 = 5;
pub(crate) const NXIO: i32 = 6;
pub(crate) const ACCES: i32 = 13;
pub(crate) const NOTBLK: i32 = 15;
pub(crate) const ISDIR: i32 = 21;
pub(crate) const BUSY: i32 = 16;
pub(crate) const INVAL: i32 = 22;
pub(crate) const NOSPC: i32 = 28;
pub(crate) const ROFS: i32 = 30;
pub(crate) const OPNOTSUPP: i32 = 95;
pub(crate) const TIMEDOUT: i32 = 110;
pub(crate) const STALE: i32 = 116;

/// The number that says the same as an error of the standard library: the one of the system, if
/// that is Linux and has said one.
pub(crate) fn of(error: &io::Error) -> i32 {
    match error.raw_os_error() {
        Some(number) if cfg!(target_os = "linux") => number,
        _ => of_kind(error.kind()),
    }
}

fn of_kind(kind: io::ErrorKind) -> i32 {
    match kind {
        io::ErrorKind::NotFound => NOENT,
        io::ErrorKind::PermissionDenied => ACCES,
        io::ErrorKind::InvalidInput => INVAL,
        io::ErrorKind::Unsupported => OPNOTSUPP,
        io::ErrorKind::StaleNetworkFileHandle => STALE,
        io::ErrorKind::TimedOut => TIMEDOUT,
        io::ErrorKind::StorageFull => NOSPC,
        io::ErrorKind::ReadOnlyFilesystem => ROFS,
        io::ErrorKind::ResourceBusy => BUSY,
        _ => IO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_numbers_of_the_system_say_the_same() {
        for number in [
            NOENT, NXIO, ACCES, BUSY, INVAL, NOSPC, ROFS, OPNOTSUPP, TIMEDOUT, STALE,
        ] {
            let error = io::Error::from_raw_os_error(number);
            if cfg!(target_os = "linux") {
                assert_eq!(of(&error), number);
                // Of a device that is not there the standard library knows no kind.
                let by_kind = of_kind(error.kind());
                assert!(by_kind == number || number == NXIO, "{number}: {by_kind}");
            }
        }
        assert_eq!(of(&io::ErrorKind::WriteZero.into()), IO);
        assert_eq!(of(&io::ErrorKind::NotFound.into()), NOENT);
    }
}
