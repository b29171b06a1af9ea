//! Requests through io_uring, which the kernel offers when root has said so.

use super::succeed;
use std::path::Path;
use std::process::Command;

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";
/// What the daemon counts them under.
const COUNTED: &str = "extant_ring_requests_total";

/// The kernel offers them until this is dropped, or goes on to do so if it did before.
pub(super) struct Offered {
    before: String,
}

impl Offered {
    pub(super) fn new() -> Result<Offered, String> {
        let told = |e: std::io::Error| format!("{SETTING}: {e}");
        let before = std::fs::read_to_string(SETTING).map_err(told)?;
        std::fs::write(SETTING, "Y").map_err(told)?;
        Ok(Offered { before })
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        let _ = std::fs::write(SETTING, self.before.trim());
    }
}

/// An error if the mount at `point` has had no request through a ring: it would do without, and say
/// nothing.
pub(super) fn require(mut extant: Command, point: &Path) -> Result<(), String> {
    let told = succeed(extant.arg("stats").arg(point))?;
    match counted(&told) {
        Some(0) | None => Err("the mount takes no requests through io_uring".to_owned()),
        Some(_) => Ok(()),
    }
}

fn counted(metrics: &str) -> Option<u64> {
    let mut lines = metrics.lines();
    lines.find_map(|line| line.strip_prefix(COUNTED)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn the_count_is_found_among_the_metrics() {
        let text = "# HELP extant_ring_requests_total x\nextant_ring_requests_total 12\nother 3\n";
        assert_eq!(counted(text), Some(12));
        assert_eq!(counted("other 3\n"), None);
    }
}
