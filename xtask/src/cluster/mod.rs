//! File systems on a Ceph cluster: one node, started for this and ended after it.
//!
//! | file | owns |
//! |---|---|
//! | `node` | the cluster's daemons, volumes, and the NBD servers in front of them |
//! | `steps` | what is done on a volume, and what judges it |
//! | `report` | `docs/dev/cluster.md` |

mod node;
mod report;
mod steps;

use crate::programs::{succeed, system};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
File systems on a Ceph cluster: monitor, manager and one OSD in memory on the loopback device, volumes served by
qemu-nbd. Made, edited, mounted, snapshot, checked; clients and servers killed in the middle; two clients on one volume.
An image in a bucket of the gateway for objects.

Usage: cargo xtask cluster [--record] [--release]

Options:
  --record   Write what came of it to docs/dev/cluster.md
  --release  With a release build

It needs root, and the programs that this installs on Debian or Ubuntu:

    apt-get install --no-install-recommends ceph-common ceph-mgr ceph-mon ceph-osd curl openssl qemu-block-extra qemu-utils \
        radosgw

Prints one line for each step and exits with 1 when one failed.";

/// What all steps need.
struct Setting {
    root: PathBuf,
    extant: PathBuf,
    /// Where the cluster, images and mount points are; gone afterwards.
    work: PathBuf,
}

/// `cargo xtask cluster`.
pub(crate) fn cluster(root: &Path, args: &[String]) -> ExitCode {
    let (mut record, mut release) = (false, false);
    for arg in args {
        match arg.as_str() {
            "--record" => record = true,
            "--release" => release = true,
            _ => {
                eprintln!("{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    match run(root, record, release) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("cluster: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, record: bool, release: bool) -> Result<bool, String> {
    node::require_programs()?;
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root);
    build.args(["build", "--locked", "-p", "extant-cli"]);
    if release {
        build.arg("--release");
    }
    succeed(&mut build)?;
    let profile = if release { "release" } else { "debug" };
    let work = std::env::temp_dir().join(format!("extant-cluster.{}", std::process::id()));
    std::fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let setting = Setting {
        root: root.to_owned(),
        extant: root.join("target").join(profile).join("extant"),
        work,
    };
    let outcome = node::Node::start(&setting.work).and_then(|node| {
        let rows = steps::run(&setting, &node);
        let is_good = rows.iter().all(|row| row.result.is_ok());
        if record {
            report::record(&setting, &node, &rows)?;
        }
        Ok(is_good)
    });
    if outcome.as_ref().is_ok_and(|good| *good) {
        let _ = std::fs::remove_dir_all(&setting.work);
    } else {
        eprintln!("cluster: logs are in {}", setting.work.display());
    }
    outcome
}
