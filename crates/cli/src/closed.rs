//! Standard input and output that the program was started without, as by `>&-` in a shell.
//!
//! The standard library opens `/dev/null` in their place before `main` runs: what is written would
//! be lost in silence, and what is read would be empty. Here they become descriptors on which both
//! fail. This happens before the library looks, in a constructor of the program.

use crate::failure::{Failure, Outcome};
use std::io;
use std::os::fd::{AsFd, IntoRawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is said of it.
pub(crate) const INPUT_IS_CLOSED: &str = "standard input is closed";

static INPUT: AtomicBool = AtomicBool::new(false);
static OUTPUT: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    let is_closed = |fd: &dyn AsFd| rustix::io::fcntl_getfd(fd.as_fd()).is_err();
    // The new descriptor has the least number that is free: input first. Where there are no
    // sockets, the library's `/dev/null` follows.
    if is_closed(&rustix::stdio::stdin()) {
        INPUT.store(true, Ordering::Relaxed);
        // Nobody sends it anything, and reading it does not wait.
        if let Ok(socket) = UnixDatagram::unbound()
            && socket.set_nonblocking(true).is_ok()
        {
            let _ = socket.into_raw_fd();
        }
    }
    if is_closed(&rustix::stdio::stdout()) {
        OUTPUT.store(true, Ordering::Relaxed);
        // Writing to nobody fails; of a descriptor that cannot be written at all the library says
        // nothing.
        if let Ok(socket) = UnixDatagram::unbound() {
            let _ = socket.into_raw_fd();
        }
    }
}

/// The reason why writing to standard output failed: that it is closed, or `e`.
pub(crate) fn why_not_written(e: io::Error) -> io::Error {
    if OUTPUT.load(Ordering::Relaxed) {
        io::Error::other("standard output is closed")
    } else {
        e
    }
}

/// Fails if standard input is closed.
pub(crate) fn check_input() -> Outcome {
    if is_input_closed() {
        return Err(Failure::new(INPUT_IS_CLOSED));
    }
    Ok(())
}

pub(crate) fn is_input_closed() -> bool {
    INPUT.load(Ordering::Relaxed)
}
