//! How whoever unmounts learns that the processes of a mount are gone: they keep a socket of a name that the mount's identity
//! makes, and who is connected to it notices when it is closed, however that comes.
//!
//! Nobody answers there, and nothing is said. In another network namespace it cannot be seen.

use crate::mounts::MountId;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

/// Of the process that keeps a mount, for as long as it lives.
#[derive(Debug)]
pub struct Presence {
    _socket: Option<UnixListener>,
}

fn name(id: &MountId) -> String {
    format!("extant mount {id}")
}

impl Presence {
    /// Shows that a process of this mount is there, until it is dropped. Where that is not possible it goes without: then
    /// whoever unmounts waits for the image alone.
    #[must_use]
    pub fn of(id: &MountId) -> Self {
        let address = SocketAddr::from_abstract_name(name(id));
        Self {
            _socket: address.and_then(|a| UnixListener::bind_addr(&a)).ok(),
        }
    }
}

/// The process that keeps a mount, as it is seen by who unmounts.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: OwnedFd,
    process: Option<u32>,
}

impl Keeper {
    /// Of the mount that `user` has made, if it can be seen.
    pub(crate) fn of(id: &MountId, user: u32) -> Option<Self> {
        let kind = (AddressFamily::Unix, SockType::Stream);
        // It never waits for somebody to take the connection.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(kind.0, kind.1, flags, None).ok()?;
        let address = UnixAddr::new_abstract(name(id).as_bytes()).ok()?;
        connect(socket.as_raw_fd(), &address).ok()?;
        let peer = getsockopt(&socket, PeerCredentials).ok()?;
        // Anybody may take a name.
        (peer.uid() == 0 || peer.uid() == user).then(|| Self {
            socket,
            process: u32::try_from(peer.pid()).ok().filter(|pid| *pid > 0),
        })
    }

    /// Waits for its end, though not longer than that.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn is_gone_within(&self, time: Duration) -> io::Result<bool> {
        let mut only = [PollFd::new(&self.socket, PollFlags::IN)];
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut only, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Its number, if it has been stopped, so that it cannot end.
    pub(crate) fn stopped(&self) -> Option<u32> {
        let process = self.process?;
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let state = status.rsplit(')').next()?.trim_start().chars().next()?;
        matches!(state, 'T' | 't').then_some(process)
    }
}
