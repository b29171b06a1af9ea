//! Objects of plain HTTP servers.
//!
//! The first request asks for the first bytes, whose answer says what the object is: one round trip
//! where a `HEAD` would cost another. Where it was sent to by redirects is asked from then on; if
//! that place refuses later (addresses that are signed expire), the way is gone again once.

use super::range::{self, ContentRange};
use super::{Beginning, Pin, Sink};
use crate::address::{Address, percent_decoded};
use crate::error::{RemoteError, of_client};
use bytes::Bytes;
use extant_sync::{LockClass, Mutex, Rank};
use reqwest::header::{ACCEPT_ENCODING, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use std::fmt;
use std::ops::Range;

static CURRENT: LockClass = LockClass::new("remote url", Rank::Leaf);

const ADVICE: &str =
    "a user name and password may stand in the URL (https://USER:PASSWORD@HOST/...)";

/// User and password, as the URL has them.
struct User {
    name: String,
    password: Option<String>,
}

/// Shows neither.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("User")
    }
}

/// An object behind HTTP.
#[derive(Debug)]
pub(crate) struct HttpSource {
    client: Client,
    /// Without user and password.
    first: Url,
    /// User and password of the first URL, for all that is asked of its origin.
    user: Option<User>,
    /// Where the first URL leads to.
    current: Mutex<Url>,
}

impl HttpSource {
    pub(crate) fn new(client: Client, address: &Address) -> Self {
        let mut first = address.url.clone();
        let decoded = |text: &str| percent_decoded(text).unwrap_or_else(|| text.to_owned());
        let password = first.password().map(decoded);
        let has_user = !first.username().is_empty() || password.is_some();
        let user = has_user.then(|| User {
            name: decoded(first.username()),
            password,
        });
        // Neither can fail where there is a host.
        let _ = first.set_username("");
        let _ = first.set_password(None);
        Self {
            client,
            current: Mutex::new(&CURRENT, first.clone()),
            first,
            user,
        }
    }

