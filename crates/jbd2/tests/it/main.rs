//! The journal as a reader meets it (logs made here, and logs the kernel left behind), and as a
//! writer leaves it: to ourselves, to e2fsck, to the kernel, and to a crash at any moment.

mod blocks_over_32_bits;
mod crash;
mod damage;
mod debugfs;
mod kernel;
mod linux;
mod recording_device;
mod replay;
mod synthetic;
mod writing;
mod writing_home;
