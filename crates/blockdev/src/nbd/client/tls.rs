//! TLS on the socket, with certificates from a directory as other clients have it.

use super::address::{NbdAddress, NbdTransport};
use super::stream::{receive, transmit};
use extant_sync::{LockClass, Mutex, Rank};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

static SESSION: LockClass = LockClass::new("nbd TLS", Rank::Leaf);

/// The environment variable that names the directory of certificates.
const VARIABLE: &str = "EXTANT_NBD_CERTIFICATES";

/// Both directions of an encrypted stream.
#[derive(Debug)]
pub(super) struct Session(Mutex<ClientConnection>);

/// What the beginning of TLS waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shaking {
    Done,
    ToRead,
    ToWrite,
}

/// The socket as the library wants it.
struct Raw<'s>(BorrowedFd<'s>);

impl Read for Raw<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        receive(self.0, buf)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        transmit(self.0, &[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        transmit(self.0, bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Prepares a session: nothing is exchanged yet.
    ///
    /// # Errors
    /// A clause about the certificates.
    pub(super) fn new(address: &NbdAddress, directory: Option<&Path>) -> Result<Self, String> {
        let directory = directory.map_or_else(find_directory, |given| Ok(given.to_owned()))?;
        let mut trusted = RootCertStore::empty();
        for certificate in certificates(&directory.join("ca-cert.pem"))? {
            trusted.add(certificate).map_err(|error| {
                format!(
                    "{}/ca-cert.pem cannot be used: {error}",
                    directory.display()
                )
            })?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(trusted);
        let own = directory.join("client-cert.pem");
        let config = if own.exists() {
            let path = directory.join("client-key.pem");
            let key = PrivateKeyDer::from_pem_file(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            config
                .with_client_auth_cert(certificates(&own)?, key)
                .map_err(|error| format!("{} cannot be used: {error}", own.display()))?
        } else {
            config.with_no_client_auth()
        };
        let host = match &address.transport {
            NbdTransport::Tcp(host, _) => host.clone(),
            // As other clients do.
            NbdTransport::Unix(_) => "localhost".to_owned(),
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| format!("`{host}` is no name that a certificate can have"))?;
        let connection = ClientConnection::new(Arc::new(config), name)
            .map_err(|error| format!("TLS cannot begin: {error}"))?;
        Ok(Self(Mutex::new(&SESSION, connection)))
    }

    /// Goes on with the messages that begin TLS, as far as is possible now.
    pub(super) fn shake_hands(&self, socket: BorrowedFd<'_>) -> io::Result<Shaking> {
        let mut tls = self.0.lock();
        loop {
            if !push(&mut tls, socket)? {
                return Ok(Shaking::ToWrite);
            }
            if !tls.is_handshaking() {
                return Ok(Shaking::Done);
            }
            match pull(&mut tls, socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Shaking::ToRead);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn recv(&self, socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
        let mut tls = self.0.lock();
        loop {
            match tls.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if pull(&mut tls, socket)? == 0 {
                return Ok(0);
            }
        }
    }

    pub(super) fn send(&self, socket: BorrowedFd<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.0.lock();
        if !push(&mut tls, socket)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = tls.writer().write_vectored(slices)?;
        push(&mut tls, socket)?;
        Ok(taken)
    }

    pub(super) fn drain(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        push(&mut self.0.lock(), socket)
    }

    pub(super) fn say_goodbye(&self, socket: BorrowedFd<'_>) {
        let mut tls = self.0.lock();
        tls.send_close_notify();
        let _ = push(&mut tls, socket);
    }
}

/// Takes what is there. Returns 0 at the end of the stream.
fn pull(tls: &mut ClientConnection, socket: BorrowedFd<'_>) -> io::Result<usize> {
    let count = tls.read_tls(&mut Raw(socket))?;
    if let Err(error) = tls.process_new_packets() {
        // The other side learns why.
        let _ = push(tls, socket);
        return Err(io::Error::other(format!("TLS failed: {error}")));
    }
    Ok(count)
}

/// Hands on what is ready; `false` while some of it is left.
fn push(tls: &mut ClientConnection, socket: BorrowedFd<'_>) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Raw(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn find_directory() -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os(VARIABLE) {
        return Ok(given.into());
    }
    let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".pki/libnbd"));
    let all = own.into_iter().chain([PathBuf::from("/etc/pki/libnbd")]);
    all.into_iter()
        .find(|directory| directory.join("ca-cert.pem").exists())
        .ok_or_else(|| {
            format!(
                "there is no certificate of an authority to trust: name a directory with \
                 ca-cert.pem by {VARIABLE}, or have it in ~/.pki/libnbd"
            )
        })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(format!("{} has no certificate", path.display())),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}
