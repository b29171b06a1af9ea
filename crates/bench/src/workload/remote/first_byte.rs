//! The first byte of a small file of an image of 10 GiB with many files, in milliseconds.
//!
//! Directories have a thousand files. One file in sixteen has content: the one that is asked for is
//! in the middle of the directory in the middle.

use super::{Far, Place, figures};
use crate::args::{KernelForm, Side};
use crate::check;
use crate::command;
use crate::crew;
use crate::peer::{self, Measured};
use crate::server::{self, Shown, Source};
use crate::side::engine::Engine;
use crate::side::{MountChoice, Mounted};
use crate::store::ImageShape;
use crate::workload::build::path;
use extant_testkit::link::{Protocol, Speed};
use rustix::mount::UnmountFlags;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Size of the image, in MiB.
const MIB: u64 = 10 << 10;
/// Files in a directory.
const IN_DIR: u64 = 1000;
/// One file of so many has content.
const FULL: u64 = 16;

/// See the module.
pub(super) struct FirstByte {
    files: u64,
    image: Option<PathBuf>,
}

/// What a side said, and what that took.
type Answer = (Measured, Vec<u8>);

impl FirstByte {
    pub(super) fn new(files: u64) -> Self {
        Self { files, image: None }
    }

    fn dirs(&self) -> u64 {
        (self.files / IN_DIR).max(1)
    }

    fn in_dir(&self, dir: u64) -> u64 {
        crew::share(self.files, self.dirs() as usize, dir as usize)
    }

    /// Directory and number of the file that is asked for.
    fn wanted(&self) -> (u64, u64) {
        let dir = self.dirs() / 2;
        (dir, self.in_dir(dir) / 2 / FULL * FULL)
    }

    fn image(&mut self, place: &Place) -> Result<PathBuf, String> {
        if let Some(image) = &self.image {
            return Ok(image.clone());
        }
        let image = place.free("first-byte.img")?;
        let shape = ImageShape {
            mib: MIB,
            inodes: self.files + self.files / 8 + 4096,
            block_size: None,
        };
        shape.format(KernelForm::Plain, &image)?;
        self.fill(&image)?;
        check::e2fsck(&image)?;
        self.image = Some(image.clone());
        Ok(image)
    }

    fn fill(&self, image: &Path) -> Result<(), String> {
        let choice = MountChoice {
            delalloc: true,
            ..MountChoice::default()
        };
        let engine = Engine::mount(image, choice)?;
        for dir in 0..self.dirs() {
            let opened = engine.make_dir(&c_string(dir_name(dir))?)?;
            for number in 0..self.in_dir(dir) {
                let file = engine.create(&opened, &c_string(file_name(number))?)?;
                if number.is_multiple_of(FULL) {
                    engine.write_at(&file, 0, content(dir, number).as_bytes())?;
                }
                engine.close(file)?;
            }
        }
        engine.unmount()
    }

    pub(super) fn options(&self, side: Side, protocol: Protocol) -> String {
        let server = match protocol {
            Protocol::Nbd => "nbdkit",
            Protocol::Http => "nginx",
        };
        let how = match (side, protocol) {
            (Side::Nbdfuse, Protocol::Nbd) => "nbdfuse, then debugfs -R cat on the file it shows",
            (Side::Nbdfuse, Protocol::Http) => {
                "nbdkit curl, nbdfuse, then debugfs -R cat on the file it shows"
            }
            (Side::Guestfish, _) => "guestfish, with the start of its machine",
            (Side::QemuNbd, _) => "qemu-nbd --connect, mount, read",
            _ => "extant cat",
        };
        format!(
            "{} files in {} directories in an image of 10 GiB; {how}; {server}",
            self.files,
            self.dirs()
        )
    }

    pub(super) fn run(
        &mut self,
        place: &Place,
        side: Side,
        protocol: Protocol,
        speed: Speed,
    ) -> Result<Measured, String> {
        let image = self.image(place)?;
        let (dir, number) = self.wanted();
        let file = format!("/{}/{}", dir_name(dir), file_name(number));
        let far = place.behind_a_link(protocol, &image, false, speed)?;
        let (measured, mut found) = match side {
            Side::Engine => {
                let inside = format!("{}:{file}", far.address);
                let mut cat = place.extant.run(["cat", &inside]);
                peer::first_byte(Instant::now(), &mut cat).map_err(|e| e.to_string())?
            }
            Side::Nbdfuse => by_nbdfuse(place, &far, protocol, &file)?,
            Side::Guestfish => by_guestfish(&far, &file)?,
            Side::QemuNbd => by_kernel(place, &far, &file)?,
            other => return Err(format!("{} reads no file of an image", other.name())),
        };
        let figures = figures(&far.counts()?);
        let expected = content(dir, number);
        if side == Side::Guestfish && found.len() == expected.len() + 1 {
            // It ends what it prints with a line.
            found.pop();
        }
        if found != expected.as_bytes() {
            return Err(format!("{file}: content differs from what was written"));
        }
        Ok(Measured {
            value: measured.value * 1000.0,
            figures,
            ..measured
        })
    }
}

