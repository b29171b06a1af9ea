//! What an image is filled from: a directory or a tar stream.
