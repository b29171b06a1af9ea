//! `extant complete-path WORD`, which completion scripts call: what `IMAGE:/path` may become.
//!
//! It is no command for people. It is quick, or says nothing: what is far, compressed or damaged is
//! not looked into, and after a moment it ends. It never complains.

use extant::{Filesystem, MountOptions};
use extant_image::{How, ImageLocation};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The word after the program's name that asks for it.
pub(crate) const NAME: &str = "complete-path";
/// Names offered at most.
const MOST: usize = 1000;
/// It ends after this, whatever it was about to say.
const PATIENCE: Duration = Duration::from_secs(2);
/// A variable that says how many seconds it has instead, for machines that are very busy.
const PATIENCE_IN: &str = "EXTANT_COMPLETION_SECONDS";
/// What compressed images begin with: gzip, zstd, xz.
const PACKED: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ"];

/// Writes what a word may become, one to a line.
pub(crate) fn run(word: &OsStr) -> ExitCode {
    let asked = std::env::var(PATIENCE_IN).ok();
    let seconds = asked.and_then(|seconds| seconds.parse().ok());
    let patience = seconds.map_or(PATIENCE, Duration::from_secs);
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        std::process::exit(0);
    });
    let found = candidates(word).unwrap_or_default();
    // A shell that has lost interest is no failure.
    let _ = std::io::stdout().write_all(&found);
    ExitCode::SUCCESS
}

fn candidates(word: &OsStr) -> Option<Vec<u8>> {
    let (image, path) = ImageLocation::split(word).ok()?;
    let path = path?.as_bytes();
    let fs = open(&image)?;
    let head = word.as_bytes().len() - path.len();
    let head = word.as_bytes().get(..head)?;
    let mut all = Vec::new();
    for path in below(&fs, path)? {
        all.extend_from_slice(head);
        all.extend_from_slice(&path);
        all.push(b'\n');
    }
    Some(all)
}

/// The paths in an image that one may become of which this much is typed, in order. Those of
/// directories end with a slash. `None` where there is no such directory.
pub(crate) fn below(fs: &Filesystem, path: &[u8]) -> Option<Vec<Vec<u8>>> {
    // What stays of the path, and what names begin with.
    let cut = path.iter().rposition(|byte| *byte == b'/');
    let (dir, prefix) = match cut {
        Some(at) if path.starts_with(b"/") => path.split_at(at + 1),
        None if path.is_empty() => (&b"/"[..], path),
        _ => return None,
    };
    let head = dir;
    let dir = Path::new(OsStr::from_bytes(dir));
    let mut names = Vec::new();
    for entry in fs.read_dir(dir).ok()? {
        let Ok(entry) = entry else { break };
        let name = entry.file_name().as_bytes().to_vec();
        let is_hidden = name.starts_with(b".") && !prefix.starts_with(b".");
        let is_line = !name
            .iter()
            .any(|byte| byte.is_ascii_control() || *byte == b'/');
        if name.starts_with(prefix) && !is_hidden && is_line && name != b"." && name != b".." {
            names.push(name);
        }
        if names.len() >= MOST {
            break;
        }
    }
    names.sort();
    let paths = names.into_iter().map(|name| {
        let mut path = [head, &name].concat();
        let found = fs.metadata(dir.join(OsStr::from_bytes(&name)));
        if found.is_ok_and(|found| found.is_dir()) {
            path.push(b'/');
        }
        path
    });
    Some(paths.collect())
}

/// An image that is at hand, as it lies: its journal is not replayed.
fn open(image: &ImageLocation) -> Option<Filesystem> {
    let path = image.path()?;
    let kind = path.metadata().ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let mut head = [0; 6];
    std::fs::File::open(path)
        .and_then(|file| file.read_exact_at(&mut head, 0))
        .ok()?;
    if PACKED.iter().any(|mark| head.starts_with(mark)) {
        return None;
    }
    let device = image.open_disk(&How::reading()).ok()?.device;
    let device = image.part_of(device, &How::reading()).ok()?;
    let options = MountOptions::read_only().journal(extant::JournalChoice::Ignore);
    Filesystem::open_device(device, options).ok()
}
