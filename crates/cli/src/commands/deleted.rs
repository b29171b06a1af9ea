//! `extant deleted`.

use super::rescue;
use crate::args::{Deleted, Whereabouts};
use crate::failure::{Outcome, say};
use crate::image_path::{ImagePath, shown};
use crate::output::Output;
use crate::record::{hex, kind, lossless};
use crate::size::human;
use crate::time::{rfc3339, short};
use extant_format::inode::Timestamp;
use extant_rescue::{DeletedFile, Source};
use serde::Serialize;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

pub(super) fn run(args: &Deleted, location: &Whereabouts) -> Outcome {
    let from = ImagePath::parse(&args.path)?;
    let opened = rescue::open(&from.image, location)?;
    let found = opened
        .deleted()
        .map_err(|e| rescue::named(&from.image, e))?;
    if let Some(why) = found.unproven {
        say(format_args!(
            "warning: {}: nothing is sure: {why}",
            shown(&from.image)
        ));
    }
    let below = from.path.as_os_str().as_bytes();
    let files = found
        .files
        .iter()
        .filter(|file| from.is_root() || is_below(file, below));
    let mut output = Output::new();
    for file in files {
        if args.json {
            output.json_line(&Line::of(file))?;
        } else {
            line(&mut output, file)?;
        }
    }
    output.finish()
}

/// Whether a file had a name at or below a path.
pub(super) fn is_below(file: &DeletedFile, path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    file.names.iter().any(|name| {
        let rest = name.path.strip_prefix(path);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// A deleted file, for programs.
#[derive(Serialize)]
pub(super) struct Line {
    inode: u32,
    generation: u32,
    verdict: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'static str,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<String>,
    blocks: u64,
    lost_blocks: u64,
    encrypted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    path_sure: bool,
    other_paths: Vec<String>,
    /// All of them, where one is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_paths_hex: Option<Vec<String>>,
}

impl Line {
    pub(super) fn of(file: &DeletedFile) -> Self {
        let first = file.names.first();
        let (path, path_hex) = match first.map(|name| lossless(&name.path)) {
            Some((text, hex)) => (Some(text), hex),
            None => (None, None),
        };
        let others = || file.names.iter().skip(1).map(|name| &*name.path);
        let is_text = others().all(|path| std::str::from_utf8(path).is_ok());
        let (tid, committed) = match file.source {
            Source::Log { tid, committed } => (Some(tid.get()), Some(committed)),
            _ => (None, None),
        };
        Self {
            inode: file.ino.get(),
            generation: file.generation,
            verdict: file.verdict.name(),
            why: file.why,
            source: source(&file.source),
            tid,
            as_of: committed.map(|secs| rfc3339(seconds(secs))),
            kind: file.file_type.map(kind),
            mode: format!("{:04o}", file.permissions),
            uid: file.uid,
            gid: file.gid,
            size: file.size,
            mtime: rfc3339(file.mtime),
            deleted: file.deleted.map(|secs| rfc3339(seconds(secs.into()))),
            blocks: file.blocks,
            lost_blocks: file.lost_blocks,
            encrypted: file.is_encrypted,
            path,
            path_hex,
            path_sure: first.is_some_and(|name| name.is_sure),
            other_paths: others().map(|path| lossless(path).0).collect(),
            other_paths_hex: (!is_text).then(|| others().map(hex).collect()),
        }
    }
}

fn line(output: &mut Output, file: &DeletedFile) -> std::io::Result<()> {
    let when = file
        .deleted
        .map_or_else(|| "-".to_owned(), |secs| short(seconds(secs.into())));
    let kind = file.file_type.map_or('?', crate::record::letter);
    write!(
        output,
        "{:<9} {kind} {:>8} {:>9} {when:>16} ",
        file.verdict.name(),
        file.ino.get(),
        human(file.size)
    )?;
    match file.names.first() {
        Some(name) => {
            output.name(&name.path)?;
            if !name.is_sure {
                write!(output, " ?")?;
            }
        }
        None => write!(output, "-")?,
    }
    if !file.why.is_empty() {
        write!(output, " ({}", file.why)?;
        if file.lost_blocks > 0 {
            write!(output, ": {} of {}", file.lost_blocks, file.blocks)?;
        }
        write!(output, ")")?;
    }
    writeln!(output)
}

fn seconds(secs: u64) -> Timestamp {
    Timestamp::from_secs(i64::try_from(secs).unwrap_or(i64::MAX / 2))
}

fn source(source: &Source) -> &'static str {
    match source {
        Source::Log { .. } => "log",
        Source::InodeTable => "inode-table",
        Source::OrphanList => "orphan-list",
        Source::OrphanFile => "orphan-file",
        Source::Directory => "directory",
    }
}
