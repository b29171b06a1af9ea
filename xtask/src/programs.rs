//! Programs of others that chores run.

use std::process::Command;

/// Runs a program that must succeed, and returns what it printed; what it said is in the error.
pub(crate) fn succeed(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|e| format!("cannot start {command:?}: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{command:?}: {}\n{text}{errors}", output.status))
    }
}

/// A program of the system, also where `PATH` is that of a user.
pub(crate) fn system(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
