//! Content as the map and the device have it, without the memory of files.
//!
//! | file | owns |
//! |---|---|
//! | `read` | reading a range of an inode of any type into the caller's buffer |
//! | `together` | reading the content of many small files with one batch of reads |
//! | `seek` | where data and holes begin, and where data lies on the device |
//! | `stream` | reading a whole file in order, holes kept apart |

pub(super) mod read;
pub(super) mod seek;
pub(super) mod stream;
pub(super) mod together;
