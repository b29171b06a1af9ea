//! What the system has mounted.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// How the type of our mounts is shown.
const TYPE: &str = "fuse.extant";

/// One of our mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// The directory.
    pub(crate) point: PathBuf,
    /// The image.
    pub(crate) image: PathBuf,
    pub(crate) read_only: bool,
}

/// The mount of ours on this directory, which is an absolute path; the newest where several lie on each other.
pub(crate) fn ours_at(point: &Path) -> io::Result<Option<Mount>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(find(&table, point))
}

/// How the kernel keeps data of a mount in its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// Reads so many bytes of a file ahead.
    ReadAhead(u32),
    /// Keeps back what it gathers of writes and mapped memory as long as it is no more than so many percent of what all file systems together may keep back.
    /// 1 for FUSE, unless told otherwise.
    Dirty(u32),
}

/// Sets that for the mount on this directory. Only root may, and it goes without.
pub(crate) fn set_keeping(point: &Path, keeping: Keeping) -> io::Result<()> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let Some(line) = lines(&table).filter(|line| line.point == point).last() else {
        return Ok(());
    };
    let device = String::from_utf8_lossy(&line.device).into_owned();
    let (name, value) = match keeping {
        Keeping::ReadAhead(bytes) => ("read_ahead_kb", bytes >> 10),
        Keeping::Dirty(percent) => ("max_ratio", percent),
    };
    std::fs::write(format!("/sys/class/bdi/{device}/{name}"), value.to_string())
}

/// Whether anything is mounted on this directory.
pub(crate) fn is_mount_point(point: &Path) -> io::Result<bool> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let mut points = lines(&table).map(|line| line.point);
    Ok(points.any(|found| found == point))
}

struct Line {
    device: Vec<u8>,
    point: PathBuf,
    kind: Vec<u8>,
    source: PathBuf,
    read_only: bool,
}

/// The lines of a mount table, in the form of proc(5).
fn lines(table: &[u8]) -> impl Iterator<Item = Line> {
    table.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = fields.nth(2)?.to_vec();
        let point = unescaped(fields.nth(1)?);
        // Optional fields end with a dash.
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        Some(Line {
            device,
            point,
            kind: rest.next()?.to_vec(),
            source: unescaped(rest.next()?),
            read_only: rest.next()?.split(|&byte| byte == b',').any(|o| o == b"ro"),
        })
    })
}

fn find(table: &[u8], point: &Path) -> Option<Mount> {
    let line = lines(table).filter(|line| line.point == point).last()?;
    (line.kind == TYPE.as_bytes()).then_some(Mount {
        point: line.point,
        image: line.source,
        read_only: line.read_only,
    })
}

/// Blanks and backslashes are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = match (byte, tail.first_chunk::<3>()) {
            (b'\\', Some(digits)) => std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok()),
            _ => None,
        };
        match code {
            Some(code) => {
                plain.push(code);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/a\\040b rw,nosuid shared:3 - fuse.extant /images/my\\040disk.img rw,user_id=0
41 22 0:36 / /mnt/c rw - tmpfs none rw
";

    #[test]
    fn our_mounts_are_told_from_others() {
        let found = find(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!(found.image, Path::new("/images/my disk.img"));
        assert!(!found.read_only);
        assert_eq!(find(TABLE, Path::new("/mnt/c")), None);
        assert_eq!(find(TABLE, Path::new("/mnt")), None);
    }
}
