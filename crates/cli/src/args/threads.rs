//! How many threads work.

use clap::Args as ClapArgs;

/// More threads than this only cost memory.
const MOST: usize = 1024;

/// The option that says how many, of commands that have more of them where an image is far.
///
/// `verity`, `mkfs` and `convert` do not: theirs is written out, as its help says less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ClapArgs)]
pub(crate) struct Threads {
    /// Threads; one per processor if not given, more if an image is far
    #[arg(
        long = "threads",
        id = "threads",
        value_name = "N",
        value_parser = parse_threads,
        default_value_t = 0,
        hide_default_value = true
    )]
    pub(crate) count: usize,
}

pub(super) fn parse_threads(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|&threads| threads <= MOST)
        .ok_or_else(|| format!("use a number up to {MOST}"))
}
