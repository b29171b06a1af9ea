//! The lines that were typed, kept for the next time.
//!
//! They are in `extant/edit-history` of the state directory of the XDG Base Directory
//! Specification, one a line, and nobody else may read them.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Lines that are kept.
pub(super) const MOST: usize = 1000;
/// Bytes from which on a file is made shorter.
const LONG: u64 = 1 << 20;

/// A file of lines.
#[derive(Debug)]
pub(super) struct History {
    file: File,
}

impl History {
    /// Opens the file, and reads what it has. `None` where the environment names no place for it.
    ///
    /// # Errors
    /// What is wrong with it, with its path.
    pub(super) fn open() -> Result<Option<(Self, Vec<String>)>, String> {
        let Some(path) = place(env::var_os("XDG_STATE_HOME"), env::var_os("HOME")) else {
            return Ok(None);
        };
        let opened = Self::at(&path);
        let opened = opened.map_err(|e| format!("{}: {e}", extant::Escaped::path(&path)))?;
        Ok(Some(opened))
    }

    fn at(path: &Path) -> io::Result<(Self, Vec<String>)> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let mut file = opened(path)?;
        let len = file.metadata()?.len();
        // The lines that count are at the end.
        file.seek(SeekFrom::Start(len.saturating_sub(LONG)))?;
        let mut text = Vec::new();
        (&file).take(LONG).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().map(str::to_owned).collect::<Vec<_>>();
        // Of a line that is cut there is no beginning.
        let cut = usize::from(len > LONG);
        lines.drain(..lines.len().saturating_sub(MOST).max(cut.min(lines.len())));
        if len > LONG {
            file = shortened(path, &lines)?;
        }
        Ok((Self { file }, lines))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn add(&mut self, line: &str) -> io::Result<()> {
        // In one piece, so that those of two programs do not mix.
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

/// Where the file is.
fn place(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let is_whole = |path: &PathBuf| path.is_absolute();
    let state = state.map(PathBuf::from).filter(is_whole);
    let of_home = || {
        let home = home.map(PathBuf::from).filter(is_whole)?;
        Some(home.join(".local/state"))
    };
    Some(state.or_else(of_home)?.join("extant/edit-history"))
}

/// Opens a file for reading and adding, which is made if it is not there.
fn opened(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        // A pipe keeps nobody waiting.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Replaces a file that has become long by one with these lines.
fn shortened(path: &Path, lines: &[String]) -> io::Result<File> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let replaced = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&new, path));
    if let Err(e) = replaced {
        let _ = fs::remove_file(&new);
        return Err(e);
    }
    opened(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_that_of_the_specification() {
        let of = |state: &str, home: &str| {
            let given = |text: &str| (!text.is_empty()).then(|| OsString::from(text));
            place(given(state), given(home))
        };
        let at = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of("/s", "/h"), at("/s/extant/edit-history"));
        assert_eq!(of("", "/h"), at("/h/.local/state/extant/edit-history"));
        // What is not absolute does not count.
        assert_eq!(of("s", "/h"), at("/h/.local/state/extant/edit-history"));
        assert_eq!(of("s", "h"), None);
        assert_eq!(of("", ""), None);
    }

    #[test]
    fn lines_are_kept_by_themselves_and_the_last_ones_of_many() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/history");
        let (mut history, lines) = History::at(&path).unwrap();
        assert_eq!(lines, [""; 0]);
        history.add("one").unwrap();
        history.add("two").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (mut again, lines) = History::at(&path).unwrap();
        assert_eq!(lines, ["one", "two"]);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        for number in 0..40_000 {
            again.add(&format!("{number:030}")).unwrap();
        }
        let (_, lines) = History::at(&path).unwrap();
        assert_eq!(lines.len(), MOST);
        assert_eq!(lines[MOST - 1], format!("{:030}", 39_999));
        assert!(path.metadata().unwrap().len() < 50_000);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        extant_testkit::tool::tool("mkfifo").arg(&path).ok();
        assert!(History::at(&path).is_err());
        assert!(History::at(dir.path()).is_err());
    }
}
