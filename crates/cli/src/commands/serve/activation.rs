//! The socket that a service manager hands over: systemd listens, and starts the server with the
//! first client (sd_listen_fds(3)).

use crate::args::{NbdAt, Serve};
use crate::failure::{Failure, Outcome};
use std::os::fd::RawFd;

/// How the process that answers clients learns the number of the socket: what the manager says
/// holds for the process that it started.
pub(super) const VARIABLE: &str = "EXTANT_SERVE_SOCKET";
/// The number of the first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

pub(super) const NOWHERE: &str = "where to listen is missing: --nbd unix:PATH, --nbd HOST:PORT, or a socket that a \
                                  service manager hands over (LISTEN_FDS)";

/// Finds where to listen: as it is said, or else the socket that was handed over.
pub(super) fn where_to_listen(args: &Serve) -> Outcome<NbdAt> {
    if let Some(said) = &args.nbd {
        return Ok(said.clone());
    }
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(number) = variable(VARIABLE).and_then(|number| number.parse().ok()) {
        return Ok(NbdAt::Open(number));
    }
    let handed = handed_over(
        variable("LISTEN_PID"),
        variable("LISTEN_FDS"),
        std::process::id(),
    );
    match handed {
        None => Err(Failure::usage(NOWHERE)),
        Some(1) => Ok(NbdAt::Open(FIRST)),
        Some(count) => Err(Failure::usage(format!(
            "{count} sockets were handed over (LISTEN_FDS), and one is listened on: a unit has one ListenStream=, or \
             --nbd fd:N says which"
        ))),
    }
}

/// Counts what was handed over to the process of this number; `None` if nothing was.
fn handed_over(process: Option<String>, count: Option<String>, own: u32) -> Option<u32> {
    let process: u32 = process?.parse().ok()?;
    let count = count?.parse().ok()?;
    (process == own && count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_was_handed_over_is_left_alone() {
        let handed = |process: &str, count: &str| {
            handed_over(Some(process.to_owned()), Some(count.to_owned()), 7)
        };
        assert_eq!(handed("7", "1"), Some(1));
        assert_eq!(handed("7", "2"), Some(2));
        for (process, count) in [("8", "1"), ("7", "0"), ("", "1"), ("7", "x"), ("7", "-1")] {
            assert_eq!(handed(process, count), None);
        }
        assert_eq!(handed_over(None, Some("1".to_owned()), 7), None);
    }
}
