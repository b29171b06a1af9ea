//! What chores write into `docs/dev/conformance.md`: each a part of the page between two marks.

use crate::programs::{Done, succeed, system};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The page.
const PAGE: &str = "docs/dev/conformance.md";

/// Puts a text between the marks of that name.
pub(crate) fn write(root: &Path, name: &str, text: &str) -> Done<()> {
    let page = root.join(PAGE);
    let old = fs::read_to_string(&page).map_err(|e| format!("{PAGE}: {e}"))?;
    let new = replaced(&old, name, text).ok_or(format!("{PAGE} has no place for {name}"))?;
    fs::write(&page, new).map_err(|e| format!("{PAGE}: {e}"))
}

/// When it was, on which kernel, of which build, and beside which packages. The build is a commit,
/// and `-dirty` where anything but documents differs from it.
pub(crate) fn machine(root: &Path, packages: &[&str]) -> Done<String> {
    let first = |text: String| text.lines().next().unwrap_or_default().trim().to_owned();
    let date = first(succeed(Command::new("date").arg("+%Y-%m-%d"))?);
    let kernel = first(succeed(Command::new("uname").arg("-r"))?);
    let build = build(root)?;
    let version = |package: &str| {
        let mut query = system("dpkg-query");
        let found = succeed(query.args(["-W", "-f", "${Version}", package]));
        found.map_or_else(|_| "not installed".to_owned(), first)
    };
    let others: Vec<String> = packages
        .iter()
        .map(|name| format!("{name} {}", version(name)))
        .collect();
    let others = others.join(", ");
    Ok(format!(
        "{date}, Linux {kernel}, build {build}, {others}.\n"
    ))
}

/// The build: a commit, and `-dirty` where anything but documents differs from it.
pub(crate) fn build(root: &Path) -> Done<String> {
    let git = |args: &[&str]| succeed(Command::new("git").current_dir(root).args(args));
    let name = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs", ":!*.md"])?;
    let dirty = if changed.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{dirty}", name.trim()))
}

/// Steps of a chore, each of which is said when it is done.
pub(crate) struct Steps {
    rows: String,
    failed: usize,
}

impl Steps {
    /// No step yet.
    pub(crate) fn new() -> Self {
        Self {
            rows: String::new(),
            failed: 0,
        }
    }

    /// Does a step, which returns what was seen; of one that fails nothing else is returned.
    pub(crate) fn step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce() -> Done<(T, String)>,
    ) -> Option<T> {
        let begun = Instant::now();
        let result = work();
        let took = begun.elapsed();
        match result {
            Ok((value, seen)) => {
                self.note(what, &seen, took);
                Some(value)
            }
            Err(why) => {
                self.failed += 1;
                println!("{what} ({:.1} s): FAILED: {why}", took.as_secs_f64());
                None
            }
        }
    }

    fn note(&mut self, what: &str, seen: &str, took: Duration) {
        let seconds = took.as_secs_f64();
        println!("{what} ({seconds:.1} s): {seen}");
        let _ = writeln!(self.rows, "| {what} | {seen} | {seconds:.1} |");
    }

    /// The table of what was seen.
    ///
    /// # Errors
    /// Where a step failed.
    pub(crate) fn table(self) -> Done<String> {
        if self.failed > 0 {
            return Err(format!("{} steps failed", self.failed));
        }
        Ok(format!(
            "| what | seen | seconds |\n|---|---|--:|\n{}",
            self.rows
        ))
    }
}

/// A page with another text between its marks.
fn replaced(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- {name}:begin -->"),
        format!("<!-- {name}:end -->"),
    );
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::{Steps, build, replaced};
    use std::fs;
    use std::process::Command;

    #[test]
    fn a_build_of_what_is_in_no_commit_is_said_to_be_dirty() {
        let dir = std::env::temp_dir().join(format!("xtask-build.{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("docs")).unwrap();
        let git = |args: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&dir)
                .args(["-c", "user.name=a", "-c", "user.email=a@b"]);
            let output = git.args(args).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        fs::write(dir.join("a.rs"), "a").unwrap();
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "--no-gpg-sign", "-m", "a"]);
        fs::write(dir.join("docs/page.md"), "recorded").unwrap();
        let clean = build(&dir).unwrap();
        assert!(clean.chars().all(|c| c.is_ascii_hexdigit()), "{clean}");
        fs::write(dir.join("a.rs"), "b").unwrap();
        assert_eq!(build(&dir).unwrap(), format!("{clean}-dirty"));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        let new = replaced(page, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert_eq!(replaced(page, "y", "new\n"), None);
    }

    #[test]
    fn a_step_that_fails_leaves_no_table() {
        let mut steps = Steps::new();
        assert_eq!(steps.step("one", || Ok((1, "seen".into()))), Some(1));
        assert_eq!(steps.step("two", || Err::<((), _), _>("why".into())), None);
        assert!(steps.table().is_err());
    }
}
