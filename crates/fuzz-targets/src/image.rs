//! A whole image with some bytes changed.

use crate::corpus;
use extant::{Filesystem, MountOptions};
use extant_blockdev::{BlockDevice, OverlayDevice, SharedDevice};
use std::sync::Arc;

/// Entries that are looked at.
const MOST_ENTRIES: usize = 2000;

/// The image of the corpus, changed as the input says: groups of five bytes, of which four are the
/// place and one is the new value.
fn changed(input: &[u8]) -> SharedDevice {
    let base: SharedDevice = corpus::device();
    let size = base.size();
    let overlay = OverlayDevice::new(base, 4096).keep_writes();
    for change in input.chunks_exact(5) {
        let place = u64::from(u32::from_le_bytes([
            change[0], change[1], change[2], change[3],
        ]));
        let byte = &change[4..];
        overlay
            .write_at(place % size, byte)
            .expect("memory can be written");
    }
    Arc::new(overlay)
}

/// Opens the image for reading, and reads everything in it.
pub fn image_read(input: &[u8]) -> bool {
    let Ok(fs) = Filesystem::open_device(changed(input), MountOptions::read_only()) else {
        return false;
    };
    let Ok(walk) = fs.walk("/") else {
        return false;
    };
    let mut buffer = vec![0; 1 << 16];
    for entry in walk.take(MOST_ENTRIES).flatten() {
        let _ = (entry.check_name(), entry.xattrs());
        let found = entry.metadata();
        if found.is_symlink() {
            let _ = entry.read_link();
        } else if found.is_file()
            && let Ok(file) = entry.open()
        {
            let read = file.read_at(&mut buffer, 0);
            assert!(read.is_err() || read.is_ok_and(|read| read as u64 <= found.len()));
            let _ = file.extents();
        }
    }
    true
}

/// Checks the image, as its journal would leave it and as it lies.
pub fn image_checked(input: &[u8]) -> bool {
    let mut is_clean = true;
    for as_is in [false, true] {
        let options = extant_fsck::Options::default().as_is(as_is);
        let report = extant_fsck::check(changed(input), options, &());
        is_clean &= report.is_ok_and(|report| report.findings.is_empty());
    }
    is_clean
}

/// Looks at the past of the image: its log, what was deleted, and the content of that.
pub fn image_rescued(input: &[u8]) -> bool {
    let Ok(rescue) = extant_rescue::Rescue::open(changed(input), None) else {
        return false;
    };
    let log = rescue.log(None, None);
    let Ok(deleted) = rescue.deleted() else {
        return false;
    };
    for file in deleted.files.iter().take(MOST_ENTRIES) {
        let (mut end, mut all) = (0, 0);
        let read = rescue.read(file, |at, bytes| {
            assert!(at >= end, "pieces come in their order");
            end = at + bytes.len() as u64;
            all += bytes.len() as u64;
            Ok::<(), extant_rescue::Error>(())
        });
        assert!(read.is_err() || all <= file.size);
    }
    log.is_ok()
}
