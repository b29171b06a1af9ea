//! Work that other programs do on a mount.

use super::prepared::{Prepared, TREE, WORK_TREE, git};
use crate::args::KernelForm;
use crate::peer::{self, Measured};
use crate::side::kernel::Kernel;
use crate::side::{MountChoice, Mounted};
use crate::workload::build::{command, path};
use crate::workload::inside::{Images, Meter};
use crate::workload::stream;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Seconds that random reads go on.
const READING: u64 = 3;

/// A program, and what it does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Unpack,
    Copy,
    Remove,
    GitStatus {
        /// Not the first time since mounting.
        again: bool,
    },
    Sqlite,
    RandomReads,
}

impl Tool {
    /// What is done, for the options of a row.
    pub(super) fn about(self, prepared: &Prepared) -> String {
        let (entries, megabytes) = (prepared.entries, prepared.bytes / 1_000_000);
        match self {
            Self::Unpack => format!("tar -x of {entries} entries, {megabytes} MB"),
            Self::Copy => format!("cp -a of {entries} entries, {megabytes} MB, in the mount"),
            Self::Remove => format!("rm -rf of {entries} entries, {megabytes} MB"),
            Self::GitStatus { .. } => format!("git status of {} files", prepared.files),
            Self::Sqlite => format!(
                "sqlite3, {} rows inserted, each a transaction with a rollback journal",
                prepared.rows
            ),
            Self::RandomReads => {
                "fio, 4 KiB with O_DIRECT, 32 under way through io_uring".to_owned()
            }
        }
    }

    /// Does it, and measures what counts.
    pub(super) fn work(
        self,
        mounted: &Kernel,
        prepared: &Prepared,
        images: &Images,
        meter: &Meter,
    ) -> Result<Measured, String> {
        let top = mounted.path();
        let entries = prepared.entries;
        let seconds = |operations, commands: &mut [Command]| {
            meter.seconds(mounted, operations, || time(commands))
        };
        let sync = || command("sync", &["-f", path(top)]);
        let (tree, copy) = (top.join(TREE), top.join("copy"));
        match self {
            Self::Unpack => {
                let archive = prepared.archive(images)?;
                let unpack = ["-xf", path(&archive), "-C", path(top)];
                seconds(entries, &mut [command("tar", &unpack), sync()])
            }
            Self::Copy => {
                let copying = command("cp", &["-a", path(&tree), path(&copy)]);
                seconds(entries, &mut [copying, sync()])
            }
            Self::Remove => {
                let remove = command("rm", &["-rf", path(&tree)]);
                seconds(entries, &mut [remove, sync()])
            }
            Self::GitStatus { again } => {
                let top = top.join(WORK_TREE);
                let status = || {
                    let mut status = git(&top, &["status", "--porcelain"]);
                    status.env("GIT_OPTIONAL_LOCKS", "0");
                    status
                };
                if again {
                    time(&mut [status()])?;
                }
                let measured = seconds(prepared.files, &mut [status()])?;
                expect(&mut status(), "")?;
                Ok(measured)
            }
            Self::Sqlite => {
                let (database, script) = (top.join("db"), images.store.path("rows.sql"));
                let rows = (0..prepared.rows)
                    .map(|row| format!("insert into t values({row}, hex(randomblob(50)));\n"));
                let text = format!(
                    "create table t(n integer primary key, v text);\n{}",
                    rows.collect::<String>()
                );
                fs::write(&script, text).map_err(|e| e.to_string())?;
                let mut insert = command("sh", &["-c", "sqlite3 \"$1\" < \"$2\"", "sh"]);
                insert.args([&database, &script]);
                let timed = || time(std::slice::from_mut(&mut insert));
                let measured = meter.rate(mounted, prepared.rows, timed)?;
                let questions = "select count(*) from t; pragma integrity_check;";
                let mut ask = command("sqlite3", &[path(&database), questions]);
                expect(&mut ask, &format!("{}\nok\n", prepared.rows))?;
                Ok(measured)
            }
            Self::RandomReads => {
                let file = top.join(stream::NAME.to_string_lossy().as_ref());
                meter.value(mounted, || random_reads(&file))
            }
        }
    }

    /// Looks at what is left, as Linux shows it.
    pub(super) fn check(
        self,
        image: &Path,
        prepared: &Prepared,
        images: &Images,
    ) -> Result<(), String> {
        let choice = MountChoice::default();
        let mounted = Kernel::mount(image, KernelForm::Plain, choice)?;
        let top = mounted.path();
        let left = match self {
            Self::Unpack => Some(top.to_owned()),
            Self::Copy => Some(top.join("copy")),
            Self::Remove => None,
            Self::GitStatus { .. } | Self::Sqlite | Self::RandomReads => {
                return mounted.unmount();
            }
        };
        match left {
            Some(left) => {
                let tree = prepared.tree(images)?;
                let same = ["-r", "--no-dereference", "--exclude=lost+found"];
                expect(command("diff", &same).args([&tree, &left]), "")?;
            }
            None if top.join(TREE).exists() => return Err("the tree is still there".to_owned()),
            None => {}
        }
        mounted.unmount()
    }
}

/// Runs commands one after the other; the seconds they take.
fn time(commands: &mut [Command]) -> Result<f64, String> {
    let measured = peer::measure(commands).map_err(|e| e.to_string())?;
    Ok(measured.value)
}

/// Runs a command that has to succeed and to say this.
fn expect(run: &mut Command, said: &str) -> Result<(), String> {
    let output = run.output().map_err(|e| format!("{run:?}: {e}"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && told == said {
        return Ok(());
    }
    let first: String = told.chars().take(200).collect();
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{run:?} says: {first}{}", error.trim()))
}

/// Reads of a second, and how many there were, of a file that `stream` wrote.
fn random_reads(file: &Path) -> Result<(f64, u64), String> {
    let output = Command::new("fio")
        .args(["--name=reads", "--ioengine=io_uring", "--direct=1"])
        .args(["--rw=randread", "--bs=4k", "--iodepth=32", "--readonly"])
        .args(["--time_based", "--output-format=json"])
        .arg(format!("--runtime={READING}"))
        .arg(format!("--filename={}", path(file)))
        .output()
        .map_err(|e| format!("fio: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("fio: {}", said.trim()));
    }
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|e| format!("fio says what is no JSON: {e}"))?;
    let reads = &told["jobs"][0]["read"];
    let rate = reads["iops"].as_f64().filter(|rate| *rate > 0.0);
    let all = reads["total_ios"].as_u64();
    match (rate, all) {
        (Some(rate), Some(all)) => Ok((rate, all)),
        _ => Err("fio read nothing".to_owned()),
    }
}
