//! What a file system tells of its past, beside `debugfs` and Linux.

mod adversaries;
mod crafted;
mod hostile_logs;
mod log;
mod support;
mod uses;
mod workload;
