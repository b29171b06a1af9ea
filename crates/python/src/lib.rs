//! ext4 images from Python: the module `extant._native`, over which `python/extant` has the rest of
//! the package `extant` ([python.md](../../../docs/user/python.md)).
//!
//! | module | owns |
//! |---|---|
//! | `call` | leaving Python for the engine: the GIL, signals, what devices raise |
//! | `cancel` | ending long work |
//! | `error` | from errors to exceptions |
//! | `path` | names and paths as `str` and `bytes` |
//! | `buffer` | memory of Python objects |
//! | `source` | what an image is given as |
//! | `device` | devices that are Python files |
//! | `volume` | an open file system, and everything that starts with a path |
//! | `change` | times, owners, nodes, attributes |
//! | `file` | open files |
//! | `names` | listing directories |
//! | `walk` | everything below a directory |
//! | `ahead` | reading directories ahead of a walk |
//! | `stat` | what is known about a file |
//! | `inodes` | what is known about every inode |
//! | `make` | making images |
//! | `check` | checking and repairing images |
//!
//! # Invariants
//! - No thread is in the engine with the GIL (`call`).
//! - Whatever a caller does gives a result or an exception: closed files and file systems, threads
//!   side by side, devices that use the file system which lies on them.

mod ahead;
mod buffer;
mod call;
mod cancel;
mod change;
mod check;
mod device;
mod error;
mod file;
mod inodes;
mod make;
mod names;
mod path;
mod source;
mod stat;
mod volume;
mod walk;

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The part of `extant` that is not written in Python.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    call::note_process();
    let at_fork = PyDict::new(py);
    at_fork.set_item(
        "after_in_child",
        wrap_pyfunction!(call::note_process, module)?,
    )?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&at_fork))?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("ImageError", py.get_type::<error::ImageError>())?;
    module.add("NotExt4Error", py.get_type::<error::NotExt4Error>())?;
    module.add("DamagedError", py.get_type::<error::DamagedError>())?;
    module.add_class::<volume::Volume>()?;
    module.add_class::<file::RawFile>()?;
    module.add_class::<names::ScanDir>()?;
    module.add_class::<names::DirEntry>()?;
    module.add_class::<walk::Walk>()?;
    module.add_class::<stat::Stat>()?;
    module.add_class::<inodes::Inodes>()?;
    module.add_class::<inodes::Column>()?;
    module.add_function(wrap_pyfunction!(make::mkfs, module)?)?;
    module.add_function(wrap_pyfunction!(check::check, module)?)?;
    module.add_function(wrap_pyfunction!(check::repair, module)?)?;
    Ok(())
}
