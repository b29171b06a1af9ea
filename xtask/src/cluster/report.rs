//! `docs/dev/cluster.md`.

use super::node::Node;
use super::steps::Row;
use super::{Setting, succeed};
use std::fmt::Write;
use std::process::Command;

const DOCUMENT: &str = "docs/dev/cluster.md";

/// Writes what came of the steps.
pub(super) fn record(setting: &Setting, node: &Node, rows: &[Row]) -> Result<(), String> {
    let date = succeed(Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let build = succeed(
        Command::new("git")
            .current_dir(&setting.root)
            .args(["describe", "--always", "--dirty"]),
    )?;
    let qemu = succeed(Command::new("qemu-nbd").arg("--version"))?;
    let qemu = qemu.split(" (").next().unwrap_or_default().trim();
    let mut text = format!(
        "# On a Ceph cluster\n\n\
         `cargo xtask cluster --record` starts one node on the loopback device (monitor, manager, an OSD in\n\
         memory, a gateway for objects), does what the table says, and writes this page. Volumes are\n\
         served by `qemu-nbd` at Unix sockets, objects by `radosgw`; what is in the cluster afterwards is\n\
         judged by `e2fsck`.\n\n\
         Run on {}, build {}: {}, {qemu}.\n\n\
         | what | seen | seconds |\n|---|---|---|\n",
        date.trim(),
        build.trim(),
        node.version()?,
    );
    for row in rows {
        let seen = match &row.result {
            Ok(seen) => seen.clone(),
            Err(why) => format!("FAILED: {}", why.lines().next().unwrap_or_default()),
        };
        // Names of this run's directories say nothing.
        let seen = seen.replace(&setting.work.display().to_string(), "");
        let _ = writeln!(
            text,
            "| {} | {seen} | {:.1} |",
            row.what,
            row.took.as_secs_f64()
        );
    }
    let path = setting.root.join(DOCUMENT);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}
