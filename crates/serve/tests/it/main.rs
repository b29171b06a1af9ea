//! The server as others' clients, ours, and wrong ones see it.

mod clients;
mod hostile;

use extant_blockdev::{BlockDevice, SharedDevice};
use extant_serve::{Listen, NbdServer, ServeOptions, Stop};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// A server in a thread of its own, that ends when it is dropped.
struct Running {
    dir: TempDir,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(device: impl BlockDevice + 'static, options: ServeOptions) -> Running {
        let dir = TempDir::new().expect("a directory");
        let listen = Listen::Unix(dir.path().join("socket"));
        let device: SharedDevice = std::sync::Arc::new(device);
        let server = NbdServer::bind(&listen, device, options).expect("it listens");
        let stop = server.stop();
        let thread = std::thread::spawn(move || server.run().expect("the last flush"));
        Running {
            dir,
            stop,
            thread: Some(thread),
        }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("socket")
    }

    /// The export with this name as other programs want it.
    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}
