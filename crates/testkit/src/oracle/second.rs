//! A second judge beside `e2fsck`: the checker that `EXTANT_CHECKER` names, a program that is
//! called and answers as `extant check` does. Both must say the same of every image that a test has
//! judged.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::tool::Output;

/// What a message says where the two do not agree.
pub const DISAGREE: &str = "e2fsck and the checker do not agree";

/// What the second judge says, if there is one.
fn second(image: &Path) -> Option<Output> {
    let checker = std::env::var_os("EXTANT_CHECKER").filter(|path| !path.is_empty())?;
    let mut command = Command::new(&checker);
    command.args(["check", "--as-is"]).arg(image);
    let shown = format!("{command:?}");
    let done = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("EXTANT_CHECKER, {shown}: {e}"));
    Some(Output {
        command: shown,
        code: done.status.code().unwrap_or(-1),
        stdout: done.stdout,
        stderr: done.stderr,
    })
}

/// Whether the second judge, if there is one, says the same of `image` as `e2fsck -fn`: clean, or
/// not.
///
/// # Errors
///
/// Both reports.
pub(super) fn agrees(image: &Path, theirs: &Output) -> Result<(), String> {
    let Some(ours) = second(image) else {
        return Ok(());
    };
    let agree = match theirs.code {
        0 => ours.code == 0,
        _ => ours.code == 4 || ours.code == 8,
    };
    if agree {
        Ok(())
    } else {
        Err(format!(
            "{DISAGREE} about {}:\n{theirs}\n{ours}",
            image.display()
        ))
    }
}
