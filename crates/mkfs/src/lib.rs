//! Makes ext4 file systems and fills them from a directory or a tar stream.
