//! A link between clients and a server on this machine: as long as it is asked to be, and counted.
//!
//! Clients connect to a port, the link to the Unix socket of the server.
//!
//! | file | owns |
//! |---|---|
//! | `ledger` | what was counted |
//! | `messages` | a stream of bytes, taken apart into messages |
//! | `nbd` | what clients and servers of NBD say |
//! | `http` | what clients and servers of HTTP say |
//!
//! # How long it is
//!
//! Bytes arrive half a round trip after they were sent, and one behind the other as fast as the
//! link carries them, all connections together. A new connection takes what the handshake of TCP
//! takes: the client learns after a round trip that it has one, and what it sends then arrives half
//! a round trip later. (The client here may send at once; that waits.) Requests under way at the
//! same time do not wait for each other, as behind a link and unlike behind a slow server.
//!
//! A link without delay carries bytes from thread to thread, which costs some hundredths of a
//! millisecond for a round trip. All sides pay it.

mod http;
mod ledger;
mod messages;
mod nbd;

pub use ledger::Counts;
use ledger::Ledger;
use messages::Messages;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most bytes that are taken from a socket at once.
const CHUNK: usize = 64 << 10;
/// Most chunks of a connection that are on their way to one end.
const ON_THE_WAY: usize = 1024;

/// What clients and server speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// NBD, fixed newstyle, without TLS.
    Nbd,
    /// HTTP/1.1, whose answers say how long they are.
    Http,
}

/// How long a link is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// The time from sending to the earliest answer.
    pub round_trip: Duration,
    /// Bytes that it carries in a second, each way; `None` for as many as come.
    pub bytes_per_second: Option<f64>,
}

/// A link, which is there until this is dropped.
pub struct Link {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

/// What the threads of a link have in common.
struct Shared {
    protocol: Protocol,
    speed: Speed,
    server: PathBuf,
    ledger: Mutex<Ledger>,
    /// When each way has carried what was sent so far.
    to_server: Mutex<Instant>,
    to_client: Mutex<Instant>,
    is_closing: AtomicBool,
    open: Mutex<Vec<Arc<Socket>>>,
}

/// The ways of a link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// Bytes on their way.
struct Sent {
    arrives: Instant,
    bytes: Vec<u8>,
}

impl Link {
    /// Makes a link to the server that listens on the Unix socket `server`.
    ///
    /// # Errors
    /// When there is no port.
    pub fn open(protocol: Protocol, server: &Path, speed: Speed) -> Result<Self, String> {
        let failed = |e: io::Error| format!("a link: {e}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let now = Instant::now();
        let shared = Arc::new(Shared {
            protocol,
            speed,
            server: server.to_owned(),
            ledger: Mutex::default(),
            to_server: Mutex::new(now),
            to_client: Mutex::new(now),
            is_closing: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let of_thread = Arc::clone(&shared);
        let listening = thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || of_thread.listen(&listener))
            .map_err(failed)?;
        Ok(Self {
            port,
            shared,
            listening: Some(listening),
        })
    }

    /// The port of 127.0.0.1 that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What went over it so far.
    ///
    /// # Errors
    /// When something went over it that it does not understand, so that the counts are wrong.
    pub fn counts(&self) -> Result<Counts, String> {
        lock(&self.shared.ledger).counts()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        for socket in lock(&self.shared.open).iter() {
            socket.shut(Shutdown::Both);
        }
        // Whoever waits for a connection gets one.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if let Some(listening) = self.listening.take().filter(|_| woken) {
            let _ = listening.join();
        }
    }
}

impl Shared {
    fn listen(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            for client in listener.incoming() {
                if self.is_closing.load(Ordering::SeqCst) {
                    return;
                }
                let opened = Instant::now();
                match client {
                    Ok(client) => {
                        scope.spawn(move || self.carry(client, opened));
                    }
                    Err(e) => lock(&self.ledger).fail(format!("no connection: {e}")),
                }
            }
        });
    }

    /// Has a socket shut down with the link.
    fn keep(&self, socket: Socket) -> Arc<Socket> {
        let socket = Arc::new(socket);
        lock(&self.open).push(Arc::clone(&socket));
        if self.is_closing.load(Ordering::SeqCst) {
            socket.shut(Shutdown::Both);
        }
        socket
    }

