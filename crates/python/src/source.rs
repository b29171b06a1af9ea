//! What an image is given as: a path, an address, the number of an open file, or a file object.

use crate::call::outside;
use crate::device::PythonFile;
use crate::error::{Failure, of_image};
use crate::path::ImagePath;
use extant::image::{How, ImageFormat, ImageLocation, PartitionName};
use extant::{SharedDevice, errno};
use extant_blockdev::DeviceError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use std::path::PathBuf;
use std::sync::Arc;

/// Where an image is.
pub(crate) enum Source {
    /// What the address or the path names.
    Location(ImageLocation),
    /// An open file of this process.
    Descriptor(i32),
    /// A Python file.
    Object(Arc<PythonFile>),
}

/// Which part of it, and what it is.
pub(crate) struct Part {
    how: How,
}

/// An image that is open.
pub(crate) struct OpenImage {
    pub(crate) device: SharedDevice,
    /// What it is called.
    pub(crate) name: PathBuf,
    /// What tells its device from others, where that is a Python file.
    pub(crate) python: Option<usize>,
    /// Whether it lies on another machine: a connection is of one process.
    pub(crate) is_remote: bool,
}

impl Source {
    /// Reads what a caller gave.
    pub(crate) fn new(image: &Bound<'_, PyAny>, is_writable: bool) -> PyResult<Self> {
        if image.is_instance_of::<PyBool>() {
            return Err(PyTypeError::new_err("an image is no bool"));
        }
        if image.is_instance_of::<PyInt>() {
            let number: i32 = image.extract()?;
            if number < 0 {
                return Err(PyValueError::new_err("negative file descriptor"));
            }
            return Ok(Self::Descriptor(number));
        }
        if image.hasattr("read")? && image.hasattr("seek")? {
            return Ok(Self::Object(Arc::new(PythonFile::new(image, is_writable)?)));
        }
        let path: ImagePath = image.extract().map_err(|e: PyErr| {
            if e.is_instance_of::<PyTypeError>(image.py()) {
                PyTypeError::new_err(
                    "an image is a path, an address, a file descriptor, or a seekable binary file",
                )
            } else {
                e
            }
        })?;
        let location = ImageLocation::parse(path.as_path())
            .map_err(|e| PyValueError::new_err(e.to_string()))?;
        Ok(Self::Location(location))
    }

    /// The path of a file of the host, if it is that and not a part of it.
    pub(crate) fn whole_file(&self) -> Option<PathBuf> {
        match self {
            Self::Location(location) if location.partition().is_none() => {
                location.path().map(PathBuf::from)
            }
            _ => None,
        }
    }

    /// Opens it.
    pub(crate) fn open(self, py: Python<'_>, part: Part) -> PyResult<OpenImage> {
        let how = part.how;
        match self {
            Self::Location(location) => {
                let name = PathBuf::from(location.name());
                let device = outside(py, || {
                    location.open(&how).map_err(|e| of_device(e, &location))
                })?;
                Ok(OpenImage {
                    device,
                    name,
                    python: None,
                    is_remote: location.is_remote(),
                })
            }
            Self::Descriptor(number) => {
                let location = ImageLocation::descriptor(number);
                let how = how.own_descriptors(true);
                let device = outside(py, || location.open(&how))?;
                Ok(OpenImage {
                    device,
                    name: PathBuf::from(format!("fd:{number}")),
                    python: None,
                    is_remote: false,
                })
            }
            Self::Object(file) => {
                let id = file.id();
                let device: SharedDevice = file;
                let name = PathBuf::from(device.name());
                let device = outside(py, || how.open_device(device))?;
                Ok(OpenImage {
                    device,
                    name,
                    python: Some(id),
                    is_remote: false,
                })
            }
        }
    }
}

impl Part {
    /// Reads what a caller gave.
    pub(crate) fn new(
        is_writable: bool,
        partition: Option<&Bound<'_, PyAny>>,
        offset: Option<u64>,
        length: Option<u64>,
        format: Option<&str>,
    ) -> PyResult<Self> {
        let how = if is_writable {
            How::writing()
        } else {
            How::reading()
        };
        let partition = partition.map(|partition| {
            if let Ok(number) = partition.extract::<u32>() {
                return Ok(PartitionName::Number(number));
            }
            let label: String = partition
                .extract()
                .map_err(|_| PyTypeError::new_err("a partition is a number or a label"))?;
            Ok::<_, PyErr>(PartitionName::Label(label))
        });
        let format = format.map(|word| {
            word.parse::<ImageFormat>()
                .map_err(|e| PyValueError::new_err(e.to_string()))
        });
        Ok(Self {
            how: how
                .partition(partition.transpose()?)
                .offset(offset)
                .length(length)
                .format(format.transpose()?),
        })
    }
}

/// An error of a device that is a file of the host: the exception has its path for itself.
fn of_device(e: DeviceError, location: &ImageLocation) -> Failure {
    let Some(path) = location.path() else {
        return e.into();
    };
    let text = match &e {
        _ if path.is_dir() => {
            return of_image(
                Failure {
                    errno: errno::EISDIR,
                    ..Failure::invalid("Is a directory")
                },
                path,
            );
        }
        DeviceError::Open { op, source, .. } => format!("cannot {op} it: {source}"),
        DeviceError::InUse { .. } => {
            return Failure {
                errno: errno::EBUSY,
                ..of_image(e.into(), path)
            };
        }
        _ => return of_image(e.into(), path),
    };
    let mut failure = of_image(e.into(), path);
    failure.text = text;
    failure
}
