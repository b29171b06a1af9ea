//! The identity of a reproducible image: a digest of what the source holds, without the bytes of
//! its files.

use crate::source::Tree;
use sha2::{Digest, Sha256};

impl Tree {
    /// Returns a digest of every name, inode and attribute, in canonical order: equal for equal
    /// trees.
    ///
    /// File content is not read; two trees that differ in nothing else have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for id in self.ids() {
            let node = self.node(id);
            hash.update(node.mode.to_le_bytes());
            hash.update(node.uid.to_le_bytes());
            hash.update(node.gid.to_le_bytes());
            hash.update(node.size.to_le_bytes());
            let times = [node.times.atime(), node.times.mtime(), node.times.ctime()];
            for time in times {
                hash.update(time.secs.to_le_bytes());
                hash.update(time.nanos.to_le_bytes());
            }
            if let Some((major, minor)) = node.rdev() {
                hash.update(major.to_le_bytes());
                hash.update(minor.to_le_bytes());
            }
            if let Some(target) = self.symlink_target(id) {
                hash.update(target);
            }
            for attribute in self.xattrs(id).iter() {
                field(&mut hash, &attribute.name);
                field(&mut hash, &attribute.value);
            }
            for (name, child) in self.children(id) {
                field(&mut hash, name);
                hash.update((child.index() as u64).to_le_bytes());
            }
            hash.update([0xff]);
        }
        hash.finalize().into()
    }
}

/// Bytes with their length in front, so that neighbours cannot run into each other.
fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
