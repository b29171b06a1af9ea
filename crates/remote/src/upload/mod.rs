//! Writing an object in parts, in any order, without a local copy where the order allows it.
//!
//! | file | owns |
//! |---|---|
//! | `parts` | what of which part has been written, and where it is until it is sent |
//! | `send` | the requests: parts, completion, abandonment |
//!
//! A part is sent as soon as all of it has been written; one that is the whole object is sent at
//! the end. Parts with gaps stay in memory up to a bound; what is beyond lies in a temporary file
//! without a name until the end, when gaps are zeroes.
//!
//! # Invariants
//! - Nothing appears under the name of the object before [`ObjectWriter::finish`] has succeeded.
//! - Memory is bounded by the options, whatever the order of writes.
//! - What was sent is not written again: such a write is refused.

mod parts;
mod send;

use crate::address::{Address, Scheme, shown_text};
use crate::error::RemoteError;
use crate::options::{StoreSettings, Timeouts};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult, SharedDevice};
use extant_sync::{Condvar, LockClass, Mutex, Rank};
use parts::{Parts, Ready};
use send::Sender;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The smallest part: large enough for every store.
const SMALLEST_PART: u64 = 8 << 20;
/// The most parts that S3 takes.
const MOST_PARTS: u64 = 10_000;

static UPLOAD: LockClass = LockClass::new("remote upload", Rank::DeviceQueue);

/// How an object is written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UploadOptions {
    /// Bytes of unfinished parts in memory; at least two parts are. The default is 128 MiB.
    pub memory_bytes: u64,
    /// Where the temporary file lies that holds what does not fit. The default is the system's
    /// directory for such files.
    pub temporary_dir: PathBuf,
    /// Parts that are sent at the same time. The default is 4.
    pub in_flight: usize,
    /// How long to wait, and for how long to try again.
    pub timeouts: Timeouts,
    /// What takes the place of variables of the environment.
    pub settings: StoreSettings,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 128 << 20,
            temporary_dir: std::env::temp_dir(),
            in_flight: 4,
            timeouts: Timeouts::default(),
            settings: StoreSettings::default(),
        }
    }
}

/// An object that is being written. Dropped before [`finish`](Self::finish), nothing is left of
/// it, and what had its name stays as it was.
#[derive(Debug)]
pub struct ObjectWriter {
    upload: Arc<Upload>,
}

/// Begins to write the object that `url` names, of `size` bytes, to a store (`s3://`, `gs://`,
/// `az://`; credentials as for [`open`](crate::open)).
///
/// # Errors
/// `Open` with a [`RemoteError`] inside: the URL cannot be written to, or the store refuses.
pub fn create(url: &str, size: u64, options: UploadOptions) -> DeviceResult<ObjectWriter> {
    let begun = begin(url, size, options).map_err(|e| DeviceError::Open {
        op: "create",
        path: PathBuf::from(shown_text(url)),
        source: e.into_io(),
    })?;
    Ok(ObjectWriter {
        upload: Arc::new(begun),
    })
}

fn begin(url: &str, size: u64, options: UploadOptions) -> Result<Upload, RemoteError> {
    let address = Address::parse(url)?;
    let refuse = |reason: &str| {
        Err(RemoteError::BadUrl {
            reason: reason.to_owned(),
        })
    };
    if address.scheme == Scheme::Http {
        return refuse(
            "an object cannot be written over plain HTTP: write a file and upload it, or use \
             s3://, gs:// or az://",
        );
    }
    if address.version().is_some() {
        return refuse("a version of an object that exists cannot be written");
    }
    let part = part_bytes(size);
    let sender = Sender::begin(&address, size, part, &options)?;
    Ok(Upload {
        name: address.shown(),
        size,
        state: Mutex::new(
            &UPLOAD,
            State {
                parts: Parts::new(size, part, &options),
                sending: 0,
                failure: None,
                is_over: false,
            },
        ),
        changed: Condvar::new(),
        in_flight: options.in_flight.clamp(1, 64),
        sender: Arc::new(sender),
    })
}

/// Bytes of all parts but the last.
fn part_bytes(size: u64) -> u64 {
    size.div_ceil(MOST_PARTS)
        .next_multiple_of(1 << 20)
        .max(SMALLEST_PART)
}

impl ObjectWriter {
    /// Returns the device to write to: all zeroes at first, any order, each byte once. What has
    /// been sent cannot be read back.
    #[must_use]
    pub fn device(&self) -> SharedDevice {
        Arc::new(UploadDevice(Arc::clone(&self.upload)))
    }

