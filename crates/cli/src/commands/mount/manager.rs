//! What a service manager is told: systemd starts the next unit when a mount in the foreground says
//! that it works (`Type=notify`; sd_notify(3)).

use crate::failure::say;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The mount works.
pub(super) const READY: &str = "READY=1";
/// The mount begins to end.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Tells the manager that started this process, if there is one that wants to know: `NOTIFY_SOCKET`
/// has its address. One that does not listen any more is not told.
pub(super) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(e) = send(name.as_bytes(), state) {
        say(format_args!(
            "warning: the service manager cannot be told {state}: {e}"
        ));
    }
}

/// Sends to a socket that has a path, or a name of no file behind an `@`.
fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that has no time must not hold up the mount.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_path_and_by_a_name_of_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), READY).unwrap();
        let mut said = [0; 64];
        let len = listener.recv(&mut said).unwrap();
        assert_eq!(&said[..len], READY.as_bytes());

        let name = format!("extant test {}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        send(format!("@{name}").as_bytes(), STOPPING).unwrap();
        let len = listener.recv(&mut said).unwrap();
        assert_eq!(&said[..len], STOPPING.as_bytes());

        drop(listener);
        assert!(send(format!("@{name}").as_bytes(), STOPPING).is_err());
    }
}
