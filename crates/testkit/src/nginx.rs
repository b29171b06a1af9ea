//! The web server nginx over a folder.

use crate::tool::{Background, free_port, tool};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A running server, which ends when this is dropped. Below `/moved/` it redirects to the same name
/// without that, and below `/whole/` it knows no ranges.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    dir: TempDir,
    _server: Background,
}

impl Nginx {
    /// Starts a server of an empty folder.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("a temporary folder: {e}"));
        Self::start_with(dir, free_port(), "")
    }

    /// Starts a server of the new folder `root` in `dir` on this port, with more in the block
    /// `http` of its configuration.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start_with(dir: TempDir, port: u16, more: &str) -> Self {
        let at = dir.path().display();
        // Its workers are other users when it is started by root.
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let config = format!(
            "daemon off; {user} master_process off; pid {at}/pid; error_log {at}/errors;
             events {{}}
             http {{
                 access_log off;
                 client_body_temp_path {at}/t1; proxy_temp_path {at}/t2;
                 fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;
                 server {{
                     listen 127.0.0.1:{port};
                     root {at}/root;
                     location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
                     location /whole/ {{ alias {at}/root/; max_ranges 0; }}
                 }}
                 {more}
             }}"
        );
        let path = |name: &str| dir.path().join(name);
        let made = fs::create_dir(path("root"));
        made.and_then(|()| fs::write(path("nginx.conf"), config))
            .unwrap_or_else(|e| panic!("{at}: {e}"));
        let mut server = tool("nginx")
            .args(["-c".as_ref(), path("nginx.conf").as_os_str()])
            .args(["-p".as_ref(), dir.path().as_os_str()])
            .args(["-e".as_ref(), path("errors").as_os_str()])
            .background(&path("log"));
        server.wait_for_port(port);
        Self {
            port,
            dir,
            _server: server,
        }
    }

    /// Returns the folder of the server, which has what it serves in `root`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the folder that is served.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Makes or replaces a file.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.root().join(name);
        fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Returns the URL of a file, whose name is encoded for that.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }
}
