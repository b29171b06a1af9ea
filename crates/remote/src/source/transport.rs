//! The HTTP below `object_store`: its requests, sent by our client, with limits on what comes back,
//! and a note of how each ended.
//!
//! The errors of `object_store` hold URLs and whole answers. What is told of a failure comes from
//! the note instead.

use super::range;
use crate::error::{RemoteError, of_client};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use reqwest::header::RANGE;
use reqwest::{Client, Method, Request, Response, StatusCode, Url};
use std::cell::RefCell;
use std::future::Future;
use std::time::Duration;

/// The most bytes of an answer that is no part of an object.
const MOST_OF_AN_ANSWER: usize = 1 << 20;

tokio::task_local! {
    static NOTE: RefCell<Option<RemoteError>>;
}

/// Runs requests of `object_store`. If they fail, the error is what the last one met, or what
/// `otherwise` makes of the error of `object_store`.
pub(crate) async fn noted<T>(
    work: impl Future<Output = object_store::Result<T>>,
    otherwise: impl FnOnce(object_store::Error) -> RemoteError,
) -> Result<T, RemoteError> {
    let scoped = async {
        let result = work.await;
        let note = NOTE.with(|note| note.borrow_mut().take());
        result.map_err(|e| note.unwrap_or_else(|| otherwise(e)))
    };
    NOTE.scope(RefCell::new(None), scoped).await
}

fn note(error: Option<RemoteError>) {
    // Credentials may be fetched outside.
    let _ = NOTE.try_with(|note| *note.borrow_mut() = error);
}

/// Makes clients for `object_store`.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) client: Client,
    /// The longest time for an answer that is no part of an object.
    pub(super) limit: Duration,
    pub(super) advice: &'static str,
}

impl HttpConnector for Transport {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service {
            client: self.client.clone(),
            limit: self.limit,
            advice: self.advice,
        }))
    }
}

#[derive(Debug)]
struct Service {
    client: Client,
    limit: Duration,
    advice: &'static str,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url: Url = parts
            .uri
            .to_string()
            .parse()
            .map_err(|e| HttpError::new(HttpErrorKind::Unknown, e))?;
        let is_range = parts.method == Method::GET && parts.headers.contains_key(RANGE);
        let mut request = Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(match body.as_bytes() {
            Some(bytes) => reqwest::Body::from(bytes.clone()),
            None => reqwest::Body::wrap(body),
        });
        let sent = self.client.execute(request).await;
        let response = sent.map_err(|e| failed(of_client(e)))?;
        if is_range && response.status() == StatusCode::PARTIAL_CONTENT {
            range::check_encoding(response.headers()).map_err(failed)?;
            note(None);
            let (parts, body) = http_parts(response);
            let body = body.map_err(|e| failed(of_client(e)));
            return Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)));
        }
        let length = range::content_length(response.headers()).unwrap_or(0);
        if is_range && response.status() == StatusCode::OK && length > 0 {
            return Err(failed(RemoteError::IgnoresRanges));
        }
        self.take_whole(response).await
    }
}

impl Service {
    /// An answer that is no part of an object, with its body, and a note of what it means.
    async fn take_whole(&self, response: Response) -> Result<HttpResponse, HttpError> {
        let is_error = !response.status().is_success();
        let status = response.status().as_u16();
        let retry_after = range::retry_after(response.headers());
        let (parts, body) = http_parts(response);
        let body = match tokio::time::timeout(self.limit, collect(body)).await {
            Ok(body) => body?,
            Err(_) => return Err(failed(RemoteError::TimedOut { limit: self.limit })),
        };
        let code = code_of(&body);
        note(is_error.then(|| match status {
            404 | 410 => RemoteError::Missing { status },
            401 | 403 | 407 => RemoteError::Denied {
                status,
                code,
                advice: self.advice,
            },
            409 | 412 => RemoteError::Changed {
                what: "the store has another version of it".to_owned(),
            },
            _ => RemoteError::Status {
                status,
                code,
                retry_after,
            },
        }));
        Ok(HttpResponse::from_parts(
            parts,
            HttpResponseBody::from(body),
        ))
    }
}

/// The head and the body of an answer.
fn http_parts(response: Response) -> (http::response::Parts, reqwest::Body) {
    http::Response::<reqwest::Body>::from(response).into_parts()
}

async fn collect(mut body: reqwest::Body) -> Result<Bytes, HttpError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| failed(of_client(e)))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > MOST_OF_AN_ANSWER {
                return Err(failed(RemoteError::BadAnswer {
                    reason: format!("it is longer than {MOST_OF_AN_ANSWER} bytes"),
                }));
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// Notes a failure, and says it to `object_store`, which decides by its kind whether to try again.
fn failed(error: RemoteError) -> HttpError {
    let kind = match &error {
        RemoteError::Unreachable { .. } => HttpErrorKind::Connect,
        RemoteError::Connection { .. } => HttpErrorKind::Interrupted,
        RemoteError::TimedOut { .. } => HttpErrorKind::Timeout,
        _ => HttpErrorKind::Unknown,
    };
    note(Some(error.clone()));
    HttpError::new(kind, error)
}

/// The store's own word for an error: `<Code>` of its XML, if it is one word.
fn code_of(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    let is_word =
        !code.is_empty() && code.len() < 64 && code.bytes().all(|b| b.is_ascii_alphanumeric());
    is_word.then(|| code.to_owned())
}
