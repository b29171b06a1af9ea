//! What addresses mean, and how they are shown.
//!
//! # Sources
//! The NBD URI specification (`doc/uri.md` of the NBD project); RFC 3986.

use crate::PartitionName;
use crate::os::os;
use crate::uri::{AddressError, bad_percent, decode, host_and_port, scheme, shown};
use extant_blockdev::{NBD_PORT, NbdAddress, NbdTransport};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest name that an export may have, in bytes.
const EXPORT_MAX: usize = 4096;

/// Where an image is, and which partition of it is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageLocation {
    carrier: Carrier,
    /// The whole, as it was written.
    text: OsString,
    partition: Option<PartitionName>,
}

/// What carries an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carrier {
    /// A file of the host or a block device, by its path.
    File(PathBuf),
    /// A file that is open already, by its number.
    Descriptor(i32),
    /// An export of an NBD server.
    Nbd(NbdAddress),
    /// A file behind HTTP or HTTPS, by its URL.
    Http(String),
    /// An object of a store (S3, Google Cloud Storage, Azure), by its URL.
    Object(String),
}

impl ImageLocation {
    /// Names the whole of the file or block device at `path`, whatever its name looks like.
    pub fn file(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self {
            carrier: Carrier::File(path.to_owned()),
            text: path.as_os_str().to_owned(),
            partition: None,
        }
    }

    /// Names the whole of a file that this process was started with, or of any that it has open
    /// where [`How::own_descriptors`](crate::How::own_descriptors) says so.
    #[must_use]
    pub fn descriptor(number: i32) -> Self {
        Self {
            carrier: Carrier::Descriptor(number),
            text: format!("fd:{number}").into(),
            partition: None,
        }
    }

    /// Names what is open already, and has a name only.
    pub(crate) fn opened(name: String) -> Self {
        Self {
            carrier: Carrier::Descriptor(-1),
            text: name.into(),
            partition: None,
        }
    }

    /// Takes a partition instead of the whole, or with `None` the whole.
    #[must_use]
    pub fn with_partition(mut self, partition: impl Into<Option<PartitionName>>) -> Self {
        self.partition = partition.into();
        self
    }

    /// Returns what carries the image.
    #[must_use]
    pub fn carrier(&self) -> &Carrier {
        &self.carrier
    }

    /// Returns the path, if it is a file or a block device named by one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match &self.carrier {
            Carrier::File(path) => Some(path),
            _ => None,
        }
    }

    /// Returns whether it is on another machine, or may be.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        !matches!(self.carrier, Carrier::File(_) | Carrier::Descriptor(_))
    }

    /// Returns the partition that is named with it.
    #[must_use]
    pub fn partition(&self) -> Option<&PartitionName> {
        self.partition.as_ref()
    }

    /// Returns the location of the whole, without the partition.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self {
            partition: None,
            ..self.clone()
        }
    }

    /// Returns what it is called, as bytes that may have to be escaped for a terminal: the path or
    /// the address, without its secrets, and the partition.
    #[must_use]
    pub fn name(&self) -> OsString {
        let mut name = match &self.carrier {
            Carrier::File(path) => path.as_os_str().to_owned(),
            _ => shown(self.text.as_encoded_bytes()).into(),
        };
        if let Some(partition) = &self.partition {
            name.push(format!("#{partition}"));
        }
        name
    }

    /// Returns the address of the whole as it was written, with its secrets.
    #[must_use]
    pub fn address(&self) -> &OsStr {
        &self.text
    }

    /// Reads an address that begins with a scheme, all of it.
    pub(crate) fn from_uri(text: &[u8]) -> Result<Self, AddressError> {
        let wrong = |reason: String| AddressError::new(text, reason);
        let mut parts = text.splitn(2, |byte| *byte == b'#');
        let whole = parts.next().unwrap_or_default();
        let partition = match parts.next() {
            None => None,
            Some(fragment) => Some(fragment_of(fragment).map_err(wrong)?),
        };
        let name = scheme(whole).unwrap_or_default().to_ascii_lowercase();
        let rest = whole.get(name.len() + 3..).unwrap_or_default();
        let carrier = match name.as_slice() {
            b"nbd" => nbd(rest, false).map(Carrier::Nbd),
            b"nbds" => nbd(rest, true).map(Carrier::Nbd),
            b"nbd+unix" => nbd_unix(rest, false).map(Carrier::Nbd),
            b"nbds+unix" => nbd_unix(rest, true).map(Carrier::Nbd),
            b"http" | b"https" => url(whole, rest).map(Carrier::Http),
            b"s3" | b"gs" | b"az" => object(whole, rest).map(Carrier::Object),
            _ => Err(unknown(&name).to_owned()),
        };
        Ok(Self {
            carrier: carrier.map_err(wrong)?,
            text: os(whole).to_owned(),
            partition,
        })
    }
}

