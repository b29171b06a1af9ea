//! Leaving Python for the engine, and coming back.
//!
//! # The GIL
//!
//! The engine has locks, and waits for them. So no thread is inside the engine with the GIL: each
//! call gives it up first ([`outside`]). A device that is a Python object takes it for the time of
//! a transfer; that thread may hold locks of the engine, and none that holds the GIL waits for
//! those.
//!
//! Python code of such a device that uses the file system on it would wait for itself. That is
//! refused ([`Busy`]). It may use another one, as where an image lies in an image: a thread of its
//! own goes there, so that no thread has locks of two engines.
//!
//! # Exceptions of devices
//!
//! To the engine an exception of a device is a failed transfer. It is kept, and is the cause of the
//! exception that the call ends with. `KeyboardInterrupt` and the like end the call themselves.
//!
//! # Processes
//!
//! A process that was forked has a copy of every file system, and none of the threads. What is open
//! for writing belongs to the process that opened it ([`process`]): both would write to one image.

use crate::error::Failure;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::resume_unwind;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often a long call looks whether it shall end.
const LOOK: Duration = Duration::from_millis(50);

thread_local! {
    /// How many calls this thread is in.
    static CALLS: Cell<usize> = const { Cell::new(0) };
    /// What a device raised in the call that this thread is in.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// The devices whose Python code this thread runs.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The number of this process, as [`note_process`] learned it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The number of this process.
pub(crate) fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

/// Learns the number of this process: at the start, and in a process that was forked.
#[pyfunction]
pub(crate) fn note_process() {
    PROCESS.store(process::id(), Ordering::Relaxed);
}

/// Does work of the engine without the GIL.
pub(crate) fn outside<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    let done = py.detach(|| apart(|| counted(work)));
    let (done, raised) = done.map_err(|e| e.raise(py))?;
    finish(py, done.map_err(Into::into), raised)
}

/// Lets go of something that may have work to do in the engine.
pub(crate) fn let_go<T: Send>(value: T) {
    let mut value = Some(value);
    // Where Python has ended nothing is left to wait for.
    Python::try_attach(|py| py.detach(|| apart(|| drop(value.take()))).is_ok());
}

/// Does work of an engine in a thread that has no locks of another.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let inside = INSIDE.with_borrow(Vec::clone);
    if inside.is_empty() {
        return Ok(work());
    }
    thread::scope(|scope| {
        let worker = thread::Builder::new().spawn_scoped(scope, move || {
            INSIDE.set(inside);
            work()
        });
        let worker = worker.map_err(no_thread)?;
        Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn no_thread(e: io::Error) -> Failure {
    Failure {
        errno: e.raw_os_error().unwrap_or(extant::errno::EIO),
        ..Failure::invalid(format!("cannot start a thread: {e}"))
    }
}

/// Does work of the engine that may take long: it goes on in a thread of its own while this one
/// looks for signals. One that raises, such as Ctrl-C, calls `stop`, and the exception is raised
/// when the work has ended.
pub(crate) fn outside_for_long<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    stop: impl Fn() + Send + Sync,
    work: impl FnOnce() -> Result<T, E> + Send,
) -> PyResult<T> {
    let inside = INSIDE.with_borrow(Vec::clone);
    let (interrupt, done) = py.detach(|| {
        thread::scope(|scope| {
            let (tell, told) = channel::<()>();
            let worker = thread::Builder::new().spawn_scoped(scope, move || {
                // Dropped, and so told, when the work ends, however it does.
                let _tell = tell;
                INSIDE.set(inside);
                counted(work)
            });
            let worker = match worker {
                Ok(worker) => worker,
                Err(e) => return (None, Err(no_thread(e))),
            };
            let mut interrupt = None;
            while let Err(RecvTimeoutError::Timeout) = told.recv_timeout(LOOK) {
                if interrupt.is_none()
                    && let Some(Err(e)) = Python::try_attach(|py| py.check_signals())
                {
                    interrupt = Some(e);
                    stop();
                }
            }
            let (done, raised) = worker.join().unwrap_or_else(|panic| resume_unwind(panic));
            (interrupt, Ok((done, raised)))
        })
    });
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    let (done, raised) = done.map_err(|e| e.raise(py))?;
    finish(py, done.map_err(Into::into), raised)
}

fn counted<T>(work: impl FnOnce() -> T) -> (T, Option<PyErr>) {
    CALLS.set(CALLS.get() + 1);
    // A call within a call, of a device's code, has an exception of its own.
    let before = RAISED.take();
    let ended = Ended;
    let done = work();
    drop(ended);
    (done, RAISED.replace(before))
}

/// Counts a call out, also where it panics.
struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        CALLS.set(CALLS.get().saturating_sub(1));
    }
}

fn finish<T>(py: Python<'_>, done: Result<T, Failure>, raised: Option<PyErr>) -> PyResult<T> {
    if let Some(raised) = raised {
        if !raised.is_instance_of::<PyException>(py) {
            return Err(raised);
        }
        return done.map_err(|e| {
            let e = e.raise(py);
            e.set_cause(py, Some(raised));
            e
        });
    }
    done.map_err(|e| e.raise(py))
}

/// Keeps what a device raised, for the call that this thread is in.
pub(crate) fn keep(py: Python<'_>, raised: PyErr) {
    if CALLS.get() == 0 {
        // A thread of the engine: nobody is there to be told.
        raised.write_unraisable(py, None);
        return;
    }
    RAISED.with_borrow_mut(|kept| {
        kept.get_or_insert(raised);
    });
}

/// The time in which this thread runs Python code of a device.
pub(crate) struct Busy;

impl Busy {
    /// Says that this thread begins to run Python code of the device.
    pub(crate) fn with(device: usize) -> Self {
        INSIDE.with_borrow_mut(|inside| inside.push(device));
        Self
    }

    /// Refuses a call from the code of the device that it is about.
    pub(crate) fn refuse(device: usize) -> PyResult<()> {
        if INSIDE.with_borrow(|inside| inside.contains(&device)) {
            return Err(PyRuntimeError::new_err(
                "the file that the file system lies on uses that file system: it would wait for \
                 itself",
            ));
        }
        Ok(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(Vec::pop);
    }
}
