//! What was synced, and whether it is there.
//!
//! A thread works beside a suite until the daemon is killed, and writes down what a crash may no longer take away. Each
//! file's content follows from its number, so that the beginning of a file tells whose it is.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

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

/// Begins to work in a new directory of the mount.
pub(super) fn start(point: &Path, seed: u64) -> io::Result<JoinHandle<Synced>> {
    let dir = point.join(DIR);
    fs::create_dir(&dir)?;
    let dir = File::open(dir)?;
    File::open(point)?.sync_all()?;
    Ok(std::thread::spawn(move || {
        let mut synced = Synced::default();
        for step in 0.. {
            if work(&dir, &mut synced, seed, step).is_err() {
                break;
            }
        }
        synced
    }))
}

const DIR: &str = "witness";

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
        match self.gone.iter().find(|name| root.join(name).exists()) {
            Some(name) => Err(format!("{name} is back after its directory was synced")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = format!("extant-witness-{}-{name}", std::process::id());
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
