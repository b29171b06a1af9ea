//! Listening, the threads of each connection, and the end of it all.

use crate::activity::{Activity, Flushes};
use crate::address::Listen;
use crate::negotiate::negotiate;
use crate::transmit::Session;
use extant_blockdev::{DeviceError, DeviceResult, SharedDevice};
use extant_sync::{LockClass, Mutex, Rank};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

static CLIENTS: LockClass = LockClass::new("served clients", Rank::DeviceQueue);

/// Time without a sign of a client's host until it is asked for one.
const UNTIL_ASKED: Duration = Duration::from_secs(300);

/// Time that clients have to take their answers when the server ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// How much a server does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at most. A further one takes the place of one that is idle, or else is closed at
    /// once.
    pub connections: usize,
    /// Threads of each connection: requests of it that are done at a time.
    pub threads: usize,
    /// Bytes that one request carries at most, and all requests of one connection together.
    pub payload: u32,
    /// Time in which a client must have chosen the export: one that does not has its place taken.
    pub negotiation: Duration,
    /// Time without a part of a request or an answer after which a connection is idle, if a flush
    /// has covered what was changed on it: where there are too many, the one that is idle for
    /// longest is closed.
    pub idle: Duration,
}

impl Default for Limits {
    /// 16 connections with 4 threads each, 32 MiB, which clients take for granted, 20 seconds to
    /// choose the export, and a minute until a connection is idle.
    fn default() -> Self {
        Self {
            connections: 16,
            threads: 4,
            payload: 32 << 20,
            negotiation: Duration::from_secs(20),
            idle: Duration::from_secs(60),
        }
    }
}

/// What is served, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// The name of the export; clients that name none ask for the empty one.
    pub name: String,
    /// Whether changes are refused. They are in any case where the device refuses them.
    pub read_only: bool,
    /// How much is done at a time.
    pub limits: Limits,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// The address.
        listen: Listen,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is at the path of the socket.
    #[error("cannot listen on {}: there is something else at that path", path.display())]
    NoSocket {
        /// The path.
        path: std::path::PathBuf,
    },
    /// What was handed over to listen on is nothing that clients come to.
    #[error(
        "what was handed over to listen on is no socket that listens for connections, at a path or a port"
    )]
    NoListener,
    /// The name cannot be that of an export.
    #[error("names of exports have at most 4096 bytes")]
    LongName,
}

impl ServeError {
    /// Says that a Unix socket at `path` cannot be listened on.
    #[must_use]
    pub fn at(path: &Path, source: io::Error) -> Self {
        Self::Listen {
            listen: Listen::Unix(path.to_owned()),
            source,
        }
    }
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: SharedDevice,
    pub(crate) size: u64,
    pub(crate) preferred: u32,
    pub(crate) is_read_only: bool,
    pub(crate) name: String,
    pub(crate) limits: Limits,
    /// Why a flush failed: the system tells of lost writes once, to whoever flushes first.
    lost: OnceLock<String>,
    ends: AtomicBool,
    clients: Mutex<Clients>,
    pub(crate) flushes: Flushes,
}

impl Shared {
    /// Makes everything durable that was answered, on whichever connection.
    ///
    /// # Errors
    /// That it failed, now or at any time before: what was lost then stays lost.
    pub(crate) fn flush(&self) -> DeviceResult<()> {
        let failed = |reason: &String| DeviceError::Io {
            device: self.device.name(),
            op: "flush",
            offset: 0,
            len: 0,
            source: io::Error::other(format!("an earlier flush failed: {reason}")),
        };
        if let Some(reason) = self.lost.get() {
            return Err(failed(reason));
        }
        let number = self.flushes.begin();
        let flushed = self.device.flush();
        match (&flushed, self.lost.get()) {
            (Ok(()), Some(reason)) => Err(failed(reason)),
            (Err(e), _) => {
                let _ = self.lost.set(e.to_string());
                flushed
            }
            (Ok(()), None) => {
                self.flushes.succeeded(number);
                flushed
            }
        }
    }
}

#[derive(Debug, Default)]
struct Clients {
    last: u64,
    connected: Vec<Client>,
}

