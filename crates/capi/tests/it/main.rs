//! The C interface as C sees it.

mod address;
mod header;
mod install;
mod misuse;
mod owners;
mod program;
mod readme;
mod upkeep;
