//! How commit completes the image of a block.

use extant_format::checksum::Crc32c;
use extant_format::dir::{entry, htree};
use extant_format::{FormatResult, Pblk, extent, xattr};

/// Which checksum a block of metadata carries. Computed once per commit on a private copy, never
/// when the block changes.
#[derive(Clone, Copy, Debug, Default)]
pub enum Seal {
    /// None.
    #[default]
    Plain,
    /// That of a node of an extent tree; the seed is the inode's.
    ExtentNode(Crc32c),
    /// That of a leaf block of a directory; the seed is the inode's.
    DirLeaf(Crc32c),
    /// That of the root of a directory's index.
    DxRoot(Crc32c),
    /// That of an inner node of a directory's index.
    DxNode(Crc32c),
    /// That of a block of extended attributes; the seed is the file system's.
    XattrBlock(Crc32c),
}

/// Where a block of extended attributes holds its checksum.
const XATTR_CHECKSUM_AT: usize = 16;

impl Seal {
    /// Whether the image is complete as it is.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// Stores the checksum in `bytes`, the content of `block`.
    ///
    /// # Errors
    /// When the content is not what it should be, and so has no place for the checksum.
    pub(crate) fn complete(&self, block: Pblk, bytes: &mut [u8]) -> FormatResult<()> {
        match *self {
            Self::Plain => Ok(()),
            Self::ExtentNode(seed) => extent::store_checksum(bytes, seed),
            Self::DirLeaf(seed) => {
                entry::write_tail(bytes, seed);
                Ok(())
            }
            Self::DxRoot(seed) => {
                htree::write_root_checksum(bytes, seed);
                Ok(())
            }
            Self::DxNode(seed) => {
                htree::write_node_checksum(bytes, seed);
                Ok(())
            }
            Self::XattrBlock(seed) => {
                let sum = xattr::read::block_checksum(bytes, seed, block);
                if let Some(field) = bytes.get_mut(XATTR_CHECKSUM_AT..XATTR_CHECKSUM_AT + 4) {
                    field.copy_from_slice(&sum.to_le_bytes());
                }
                Ok(())
            }
        }
    }
}
