//! The C interface as C sees it.

mod address;
mod header;
mod program;
