//! Makes ext4 file systems and fills them from directories, tar streams and container images.
//!
//! Part of the API are the items of this page, [`output`], [`source`] and [`words`]. The other
//! rooms are open to tests and to this project, and any version may change them
//! (`docs/dev/api.md`).
//!
//! | room | owns |
//! |---|---|
//! | [`image`] | from a source to an image: size, place, write |
//! | [`defaults`] | sizes, features and ratios when nothing is asked for: what `mke2fs -t ext4` makes |
//! | [`layout`] | the plan of an image: which block holds what |
//! | `maps` | extent trees and indirect maps, built bottom-up |
//! | [`metadata`] | bitmaps, descriptors and superblocks, and the empty file system |
//! | [`place`] | where everything of a source goes |
//! | `served` | images that exist as a plan and are read as devices |
//! | [`standing`] | what is in a place before an image is made there |
//! | [`source`] | what an image is filled from: directories, tar streams, container images |
//! | [`tables`] | owners, permissions, devices and labels from tables |
//! | `verity` | hash trees that are made while an image is written |
//! | [`words`] | words for what can be chosen |
//! | [`mod@write`] | writing a planned image, each block once |

pub mod defaults;
pub mod image;
pub mod layout;
mod maps;
pub mod metadata;
pub mod output;
pub mod place;
mod served;
pub mod source;
pub mod standing;
pub mod tables;
mod verity;
pub mod words;
pub mod write;

pub use defaults::FormatOptions;
pub use image::{Arrangement, BuildError, BuildOptions, Headroom, Report, Size, build, build_into};
pub use place::{Former, FormerRun};
pub use served::PlannedDevice;
pub use verity::{
    DmVerity, DmVerityError, DmVerityOver, DmVerityReport, FsVerity, FsVerityError, HashAlgorithm,
};
pub use write::{Progress, Silent};
