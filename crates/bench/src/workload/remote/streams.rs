//! One large file, and disks in formats, in MB a second.
//!
//! The large file has data everywhere. The disk has it in three of four MiB, and holes.

use super::Place;
use crate::args::{KernelForm, Side};
use crate::check;
use crate::peer::{self, Measured};
use crate::server::Server;
use crate::store::ImageShape;
use crate::workload::build::{command, path};
use crate::workload::pattern;
use extant_testkit::link::Protocol;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes written at a time.
const PIECE: usize = 1 << 20;
/// Bytes that begin with their number.
const BLOCK: usize = 4 << 10;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Read,
    Write,
    Convert,
    FromQcow2,
    ToQcow2,
    FromSimg,
    ToSimg,
}

impl Stream {
    /// The peers that do this too.
    pub(super) fn peers(self) -> &'static [Side] {
        match self {
            Self::Read | Self::Write | Self::Convert => &[Side::Nbdcopy],
            Self::FromQcow2 | Self::ToQcow2 => &[Side::QemuImg],
            Self::FromSimg => &[Side::Simg2img],
            Self::ToSimg => &[Side::Img2simg],
        }
    }
}

/// See the module.
pub(super) struct Streams {
    mib: u64,
}

/// An image with a file of so many MiB.
fn shape(mib: u64) -> ImageShape {
    ImageShape {
        mib: mib + mib / 8 + 64,
        inodes: 1024,
        block_size: None,
    }
}

impl Streams {
    pub(super) fn new(mib: u64) -> Self {
        Self { mib }
    }

    pub(super) fn options(&self, side: Side, stream: Stream) -> String {
        let mib = self.mib;
        let large = format!("{mib} MiB");
        let disk = format!("{mib} MiB, a quarter of it holes");
        match (stream, side) {
            (Stream::Read, Side::Engine) => {
                format!("{large}; extant cp of a file in an image; nbdkit on a Unix socket")
            }
            (Stream::Write, Side::Engine) => format!(
                "{large}; extant cp into a file in an image, durable; nbdkit on a Unix socket"
            ),
            (Stream::Read, _) => {
                format!("{large}; nbdcopy of the export; nbdkit on a Unix socket")
            }
            (Stream::Write, _) => {
                format!("{large}; nbdcopy --flush onto the export; nbdkit on a Unix socket")
            }
            (Stream::Convert, Side::Engine) => {
                format!("{disk}; extant convert; nbdkit on a Unix socket")
            }
            (Stream::Convert, _) => format!("{disk}; nbdcopy; nbdkit on a Unix socket"),
            (_, Side::Engine) => format!("{disk}; extant convert"),
            (_, Side::QemuImg) => format!("{disk}; qemu-img convert"),
            (_, side) => format!("{disk}; {}", side.name()),
        }
    }

    pub(super) fn run(
        &mut self,
        place: &Place,
        side: Side,
        stream: Stream,
    ) -> Result<Measured, String> {
        let measured = match stream {
            Stream::Read => self.read(place, side),
            Stream::Write => self.write(place, side),
            Stream::Convert => self.convert(place, side),
            Stream::FromQcow2 => self.unpack(place, side, "qcow2"),
            Stream::FromSimg => self.unpack(place, side, "simg"),
            Stream::ToQcow2 => self.pack(place, side, "qcow2"),
            Stream::ToSimg => self.pack(place, side, "simg"),
        }?;
        Ok(Measured {
            value: self.mib as f64 * 1.048_576 / measured.value,
            ..measured
        })
    }

    /// A file that is made when it is asked for first.
    fn made(
        &self,
        place: &Place,
        name: &str,
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let path = place.store.path(name);
        if !path.exists() {
            make(&path).inspect_err(|_| {
                // Half of it would be taken for it the next time.
                let _ = fs::remove_file(&path);
            })?;
        }
        Ok(path)
    }

    fn large(&self, place: &Place) -> Result<PathBuf, String> {
        self.made(place, "large", |path| fill(path, self.mib, |_| true))
    }

    fn disk(&self, place: &Place) -> Result<PathBuf, String> {
        self.made(place, "disk.raw", |path| {
            fill(path, self.mib, |i| i % 4 != 1)
        })
    }

