//! `extant mount`, by the command as a process of its own: what a user has.

use super::{PATIENCE, device_of, is_mounted};
use crate::command::Extant;
use crate::peer::Figures;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Clock ticks in a second, as `/proc/PID/stat` counts (proc(5)): 100 wherever Linux runs.
const TICKS: f64 = 100.0;

/// The figure that says how many requests there were.
pub(crate) const REQUESTS: &str = "requests per operation";
/// The figure that says how many of them came through io_uring.
pub(crate) const BY_RING: &str = "requests by io_uring per operation";

/// A mounted image; unmounted on drop.
pub(crate) struct CommandMount {
    extant: Extant,
    child: Child,
    is_mounted: bool,
    point: tempfile::TempDir,
}

/// What the processes of a mount have done since they began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    /// Requests that were answered.
    requests: u64,
    /// Those of them that came through io_uring.
    by_ring: u64,
    /// Switches to another thread.
    switches: u64,
    /// Ticks of the clock in the program, and in the kernel for it.
    ticks: [u64; 2],
}

impl Done {
    /// What happened since `before`, for so many operations.
    pub(crate) fn since(self, before: Self, operations: u64) -> Figures {
        // What ended in between has taken its own along.
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / operations.max(1) as f64;
        let micros = |which: usize| each(self.ticks[which], before.ticks[which]) / TICKS * 1e6;
        Figures::from([
            (REQUESTS, each(self.requests, before.requests)),
            (BY_RING, each(self.by_ring, before.by_ring)),
            (
                "switches of the mount per operation",
                each(self.switches, before.switches),
            ),
            ("us of the mount per operation", micros(0)),
            ("us of the kernel for it per operation", micros(1)),
        ])
    }
}

impl CommandMount {
    /// Mounts an image with these options (`-o`), which may be none.
    ///
    /// # Errors
    /// When it does not mount; what the command says goes to standard error.
    pub(crate) fn mount(extant: &Extant, image: &Path, options: &str) -> Result<Self, String> {
        let point = tempfile::Builder::new().prefix("extant-mount-").tempdir();
        let point = point.map_err(|e| format!("a mount point: {e}"))?;
        let before = device_of(point.path());
        let mut run = extant.run(["mount", "--foreground"]);
        if !options.is_empty() {
            run.args(["-o", options]);
        }
        let child = run
            .args([image, point.path()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("extant mount: {e}"))?;
        let mut mount = Self {
            extant: extant.clone(),
            child,
            is_mounted: true,
            point,
        };
        if !is_mounted(&mut mount.child, mount.point.path(), before)? {
            mount.is_mounted = false;
            return Err(format!("extant does not mount {}", image.display()));
        }
        Ok(mount)
    }

    /// The mount point.
    pub(crate) fn path(&self) -> &Path {
        self.point.path()
    }

    /// What its processes have done.
    ///
    /// # Errors
    /// Where it does not say.
    pub(crate) fn done(&self) -> Result<Done, String> {
        let stats = self.extant.run(["stats"]).arg(self.path()).output();
        let stats = stats.map_err(|e| format!("extant stats: {e}"))?;
        let told = String::from_utf8_lossy(&stats.stdout);
        if !stats.status.success() {
            let said = String::from_utf8_lossy(&stats.stderr);
            return Err(format!("extant stats: {}", said.trim()));
        }
        let mut done = counted(&told);
        for process in self.processes() {
            done.switches += switches(&process);
            for (all, own) in done.ticks.iter_mut().zip(ticks(&process)) {
                *all += own;
            }
        }
        Ok(done)
    }

    /// The process that was started, and those that it started.
    fn processes(&self) -> Vec<String> {
        let mut found = vec![self.child.id().to_string()];
        let mut at = 0;
        while let Some(process) = found.get(at) {
            let children = format!("/proc/{process}/task/{process}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            found.extend(children.split_whitespace().map(str::to_owned));
            at += 1;
        }
        found
    }

    /// Unmounts and waits until the image is complete.
    ///
    /// # Errors
    /// When it stays busy, or the command fails.
    pub(crate) fn unmount(mut self) -> Result<(), String> {
        self.release()
    }

    fn release(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.is_mounted) {
            return Ok(());
        }
        let unmounted = self.extant.run(["umount"]).arg(self.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            return Err(format!("{} stays mounted", self.path().display()));
        }
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("extant mount ended with {status}")),
                Ok(None) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
                _ => return Err("extant mount does not end".to_owned()),
            }
        }
    }
}

impl Drop for CommandMount {
    fn drop(&mut self) {
        let _ = self.release();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests in what `extant stats` says: the text format of Prometheus.
fn counted(told: &str) -> Done {
    let mut done = Done::default();
    for line in told.lines() {
        let Some((name, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let value = value.parse().unwrap_or(0);
        if name.starts_with("extant_request_seconds_count") {
            done.requests += value;
        } else if name == "extant_ring_requests_total" {
            done.by_ring = value;
        }
    }
    done
}

/// The threads of a process that work: those that keep processors awake give way to all others.
fn threads(process: &str) -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).filter(|thread| {
        let name = fs::read_to_string(thread.join("comm")).unwrap_or_default();
        !name.starts_with("extant-idle-")
    })
}

/// How often the threads of a process were switched from (proc(5), `status`).
fn switches(process: &str) -> u64 {
    threads(process)
        .filter_map(|thread| fs::read_to_string(thread.join("status")).ok())
        .map(|status| {
            let fields: BTreeMap<&str, &str> = status
                .lines()
                .filter_map(|line| line.split_once(':'))
                .collect();
            let field = |name| {
                let value: Option<u64> = fields.get(name).and_then(|n| n.trim().parse().ok());
                value.unwrap_or(0)
            };
            field("voluntary_ctxt_switches") + field("nonvoluntary_ctxt_switches")
        })
        .sum()
}

/// Ticks of the threads of a process in themselves and in the kernel (proc(5), `stat`): the 14th
/// and 15th field, the 12th and 13th behind the name, which may have spaces.
fn ticks(process: &str) -> [u64; 2] {
    let mut sum = [0; 2];
    for thread in threads(process) {
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        for (sum, at) in sum.iter_mut().zip([11, 12]) {
            let field: Option<u64> = fields.get(at).and_then(|n| n.parse().ok());
            *sum += field.unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_all_kinds_are_counted() {
        let told = "# TYPE extant_request_seconds histogram\n\
                    extant_request_seconds_bucket{op=\"lookup\",le=\"+Inf\"} 9\n\
                    extant_request_seconds_count{op=\"lookup\"} 9\n\
                    extant_request_seconds_count{op=\"read\"} 4\n\
                    extant_ring_requests_total 12\n";
        let done = counted(told);
        assert_eq!((done.requests, done.by_ring), (13, 12));
    }

    #[test]
    fn time_and_switches_of_a_process_are_read() {
        let own = std::process::id().to_string();
        assert!(switches(&own) > 0);
        let start = Instant::now();
        while ticks(&own).iter().sum::<u64>() == 0 && start.elapsed() < PATIENCE {
            std::hint::spin_loop();
        }
        assert!(ticks(&own).iter().sum::<u64>() > 0);
        assert_eq!(ticks("none"), [0, 0]);
    }
}
