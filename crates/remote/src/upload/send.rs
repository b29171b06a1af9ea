//! The requests of an upload: parts, completion, abandonment.

use super::UploadOptions;
use super::parts::Ready;
use crate::address::Address;
use crate::error::RemoteError;
use crate::options::Timeouts;
use crate::runtime;
use crate::source::{Bucket, noted, of_store, path_of};
use extant_sync::{LockClass, Mutex, Rank};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{BackoffConfig, MultipartId, ObjectStoreExt, PutPayload, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

static SENT: LockClass = LockClass::new("remote sent parts", Rank::Leaf);

/// The slowest link that a part is sent over, in bytes a second.
const SLOWEST: u64 = 64 << 10;

/// What sends the parts of one object.
#[derive(Debug)]
pub(super) struct Sender {
    bucket: Bucket,
    path: Path,
    /// `None` for an object of one part, which is sent as a whole.
    upload: Option<MultipartId>,
    sent: Mutex<Vec<Option<PartId>>>,
}

impl Sender {
    pub(super) fn begin(
        address: &Address,
        size: u64,
        part: u64,
        options: &UploadOptions,
    ) -> Result<Self, RemoteError> {
        let mut timeouts = options.timeouts;
        // The answer comes when all of the part has gone.
        timeouts.idle += Duration::from_secs(part / SLOWEST);
        let bucket = Bucket::of(
            address,
            &runtime::client(address.scheme, &timeouts)?,
            &timeouts,
            &options.settings,
            again(&timeouts),
        )?;
        let path = path_of(address)?;
        let parts = size.div_ceil(part).max(1) as usize;
        let upload = if parts > 1 {
            let (bucket, path) = (bucket.clone(), path.clone());
            Some(runtime::wait_for(async move {
                noted(bucket.parts.create_multipart(&path), of_store).await
            })?)
        } else {
            None
        };
        Ok(Self {
            bucket,
            path,
            upload,
            sent: Mutex::new(&SENT, vec![None; parts]),
        })
    }

    /// Sends a part, and tells `ended` how that ended.
    pub(super) fn spawn(
        self: &Arc<Self>,
        ready: Ready,
        ended: impl FnOnce(Result<(), RemoteError>) + Send + 'static,
    ) -> Result<(), RemoteError> {
        let sender = Arc::clone(self);
        let runtime = runtime::handle()?;
        let sending = runtime.spawn(async move { sender.send(ready).await });
        runtime.spawn(async move { ended(sending.await.unwrap_or(Err(RemoteError::Closed))) });
        Ok(())
    }

    async fn send(&self, ready: Ready) -> Result<(), RemoteError> {
        let payload = PutPayload::from(ready.bytes);
        let Some(upload) = &self.upload else {
            let put = self.bucket.objects.put(&self.path, payload);
            return noted(put, of_store).await.map(drop);
        };
        let parts = &self.bucket.parts;
        let put = parts.put_part(&self.path, upload, ready.number, payload);
        let id = noted(put, of_store).await?;
        self.sent.lock()[ready.number] = Some(id);
        Ok(())
    }

    /// Gives the object its name: all parts have been sent.
    pub(super) fn complete(self: &Arc<Self>) -> Result<(), RemoteError> {
        let Some(upload) = self.upload.clone() else {
            return Ok(());
        };
        let parts: Option<Vec<PartId>> = self.sent.lock().iter().cloned().collect();
        let parts = parts.ok_or(RemoteError::Closed)?;
        let sender = Arc::clone(self);
        runtime::wait_for(async move {
            let work = sender
                .bucket
                .parts
                .complete_multipart(&sender.path, &upload, parts);
            noted(work, of_store).await.map(drop)
        })
    }

    /// Has the store forget the parts. If it cannot be told, they stay until it forgets them by its
    /// own rules.
    pub(super) fn abandon(self: &Arc<Self>) {
        let Some(upload) = self.upload.clone() else {
            return;
        };
        let sender = Arc::clone(self);
        let _ = runtime::wait_for(async move {
            let work = sender.bucket.parts.abort_multipart(&sender.path, &upload);
            noted(work, of_store).await
        });
    }
}

/// How `object_store` repeats what fails.
fn again(timeouts: &Timeouts) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: if timeouts.retry.is_zero() { 0 } else { 8 },
        retry_timeout: timeouts.retry + timeouts.idle,
    }
}
