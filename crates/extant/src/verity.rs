//! fs-verity: comparing content with the hashes that a file has of it.
//!
//! Behind its content a protected file has a tree of hashes, and a descriptor with the root hash.
//! What vouches for the root hash is not known here: the digest of the file is for that.

use crate::error::Why;
use crate::{Cause, Error, File, FsVerityOptions, Result};
use extant_core::fs::Fs;
use extant_core::inode::{FileType, Inode};
use extant_core::ops;
use extant_format::inode::InodeFlags;
use extant_verity::fs::{DESCRIPTOR_LEN, DESCRIPTOR_MAX, Descriptor, descriptor_start, tree_start};
use extant_verity::{Verifier, WalkError};
use std::sync::Arc;

/// Bytes read at once, a multiple of every block.
const CHUNK: usize = 1 << 20;

/// A file that fs-verity protects, whose content is compared with its hashes when it is read.
///
/// Made by [`File::fs_verity`]. The hashes are those that the file has: that they are the right
/// ones is known from [`FsVerityFile::digest`].
#[derive(Debug)]
pub struct FsVerityFile {
    file: File,
    inode: Arc<Inode>,
    seal: Seal,
    /// A piece of the file that was compared, and where it begins.
    piece: Vec<u8>,
    piece_at: u64,
}

impl File {
    /// Returns what reads the file and compares it with the hashes that fs-verity keeps of it;
    /// `None` for a file that is not protected.
    ///
    /// # Errors
    /// When what describes the hashes is damaged ([`Cause::Unverifiable`]), the map of the file is
    /// corrupt, or the device fails.
    pub fn fs_verity(&self) -> Result<Option<FsVerityFile>> {
        let inode = self.held().view();
        let seal = Seal::of(self.fs(), &inode);
        let seal = seal.map_err(|why| Error::new(self.path(), why.0))?;
        Ok(seal.map(|seal| FsVerityFile {
            file: self.clone(),
            inode,
            seal,
            piece: Vec::new(),
            piece_at: 0,
        }))
    }
}

impl FsVerityFile {
    /// Returns the digest of the file, which `fsverity digest` and `fsverity measure` show.
    #[must_use]
    pub fn digest(&self) -> Vec<u8> {
        self.seal.descriptor.digest().as_bytes().to_vec()
    }

    /// Returns the name of the hash function, such as `sha256`.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        self.seal.descriptor.algorithm.name()
    }

    /// Returns how the file is protected.
    #[must_use]
    pub fn options(&self) -> FsVerityOptions {
        let descriptor = &self.seal.descriptor;
        FsVerityOptions {
            algorithm: descriptor.algorithm,
            salt: descriptor.salt.clone(),
            block_size: Some(1 << descriptor.block_log2),
        }
    }

    /// Reads from byte `offset`, and gives nothing out that differs from what was protected.
    /// Returns how much was read: 0 at the end of the file and past it, and otherwise what is at
    /// hand.
    ///
    /// # Errors
    /// [`Cause::Altered`] with the place of the first block that differs, and those of
    /// [`File::read_at`].
    pub fn read_at(&mut self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let size = self.inode.size();
        if offset >= size {
            return Ok(0);
        }
        let is_at_hand =
            |piece: &[u8], at: u64| (at..at.saturating_add(piece.len() as u64)).contains(&offset);
        if !is_at_hand(&self.piece, self.piece_at) {
            let chunk = CHUNK as u64;
            self.piece_at = offset / chunk * chunk;
            let len = (size - self.piece_at).min(chunk) as usize;
            // What was not compared is not given out.
            let mut piece = std::mem::take(&mut self.piece);
            piece.resize(len, 0);
            let fs = self.file.fs();
            self.seal
                .read(fs, &self.inode, self.piece_at, &mut piece)
                .map_err(|why| Error::new(self.file.path(), why.0))?;
            self.piece = piece;
        }
        let from = (offset - self.piece_at) as usize;
        let there = self.piece.get(from..).unwrap_or_default();
        let len = there.len().min(buf.len());
        buf[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }
}

