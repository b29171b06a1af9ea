//! Object stores of others, each with a bucket `images`.

use crate::facility::{Facility, skip};
use crate::tool::{Background, Tool, free_port, tool};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The account of Azure's emulator, and its key, which are the same everywhere.
/// <https://learn.microsoft.com/azure/storage/common/storage-connect-azurite>
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub struct StoreServer {
    name: &'static str,
    scheme: &'static str,
    port: u16,
    variables: Vec<(&'static str, String)>,
    _server: Background,
    dir: TempDir,
}

impl StoreServer {
    /// Starts one server of each kind that objects are written to and that is installed. For each
    /// that is not, the skip is printed, as [`require!`](crate::require) does.
    ///
    /// # Panics
    ///
    /// When one cannot be started.
    pub fn all() -> Vec<StoreServer> {
        let mut servers = Vec::new();
        if skip(&[Facility::S3Servers]).is_none() {
            servers.push(Self::versitygw());
            servers.push(Self::gofakes3());
        }
        if skip(&[Facility::AzureServer]).is_none() {
            servers.push(Self::azurite());
        }
        servers
    }

    /// Starts `versitygw`, an S3 server that keeps objects in files.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn versitygw() -> StoreServer {
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
        Self::start("versitygw", "s3", port, dir, server, s3_variables(port))
    }

    /// Starts `gofakes3`, an S3 server that keeps objects in memory.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn gofakes3() -> StoreServer {
        let dir = temporary();
        let port = free_port();
        let server = tool("gofakes3")
            .args(["-host", &format!("127.0.0.1:{port}")])
            .args(["-backend", "memory", "-initialbucket", "images"]);
        Self::start("gofakes3", "s3", port, dir, server, s3_variables(port))
    }

    /// Starts `azurite-blob`, Microsoft's emulator of Azure Blob Storage.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn azurite() -> StoreServer {
        let dir = temporary();
        let port = free_port();
        let server = tool("azurite-blob")
            .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
            .args(["--skipApiVersionCheck", "--disableTelemetry", "--silent"])
            .arg("--location")
            .arg(dir.path());
        let url = format!("http://127.0.0.1:{port}");
        let variables = vec![
            ("AZURE_STORAGE_ENDPOINT", format!("{url}/{ACCOUNT}")),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY.to_owned()),
        ];
        let server = Self::start("azurite", "az", port, dir, server, variables);
        make_container(&url);
        server
    }

    /// Starts `fake-gcs-server`, which keeps objects in memory and gives them as Google Cloud
    /// Storage does. Of the ways to write there it does not have the one of clients of the XML
    /// interface: objects come by [`StoreServer::give_google`].
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn fake_gcs() -> StoreServer {
        let dir = temporary();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let server = tool("fake-gcs-server")
            .args(["-scheme", "http", "-host", "127.0.0.1", "-port"])
            .arg(port.to_string())
            .args(["-backend", "memory", "-public-host"])
            .arg(format!("127.0.0.1:{port}"))
            .args(["-external-url", &url]);
        let account = dir.path().join("account.json");
        let text = format!(
            "{{\"gcs_base_url\": \"{url}\", \"disable_oauth\": true, \"client_email\": \"\", \
             \"private_key\": \"\", \"private_key_id\": \"\"}}"
        );
        fs::write(&account, text).unwrap_or_else(|e| panic!("the account: {e}"));
        let variables = vec![("GOOGLE_SERVICE_ACCOUNT", account.display().to_string())];
        let server = Self::start("fake-gcs-server", "gs", port, dir, server, variables);
        tool("curl")
            .args(["-sSf", "--noproxy", "*", "-X", "POST"])
            .args(["-H", "Content-Type: application/json"])
            .args(["-d", "{\"name\": \"images\"}"])
            .arg(format!("{url}/storage/v1/b?project=test"))
            .ok();
        server
    }

    /// Puts an object with the content of a file into a server that [`StoreServer::fake_gcs`]
    /// started, by Google's JSON interface.
    ///
    /// # Panics
    ///
    /// When the server refuses it.
    pub fn give_google(&self, key: &str, file: &Path) {
        let key = key.replace('/', "%2F");
        let query = format!("uploadType=media&name={key}");
        tool("curl")
            .args(["-sSf", "--noproxy", "*", "-X", "POST", "--data-binary"])
            .arg(format!("@{}", file.display()))
            .args(["-H", "Content-Type: application/octet-stream"])
            .arg(format!(
                "http://127.0.0.1:{}/upload/storage/v1/b/images/o?{query}",
                self.port
            ))
            .ok();
    }

    fn start(
        name: &'static str,
        scheme: &'static str,
        port: u16,
        dir: TempDir,
        server: Tool,
        variables: Vec<(&'static str, String)>,
    ) -> StoreServer {
        let mut server = server.background(&dir.path().join("log"));
        server.wait_for_port(port);
        StoreServer {
            name,
            scheme,
            port,
            variables,
            _server: server,
            dir,
        }
    }

    /// Returns which program it is.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the address of the object `key`.
    pub fn url(&self, key: &str) -> String {
        format!("{}://images/{key}", self.scheme)
    }

    /// Returns the variables that clients of the server need.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        self.variables.clone()
    }

    /// Returns the folder of the bucket `images`, if the server keeps objects in files.
    pub fn bucket(&self) -> Option<PathBuf> {
        let folder = self.dir.path().join("root/images");
        folder.is_dir().then_some(folder)
    }
}

fn s3_variables(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ACCESS_KEY_ID", "user".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "password".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
}

/// Makes the container `images`, by a request that is signed with the key of the account.
/// <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>
fn make_container(url: &str) {
    let date = tool("date")
        .args(["-u", "+%a, %d %b %Y %H:%M:%S GMT"])
        .ok()
        .text();
    let date = date.trim();
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06\n");
    let resource = format!("/{ACCOUNT}/{ACCOUNT}/images\nrestype:container");
    let signed = format!("PUT{}{headers}{resource}", "\n".repeat(12));
    let script = "key=$(printf %s \"$1\" | base64 -d | od -An -v -tx1 | tr -d ' \\n')
        openssl dgst -sha256 -mac HMAC -macopt hexkey:$key -binary | base64 -w0";
    let signature = tool("sh")
        .args(["-c", script, "sh", ACCOUNT_KEY])
        .input(signed)
        .ok()
        .text();
    tool("curl")
        .args(["-sSf", "--noproxy", "*", "-X", "PUT", "-H"])
        .args(["Content-Length: 0", "-H", &format!("x-ms-date: {date}")])
        .args(["-H", "x-ms-version: 2021-08-06", "-H"])
        .arg(format!("Authorization: SharedKey {ACCOUNT}:{signature}"))
        .arg(format!("{url}/{ACCOUNT}/images?restype=container"))
        .ok();
}

fn temporary() -> TempDir {
    tempfile::tempdir().unwrap_or_else(|e| panic!("a temporary folder: {e}"))
}
