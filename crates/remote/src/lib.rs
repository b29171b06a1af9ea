//! Images in object stores and behind HTTP, read in ranges and written in parts.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! [`open`] makes a read-only [`BlockDevice`](extant_blockdev::BlockDevice) of an object. The
//! calls block; one thread of the crate's own runs all requests of the process.
//!
//! | module | owns |
//! |---|---|
//! | `address` | what a URL names, and what of it may be told |
//! | `options` | limits: memory, requests in flight, times |
//! | `runtime` | the one thread with the runtime, and the HTTP client |
//! | `source` | one range of one object, asked for once: HTTP and the stores |
//! | `attempts` | asking again after failures that pass |
//! | `pieces` | which pieces are in memory, which are coming, which go |
//! | `fetch` | bringing pieces: runs of neighbours in one request, many at a time |
//! | `streams` | what is read in sequence, and how far ahead of it to read |
//! | `disk` | pieces that stay on a local disk, for several processes |
//! | `upload` | writing an object in parts |
//! | `chunks` | images in the chunk stores of casync and desync |
//! | `device` | the block device |
//! | `error` | what can go wrong, as sentences |
//!
//! # Invariants
//!
//! - The object that is read is the one that was opened: each answer is compared with the size, the
//!   ETag and the time of change found then, and each request asks for that version where the
//!   server can tell.
//! - A piece is asked for once, however many threads need it.
//! - No lock is held while something is waited for.
//! - Errors and names of devices hold no password, token or signature.

#![forbid(unsafe_code)]

mod address;
mod attempts;
mod chunks;
mod device;
mod disk;
mod error;
mod fetch;
mod options;
mod pieces;
mod runtime;
mod source;
mod streams;
mod upload;

pub use chunks::{ChunkOptions, ChunkReport, ChunkSizes, make as make_chunks};
pub use error::RemoteError;
pub use options::{RemoteOptions, StoreSettings, Timeouts};
pub use upload::{ObjectWriter, UploadOptions, create};

use extant_blockdev::{BlockDevice, DeviceResult, SharedDevice};
use std::ffi::{OsStr, OsString};

/// Opens the object that `url` names, for reading.
///
/// `http://` and `https://` URLs are asked for as they are; a user name and password in one are
/// sent by Basic authentication. `s3://BUCKET/KEY`, `gs://BUCKET/KEY` and `az://CONTAINER/KEY`
/// take credentials and endpoint from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`,
/// `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and their kin).
///
/// # Errors
/// `Open` with a [`RemoteError`] inside: the URL cannot be read, there is no such object, it may
/// not be read, or the server cannot give parts of it.
pub fn open(url: &str, options: RemoteOptions) -> DeviceResult<SharedDevice> {
    device::open(url, options)
}

/// Opens an image that is kept in chunks, for reading: `index` holds its index (`.caibx`, of casync
/// or desync), `store` is the directory or URL of the store with the chunks, usually
/// [`chunk_store_beside`] the index. Chunks are fetched when they are read, and each is compared
/// with its digest.
///
/// # Errors
/// `Open` with a [`RemoteError`] inside: the index cannot be used, or the store's URL names
/// nothing.
pub fn open_chunks(
    index: &dyn BlockDevice,
    store: &OsStr,
    options: RemoteOptions,
) -> DeviceResult<SharedDevice> {
    chunks::open(index, store, options)
}

/// Returns the store that casync and desync look for where none is named: `default.castr` beside
/// the index, whose path or URL is given.
#[must_use]
pub fn chunk_store_beside(index: &OsStr) -> OsString {
    chunks::store_beside(index)
}
