//! Running other programs, with their peak memory.

use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a run took and how much memory it needed at its peak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Wall time in seconds.
    pub(crate) seconds: f64,
    /// Peak resident memory in bytes, where it could be read.
    pub(crate) peak_rss: Option<u64>,
}

/// Runs commands one after the other and measures them together.
///
/// # Errors
/// A command that cannot be started or does not exit with 0; its output is in the message.
pub(crate) fn measure(commands: &mut [Command]) -> io::Result<Measured> {
    let start = Instant::now();
    let mut peak = None;
    for command in commands {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot run {:?}: {e}", command.get_program()),
            )
        })?;
        peak = peak.max(finish(child, command)?);
    }
    Ok(Measured {
        seconds: start.elapsed().as_secs_f64(),
        peak_rss: peak,
    })
}

/// Waits for a child while sampling its peak memory.
fn finish(child: Child, command: &Command) -> io::Result<Option<u64>> {
    let pid = child.id();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = None;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(peak_rss_of(&pid.to_string()));
                thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        let output = child.wait_with_output();
        done.store(true, Ordering::Relaxed);
        let peak = sampler.join().unwrap_or(None);
        let output = output?;
        if output.status.success() {
            Ok(peak)
        } else {
            Err(io::Error::other(format!(
                "{command:?} ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )))
        }
    })
}

/// `VmHWM` of a process, in bytes.
fn peak_rss_of(pid: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// Measures work done in this process; its peak memory is counted from the start of the work.
///
/// # Errors
/// Those of the work.
pub(crate) fn measure_here<T>(
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(Measured, T), String> {
    // 5 resets the peak; where that is not allowed, the figure is the peak since the start.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let start = Instant::now();
    let value = work()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((
        Measured {
            seconds,
            peak_rss: peak_rss_of("self"),
        },
        value,
    ))
}
