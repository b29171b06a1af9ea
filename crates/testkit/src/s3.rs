//! S3 servers of others, each with a bucket `images`: the facility
//! [`S3Servers`](crate::facility::Facility::S3Servers).

use crate::tool::{Background, Tool, free_port, tool};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub struct S3Server {
    name: &'static str,
    port: u16,
    _server: Background,
    dir: TempDir,
}

impl S3Server {
    /// Starts one server of each kind.
    ///
    /// # Panics
    ///
    /// When one cannot be started.
    pub fn all() -> [S3Server; 2] {
        [Self::versitygw(), Self::gofakes3()]
    }

    /// Starts `versitygw`, which keeps objects in files.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn versitygw() -> S3Server {
        let dir = temporary();
        let port = free_port();
        // A bucket is a folder.
        for folder in ["root/images", "side"] {
            let made = fs::create_dir_all(dir.path().join(folder));
            made.unwrap_or_else(|e| panic!("{folder}: {e}"));
        }
        let server = tool("versitygw")
            .args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive"])
            .args(["--access", "user", "--secret", "password", "posix"])
            .args(["--sidecar".as_ref(), dir.path().join("side").as_os_str()])
            .arg(dir.path().join("root"));
        Self::start("versitygw", port, dir, server)
    }

    /// Starts `gofakes3`, which keeps objects in memory.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn gofakes3() -> S3Server {
        let dir = temporary();
        let port = free_port();
        let server = tool("gofakes3")
            .args(["-host", &format!("127.0.0.1:{port}")])
            .args(["-backend", "memory", "-initialbucket", "images"]);
        Self::start("gofakes3", port, dir, server)
    }

    fn start(name: &'static str, port: u16, dir: TempDir, server: Tool) -> S3Server {
        let mut server = server.background(&dir.path().join("log"));
        server.wait_for_port(port);
        S3Server {
            name,
            port,
            _server: server,
            dir,
        }
    }

    /// Returns which program it is.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the variables that clients of the server need.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_ACCESS_KEY_ID", "user".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "password".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Returns the folder of the bucket `images`, if the server keeps objects in files.
    pub fn bucket(&self) -> Option<PathBuf> {
        let folder = self.dir.path().join("root/images");
        folder.is_dir().then_some(folder)
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir().unwrap_or_else(|e| panic!("a temporary folder: {e}"))
}
