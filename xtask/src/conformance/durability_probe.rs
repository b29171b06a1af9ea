//! What was synced, and whether it is there.
//!
//! A thread works beside a suite until the daemon is killed, and writes down what a crash may no
//! longer take away. Each file's content follows from its number, so that the beginning of a file
//! tells whose it is.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most bytes that are written at once.
const MOST: u64 = 100_000;

/// A file that a sync covered.
struct Kept {
    name: String,
    number: u64,
    /// It is at least so long.
    len: usize,
}

/// What must hold after a crash.
#[derive(Default)]
pub(super) struct Synced {
    kept: Vec<Kept>,
    /// Names that were taken away, and the directory synced.
    gone: Vec<String>,
}

/// The thread that works beside.
pub(super) struct DurabilityProbe {
    thread: Option<JoinHandle<Result<Synced, String>>>,
    /// From now on what fails fails because the daemon is gone.
    ending: Arc<AtomicBool>,
}

/// How long it waits where others made the mount read-only.
const WHILE_READ_ONLY: Duration = Duration::from_millis(5);

/// Begins to work in a new directory of the mount, which others may make read-only for a while if
/// `remounts` says so.
pub(super) fn start(point: &Path, seed: u64, remounts: bool) -> io::Result<DurabilityProbe> {
    let dir = point.join(DIR);
    fs::create_dir(&dir)?;
    let dir = File::open(dir)?;
    File::open(point)?.sync_all()?;
    let ending = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ending);
    let thread = std::thread::spawn(move || {
        let mut synced = Synced::default();
        for step in 0.. {
            if let Err(e) = work(&dir, &mut synced, seed, step) {
                if remounts && e.kind() == io::ErrorKind::ReadOnlyFilesystem {
                    // Nothing of the step was done: nobody can do that while a file is open for
                    // writing.
                    std::thread::sleep(WHILE_READ_ONLY);
                    continue;
                }
                if !ends.load(Ordering::SeqCst) {
                    return Err(format!("step {step} beside the suite: {e}"));
                }
                break;
            }
        }
        Ok(synced)
    });
    Ok(DurabilityProbe {
        thread: Some(thread),
        ending,
    })
}

