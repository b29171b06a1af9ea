//! The one thread that runs all requests of the process, and the client of HTTP.

use crate::address::Scheme;
use crate::error::{RemoteError, innermost};
use crate::options::Timeouts;
use std::future::{Future, pending};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use tokio::runtime::{Builder, Handle};

/// Redirects that one request follows.
const MOST_REDIRECTS: usize = 10;

/// A runtime of a process, and that of a process that was forked from it.
struct Started {
    process: u32,
    handle: Result<Handle, RemoteError>,
    forked: OnceLock<Box<Self>>,
}

/// The runtime, which is started when it is needed first. A process that was forked from one that
/// has a runtime does not have its thread, and starts another one.
pub(crate) fn handle() -> Result<Handle, RemoteError> {
    static FIRST: OnceLock<Box<Started>> = OnceLock::new();
    let process = std::process::id();
    let mut place = &FIRST;
    loop {
        let started = place.get_or_init(|| {
            Box::new(Started {
                process,
                handle: start(),
                forked: OnceLock::new(),
            })
        });
        if started.process == process {
            return started.handle.clone();
        }
        place = &started.forked;
    }
}

fn start() -> Result<Handle, RemoteError> {
    // An error means that the process has chosen one already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |reason: String| RemoteError::Connection {
        reason: format!("cannot start the thread of requests: {reason}"),
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .build()
        .map_err(|e| failed(e.to_string()))?;
    let handle = runtime.handle().clone();
    thread::Builder::new()
        .name("extant-remote".to_owned())
        .spawn(move || runtime.block_on(pending::<()>()))
        .map_err(|e| failed(e.to_string()))?;
    Ok(handle)
}

/// Runs a future on the runtime's thread and waits for what comes of it.
pub(crate) fn wait_for<T: Send + 'static>(
    future: impl Future<Output = Result<T, RemoteError>> + Send + 'static,
) -> Result<T, RemoteError> {
    let (send, receive) = mpsc::sync_channel(1);
    handle()?.spawn(async move {
        // The other side waits for it.
        let _ = send.send(future.await);
    });
    receive.recv().unwrap_or(Err(RemoteError::Closed))
}

/// A client for what `scheme` names, with the limits of `timeouts`. That for plain HTTP follows
/// redirects, but none from HTTPS to HTTP. Requests to stores hold secrets that reqwest does not
/// know, and follow none.
pub(crate) fn client(scheme: Scheme, timeouts: &Timeouts) -> Result<reqwest::Client, RemoteError> {
    let redirects = reqwest::redirect::Policy::custom(|attempt| {
        let was_secure = attempt
            .previous()
            .last()
            .is_some_and(|url| url.scheme() == "https");
        if attempt.previous().len() > MOST_REDIRECTS {
            attempt.error("more than 10 redirects")
        } else if was_secure && attempt.url().scheme() != "https" {
            attempt.error("a redirect from HTTPS to plain HTTP")
        } else {
            attempt.follow()
        }
    });
    let redirects = if scheme == Scheme::Http {
        redirects
    } else {
        reqwest::redirect::Policy::none()
    };
    // The thread that makes a client may not be the runtime's; its timers are.
    let _inside = handle()?.enter();
    reqwest::Client::builder()
        .user_agent(concat!("extant/", env!("CARGO_PKG_VERSION")))
        .redirect(redirects)
        .referer(false)
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.idle)
        .tcp_nodelay(true)
        .http2_adaptive_window(true)
        .build()
        .map_err(|e| RemoteError::Settings {
            reason: innermost(&e),
        })
}
