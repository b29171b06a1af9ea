//! What can go wrong with an object, as clauses that end a sentence about it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Why an object could not be read or written. The error of the device around it names the object.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The URL names no object.
    #[error("{reason}")]
    BadUrl {
        /// What is wrong with it, and what to write.
        reason: String,
    },
    /// The settings of a store in the environment are not enough or not right.
    #[error("the settings of the store are not right: {reason}")]
    Settings {
        /// What the client of the store says.
        reason: String,
    },
    /// There is no such object.
    #[error("there is no such object (HTTP status {status})")]
    Missing {
        /// 404 or 410.
        status: u16,
    },
    /// The object may not be read, or not by this user.
    #[error("access is denied (HTTP status {status}{}): {advice}", code.as_ref().map(|c| format!(", {c}")).unwrap_or_default())]
    Denied {
        /// 401, 403 or 407.
        status: u16,
        /// The store's own word for it.
        code: Option<String>,
        /// Where credentials come from.
        advice: &'static str,
    },
    /// The server sends the whole object when it is asked for a part.
    #[error(
        "the server gives whole objects only and ignores the range that is asked for: download \
         the object, or serve it by a server that knows ranges (nginx, Apache, an object store)"
    )]
    IgnoresRanges,
    /// The object is another one than the one that was opened.
    #[error("the object changed while it was in use ({what}): open it again")]
    Changed {
        /// What differs, with both values where they are known.
        what: String,
    },
    /// The server said no in another way.
    #[error("the server answered with HTTP status {status}{}", code.as_ref().map(|c| format!(" ({c})")).unwrap_or_default())]
    Status {
        /// The status.
        status: u16,
        /// The store's own word for it.
        code: Option<String>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The answer is not one to the question.
    #[error("the server's answer makes no sense: {reason}")]
    BadAnswer {
        /// What was found and what was expected.
        reason: String,
    },
    /// The answer ended early.
    #[error("the answer ended after {got} of {wanted} bytes")]
    Truncated {
        /// Bytes that came.
        got: u64,
        /// Bytes that were asked for.
        wanted: u64,
    },
    /// No answer, or no more of it, within the time allowed.
    #[error("no answer within {} seconds", limit.as_secs_f32())]
    TimedOut {
        /// The time allowed.
        limit: Duration,
    },
    /// No connection could be made.
    #[error("no connection to the server: {reason}")]
    Unreachable {
        /// What the system or the other side said.
        reason: String,
    },
    /// The connection broke.
    #[error("the connection failed: {reason}")]
    Connection {
        /// What the system or the other side said.
        reason: String,
    },
    /// The index of an image in chunks cannot be used.
    #[error("the index cannot be used: {reason}")]
    BadIndex {
        /// What is wrong with it.
        reason: String,
    },
    /// An image cannot be cut into chunks of such sizes.
    #[error("{reason}")]
    BadSizes {
        /// Which size is wrong, and what it may be.
        reason: String,
    },
    /// A chunk cannot be used.
    #[error("{reason}")]
    BadChunk {
        /// Which one, and what is wrong with it.
        reason: String,
    },
    /// A chunk cannot be fetched.
    #[error("cannot fetch the chunk {address}: {source}")]
    Chunk {
        /// Where it should be, without what signs the address.
        address: String,
        /// Why not.
        source: Arc<RemoteError>,
    },
    /// Attempts were made until the limit, and all failed.
    #[error("{last} (gave up after {attempts} attempts)")]
    GaveUp {
        /// How many.
        attempts: u32,
        /// How the last one failed.
        last: Arc<RemoteError>,
    },
    /// The device was closed while the request waited.
    #[error("the device was closed")]
    Closed,
}

impl RemoteError {
    /// Whether another attempt may succeed.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Truncated { .. }
            | Self::TimedOut { .. }
            | Self::Unreachable { .. }
            | Self::Connection { .. } => true,
            _ => false,
        }
    }

    /// The kind that tells a program the same.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::BadUrl { .. } | Self::Settings { .. } | Self::BadSizes { .. } => {
                io::ErrorKind::InvalidInput
            }
            Self::Missing { .. } => io::ErrorKind::NotFound,
            Self::Denied { .. } => io::ErrorKind::PermissionDenied,
            Self::IgnoresRanges => io::ErrorKind::Unsupported,
            Self::Changed { .. } => io::ErrorKind::StaleNetworkFileHandle,
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::GaveUp { last, .. } => last.kind(),
            Self::Chunk { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        }
    }

    /// As an error of the system, with this one inside.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::new(self.kind(), self)
    }
}

/// The innermost reason of an error of the client, without the URL.
pub(crate) fn of_client(error: reqwest::Error) -> RemoteError {
    if error.is_timeout() {
        let reason = "it took too long".to_owned();
        return if error.is_connect() {
            RemoteError::Unreachable { reason }
        } else {
            RemoteError::Connection { reason }
        };
    }
    if error.is_redirect() || error.is_builder() {
        return RemoteError::BadAnswer {
            reason: innermost(&error.without_url()),
        };
    }
    let is_connect = error.is_connect();
    let error = error.without_url();
    let text = innermost(&error);
    if is_connect {
        return RemoteError::Unreachable { reason: text };
    }
    // Headers without end, or such that are none: asking again gives the same.
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(e) = cause {
        if e.to_string().contains("invalid HTTP") || e.to_string().contains("message head is too") {
            return RemoteError::BadAnswer { reason: text };
        }
        cause = e.source();
    }
    RemoteError::Connection { reason: text }
}

/// The last cause of an error, which says most.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
