//! The public interface, used as a program would.

mod access_times;
mod ageing;
mod allocating;
mod callers;
mod casefold;
mod changing;
mod claiming;
mod clusters;
mod direct_io;
mod durable_flags;
mod examples;
mod exercise;
mod export;
mod files;
mod freeze;
mod inline_dirs;
mod inline_files;
mod large_xattrs;
mod model;
mod names;
mod out_of_space;
mod paths;
mod reserved_blocks;
mod stress;
mod support;
mod walking;
