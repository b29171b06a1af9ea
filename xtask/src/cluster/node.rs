//! The cluster's daemons, volumes, and the NBD servers in front of them.

use super::{succeed, system};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a daemon, or an answer of the cluster, is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Programs that are run, by the package that has them.
const PROGRAMS: &[(&str, &str)] = &[
    ("ceph", "ceph-common"),
    ("rbd", "ceph-common"),
    ("ceph-authtool", "ceph-common"),
    ("monmaptool", "ceph-common"),
    ("ceph-mon", "ceph-mon"),
    ("ceph-mgr", "ceph-mgr"),
    ("ceph-osd", "ceph-osd"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("radosgw", "radosgw"),
    ("radosgw-admin", "ceph-common"),
    ("qemu-nbd", "qemu-utils"),
];

/// Names the packages that are missing, if any.
pub(super) fn require_programs() -> Result<(), String> {
    if !rustix_is_root() {
        return Err("run it as root: images are mounted".to_owned());
    }
    let is_there = |program: &str| {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        path.split(':')
            .any(|dir| Path::new(dir).join(program).exists())
    };
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| *package)
        .collect();
    // The driver of qemu has no program of its own.
    let drivers = succeed(Command::new("qemu-img").arg("--help"))?;
    if !drivers.contains("rbd") {
        missing.push("qemu-block-extra");
    }
    missing.sort_unstable();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "these packages are missing: apt-get install --no-install-recommends {}",
        missing.join(" ")
    ))
}

fn rustix_is_root() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}

/// A cluster of one node. Its daemons end with it.
pub(super) struct Node {
    dir: PathBuf,
    daemons: Vec<Child>,
    /// The port of the gateway for objects.
    gateway: u16,
}

impl Drop for Node {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Node {
    /// Starts monitor, manager and OSD, with a pool for volumes.
    pub(super) fn start(work: &Path) -> Result<Node, String> {
        let dir = work.join("ceph");
        for part in ["mon", "mgr", "osd", "rgw"] {
            make(&dir.join(part))?;
        }
        let mut node = Node {
            dir,
            daemons: Vec::new(),
            gateway: free_port()?,
        };
        let monitor = free_port()?;
        let fsid = uuid()?;
        let config = node.config(&fsid, monitor);
        write(&node.dir.join("ceph.conf"), &config)?;
        let keyring = node.dir.join("keyring");
        succeed(
            node.tool("ceph-authtool")
                .args([
                    "--create-keyring",
                    "--gen-key",
                    "-n",
                    "mon.",
                    "--cap",
                    "mon",
                    "allow *",
                ])
                .arg(&keyring),
        )?;
        let map = node.dir.join("monmap");
        succeed(
            node.tool("monmaptool")
                .args(["--create", "--fsid", &fsid, "--addv", "a"])
                .arg(format!("[v2:127.0.0.1:{monitor}]"))
                .arg(&map),
        )?;
        succeed(
            node.tool("ceph-mon")
                .args(["--mkfs", "-i", "a", "--monmap"])
                .arg(&map)
                .arg("--keyring")
                .arg(&keyring),
        )?;
        node.daemon("ceph-mon", &["-f", "-i", "a"])?;
        node.wait_for(&["-s"], |_| true)?;
        node.daemon("ceph-mgr", &["-f", "-i", "x"])?;
        let osd = uuid()?;
        let id = node.ceph(&["osd", "new", &osd])?;
        let id = id.trim();
        succeed(
            node.tool("ceph-osd")
                .args(["-i", id, "--mkfs", "--osd-uuid", &osd]),
        )?;
        node.daemon("ceph-osd", &["-f", "-i", id])?;
        node.ceph(&["osd", "pool", "create", "rbd", "8"])?;
        node.wait_for(&["-s"], |status| status.contains("active+clean"))?;
        succeed(node.tool("rbd").args(["pool", "init", "rbd"]))?;
        node.start_gateway()?;
        Ok(node)
    }

    /// Starts the gateway that gives objects by the interface of S3, with a user and a bucket
    /// `images`.
    fn start_gateway(&mut self) -> Result<(), String> {
        succeed(
            self.tool("radosgw-admin")
                .args(["user", "create", "--uid=extant", "--display-name=extant"])
                .args(["--access-key=user", "--secret-key=password"]),
        )?;
        self.daemon("radosgw", &["-f", "-n", "client.rgw"])?;
        let end = Instant::now() + PATIENCE;
        loop {
            match self.object("PUT", "", None) {
                Ok(()) => return Ok(()),
                Err(e) if Instant::now() > end => return Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(300)),
            }
        }
    }

