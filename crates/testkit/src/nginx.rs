//! The web server nginx over a folder.

use crate::tool::{Background, free_port, tool};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Starts a server of the folder `dir` on the Unix socket `http` in it. It ends when what is
/// returned is dropped.
///
/// # Panics
///
/// When it cannot be started.
pub fn on_socket(dir: &Path) -> Background {
    let at = dir.display();
    let server = format!("server {{ listen unix:{at}/http; root {at}; }}");
    let mut server = begin(dir, &server);
    server.wait_for_socket(&dir.join("http"));
    server
}

/// Starts a server whose own files are in `dir`, with this in the block `http` of its
/// configuration.
fn begin(dir: &Path, servers: &str) -> Background {
    let at = dir.display();
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
             {servers}
         }}"
    );
    let path = |name: &str| dir.join(name);
    fs::write(path("nginx.conf"), config).unwrap_or_else(|e| panic!("{at}: {e}"));
    tool("nginx")
        .args(["-c".as_ref(), path("nginx.conf").as_os_str()])
        .args(["-p".as_ref(), dir.as_os_str()])
        .args(["-e".as_ref(), path("errors").as_os_str()])
        .background(&path("log"))
}

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
        fs::create_dir(dir.path().join("root")).unwrap_or_else(|e| panic!("{at}: {e}"));
        let servers = format!(
            "server {{
                 listen 127.0.0.1:{port};
                 root {at}/root;
                 location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
                 location /whole/ {{ alias {at}/root/; max_ranges 0; }}
             }}
             {more}"
        );
        let mut server = begin(dir.path(), &servers);
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
