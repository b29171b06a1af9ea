//! fs-verity: protecting files.

use crate::path::LastLink;
use crate::{Error, Filesystem, Result};
use extant_core::Error as EngineError;
use extant_core::Result as EngineResult;
use extant_core::ops::{self, Seal, WriteSeal};
use extant_format::BlockSize;
use extant_verity::fs::{
    BLOCK_LOG2, DESCRIPTOR_LEN, Descriptor, SALT_MAX, descriptor_place, salted, shape, tree_start,
};
use extant_verity::{Algorithm, Builder, Digest, Salted, Shape};
use std::ops::Range;
use std::path::Path;

/// Bytes of a block where none is asked for and the file system has larger ones: what `fsverity`
/// takes, and a page of most machines.
const BLOCK_SIZE: u32 = 4096;

/// How fs-verity protects a file: by default with SHA-256, no salt, and blocks of the file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FsVerityOptions {
    /// The hash function.
    pub algorithm: Algorithm,
    /// What is hashed in front of each block, at most 32 bytes.
    pub salt: Vec<u8>,
    /// Bytes of a block: a power of two from 1024 to the block size of the file system. If `None`,
    /// the block size of the file system, and at most 4096.
    pub block_size: Option<u32>,
}

impl FsVerityOptions {
    /// Returns the bytes of a block in a file system with blocks of `of_fs`.
    #[must_use]
    pub fn block_size_in(&self, of_fs: BlockSize) -> u32 {
        let most = of_fs.bytes();
        self.block_size.unwrap_or_else(|| most.min(BLOCK_SIZE))
    }
}

impl Filesystem {
    /// Has fs-verity protect a regular file, as `FS_IOC_ENABLE_VERITY` does: its content is hashed,
    /// the hashes are put behind it, and it cannot be written to any more. Symbolic links are
    /// followed. Returns the digest of the file, which `fsverity digest` and `fsverity measure`
    /// show.
    ///
    /// Size, times, owner, mode and attributes stay. A crash leaves the file protected or as it
    /// was; it is protected for good with the next [`Filesystem::sync`] or
    /// [`Filesystem::close`]. The feature `verity` is turned on, with which Linux before 5.4 mounts
    /// a file system for reading only. Linux before 6.3 reads protected files only where blocks are
    /// as large as its pages.
    ///
    /// ```
    /// use extant::{Filesystem, FsVerityOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # let options = extant_mkfs::FormatOptions::new(16 << 20, 0);
    /// # let built = extant_mkfs::BuildOptions::new(options, extant_mkfs::Size::Bytes(16 << 20));
    /// # extant_mkfs::build(None, &image, None, &built, &extant_mkfs::Silent)?;
    /// # Filesystem::open_writable(&image)?.write("/tool", "what it does\n")?;
    /// let fs = Filesystem::open_writable(&image)?;
    /// let digest = fs.enable_verity("/tool", &FsVerityOptions::default())?;
    /// let file = fs.open_file("/tool")?.fs_verity()?.expect("it is protected");
    /// assert_eq!(file.digest(), digest);
    /// assert!(fs.write("/tool", "anything else").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such file, or it is none that fs-verity can protect: it is no regular file,
    /// is protected, immutable, append-only, encrypted or mapped by indirect blocks; when the
    /// options are none that the format or the file system has; when no space is left.
    pub fn enable_verity(
        &self,
        path: impl AsRef<Path>,
        options: &FsVerityOptions,
    ) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let failed = |e| Error::engine(path, e);
        let held = self.hold(path, LastLink::Follow)?;
        let size = self.fs().block_size();
        let mut sealing = Sealing::new(options, size).map_err(failed)?;
        ops::seal(self.by(), &held, &mut sealing).map_err(failed)?;
        Ok(sealing.digest)
    }
}

