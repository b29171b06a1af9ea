//! How `extant umount` learns that the processes of a mount are gone: they keep a socket of a name
//! that the mount's identity makes, and a process that is connected to it notices when it is
//! closed, however that comes.
//!
//! Nobody answers there. One byte is said at the end of a mount whose last changes are not all on
//! the device, where the image itself cannot be looked at ([`tell_failure`]). In another network
//! namespace it cannot be seen: there
//! the process that has the image locked is looked for, as the system's table of locks has it.

use crate::mounts::MountId;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::OnceLock;
use std::time::Duration;

/// The socket of this process.
static SHOWN: OnceLock<UnixListener> = OnceLock::new();

fn name(id: &MountId) -> String {
    format!("extant mount {id}")
}

/// Shows that this process keeps that mount, until the process is gone, and not a moment less: the
/// system tells the process that unmounts, as it closes what this process had open after all else
/// of it. Where that is not possible it goes without: then unmounting waits for the image alone.
pub fn show_presence(id: &MountId) {
    let address = SocketAddr::from_abstract_name(name(id));
    if let Ok(socket) = address.and_then(|a| UnixListener::bind_addr(&a)) {
        // Nothing in here closes it.
        let _ = SHOWN.set(socket);
    }
}

/// Tells those who wait for the end of the mount that its last changes may be lost. To be called
/// before the process that shows its presence ends.
pub fn tell_failure() {
    let Some(socket) = SHOWN.get() else {
        return;
    };
    if socket.set_nonblocking(true).is_err() {
        return;
    }
    while let Ok((mut waits, _)) = socket.accept() {
        // It may have given up.
        let _ = waits.write_all(b"!");
    }
}

/// The process that keeps a mount, or else the one that writes its image, as it is seen by the
/// process that unmounts.
#[derive(Debug)]
pub(crate) struct MountProcess {
    socket: Option<OwnedFd>,
    process: Option<Pid>,
    /// By which its last moments are seen, after it has closed the socket. Not before Linux 5.3.
    handle: Option<OwnedFd>,
}

impl MountProcess {
    /// Finds the process that keeps the mount that `user` has made, if it can be seen.
    pub(crate) fn of(id: &MountId, user: u32) -> Option<Self> {
        let kind = (AddressFamily::Unix, SockType::Stream);
        // It never waits for somebody to take the connection.
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(kind.0, kind.1, flags, None).ok()?;
        let address = UnixAddr::new_abstract(name(id).as_bytes()).ok()?;
        connect(socket.as_raw_fd(), &address).ok()?;
        let peer = getsockopt(&socket, PeerCredentials).ok()?;
        // Anybody may take a name.
        if peer.uid() != 0 && peer.uid() != user {
            return None;
        }
        let process = Pid::from_raw(peer.pid());
        let handle = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        // Otherwise its number may have been somebody else's by then.
        let is_there = !ends_within(&socket, Duration::ZERO).unwrap_or(true);
        Some(Self {
            socket: Some(socket),
            process,
            handle: handle.filter(|_| is_there),
        })
    }

    /// Finds the process that has this image locked against all others, if that can be seen: not
    /// from another process namespace, nor on file systems that number their files in two ways.
    pub(crate) fn that_writes(image: &File) -> Option<Self> {
        let about = image.metadata().ok()?;
        let id = (about.dev(), about.ino());
        let writer = || locked_by(&fs::read("/proc/locks").ok()?, id);
        let process = writer()?;
        let handle = pidfd_open(process, PidfdFlags::empty()).ok()?;
        // Otherwise its number may have been somebody else's by then.
        (writer() == Some(process)).then(|| Self {
            socket: None,
            process: Some(process),
            handle: Some(handle),
        })
    }

    /// The number of the process, where it is known.
    pub(crate) fn number(&self) -> Option<i32> {
        self.process.map(Pid::as_raw_pid)
    }

    /// Waits for its end, though not longer than that.
    ///
    /// # Errors
    /// When the system has no memory for it.
    pub(crate) fn is_gone_within(&self, time: Duration) -> io::Result<bool> {
        // The socket is closed first.
        for descriptor in [&self.socket, &self.handle].into_iter().flatten() {
            if !ends_within(descriptor, time)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns whether it has told, before it ended, that the last changes may be lost.
    pub(crate) fn has_failed(&self) -> bool {
        let mut said = [0];
        let Some(socket) = &self.socket else {
            return false;
        };
        rustix::io::read(socket, &mut said).is_ok_and(|count| count > 0)
    }

    /// Its number, if it has been stopped, so that it cannot end.
    pub(crate) fn stopped(&self) -> Option<u32> {
        let process = self.process?.as_raw_nonzero().get().cast_unsigned();
        is_stopped(process).then_some(process)
    }

    /// The number of a process that has been stopped, so that the mount cannot answer: one that it
    /// started for that, or its own where it started none.
    pub(crate) fn asleep(&self) -> Option<u32> {
        let process = self.process?.as_raw_nonzero();
        let started = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let started = started.unwrap_or_default();
        let mut started = started
            .split_ascii_whitespace()
            .filter_map(|child| child.parse().ok())
            .peekable();
        if started.peek().is_none() {
            return self.stopped();
        }
        started.find(|&one| is_stopped(one))
    }
}

/// Whether a process has been stopped (proc(5), `stat`).
fn is_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat"));
    let status = status.unwrap_or_default();
    let behind_name = status.rsplit(')').next().unwrap_or_default();
    matches!(behind_name.trim_start().chars().next(), Some('T' | 't'))
}

/// Tells whether what a descriptor is about ends within that time.
fn ends_within(of: &OwnedFd, time: Duration) -> io::Result<bool> {
    let mut only = [PollFd::new(of, PollFlags::IN)];
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut only, Some(&time)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// Finds the process that has a file of this device and inode number locked for itself, by a table
/// of locks in the form of proc(5).
fn locked_by(table: &[u8], (device, inode): (u64, u64)) -> Option<Pid> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let table = std::str::from_utf8(table).ok()?;
    table.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = [words.next()?, words.next()?, words.next()?];
        let process = words.next()?;
        // Processes that wait have an arrow in front.
        let is_meant = kind == ["FLOCK", "ADVISORY", "WRITE"] && words.next()? == file;
        is_meant.then(|| Pid::from_raw(process.parse().ok()?))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_an_image_is_found_among_locks() {
        let table = b"1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF
2: FLOCK  ADVISORY  READ 12 08:01:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF
4: FLOCK  ADVISORY  WRITE 14 08:1f:77 0 EOF
5: FLOCK  ADVISORY  WRITE 15 08:01:77 0 EOF
6: FLOCK  ADVISORY  WRITE 0 08:01:78 0 EOF
";
        let of = |minor, inode| locked_by(table, (rustix::fs::makedev(8, minor), inode));
        assert_eq!(of(1, 77), Pid::from_raw(15));
        assert_eq!(of(31, 77), Pid::from_raw(14));
        // Of another process namespace.
        assert_eq!(of(1, 78), None);
        assert_eq!(of(2, 77), None);
    }
}
