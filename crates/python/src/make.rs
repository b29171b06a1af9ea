//! Making images.

use crate::call::outside_for_long;
use crate::error::{Failure, of_image};
use crate::inodes::MOST_THREADS;
use crate::path::ImagePath;
use crate::source::{Part, Source};
use extant::{BlockSize, SharedDevice, errno};
use extant_mkfs::defaults::{FeatureRequest, InodeDensity, JournalSize, Profile};
use extant_mkfs::output::{Output, Replaces};
use extant_mkfs::source::{
    Normalisation, Owner, SourceOptions, TimePolicy, Timestamp, read_source,
};
use extant_mkfs::{
    BuildError, BuildOptions, FormatOptions, Headroom, Report, Silent, Size, build, build_into,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::num::NonZero;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Free space in an image that is as small as it can be, in percent of it.
const HEADROOM: f64 = 10.0;

/// What it may be, as for the command.
const HEADROOMS: RangeInclusive<f64> = 0.0..=10_000.0;

/// Where an image goes.
enum Target {
    /// A file that does not exist yet, or may be replaced.
    File(PathBuf, Replaces),
    /// Something that is there.
    Device(SharedDevice, PathBuf),
}

/// Makes a file system, empty or filled from a directory or an archive.
#[pyfunction]
#[pyo3(signature = (image, size=None, *, source=None, label="", uuid=None, time=None,
                    block_size=None, inode_size=None, inodes=None, bytes_per_inode=None,
                    features="", profile="default", journal=None, reserved_percent=None,
                    root_owner=None, root_mode=None, headroom=HEADROOM, overwrite=false,
                    partition=None, offset=None, length=None, threads=0))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
pub(crate) fn mkfs<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    size: Option<&Bound<'py, PyAny>>,
    source: Option<ImagePath>,
    label: &str,
    uuid: Option<[u8; 16]>,
    time: Option<u64>,
    block_size: Option<u32>,
    inode_size: Option<u32>,
    inodes: Option<u32>,
    bytes_per_inode: Option<u32>,
    features: &str,
    profile: &str,
    journal: Option<&Bound<'py, PyAny>>,
    reserved_percent: Option<f64>,
    root_owner: Option<(u32, u32)>,
    root_mode: Option<u16>,
    headroom: f64,
    overwrite: bool,
    partition: Option<&Bound<'py, PyAny>>,
    offset: Option<u64>,
    length: Option<u64>,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let invalid = |text: String| PyValueError::new_err(text);
    if label.contains('\0') {
        return Err(invalid("embedded null byte in the label".to_owned()));
    }
    if !HEADROOMS.contains(&headroom) {
        return Err(invalid(format!(
            "the headroom cannot be {headroom}: 0 to 10000 percent"
        )));
    }
    let given = Source::new(image, true)?;
    let is_part = partition.is_some() || offset.is_some() || length.is_some();
    let target = match given.whole_file() {
        Some(path) if !is_part && !is_device(&path) => {
            let replaces = if overwrite {
                Replaces::what_is_at(&path)
            } else {
                Replaces::Nothing
            };
            if !overwrite && path.symlink_metadata().is_ok() {
                let failure = Failure {
                    errno: errno::EEXIST,
                    ..Failure::invalid("File exists")
                };
                return Err(of_image(failure, &path).raise(py));
            }
            Target::File(path, replaces)
        }
        _ => {
            let open = given.open(py, Part::new(true, partition, offset, length, None)?)?;
            Target::Device(open.device, open.name)
        }
    };
    let size = size_of(size, &target, source.is_some(), headroom)?;
    let block_size = block_size.map(|bytes| {
        BlockSize::from_bytes(bytes).ok_or_else(|| {
            invalid("the block size is a power of two from 1024 to 65536".to_owned())
        })
    });
    let block_size = block_size.transpose()?;
    let features = features
        .parse::<FeatureRequest>()
        .map_err(|e| invalid(e.to_string()))?;
    let profile = profile
        .parse::<Profile>()
        .map_err(|e| invalid(e.to_string()))?;
    let inodes = match (inodes, bytes_per_inode) {
        (None, None) => InodeDensity::BySize,
        (Some(count), None) => InodeDensity::Count(count),
        (None, Some(bytes)) => InodeDensity::Ratio(bytes),
        (Some(_), Some(_)) => {
            return Err(invalid(
                "give inodes or bytes_per_inode, not both".to_owned(),
            ));
        }
    };
    let journal = journal_of(journal)?;
    let work = || {
        let mut tree = source
            .as_ref()
            .map(|source| read_source(source.as_path(), SourceOptions::default()))
            .transpose()
            .map_err(|e| Failure {
                errno: errno_of(&e),
                ..Failure::invalid(e.to_string())
            })?;
        if let Some(tree) = &mut tree {
            tree.normalise(&Normalisation {
                // What came later, such as a time of reading, tells nothing of the source.
                times: time.map_or(TimePolicy::Keep, |time| {
                    let secs = i64::try_from(time).unwrap_or(i64::MAX);
                    TimePolicy::Clamp(Timestamp::from_secs(secs))
                }),
                root_owner: root_owner.map(|(uid, gid)| Owner {
                    uid,
                    gid: Some(gid),
                }),
                root_mode: root_mode.map(|mode| mode & 0o7777),
                ..Normalisation::default()
            });
        }
        let mut format = match time {
            // The same source gives the same bytes.
            Some(time) => {
                let material = tree.as_ref().map(|tree| tree.fingerprint());
                FormatOptions::reproducible(0, time, &material.unwrap_or_default())
            }
            None => FormatOptions::new(0, now()),
        };
        format.block_size = block_size;
        if let Some(bytes) = inode_size {
            format.inode_size = bytes;
        }
        format.inodes = inodes;
        format.profile = profile;
        format.features = features;
        format.label = label.as_bytes().to_vec();
        if let Some(uuid) = uuid {
            format.uuid = uuid;
        }
        format.reserved_percent = reserved_percent;
        if let Some(owner) = root_owner {
            format.root_owner = owner;
        }
        if let Some(mode) = root_mode {
            format.root_mode = mode & 0o7777;
        }
        format.journal = journal;
        if let Target::Device(device, _) = &target {
            format.sector_size = device.logical_sector();
        }
        let mut options =
            BuildOptions::new(format, size).threads(NonZero::new(threads.min(MOST_THREADS)));
        let (built, name) = match target {
            Target::File(path, replaces) => {
                options.replaces = Some(replaces);
                (build(tree.as_ref(), &path, None, &options, &Silent), path)
            }
            Target::Device(device, name) => {
                let output = |size: u64| {
                    let window = extant_blockdev::WindowDevice::new(device, 0, size)
                        .map_err(extant_mkfs::output::OutputError::from)?;
                    Ok(Output::on_device(std::sync::Arc::new(window), false))
                };
                (build_into(tree.as_ref(), output, &options, &Silent), name)
            }
        };
        built.map_err(|e| of_image(of_build(&e), &name))
    };
    let report = outside_for_long(py, || {}, work)?;
    told(py, &report)
}

