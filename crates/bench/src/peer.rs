//! Running other programs, with their peak memory.

use crate::locks::LockTable;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
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
        let child = command.spawn().map_err(|e| cannot_run(command, &e))?;
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
    let (output, peak) = while_sampling(child.id(), || child.wait_with_output());
    succeeded(&output?, command)?;
    Ok(peak)
}

/// Does `work` while sampling the peak memory of a process.
fn while_sampling<T>(pid: u32, work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = None;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(peak_rss_of(&pid.to_string()));
                thread::park_timeout(Duration::from_millis(5));
            }
            peak
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        // Whoever waits for it takes the time.
        sampler.thread().unpark();
        (result, sampler.join().unwrap_or(None))
    })
}

/// Expects that a command ended with 0; what it said is in the error.
fn succeeded(output: &Output, command: &Command) -> io::Result<()> {
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

/// Runs a command for what it says, and measures the time from `start` to the first byte of that,
/// in seconds.
///
/// # Errors
/// A command that cannot be started, says nothing, or does not exit with 0; what it says of that is
/// in the message.
pub(crate) fn first_byte(start: Instant, command: &mut Command) -> io::Result<(Measured, Vec<u8>)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| cannot_run(command, &e))?;
    let mut said = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (done, peak_rss) = while_sampling(child.id(), || {
        let mut bytes = vec![0];
        let first = said.read_exact(&mut bytes).map(|()| start.elapsed());
        let rest = said.read_to_end(&mut bytes);
        Ok::<_, io::Error>((first, rest, bytes, child.wait_with_output()?))
    });
    let (first, rest, bytes, output) = done?;
    succeeded(&output, command)?;
    rest?;
    let first = first.map_err(|e| io::Error::new(e.kind(), format!("{command:?} says nothing")))?;
    let measured = Measured {
        value: first.as_secs_f64(),
        peak_rss,
        ..Measured::default()
    };
    Ok((measured, bytes))
}

fn cannot_run(command: &Command, error: &io::Error) -> io::Error {
    let program = command.get_program();
    io::Error::new(error.kind(), format!("cannot run {program:?}: {error}"))
}

/// `VmHWM` of a process, in bytes.
pub(crate) fn peak_rss_of(pid: &str) -> Option<u64> {
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