    /// An image with the large file in it.
    fn image(&self, place: &Place) -> Result<PathBuf, String> {
        let large = self.large(place)?;
        self.made(place, "stream.img", |image| {
            let folder = place.free("stream")?;
            let failed = |e: io::Error| format!("{}: {e}", folder.display());
            fs::create_dir(&folder).map_err(failed)?;
            fs::hard_link(&large, folder.join(NAME)).map_err(failed)?;
            let size = format!("{}M", shape(self.mib).mib);
            let options = ["-q", "-F", "-t", "ext4", "-N", "1024", "-d", path(&folder)];
            run(command(
                "mke2fs",
                &[&options[..], &[path(image), &size]].concat(),
            ))
        })
    }

    fn read(&self, place: &Place, side: Side) -> Result<Measured, String> {
        let large = self.large(place)?;
        let out = place.free("out.raw")?;
        let measured = match side {
            Side::Engine => {
                let image = self.image(place)?;
                let server = Server::of(Protocol::Nbd, &place.serving, &image, false)?;
                let from = format!("{}:/{NAME}", address(&server));
                peer::measure(&mut [place.extant.run(["cp", &from, path(&out)])])
            }
            _ => {
                let server = Server::of(Protocol::Nbd, &place.serving, &large, false)?;
                peer::measure(&mut [command("nbdcopy", &[&address(&server), path(&out)])])
            }
        };
        let measured = measured.map_err(|e| e.to_string())?;
        same(&large, &out)?;
        place.free("out.raw")?;
        Ok(measured)
    }

    fn write(&self, place: &Place, side: Side) -> Result<Measured, String> {
        let large = self.large(place)?;
        if side == Side::Engine {
            let image = place
                .store
                .fresh_image(KernelForm::Plain, shape(self.mib))?;
            with_room(&image).map_err(|e| format!("{}: {e}", image.display()))?;
            let server = Server::of(Protocol::Nbd, &place.serving, &image, true)?;
            let to = format!("{}:/{NAME}", address(&server));
            let measured = peer::measure(&mut [place.extant.run(["cp", path(&large), &to])])
                .map_err(|e| e.to_string())?;
            drop(server);
            check::e2fsck(&image)?;
            let failed = |e: io::Error| format!("{}: {e}", large.display());
            let expected = File::open(&large).map_err(failed)?;
            pattern::through_kernel(&image, NAME, |found| same_content(&expected, found))?;
            return Ok(measured);
        }
        let target = place.free("export.raw")?;
        zeroes(&target, self.mib).map_err(|e| format!("{}: {e}", target.display()))?;
        let server = Server::of(Protocol::Nbd, &place.serving, &target, true)?;
        let to = address(&server);
        let args = ["--flush", path(&large), &to];
        let measured =
            peer::measure(&mut [command("nbdcopy", &args)]).map_err(|e| e.to_string())?;
        drop(server);
        same(&large, &target)?;
        place.free("export.raw")?;
        Ok(measured)
    }

    fn convert(&self, place: &Place, side: Side) -> Result<Measured, String> {
        let disk = self.disk(place)?;
        let server = Server::of(Protocol::Nbd, &place.serving, &disk, false)?;
        let from = address(&server);
        self.make_raw(place, &disk, |out| match side {
            Side::Engine => place.extant.run(["convert", &from, out]),
            _ => command("nbdcopy", &[&from, out]),
        })
    }

    fn unpack(&self, place: &Place, side: Side, format: &str) -> Result<Measured, String> {
        let disk = self.disk(place)?;
        let source = self.made(place, &format!("disk.{format}"), |source| {
            let (disk, source) = (path(&disk), path(source));
            run(match format {
                "qcow2" => command("qemu-img", &qemu_img(["raw", "qcow2"], disk, source)),
                _ => command("img2simg", &[disk, source]),
            })
        })?;
        let source = path(&source);
        self.make_raw(place, &disk, |out| match side {
            Side::Engine => place.extant.run(["convert", source, out]),
            Side::QemuImg => command("qemu-img", &qemu_img(["qcow2", "raw"], source, out)),
            _ => command("simg2img", &[source, out]),
        })
    }

    /// Measures what makes a raw file of the disk.
    fn make_raw(
        &self,
        place: &Place,
        disk: &Path,
        by: impl FnOnce(&str) -> Command,
    ) -> Result<Measured, String> {
        let out = place.free("out.raw")?;
        let measured = peer::measure(&mut [by(path(&out))]).map_err(|e| e.to_string())?;
        same(disk, &out)?;
        place.free("out.raw")?;
        Ok(measured)
    }

