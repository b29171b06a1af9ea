//! The pages "typed, now": both sides of each row are typed on fresh copies of one desk, and what
//! comes of them is compared.
//!
//! | file | owns |
//! |---|---|
//! | `desk.sh` | what the pages name: images, and files of the host |
//! | `judge` | the ways in which two sides are compared |
//! | `reading` | what is read out of the output of programs |
//! | `e2fsprogs` | the rows of `from-e2fsprogs.md`, and how each is judged |
//! | `guestfish` | the rows of `from-guestfish.md`, and how each is judged |

mod e2fsprogs;
mod guestfish;
mod judge;
mod reading;

use crate::namespaces::without_copies;
use crate::support::Place;
use extant_testkit::mount::{KernelMount, Mode};
use extant_testkit::tool::tool;
use extant_testkit::tree::Tree;
use judge::By;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a test knows of a row.
#[derive(Debug)]
struct Known {
    /// The left side, as the page has it.
    typed: &'static str,
    /// What is typed in its place, where its program is not here.
    instead: Option<&'static str>,
    /// How the left side ends, and how the right one does.
    codes: (i32, i32),
    by: &'static [By],
}

/// A row that is judged so, and whose sides end with 0.
const fn row(typed: &'static str, by: &'static [By]) -> Known {
    Known {
        typed,
        instead: None,
        codes: (0, 0),
        by,
    }
}

/// A row that has nothing to the right. The left side is typed all the same where it can be.
const fn nothing(typed: &'static str) -> Known {
    row(typed, &[])
}

impl Known {
    const fn instead(self, instead: &'static str) -> Self {
        Self {
            instead: Some(instead),
            ..self
        }
    }

    const fn codes(self, left: i32, right: i32) -> Self {
        Self {
            codes: (left, right),
            ..self
        }
    }
}

/// A row of a page.
#[derive(Debug)]
struct Row {
    typed: String,
    /// Nothing where the page says so.
    now: Option<String>,
}

/// The rows of all tables of a page.
fn rows(page: &str) -> Vec<Row> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user");
    let text = fs::read_to_string(root.join(page)).unwrap();
    let of_tables = text.lines().filter(|line| line.starts_with('|'));
    let is_head = |line: &&str| line.starts_with("| typed |") || line.starts_with("|---");
    of_tables
        .filter(|line| !is_head(line))
        .map(|line| {
            let cells = cells(line);
            let [typed, now, _note] = &cells[..] else {
                panic!("{page}: a row has three cells: {line}");
            };
            let typed = code(typed).unwrap_or_else(|| panic!("{page}: {typed} is no code"));
            let now = code(now).or_else(|| {
                assert!(now.starts_with("nothing"), "{page}: what is {now}?");
                None
            });
            Row { typed, now }
        })
        .collect()
}

/// The cells of a row, in which `\|` is a bar.
fn cells(line: &str) -> Vec<String> {
    let inner = line.strip_prefix('|').unwrap().strip_suffix('|').unwrap();
    let whole = inner.replace("\\|", "\0");
    let cell = |text: &str| text.trim().replace('\0', "|");
    whole.split('|').map(cell).collect()
}

/// What a cell has typed, if it is code and nothing else.
fn code(cell: &str) -> Option<String> {
    let inner = cell.strip_prefix('`')?.strip_suffix('`')?;
    assert!(!inner.contains('`'), "one command line: {cell}");
    Some(inner.to_owned())
}

/// What a side left behind.
struct Side {
    place: Place,
    code: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Side {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    fn arg(&self, name: &str) -> String {
        self.place.arg(name)
    }
}

/// What all rows start from.
struct Desk {
    place: Place,
    /// Trees of its images, as Linux shows them.
    trees: RefCell<BTreeMap<String, Tree>>,
}

impl Desk {
    fn new() -> Self {
        let place = Place::in_memory();
        let bin = place.join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(env!("CARGO_BIN_EXE_extant"), bin.join("extant")).unwrap();
        let desk = Self {
            place,
            trees: RefCell::default(),
        };
        let work = desk.place.join("desk");
        fs::create_dir(&work).unwrap();
        let (code, _, stderr) = desk.shell(include_str!("desk.sh"), &work);
        assert_eq!(code, 0, "the desk is laid: {stderr}");
        desk
    }

