//! Listening, how many guests there are, and the end.

use crate::connection::Connection;
use extant_fuse::Guests;
use extant_serve::listen_at;
use extant_sync::{LockClass, Mutex, Rank};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

static CONNECTIONS: LockClass = LockClass::new("connected guests", Rank::Leaf);

/// How long a guest that has gone may take to leave its place, and how often that is looked for.
const A_MOMENT: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(5);

/// Why guests cannot be served. Displays as a sentence for people.
pub use extant_serve::ServeError;

/// A socket to which virtual machine monitors connect, one for each guest.
#[derive(Debug)]
pub struct VirtioFs {
    listener: UnixListener,
    path: PathBuf,
    most: usize,
    ends: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

/// What ends a [`VirtioFs`].
#[derive(Debug, Clone)]
pub struct Stop {
    ends: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
}

impl Stop {
    /// Ends it: guests get no answers any more, but to what is under way.
    pub fn stop(&self) {
        self.ends.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Connections that there are, by number.
#[derive(Debug)]
struct Connected(Mutex<HashMap<u64, UnixStream>>);

impl VirtioFs {
    /// Listens on a socket that it makes at `path`, for up to `most` guests at a time. It is
    /// removed when this is dropped, as [`run`](Self::run) does at its end, if the process still
    /// may.
    ///
    /// # Errors
    /// Those of making the socket. One that a server left behind is replaced; one that is in use is
    /// not.
    pub fn bind(path: &Path, most: usize) -> Result<Self, ServeError> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|source| ServeError::at(path, source.into()))?;
        let listener = listen_at(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            most,
            ends: Arc::default(),
            wake: Arc::new(wake),
        })
    }

    /// Returns what ends it.
    #[must_use]
    pub fn stop(&self) -> Stop {
        Stop {
            ends: Arc::clone(&self.ends),
            wake: Arc::clone(&self.wake),
        }
    }

    /// Serves until [`Stop::stop`]. No request is under way any more then, so that the file system
    /// can be closed.
    ///
    /// # Errors
    /// When no more connections can be taken.
    pub fn run(self, guests: &Guests) -> io::Result<()> {
        let connected = Arc::new(Connected(Mutex::new(&CONNECTIONS, HashMap::new())));
        let mut threads = Vec::new();
        let served = self.take_all(guests, &connected, &mut threads);
        for stream in connected.0.lock().values() {
            // Its thread sees that nobody is there any more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
        served
    }

    /// Tells whether one more guest may come, after a moment in which one that has gone may leave
    /// its place.
    fn has_place(&self, connected: &Connected) -> bool {
        let end = Instant::now() + A_MOMENT;
        while connected.0.lock().len() >= self.most {
            if Instant::now() > end || self.ends.load(Ordering::Acquire) {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn take_all(
        &self,
        guests: &Guests,
        connected: &Arc<Connected>,
        threads: &mut Vec<JoinHandle<()>>,
    ) -> io::Result<()> {
        let mut number = 0;
        while !self.ends.load(Ordering::Acquire) {
            let mut both = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) => {}
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(e) => return Err(e.into()),
            }
            if !both[1].revents().contains(PollFlags::IN) {
                continue;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if has_gone(&e) => continue,
                // Those of the system pass: descriptors and memory come back.
                Err(e) => {
                    tracing::warn!("a guest was not taken yet: {e}");
                    std::thread::sleep(A_MOMENT);
                    continue;
                }
            };
            threads.retain(|thread| !thread.is_finished());
            if !self.has_place(connected) {
                // Its monitor says so, and does not wait.
                tracing::warn!(
                    "a guest was turned away: there are {} already (--guests)",
                    self.most
                );
                continue;
            }
            number += 1;
            match begin(number, stream, guests, connected) {
                Ok(thread) => threads.push(thread),
                Err(e) => tracing::error!("a guest was turned away: {e}"),
            }
        }
        Ok(())
    }
}

/// Tells whether an attempt to take a guest failed as there is none any more.
fn has_gone(e: &io::Error) -> bool {
    let gone = [Errno::AGAIN, Errno::INTR, Errno::CONNABORTED];
    gone.iter()
        .any(|gone| e.raw_os_error() == Some(gone.raw_os_error()))
}

fn begin(
    number: u64,
    stream: UnixStream,
    guests: &Guests,
    connected: &Arc<Connected>,
) -> io::Result<JoinHandle<()>> {
    // Reading from it waits: it is not as the listening socket in that.
    let another = stream.try_clone()?;
    let connection = Connection::new(stream, Arc::new(guests.join()))?;
    connected.0.lock().insert(number, another);
    let connected = Arc::clone(connected);
    let thread = Builder::new().name("extant-monitor".to_owned());
    let place = Place(connected, number);
    // Where there is no thread, the closure is dropped with all it has.
    thread.spawn(move || {
        let _place = place;
        if let Err(e) = connection.run() {
            tracing::warn!("the connection of a guest ended: {e}");
        }
    })
}

/// The place of a connection among all, which is free when this is dropped.
#[derive(Debug)]
struct Place(Arc<Connected>, u64);

impl Drop for Place {
    fn drop(&mut self) {
        let stream = self.0.0.lock().remove(&self.1);
        drop(stream);
    }
}

impl Drop for VirtioFs {
    fn drop(&mut self) {
        // Where the process is confined, it is not its to remove.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl AsFd for VirtioFs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
