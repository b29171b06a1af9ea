//! `extant-bench`: the workloads, with their peers side by side.

fn main() {}
