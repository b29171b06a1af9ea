//! One POSIX operation per file.