    /// Carries what goes over a connection until both ends have closed it.
    fn carry(&self, client: TcpStream, opened: Instant) {
        let _ = client.set_nodelay(true);
        let client = self.keep(Socket::Tcp(client));
        let round_trip = self.speed.round_trip;
        let base = lock(&self.ledger).connected();
        let (mut asked, mut answered) = match self.protocol {
            Protocol::Nbd => nbd::conversation(base),
            Protocol::Http => http::conversation(base),
        };
        thread::scope(|scope| {
            let (to_server, at_server) = sync_channel(ON_THE_WAY);
            let (to_client, at_client) = sync_channel(ON_THE_WAY);
            let of_client = &client;
            scope.spawn(move || {
                let see = |bytes: &[u8]| self.note(&mut asked, bytes, Way::ToServer);
                self.send(
                    of_client,
                    &to_server,
                    Way::ToServer,
                    opened + round_trip,
                    see,
                );
            });
            wait_until(opened + round_trip + round_trip / 2);
            let server = match UnixStream::connect(&self.server) {
                Ok(server) => self.keep(Socket::Unix(server)),
                Err(e) => {
                    lock(&self.ledger).fail(format!("no connection to the server: {e}"));
                    client.shut(Shutdown::Both);
                    return;
                }
            };
            let of_server = Arc::clone(&server);
            scope.spawn(move || {
                self.send(&of_server, &to_client, Way::ToClient, opened, |_| {});
            });
            scope.spawn(move || {
                // Counted as it arrives: nothing that answers it can have been sent before.
                let see = |bytes: &[u8]| self.note(&mut answered, bytes, Way::ToClient);
                deliver(&at_client, of_client, see);
            });
            deliver(&at_server, &server, |_| {});
        });
        drop(client);
        // Those of this connection: nobody else has them any more.
        lock(&self.open).retain(|socket| Arc::strong_count(socket) > 1);
    }

    fn note(&self, messages: &mut Messages, bytes: &[u8], way: Way) {
        let mut ledger = lock(&self.ledger);
        ledger.carried(bytes.len(), way == Way::ToServer);
        if let Err(what) = messages.take(bytes, &mut ledger) {
            ledger.fail(what);
        }
    }

    /// Puts what comes from a socket on its way, until nothing more comes.
    fn send(
        &self,
        from: &Socket,
        to: &SyncSender<Sent>,
        way: Way,
        not_before: Instant,
        mut see: impl FnMut(&[u8]),
    ) {
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = match from.read(&mut buffer) {
                Ok(n) if n > 0 => buffer.get(..n).unwrap_or_default(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => return,
            };
            see(bytes);
            let sent = Sent {
                arrives: self.arrival(way, bytes.len(), not_before),
                bytes: bytes.to_vec(),
            };
            if to.send(sent).is_err() {
                return;
            }
        }
    }

    /// When so many bytes arrive that are sent now.
    fn arrival(&self, way: Way, len: usize, not_before: Instant) -> Instant {
        let sent = Instant::now().max(not_before);
        let carried = match self.speed.bytes_per_second {
            None => sent,
            Some(rate) => {
                let mut free = lock(match way {
                    Way::ToServer => &self.to_server,
                    Way::ToClient => &self.to_client,
                });
                *free = sent.max(*free) + Duration::from_secs_f64(len as f64 / rate);
                *free
            }
        };
        carried + self.speed.round_trip / 2
    }
}

/// Gives a socket what arrives for it, each when it does.
fn deliver(arriving: &Receiver<Sent>, to: &Socket, mut see: impl FnMut(&[u8])) {
    while let Ok(sent) = arriving.recv() {
        wait_until(sent.arrives);
        see(&sent.bytes);
        if to.write_all(&sent.bytes).is_err() {
            to.shut(Shutdown::Both);
            return;
        }
    }
    to.shut(Shutdown::Write);
}

fn wait_until(then: Instant) {
    let left = then.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        thread::sleep(left);
    }
}

/// A lock whose holder may have panicked: what it counted is there still.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An end of a connection.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => (&*stream).write_all(bytes),
            Self::Unix(stream) => (&*stream).write_all(bytes),
        }
    }

    /// One that the other end has closed is shut already.
    fn shut(&self, how: Shutdown) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        };
    }
}

#[cfg(test)]
mod tests;