/// A connection that is served.
#[derive(Debug)]
struct Client {
    number: u64,
    socket: Socket,
    activity: Arc<Activity>,
}

impl Clients {
    /// Closes the connection that is idle for longest. Returns whether there is one.
    fn close_idle(&mut self, least: Duration, flushes: &Flushes) -> bool {
        let idle = self.connected.iter().enumerate();
        let idle = idle.filter_map(|(index, client)| {
            let since = client.activity.idle_since(least, flushes)?;
            Some((since, index))
        });
        let Some((_, index)) = idle.min() else {
            return false;
        };
        // Its threads find out.
        self.connected.remove(index).socket.shutdown(Shutdown::Both);
        true
    }
}

/// A connection, or a second handle of it.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn again(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    fn shutdown(&self, how: Shutdown) {
        // It may be closed already.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        };
    }

    fn set_patience(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(limit)?;
                stream.set_write_timeout(limit)
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buf),
            Self::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(buf)])
    }

    /// Sends without a signal where nobody is there to receive.
    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
        let flags = SendFlags::NOSIGNAL;
        let mut none = SendAncillaryBuffer::default();
        Ok(match self {
            Self::Unix(stream) => sendmsg(&*stream, bufs, &mut none, flags),
            Self::Tcp(stream) => sendmsg(&*stream, bufs, &mut none, flags),
        }?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Waits for a client, or until `wake` has something to read.
    fn has_client(&self, wake: &OwnedFd) -> bool {
        let listener = self.as_fd();
        let mut both = [
            PollFd::new(&listener, PollFlags::IN),
            PollFd::new(wake, PollFlags::IN),
        ];
        // What else there is, accepting says.
        poll(&mut both, None).is_ok() && !both[0].revents().is_empty()
    }
}

