//! What `--undo` keeps of the image that a command changes.
//!
//! The image is changed through a device that keeps what was there. When the command is over, and
//! has closed the image, the undo file gets its end.

use crate::args::Whereabouts;
use crate::commands::undo::create;
use crate::failure::{Failure, Outcome, say};
use extant::{Escaped, SharedDevice};
use extant_fsck::repair::revert;
use extant_fsck::undo::KeepingDevice;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The image whose blocks are kept, once there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keeping(Arc<OnceLock<Kept>>);

#[derive(Debug)]
struct Kept {
    device: Arc<KeepingDevice>,
    base: SharedDevice,
    /// The file of the image and its length before, where that was made longer.
    was_shorter: OnceLock<(PathBuf, u64)>,
}

impl Kept {
    /// Gives the file of the image the length that it had.
    fn cut(&self) -> io::Result<()> {
        match self.was_shorter.get() {
            Some((file, len)) => File::options().write(true).open(file)?.set_len(*len),
            None => Ok(()),
        }
    }
}

impl PartialEq for Keeping {
    /// It is no part of where a file system is.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Keeping {}

/// The device through which an image is changed: with `--undo`, one that keeps what is there.
pub(crate) fn over(device: SharedDevice, location: &Whereabouts) -> Outcome<SharedDevice> {
    let Some(path) = &location.undo else {
        return Ok(device);
    };
    if location.keeping.0.get().is_some() {
        return Err(Failure::new(
            "--undo keeps what was there of one image: change the others by a command of their own",
        ));
    }
    let failed = |e: &dyn std::fmt::Display| {
        let path = Escaped::path(path);
        Failure::new(format!("undo file {path}: {e}. Nothing is changed"))
    };
    let file = create(path).map_err(|e| failed(&e))?;
    let begun = KeepingDevice::new(Arc::clone(&device), file).and_then(|keeping| {
        super::commands::undo::sync_name(path)?;
        Ok(keeping)
    });
    match begun {
        Ok(keeping) => {
            let keeping = Arc::new(keeping);
            let kept = Kept {
                device: Arc::clone(&keeping),
                base: device,
                was_shorter: OnceLock::new(),
            };
            // It was asked above, and one thread opens images.
            let _ = location.keeping.0.set(kept);
            Ok(keeping)
        }
        Err(e) => {
            remove(path);
            Err(failed(&e))
        }
    }
}

/// Takes note of how long the file of the image was before it was made longer: it becomes so again
/// if all is taken back for want of room for the undo file.
pub(crate) fn note_length(location: &Whereabouts, file: &Path, len: u64) {
    if let Some(kept) = location.keeping.0.get() {
        // A file is made longer once.
        let _ = kept.was_shorter.set((file.to_owned(), len));
    }
}

/// Whether what is written is refused since the undo file cannot be: all is taken back in the end.
pub(crate) fn has_failed(location: &Whereabouts) -> bool {
    let kept = location.keeping.0.get();
    kept.is_some_and(|kept| kept.device.failure().is_some())
}

/// Refuses `--undo` where a command is done and has opened no image to change it.
pub(crate) fn check_used(location: &Whereabouts) -> Outcome {
    if location.undo.is_none() || location.keeping.0.get().is_some() {
        return Ok(());
    }
    Err(Failure::usage(
        "nothing is opened to be changed here, so that there is nothing to keep: leave --undo out",
    ))
}

/// Ends the undo file when all is `done`. What was changed although the file could not be written
/// in whole is taken back.
pub(crate) fn end(location: &Whereabouts, done: Outcome) -> Outcome {
    let (Some(path), Some(kept)) = (&location.undo, location.keeping.0.get()) else {
        return done;
    };
    let name = Escaped::path(path);
    if let Some(why) = kept.device.failure() {
        tell(done);
        let back = revert(&*kept.base, || Ok(BufReader::new(File::open(path)?)));
        return Err(Failure::new(match back {
            Ok(_) => {
                remove(path);
                match kept.cut() {
                    Ok(()) => format!("undo file {name}: {why}. Nothing is changed"),
                    Err(e) => format!(
                        "undo file {name}: {why}. What was changed is taken back, but the file of the image stays \
                         longer than it was: {e}"
                    ),
                }
            }
            Err(e) => format!(
                "undo file {name}: {why}. What was changed before is to be taken back, and that failed \
                 ({e}): do it with `extant revert`"
            ),
        }));
    }
    match kept.device.finish() {
        Ok(0) => {
            remove(path);
            done
        }
        Ok(_) => done,
        Err(e) => {
            tell(done);
            Err(Failure::new(format!(
                "undo file {name}: {e}. It takes all back, but cannot tell whether the image was changed since"
            )))
        }
    }
}

/// Says what failed before, which comes beside what is said next.
fn tell(done: Outcome) {
    if let Err(earlier) = done {
        // Its exit code is that of what is said next, too.
        let _ = earlier.report();
    }
}

/// Removes an undo file of nothing.
fn remove(path: &Path) {
    if let Err(e) = std::fs::remove_file(path) {
        say(format_args!(
            "undo file {}: it holds nothing, and cannot be removed: {e}",
            Escaped::path(path)
        ));
    }
}
