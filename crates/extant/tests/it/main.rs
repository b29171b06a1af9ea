//! The public interface, used as a program would.

mod access_times;
mod ageing;
mod allocating;
mod callers;
mod casefold;
mod changing;
mod claiming;
mod clusters;
mod direct;
mod durable_flags;
mod examples;
mod exercise;
mod export;
mod files;
mod full;
mod inline;
mod inline_dirs;
mod large_xattrs;
mod model;
mod names;
mod paths;
mod quiet;
mod reserve;
mod stress;
mod support;
mod walking;
