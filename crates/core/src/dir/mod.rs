//! Directories: lookup and listing.
