//! The mark by which this builder knows its own file systems.
//!
//! There is no field for the name of a builder that others leave alone. But the seed of the
//! directory hash never changes in the life of a file system, means nothing, and has room: its last
//! four bytes follow from the twelve before. Those stay random, so names that collide are as hard
//! to find as ever. A file system of another builder has the mark once in 2^32.

use uuid::Uuid;

/// Bytes of a seed that are free.
const FREE: usize = 12;

/// The seed with the mark in it.
#[must_use]
pub(super) fn marked(mut seed: [u8; 16]) -> [u8; 16] {
    let mark = mark_of(&seed);
    seed[FREE..].copy_from_slice(&mark);
    seed
}

/// Returns whether a hash seed has the mark of this builder.
#[must_use]
pub fn is_marked(seed: [u8; 16]) -> bool {
    seed[..FREE] != [0; FREE] && seed[FREE..] == mark_of(&seed)
}

fn mark_of(seed: &[u8; 16]) -> [u8; 4] {
    let mut name = b"extant mkfs made this".to_vec();
    name.extend_from_slice(&seed[..FREE]);
    let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, &name).into_bytes();
    [digest[0], digest[1], digest[2], digest[3]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_this_builder_are_known_and_others_are_not() {
        let mut others = 0;
        for n in 0..1000 {
            let seed = Uuid::new_v5(&Uuid::NAMESPACE_OID, &[n as u8, (n >> 8) as u8]).into_bytes();
            others += u32::from(is_marked(seed));
            assert!(is_marked(marked(seed)));
            assert_eq!(marked(seed)[..FREE], seed[..FREE]);
        }
        assert_eq!(others, 0);
        assert!(!is_marked([0; 16]));
    }
}
