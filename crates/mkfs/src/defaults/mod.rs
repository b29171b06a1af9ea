//! Sizes, features and ratios when nothing is asked for: what `mke2fs -t ext4` makes.