/// A file whose hashes are being made.
struct Sealing<'o> {
    options: &'o FsVerityOptions,
    block_log2: u32,
    fs_block_log2: u32,
    salted: Salted,
    size: u64,
    builder: Builder,
    /// A block that the file ends in, with zeros behind its end.
    last: Vec<u8>,
    digest: Vec<u8>,
}

impl<'o> Sealing<'o> {
    fn new(options: &'o FsVerityOptions, of_fs: BlockSize) -> EngineResult<Self> {
        let size = options.block_size_in(of_fs);
        let has_it = size.is_power_of_two() && BLOCK_LOG2.contains(&size.ilog2());
        if !has_it || size > of_fs.bytes() {
            return Err(EngineError::InvalidInput(
                "a block of fs-verity has a power of two of bytes, from 1024 to those of a block of the file system",
            ));
        }
        if options.salt.len() > SALT_MAX {
            return Err(EngineError::InvalidInput(
                "a salt of fs-verity has at most 32 bytes",
            ));
        }
        let salted = salted(options.algorithm, &options.salt);
        let block_log2 = size.ilog2();
        Ok(Self {
            options,
            block_log2,
            fs_block_log2: of_fs.log2(),
            builder: Builder::new(Shape::new(0, 1), salted.clone(), block_log2),
            salted,
            size: 0,
            last: Vec::new(),
            digest: Vec::new(),
        })
    }

    fn shape(&self) -> Shape {
        shape(self.options.algorithm, self.block_log2, self.size)
    }

    /// Where the tree ends.
    fn tree_end(&self) -> u64 {
        tree_start(self.size) + (self.shape().blocks() << self.block_log2)
    }

    /// Where the descriptor is, and its length.
    fn descriptor_place(&self) -> (u64, u64) {
        let tree_len = self.tree_end() - tree_start(self.size);
        descriptor_place(
            self.size,
            tree_len,
            DESCRIPTOR_LEN as u64,
            self.fs_block_log2,
        )
    }
}

impl Seal for Sealing<'_> {
    fn begin(&mut self, size: u64) -> Range<u64> {
        self.size = size;
        self.builder = Builder::new(self.shape(), self.salted.clone(), self.block_log2);
        let (_, length) = self.descriptor_place();
        tree_start(size)..length.next_multiple_of(1 << self.fs_block_log2)
    }

    fn take(&mut self, content: &[u8], write: &mut WriteSeal<'_>) -> EngineResult<()> {
        let start = tree_start(self.size);
        let block_len = 1 << self.block_log2;
        for block in content.chunks(block_len) {
            let block = if block.len() == block_len {
                block
            } else {
                self.last.clear();
                self.last.extend_from_slice(block);
                self.last.resize(block_len, 0);
                &self.last
            };
            self.builder
                .push(block, |at, bytes: &[u8]| write(start + at, bytes))?;
        }
        Ok(())
    }

    fn finish(&mut self, write: &mut WriteSeal<'_>) -> EngineResult<()> {
        let tree = tree_start(self.size);
        let root = self
            .builder
            .finish(|at, bytes: &[u8]| write(tree + at, bytes))?;
        let algorithm = self.options.algorithm;
        let none = Digest::of(&[0; 64][..algorithm.digest_len()]);
        let descriptor = Descriptor {
            algorithm,
            block_log2: self.block_log2,
            data_size: self.size,
            root_hash: root.or(none).ok_or(EngineError::Internal("no root hash"))?,
            salt: self.options.salt.clone(),
        };
        let from = self.tree_end();
        let (start, length) = self.descriptor_place();
        let mut bytes = vec![0; (length - from) as usize];
        let at = (start - from) as usize;
        bytes[at..at + DESCRIPTOR_LEN].copy_from_slice(&descriptor.encode());
        bytes.extend((DESCRIPTOR_LEN as u32).to_le_bytes());
        write(from, &bytes)?;
        self.digest = descriptor.digest().as_bytes().to_vec();
        Ok(())
    }
}
