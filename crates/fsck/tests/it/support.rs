//! Checking images in files and in memory.

use extant_blockdev::{MemoryDevice, OpenSpec};
use extant_format::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, Superblock};
use extant_fsck::{Options, Report, Severity, repair};
use extant_testkit::oracle;
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

/// The primary superblock of an image.
pub(crate) fn superblock(image: &[u8]) -> Superblock {
    let at = SUPERBLOCK_OFFSET as usize;
    Superblock::parse(&image[at..at + SUPERBLOCK_LEN]).unwrap()
}

/// The block with the primary superblock as a file system logs it that is mounted and gets another
/// label; and its number.
pub(crate) fn logged_superblock(image: &[u8], block_size: usize, label: &[u8]) -> (usize, Vec<u8>) {
    let mut sb = superblock(image).with(|raw| {
        raw.volume_name = [0; 16];
        raw.volume_name[..label.len()].copy_from_slice(label);
    });
    sb.as_mut().unwrap().set_needs_recovery(true);
    let number = SUPERBLOCK_OFFSET as usize / block_size;
    let at = SUPERBLOCK_OFFSET as usize % block_size;
    let mut block = image[number * block_size..][..block_size].to_vec();
    block[at..at + SUPERBLOCK_LEN].copy_from_slice(&sb.unwrap().encode());
    (number, block)
}

/// Expects nothing worse than warnings.
pub(crate) fn assert_clean(what: &str, report: &Report) {
    assert!(report.is_clean(), "{what}:\n{}", problems(report));
}

/// Repairs an image without a loss, so that e2fsck accepts it and nothing is left for us.
pub(crate) fn repair_whole(what: &str, image: &Path) {
    let device = OpenSpec::read_write(image).open().unwrap();
    let plan = repair::plan(device, repair::Options::default(), &()).unwrap();
    assert!(plan.is_complete(), "{what}: {}", problems(&plan.left));
    plan.may_be_written()
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    plan.apply().unwrap();
    drop(plan);
    let theirs = oracle::e2fsck(image, &["-fn"]);
    assert_eq!(theirs.code, 0, "{what}: {theirs}");
    assert_clean(what, &check(image, false));
}
