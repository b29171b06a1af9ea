//! Images that are read as a repair would leave them, which is done in memory (`--mend`).

use crate::commands::Bars;
use crate::failure::say;
use extant::mend::{MendError, MendOptions, Mended, mend};
use extant::{Filesystem, MountOptions, SharedDevice};

/// Where mending puts what memory has no room for, and what it shows meanwhile.
pub(crate) enum Way {
    /// A temporary file, and a bar on a terminal.
    Command,
    /// What was made for it before this process gave up making files; nothing.
    Mount(Option<SharedDevice>),
}

/// Opens the file system on a device as a repair would leave it, and says how much that mends.
/// `None` where that cannot be done, which is said too: then it is read as it lies.
pub(crate) fn open(
    device: &SharedDevice,
    name: &str,
    options: &MountOptions,
    way: Way,
) -> Option<Filesystem> {
    let mended = in_memory(device, options, way);
    let why = match mended {
        Ok(mended) => match Filesystem::on_mended(&mended, options.clone()) {
            Ok(fs) => {
                tell(name, &mended, device.size());
                return Some(fs);
            }
            Err(e) => e.to_string(),
        },
        // What opens it says so, and what to do.
        Err(MendError::NotExt4 { .. } | MendError::ExternalJournal) => return None,
        Err(e) => e.to_string(),
    };
    say(format_args!(
        "{name}: nothing is mended, and it is read as it lies: {why}"
    ));
    None
}

fn in_memory(device: &SharedDevice, options: &MountOptions, way: Way) -> Result<Mended, MendError> {
    let mut how = MendOptions::default();
    how.journal = options.journal_device.clone();
    how.superblock = options.superblock;
    match way {
        Way::Mount(spool) => {
            how.spool = spool;
            mend(device, &how)
        }
        Way::Command => {
            let bars = Bars::new("mending");
            how.progress = Some(&bars);
            let mended = mend(device, &how);
            bars.finish();
            mended
        }
    }
}

/// Says what was mended, in a line.
fn tell(name: &str, mended: &Mended, size: u64) {
    let mut text = match mended.fixes_count {
        0 => "nothing had to be mended".to_owned(),
        1 => "1 thing is mended in memory, and the image is not touched".to_owned(),
        n => format!("{n} things are mended in memory, and the image is not touched"),
    };
    if mended.is_partial {
        text.push_str("; what would take files away that can be read is left as it is");
    }
    if mended.without_journal {
        text.push_str("; what waits in the journal cannot be replayed and is left out");
    }
    if mended.unreadable > 0 {
        let pieces = mended.unreadable;
        text.push_str(&format!(
            "; {pieces} pieces of the device cannot be read, and were taken for zeros"
        ));
    }
    if mended.missing > 0 {
        let missing = mended.missing;
        text.push_str(&format!(
            "; the image has {size} bytes, and {missing} behind them are missing"
        ));
    }
    say(format_args!("{name}: {text}"));
}
