//! `ioctl`, and what the kernel has kept back of a file that becomes immutable.
//!
//! Linux' own file systems write a file back before they make it immutable. The kernel does not do so for FUSE, and
//! what it hands on afterwards is refused, so it is asked for it first. Nor does it expect attributes to change, so it is told.

use super::{Answerer, asker, node, put, put_bytes};
use crate::protocol::{IoctlIn, IoctlOut, Opcode, Request};
use crate::service::{Answer, Errno, SET_FLAGS, changes_record, is_about_whole, makes_immutable};

/// What goes into an `ioctl`.
fn input<'a>(request: &Request<'a>) -> Answer<(IoctlIn, &'a [u8])> {
    let asked: IoctlIn = request.fixed()?;
    let input = request.rest().get(..asked.in_size as usize);
    Ok((asked, input.ok_or(Errno::INVALID)?))
}

/// Whether a file may not be written any more after this request.
pub(crate) fn seals(request: &Request<'_>) -> bool {
    request.opcode == Some(Opcode::Ioctl)
        && input(request).is_ok_and(|(asked, input)| makes_immutable(asked.command, input))
}

/// Whether a request sets the flags of a file, or asks something of the file system as a whole.
pub(super) fn may_take_long(request: &Request<'_>) -> bool {
    input(request)
        .is_ok_and(|(asked, _)| asked.command == SET_FLAGS || is_about_whole(asked.command))
}

impl Answerer {
    pub(super) fn ioctl(&self, request: &Request<'_>, out: &mut [u8]) -> Answer<usize> {
        let (asked, input) = input(request)?;
        let asker = asker(request);
        let output = self
            .service
            .ioctl(asker, node(request), asked.command, input)?;
        if changes_record(asked.command) {
            // Its time of change, which the kernel does not expect of an `ioctl`.
            self.notify.attributes_changed(node(request));
        }
        if output.len() > asked.out_size as usize {
            return Err(Errno::INVALID);
        }
        let len = put(out, &IoctlOut::default())?;
        Ok(len + put_bytes(out.get_mut(len..).ok_or(Errno::IO)?, &output)?)
    }
}
