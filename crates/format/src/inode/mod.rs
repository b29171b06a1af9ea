//! Inodes: fixed part, extra fields, times, flags and modes.
