//! POSIX access control lists as ext4 stores them.
