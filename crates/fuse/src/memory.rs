//! Memory of the engine that is given back: what nobody used for a while, and all that is not in
//! use when the system is short of memory.
//!
//! The kernel says how short it is in a file (`/proc/pressure/memory`, and `memory.pressure` of the
//! control group that the process is in): the time that processes have waited for memory so far.
//! Both are opened before the process is confined, and read once a second by a thread that does
//! nothing else.

use extant_core::fs::{Fs, Shed};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the thread looks.
const TICK: Duration = Duration::from_secs(1);
/// Ticks after which what was not used since the last time goes.
const AGE: u32 = 30;
/// Time that processes have waited for memory within a tick from which on the system is short of
/// it: a twentieth.
const SHORT: Duration = Duration::from_millis(50);

const SYSTEM: &str = "/proc/pressure/memory";
const GROUPS: &str = "/sys/fs/cgroup";
const OWN_GROUP: &str = "/proc/self/cgroup";

/// Gives free memory of the process back to the system: `all` of it, or what has been free for
/// long.
pub type GiveBack = fn(all: bool);

/// What says how short of memory the system is.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    sources: Vec<(File, Option<Duration>)>,
}

impl Pressure {
    /// Opens what tells of the system, and of the control group that this process is in; nothing
    /// where the kernel does not say.
    pub(crate) fn open() -> Self {
        let own = std::fs::read_to_string(OWN_GROUP).unwrap_or_default();
        Self::of(&[Some(SYSTEM.into()), group_file(&own)])
    }

    fn of(paths: &[Option<PathBuf>]) -> Self {
        let opened = paths
            .iter()
            .flatten()
            .filter_map(|path| File::open(path).ok());
        Self {
            sources: opened.map(|file| (file, None)).collect(),
        }
    }

    /// Tells whether processes have waited long for memory since the last call; not at the first.
    fn is_short(&mut self) -> bool {
        let mut short = false;
        for (file, before) in &mut self.sources {
            let mut text = [0; 256];
            let now = file
                .read_at(&mut text, 0)
                .ok()
                .and_then(|len| waited(text.get(..len)?));
            if let (Some(now), Some(before)) = (now, *before) {
                short |= now.saturating_sub(before) >= SHORT;
            }
            *before = now.or(*before);
        }
        short
    }
}

/// Finds the file of the control group that a list of them, as the process has it, names for
/// version 2.
fn group_file(own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(GROUPS).join(path).join("memory.pressure"))
}

/// Parses the time in all that some process waited.
fn waited(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// The thread that gives memory back. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Giving {
    _stop: Sender<()>,
}

impl Giving {
    /// Starts it.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(
        fs: &Arc<Fs>,
        pressure: Pressure,
        give_back: Option<GiveBack>,
    ) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let fs = Arc::downgrade(fs);
        let thread = std::thread::Builder::new().name("extant-memory".to_owned());
        thread.spawn(move || run(&fs, pressure, give_back, &stopped))?;
        Ok(Self { _stop: stop })
    }
}

fn run(fs: &Weak<Fs>, mut pressure: Pressure, give_back: Option<GiveBack>, stopped: &Receiver<()>) {
    let mut ticks: u32 = 0;
    while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        let Some(fs) = fs.upgrade() else { return };
        ticks = ticks.wrapping_add(1);
        let is_short = pressure.is_short();
        if is_short {
            fs.shed(Shed::All);
        } else if ticks.is_multiple_of(AGE) {
            fs.shed(Shed::Unused);
        }
        drop(fs);
        if let Some(give_back) = give_back {
            give_back(is_short);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(total: u64) -> String {
        format!(
            "some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=99999999\n"
        )
    }

    #[test]
    fn the_system_is_short_of_memory_when_some_waited_long_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let [system, group] = ["system", "group"].map(|name| dir.path().join(name));
        std::fs::write(&system, pressure(5_000_000)).unwrap();
        std::fs::write(&group, pressure(0)).unwrap();
        let missing = dir.path().join("none");
        let mut sources = Pressure::of(&[Some(system.clone()), Some(group.clone()), Some(missing)]);
        // What was before is not told.
        assert!(!sources.is_short());
        std::fs::write(&system, pressure(5_049_999)).unwrap();
        assert!(!sources.is_short());
        std::fs::write(&system, pressure(5_099_999)).unwrap();
        assert!(sources.is_short());
        assert!(!sources.is_short());
        std::fs::write(&group, pressure(50_000)).unwrap();
        assert!(sources.is_short());
        std::fs::write(&system, "no such thing").unwrap();
        std::fs::write(&group, "").unwrap();
        assert!(!sources.is_short());
        assert!(!Pressure::of(&[None]).is_short());
    }

    #[test]
    fn the_control_group_of_the_process_is_found() {
        let found = group_file("4:memory:/other\n0::/user.slice/app.scope\n");
        let expected = "/sys/fs/cgroup/user.slice/app.scope/memory.pressure";
        assert_eq!(found.as_deref(), Some(Path::new(expected)));
        assert_eq!(group_file("4:memory:/other\n"), None);
    }
}
