//! Programs of others that chores run, and files of theirs.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What came of something, or why nothing did.
pub(crate) type Done<T> = Result<T, String>;

/// Runs a program that must succeed, and returns what it printed; what it said is in the error.
pub(crate) fn succeed(command: &mut Command) -> Done<String> {
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

/// Which of these programs, each with its package, are not there; a name with a slash is a file.
pub(crate) fn missing(programs: &[(&str, &str)]) -> Vec<String> {
    let is_there = |name: &str| {
        if name.contains('/') {
            return Path::new(name).exists();
        }
        let found = system("sh")
            .args(["-c", "command -v \"$0\"", name])
            .output();
        found.is_ok_and(|output| output.status.success())
    };
    let gone = programs.iter().filter(|(program, _)| !is_there(program));
    gone.map(|(program, package)| format!("{program} (package {package})"))
        .collect()
}

/// Makes the command `extant`, and says where it is: in `target`, also where the environment has
/// another directory for what cargo builds.
pub(crate) fn build_extant(root: &Path) -> Done<std::path::PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    let target = root.join("target");
    build.current_dir(root).env_remove("CARGO_BUILD_TARGET");
    build.args(["build", "-q", "--locked", "-p", "extant-cli"]);
    succeed(build.arg("--target-dir").arg(&target))?;
    Ok(target.join("debug/extant"))
}

/// The value of a field of one object of JSON, whose name nothing else in it has.
pub(crate) fn json_field(text: &str, name: &str) -> Done<String> {
    let after = text.split(&format!("\"{name}\":")).nth(1);
    let value = after.and_then(|after| after.split([',', '}']).next());
    let value = value.ok_or_else(|| format!("no {name} in {text}"))?;
    Ok(value.trim().trim_matches('"').to_owned())
}

/// Makes a directory, and those above it.
pub(crate) fn make_dir(dir: &Path) -> Done<()> {
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// Copies a file, and makes the directories above the copy.
pub(crate) fn copy(from: &Path, to: &Path) -> Done<()> {
    make_dir(to.parent().unwrap_or(to))?;
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|e| format!("{}: {e}", from.display()))
}

/// Changes one bit of a file.
pub(crate) fn flip(path: &Path, at: u64) -> Done<()> {
    use std::os::unix::fs::FileExt;
    let flipped = || {
        let file = fs::File::options().read(true).write(true).open(path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[byte[0] ^ 1], at)
    };
    flipped().map_err(|e: std::io::Error| format!("{}: {e}", path.display()))
}
