//! Checking images in files and in memory.

use extant_blockdev::{MemoryDevice, OpenSpec};
use extant_fsck::{Options, Report, Severity};
use std::path::Path;
use std::sync::Arc;

/// Checks an image file.
pub(crate) fn check(image: &Path, as_is: bool) -> Report {
    let device = OpenSpec::read_only(image).open().expect("open the image");
    extant_fsck::check(device, Options::default().as_is(as_is), &())
        .unwrap_or_else(|e| panic!("{}: {e}", image.display()))
}

/// Checks an image in memory.
pub(crate) fn check_bytes(image: &[u8], as_is: bool) -> extant_fsck::Result<Report> {
    let device = Arc::new(MemoryDevice::from_image(image));
    extant_fsck::check(device, Options::default().as_is(as_is), &())
}

/// The findings worth a failure, one a line.
pub(crate) fn problems(report: &Report) -> String {
    let bad = report
        .findings
        .iter()
        .filter(|finding| finding.severity() > Severity::Warning);
    bad.map(|finding| format!("{finding}\n")).collect()
}

/// Expects nothing worse than warnings.
pub(crate) fn assert_clean(what: &str, report: &Report) {
    assert!(report.is_clean(), "{what}:\n{}", problems(report));
}
