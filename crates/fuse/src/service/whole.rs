//! What an `ioctl` asks of the file system as a whole: its label, and telling the device of what is
//! free.
//!
//! Linux asks for `CAP_SYS_ADMIN`, of which the kernel does not tell a FUSE file system. Here root
//! may, and the user of the mount, whose image it is.

use super::{Answer, Credentials, Errno, Service};
use extant_core::alloc::TrimRange;
use extant_core::ops;

/// `FITRIM`, whose record has three numbers of 64 bits: where to begin, how long, and the shortest
/// run. The second comes back as what was told of.
const TRIM: u32 = 0xc018_5879;
/// `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL`.
const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
/// Bytes of a label for all file systems of Linux, one of which is zero.
const LABEL: usize = 256;

/// Tells whether an `ioctl` is about the file system as a whole.
pub(crate) fn is_about_whole(command: u32) -> bool {
    matches!(command, TRIM | GET_LABEL | SET_LABEL)
}

impl Service {
    /// Carries such an `ioctl` out, and returns what it gives back.
    pub(super) fn whole_ioctl(
        &self,
        caller: Credentials,
        command: u32,
        input: &[u8],
    ) -> Answer<Vec<u8>> {
        if command != GET_LABEL && caller.uid != 0 && caller.uid != self.owner {
            return Err(Errno::NOT_PERMITTED);
        }
        match command {
            TRIM => self.trim(input),
            GET_LABEL => {
                let mut label = self.fs.label();
                label.resize(LABEL, 0);
                Ok(label)
            }
            _ => {
                let label = input.split(|byte| *byte == 0).next().unwrap_or(input);
                ops::set_label(&self.fs, label)?;
                Ok(Vec::new())
            }
        }
    }

    fn trim(&self, input: &[u8]) -> Answer<Vec<u8>> {
        let number = |at: usize| {
            let bytes = input.get(at..).and_then(<[u8]>::first_chunk::<8>);
            bytes
                .map(|bytes| u64::from_ne_bytes(*bytes))
                .ok_or(Errno::INVALID)
        };
        let (start, len, min_len) = (number(0)?, number(8)?, number(16)?);
        let trimmed = ops::trim(
            &self.fs,
            TrimRange {
                start,
                len,
                min_len,
            },
        )?;
        Ok([start, trimmed, min_len]
            .into_iter()
            .flat_map(u64::to_ne_bytes)
            .collect())
    }
}
