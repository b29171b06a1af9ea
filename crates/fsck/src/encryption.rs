//! Encryption as far as it can be judged without keys: contexts, and the policies in them.
//!
//! A context is the value of an attribute: the policy (how names and contents are encrypted, and by
//! which master key), and 16 random bytes of the file's own. Everything in an encrypted directory
//! has the directory's policy.
//!
//! Source: "Encryption context" in the kernel's fscrypt documentation.

use crate::error::Result;
use crate::volume::Volume;
use crate::xattr;
use extant_format::Ino;
use extant_format::inode::Inode;
use extant_format::xattr::XattrValue;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Versions of contexts with the bytes that each has, and how many of them say the policy.
const FORMS: [(u8, usize, usize); 2] = [(1, 28, 12), (2, 40, 24)];

/// What an inode says about how it is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Nothing.
    Missing,
    /// Something that is no context.
    Malformed,
    /// This policy, as a number that equal ones share.
    Policy(u64),
}

impl Context {
    /// Judges the value of the attribute.
    fn of_value(value: &[u8]) -> Self {
        let version = value.first().copied().unwrap_or(0);
        let policy = match FORMS.iter().find(|(known, _, _)| *known == version) {
            Some((_, len, policy)) if value.len() == *len => value.get(..*policy),
            Some(_) => None,
            // A version to come: nothing can be said of it but that it is that.
            None if !value.is_empty() => Some(&[][..]),
            None => None,
        };
        policy.map_or(Self::Malformed, |policy| {
            let mut hasher = DefaultHasher::new();
            policy.hash(&mut hasher);
            Self::Policy(hasher.finish())
        })
    }

    /// Reads the context of an inode.
    pub(crate) fn of(volume: &Volume, inode: &Inode, slot: &[u8]) -> Result<Self> {
        let mut found = Self::Missing;
        xattr::with_encryption(volume, inode, slot, &mut |value| {
            found = match value {
                XattrValue::Bytes(bytes) => Self::of_value(bytes),
                XattrValue::InInode { .. } => Self::Malformed,
            };
        })?;
        Ok(found)
    }
}

/// Inodes side by side with one policy.
#[derive(Clone, Copy, Debug)]
struct PolicyRun {
    first: u32,
    last: u32,
    policy: u64,
}

/// The policies of all encrypted inodes.
#[derive(Debug, Default)]
pub(crate) struct Policies(Vec<PolicyRun>);

impl Policies {
    pub(crate) fn note(&mut self, ino: Ino, policy: u64) {
        let ino = ino.get();
        match self.0.last_mut() {
            Some(run) if run.policy == policy && run.last.checked_add(1) == Some(ino) => {
                run.last = ino;
            }
            _ => self.0.push(PolicyRun {
                first: ino,
                last: ino,
                policy,
            }),
        }
    }

    pub(crate) fn absorb(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Puts what was noted in order, so that it can be looked up.
    pub(crate) fn sort(&mut self) {
        self.0.sort_unstable_by_key(|run| run.first);
    }

    /// The policy of an inode, if it is encrypted by one.
    pub(crate) fn of(&self, ino: Ino) -> Option<u64> {
        let ino = ino.get();
        let after = self.0.partition_point(|run| run.first <= ino);
        let run = self.0.get(after.checked_sub(1)?)?;
        (ino <= run.last).then_some(run.policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_context_without_its_random_bytes() {
        let context = |version: u8, len: usize, nonce: u8| {
            let mut bytes = vec![7; len];
            bytes[0] = version;
            bytes[len - 16..].fill(nonce);
            Context::of_value(&bytes)
        };
        assert!(matches!(context(2, 40, 1), Context::Policy(_)));
        assert_eq!(context(2, 40, 1), context(2, 40, 2));
        assert_eq!(context(1, 28, 1), context(1, 28, 2));
        assert_ne!(context(1, 28, 1), context(2, 40, 1));
        assert_eq!(context(2, 39, 1), Context::Malformed);
        assert_eq!(context(1, 40, 1), Context::Malformed);
        assert_eq!(Context::of_value(&[]), Context::Malformed);
        assert_eq!(
            context(9, 40, 1),
            context(9, 20, 3),
            "nothing is known of these"
        );
    }

    #[test]
    fn policies_are_found_by_inode() {
        let mut policies = Policies::default();
        let of = [(20, 1), (21, 1), (23, 1), (24, 2), (11, 3)];
        for (ino, policy) in of {
            policies.note(Ino::new(ino), policy);
        }
        policies.sort();
        for (ino, policy) in of {
            assert_eq!(policies.of(Ino::new(ino)), Some(policy), "inode {ino}");
        }
        for ino in [1, 12, 19, 22, 25] {
            assert_eq!(policies.of(Ino::new(ino)), None, "inode {ino}");
        }
    }
}
