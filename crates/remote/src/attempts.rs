//! Asking again after failures that pass: with growing pauses, and for a limited time.

use crate::error::RemoteError;
use crate::options::Timeouts;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most attempts, whatever time is left.
const MOST: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A server slower than this, in bytes a second, is given up.
const SLOWEST: u64 = 16 << 10;

/// How often something was tried, and when that ends.
#[derive(Debug)]
pub(crate) struct Attempts {
    limit: Duration,
    first_failure: Option<Instant>,
    failed: u32,
    pause: Duration,
}

impl Attempts {
    pub(crate) fn new(timeouts: &Timeouts) -> Self {
        Self {
            limit: timeouts.retry,
            first_failure: None,
            failed: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// Waits until it is time for another attempt after `error`.
    ///
    /// # Errors
    /// The error to give up with: it does not pass, or the time is over.
    pub(crate) async fn pause_after(&mut self, error: RemoteError) -> Result<(), RemoteError> {
        if !error.passes() {
            return Err(error);
        }
        self.failed += 1;
        let since = self
            .first_failure
            .get_or_insert_with(Instant::now)
            .elapsed();
        let asked = match &error {
            RemoteError::Status { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let pause = jittered(self.pause).max(asked);
        let is_late = since
            .checked_add(pause)
            .is_none_or(|then| then > self.limit);
        if self.failed >= MOST || is_late {
            return Err(if self.failed == 1 {
                error
            } else {
                RemoteError::GaveUp {
                    attempts: self.failed,
                    last: Arc::new(error),
                }
            });
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Ends `work` when the transfer of `len` bytes has taken longer than any server needs.
pub(crate) async fn limited<T>(
    timeouts: &Timeouts,
    len: u64,
    work: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let limit = timeouts.connect + timeouts.idle + Duration::from_secs(len / SLOWEST);
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(RemoteError::TimedOut { limit }),
    }
}

/// Between three and five quarters of a pause, so that many do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.subsec_nanos());
    pause * (750 + nanos % 500) / 1000
}