impl fmt::Display for ImageLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_string_lossy())
    }
}

/// Whether addresses of this scheme are known.
pub(crate) fn is_known(scheme: &[u8]) -> bool {
    let known: [&[u8]; 9] = [
        b"nbd",
        b"nbds",
        b"nbd+unix",
        b"nbds+unix",
        b"http",
        b"https",
        b"s3",
        b"gs",
        b"az",
    ];
    known.iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// What to do about an address whose scheme is not known.
fn unknown(scheme: &[u8]) -> &'static str {
    match scheme {
        b"file" => "write the path of the file itself, without file://",
        b"rbd" | b"ceph" => {
            "serve it with qemu-nbd, as in `qemu-nbd --socket=PATH --format=raw rbd:POOL/IMAGE`, \
             and write nbd+unix:///?socket=PATH"
        }
        b"ssh" | b"sftp" | b"scp" => {
            "serve it with nbdkit, as in `nbdkit --unix=PATH ssh host=HOST FILE`, and write \
             nbd+unix:///?socket=PATH"
        }
        b"oci" | b"docker" => {
            "this is a container image: fetch it with skopeo, unpack it, and make an image of the \
             files with `extant mkfs --from`"
        }
        b"ftp" | b"ftps" => "fetch it first, such as with curl -o NEW, and name that file",
        _ => {
            "addresses begin with nbd://, nbds://, nbd+unix://, nbds+unix://, http://, https://, \
             s3://, gs://, az:// or fd:; anything else is the path of a file, and there is none of \
             this name"
        }
    }
}

/// The partition behind the `#` of an address.
pub(crate) fn fragment_of(fragment: &[u8]) -> Result<PartitionName, String> {
    let decoded = decode(fragment).map_err(|wrong| bad_percent(&wrong))?;
    let text = String::from_utf8(decoded)
        .map_err(|_| "the label of the partition is not UTF-8".to_owned())?;
    PartitionName::read(&text).ok_or_else(|| {
        "the partition behind # is missing: write its number or its label, such as #2, or %23 for \
         a # of the address itself"
            .to_owned()
    })
}

/// The parts of what is behind `//`: authority, path (from its slash on), query.
fn parts(rest: &[u8]) -> (&[u8], &[u8], Option<&[u8]>) {
    let query = rest.iter().position(|byte| *byte == b'?');
    let (before, query) = match query {
        Some(at) => (rest.get(..at).unwrap_or(rest), rest.get(at + 1..)),
        None => (rest, None),
    };
    let slash = before.iter().position(|byte| *byte == b'/');
    let (authority, path) = before.split_at(slash.unwrap_or(before.len()));
    (authority, path, query)
}

/// The pairs of a query, decoded.
fn pairs(query: Option<&[u8]>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let all = query.unwrap_or_default().split(|byte| *byte == b'&');
    all.filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut parts = pair.splitn(2, |byte| *byte == b'=');
            let mut next = || decode(parts.next().unwrap_or_default());
            let (key, value) = (next(), next());
            let key = key.map_err(|wrong| bad_percent(&wrong))?;
            let value = value.map_err(|wrong| bad_percent(&wrong))?;
            Ok((String::from_utf8_lossy(&key).into_owned(), value))
        })
        .collect()
}

/// The name of an export: what is behind the first slash.
fn export(path: &[u8]) -> Result<String, String> {
    let name = path.strip_prefix(b"/").unwrap_or(path);
    let name = decode(name).map_err(|wrong| bad_percent(&wrong))?;
    let name = String::from_utf8(name).map_err(|_| "the export's name is not UTF-8".to_owned())?;
    if name.len() > EXPORT_MAX {
        return Err(format!(
            "the export's name has {} bytes, and may have {EXPORT_MAX}",
            name.len()
        ));
    }
    Ok(name)
}

