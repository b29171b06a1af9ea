//! Where an export is, and how to use it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The port that is registered for NBD.
pub const NBD_PORT: u16 = 10809;

/// The longest limit of time, which clocks can add: as good as none.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How a server is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NbdTransport {
    /// A host, by name or by address (an IPv6 address without brackets), and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// One export of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NbdAddress {
    /// How the server is reached.
    pub transport: NbdTransport,
    /// The name of the export; the empty name is the server's default one.
    pub export: String,
    /// Whether everything goes through TLS. Needs the feature `tls`.
    pub tls: bool,
}

impl NbdAddress {
    /// Makes the path of a socket one that holds wherever the process goes.
    pub(super) fn absolute(&self) -> Self {
        let mut address = self.clone();
        if let NbdTransport::Unix(path) = &mut address.transport
            && let Ok(whole) = std::path::absolute(&*path)
            // The kernel takes no more than 107 bytes.
            && whole.as_os_str().len() < 108
        {
            *path = whole;
        }
        address
    }
}

impl fmt::Display for NbdAddress {
    /// Writes the address as a URI, such as `nbd://host/export`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "nbds" } else { "nbd" };
        match &self.transport {
            NbdTransport::Tcp(host, port) => {
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]")?;
                } else {
                    write!(f, "{scheme}://{host}")?;
                }
                if *port != NBD_PORT {
                    write!(f, ":{port}")?;
                }
                write!(f, "/{}", self.export)
            }
            NbdTransport::Unix(path) => {
                write!(
                    f,
                    "{scheme}+unix:///{}?socket={}",
                    self.export,
                    path.display()
                )
            }
        }
    }
}

/// How an export is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NbdOptions {
    /// Whether writes are allowed.
    pub(super) writable: bool,
    /// Connections at most.
    pub(super) connections: usize,
    /// Whether both ends of an export stay in memory until one is changed.
    pub(super) keeps_ends: bool,
    /// Time in which a connection must come about.
    pub(super) connect_timeout: Duration,
    /// Time in which a server that owes an answer must send something.
    pub(super) answer_timeout: Duration,
    /// As long as that, but while it has a flush to do.
    pub(super) flush_timeout: Duration,
    /// Time for which a broken connection is tried again.
    pub(super) reconnect_for: Duration,
    /// The directory of certificates for TLS.
    pub(super) certificates: Option<PathBuf>,
}

impl NbdOptions {
    /// Makes options for reading: over at most 4 connections, with 10 seconds for a connection to
    /// come about, 180 seconds without a sign of the server (30 minutes while it has a flush to
    /// do), and 30 seconds of trying again.
    pub fn read_only() -> Self {
        Self {
            writable: false,
            connections: 4,
            keeps_ends: false,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(180),
            flush_timeout: Duration::from_secs(30 * 60),
            reconnect_for: Duration::from_secs(30),
            certificates: None,
        }
    }

    /// Makes the directory of certificates one that holds wherever the process goes.
    pub(super) fn absolute(mut self) -> Self {
        let directory = self.certificates.take();
        self.certificates = directory.map(|path| std::path::absolute(&path).unwrap_or(path));
        self
    }

    /// Makes options for reading and writing, otherwise those of [`NbdOptions::read_only`].
    pub fn read_write() -> Self {
        Self {
            writable: true,
            ..Self::read_only()
        }
    }

    /// Sets how many connections there are at most. More than one are made only when several
    /// threads have requests, and only where the server says that this is safe.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Self {
        self.connections = most.clamp(1, 64);
        self
    }

    /// Sets whether both ends of an export, 128 KiB and 32 KiB, come with the first read in one of
    /// them and then stay in memory, of one that is open for writing until the device begins to
    /// change one of them: for what looks there several times to find out what the export holds.
    /// What others write there meanwhile is not seen, but by
    /// [`BlockDevice::read_uncached_at`](crate::BlockDevice::read_uncached_at). Unless said, no.
    #[must_use]
    pub fn keeps_ends(mut self, on: bool) -> Self {
        self.keeps_ends = on;
        self
    }

    /// Sets the time in which a connection must come about, negotiation included.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit.min(LONGEST);
        self
    }

    /// Sets for how long the server may owe an answer and send nothing at all. Then the connection
    /// counts as broken.
    #[must_use]
    pub fn answer_timeout(mut self, limit: Duration) -> Self {
        self.answer_timeout = limit.min(LONGEST);
        self
    }

    /// Sets for how long the server may send nothing at all while it makes something durable, if
    /// that is longer than [`NbdOptions::answer_timeout`]: that may take long. A flush that is
    /// not answered in this time is an error, and so is everything that the device is asked from
    /// then on. A host that no longer answers by TCP is not waited for so long.
    #[must_use]
    pub fn flush_timeout(mut self, limit: Duration) -> Self {
        self.flush_timeout = limit.min(LONGEST);
        self
    }

    /// Sets for how long a broken connection is tried again before requests fail. Zero tries once.
    /// All requests that wait for it wait together.
    #[must_use]
    pub fn reconnect_for(mut self, limit: Duration) -> Self {
        self.reconnect_for = limit.min(LONGEST);
        self
    }

    /// Sets the directory with `ca-cert.pem` and, where the server asks the client for a
    /// certificate, `client-cert.pem` and `client-key.pem`. Unless said, `EXTANT_NBD_CERTIFICATES`,
    /// else `~/.pki/libnbd`, as far as they are there. Needs the feature `tls`.
    #[must_use]
    pub fn certificates(mut self, directory: impl AsRef<Path>) -> Self {
        self.certificates = Some(directory.as_ref().to_owned());
        self
    }
}
