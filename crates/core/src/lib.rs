//! The ext4 engine, by inode.