/// The hashes of a file.
#[derive(Debug)]
struct Seal {
    descriptor: Descriptor,
    verifier: Verifier,
}

impl Seal {
    /// What a file has; `None` if it is not protected.
    fn of(fs: &Fs, inode: &Inode) -> Result<Option<Self>, Why> {
        let is_protected = inode.flags().contains(InodeFlags::VERITY);
        if inode.file_type() != FileType::Regular || !is_protected {
            return Ok(None);
        }
        let size = inode.size();
        let mut end = 0;
        for piece in ops::allocated(fs, inode) {
            let piece = piece?;
            if !piece.unwritten {
                end = piece.offset.saturating_add(piece.len);
            }
        }
        let log2 = fs.block_size().log2();
        let missing = || unverifiable("it has no descriptor");
        let mut len = [0; 4];
        let at = end.checked_sub(4).filter(|at| *at >= tree_start(size));
        ops::read_seal(fs, inode, at.ok_or_else(missing)?, &mut len)?;
        let len = u64::from(u32::from_le_bytes(len));
        if !(DESCRIPTOR_LEN as u64..=DESCRIPTOR_MAX).contains(&len) {
            return Err(unverifiable(&format!(
                "its descriptor cannot have {len} bytes"
            )));
        }
        let start = descriptor_start(size, end, len, log2).ok_or_else(missing)?;
        let mut bytes = vec![0; len as usize];
        ops::read_seal(fs, inode, start, &mut bytes)?;
        let descriptor = Descriptor::parse(&bytes, size);
        let descriptor = descriptor.map_err(|e| unverifiable(&e.to_string()))?;
        let verifier = Verifier::new(
            descriptor.shape(),
            descriptor.salted(),
            descriptor.block_log2,
            descriptor.root_hash,
        );
        Ok(Some(Self {
            descriptor,
            verifier,
        }))
    }

    /// Reads whole blocks of a file, of which the last may end with it, and compares them.
    fn read(&mut self, fs: &Fs, inode: &Inode, at: u64, bytes: &mut [u8]) -> Result<(), Why> {
        let read = ops::read(fs, inode, at, bytes)?;
        if read < bytes.len() {
            return Err(Why::from(extant_core::Error::Stale));
        }
        let log2 = self.verifier.block_log2();
        let tree = tree_start(inode.size());
        let mut last = Vec::new();
        for (index, block) in (at >> log2..).zip(bytes.chunks(1 << log2)) {
            let block = if block.len() == 1 << log2 {
                block
            } else {
                last.clear();
                last.extend_from_slice(block);
                last.resize(1 << log2, 0);
                &last
            };
            let offset = index << log2;
            let read = |at: u64, to: &mut [u8]| ops::read_seal(fs, inode, tree + at, to);
            let compared = self.verifier.check(index, block, read);
            compared.map_err(|e| match e {
                WalkError::Read(e) => Why::from(e),
                WalkError::Data { .. } => Why::from(Cause::Altered { offset }),
                WalkError::Tree { .. } | WalkError::Beyond => unverifiable(&format!(
                    "the hashes that its content at byte {offset} is compared with are not those that \
                     lead to its root hash"
                )),
            })?;
        }
        Ok(())
    }
}

/// Compares all content of a file that is protected; of others there is nothing to compare.
pub(crate) fn compare(fs: &Fs, inode: &Inode) -> Result<(), Why> {
    let Some(mut seal) = Seal::of(fs, inode)? else {
        return Ok(());
    };
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < inode.size() {
        bytes.resize((inode.size() - at).min(CHUNK as u64) as usize, 0);
        seal.read(fs, inode, at, &mut bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}

fn unverifiable(what: &str) -> Why {
    Why::from(Cause::Unverifiable(what.into()))
}