/// Finds what clients come to through a socket that listens already.
fn handed_over(socket: OwnedFd) -> Option<(Listener, Listen)> {
    let is_stream = sockopt::socket_type(&socket).ok()? == SocketType::STREAM;
    let listens = sockopt::socket_acceptconn(&socket).ok()?;
    if !is_stream || !listens {
        return None;
    }
    match sockopt::socket_domain(&socket).ok()? {
        AddressFamily::UNIX => {
            let listener = UnixListener::from(socket);
            let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
            listener.set_nonblocking(true).ok()?;
            Some((Listener::Unix(listener), Listen::Unix(path)))
        }
        AddressFamily::INET | AddressFamily::INET6 => {
            let listener = TcpListener::from(socket);
            let at = listener.local_addr().ok()?;
            listener.set_nonblocking(true).ok()?;
            let listen = Listen::Tcp(at.ip().to_string(), at.port());
            Some((Listener::Tcp(listener), listen))
        }
        _ => None,
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct NbdServer {
    listener: Listener,
    listen: Listen,
    /// The path of the socket is its own.
    has_made_path: bool,
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
}

/// What ends a server. Clones end the same one.
#[derive(Debug, Clone)]
pub struct Stop {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
}

impl Stop {
    /// Ends the server: it takes no more connections, and no more requests. Those under way are
    /// answered.
    pub fn stop(&self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        for client in &self.shared.clients.lock().connected {
            client.socket.shutdown(Shutdown::Read);
        }
        // Has it look. It looks already where the count is as large as it can be.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl NbdServer {
    /// Listens: from then on clients can connect, and wait for [`NbdServer::run`].
    ///
    /// # Errors
    /// `Listen`, `NoSocket` or `LongName`. A socket that a server left behind is replaced; one that
    /// is in use is not.
    pub fn bind(
        listen: &Listen,
        device: SharedDevice,
        options: ServeOptions,
    ) -> Result<Self, ServeError> {
        let shared = shared(device, options)?;
        let refuse = |source| ServeError::Listen {
            listen: listen.clone(),
            source,
        };
        let (listener, listen) = match listen {
            Listen::Unix(path) => (Listener::Unix(listen_at(path)?), listen.clone()),
            Listen::Tcp(host, port) => {
                let listener = TcpListener::bind((host.as_str(), *port)).map_err(refuse)?;
                listener.set_nonblocking(true).map_err(refuse)?;
                let port = listener.local_addr().map_err(refuse)?.port();
                (Listener::Tcp(listener), Listen::Tcp(host.clone(), port))
            }
        };
        Self::with(listener, listen, true, shared)
    }

    /// Takes clients from a socket that listens already: at a path, which stays when the server
    /// ends, or at a port. Service managers hand such over.
    ///
    /// # Errors
    /// `NoListener` for anything else, or `LongName`.
    pub fn adopt(
        socket: OwnedFd,
        device: SharedDevice,
        options: ServeOptions,
    ) -> Result<Self, ServeError> {
        let shared = shared(device, options)?;
        let (listener, listen) = handed_over(socket).ok_or(ServeError::NoListener)?;
        Self::with(listener, listen, false, shared)
    }

    fn with(
        listener: Listener,
        listen: Listen,
        has_made_path: bool,
        shared: Shared,
    ) -> Result<Self, ServeError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|source| ServeError::Listen {
            listen: listen.clone(),
            source: source.into(),
        })?;
        Ok(Self {
            listener,
            listen,
            has_made_path,
            shared: Arc::new(shared),
            wake: Arc::new(wake),
        })
    }

    /// Returns where it listens, with the port that the system chose.
    pub fn listens_on(&self) -> &Listen {
        &self.listen
    }

    /// Returns what ends it.
    pub fn stop(&self) -> Stop {
        Stop {
            shared: Arc::clone(&self.shared),
            wake: Arc::clone(&self.wake),
        }
    }

    /// Serves until [`Stop::stop`]; then makes everything durable.
    ///
    /// # Errors
    /// That the last flush fails.
    pub fn run(self) -> DeviceResult<()> {
        thread::scope(|scope| {
            while !self.shared.ends.load(Ordering::SeqCst) {
                if !self.listener.has_client(&self.wake) {
                    continue;
                }
                let accepted = match &self.listener {
                    Listener::Unix(listener) => listener.accept().map(|(s, _)| Socket::Unix(s)),
                    Listener::Tcp(listener) => listener.accept().map(|(stream, _)| {
                        // Replies are whole messages.
                        let _ = stream.set_nodelay(true);
                        // A host that went away gives its place back.
                        let _ = sockopt::set_socket_keepalive(&stream, true)
                            .and_then(|()| sockopt::set_tcp_keepidle(&stream, UNTIL_ASKED));
                        Socket::Tcp(stream)
                    }),
                };
                match accepted {
                    Ok(socket) => self.admit(scope, socket),
                    // Too many open files, or a client that left at once.
                    Err(_) => thread::sleep(Duration::from_millis(10)),
                }
            }
            self.take_leave();
        });
        self.shared.flush()
    }

    /// Waits for requests under way, but not for clients that do not take their answers.
    fn take_leave(&self) {
        let clients = &self.shared.clients;
        let over = Instant::now() + FAREWELL;
        while !clients.lock().connected.is_empty() && Instant::now() < over {
            thread::sleep(Duration::from_millis(5));
        }
        for client in &clients.lock().connected {
            client.socket.shutdown(Shutdown::Both);
        }
    }

    /// Begins with a client, unless there are too many and none is idle.
    fn admit<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, socket: Socket) {
        let Ok(second) = socket.again() else { return };
        let activity = Arc::new(Activity::new());
        let number = {
            let Limits {
                connections, idle, ..
            } = self.shared.limits;
            let mut clients = self.shared.clients.lock();
            if self.shared.ends.load(Ordering::SeqCst)
                || clients.connected.len() >= connections
                    && !clients.close_idle(idle, &self.shared.flushes)
            {
                return;
            }
            clients.last += 1;
            let number = clients.last;
            clients.connected.push(Client {
                number,
                socket: second,
                activity: Arc::clone(&activity),
            });
            number
        };
        let begun = thread::Builder::new().spawn_scoped(scope, move || {
            let _leaves = Leaves(&self.shared, number);
            // What is wrong with a client ends its connection, and is no matter of the server.
            let _ = serve(&self.shared, socket, &activity);
        });
        if begun.is_err() {
            drop(Leaves(&self.shared, number));
        }
    }
}

