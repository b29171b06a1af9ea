//! The command that is measured.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The command `extant` as a file.
#[derive(Clone)]
pub(crate) struct Extant(PathBuf);

impl Extant {
    /// Takes the program named, or that beside this one.
    ///
    /// # Errors
    /// When it is not there, or older than what it is made of, with what to do.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, String> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .map_err(|e| format!("the folder of this program: {e}"))?
                .with_file_name("extant"),
        };
        let build = if cfg!(debug_assertions) {
            "cargo build -p extant-cli"
        } else {
            "cargo build --release -p extant-cli"
        };
        let shown = path.display();
        let Ok(found) = path.metadata() else {
            return Err(format!(
                "the command {shown} is not there: `{build}` makes it, --extant names another"
            ));
        };
        let made = found.modified().map_err(|e| format!("{shown}: {e}"))?;
        match newer(&path.with_extension("d"), made) {
            Some(source) => Err(format!(
                "the command {shown} is older than {}: `{build}` makes it anew",
                source.display()
            )),
            None => Ok(Self(path)),
        }
    }

    /// A run of it with these arguments. What it reads of the environment is out of the way.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.0);
        command.args(args);
        for variable in ["EXTANT_CACHE_DIR", "SOURCE_DATE_EPOCH"] {
            command.env_remove(variable);
        }
        past_proxies(&mut command);
        command
    }
}

/// Has a program ask servers here by itself.
pub(crate) fn past_proxies(command: &mut Command) {
    for variable in ["NO_PROXY", "no_proxy"] {
        command.env(variable, "127.0.0.1");
    }
}

/// The first source that was changed after `made`, by the list that Cargo leaves beside a program.
/// A program without such a list was not made here.
fn newer(list: &Path, made: SystemTime) -> Option<PathBuf> {
    let list = fs::read_to_string(list).ok()?;
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    let is_newer = |source: &PathBuf| {
        let changed = source.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|changed| changed > made)
    };
    words(sources).map(PathBuf::from).find(is_newer)
}

/// Words between spaces; one with a backslash before it is a part of the word.
fn words(line: &str) -> impl Iterator<Item = String> {
    let parts = line.replace("\\ ", "\0");
    let words: Vec<String> = parts
        .split(' ')
        .map(|word| word.replace('\0', " "))
        .collect();
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_command_that_is_not_there_or_older_than_its_sources_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        let refused = |path: &Path| match Extant::find(Some(path)) {
            Ok(_) => panic!("{} is taken", path.display()),
            Err(said) => said,
        };
        assert!(refused(&file("extant")).contains("cargo build"));
        for name in ["extant", "a b.rs", "c.rs"] {
            fs::write(file(name), "").expect("written");
        }
        // Without a list it is as it is.
        assert!(Extant::find(Some(&file("extant"))).is_ok());
        let shown = |name: &str| file(name).display().to_string().replace(' ', "\\ ");
        let list = format!(
            "{}: {} {}\n",
            shown("extant"),
            shown("a b.rs"),
            shown("c.rs")
        );
        fs::write(file("extant.d"), list).expect("written");
        let touch = |name: &str, seconds| {
            let then = SystemTime::now() + Duration::from_secs(seconds);
            let opened = fs::File::options().write(true).open(file(name));
            opened
                .and_then(|file| file.set_modified(then))
                .expect("set");
        };
        touch("extant", 60);
        assert!(Extant::find(Some(&file("extant"))).is_ok());
        touch("a b.rs", 120);
        assert!(refused(&file("extant")).contains("a b.rs"));
    }
}