    fn pack(&self, place: &Place, side: Side, format: &str) -> Result<Measured, String> {
        let disk = self.disk(place)?;
        let name = format!("out.{format}");
        let target = place.free(&name)?;
        let (from, to) = (path(&disk), path(&target));
        let by = match side {
            Side::Engine => place.extant.run(["convert", from, to]),
            Side::QemuImg => command("qemu-img", &qemu_img(["raw", "qcow2"], from, to)),
            _ => command("img2simg", &[from, to]),
        };
        let measured = peer::measure(&mut [by]).map_err(|e| e.to_string())?;
        if format == "qcow2" {
            run(command("qemu-img", &["check", "-q", to]))?;
            let formats = ["-f", "raw", "-F", "qcow2"];
            let args = [&["compare", "-q"], &formats[..], &[from, to]].concat();
            run(command("qemu-img", &args))?;
        } else {
            let raw = place.free("out.raw")?;
            run(command("simg2img", &[to, path(&raw)]))?;
            same(&disk, &raw)?;
            place.free("out.raw")?;
        }
        place.free(&name)?;
        Ok(measured)
    }
}

/// The large file in an image.
const NAME: &str = "stream";

fn address(server: &Server) -> String {
    format!("nbd+unix:///?socket={}", path(server.socket()))
}

/// The arguments of a conversion between two formats.
fn qemu_img<'a>([from, to]: [&'a str; 2], source: &'a str, target: &'a str) -> [&'a str; 7] {
    ["convert", "-f", from, "-O", to, source, target]
}

/// Runs what is not measured.
fn run(command: Command) -> Result<(), String> {
    let measured = peer::measure(&mut [command]);
    measured.map(drop).map_err(|e| e.to_string())
}

/// Makes a file of so many MiB, of which those have data that `has_data` says, no block like
/// another.
fn fill(path: &Path, mib: u64, has_data: impl Fn(u64) -> bool) -> Result<(), String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    let file = File::create(path).map_err(failed)?;
    file.set_len(mib << 20).map_err(failed)?;
    let mut piece = vec![0; PIECE];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in piece.chunks_exact_mut(8) {
        // A step of xorshift64: noise that no format makes smaller.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    for i in (0..mib).filter(|&i| has_data(i)) {
        for (block, number) in piece.chunks_exact_mut(BLOCK).zip(i * 256..) {
            if let Some(begin) = block.get_mut(..8) {
                begin.copy_from_slice(&number.to_le_bytes());
            }
        }
        file.write_all_at(&piece, i * PIECE as u64)
            .map_err(failed)?;
    }
    Ok(())
}

/// Has the host find room for the holes of a file, and memory for all of it, as it has for the
/// target of the peer: by writing what is there already. Room alone is not enough, as pages that
/// were never written cost the one that writes them first.
fn with_room(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let len = file.metadata()?.len();
    let mut piece = vec![0; PIECE];
    for at in (0..len).step_by(PIECE) {
        let piece = &mut piece[..(len - at).min(PIECE as u64) as usize];
        file.read_exact_at(piece, at)?;
        file.write_all_at(piece, at)?;
    }
    Ok(())
}

/// Makes a file of so many MiB that the host has found room for.
fn zeroes(path: &Path, mib: u64) -> io::Result<()> {
    let file = File::create(path)?;
    let piece = vec![0; PIECE];
    (0..mib).try_for_each(|i| file.write_all_at(&piece, i * PIECE as u64))
}

/// Compares two files.
fn same(expected: &Path, found: &Path) -> Result<(), String> {
    let open = |path: &Path| File::open(path).map_err(|e| format!("{}: {e}", path.display()));
    let result = same_content(&open(expected)?, &open(found)?);
    result.map_err(|e| format!("{}: {e}", found.display()))
}

fn same_content(expected: &File, found: &File) -> Result<(), String> {
    let failed = |e: io::Error| e.to_string();
    let lens = [expected, found].map(|file| file.metadata().map(|found| found.len()));
    let [len, other] = lens;
    let len = len.map_err(failed)?;
    if other.map_err(failed)? != len {
        return Err(format!("it has not the {len} bytes of its source"));
    }
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    while at < len {
        let now = (len - at).min(PIECE as u64) as usize;
        expected.read_exact_at(&mut a[..now], at).map_err(failed)?;
        found.read_exact_at(&mut b[..now], at).map_err(failed)?;
        if a[..now] != b[..now] {
            return Err(format!("it differs from its source behind byte {at}"));
        }
        at += now as u64;
    }
    Ok(())
}
