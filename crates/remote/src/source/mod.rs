//! One range of one object, asked for once.
//!
//! | file | owns |
//! |---|---|
//! | `http` | plain HTTP servers |
//! | `store` | S3, Google and Azure, by `object_store` |
//! | `transport` | the HTTP below `object_store`, with limits of its own |
//! | `range` | what the headers of an answer to a request for a range say |

mod http;
mod range;
mod store;
mod transport;

pub(crate) use http::HttpSource;
pub(crate) use store::{Bucket, StoreSource, of_store, path_of};
pub(crate) use transport::noted;

use crate::error::RemoteError;
use bytes::Bytes;
use std::ops::Range;

/// What an object was when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) etag: Option<String>,
    pub(crate) version: Option<String>,
    /// As the server writes it, or as the client of the store read it.
    pub(crate) modified: Option<String>,
}

impl Pin {
    /// The ETag, if it stands for the very bytes and can be asked for.
    pub(crate) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|tag| !tag.starts_with("W/"))
    }

    /// What tells this version of the object from others, for caches that last; `None` if nothing
    /// does.
    pub(crate) fn identity(&self) -> Option<String> {
        // S3 says `null` where versions are not kept: for one object after the other.
        let version = self.version.as_deref().filter(|version| *version != "null");
        let etag = self.strong_etag();
        if version.is_none() && etag.is_none() {
            return None;
        }
        let modified = self.modified.as_deref();
        Some(format!("{:?}", (version, etag, self.size, modified)))
    }

    /// Compares what an answer says with what was found at the beginning.
    fn check(&self, now: &Pin) -> Result<(), RemoteError> {
        let changed = |what: String| Err(RemoteError::Changed { what });
        if now.size != self.size {
            return changed(format!("it had {} bytes and has {}", self.size, now.size));
        }
        match (&self.etag, &now.etag) {
            (Some(then), Some(now)) if then != now => {
                return changed(format!("its ETag was {then} and is {now}"));
            }
            (Some(then), None) => {
                return changed(format!("its ETag was {then} and it has none now"));
            }
            _ => {}
        }
        match (&self.modified, &now.modified) {
            // A strong ETag decides where there is one: servers of one name may differ in times.
            (Some(then), Some(now)) if self.strong_etag().is_none() && then != now => {
                changed(format!("its time of change was {then} and is {now}"))
            }
            _ => Ok(()),
        }
    }
}

/// The beginning of an object, and what it is.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) pin: Pin,
    /// As many of the first bytes as were asked for, or all.
    pub(crate) bytes: Bytes,
}

/// An object that can be asked for ranges.
#[derive(Debug)]
pub(crate) enum Source {
    Http(HttpSource),
    Store(StoreSource),
}

/// Takes the bytes of a range as they come.
pub(crate) trait Sink: Send {
    /// Takes the next bytes.
    fn take(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn take(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Source {
    /// Finds out what the object is, with its first `want` bytes, in one round trip where the
    /// server allows it.
    pub(crate) async fn begin(&self, want: u64) -> Result<Beginning, RemoteError> {
        match self {
            Self::Http(source) => source.begin(want).await,
            Self::Store(source) => source.begin(want).await,
        }
    }

    /// Gives the bytes of a range of the object that `pin` describes to `sink`. On failure some of
    /// them may have been given.
    pub(crate) async fn fetch(
        &self,
        range: Range<u64>,
        pin: &Pin,
        sink: &mut dyn Sink,
    ) -> Result<(), RemoteError> {
        match self {
            Self::Http(source) => source.fetch(range, pin, sink).await,
            Self::Store(source) => source.fetch(range, pin, sink).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pin;

    fn pin(size: u64, etag: Option<&str>, modified: Option<&str>) -> Pin {
        Pin {
            size,
            etag: etag.map(str::to_owned),
            modified: modified.map(str::to_owned),
            version: None,
        }
    }

    #[test]
    fn another_version_is_told_by_size_etag_or_time() {
        let with_etag = pin(9, Some("\"a\""), Some("Monday"));
        let with_time = pin(9, None, Some("Monday"));
        assert!(
            with_etag
                .check(&pin(9, Some("\"a\""), Some("Tuesday")))
                .is_ok()
        );
        assert!(
            with_etag
                .check(&pin(9, Some("\"b\""), Some("Monday")))
                .is_err()
        );
        assert!(with_etag.check(&pin(9, None, Some("Monday"))).is_err());
        assert!(
            with_etag
                .check(&pin(8, Some("\"a\""), Some("Monday")))
                .is_err()
        );
        assert!(with_time.check(&pin(9, None, Some("Monday"))).is_ok());
        assert!(with_time.check(&pin(9, None, Some("Tuesday"))).is_err());
        let weak = pin(9, Some("W/\"a\""), Some("Monday"));
        assert!(weak.check(&weak).is_ok());
        assert!(
            weak.check(&pin(9, Some("W/\"a\""), Some("Tuesday")))
                .is_err()
        );
    }

    #[test]
    fn weak_etags_are_no_identity() {
        assert!(pin(9, Some("W/\"a\""), None).identity().is_none());
        assert!(pin(9, Some("\"a\""), None).identity().is_some());
    }

    #[test]
    fn all_that_is_known_is_the_identity() {
        let versioned = |version: &str, etag, modified| Pin {
            version: Some(version.to_owned()),
            ..pin(9, etag, modified)
        };
        let all = [
            versioned("null", Some("\"a\""), Some("Monday")),
            versioned("null", Some("\"b\""), Some("Monday")),
            versioned("null", Some("\"a\""), Some("Tuesday")),
            versioned("v1", Some("\"a\""), Some("Monday")),
            versioned("v1", None, None),
            pin(8, Some("\"a\""), Some("Monday")),
        ];
        let found: std::collections::HashSet<_> =
            all.iter().map(|pin| pin.identity().unwrap()).collect();
        assert_eq!(found.len(), all.len());
        assert!(versioned("null", None, Some("Monday")).identity().is_none());
    }
}
