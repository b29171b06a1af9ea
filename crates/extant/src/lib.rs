//! ext4 in user space, in the manner of std::fs.
