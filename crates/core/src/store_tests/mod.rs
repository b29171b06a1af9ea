//! Tests of the rooms of `extant-store` that need a whole file system around them.

mod alloc;
mod journal;
mod prealloc;
