//! How commit completes the image of a block.

use extant_format::checksum::Crc32c;

/// Which checksum a block of metadata carries. Computed once per commit on a private copy, never when
/// the block changes.
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
