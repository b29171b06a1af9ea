//! The C interface as C sees it.

mod header;
mod program;
