//! Files for guests of virtual machines, in a program that is built without virtio-fs.

use crate::args::Serve;
use crate::failure::{Failure, Outcome};
use extant_blockdev::SharedDevice;
use extant_fuse::{Options, Signals};
use std::os::fd::RawFd;

/// What `-o` says of the image.
pub(super) fn options(args: &Serve) -> Outcome<Options> {
    if args.virtiofs.is_some() {
        return Err(Failure::usage(
            "this program is built without virtio-fs: use one with the feature `virtiofs`, or serve a disk with --nbd",
        ));
    }
    Ok(Options::default())
}

/// Serves nothing: [`options`] refuses before.
pub(super) fn answer(
    args: &Serve,
    _disk: SharedDevice,
    _signals: Signals,
    _confine: impl FnOnce(RawFd) -> Outcome,
) -> Outcome {
    options(args).map(drop)
}
