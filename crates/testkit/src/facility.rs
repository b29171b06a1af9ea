//! What this machine lets a test do.
//!
//! A missing *tool* is a fault of the set-up and fails the test (see [`crate::tool`]). A missing
//! *kernel facility* cannot be installed, so the test says by name what it needs and ends. With
//! `EXTANT_REQUIRE_FACILITIES=1` such a skip is a failure too, for machines known to have it all.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

/// Something only the kernel or the machine's owner can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Facility {
    /// Effective user id 0, with the capabilities to make device nodes and mount.
    Root,
    /// Loop devices can be found and attached.
    LoopDevices,
    /// The kernel mounts ext4 (implies root and loop devices).
    KernelExt4,
    /// `/dev/shm` is a tmpfs that takes user xattrs of any size (Linux 6.6 and later).
    TmpfsXattrs,
    /// `/dev/fuse` can be opened, and root may mount with it.
    Fuse,
    /// The kernel can hand requests of FUSE on through io_uring (Linux 6.14 and later), and root
    /// may have it do so.
    FuseRings,
    /// The kernel opens devices of dm-verity over loop devices.
    DmVerity,
    /// The kernel's ext4 has fs-verity.
    FsVerity,
    /// `versitygw` and `gofakes3` are installed (`scripts/store-servers.sh` does that).
    S3Servers,
    /// `azurite-blob` is installed (`scripts/store-servers.sh` does that).
    AzureServer,
    /// `fake-gcs-server` is installed (`scripts/store-servers.sh` does that).
    GoogleServer,
}

impl fmt::Display for Facility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Facility::Root => "root",
            Facility::LoopDevices => "loop devices",
            Facility::KernelExt4 => "the kernel's ext4",
            Facility::TmpfsXattrs => "a tmpfs at /dev/shm with user xattrs",
            Facility::Fuse => "/dev/fuse",
            Facility::FuseRings => "FUSE over io_uring",
            Facility::DmVerity => "the kernel's dm-verity",
            Facility::FsVerity => "fs-verity of the kernel's ext4",
            Facility::S3Servers => "two S3 servers",
            Facility::AzureServer => "a server of Azure Blob Storage",
            Facility::GoogleServer => "a server of Google Cloud Storage",
        })
    }
}

/// A facility that is absent, and how that was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What the test needed.
    pub facility: Facility,
    /// The observation behind the verdict.
    pub reason: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "needs {} ({})", self.facility, self.reason)
    }
}

impl Facility {
    /// Returns whether the facility is present; the answer is found once per process.
    ///
    /// # Errors
    ///
    /// [`Missing`] with the reason when it is not.
    pub fn check(self) -> Result<(), Missing> {
        static ROOT: OnceLock<Result<(), String>> = OnceLock::new();
        static LOOP: OnceLock<Result<(), String>> = OnceLock::new();
        static EXT4: OnceLock<Result<(), String>> = OnceLock::new();
        static XATTR: OnceLock<Result<(), String>> = OnceLock::new();
        static FUSE: OnceLock<Result<(), String>> = OnceLock::new();
        static RINGS: OnceLock<Result<(), String>> = OnceLock::new();
        static VERITY: OnceLock<Result<(), String>> = OnceLock::new();
        static FS_VERITY: OnceLock<Result<(), String>> = OnceLock::new();
        static S3: OnceLock<Result<(), String>> = OnceLock::new();
        static AZURE: OnceLock<Result<(), String>> = OnceLock::new();
        static GOOGLE: OnceLock<Result<(), String>> = OnceLock::new();
        let verdict = match self {
            Facility::Root => ROOT.get_or_init(probe_root),
            Facility::LoopDevices => LOOP.get_or_init(probe_loop),
            Facility::KernelExt4 => EXT4.get_or_init(probe_ext4),
            Facility::TmpfsXattrs => XATTR.get_or_init(probe_tmpfs_xattrs),
            Facility::Fuse => FUSE.get_or_init(probe_fuse),
            Facility::FuseRings => RINGS.get_or_init(probe_rings),
            Facility::DmVerity => VERITY.get_or_init(probe_dm_verity),
            Facility::FsVerity => FS_VERITY.get_or_init(probe_fs_verity),
            Facility::S3Servers => S3.get_or_init(|| probe_stores(&["versitygw", "gofakes3"])),
            Facility::AzureServer => AZURE.get_or_init(|| probe_stores(&["azurite-blob"])),
            Facility::GoogleServer => GOOGLE.get_or_init(|| probe_stores(&["fake-gcs-server"])),
        };
        verdict.clone().map_err(|reason| Missing {
            facility: self,
            reason,
        })
    }
}