/// The listening socket, for a process that gives up everything else.
impl AsFd for NbdServer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        if let (Listen::Unix(path), true) = (&self.listen, self.has_made_path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves the one client at the other end of a connected socket until it leaves; then makes
/// everything durable. It listens nowhere.
///
/// # Errors
/// That the last flush fails.
pub fn serve_connection(
    socket: UnixStream,
    device: SharedDevice,
    limits: Limits,
) -> DeviceResult<()> {
    let options = ServeOptions {
        limits,
        ..ServeOptions::default()
    };
    let shared = of_device(device, options);
    // What is wrong with the client ends the connection.
    let _ = serve(&shared, Socket::Unix(socket), &Activity::new());
    shared.flush()
}

/// What connections share, of an export whose name clients can say.
fn shared(device: SharedDevice, options: ServeOptions) -> Result<Shared, ServeError> {
    if options.name.len() > 4096 {
        return Err(ServeError::LongName);
    }
    Ok(of_device(device, options))
}

fn of_device(device: SharedDevice, options: ServeOptions) -> Shared {
    let preferred = device.preferred_io().max(512).next_power_of_two();
    Shared {
        size: device.size(),
        preferred: preferred.min(options.limits.payload),
        is_read_only: options.read_only || device.is_read_only(),
        device,
        name: options.name,
        limits: options.limits,
        lost: OnceLock::new(),
        ends: AtomicBool::new(false),
        clients: Mutex::new(&CLIENTS, Clients::default()),
        flushes: Flushes::new(),
    }
}

/// Ends a connection of which a thread panics.
struct HangsUp<'a>(&'a Socket);

impl Drop for HangsUp<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.shutdown(Shutdown::Both);
        }
    }
}

/// Forgets a client at the end of its thread.
struct Leaves<'a>(&'a Shared, u64);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut clients = self.0.clients.lock();
        clients.connected.retain(|client| {
            if client.number == self.1 {
                client.socket.shutdown(Shutdown::Both);
            }
            client.number != self.1
        });
    }
}

/// A connection whose client must come to an end with its options.
struct Hurried<'a> {
    socket: &'a mut Socket,
    over: Instant,
}

impl Hurried<'_> {
    /// Has the next transfer take no longer than what is left of the time.
    fn hurry(&self) -> io::Result<()> {
        let left = self.over.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_patience(Some(left))
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.hurry()?;
        self.socket.read(buf)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.hurry()?;
        self.socket.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serves one client until it leaves.
fn serve(shared: &Shared, mut socket: Socket, activity: &Activity) -> io::Result<()> {
    let mut hurried = Hurried {
        socket: &mut socket,
        over: Instant::now() + shared.limits.negotiation,
    };
    let Some(settled) = negotiate(&mut hurried, shared)? else {
        return Ok(());
    };
    socket.set_patience(None)?;
    activity.has_chosen();
    let session = Session::new(
        io::BufReader::with_capacity(16 << 10, socket.again()?),
        socket.again()?,
        shared,
        settled,
        activity,
    );
    let work = || {
        // A client that waits for an answer which never comes would wait for ever.
        let _hangs_up = HangsUp(&socket);
        let result = session.work(shared);
        // The other threads of the connection end, too: after a mistake at once, otherwise when
        // they have answered what they have.
        socket.shutdown(if result.is_err() {
            Shutdown::Both
        } else {
            Shutdown::Read
        });
        result
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..shared.limits.threads)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut result = work();
        for other in others {
            let ended = other.join();
            result = result.and(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result
    })
}

/// Listens on a Unix socket that it makes at `path`. Taking what connects there does not wait.
///
/// # Errors
/// `Listen` and `NoSocket`. A socket that a server left behind is replaced; one that is in use is
/// not.
pub fn listen_at(path: &Path) -> Result<UnixListener, ServeError> {
    make_way(path)?;
    let listen = || {
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    listen().map_err(|source| ServeError::at(path, source))
}

/// Removes a socket that no server listens on any more.
fn make_way(path: &Path) -> Result<(), ServeError> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::NoSocket {
            path: path.to_owned(),
        });
    }
    let is_left = UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_left {
        // Whether it worked is seen when the path is used.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}
