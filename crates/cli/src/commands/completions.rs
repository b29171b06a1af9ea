//! `extant completions`.

use crate::args::{Args, Completions};
use crate::failure::Outcome;
use clap::CommandFactory;
use std::io::Write;

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "extant", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