impl DurabilityProbe {
    /// The daemon is about to be killed.
    pub(super) fn expect_the_end(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    /// What was promised; an error if something failed before the end, or nothing was promised.
    pub(super) fn finish(mut self) -> Result<Synced, String> {
        let thread = self.thread.take().ok_or("finished twice")?;
        let synced = thread.join().map_err(|_| "the probe panicked")??;
        match synced.len() {
            0 => Err("nothing was synced before the daemon was killed".to_owned()),
            _ => Ok(synced),
        }
    }
}

const DIR: &str = "durability-probe";

/// One step: a file made, made longer, moved or removed, and synced.
fn work(dir: &File, synced: &mut Synced, seed: u64, step: u64) -> io::Result<()> {
    let draw = |what: &str, below: u64| {
        let mut hasher = DefaultHasher::new();
        (seed, step, what).hash(&mut hasher);
        hasher.finish() % below.max(1)
    };
    // By this way it stays on the mount when that is cleared away.
    let root = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    let len = draw("length", MOST) as usize + 1;
    let which = draw("which", synced.kept.len() as u64) as usize;
    let has_some = which < synced.kept.len();
    match draw("action", 8) {
        0 if has_some => {
            let kept = &mut synced.kept[which];
            let mut file = File::options().append(true).open(root.join(&kept.name))?;
            file.write_all(&content(kept.number, kept.len, len))?;
            file.sync_data()?;
            kept.len += len;
        }
        1 if has_some => {
            let mut kept = synced.kept.swap_remove(which);
            let name = format!("moved-{step}");
            fs::rename(root.join(&kept.name), root.join(&name))?;
            dir.sync_all()?;
            synced.gone.push(kept.name);
            kept.name = name;
            synced.kept.push(kept);
        }
        2 if has_some => {
            let kept = synced.kept.swap_remove(which);
            fs::remove_file(root.join(&kept.name))?;
            dir.sync_all()?;
            synced.gone.push(kept.name);
        }
        3 => {
            // Not synced, and free to go.
            fs::write(root.join(format!("loose-{step}")), content(step, 0, len))?;
        }
        _ => {
            let name = format!("file-{step}");
            let mut file = File::create(root.join(&name))?;
            file.write_all(&content(step, 0, len))?;
            file.sync_all()?;
            synced.kept.push(Kept {
                name,
                number: step,
                len,
            });
        }
    }
    Ok(())
}

/// What a file holds from an offset on.
fn content(number: u64, from: usize, len: usize) -> Vec<u8> {
    let byte = |at: usize| {
        let mixed = (number << 32 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as u8
    };
    (from..from + len).map(byte).collect()
}

impl Synced {
    /// How many promises there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len() + self.gone.len()
    }

    /// Looks whether everything that was promised is so on the mount.
    pub(super) fn verify(&self, point: &Path) -> Result<(), String> {
        let root = point.join(DIR);
        for kept in &self.kept {
            let found = fs::read(root.join(&kept.name))
                .map_err(|e| format!("{}, which was synced: {e}", kept.name))?;
            let wanted = content(kept.number, 0, kept.len);
            let begins = found.get(..kept.len);
            if begins != Some(wanted.as_slice()) {
                let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
                return Err(format!(
                    "{}: {} bytes of which {} were synced; differs from byte {differs:?} on",
                    kept.name,
                    found.len(),
                    kept.len
                ));
            }
        }
        for name in &self.gone {
            match fs::symlink_metadata(root.join(name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(format!("{name}, which is gone: {e}")),
                Ok(_) => return Err(format!("{name} is back after its directory was synced")),
            }
        }
        let entries = fs::read_dir(&root).map_err(|e| format!("{DIR}: {e}"))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{DIR}: {e}"))?;
            self.check_content(&entry.path())?;
        }
        Ok(())
    }

    /// Every byte of a file, promised or not, is what was written there or was never written.
    fn check_content(&self, path: &Path) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let kept = self.kept.iter().find(|kept| kept.name == name);
        // Names that nobody remembers have their number, unless they were moved: then any content
        // of a file will do.
        let numbered = || match name.split_once('-') {
            Some(("file" | "loose", number)) => number.parse().ok(),
            _ => None,
        };
        let Some(number) = kept.map(|kept| kept.number).or_else(numbered) else {
            return Ok(());
        };
        let found = fs::read(path).map_err(|e| format!("{name}: {e}"))?;
        let wanted = content(number, 0, found.len());
        let foreign = |(found, wanted): (&u8, &u8)| *found != *wanted && *found != 0;
        match found.iter().zip(&wanted).position(foreign) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{name}: byte {at} of {} was never written to this file",
                found.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = format!("extant-durability-probe-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    fn worked(point: &Path) -> Synced {
        fs::create_dir(point.join(DIR)).unwrap();
        let dir = File::open(point.join(DIR)).unwrap();
        let mut synced = Synced::default();
        for step in 0..100 {
            work(&dir, &mut synced, 7, step).unwrap();
        }
        synced
    }

    #[test]
    fn what_was_synced_is_found() {
        let point = scratch("found");
        let synced = worked(&point);
        assert!(!synced.kept.is_empty() && !synced.gone.is_empty());
        synced.verify(&point).unwrap();
        fs::remove_dir_all(point).unwrap();
    }

    #[test]
    fn what_was_never_written_is_noticed_where_nothing_was_promised() {
        let point = scratch("foreign");
        let synced = worked(&point);
        let loose = fs::read_dir(point.join(DIR))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_string_lossy().contains("loose-"))
            .unwrap();
        let mut bytes = fs::read(&loose).unwrap();
        let len = bytes.len();
        bytes[len / 2..].fill(0);
        fs::write(&loose, &bytes).unwrap();
        synced.verify(&point).unwrap();
        bytes[len - 1] ^= 0x40;
        fs::write(&loose, &bytes).unwrap();
        let said = synced.verify(&point).unwrap_err();
        assert!(said.contains("was never written"), "{said}");
        fs::remove_dir_all(point).unwrap();
    }

    #[test]
    fn what_fails_before_the_end_is_told() {
        let point = scratch("fails");
        let probe = start(&point, 7, false).unwrap();
        let is_gone = || {
            // Files that come meanwhile disturb it.
            let removed = fs::remove_dir_all(point.join(DIR));
            removed.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        while !is_gone() {}
        let said = probe.finish();
        assert!(said.is_err_and(|e| e.contains("beside the suite")));
        fs::remove_dir_all(point).unwrap();
    }

    #[test]
    fn a_lost_file_lost_content_and_a_name_that_is_back_are_noticed() {
        let point = scratch("lost");
        let synced = worked(&point);
        let dir = point.join(DIR);
        let back = dir.join(&synced.gone[0]);
        fs::write(&back, b"").unwrap();
        assert!(synced.verify(&point).unwrap_err().contains("is back"));
        fs::remove_file(back).unwrap();
        let file = dir.join(&synced.kept[0].name);
        let cut = synced.kept[0].len as u64 - 1;
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(cut)
            .unwrap();
        assert!(synced.verify(&point).unwrap_err().contains("were synced"));
        fs::remove_file(file).unwrap();
        assert!(
            synced
                .verify(&point)
                .unwrap_err()
                .contains("which was synced")
        );
        fs::remove_dir_all(point).unwrap();
    }
}