    /// Types a line in this directory.
    fn shell(&self, line: &str, work: &Path) -> (i32, Vec<u8>, String) {
        let path = std::env::var("PATH").unwrap();
        let bin = self.place.arg("bin");
        let output = Command::new("timeout")
            .args(["-k", "5", "300", "bash", "-c", line])
            .current_dir(work)
            .stdin(Stdio::null())
            .env("PATH", format!("{bin}:{path}:/usr/sbin:/sbin"))
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("MKE2FS_SKIP_PROGRESS", "1")
            .env("BLKID_FILE", "/dev/null")
            .env_remove("SOURCE_DATE_EPOCH")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap_or(-1), output.stdout, stderr)
    }

    /// Types a line on a fresh copy of what it names.
    fn types(&self, line: &str) -> Side {
        let place = Place::in_memory();
        for entry in fs::read_dir(self.place.join("desk")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_image = [".img", ".qcow2"].iter().any(|end| name.ends_with(end));
            let is_mounted = name == "disk.img" && line.contains("linux ");
            if !is_image || is_mounted || line.contains(&name) {
                let from = self.place.arg(&format!("desk/{name}"));
                let cp = tool("cp").args(["-a", "--sparse=always"]);
                cp.args([from, place.arg(&name)]).ok();
            }
        }
        let unmounts = ["linux ", "umount "].iter().any(|word| line.contains(word));
        let _no_copies = unmounts.then(without_copies);
        let (code, stdout, stderr) = self.shell(&format!("{ON_A_MOUNT}{line}"), place.path());
        Side {
            place,
            code,
            stdout,
            stderr,
        }
    }

    /// What Linux shows of an image of the desk, if it has one of this name.
    fn tree(&self, image: &str) -> Option<Tree> {
        let path = self.place.join("desk").join(image);
        if !path.exists() {
            return None;
        }
        let mut trees = self.trees.borrow_mut();
        let tree = trees.entry(image.to_owned()).or_insert_with(|| {
            let mount = KernelMount::mount(&path, Mode::Untouched, "noload");
            let tree = Tree::snapshot(mount.path());
            mount.unmount();
            tree
        });
        Some(tree.clone())
    }
}

/// `linux COMMANDS` runs shell commands in the root of a mount of `disk.img` by Linux.
const ON_A_MOUNT: &str = "linux() {
    mount -o loop disk.img mnt || return 99
    (cd mnt && eval \"$1\")
    local code=$?
    umount mnt || return 98
    return $code
}
";

/// Types every row of a page, and judges it as the test knows. The left sides are typed where
/// their programs are here.
fn judge_page(page: &str, known: &[&[Known]], may_be_typed: bool) {
    let rows = rows(page);
    assert!(rows.len() > 50, "{page} has {} rows", rows.len());
    let on_page: BTreeSet<&str> = rows.iter().map(|row| &*row.typed).collect();
    assert_eq!(on_page.len(), rows.len(), "{page} has a left side twice");
    for known in known.iter().copied().flatten() {
        let typed = known.typed;
        assert!(on_page.contains(typed), "{page} has no row for {typed}");
    }
    let desk = Desk::new();
    let mut failed = 0;
    for row in &rows {
        let all = known.iter().copied().flatten();
        let of_row: Vec<_> = all.filter(|known| known.typed == row.typed).collect();
        let [known] = of_row[..] else {
            panic!("{page}: {} tests know {}", of_row.len(), row.typed);
        };
        // All rows that fail are told.
        let judged = AssertUnwindSafe(|| judge_row(&desk, row, known, may_be_typed));
        failed += u32::from(catch_unwind(judged).is_err());
    }
    assert_eq!(failed, 0, "rows of {page} whose sides do not do the same");
}

fn judge_row(desk: &Desk, row: &Row, known: &Known, may_be_typed: bool) {
    let typed = &*row.typed;
    let left = match known.instead {
        Some(instead) => Some(desk.types(instead)),
        None => may_be_typed.then(|| desk.types(typed)),
    };
    if let Some(left) = &left {
        let (is, expected) = (left.code, known.codes.0);
        assert_eq!(is, expected, "{typed}\n{}{}", left.text(), left.stderr);
    }
    let Some(now) = &row.now else {
        assert!(known.by.is_empty(), "the page has nothing for {typed}");
        return;
    };
    assert!(!known.by.is_empty(), "{typed} is judged by nothing");
    let left = left.unwrap_or_else(|| panic!("{typed}: nothing is typed to the left"));
    let right = desk.types(now);
    let (is, expected) = (right.code, known.codes.1);
    assert_eq!(is, expected, "{now}\n{}{}", right.text(), right.stderr);
    judge::judge(desk, known.by, &left, &right, &format!("{typed}\n  {now}"));
}
