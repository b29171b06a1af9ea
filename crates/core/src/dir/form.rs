//! What kind of directory is written to, and how its blocks are sealed.

use super::block::Directory;
use super::htree::default_hasher;
use super::state::DirState;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::meta::Seal;
use crate::meta::{BlockRef, LockedBlock};
use crate::{Error, Result};
use extant_format::Lblk;
use extant_format::checksum::Crc32c;
use extant_format::dir::NameHasher;
use extant_format::dir::htree::DxKind;
use extant_format::features::Compat;

/// The one encoding of names that there is.
const UTF8_12_1: u16 = 1;

/// How the entries of a directory find their blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// By an index.
    Indexed,
    /// There is one block only; when it is full the directory gets an index with this hash.
    One(NameHasher),
    /// The first block that has room.
    Linear,
}

impl<'a> Directory<'a> {
    /// Returns the directory of this inode, to be written to. The caller holds the lock of its
    /// index.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::Unsupported`] for kinds of directory that are only read.
    /// One with encrypted names is none: names can be taken away without a key.
    pub(super) fn writable(
        fs: &'a Fs,
        inode: &'a Inode,
        state: &'a DirState,
    ) -> Result<(Self, Form)> {
        let dir = Self::new(fs, inode)?.with_state(Some(state), true);
        if dir.is_casefolded()
            && fs.superblock().encoding().map(|(which, _)| which) != Some(UTF8_12_1)
        {
            return Err(unsupported(
                "casefolded directories of another encoding than utf8-12.1",
            ));
        }
        let form = dir.form()?;
        Ok((dir, form))
    }

    /// Returns how the entries find their blocks.
    pub(super) fn form(&self) -> Result<Form> {
        let indexes = self.fs.superblock().has_compat(Compat::DIR_INDEX);
        match (self.is_indexed(), indexes) {
            (true, true) => Ok(Form::Indexed),
            // Others would take the index for valid when the feature comes back.
            (true, false) => Err(unsupported("an index without the feature dir_index")),
            (false, true) if self.blocks() == 1 => {
                Ok(default_hasher(self).map_or(Form::Linear, Form::One))
            }
            (false, _) => Ok(Form::Linear),
        }
    }

    /// Returns how commit seals a block of names.
    pub(super) fn leaf_seal(&self) -> Seal {
        self.seed().map_or(Seal::Plain, Seal::DirLeaf)
    }

    /// Returns how commit seals a node of the index.
    pub(super) fn node_seal(&self, kind: DxKind) -> Seal {
        match (self.seed(), kind) {
            (None, _) => Seal::Plain,
            (Some(seed), DxKind::Root) => Seal::DxRoot(seed),
            (Some(seed), DxKind::Inner) => Seal::DxNode(seed),
        }
    }

    fn seed(&self) -> Option<Crc32c> {
        self.inode.seed().filter(|_| self.layout.checksums)
    }

    /// Locks a block that must be there, to be changed. The caller holds the lock of the index.
    pub(super) fn lock_leaf<'s>(
        &'s self,
        state: &'s DirState,
        lblk: Lblk,
    ) -> Result<LockedBlock<'s>> {
        let load = || self.existing_block(lblk);
        state.leaf(lblk).lock(self.fs.cache(), load)
    }

    /// Returns a block that must be there.
    pub(super) fn existing_block(&self, lblk: Lblk) -> Result<BlockRef> {
        self.block(lblk)?.ok_or_else(|| self.hole(lblk))
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported {
        features: format!("writing {what}"),
    }
}
