//! What `extant mkfs` fills an image from.

use clap::Args as ClapArgs;
use std::ffi::OsString;

/// The options about sources.
#[derive(Debug, Clone, Default, PartialEq, ClapArgs)]
pub(crate) struct Sources {
    /// Fill it from a directory, a tar archive (plain or compressed with gzip, zstd, xz, bzip2 or
    /// lz4), `-` for an archive on standard input, a container image, or another image of a file
    /// system or a directory in one; may be given more than once, each over those before it
    ///
    /// An OCI layout and what `docker save` writes are recognised, as a directory, an archive or
    /// standard input. `oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]` and `docker-archive:FILE[:TAG]`
    /// say what it is and which image there. All digests are compared.
    ///
    /// `IMAGE`, `IMAGE:/path`, `IMAGE#2:/path` and addresses (see remote.md) name files in an
    /// image: what `extant mkfs` can write of them is kept, with times, owners, attributes, links,
    /// holes and flags. Encrypted files and those with fs-verity are refused.
    ///
    /// Of several sources, a directory joins the one that is there and gives it its owner, mode,
    /// times and attributes; everything else takes the place of what had its name.
    #[arg(long, value_name = "SOURCE")]
    pub(crate) from: Vec<OsString>,
    /// Which image of an index: linux/amd64, linux/arm/v7
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", requires = "from")]
    pub(crate) platform: Option<String>,
    /// What becomes of whiteouts (`.wh.NAME`, `.wh..wh..opq`): apply, overlay or refuse
    ///
    /// `apply` takes away what the sources before have; it is the default for container images and
    /// for several sources. `overlay` does so, too, and writes them as overlayfs has them:
    /// character devices 0:0 and `trusted.overlay.opaque`. By default a lone directory or archive
    /// with whiteouts is refused: it is one layer of an image.
    #[arg(long, value_name = "HOW", requires = "from")]
    pub(crate) whiteouts: Option<String>,
}
