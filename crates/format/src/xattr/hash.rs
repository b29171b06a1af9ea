//! Hashes of entries, blocks and values.
//!
//! An entry's hash covers name and value; a block's covers its entries' and lets blocks with equal
//! content be shared. The first implementation hashed the name as C `char`, signed on most
//! machines; the kernel writes the unsigned form and accepts both.

use crate::checksum::Crc32c;

const NAME_SHIFT: u32 = 5;
const VALUE_SHIFT: u32 = 16;
const BLOCK_SHIFT: u32 = 16;

/// What of the value goes into an entry's hash.
#[derive(Clone, Copy, Debug)]
pub enum HashedValue<'a> {
    /// The value itself.
    Bytes(&'a [u8]),
    /// The value lies in an inode of its own, whose [`value_hash`] stands for it.
    InInode(u32),
}

/// Returns the hash of an entry, as it is written today.
#[must_use]
pub fn entry_hash(name: &[u8], value: HashedValue<'_>) -> u32 {
    add_value(hash_name(name, u32::from), value)
}

/// Returns the hash of an entry as machines with signed `char` once wrote it.
#[must_use]
pub fn entry_hash_signed(name: &[u8], value: HashedValue<'_>) -> u32 {
    add_value(hash_name(name, |b| b as i8 as i32 as u32), value)
}

/// Returns whether a stored hash is one of the two forms. Zero, which entries in the inode have,
/// matches anything.
#[must_use]
pub fn entry_hash_matches(stored: u32, name: &[u8], value: HashedValue<'_>) -> bool {
    stored == 0 || stored == entry_hash(name, value) || stored == entry_hash_signed(name, value)
}

fn hash_name(name: &[u8], widen: impl Fn(u8) -> u32) -> u32 {
    name.iter().fold(0u32, |hash, &byte| {
        hash.rotate_left(NAME_SHIFT) ^ widen(byte)
    })
}

fn add_value(hash: u32, value: HashedValue<'_>) -> u32 {
    let add = |hash: u32, word: u32| hash.rotate_left(VALUE_SHIFT) ^ word;
    match value {
        HashedValue::InInode(value_hash) => add(hash, value_hash),
        HashedValue::Bytes(bytes) => bytes.chunks(4).fold(hash, |hash, chunk| {
            let mut word = [0; 4];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            add(hash, u32::from_le_bytes(word))
        }),
    }
}

/// Returns the hash of a block from its entries' hashes, in order. A block with an entry of hash 0
/// is not to be shared, and has hash 0.
#[must_use]
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash: u32 = 0;
    for entry in entry_hashes {
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(BLOCK_SHIFT) ^ entry;
    }
    hash
}

/// Returns the hash of a value kept in an inode of its own: CRC32C from the file system's checksum
/// seed.
#[must_use]
pub fn value_hash(fs_seed: Crc32c, value: &[u8]) -> u32 {
    fs_seed.update(value).value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_match_and_differ_only_above_127() {
        let value = HashedValue::Bytes(b"value");
        assert_eq!(
            entry_hash(b"plain", value),
            entry_hash_signed(b"plain", value)
        );
        let (new, old) = (
            entry_hash(b"\xe9t\xe9", value),
            entry_hash_signed(b"\xe9t\xe9", value),
        );
        assert_ne!(new, old);
        for stored in [new, old, 0] {
            assert!(entry_hash_matches(stored, b"\xe9t\xe9", value));
        }
        assert!(!entry_hash_matches(new ^ 1, b"\xe9t\xe9", value));
    }

    #[test]
    fn an_unhashed_entry_makes_a_block_unshareable() {
        assert_eq!(block_hash([5, 0, 7]), 0);
        assert_eq!(block_hash([1, 2]), (1 << 16) ^ 2);
    }
}
