//! `ioctl`, and what the kernel has kept back of a file that becomes immutable.
//!
//! Linux' own file systems write a file back before they make it immutable. The kernel does not do
//! so for FUSE, and what it hands on afterwards is refused, so it is asked for it first. Nor does
//! it expect attributes to change, so it is told.

use super::{Answerer, caller, node, put, put_bytes};
use crate::protocol::{IoctlIn, IoctlOut, Opcode, Request};
use crate::service::{Answer, Errno, SET_FLAGS, changes_record, is_about_whole, makes_immutable};

/// Takes apart what goes into an `ioctl`.
fn input<'a>(request: &Request<'a>) -> Answer<(IoctlIn, &'a [u8])> {
    let args: IoctlIn = request.fixed()?;
    let input = request.rest().get(..args.in_size as usize);
    Ok((args, input.ok_or(Errno::INVALID)?))
}

/// Tells whether a file may not be written any more after this request.
pub(crate) fn seals(request: &Request<'_>) -> bool {
    request.opcode == Some(Opcode::Ioctl)
        && input(request).is_ok_and(|(args, input)| makes_immutable(args.command, input))
}

/// Tells whether a request sets the flags of a file, or asks something of the file system as a
/// whole.
pub(super) fn may_take_long(request: &Request<'_>) -> bool {
    input(request).is_ok_and(|(args, _)| args.command == SET_FLAGS || is_about_whole(args.command))
}

impl Answerer {
    pub(super) fn ioctl(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let (args, input) = input(request)?;
        let caller = caller(request);
        let output = self
            .service
            .ioctl(caller, node(request), args.command, input)?;
        if changes_record(args.command) {
            // Its time of change, which the kernel does not expect of an `ioctl`.
            self.notify.attributes_changed(node(request));
        }
        if output.len() > args.out_size as usize {
            return Err(Errno::INVALID);
        }
        let len = put(out, &IoctlOut::default())?;
        Ok(len + put_bytes(out.get_mut(len..).ok_or(Errno::IO)?, &output)?)
    }
}
