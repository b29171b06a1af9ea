//! Running other programs, with their peak memory.

use crate::locks::LockTable;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a run took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// The result, in the unit of the workload.
    pub(crate) value: f64,
    /// Peak resident memory in bytes, where it could be read.
    pub(crate) peak_rss: Option<u64>,
    /// What explains the result, by name.
    pub(crate) figures: Figures,
    /// Lock statistics, where they were asked for.
    pub(crate) locks: Option<LockTable>,
}

/// Numbers beside the result, by name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

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
        value: start.elapsed().as_secs_f64(),
        peak_rss: peak,
        ..Measured::default()
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

/// Starts counting this process's peak memory anew.
pub(crate) fn reset_peak_rss() {
    // 5 resets the peak; where that is not allowed, the figure is the peak since the start.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// This process's peak memory since [`reset_peak_rss`], in bytes.
pub(crate) fn own_peak_rss() -> Option<u64> {
    peak_rss_of("self")
}

/// Measures work done in this process; its peak memory is counted from the start of the work.
///
/// # Errors
/// Those of the work.
pub(crate) fn measure_here<T>(
    work: impl FnOnce() -> Result<T, String>,
) -> Result<(Measured, T), String> {
    reset_peak_rss();
    let start = Instant::now();
    let value = work()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((
        Measured {
            value: seconds,
            peak_rss: own_peak_rss(),
            ..Measured::default()
        },
        value,
    ))
}
