//! File data and directory entries kept inside an inode.
