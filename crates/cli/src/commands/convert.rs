//! `extant convert`.

use super::mkfs::replacing;
use crate::args::{Convert, Whereabouts};
use crate::chunks::{self, Chunked, Chunking};
use crate::container::{Names, container, format_of, output, second_file};
use crate::failure::{Failure, Outcome};
use crate::image_path::{as_raw, how, shown, whole_image};
use crate::object;
use crate::output::Output;
use crate::progress::Bar;
use crate::record::lossless;
use crate::size::human;
use extant::Escaped;
use extant_blockdev::SharedDevice;
use extant_formats::simg::WriteHow;
use extant_formats::{CopyProgress, Format, OpenHow, copy, open, recognise};
use extant_mkfs::output::Replaces;
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

pub(super) fn run(args: &Convert, location: &Whereabouts) -> Outcome {
    refuse(args, location)?;
    let format = format_of(&args.target, args.format.as_deref())?;
    if format != Format::Simg && (args.crc || args.holes_dont_care) {
        return Err(Failure::usage(
            "--crc and --holes-dont-care go with --format simg",
        ));
    }
    let (store, sizes) = (args.store.as_deref(), args.chunk_size.as_deref());
    let chunking = Chunking::of(format, &args.target, store, sizes)?;
    let check = |target: &Path| match object::url_of(target) {
        Some(url) => object::check_vacant(&url, args.force).map(|()| Replaces::Nothing),
        None => replacing::check_precious(target, args.force),
    };
    let names = Names {
        image: check(&args.target)?,
        second: match second_file(&args.target, format) {
            Some(second) => check(&second)?,
            None => Replaces::Nothing,
        },
    };
    let source = Source::open(args, location)?;
    let size = source.disk.size();
    let bar = Shown(Bar::new("converting"));
    bar.0.total(size);
    let done = write(args, names, format, &source, chunking.as_ref(), &bar);
    bar.0.finish();
    let done = done
        .map_err(|e| Failure::new(format!("{} was not made: {e}", Escaped::path(&args.target))))?;
    tell(args, format, &source, chunking.as_ref(), &done)
}

/// What became of the copy.
#[derive(Debug, Default)]
struct Done {
    /// Bytes of the source that were read, where that is known.
    read: Option<u64>,
    chunks: Option<Chunked>,
}

fn refuse(args: &Convert, location: &Whereabouts) -> Outcome {
    if [&args.source, &args.target]
        .iter()
        .any(|path| path.as_os_str() == "-")
    {
        return Err(Failure::usage(
            "images are files, which are read and written at any place: name them (./- is one of \
             that name)",
        ));
    }
    let target = whole_image(args.target.as_os_str())?;
    let is_made = !target.is_address() || object::url_of(&args.target).is_some();
    if !is_made || target.partition().is_some() {
        return Err(Failure::usage(format!(
            "{} is no file, and a disk is converted into a file: write it there afterwards, such as \
             with nbdcopy or rclone copyto",
            shown(&target)
        )));
    }
    let full = |path: &Path| path.canonicalize().ok();
    if full(&args.source).is_some_and(|source| full(&args.target) == Some(source)) {
        return Err(Failure::usage(format!(
            "{} is the source as well as the target: give the target another name",
            Escaped::path(&args.target)
        )));
    }
    if are_of_one_disk(&args.source, &args.target) {
        return Err(Failure::usage(format!(
            "{} is a part of the same disk as {}, which would be overwritten while it is read: \
             convert into a file first",
            Escaped::path(&args.source),
            Escaped::path(&args.target)
        )));
    }
    let reads = location.superblock.is_some() || location.as_is || location.mend;
    if reads || location.journal.is_some() {
        return Err(Failure::usage(
            "a disk is copied as it is: --superblock, --as-is, --mend and --journal mean nothing to it",
        ));
    }
    match args.source_format.as_deref() {
        None | Some("raw") => Ok(()),
        Some(other) => Err(Failure::usage(format!(
            "--source-format {other}: only raw can be said here; --image-format says any format"
        ))),
    }
}

/// Whether two block devices are one, by whatever names, or one is a partition of the other.
fn are_of_one_disk(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let found = path.metadata().ok()?;
        if !found.file_type().is_block_device() {
            return None;
        }
        let (major, minor) = (
            rustix::fs::major(found.rdev()),
            rustix::fs::minor(found.rdev()),
        );
        // The folder of a partition lies in that of its disk.
        fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
    };
    match (place(one), place(other)) {
        (Some(one), Some(other)) => one.starts_with(&other) || other.starts_with(&one),
        _ => false,
    }
}

/// The disk that is copied.
struct Source {
    disk: SharedDevice,
    format: Format,
}

