//! Android sparse images, as `system/core/libsparse/sparse_format.h` of Android says.
//!
//! | file | owns |
//! |---|---|
//! | `header` | the headers of the image and of its chunks |
//! | `read` | the disk, read at random |
//! | `sum` | the checksum of a disk |
//! | `write` | making an image of a disk, in one go |
//!
//! A sparse image is a list of chunks: bytes, a word that fills a range, a range of which nothing
//! is said, and checksums of all before.

mod header;
mod read;
mod sum;
mod write;

pub(crate) use header::is_sparse;
pub(crate) use read::open;
pub use read::verify;
pub use write::{WriteHow, write};

/// The name of the format in errors.
const NAME: &str = "Android sparse image";

/// The checksum of chunks: that of Ethernet and zip.
const CRC: crc::Crc<u32, crc::Table<16>> =
    crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISO_HDLC);