    /// Makes the bucket (`PUT`), or brings (`GET`) an object into a file, by curl and a URL that is
    /// signed for some minutes (version 2 of the signatures of S3).
    pub(super) fn object(
        &self,
        method: &str,
        key: &str,
        into: Option<&Path>,
    ) -> Result<(), String> {
        let script = r#"
            end=$(($(date +%s) + 600))
            sum=$(printf '%s\n\n\n%s\n%s' "$1" "$end" "$2" | openssl dgst -sha1 -hmac password -binary | base64)
            exec curl --silent --show-error --fail --get -X "$1" --output "$4" -d AWSAccessKeyId=user -d "Expires=$end" \
                --data-urlencode "Signature=$sum" "$3$2"
        "#;
        let mut shell = self.tool("sh");
        shell.args(["-c", script, "sh", method, &format!("/images{key}")]);
        let into = into.unwrap_or(Path::new("/dev/null"));
        succeed(shell.arg(self.endpoint()).arg(into)).map(drop)
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway)
    }

    /// The variables that a client of the gateway needs.
    pub(super) fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "user".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "password".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    fn config(&self, fsid: &str, monitor: u16) -> String {
        let dir = self.dir.display();
        let gateway = self.gateway;
        // The gateway asks for encrypted connections, which need keys.
        format!(
            "[global]\n\
             fsid = {fsid}\n\
             mon host = [v2:127.0.0.1:{monitor}/0]\n\
             mon initial members = a\n\
             public addr = 127.0.0.1\n\
             auth cluster required = none\n\
             auth service required = none\n\
             auth client required = none\n\
             ms mon client mode = crc\n\
             rgw frontends = beast endpoint=127.0.0.1:{gateway}\n\
             rgw data = {dir}/rgw\n\
             osd pool default pg num = 8\n\
             osd pool default size = 1\n\
             osd pool default min size = 1\n\
             osd crush chooseleaf type = 0\n\
             osd objectstore = memstore\n\
             memstore device bytes = 4294967296\n\
             mon allow pool size one = true\n\
             mon warn on pool no redundancy = false\n\
             mon data avail warn = 1\n\
             mon data avail crit = 1\n\
             run dir = {dir}\n\
             log file = {dir}/$name.log\n\
             admin socket = {dir}/$name.asok\n\
             pid file = {dir}/$name.pid\n\
             keyring = {dir}/keyring\n\
             mon data = {dir}/mon\n\
             mgr data = {dir}/mgr\n\
             osd data = {dir}/osd\n"
        )
    }

    /// A program that finds this cluster.
    pub(super) fn tool(&self, program: &str) -> Command {
        let mut command = system(program);
        command.env("CEPH_CONF", self.dir.join("ceph.conf"));
        command.stdin(Stdio::null());
        command
    }

    fn daemon(&mut self, program: &str, args: &[&str]) -> Result<(), String> {
        let out = self.dir.join(format!("{program}.out"));
        let out = std::fs::File::create(&out).map_err(|e| format!("{}: {e}", out.display()))?;
        let errors = out.try_clone().map_err(|e| e.to_string())?;
        let mut command = self.tool(program);
        let child = command.args(args).stdout(out).stderr(errors).spawn();
        let child = child.map_err(|e| format!("cannot start {program}: {e}"))?;
        self.daemons.push(child);
        Ok(())
    }

    fn ceph(&self, args: &[&str]) -> Result<String, String> {
        succeed(
            self.tool("ceph")
                .args(["--connect-timeout", "30"])
                .args(args),
        )
    }

    fn wait_for(&self, args: &[&str], is_so: impl Fn(&str) -> bool) -> Result<(), String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let said = self.ceph(args);
            if said.as_ref().is_ok_and(|said| is_so(said)) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("the cluster does not get ready: {said:?}"));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// What the cluster's programs call their version.
    pub(super) fn version(&self) -> Result<String, String> {
        let said = succeed(self.tool("ceph").arg("--version"))?;
        Ok(said
            .split_whitespace()
            .take(3)
            .collect::<Vec<_>>()
            .join(" "))
    }

    /// Makes a volume.
    pub(super) fn volume(&self, name: &str, mebibytes: u32) -> Result<(), String> {
        let size = mebibytes.to_string();
        succeed(self.tool("rbd").args(["create", name, "--size", &size])).map(drop)
    }

    /// Runs `rbd` with these arguments.
    pub(super) fn rbd(&self, args: &[&str]) -> Result<String, String> {
        succeed(self.tool("rbd").args(args))
    }

    /// Serves a volume, or a snapshot `volume@name` of one, at a socket.
    pub(super) fn serve(&self, volume: &str, tag: &str) -> Result<Server, String> {
        let socket = self.dir.join(format!("{tag}.sock"));
        let _ = std::fs::remove_file(&socket);
        let mut command = self.tool("qemu-nbd");
        command.args(["-f", "raw", "-t", "--shared=16", "--cache=writeback"]);
        command.args(["--discard=unmap", "-k"]).arg(&socket);
        if volume.contains('@') {
            command.arg("-r");
        }
        let config = self.dir.join("ceph.conf");
        command.arg(format!("rbd:rbd/{volume}:conf={}", config.display()));
        let log = self.dir.join(format!("{tag}.log"));
        let log = std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let child = command.stderr(log).spawn();
        let child = child.map_err(|e| format!("cannot start qemu-nbd: {e}"))?;
        let mut server = Server {
            child,
            socket: socket.clone(),
        };
        let end = Instant::now() + PATIENCE;
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            let ended = server.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || Instant::now() > end {
                return Err(format!("qemu-nbd does not serve {volume}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

/// An NBD server in front of a volume; ends with it.
pub(super) struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    /// The address of the export.
    pub(super) fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends it at once, as a crash of its host does.
    pub(super) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn uuid() -> Result<String, String> {
    let path = "/proc/sys/kernel/random/uuid";
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(text.trim().to_owned())
}

/// A port that nobody uses now.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    Ok(address.port())
}
