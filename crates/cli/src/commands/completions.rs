//! `extant completions`.

use crate::args::Completions;
use crate::failure::Outcome;
use std::io::Write;

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    let mut command = crate::help::for_completions();
    clap_complete::generate(args.shell, &mut command, "extant", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