fn is_device(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata()
        .is_ok_and(|found| found.file_type().is_block_device())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

fn size_of(
    size: Option<&Bound<'_, PyAny>>,
    target: &Target,
    is_filled: bool,
    headroom: f64,
) -> PyResult<Size> {
    let Some(size) = size.filter(|size| !size.is_none()) else {
        return match target {
            Target::Device(device, _) => Ok(Size::Bytes(device.size())),
            Target::File(..) if is_filled => Ok(Size::Auto(Headroom::Percent(headroom))),
            Target::File(..) => Err(PyTypeError::new_err(
                "mkfs() needs the size of an empty image, in bytes",
            )),
        };
    };
    if let Ok(bytes) = size.extract::<u64>() {
        return Ok(Size::Bytes(bytes));
    }
    match size.extract::<&str>() {
        Ok("auto") => Ok(Size::Auto(Headroom::Percent(headroom))),
        _ => Err(PyTypeError::new_err("a size is bytes, or \"auto\"")),
    }
}

fn journal_of(journal: Option<&Bound<'_, PyAny>>) -> PyResult<JournalSize> {
    let Some(journal) = journal.filter(|journal| !journal.is_none()) else {
        return Ok(JournalSize::BySize);
    };
    if let Ok(on) = journal.extract::<bool>() {
        return Ok(if on {
            JournalSize::BySize
        } else {
            JournalSize::None
        });
    }
    journal.extract().map(JournalSize::Bytes)
}

/// The number of the error of the system that is behind another, or that of an invalid argument.
fn errno_of(e: &(dyn std::error::Error + 'static)) -> i32 {
    let mut e = Some(e);
    while let Some(this) = e {
        if let Some(system) = this.downcast_ref::<std::io::Error>()
            && let Some(number) = system.raw_os_error()
        {
            return number;
        }
        if let Some(device) = this.downcast_ref::<extant_blockdev::DeviceError>() {
            return device.errno();
        }
        e = this.source();
    }
    errno::EINVAL
}

fn of_build(e: &BuildError) -> Failure {
    let errno = match e {
        BuildError::Place(_) => errno::ENOSPC,
        e => errno_of(e),
    };
    Failure {
        errno,
        ..Failure::invalid(e.to_string())
    }
}

fn told<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("size", report.size)?;
    told.set_item("block_size", report.block_size)?;
    told.set_item("blocks", report.blocks)?;
    told.set_item("free_blocks", report.free_blocks)?;
    told.set_item("journal_blocks", report.journal_blocks)?;
    told.set_item("inodes", report.inodes)?;
    told.set_item("free_inodes", report.free_inodes)?;
    told.set_item("uuid", pyo3::types::PyBytes::new(py, &report.uuid))?;
    Ok(told)
}
