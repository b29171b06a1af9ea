//! Content that tells which write made it.

use extant_testkit::mount::{KernelMount, Mode};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of one write.
pub(crate) const WRITE: usize = 1 << 10;

/// What write `i` writes.
pub(crate) fn content(i: u64) -> [u8; WRITE] {
    let mut bytes = [i as u8 | 1; WRITE];
    bytes[..8].copy_from_slice(&i.to_le_bytes());
    bytes
}

/// Opens a file of an image that the kernel mounts without changing it, for `look`.
///
/// # Errors
/// Without root or loop devices, and what `look` says.
pub(crate) fn through_kernel(
    image: &Path,
    name: &str,
    look: impl FnOnce(&File) -> Result<(), String>,
) -> Result<(), String> {
    let mount = KernelMount::try_mount(image, Mode::Untouched, "noload")
        .map_err(|e| format!("the kernel does not mount {}: {e}", image.display()))?;
    let result = File::open(mount.join(name))
        .map_err(|e| format!("{name}: {e}"))
        .and_then(|file| look(&file));
    mount.unmount();
    result
}

/// Whether write `i` is at byte `offset`.
///
/// # Errors
/// What is there instead.
pub(crate) fn expect(file: &File, offset: u64, i: u64) -> Result<(), String> {
    let mut found = [0; WRITE];
    file.read_exact_at(&mut found, offset)
        .map_err(|e| format!("byte {offset}: {e}"))?;
    if found == content(i) {
        return Ok(());
    }
    Err(format!("byte {offset} does not hold what write {i} wrote"))
}