/// Returns the first of `needed` that is missing, after printing the named skip; `None` when all
/// are there.
///
/// Used through [`require!`](crate::require). The line goes straight to standard error, past the
/// test harness's capture, so that a skip is visible in a passing run.
///
/// # Panics
///
/// When `EXTANT_REQUIRE_FACILITIES=1` is set and something is missing.
pub fn skip(needed: &[Facility]) -> Option<Missing> {
    let missing = needed.iter().find_map(|f| f.check().err())?;
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    assert!(
        std::env::var_os("EXTANT_REQUIRE_FACILITIES").is_none_or(|v| v != "1"),
        "{test}: {missing}, and EXTANT_REQUIRE_FACILITIES=1 forbids skipping"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED: {missing}: {test}");
    Some(missing)
}

/// Ends the calling test with a named skip unless every [`Facility`](crate::facility::Facility)
/// listed is present: `require!(LoopDevices, KernelExt4);`.
#[macro_export]
macro_rules! require {
    ($($facility:ident),+ $(,)?) => {
        if $crate::facility::skip(&[$($crate::facility::Facility::$facility),+]).is_some() {
            return;
        }
    };
}

/// Returns whether the run is to be a full one (`EXTANT_FULL=1`), which takes minutes more.
#[must_use]
pub fn is_full_run() -> bool {
    std::env::var_os("EXTANT_FULL").is_some_and(|v| !v.is_empty() && v != "0")
}

/// Returns whether to leave a test to full runs, after printing the named skip. Used through
/// [`require_full!`](crate::require_full).
#[must_use]
pub fn skip_until_full(reason: &str) -> bool {
    if is_full_run() {
        return false;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: needs EXTANT_FULL=1 ({reason}): {test}"
    );
    true
}

/// Ends the calling test with a named skip unless this is a full run:
/// `require_full!("takes minutes");`. For what no run in between should wait for.
#[macro_export]
macro_rules! require_full {
    ($reason:literal) => {
        if $crate::facility::skip_until_full($reason) {
            return;
        }
    };
}

fn probe_root() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(format!(
            "running as uid {}",
            rustix::process::geteuid().as_raw()
        ));
    }
    // Root of a container may lack CAP_MKNOD.
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("node"),
        rustix::fs::FileType::CharacterDevice,
        rustix::fs::Mode::from_raw_mode(0o600),
        rustix::fs::makedev(1, 3),
    )
    .map_err(|e| format!("root may not make device nodes: {e}"))
}

fn probe_loop() -> Result<(), String> {
    Facility::Root.check().map_err(|m| m.to_string())?;
    let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    file.as_file().set_len(1 << 20).map_err(|e| e.to_string())?;
    crate::loopdev::LoopDevice::attach(file.path(), crate::loopdev::Access::ReadOnly)
        .map(drop)
        .map_err(|e| e.to_string())
}

