//! The connection as bytes: over TCP, a Unix socket, or TLS on one of these.
//!
//! Sockets do not block. Callers try, and wait with a limit where nothing moves.

use super::address::{NbdAddress, NbdTransport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, sendmsg, shutdown, socket_with, sockopt,
};
use std::io::{self, IoSlice};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time without a sign of a host until it is asked for one, and between such questions.
const UNTIL_ASKED: Duration = Duration::from_secs(60);
const BETWEEN_QUESTIONS: Duration = Duration::from_secs(15);

/// Most slices that Linux takes in one transfer.
const MAX_SLICES: usize = 1024;

/// A connected socket, perhaps with TLS on it.
#[derive(Debug)]
pub(super) struct Stream {
    socket: OwnedFd,
    #[cfg(feature = "tls")]
    tls: Option<super::tls::Session>,
}

impl Stream {
    /// Connects. A host that says nothing for about as long as `silence`, though it is asked for a
    /// sign (TCP keepalive) or has something to confirm, is given up by the system.
    ///
    /// # Errors
    /// Those of the system, and that the time is over.
    pub(super) fn connect(
        address: &NbdAddress,
        deadline: Instant,
        silence: Duration,
    ) -> io::Result<Self> {
        let socket = match &address.transport {
            NbdTransport::Tcp(host, port) => connect_tcp(host, *port, deadline, silence)?,
            NbdTransport::Unix(path) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let place = SocketAddrUnix::new(path)?;
                loop {
                    match connect(&socket, &place) {
                        Ok(()) => break,
                        // The server has too many who wait.
                        Err(Errno::AGAIN) if Instant::now() < deadline => {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                socket
            }
        };
        Ok(Self {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Takes a socket that is connected already, and has it not block.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn given(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// Goes on in TLS, whose first messages have still to be exchanged.
    #[cfg(feature = "tls")]
    pub(super) fn begin_tls(&mut self, session: super::tls::Session) {
        self.tls = Some(session);
    }

    /// Goes on with the messages that begin TLS, as far as is possible now.
    ///
    /// # Errors
    /// Those of the system and of TLS.
    #[cfg(feature = "tls")]
    pub(super) fn shake_hands(&self) -> io::Result<super::tls::Shaking> {
        let done = Ok(super::tls::Shaking::Done);
        let tls = self.tls.as_ref();
        tls.map_or(done, |tls| tls.shake_hands(self.socket.as_fd()))
    }

    /// Takes what is there: nothing at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`, and those of the system.
    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.recv(self.socket.as_fd(), buf);
        }
        receive(self.socket.as_fd(), buf)
    }

    /// Hands over as much as is possible now.
    ///
    /// # Errors
    /// `WouldBlock`, and those of the system.
    pub(super) fn send(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.send(self.socket.as_fd(), slices);
        }
        transmit(self.socket.as_fd(), slices)
    }

    /// Hands on what [`Stream::send`] took and keeps; `false` while some of it is left.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn drain(&self) -> io::Result<bool> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.drain(self.socket.as_fd());
        }
        Ok(true)
    }

    /// Waits until there is something to read, or room to write, as wanted. Returns which; neither
    /// when the time is over. The end of the stream counts as something to read.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn wait(
        &self,
        to_read: bool,
        to_write: bool,
        limit: Duration,
    ) -> io::Result<(bool, bool)> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, to_read);
        wanted.set(PollFlags::OUT, to_write);
        let mut asked = [PollFd::new(&self.socket, wanted)];
        let begun = Instant::now();
        loop {
            // Signals take nothing of the time.
            let left = limit.saturating_sub(begun.elapsed());
            let left = Timespec {
                tv_sec: left.as_secs().min(1 << 30).cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut asked, Some(&left)) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let found = asked[0].revents();
        let over = found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        Ok((
            to_read && (over || found.contains(PollFlags::IN)),
            to_write && (over || found.contains(PollFlags::OUT)),
        ))
    }

    /// Ends the connection in both directions; threads that wait for it find out.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Ends TLS in good form, where there is any.
    pub(super) fn say_goodbye(&self) {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            tls.say_goodbye(self.socket.as_fd());
        }
    }
}

fn connect_tcp(host: &str, port: u16, deadline: Instant, silence: Duration) -> io::Result<OwnedFd> {
    let mut failure = None;
    for place in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&place, left) {
            Ok(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                // A host that went away is noticed also while nothing is asked, and while it has
                // long to do what was.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, UNTIL_ASKED)?;
                sockopt::set_tcp_keepintvl(&stream, BETWEEN_QUESTIONS)?;
                let silence = silence.as_millis().clamp(1, i32::MAX as u128) as u32;
                sockopt::set_tcp_user_timeout(&stream, silence)?;
                return Ok(stream.into());
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
}

/// Takes bytes from a socket.
pub(super) fn receive(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(socket, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((_, count)) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Hands bytes to a socket. No signal comes where nobody is there to take them.
pub(super) fn transmit(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let slices = &slices[..slices.len().min(MAX_SLICES)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Transfers whole messages until a moment, for the negotiation.
#[derive(Debug)]
pub(super) struct Timed<'a> {
    pub(super) stream: &'a Stream,
    pub(super) deadline: Instant,
}

impl Timed<'_> {
    /// Waits for the stream.
    ///
    /// # Errors
    /// Those of the system, and that the time is over.
    pub(super) fn wait(&self, to_read: bool, to_write: bool) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.wait(to_read, to_write, left).map(drop)
    }

    /// Fills `buf`.
    ///
    /// # Errors
    /// Those of the system, that the stream ends, and that the time is over.
    pub(super) fn read(&self, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.stream.recv(buf) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buf = &mut buf[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(true, false)?
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands over all of `buf`.
    ///
    /// # Errors
    /// As for [`Timed::read`].
    pub(super) fn write(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.stream.send(&[IoSlice::new(buf)]) {
                Ok(count) => buf = &buf[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(false, true)?
                }
                Err(error) => return Err(error),
            }
        }
        while !self.stream.drain()? {
            self.wait(false, true)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_went_away_is_given_up_by_the_system() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = NbdAddress {
            transport: NbdTransport::Tcp(
                "127.0.0.1".to_owned(),
                listener.local_addr().unwrap().port(),
            ),
            export: String::new(),
            tls: false,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let connect = |silence| Stream::connect(&address, deadline, silence).unwrap().socket;
        let socket = connect(Duration::from_secs(180));
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), UNTIL_ASKED);
        assert_eq!(sockopt::tcp_keepintvl(&socket).unwrap(), BETWEEN_QUESTIONS);
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 180_000);
        // What is longer than the system can count is as long as it can.
        let socket = connect(Duration::MAX);
        assert_eq!(
            sockopt::tcp_user_timeout(&socket).unwrap(),
            i32::MAX.cast_unsigned()
        );
    }
}
