//! Extended attributes: in the inode, in a block, in inodes of their own.
