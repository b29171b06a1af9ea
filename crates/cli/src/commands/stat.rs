//! `extant stat`.

use crate::args::{Stat, Whereabouts};
use crate::failure::Outcome;
use crate::image_path::ImagePath;
use crate::operands::read_each;
use crate::output::Output;
use crate::record::{Record, hex, kind, lossless, mode_text};
use crate::time::long;
use extant::{Filesystem, Metadata};
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// The record of a file with what only `stat` shows.
#[derive(Debug, Serialize)]
struct Full {
    #[serde(flatten)]
    record: Record,
    flags: String,
    generation: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<u64>,
    /// Of a file that fs-verity protects: its digest, as `fsverity digest` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_verity: Option<String>,
    xattrs: Vec<Attribute>,
}

/// An extended attribute; the value as text where it is text, always in hexadecimal.
#[derive(Debug, Serialize)]
struct Attribute {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    value_hex: String,
}

pub(super) fn run(args: &Stat, location: &Whereabouts) -> Outcome {
    let mut output = Output::new();
    let mut is_first = true;
    let done = read_each(&args.paths, location, |fs, from| {
        let found = look(fs, from).map_err(|e| from.failure(&e))?;
        if args.json {
            output.json_line(&found.into_full(from))?;
        } else {
            if !std::mem::take(&mut is_first) {
                output.write_all(b"\n")?;
            }
            found.print(from, &mut output)?;
        }
        Ok(())
    });
    output.finish()?;
    done
}

struct Found {
    metadata: Metadata,
    target: Option<Vec<u8>>,
    extents: Option<u64>,
    /// Of a file that fs-verity protects: its digest, or why there is none.
    digest: Option<Result<String, String>>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

fn look(fs: &Filesystem, from: &ImagePath) -> extant::Result<Found> {
    let metadata = fs.symlink_metadata(&from.path)?;
    let target = if metadata.is_symlink() {
        Some(fs.read_link(&from.path)?.as_os_str().as_bytes().to_vec())
    } else {
        None
    };
    let file = if metadata.is_file() {
        Some(fs.open_file(&from.path)?)
    } else {
        None
    };
    let extents = file.as_ref().map(extant::File::extents).transpose()?;
    let xattrs = fs.xattrs(&from.path)?.into_iter();
    Ok(Found {
        metadata,
        target,
        extents: extents.map(|extents| extents.len() as u64),
        digest: file.and_then(|file| digest(&file)),
        xattrs: xattrs
            .map(|(name, value)| (name.as_bytes().to_vec(), value))
            .collect(),
    })
}

/// The digest of a file that fs-verity protects, or why there is none.
fn digest(file: &extant::File) -> Option<Result<String, String>> {
    match file.fs_verity() {
        Ok(sealed) => {
            let sealed = sealed?;
            Some(Ok(format!(
                "{}:{}",
                sealed.algorithm(),
                hex(&sealed.digest())
            )))
        }
        Err(e) => Some(Err(e.to_string())),
    }
}

impl Found {
    fn into_full(self, from: &ImagePath) -> Full {
        let path = from.path.as_os_str().as_bytes();
        Full {
            record: Record::new(path, &self.metadata, self.target.as_deref()),
            flags: self.metadata.lsattr(),
            generation: self.metadata.generation(),
            extents: self.extents,
            fs_verity: self.digest.and_then(Result::ok),
            xattrs: self.xattrs.iter().map(attribute).collect(),
        }
    }

    fn print(&self, from: &ImagePath, output: &mut Output) -> std::io::Result<()> {
        let Self { metadata, .. } = self;
        output.write_all(b"  Path: ")?;
        output.name(from.path.as_os_str().as_bytes())?;
        if let Some(target) = &self.target {
            output.write_all(b" -> ")?;
            output.name(target)?;
        }
        writeln!(output)?;
        writeln!(output, "  Type: {}", kind(metadata.file_type()))?;
        match metadata.rdev() {
            Some(number) => writeln!(output, "Device: {},{}", number.major, number.minor)?,
            None => writeln!(
                output,
                "  Size: {} bytes in {} sectors of 512 bytes",
                metadata.len(),
                metadata.blocks()
            )?,
        }
        if let Some(extents) = self.extents {
            writeln!(output, "   Map: {extents} extents")?;
        }
        match &self.digest {
            Some(Ok(digest)) => writeln!(output, "Verity: {digest}")?,
            Some(Err(why)) => writeln!(output, "Verity: none: {why}")?,
            None => {}
        }
        let bits = metadata.mode().permissions();
        writeln!(output, "  Mode: {bits:04o} {}", mode_text(metadata))?;
        writeln!(output, " Owner: {}:{}", metadata.uid(), metadata.gid())?;
        writeln!(
            output,
            " Inode: {}, generation {}, {} {}",
            metadata.ino(),
            metadata.generation(),
            metadata.nlink(),
            if metadata.nlink() == 1 {
                "link"
            } else {
                "links"
            },
        )?;
        writeln!(output, " Flags: {}", metadata.lsattr())?;
        if let Some(project) = metadata.project().filter(|&project| project != 0) {
            writeln!(output, "Project: {project}")?;
        }
        writeln!(output, "Access: {}", long(metadata.atime()))?;
        writeln!(output, "Modify: {}", long(metadata.mtime()))?;
        writeln!(output, "Change: {}", long(metadata.ctime()))?;
        if let Some(born) = metadata.crtime() {
            writeln!(output, " Birth: {}", long(born))?;
        }
        for (name, value) in &self.xattrs {
            output.write_all(b" Xattr: ")?;
            output.name(name)?;
            match text(value) {
                Some(text) => writeln!(output, " = {text:?}")?,
                None => writeln!(output, " = 0x{}", hex(value))?,
            }
        }
        Ok(())
    }
}

fn attribute((name, value): &(Vec<u8>, Vec<u8>)) -> Attribute {
    let (name, name_hex) = lossless(name);
    Attribute {
        name,
        name_hex,
        value: text(value).map(str::to_owned),
        value_hex: hex(value),
    }
}

/// A value as text, if it looks like text.
fn text(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value.strip_suffix(b"\0").unwrap_or(value)).ok()?;
    let printable = !text
        .chars()
        .any(|c| c.is_control() && c != '\n' && c != '\t');
    (printable && !value.is_empty()).then_some(text)
}
