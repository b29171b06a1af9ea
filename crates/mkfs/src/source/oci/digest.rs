//! Names of content by its hash: `sha256:` or `sha512:` and lower-case hexadecimal digits.

use std::fmt;

use sha2::{Digest as _, Sha256, Sha512};

/// A hash, and how it was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest {
    algorithm: Algorithm,
    hex: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Hexadecimal digits.
    const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl Digest {
    /// Parses `ALGORITHM:HEX`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(algorithm, hex)| {
            let algorithm = [Algorithm::Sha256, Algorithm::Sha512]
                .into_iter()
                .find(|known| known.name() == algorithm)?;
            let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            (hex.len() == algorithm.digits() && hex.bytes().all(is_hex)).then(|| Self {
                algorithm,
                hex: hex.to_owned(),
            })
        });
        parsed.ok_or_else(|| {
            let shown: String = text.chars().take(100).collect();
            format!("{shown:?} is no digest: expected sha256 or sha512, a colon and its digits")
        })
    }

    /// The digest that a file is called by: 64 digits, perhaps with an ending.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let stem = name.split('.').next().unwrap_or(name);
        Self::parse(&format!("sha256:{stem}")).ok()
    }

    /// Where the content lies in a layout.
    pub(super) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm.name(), self.hex)
    }

    /// As people know it: the first twelve digits.
    pub(super) fn short(&self) -> String {
        format!("{}:{}", self.algorithm.name(), &self.hex[..12])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.name(), self.hex)
    }
}

/// A hash in the making.
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Makes a hash of the kind that `like` is.
    pub(super) fn new(like: &Digest) -> Self {
        match like.algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    /// Compares what was hashed; gives the digest it has if that is another.
    pub(super) fn compare(self, expected: &Digest) -> Result<(), Digest> {
        let hex =
            |hash: &[u8]| -> String { hash.iter().map(|byte| format!("{byte:02x}")).collect() };
        let found = match self {
            Self::Sha256(hash) => Digest {
                algorithm: Algorithm::Sha256,
                hex: hex(&hash.finalize()),
            },
            Self::Sha512(hash) => Digest {
                algorithm: Algorithm::Sha512,
                hex: hex(&hash.finalize()),
            },
        };
        if found == *expected {
            Ok(())
        } else {
            Err(found)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_lower_case_and_of_their_length() {
        let hex = "0123456789abcdef".repeat(4);
        let digest = Digest::parse(&format!("sha256:{hex}")).unwrap();
        assert_eq!(digest.path(), format!("blobs/sha256/{hex}"));
        assert_eq!(digest.short(), "sha256:0123456789ab");
        assert!(Digest::parse(&format!("sha512:{hex}{hex}")).is_ok());
        assert_eq!(Digest::of_name(&format!("{hex}.json")), Some(digest));
        for wrong in [
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha512:{hex}"),
            format!("md5:{hex}"),
            format!("sha256:../{}", &hex[3..]),
            hex,
        ] {
            assert!(Digest::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_was_hashed_is_compared() {
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::parse(abc).unwrap();
        let mut hasher = Hasher::new(&digest);
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.compare(&digest), Ok(()));
        let found = Hasher::new(&digest).compare(&digest).unwrap_err();
        assert!(found.to_string().starts_with("sha256:e3b0c44298fc"));
    }
}
