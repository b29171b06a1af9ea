//! Exports of NBD servers: of others' servers, and of one in the test that does as it is told.

mod breaks;
mod fake;
mod hostile;
mod manners;
mod parts;
mod servers;
#[cfg(feature = "tls")]
mod tls;

use extant_blockdev::{DeviceResult, NbdAddress, NbdDevice, NbdOptions, NbdTransport};
use extant_testkit::tool::{Background, tool};
use std::path::Path;
use tempfile::TempDir;

/// The default export of the server behind a Unix socket.
fn on_socket(path: &Path) -> NbdAddress {
    NbdAddress {
        transport: NbdTransport::Unix(path.to_owned()),
        export: String::new(),
        tls: false,
    }
}

/// A server of another project that runs until this is dropped.
struct Running {
    address: NbdAddress,
    server: Background,
    dir: TempDir,
}

impl Running {
    /// nbdkit with these arguments.
    fn nbdkit(args: &[&str]) -> Running {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("socket");
        let socket_arg = socket.display().to_string();
        let mut server = tool("nbdkit")
            .args(["-f", "-U", &socket_arg])
            .args(args)
            .background(&dir.path().join("log"));
        server.wait_for_socket(&socket);
        Running {
            address: on_socket(&socket),
            server,
            dir,
        }
    }

    /// qemu-nbd on a file.
    fn qemu(file: &Path, args: &[&str]) -> Running {
        let dir = TempDir::new().expect("a directory");
        let socket = dir.path().join("socket");
        let mut server = tool("qemu-nbd")
            .args(["-t", "-e", "16", "--discard=unmap", "-k"])
            .arg(&socket)
            .args(args)
            .arg(file)
            .background(&dir.path().join("log"));
        server.wait_for_socket(&socket);
        Running {
            address: on_socket(&socket),
            server,
            dir,
        }
    }

    fn read_only(&self) -> DeviceResult<NbdDevice> {
        NbdDevice::connect(&self.address, NbdOptions::read_only())
    }

    fn open(&self) -> NbdDevice {
        NbdDevice::connect(&self.address, NbdOptions::read_write()).expect("the export opens")
    }
}

/// The device over an export in nbdkit's memory, for the tests that all devices pass.
pub(crate) fn in_memory(size: u64) -> (impl Sized, NbdDevice) {
    let running = Running::nbdkit(&["memory", &format!("size={size}")]);
    let device = running.open();
    (running, device)
}
