//! The C interface as C sees it.

mod address;
mod bulk;
mod forked;
mod header;
mod install;
mod journal;
mod misuse;
mod owners;
mod program;
mod readme;
mod upkeep;