fn nbd(rest: &[u8], tls: bool) -> Result<NbdAddress, String> {
    let (authority, path, query) = parts(rest);
    let s = if tls { "s" } else { "" };
    if authority.is_empty() {
        return Err(format!(
            "the host is missing: write nbd{s}://HOST/EXPORT, or nbd{s}+unix:///EXPORT?socket=PATH \
             for a socket"
        ));
    }
    if let Some((key, _)) = pairs(query)?.first() {
        return Err(match key.as_str() {
            "socket" => format!("for a socket write nbd{s}+unix:///EXPORT?socket=PATH"),
            _ => format!("{key:?} is not known here: write nbd{s}://HOST:PORT/EXPORT alone"),
        });
    }
    if authority.contains(&b'@') {
        return Err(format!(
            "users are not known here: write nbd{s}://HOST:PORT/EXPORT"
        ));
    }
    let (host, port) = host_and_port(authority)?;
    if host.is_empty() {
        return Err(format!(
            "the host is missing: write nbd{s}://HOST:PORT/EXPORT"
        ));
    }
    Ok(NbdAddress {
        transport: NbdTransport::Tcp(host, port.unwrap_or(NBD_PORT)),
        tls,
        export: export(path)?,
    })
}

fn nbd_unix(rest: &[u8], tls: bool) -> Result<NbdAddress, String> {
    let (authority, path, query) = parts(rest);
    let s = if tls { "s" } else { "" };
    let write = format!("write nbd{s}+unix:///EXPORT?socket=PATH");
    if !authority.is_empty() {
        return Err(format!("a socket has no host: {write}, with three slashes"));
    }
    let mut socket = None;
    for (key, value) in pairs(query)? {
        match key.as_str() {
            "socket" if socket.is_none() => socket = Some(value),
            "socket" => return Err(format!("there are two sockets: {write}")),
            _ => return Err(format!("{key:?} is not known here: {write}")),
        }
    }
    let socket = socket.filter(|path| !path.is_empty());
    let socket = socket.ok_or_else(|| format!("the socket is missing: {write}"))?;
    if socket.contains(&0) {
        return Err("the path of a socket has no zero byte".to_owned());
    }
    if cfg!(not(unix)) && std::str::from_utf8(&socket).is_err() {
        return Err("the path of the socket is not UTF-8".to_owned());
    }
    Ok(NbdAddress {
        transport: NbdTransport::Unix(PathBuf::from(os(&socket))),
        tls,
        export: export(path)?,
    })
}

/// An address as text: URLs are ASCII, and what is not is percent-encoded.
fn ascii(whole: &[u8]) -> Result<String, String> {
    let odd = whole.iter().find(|byte| !byte.is_ascii_graphic());
    if let Some(odd) = odd {
        return Err(format!(
            "the byte 0x{odd:02x} may not stand in a URL: write %{odd:02X}"
        ));
    }
    decode(whole).map_err(|wrong| bad_percent(&wrong))?;
    String::from_utf8(whole.to_vec()).map_err(|e| e.to_string())
}

fn url(whole: &[u8], rest: &[u8]) -> Result<String, String> {
    let text = ascii(whole)?;
    let (authority, path, _) = parts(rest);
    let host = authority.rsplit(|byte| *byte == b'@').next();
    let (host, _) = host_and_port(host.unwrap_or_default())?;
    if host.is_empty() {
        return Err("the host is missing: write https://HOST/FILE".to_owned());
    }
    if path.len() < 2 {
        return Err("it names no file: write https://HOST/FILE".to_owned());
    }
    Ok(text)
}

fn object(whole: &[u8], rest: &[u8]) -> Result<String, String> {
    let text = ascii(whole)?;
    let (bucket, key, _) = parts(rest);
    let scheme = String::from_utf8_lossy(scheme(whole).unwrap_or_default()).to_ascii_lowercase();
    let inside = if scheme == "az" {
        "CONTAINER/BLOB"
    } else {
        "BUCKET/KEY"
    };
    if bucket.is_empty() || key.len() < 2 {
        return Err(format!("it names no object: write {scheme}://{inside}"));
    }
    if bucket.iter().any(|byte| matches!(byte, b'@' | b':')) {
        return Err(format!(
            "credentials and endpoints are taken from the environment: write {scheme}://{inside}"
        ));
    }
    Ok(text)
}
