//! What the headers of an answer to a request for a range say (RFC 9110, sections 14 and 15).

use super::Pin;
use crate::error::RemoteError;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
    RETRY_AFTER,
};
use std::ops::Range;
use std::time::Duration;

/// The longest time that a server is believed to ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// `Content-Range: bytes FIRST-LAST/SIZE`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    /// The bytes that follow; `None` in an answer that has none (416).
    pub(super) range: Option<Range<u64>>,
    /// Size of the object, if the server says it.
    pub(super) size: Option<u64>,
}

impl ContentRange {
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(CONTENT_RANGE)?.to_str().ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let size = match size.trim() {
            "*" => None,
            number => Some(number.parse().ok()?),
        };
        let range = match range.trim() {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-')?;
                let first: u64 = first.trim().parse().ok()?;
                let end = last.trim().parse::<u64>().ok()?.checked_add(1)?;
                if end <= first || size.is_some_and(|size| end > size) {
                    return None;
                }
                Some(first..end)
            }
        };
        Some(Self { range, size })
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// What the headers say of the object, whose size is known from elsewhere.
pub(super) fn pin_of(headers: &HeaderMap, size: u64) -> Pin {
    Pin {
        size,
        etag: text(headers, ETAG),
        version: None,
        modified: text(headers, LAST_MODIFIED),
    }
}

pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Refuses an answer whose bytes are not those of the object.
pub(super) fn check_encoding(headers: &HeaderMap) -> Result<(), RemoteError> {
    match text(headers, CONTENT_ENCODING) {
        Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => {
            Err(RemoteError::BadAnswer {
                reason: format!("it is compressed ({encoding}), which was not asked for"),
            })
        }
        _ => Ok(()),
    }
}

/// What `Retry-After` asks for, if it is a number of seconds; no more than is ever waited.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = text(headers, RETRY_AFTER)?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::ContentRange;

    #[test]
    fn content_ranges_are_read_as_written_or_not_at_all() {
        let parsed = |text| ContentRange::parse(text).map(|c| (c.range, c.size));
        assert_eq!(parsed("bytes 0-9/20"), Some((Some(0..10), Some(20))));
        assert_eq!(parsed("bytes 5-5/*"), Some((Some(5..6), None)));
        assert_eq!(parsed("bytes */0"), Some((None, Some(0))));
        for bad in [
            "bytes 9-0/20",
            "bytes 0-20/20",
            "items 0-9/20",
            "bytes 0-9",
            "bytes -9/20",
            "bytes 0-18446744073709551615/*",
            "bytes 0-9/99999999999999999999999",
            "",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
