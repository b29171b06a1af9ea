//! The plan of an image: which block holds what.