    /// Sends what is left and gives the object its name.
    ///
    /// # Errors
    /// `Io` with a [`RemoteError`] inside; nothing then appears under the name, unless only the
    /// answer to the last request was lost.
    pub fn finish(self) -> DeviceResult<()> {
        let upload = &self.upload;
        upload
            .finish()
            .map_err(|e| upload.failed("write", 0, upload.size, e))
    }
}

impl Drop for ObjectWriter {
    fn drop(&mut self) {
        self.upload.abandon();
    }
}

#[derive(Debug)]
struct State {
    parts: Parts,
    /// Parts on their way.
    sending: usize,
    failure: Option<Arc<RemoteError>>,
    is_over: bool,
}

impl State {
    fn check(&self) -> io::Result<()> {
        if let Some(error) = &self.failure {
            return Err(io::Error::new(error.kind(), Arc::clone(error)));
        }
        if self.is_over {
            return Err(RemoteError::Closed.into_io());
        }
        Ok(())
    }
}

/// What writers share.
#[derive(Debug)]
struct Upload {
    name: String,
    size: u64,
    state: Mutex<State>,
    changed: Condvar,
    in_flight: usize,
    sender: Arc<Sender>,
}

impl Upload {
    fn failed(&self, op: &'static str, offset: u64, len: u64, source: io::Error) -> DeviceError {
        DeviceError::Io {
            op,
            device: self.name.clone(),
            offset,
            len,
            source,
        }
    }

    fn write(self: &Arc<Self>, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut state = self.state.lock();
            state.check()?;
            let (n, ready) = state.parts.write(offset, bytes)?;
            drop(state);
            if let Some(ready) = ready {
                self.send(ready)?;
            }
            offset += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Sends a complete part, as soon as not too many are on their way.
    fn send(self: &Arc<Self>, ready: Ready) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.sending >= self.in_flight && state.failure.is_none() {
            self.changed.wait(&mut state);
        }
        state.check()?;
        state.sending += 1;
        drop(state);
        let upload = Arc::clone(self);
        let began = self.sender.spawn(ready, move |result| {
            let mut state = upload.state.lock();
            state.sending -= 1;
            if let Err(error) = result {
                state.failure.get_or_insert(Arc::new(error));
            }
            upload.changed.notify_all();
        });
        began.map_err(RemoteError::into_io)
    }

    fn finish(self: &Arc<Self>) -> io::Result<()> {
        loop {
            let mut state = self.state.lock();
            state.check()?;
            let next = state.parts.take_next()?;
            drop(state);
            match next {
                Some(ready) => self.send(ready)?,
                None => break,
            }
        }
        let mut state = self.state.lock();
        while state.sending > 0 {
            self.changed.wait(&mut state);
        }
        state.check()?;
        drop(state);
        self.sender.complete().map_err(RemoteError::into_io)?;
        self.state.lock().is_over = true;
        Ok(())
    }

    /// Gives the upload up, unless it is over.
    fn abandon(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        // A part that arrives after the upload was given up could stay for ever.
        while state.sending > 0 {
            self.changed.wait(&mut state);
        }
        drop(state);
        self.sender.abandon();
    }
}

/// The object as a device.
#[derive(Debug)]
struct UploadDevice(Arc<Upload>);

impl BlockDevice for UploadDevice {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_range("read", offset, len)?;
        let state = self.0.state.lock();
        let read = state.parts.read(offset, buf);
        read.map_err(|e| self.0.failed("read", offset, len, e))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        let len = buf.len() as u64;
        self.check_writable("write", offset, len)?;
        let written = self.0.write(offset, buf);
        written.map_err(|e| self.0.failed("write", offset, len, e))
    }

    /// Succeeds: nothing is durable before the object is complete.
    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let mut state = self.0.state.lock();
        let zeroed = state
            .check()
            .and_then(|()| state.parts.zero(offset..offset + len));
        zeroed.map_err(|e| self.0.failed("zero", offset, len, e))
    }

    fn preferred_io(&self) -> u32 {
        1 << 20
    }

    fn parallel_writes(&self) -> usize {
        self.0.in_flight
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_PARTS, SMALLEST_PART, part_bytes};

    #[test]
    fn parts_are_large_enough_and_not_too_many() {
        for size in [0, 1, SMALLEST_PART, 80 << 30, 100 << 30, 5 << 40] {
            let part = part_bytes(size);
            assert!((SMALLEST_PART..=5 << 30).contains(&part));
            assert!(size.div_ceil(part) <= MOST_PARTS, "{size}");
        }
    }
}