fn dir_name(dir: u64) -> String {
    format!("d{dir:05}")
}

fn file_name(number: u64) -> String {
    format!("f{number:04}")
}

fn c_string(name: String) -> Result<CString, String> {
    CString::new(name).map_err(|e| e.to_string())
}

/// Some 3 KiB of text.
fn content(dir: u64, number: u64) -> String {
    format!("This is file {number} of directory {dir}.\n").repeat(80)
}

/// nbdfuse shows the image as a file, of which debugfs takes the content.
fn by_nbdfuse(place: &Place, far: &Far, protocol: Protocol, file: &str) -> Result<Answer, String> {
    let start = Instant::now();
    let source = match protocol {
        Protocol::Nbd => Source::Uri(&far.address),
        Protocol::Http => Source::Url(&far.address),
    };
    let shown = Shown::new(&place.serving, &source, false)?;
    let mut debugfs = Command::new("debugfs");
    debugfs
        .arg("-R")
        .arg(format!("cat {file}"))
        .arg(shown.file());
    let (measured, found) = peer::first_byte(start, &mut debugfs).map_err(|e| e.to_string())?;
    let peak_rss = measured.peak_rss.max(shown.peak_rss());
    shown.end()?;
    Ok((
        Measured {
            peak_rss,
            ..measured
        },
        found,
    ))
}

/// A machine with the image as its disk.
fn by_guestfish(far: &Far, file: &str) -> Result<Answer, String> {
    let start = Instant::now();
    let mut guestfish = Command::new("guestfish");
    let address = far.address.trim_end_matches('/');
    guestfish
        .args(["--ro", "--format=raw", "-a", address])
        .args(["-m", "/dev/sda", "cat", file]);
    command::past_proxies(&mut guestfish);
    peer::first_byte(start, &mut guestfish).map_err(|e| e.to_string())
}

/// Why the kernel's driver cannot be a peer, if it cannot.
pub(super) fn kernel_is_missing() -> Option<&'static str> {
    if !server::is_installed("qemu-nbd") {
        return Some("it is not installed");
    }
    match free_device() {
        Some(_) => None,
        None => Some("the kernel has no device of the driver nbd that is free"),
    }
}

/// A device of the kernel's driver that nothing is connected to.
fn free_device() -> Option<PathBuf> {
    let is_free = |name: &String| {
        let block = Path::new("/sys/block").join(name);
        block.exists() && !block.join("pid").exists()
    };
    let name = (0..16).map(|n| format!("nbd{n}")).find(is_free)?;
    Some(Path::new("/dev").join(name))
}

/// A device that is connected, and perhaps mounted; both end with this.
struct Connected {
    device: PathBuf,
    point: PathBuf,
}

impl Drop for Connected {
    fn drop(&mut self) {
        // It is not mounted where that failed, or where all went well.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        let _ = Command::new("qemu-nbd")
            .arg("--disconnect")
            .arg(&self.device)
            .output();
    }
}

/// The kernel mounts the export.
fn by_kernel(place: &Place, far: &Far, file: &str) -> Result<Answer, String> {
    let device = free_device().ok_or("no device of the driver nbd is free")?;
    let point = place.serving.join("mnt");
    fs::create_dir_all(&point).map_err(|e| format!("{}: {e}", point.display()))?;
    let mut connect = Command::new("qemu-nbd");
    connect
        .args(["--read-only", "--format=raw"])
        .arg(format!("--connect={}", path(&device)))
        .arg(&far.address);
    command::past_proxies(&mut connect);
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "ext4", "-o", "ro,noload"])
        .args([&device, &point]);
    let connected = Connected { device, point };
    let start = Instant::now();
    peer::measure(&mut [connect, mount]).map_err(|e| e.to_string())?;
    let at = connected.point.join(file.trim_start_matches('/'));
    let failed = |e: std::io::Error| format!("{}: {e}", at.display());
    let mut opened = File::open(&at).map_err(failed)?;
    let mut found = vec![0];
    opened.read_exact(&mut found).map_err(failed)?;
    let measured = Measured {
        value: start.elapsed().as_secs_f64(),
        ..Measured::default()
    };
    opened.read_to_end(&mut found).map_err(failed)?;
    drop(opened);
    server::unmount(&connected.point)?;
    Ok((measured, found))
}
