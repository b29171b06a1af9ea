//! Hash functions, and hashing with something in front.

use sha2::{Digest as _, Sha256, Sha512};
use std::fmt;
use std::str::FromStr;

/// A hash function that both formats know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// SHA-256: hashes of 32 bytes.
    #[default]
    Sha256,
    /// SHA-512: hashes of 64 bytes.
    Sha512,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Returns the name that dm-verity has in its superblock.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Returns the bytes of a hash, a power of two.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the bytes that the function takes at a time; fs-verity fills its salt up to them.
    #[must_use]
    pub const fn input_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// Returns how many hashes a block has room for, as a power of two.
    #[must_use]
    pub const fn arity_log2(self, block_log2: u32) -> u32 {
        block_log2.saturating_sub(self.digest_len().ilog2())
    }

    /// Hashes all of `bytes`.
    #[must_use]
    pub fn hash(self, bytes: &[u8]) -> Digest {
        Salted::new(self, &[]).hash(bytes)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|known| known.name() == text);
        known.ok_or_else(|| format!("{text:?} is not a hash function here: use sha256 or sha512"))
    }
}

/// A hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    bytes: [u8; 64],
    len: u8,
}

impl Digest {
    /// Takes the bytes of a hash, of which there are at most 64.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let mut digest = Self {
            bytes: [0; 64],
            len: bytes.len() as u8,
        };
        digest.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(digest)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Writes the hash in hexadecimal.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A hash function that has taken something already.
#[derive(Clone, Debug)]
pub struct Salted {
    algorithm: Algorithm,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Salted {
    /// Begins with these bytes, before everything that is hashed.
    #[must_use]
    pub fn new(algorithm: Algorithm, prefix: &[u8]) -> Self {
        let state = match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new_with_prefix(prefix)),
            Algorithm::Sha512 => State::Sha512(Sha512::new_with_prefix(prefix)),
        };
        Self { algorithm, state }
    }

    /// Returns the function.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Hashes one block.
    #[must_use]
    pub fn hash(&self, block: &[u8]) -> Digest {
        let mut digest = Digest {
            bytes: [0; 64],
            len: self.algorithm.digest_len() as u8,
        };
        match &self.state {
            State::Sha256(state) => {
                let done = state.clone().chain_update(block).finalize();
                digest.bytes[..32].copy_from_slice(&done);
            }
            State::Sha512(state) => {
                let done = state.clone().chain_update(block).finalize();
                digest.bytes.copy_from_slice(&done);
            }
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_front_counts_as_if_it_were_hashed() {
        for algorithm in Algorithm::ALL {
            let salted = Salted::new(algorithm, b"salt");
            assert_eq!(salted.hash(b"block"), algorithm.hash(b"saltblock"));
            assert_eq!(salted.hash(b"block"), salted.hash(b"block"));
        }
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            Algorithm::Sha256.hash(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn blocks_hold_whole_powers_of_two_of_hashes() {
        assert_eq!(Algorithm::Sha256.arity_log2(12), 7);
        assert_eq!(Algorithm::Sha512.arity_log2(12), 6);
        assert_eq!(Algorithm::Sha512.arity_log2(10), 4);
    }
}
