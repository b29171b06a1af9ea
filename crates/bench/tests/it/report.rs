//! The report: what it shows, what it refuses, and that the one of the project is what it makes.

use crate::{bench, refused, refused_in};
use extant_testkit::require;
use extant_testkit::tool::tool;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder for a report with a front page beside it, as the project has them.
struct Pages {
    folder: tempfile::TempDir,
}

impl Pages {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join("docs/report")).expect("made");
        let front = "x\n<!-- figures:begin -->\n<!-- figures:end -->\n";
        fs::write(folder.path().join("README.md"), front).expect("written");
        Self { folder }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("docs/report")
    }

    fn args<'a>(&self, args: &[&'a str], out: &'a str) -> Vec<&'a str> {
        [&["report", "--out", out], args].concat()
    }

    fn report(&self, args: &[&str]) -> String {
        let out = self.out();
        bench(&self.args(args, out.to_str().expect("text")));
        fs::read_to_string(self.out().join("tables.md")).expect("a page")
    }

    fn refused(&self, args: &[&str]) -> String {
        let out = self.out();
        refused(&self.args(args, out.to_str().expect("text")))
    }

    /// Runs the bench in the work tree `dir`, whose last commit is then the build.
    fn refused_in(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.out();
        let args = self.args(args, out.to_str().expect("text"));
        refused_in(dir, &args)
    }

    fn front(&self) -> String {
        fs::read_to_string(self.folder.path().join("README.md")).expect("the front page")
    }

    /// Puts rows of these origins where results lie.
    fn results(&self, origins: &[(&str, &str)]) {
        let rows = origins.iter().enumerate().flat_map(|(at, (machine, build))| {
            let part = if at == 0 { "fsync" } else { "stream" };
            ["engine", "kernel"].map(|side| {
                serde_json::json!({
                    "part": part, "workload": "fsync", "side": side,
                    "variant": "default", "workers": 4, "unit": "ops/s", "better": "higher",
                    "median": 6.0, "min": 5.0, "max": 7.0, "runs": [5.0, 6.0, 7.0], "peak_rss": null,
                    "figures": {"flushes per operation": 0.0}, "options": "x",
                    "machine": machine, "build": build,
                })
                .to_string()
            })
        });
        let text = rows.collect::<Vec<_>>().join("\n");
        fs::write(self.out().join("results.jsonl"), text).expect("written");
    }
}

/// A work tree with one commit, and the short name of it.
fn work_tree() -> (tempfile::TempDir, String) {
    let tree = tempfile::tempdir().expect("a folder");
    let dir = tree.path().to_str().expect("text");
    let git = |args: &[&str]| {
        let none = "/dev/null";
        let git = tool("git").env("GIT_CONFIG_GLOBAL", none);
        let git = git.env("GIT_CONFIG_SYSTEM", none);
        git.args(["-C", dir]).args(args).ok()
    };
    fs::write(tree.path().join("code.rs"), "code").expect("written");
    git(&["init", "-q"]);
    git(&["add", "code.rs"]);
    let author = [
        "-c",
        "user.name=tester",
        "-c",
        "user.email=tester@example.org",
    ];
    git(&[&author[..], &["commit", "-q", "-m", "Begin"]].concat());
    let commit = git(&["rev-parse", "--short=7", "HEAD"]);
    let commit = String::from_utf8(commit.stdout).expect("text");
    (tree, commit.trim().to_owned())
}

#[test]
fn a_report_has_tables_and_pictures_of_what_was_measured_and_keeps_the_rest() {
    require!(KernelExt4);
    let pages = Pages::new();
    let before = pages.front();
    let small = "--draft --runs 1 --image-mib 64 --fallocations 2000 --writes 100 --part";
    let measure = |part| {
        let args: Vec<&str> = small.split(' ').chain([part]).collect();
        pages.report(&args)
    };
    measure("sparse");
    fs::write(pages.out().join("pictures/left.svg"), "<svg/>").expect("written");
    let page = measure("fallocate2");
    for text in [
        "A draft",
        "### fallocate2",
        "### sparse",
        "| engine | kernel | x |",
        "| delalloc | 1 |",
        "| default | 64 |",
        "(pictures/fallocate2.svg)",
    ] {
        assert!(page.contains(text), "{text} in {page}");
    }
    let pictures = fs::read_dir(pages.out().join("pictures")).expect("a folder");
    for picture in pictures.map(|entry| entry.expect("an entry").path()) {
        let svg = fs::read_to_string(&picture).expect("a picture");
        assert!(
            svg.starts_with("<svg") && svg.contains("kernel"),
            "{picture:?}"
        );
        let name = picture.file_name().expect("a name").to_string_lossy();
        assert!(
            page.contains(&format!("(pictures/{name})")),
            "{name} is shown nowhere"
        );
    }
    assert_eq!(pages.front(), before, "a draft changes the front page");
    assert_eq!(measure("none"), page);
}

