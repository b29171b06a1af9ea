//! `extant completions`.
//!
//! Scripts for bash, zsh and fish complete `IMAGE:/path`, too: what `paths.*` has stands before
//! what is written from the command line, and calls `extant complete-path`
//! ([`complete_path`](super::complete_path)).

use crate::args::Completions;
use crate::failure::{Failure, Outcome};
use clap_complete::Shell;
use std::io::Write;

pub(super) fn run(args: &Completions) -> Outcome {
    let mut script = Vec::new();
    let mut command = crate::help::for_completions();
    clap_complete::generate(args.shell, &mut command, "extant", &mut script);
    let script = String::from_utf8(script).map_err(Failure::new)?;
    std::io::stdout().write_all(with_paths(args.shell, script).as_bytes())?;
    Ok(())
}

/// Adds completion of paths in images: as a function with the name of the one that was written,
/// which gets another.
fn with_paths(shell: Shell, script: String) -> String {
    const WRITTEN: &str = "\n_extant() {";
    const RENAMED: &str = "\n_extant_options() {";
    let (paths, before) = match shell {
        Shell::Bash => (include_str!("paths.bash"), "\nif [[ \"${BASH_VERSINFO"),
        Shell::Zsh => (include_str!("paths.zsh"), "\nif [ \"$funcstack"),
        Shell::Fish => return script + include_str!("paths.fish"),
        _ => return script,
    };
    // Bash's begins with the function.
    let script = format!("\n{script}").replacen(WRITTEN, RENAMED, 1);
    let script = script.trim_start_matches('\n');
    match script.rsplit_once(before) {
        Some((functions, end)) => format!("{functions}{paths}{before}{end}"),
        None => script.to_owned(),
    }
}