impl Source {
    fn open(args: &Convert, location: &Whereabouts) -> Outcome<Self> {
        let image = whole_image(args.source.as_os_str())?;
        let how = how(location, &image, false)
            .guarded(true)
            .verified(true)
            .outside(args.outside);
        let how = if args.source_format.is_some() {
            as_raw(how, location, &image, "--source-format")?
        } else {
            how
        };
        let opened = image.open_disk(&how).map_err(Failure::new)?;
        let format = opened.container.map_or(Format::Raw, |found| {
            let mut known = Format::SAID.into_iter();
            let found = known.find(|format| format.word() == found.word);
            found.unwrap_or(Format::Raw)
        });
        let mut disk = opened.device;
        // What was compressed may be an image of a format itself.
        if is_compressed(format)
            && let Some(inner) = recognise(&*disk).map_err(Failure::new)?
        {
            if is_compressed(inner) {
                return Err(Failure::new(format!(
                    "{} is compressed twice: decompress it first",
                    Escaped::path(&args.source)
                )));
            }
            let into = OpenHow::read_only()
                .outside(args.outside)
                .guarded(true)
                .verify(true);
            let into = match image.path() {
                Some(path) => into.beside(path),
                None => into,
            };
            disk = open(disk, inner, &into).map_err(Failure::new)?;
        }
        let part = image.part_of(disk, &how).map_err(Failure::new)?;
        Ok(Self { disk: part, format })
    }
}

/// Whether a format is that of a compressed image.
fn is_compressed(format: Format) -> bool {
    matches!(format, Format::Gzip | Format::Zstd | Format::Xz)
}

/// Copies the disk.
fn write(
    args: &Convert,
    names: Names,
    format: Format,
    source: &Source,
    chunking: Option<&Chunking>,
    progress: &Shown,
) -> Result<Done, Box<dyn std::error::Error>> {
    let disk = &*source.disk;
    let threads = args.threads.and_then(NonZero::new);
    let container = container(&args.target, names, format);
    if format == Format::Simg {
        let mut how = WriteHow::default();
        how.crc = args.crc;
        how.holes_dont_care = args.holes_dont_care;
        how.threads = threads;
        container.write_simg(disk, &how, progress)?;
        return Ok(Done::default());
    }
    if let Some(chunking) = chunking {
        let made = chunks::write(&args.target, names.image, disk, chunking, threads, progress)?;
        return Ok(Done {
            read: None,
            chunks: Some(made),
        });
    }
    let uuid = crate::time::is_reproducible().then(|| {
        // The same disk gives the same image.
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&disk.size().to_le_bytes());
        uuid
    });
    let size = disk.size();
    let to = output(&container, size, uuid)?;
    if !to.is_zeroed() {
        to.device().zero(0, size)?;
    }
    let copied = copy(disk, to.device(), threads, progress)?;
    to.commit()?;
    if format == Format::Vmdk {
        container.describe(size)?;
    }
    Ok(Done {
        read: Some(copied.read),
        chunks: None,
    })
}

/// What was made, for programs.
#[derive(Debug, Serialize)]
struct Made {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    format: &'static str,
    source_format: &'static str,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<u64>,
    file_size: u64,
    allocated: u64,
    #[serde(flatten)]
    chunks: Option<Chunked>,
}

fn tell(
    args: &Convert,
    format: Format,
    source: &Source,
    chunking: Option<&Chunking>,
    done: &Done,
) -> Outcome {
    if args.quiet {
        return Ok(());
    }
    let (mut file_size, mut allocated) = (0, 0);
    for path in [Some(args.target.clone()), second_file(&args.target, format)] {
        if let Some(found) = path.and_then(|path| fs::metadata(path).ok()) {
            file_size += found.len();
            allocated += found.blocks() * 512;
        }
    }
    let size = source.disk.size();
    if object::url_of(&args.target).is_some() {
        (file_size, allocated) = (size, size);
    }
    let mut output = Output::new();
    if args.json {
        let (image, image_hex) = lossless(args.target.as_os_str().as_bytes());
        output.json_line(&Made {
            image,
            image_hex,
            format: format.word(),
            source_format: source.format.word(),
            size,
            read: done.read,
            file_size,
            allocated,
            chunks: done.chunks,
        })?;
    } else {
        output.name(args.target.as_os_str().as_bytes())?;
        write!(
            output,
            ": {} of {}, from {}; {} on the disk",
            format.name(),
            human(size),
            source.format.name(),
            human(allocated)
        )?;
        if let (Some(chunked), Some(chunking)) = (&done.chunks, chunking) {
            write!(
                output,
                ", and {} of {} chunks are new in {}: {}",
                chunked.new_chunks,
                chunked.chunks,
                Escaped::path(&chunking.store),
                human(chunked.new_bytes)
            )?;
        }
        writeln!(output)?;
    }
    output.finish()
}

/// Progress of the copy on the bar.
struct Shown(Bar);

impl CopyProgress for Shown {
    fn advance(&self, bytes: u64) {
        self.0.advance(bytes);
    }
}
