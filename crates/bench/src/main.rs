//! `extant-bench`: the workloads, with their peers side by side in one run.
//!
//! | module | owns |
//! |---|---|
//! | `args` | the command line, turned into a checked configuration in one place |
//! | `check` | oracles that judge a result before its time counts |
//! | `command` | the command that is measured |
//! | `crew` | workers that start together, and the time they take |
//! | `fragments` | in how many pieces files and free space are |
//! | `locks` | lock statistics per operation |
//! | `machine` | the machine and the build that measured |
//! | `model` | more cores than there are, by simulation; what workers share |
//! | `source_tree` | the generated tree that images are built from |
//! | `store` | backing files on tmpfs, fresh for every repetition |
//! | `side` | file systems under measurement behind one trait: the engine, a kernel mount |
//! | `peer` | running other programs, with their peak memory |
//! | `report` | medians, ratios, the table and the JSON lines |
//! | `results` | all workloads in one go, as tables and pictures |
//! | `server` | programs that serve while others are measured |
//! | `runner` | alternates the sides, so that a drift of the machine hits all of them |
//! | `workload` | one file per workload |
//!
//! Invariant: a time counts only after the result was checked (`e2fsck -fn`, sampled content).

// The one that the program of this project has, which also gives memory back while it mounts.
#[allow(dead_code, reason = "a benchmark gives nothing back")]
#[path = "../../cli/src/allocator.rs"]
mod allocator;
mod args;
mod check;
mod command;
mod crew;
mod fragments;
mod locks;
mod machine;
mod model;
mod peer;
mod report;
mod results;
mod runner;
mod server;
mod shared_memory;
mod side;
mod source_tree;
mod store;
mod workload;

use args::WorkloadName;
use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::set_up();
    let config = args::parse();
    let done = match config.workload {
        WorkloadName::Model => model::run(&config),
        WorkloadName::Shares => model::shares::run(&config),
        WorkloadName::Report => results::run(&config),
        _ => runner::run(&config),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