fn probe_ext4() -> Result<(), String> {
    Facility::LoopDevices.check().map_err(|m| m.to_string())?;
    let known = std::fs::read_to_string("/proc/filesystems").map_err(|e| e.to_string())?;
    if known.lines().any(|l| l.trim() == "ext4") {
        return Ok(());
    }
    // The module may load on the first mount, so only a real mount decides.
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let image = dir.path().join("probe.ext4");
    crate::oracle::mke2fs(&image, 8 << 20, &["-t", "ext4"]);
    crate::mount::KernelMount::try_mount(&image, crate::mount::Mode::ReadOnly, "")
        .map(drop)
        .map_err(|e| format!("mount: {e}"))
}

fn probe_fuse() -> Result<(), String> {
    Facility::Root.check().map_err(|m| m.to_string())?;
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(|e| e.to_string())?;
    // Mounts of file systems that nobody answers for can be made and removed.
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
    let options = std::ffi::CString::new(options).map_err(|e| e.to_string())?;
    let flags = rustix::mount::MountFlags::NODEV | rustix::mount::MountFlags::NOSUID;
    rustix::mount::mount("probe", dir.path(), "fuse", flags, options.as_c_str())
        .and_then(|()| rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH))
        .map_err(|e| format!("mount: {e}"))
}

fn probe_rings() -> Result<(), String> {
    Facility::Fuse.check().map_err(|m| m.to_string())?;
    let _enabled = crate::rings::Enabled::new().map_err(|e| e.to_string())?;
    match std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled") {
        Ok(text) if text.trim() == "2" => Err("kernel.io_uring_disabled is 2".to_owned()),
        _ => Ok(()),
    }
}

fn probe_dm_verity() -> Result<(), String> {
    Facility::LoopDevices.check().map_err(|m| m.to_string())?;
    crate::tool::tool("modprobe")
        .args(["-q", "dm-verity"])
        .run();
    let devices = std::fs::read_to_string("/proc/misc").map_err(|e| e.to_string())?;
    if !devices.contains("device-mapper") {
        return Err("the kernel has no device mapper".to_owned());
    }
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let data = dir.path().join("data");
    std::fs::write(&data, vec![0; 1 << 20]).map_err(|e| e.to_string())?;
    let hashes = dir.path().join("hashes");
    let said = crate::tool::tool("veritysetup")
        .arg("format")
        .args([&data, &hashes])
        .ok()
        .text();
    let root = said.lines().find(|line| line.starts_with("Root hash:"));
    let root = root.and_then(|line| line.split_whitespace().last());
    let attach = |path: &Path| {
        crate::loopdev::LoopDevice::attach(path, crate::loopdev::Access::ReadOnly)
            .map_err(|e| e.to_string())
    };
    let (data, hashes) = (attach(&data)?, attach(&hashes)?);
    let [data, hashes] = [&data, &hashes].map(|device| device.path().display().to_string());
    let opened = crate::verity::Opened::try_new(&data, &hashes, root.unwrap_or_default(), 0);
    opened.map(drop).map_err(|said| said.replace('\n', "; "))
}

fn probe_fs_verity() -> Result<(), String> {
    // It mounts an image, which brings the module in.
    Facility::KernelExt4.check().map_err(|m| m.to_string())?;
    let feature = "/sys/fs/ext4/features/verity";
    if Path::new(feature).exists() {
        Ok(())
    } else {
        Err(format!("there is no {feature}"))
    }
}

/// Whether programs that serve object stores are installed.
fn probe_stores(names: &[&str]) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    match names.iter().find(|name| !is_there(name)) {
        Some(name) => Err(format!("{name} is not installed: scripts/store-servers.sh")),
        None => Ok(()),
    }
}

fn probe_tmpfs_xattrs() -> Result<(), String> {
    let file = tempfile::NamedTempFile::new_in(Path::new("/dev/shm")).map_err(|e| e.to_string())?;
    rustix::fs::lsetxattr(
        file.path(),
        "user.probe",
        &[b'x'; 20_000],
        rustix::fs::XattrFlags::empty(),
    )
    .map_err(|e| format!("setxattr on /dev/shm: {e}"))
}
