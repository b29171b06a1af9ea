//! Where chunks are: a directory, a web server, a bucket. A chunk is `xxxx/DIGEST.cacnk` in it,
//! compressed by zstd.

use super::index::{Algorithm, Id};
use crate::address::{Address, Scheme};
use crate::attempts::{Attempts, limited};
use crate::device::no_retries;
use crate::error::RemoteError;
use crate::options::{RemoteOptions, Timeouts};
use crate::runtime;
use crate::source::{Bucket, HttpSource, Source, StoreSource};
use bytes::Bytes;
use rustix::fs::{Mode, OFlags, open};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};
use std::sync::Arc;

/// What zstd may add to a chunk that cannot be compressed, in bytes.
pub(super) const OVERHEAD: u64 = 1 << 16;

/// A store of chunks.
#[derive(Debug, Clone)]
pub(super) enum Store {
    Directory(PathBuf),
    Remote {
        base: Address,
        client: reqwest::Client,
        bucket: Option<Bucket>,
        timeouts: Timeouts,
    },
}

/// The URL that a place is, if it is one and no path.
pub(super) fn as_url(place: &OsStr) -> Option<&str> {
    let place = place.to_str()?;
    let (scheme, _) = place.split_once("://")?;
    let is_name = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then_some(place)
}

/// The name of a chunk below a store: folder and file.
pub(super) fn name_of(id: &Id) -> [String; 2] {
    let digest: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    [digest[..4].to_owned(), format!("{digest}.cacnk")]
}

impl Store {
    /// The store that a directory or URL is. A slash may stand behind it, as it may not behind the
    /// key of an object.
    pub(super) fn of(place: &OsStr, options: &RemoteOptions) -> Result<Self, RemoteError> {
        let Some(place) = as_url(place) else {
            // The process may go elsewhere before a chunk is read.
            let folder = path::absolute(place).unwrap_or_else(|_| PathBuf::from(place));
            return Ok(Self::Directory(folder));
        };
        let is_http = ["http://", "https://"].iter().any(|scheme| {
            let start = place.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        let shorter = place.strip_suffix('/').filter(|_| !is_http);
        let place = shorter.unwrap_or(place);
        let base = Address::parse(place)?;
        let timeouts = options.timeouts;
        let client = runtime::client(base.scheme, &timeouts)?;
        let bucket = if base.scheme == Scheme::Http {
            None
        } else {
            let settings = &options.settings;
            Some(Bucket::of(
                &base,
                &client,
                &timeouts,
                settings,
                no_retries(),
            )?)
        };
        Ok(Self::Remote {
            base,
            client,
            bucket,
            timeouts,
        })
    }

    /// Whether each chunk takes a round trip to a server.
    pub(super) fn is_far(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }

    /// Brings a chunk of `len` bytes and checks it.
    pub(super) async fn get(
        &self,
        id: Id,
        len: u64,
        algorithm: Algorithm,
    ) -> Result<Bytes, RemoteError> {
        let most = len + OVERHEAD;
        let packed = match self {
            Self::Directory(dir) => {
                let [folder, file] = name_of(&id);
                let path = dir.join(folder).join(file);
                let read = tokio::task::spawn_blocking(move || read_file(&path, most));
                read.await.unwrap_or(Err(RemoteError::Closed))?
            }
            Self::Remote {
                base,
                client,
                bucket,
                timeouts,
            } => {
                let mut address = base.clone();
                if let Ok(mut path) = address.url.path_segments_mut() {
                    path.pop_if_empty().extend(name_of(&id));
                }
                let source = match bucket {
                    Some(bucket) => Source::Store(StoreSource::new(bucket.clone(), &address)?),
                    None => Source::Http(HttpSource::new(client.clone(), &address)),
                };
                let fetched = fetch_whole(&source, most, timeouts).await;
                fetched.map_err(|e| RemoteError::Chunk {
                    address: address.shown(),
                    source: Arc::new(e),
                })?
            }
        };
        let unpacked = tokio::task::spawn_blocking(move || unpack(&packed, id, len, algorithm));
        unpacked.await.unwrap_or(Err(RemoteError::Closed))
    }
}

async fn fetch_whole(
    source: &Source,
    most: u64,
    timeouts: &Timeouts,
) -> Result<Bytes, RemoteError> {
    let mut attempts = Attempts::new(timeouts);
    loop {
        match limited(timeouts, most, source.begin(most)).await {
            Ok(whole) if whole.pin.size > most => {
                return Err(RemoteError::BadAnswer {
                    reason: format!("the chunk has {} bytes", whole.pin.size),
                });
            }
            Ok(whole) => return Ok(whole.bytes),
            Err(e) => attempts.pause_after(e).await?,
        }
    }
}

/// Opens the file of a chunk, and nothing that it would have to wait for.
pub(super) fn open_chunk(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

fn read_file(path: &Path, most: u64) -> Result<Bytes, RemoteError> {
    let failed = |e: io::Error| RemoteError::BadChunk {
        reason: format!("cannot read {}: {e}", path.display()),
    };
    let mut bytes = Vec::new();
    let file = open_chunk(path).map_err(failed)?;
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Bytes::from(bytes))
}

fn unpack(packed: &[u8], id: Id, len: u64, algorithm: Algorithm) -> Result<Bytes, RemoteError> {
    let bad = |what: &str| RemoteError::BadChunk {
        reason: format!("chunk {} {what}", name_of(&id)[1]),
    };
    if packed.starts_with(b"\xfd7zXZ\0") || packed.starts_with(b"\x1f\x8b") {
        return Err(bad(
            "is compressed by xz or gzip: a store by zstd can be read",
        ));
    }
    // One byte more than there should be, to see it.
    let bytes = zstd::bulk::decompress(packed, len as usize + 1)
        .map_err(|_| bad("is not compressed by zstd, or damaged"))?;
    if bytes.len() as u64 != len {
        return Err(bad("has another size than the index says"));
    }
    if algorithm.digest(&bytes) != id {
        return Err(bad("is damaged: its digest is another one"));
    }
    Ok(Bytes::from(bytes))
}
