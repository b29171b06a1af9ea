//! Where an image is, by its address, and one way to open it.
//!
//! Part of the API: versions say when it changes (`docs/dev/api.md`).
//!
//! An [`ImageLocation`] is what a user writes: a path, the number of an open file (`fd:3`), an NBD
//! export, a URL, an object of a store, each perhaps with a partition behind a `#`. Parsing looks
//! for files of the host and opens nothing. [`ImageLocation::open`] turns it into a
//! [`SharedDevice`](extant_blockdev::SharedDevice), whatever it is; what cannot be opened is
//! refused with a sentence that says what to do. `docs/user/remote.md` has the grammar.
//!
//! What a disk lies in (qcow2, VHD, a compressed image) is seen from its content, with the feature
//! `formats`, unless it is said ([`How::format`]). The feature `remote` brings HTTP and object
//! stores.
//!
//! | module | owns |
//! |---|---|
//! | `location` | [`ImageLocation`]: what addresses mean, and how they are shown |
//! | `operand` | telling a path inside an image, and a partition, from the image's own name |
//! | `uri` | the parts of a URI, and what is wrong with them |
//! | `format` | [`ImageFormat`]: what an image is said to be |
//! | `partition` | [`PartitionName`]: a number or a label |
//! | `open` | [`How`]: from a location to a device |
//! | `os` | what differs between systems: bytes of paths, files that are open already |

#![deny(unsafe_code)]

mod format;
mod location;
mod open;
mod operand;
mod os;
mod partition;
mod uri;

pub use extant_blockdev::{NbdAddress, NbdTransport};
pub use format::{ImageFormat, UnknownFormat};
pub use location::{Carrier, ImageLocation};
pub use open::{Container, How, Opened};
pub use partition::PartitionName;
pub use uri::AddressError;
