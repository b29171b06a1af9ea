//! `extant ls -R --mtree`: what an image holds, as a specification of `mtree`.

use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::output::Output;
use extant::{FileType, Filesystem, WalkEntry};
use std::io::Write;

/// Letters of `lsattr`, and the names that mtree has for them.
const FLAGS: [(char, &str); 9] = [
    ('S', "sync"),
    ('i', "schg"),
    ('a', "sappnd"),
    ('d', "nodump"),
    ('A', "noatime"),
    ('D', "dirsync"),
    ('j', "journal"),
    ('t', "notail"),
    ('T', "topdir"),
];

/// Writes a line for each file at and below a path, which is the root of the specification.
pub(super) fn write(fs: &Filesystem, from: &ImagePath, output: &mut Output) -> Outcome {
    let mut all_done = true;
    writeln!(output, "#mtree v2.0")?;
    let top = fs.walk(&from.path).map_err(|e| from.failure(&e))?;
    let mut above = None;
    for entry in top {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                say(in_image(&from.image, &e));
                all_done = false;
                continue;
            }
        };
        let above = *above.get_or_insert_with(|| trimmed(entry.path_bytes()).len());
        match line(&entry, above) {
            Ok(line) => output.write_all(&line)?,
            Err(e) => {
                say(in_image(&from.image, &e));
                all_done = false;
            }
        }
    }
    if all_done { Ok(()) } else { Err(Failure::Said) }
}

/// A path without a slash at its end, which only the root's has.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// The line of a file, whose path has so many bytes above the root of the specification.
fn line(entry: &WalkEntry, above: usize) -> extant::Result<Vec<u8>> {
    let metadata = entry.metadata();
    let kind = entry.file_type();
    let mut line = b".".to_vec();
    let below = entry.path_bytes().get(above..).unwrap_or_default();
    encode(trimmed(below), &mut line);
    let time = metadata.mtime();
    let word = match kind {
        FileType::Regular => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "link",
        FileType::CharDevice => "char",
        FileType::BlockDevice => "block",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    };
    let mut add = |text: String| line.extend_from_slice(text.as_bytes());
    add(format!(
        " type={word} uid={} gid={} mode={:04o} time={}.{:09}",
        metadata.uid(),
        metadata.gid(),
        metadata.mode().permissions(),
        time.secs,
        time.nanos
    ));
    if kind == FileType::Regular {
        add(format!(" size={}", metadata.len()));
    }
    if let Some(number) = metadata.rdev() {
        add(format!(" device=native,{},{}", number.major, number.minor));
    }
    let letters = metadata.lsattr();
    let flags = FLAGS.iter().filter(|(letter, _)| letters.contains(*letter));
    let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
    if !flags.is_empty() {
        add(format!(" flags={}", flags.join(",")));
    }
    if kind == FileType::Symlink {
        line.extend_from_slice(b" link=");
        encode(&entry.read_link()?, &mut line);
    }
    line.push(b'\n');
    Ok(line)
}

/// Writes a name; what is special in mtree or in patterns is three octal digits.
fn encode(name: &[u8], line: &mut Vec<u8>) {
    for &byte in name {
        if byte.is_ascii_graphic() && !b"\\#*?[]=".contains(&byte) {
            line.push(byte);
        } else {
            line.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        }
    }
}
