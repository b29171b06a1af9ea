//! Hostile images: valid ones with a few fields changed and the checksums put right again, so
//! that a reader gets deep before it meets the lie.
//!
//! | module | owns |
//! |---|---|
//! | `specimen` | small valid images that between them have every structure |
//! | `anatomy` | where the structures of a valid image lie |
//! | `fields` | which numbers a structure has, and what could be written over them |
//! | `checksum` | putting the checksum of a changed structure right |
//! | `mutant` | choosing structures and changes from a seed |
//! | [`meaning`] | mutants by meaning: each a numbered change of one thing to every value worth trying |
//! | `harness` | running a reader over mutants in child processes with limits |
//!
//! Everything a seed decides is decided by it alone: the same specimen and seed give the same
//! mutant. This code knows the format from the documentation and not from the engine's crates, so
//! it does not share their misunderstandings; it trusts the specimens, which are known to be valid.

mod anatomy;
mod checksum;
mod fields;
mod harness;
pub mod meaning;
mod mutant;
mod specimen;

pub use harness::{Failure, Limits, Report, Work, run, run_all, serve, serve_numbers};
pub use mutant::Mutant;
pub use specimen::{Specimen, load_specimens, make_specimens};

/// Little-endian numbers at byte offsets; out of range reads as zero and writes nothing.
mod bytes {
    pub(super) fn le(bytes: &[u8], at: usize, width: usize) -> u64 {
        let mut word = [0; 8];
        if let Some(from) = bytes.get(at..at + width) {
            word[..width].copy_from_slice(from);
        }
        u64::from_le_bytes(word)
    }

    pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
        le(bytes, at, 2) as u16
    }

    pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
        le(bytes, at, 4) as u32
    }

    pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
        le32(bytes, at).swap_bytes()
    }

    pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        if let Some(to) = bytes.get_mut(at..at + value.len()) {
            to.copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::anatomy::Kind;
    use super::*;
    use std::collections::BTreeMap;

    /// The proof that this code knows where structures lie and how they are sealed: sealing the
    /// untouched ones again changes nothing.
    #[test]
    fn resealing_a_valid_structure_changes_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        make_specimens(dir.path());
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        for specimen in load_specimens(dir.path()) {
            let mut image = specimen.image.clone();
            for site in &specimen.anatomy.sites {
                *kinds.entry(site.kind).or_default() += 1;
                specimen.anatomy.repair(&mut image, site);
                let range = site.at..site.at + site.len;
                let same = image[range.clone()] == specimen.image[range];
                assert!(same, "{}: {site:?}", specimen.name);
            }
            assert!(image == specimen.image, "{}", specimen.name);
        }
        assert_eq!(
            kinds.len(),
            20,
            "a kind of structure is in no specimen: {kinds:?}"
        );
    }

    #[test]
    fn a_seed_always_makes_the_same_mutant() {
        let dir = tempfile::tempdir().unwrap();
        make_specimens(dir.path());
        let (first, second) = (load_specimens(dir.path()), load_specimens(dir.path()));
        for (a, b) in first.iter().zip(&second) {
            for seed in 0..20 {
                let (x, y) = (a.mutant(seed), b.mutant(seed));
                assert_eq!(x.story, y.story);
                assert!(x.image == y.image, "{} {seed}", a.name);
            }
        }
    }
}
