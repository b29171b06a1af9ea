//! Directory blocks: entries, tails, the hashed index and its hashes.
