//! Test fixtures: what the engine's answers are compared with.
//!
//! Internal to Extant: never published, any version may change it.
//!
//! | module | owns |
//! |---|---|
//! | [`facility`] | what this machine can do (root, loop devices, kernel ext4), and the named skip |
//! | [`sweep`] | an engine run, crashed everywhere and failed everywhere, and judged |
//! | [`tool`] | running an external program; a missing one fails the test and names its package |
//! | [`s3`] | S3 servers of others, with a bucket each |
//! | [`link`] | links with delays between clients and servers, whose round trips are counted |
//! | [`layers`] | container images by hand, and stacks of layers |
//! | [`verity`] | devices of dm-verity, opened by `veritysetup` |
//! | [`nginx`] | a web server over a folder |
//! | [`lasting_marks`] | bytes at the end of a device that say what it is a part of |
//! | [`loopdev`], [`mount`] | images attached and mounted by the kernel, undone by guards even on panic |
//! | [`journal_device`] | external journals on loop devices, one at a time on the machine |
//! | [`oracle`] | independent judges: `e2fsck`, `debugfs`, `dumpe2fs`, `mke2fs`, the `ext4-view` crate |
//! | [`tree`] | a file tree as a value: snapshot of a mounted one, readable comparison of two |
//! | [`plan`] | a file tree before it exists: planted in a directory, written as tar, or expected as a [`tree::Tree`] |
//! | [`torture`] | the plans worth testing with: every corner at once, or random by seed |
//! | [`images`] | small images made by `mke2fs` and filled by the kernel, clean or with a dirty journal |
//! | [`crash`] | devices that crash and fail: every image a crash may leave of a recorded run |
//! | [`hostile`] | images with lies in them, and limits around programs that read them |
//! | [`exercise`] | one file exercised at random, every byte compared |
//! | [`model`] | a model file system that knows which states are legal after a crash |
//! | [`rng`] | one small generator, so that a printed seed repeats a run anywhere |
//!
//! # Invariants
//!
//! Of the workspace this crate depends on `extant-blockdev` alone, whose device trait is no opinion
//! about ext4: an oracle must not share the engine's bugs, and the tests of every crate may use it.
//! It is used by tests and benchmarks only, so it may panic: a panic here is a failed test with an
//! explanation.
#![deny(unsafe_code)]

pub mod crash;
pub mod exercise;
pub mod facility;
pub mod hostile;
pub mod images;
#[allow(
    unsafe_code,
    reason = "the two ioctls that have no safe wrapper live in this one file"
)]
mod ioctl;
pub mod journal_device;
pub mod lasting_marks;
pub mod layers;
pub mod link;
pub mod loopdev;
pub mod model;
pub mod mount;
pub mod nginx;
pub mod oracle;
pub mod plan;
pub mod rings;
pub mod rng;
pub mod stores;
pub mod sweep;
pub mod tool;
pub mod torture;
pub mod tree;
pub mod verity;
