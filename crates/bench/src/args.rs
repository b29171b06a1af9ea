//! The command line, turned into a checked configuration in one place.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Measures Extant against its peers: same work, same run, sides alternating.
#[derive(Parser, Debug)]
#[command(
    name = "extant-bench",
    version,
    after_help = "Example:\n  extant-bench build --against kernel,mke2fs --runs 3 --json"
)]
pub(crate) struct Config {
    /// What to measure
    pub(crate) workload: WorkloadName,

    /// Peers to run beside the engine; those that do not fit the workload are refused
    /// [default: all that fit]
    #[arg(long, value_delimiter = ',')]
    pub(crate) against: Option<Vec<Side>>,

    /// Repetitions of each side
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,

    /// Threads the engine may use, several values for several measurements
    /// [default: one per processor]
    #[arg(long, value_delimiter = ',')]
    pub(crate) workers: Option<Vec<usize>>,

    /// Variants to run [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) variant: Option<Vec<String>>,

    /// One JSON object per line instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Folder for trees and images; a tmpfs, so that no disk is measured
    #[arg(long, default_value = "/dev/shm")]
    pub(crate) dir: PathBuf,

    /// Entries of the source tree
    #[arg(long, default_value_t = 60_000, value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    pub(crate) entries: u64,

    /// Bytes of file content in the source tree
    #[arg(long, default_value_t = 1_342_177_280)]
    pub(crate) bytes: u64,
}

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    /// Make an image from a directory
    Build,
    /// Write the files of an image into a directory
    Extract,
}

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// Extant, in this process
    Engine,
    /// The kernel's ext4 on a loop device
    Kernel,
    /// `mke2fs -d`
    Mke2fs,
    /// `genext2fs`
    Genext2fs,
    /// `debugfs rdump`
    Debugfs,
}

impl Side {
    /// The name used in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Kernel => "kernel",
            Self::Mke2fs => "mke2fs",
            Self::Genext2fs => "genext2fs",
            Self::Debugfs => "debugfs",
        }
    }
}

/// Reads the command line; usage errors end the process with code 2.
pub(crate) fn parse() -> Config {
    Config::parse()
}
