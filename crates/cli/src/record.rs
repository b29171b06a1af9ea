//! A file as a JSON object.

use crate::time::rfc3339;
use extant::{FileType, Metadata};
use serde::Serialize;
use std::fmt::Write;

/// What is said about a file. Names that are not UTF-8 are shown with replacement characters and
/// given without loss in hexadecimal next to it.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    /// In units of 512 bytes.
    blocks: u64,
    links: u32,
    inode: u32,
    mtime: String,
    atime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

#[derive(Debug, Serialize)]
struct Device {
    major: u32,
    minor: u32,
}

impl Record {
    /// The record of a file; `target` is that of a symbolic link.
    pub(crate) fn new(path: &[u8], metadata: &Metadata, target: Option<&[u8]>) -> Self {
        let (path, path_hex) = lossless(path);
        let (target, target_hex) = match target.map(lossless) {
            Some((text, hex)) => (Some(text), hex),
            None => (None, None),
        };
        Self {
            path,
            path_hex,
            kind: kind(metadata.file_type()),
            mode: format!("{:04o}", metadata.mode().permissions()),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
            blocks: metadata.blocks(),
            links: metadata.nlink(),
            inode: metadata.ino(),
            mtime: rfc3339(metadata.mtime()),
            atime: rfc3339(metadata.atime()),
            ctime: rfc3339(metadata.ctime()),
            crtime: metadata.crtime().map(rfc3339),
            device: metadata.rdev().map(|number| Device {
                major: number.major,
                minor: number.minor,
            }),
            project: metadata.project().filter(|&project| project != 0),
            target,
            target_hex,
        }
    }
}

/// Bytes as text, and in hexadecimal if the text has lost anything.
pub(crate) fn lossless(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (
            String::from_utf8_lossy(bytes).into_owned(),
            Some(hex(bytes)),
        ),
    }
}

/// A UUID as it is written.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let hex = hex(&bytes);
    let part = |from, to| hex.get(from..to).unwrap_or("");
    format!(
        "{}-{}-{}-{}-{}",
        part(0, 8),
        part(8, 12),
        part(12, 16),
        part(16, 20),
        part(20, 32)
    )
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The name of a file type.
pub(crate) fn kind(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// The letter of a file type in the first column of `ls -l`.
pub(crate) fn letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// Type and permissions as `ls -l` writes them: `drwxr-xr-t`.
pub(crate) fn mode_text(metadata: &Metadata) -> String {
    mode_letters(metadata).map(char::from).iter().collect()
}

/// The letters of [`mode_text`].
pub(crate) fn mode_letters(metadata: &Metadata) -> [u8; 10] {
    let bits = metadata.mode().permissions();
    let special = |set: u8, not: u8, mask: u16, shift: u16| match (
        bits >> shift & 1 != 0,
        bits & mask != 0,
    ) {
        (true, false) => b'x',
        (false, false) => b'-',
        (true, true) => set,
        (false, true) => not,
    };
    let one = |letter: u8, mask: u16| if bits & mask != 0 { letter } else { b'-' };
    [
        letter(metadata.file_type()) as u8,
        one(b'r', 0o400),
        one(b'w', 0o200),
        special(b's', b'S', 0o4000, 6),
        one(b'r', 0o040),
        one(b'w', 0o020),
        special(b's', b'S', 0o2000, 3),
        one(b'r', 0o004),
        one(b'w', 0o002),
        special(b't', b'T', 0o1000, 0),
    ]
}