    pub(super) async fn begin(&self, want: u64) -> Result<Beginning, RemoteError> {
        let asked = 0..want;
        let request = self.get(self.first.clone(), &asked);
        let response = request.send().await.map_err(of_client)?;
        *self.current.lock() = response.url().clone();
        let headers = response.headers();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                range::check_encoding(headers)?;
                let (given, size) = match ContentRange::of(headers) {
                    Some(ContentRange {
                        range: Some(given),
                        size,
                    }) => (given, size),
                    _ => return Err(no_range()),
                };
                let size = match size {
                    Some(size) => size,
                    None => self.ask_size().await?.size,
                };
                let pin = range::pin_of(response.headers(), size);
                let expected = 0..want.min(size);
                if given != expected {
                    return Err(wrong_range(&expected, &given));
                }
                let mut bytes = Vec::new();
                receive(response, expected.end, &mut bytes).await?;
                Ok(Beginning {
                    pin,
                    bytes: Bytes::from(bytes),
                })
            }
            // The whole of it is what was asked for.
            StatusCode::OK if range::content_length(headers).is_some_and(|len| len <= want) => {
                range::check_encoding(headers)?;
                let size = range::content_length(headers).unwrap_or_default();
                let pin = range::pin_of(headers, size);
                let mut bytes = Vec::new();
                receive(response, size, &mut bytes).await?;
                Ok(Beginning {
                    pin,
                    bytes: Bytes::from(bytes),
                })
            }
            StatusCode::OK => Err(RemoteError::IgnoresRanges),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let pin = match ContentRange::of(headers).and_then(|c| c.size) {
                    Some(0) => range::pin_of(headers, 0),
                    _ => self.ask_size().await?,
                };
                if pin.size != 0 {
                    return Err(RemoteError::IgnoresRanges);
                }
                Ok(Beginning {
                    pin,
                    bytes: Bytes::new(),
                })
            }
            _ => Err(refused(&response)),
        }
    }

    /// Asks for the headers only.
    async fn ask_size(&self) -> Result<Pin, RemoteError> {
        let url = self.current.lock().clone();
        let request = self.request(Method::HEAD, url);
        let response = request.send().await.map_err(of_client)?;
        if response.status() != StatusCode::OK {
            return Err(refused(&response));
        }
        range::check_encoding(response.headers())?;
        let size = range::content_length(response.headers()).ok_or(RemoteError::BadAnswer {
            reason: "it does not say how large the object is".to_owned(),
        })?;
        Ok(range::pin_of(response.headers(), size))
    }

    pub(super) async fn fetch(
        &self,
        asked: Range<u64>,
        pin: &Pin,
        sink: &mut dyn Sink,
    ) -> Result<(), RemoteError> {
        let url = self.current.lock().clone();
        let moved = url != self.first;
        let mut response = self.ask(url, &asked, pin).await?;
        let may_have_expired = matches!(
            response.status(),
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::GONE
                | StatusCode::BAD_REQUEST
        );
        if moved && may_have_expired {
            response = self.ask(self.first.clone(), &asked, pin).await?;
            *self.current.lock() = response.url().clone();
        }
        let headers = response.headers();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                range::check_encoding(headers)?;
                let Some(ContentRange {
                    range: Some(given),
                    size,
                }) = ContentRange::of(headers)
                else {
                    return Err(no_range());
                };
                pin.check(&range::pin_of(headers, size.unwrap_or(pin.size)))?;
                if given != asked {
                    return Err(wrong_range(&asked, &given));
                }
            }
            StatusCode::OK if asked == (0..pin.size) => {
                range::check_encoding(headers)?;
                let size = range::content_length(headers).unwrap_or(pin.size);
                pin.check(&range::pin_of(headers, size))?;
            }
            StatusCode::OK => {
                let size = range::content_length(headers).unwrap_or(pin.size);
                pin.check(&range::pin_of(headers, size))?;
                return Err(RemoteError::IgnoresRanges);
            }
            StatusCode::PRECONDITION_FAILED => {
                return Err(RemoteError::Changed {
                    what: "the server has another version of it".to_owned(),
                });
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                let size = ContentRange::of(headers).and_then(|c| c.size);
                let now = size.map_or("fewer".to_owned(), |size| size.to_string());
                return Err(RemoteError::Changed {
                    what: format!("it had {} bytes and has {now}", pin.size),
                });
            }
            _ => return Err(refused(&response)),
        }
        receive(response, asked.end - asked.start, sink).await
    }

    async fn ask(&self, url: Url, asked: &Range<u64>, pin: &Pin) -> Result<Response, RemoteError> {
        let mut request = self.get(url, asked);
        if let Some(etag) = pin.strong_etag() {
            request = request.header(IF_MATCH, etag);
        } else if let Some(modified) = &pin.modified {
            request = request.header(IF_UNMODIFIED_SINCE, modified);
        }
        request.send().await.map_err(of_client)
    }

    fn get(&self, url: Url, asked: &Range<u64>) -> RequestBuilder {
        self.request(Method::GET, url)
            .header(RANGE, format!("bytes={}-{}", asked.start, asked.end - 1))
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let is_origin = url.origin() == self.first.origin();
        let request = self.client.request(method, url);
        let request = request.header(ACCEPT_ENCODING, "identity");
        match &self.user {
            Some(user) if is_origin => request.basic_auth(&user.name, user.password.as_ref()),
            _ => request,
        }
    }
}

/// Gives the body to `sink`, which is to get exactly `wanted` bytes.
async fn receive(
    mut response: Response,
    wanted: u64,
    sink: &mut dyn Sink,
) -> Result<(), RemoteError> {
    let mut got = 0;
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) if got == wanted => return Ok(()),
            Ok(None) => return Err(RemoteError::Truncated { got, wanted }),
            Err(e) if e.is_timeout() => return Err(of_client(e)),
            Err(_) => return Err(RemoteError::Truncated { got, wanted }),
        };
        got += chunk.len() as u64;
        if got > wanted {
            return Err(RemoteError::BadAnswer {
                reason: format!("more than the {wanted} bytes that were asked for came"),
            });
        }
        sink.take(&chunk);
    }
}

fn no_range() -> RemoteError {
    RemoteError::BadAnswer {
        reason: "it is a part (status 206) and does not say which (Content-Range)".to_owned(),
    }
}

fn wrong_range(asked: &Range<u64>, given: &Range<u64>) -> RemoteError {
    RemoteError::BadAnswer {
        reason: format!(
            "bytes {} to {} were asked for, and bytes {} to {} came",
            asked.start, asked.end, given.start, given.end
        ),
    }
}

/// What an answer that brings no bytes means. Its body is not read.
fn refused(response: &Response) -> RemoteError {
    let status = response.status();
    match status.as_u16() {
        code @ (404 | 410) => RemoteError::Missing { status: code },
        code @ (401 | 403 | 407) => RemoteError::Denied {
            status: code,
            code: None,
            advice: ADVICE,
        },
        code => RemoteError::Status {
            status: code,
            code: None,
            retry_after: range::retry_after(response.headers()),
        },
    }
}
