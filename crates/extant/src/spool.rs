//! Temporary files for what memory has no room for.

use crate::{Error, Result, SharedDevice};
use extant_blockdev::FileOptions;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Names that are tried where files cannot be made without one.
const TRIES: u32 = 100;

/// `FILE_FLAG_DELETE_ON_CLOSE` of the system.
#[cfg(windows)]
const DELETE_ON_CLOSE: u32 = 0x0400_0000;

/// A temporary file of `size` bytes without a name, which takes room for what is written only.
pub(crate) fn spool(size: u64) -> Result<SharedDevice> {
    let folder = std::env::temp_dir();
    let failed = |e: io::Error| Error::host("make a temporary file in", &folder, e);
    let file = unnamed(&folder).map_err(failed)?;
    let device = FileOptions::create(size)
        .adopt(file, folder.join("changes"))
        .map_err(|e| failed(io::Error::other(e)))?;
    Ok(Arc::new(device))
}

/// Makes a file that is gone when it is closed.
fn unnamed(folder: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{Mode, OFlags};
        use rustix::io::Errno;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
        match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => return Ok(file.into()),
            // Not every file system has files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    named_and_removed(folder)
}

/// Makes a file whose name is taken away at once, or on closing where it cannot be before.
fn named_and_removed(folder: &Path) -> io::Result<File> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let salt = now.map_or(0, |now| now.subsec_nanos());
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, DELETE_ON_CLOSE);
    let mut number = 0;
    loop {
        let name = format!(".extant.{}.{salt}.{number}", std::process::id());
        let path = folder.join(name);
        match options.open(&path) {
            Ok(file) => {
                #[cfg(not(windows))]
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < TRIES => number += 1,
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{named_and_removed, unnamed};
    use std::io::{Read, Seek, Write};

    #[test]
    fn a_temporary_file_is_in_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        for make in [unnamed, named_and_removed] {
            let mut file = make(dir.path()).unwrap();
            file.write_all(b"kept").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "kept");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        assert!(unnamed(&dir.path().join("none")).is_err());
    }
}