#[test]
fn a_report_of_one_clean_build_is_on_its_page_and_on_the_front_page() {
    let pages = Pages::new();
    pages.results(&[("one", "abc")]);
    let page = pages.report(&["--part", "none"]);
    assert!(page.contains("Machine: one.\nBuild: abc.\n"), "{page}");
    assert!(!page.contains("flushes per operation"), "{page}");
    let front = pages.front();
    assert!(
        front.contains("| append 4 KiB and `fsync`, four threads | 6/s (1.0x) | 6/s |"),
        "{front}"
    );
}

#[test]
fn results_of_several_builds_or_machines_or_of_no_commit_are_refused_and_nothing_is_written() {
    let pages = Pages::new();
    let before = pages.front();
    for (origins, what) in [
        ([("one", "abc"), ("one", "def")], "measure all parts again"),
        (
            [("one", "abc"), ("two", "abc")],
            "of one: measure all parts again",
        ),
        (
            [("one", "abc-dirty"), ("one", "abc-dirty")],
            "commit the changes",
        ),
    ] {
        pages.results(&origins);
        let said = pages.refused(&["--part", "none"]);
        assert!(said.contains(what), "{said}");
        assert!(!pages.out().join("tables.md").exists(), "{origins:?}");
        assert_eq!(pages.front(), before);
    }
}

#[test]
fn a_part_of_another_build_is_refused_before_it_is_measured() {
    let pages = Pages::new();
    pages.results(&[("one", "abc")]);
    let kept = pages.out().join("results.jsonl");
    let results = fs::read(&kept).expect("read");
    let (tree, commit) = work_tree();
    let said = pages.refused_in(tree.path(), &["--part", "fsync"]);
    let of_another = "has results of build abc on one, and this is build ";
    assert!(
        said.contains(&format!("{of_another}{commit} on ")),
        "{said}"
    );
    assert_eq!(fs::read(&kept).expect("read"), results);
}

#[test]
fn a_build_that_differs_from_its_commit_is_refused_before_it_is_measured() {
    let pages = Pages::new();
    let (tree, commit) = work_tree();
    fs::write(tree.path().join("code.rs"), "other").expect("written");
    let said = pages.refused_in(tree.path(), &["--part", "fsync"]);
    let is_told = said.contains(&format!(
        "this build ({commit}-dirty) differs from its commit"
    ));
    assert!(is_told, "{said}");
    assert!(!pages.out().join("results.jsonl").exists());
}

#[test]
fn a_part_without_a_mount_by_linux_is_measured_beside_its_own_peers() {
    let pages = Pages::new();
    let page = pages.report(&["--draft", "--runs", "1", "--part", "edit"]);
    assert!(
        page.contains("### edit") && page.contains("debugfs"),
        "{page}"
    );
}

#[test]
fn the_report_and_the_front_page_of_the_project_are_made_from_its_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = Pages::new();
    for file in [
        "README.md",
        "docs/report/results.jsonl",
        "docs/report/tables.md",
    ] {
        fs::copy(root.join(file), pages.folder.path().join(file)).expect("copied");
    }
    let page = pages.report(&["--part", "none"]);
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("read");
    assert_eq!(
        page,
        read("docs/report/tables.md"),
        "run `extant-bench report --part none`"
    );
    assert_eq!(
        pages.front(),
        read("README.md"),
        "run `extant-bench report --part none`"
    );
    let rows = pages.front();
    let rows = rows
        .lines()
        .skip_while(|line| !line.contains("figures:begin"))
        .take_while(|line| !line.contains("figures:end"))
        .filter(|line| line.starts_with("| "));
    assert_eq!(rows.count(), 1 + 8, "a chosen figure was not measured");
}
