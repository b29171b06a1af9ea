//! Undo files of `repair`, `tune` and `resize`, whose changes are known before: where they lie.

use crate::args::Whereabouts;
use extant::Escaped;
use extant_fsck::Error;
use extant_fsck::repair::Plan;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) use extant_fsck::repair::keep;
pub(crate) use extant_fsck::repair::{create_undo as create, sync_name};

/// So many undo files may lie beside an image.
const BESIDE_MAX: u32 = 1000;

/// Writes the undo file beside the image, as [`keep`] does: `IMAGE.undo`, or `IMAGE.undo.1` and so
/// on where that exists. Returns where it lies.
pub(super) fn keep_beside(image: &Path, plan: &Plan) -> extant_fsck::Result<PathBuf> {
    for n in 0..BESIDE_MAX {
        let mut name = OsString::from(image);
        name.push(".undo");
        if n > 0 {
            name.push(format!(".{n}"));
        }
        let path = PathBuf::from(name);
        match keep(&path, plan) {
            Err(Error::Undo(e)) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.map(|()| path),
        }
    }
    let text = format!("{BESIDE_MAX} of them lie beside the image");
    Err(Error::Undo(io::Error::new(
        io::ErrorKind::AlreadyExists,
        text,
    )))
}

/// What to do after writing failed.
pub(super) fn half_written(undo: Option<&Path>, e: &dyn std::fmt::Display) -> String {
    let how = match undo {
        Some(undo) => format!(
            "take them back with `extant revert {}` and the image, or repair",
            Escaped::path(undo)
        ),
        None => "repair again".to_owned(),
    };
    format!("{e}. A PART OF THE CHANGES IS WRITTEN: {how}")
}

/// What to do after changes that are made as a whole could not be.
pub(super) fn not_in_place(undo: Option<&Path>, e: &extant_fsck::Error) -> String {
    if !matches!(
        e,
        extant_fsck::Error::PerhapsMade(_) | extant_fsck::Error::NotHome(_)
    ) {
        return format!("{e}. Nothing is changed");
    }
    match undo {
        Some(undo) => format!(
            "{e}, or take them back with `extant revert {}` and the image",
            Escaped::path(undo)
        ),
        None => e.to_string(),
    }
}

/// The command that takes changes back, as a shell reads it.
pub(super) fn command(undo: &Path, image: &OsStr, location: &Whereabouts) -> String {
    let mut words = String::from("extant repair ");
    if let Some(offset) = location.offset {
        words.push_str(&format!("--offset {offset} "));
    }
    if let Some(partition) = location.partition {
        words.push_str(&format!("--partition {partition} "));
    }
    format!("{words}--revert {} {}", word(undo.as_os_str()), word(image))
}

/// One word of a command for a shell.
fn word(text: &OsStr) -> String {
    let bytes = text.as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:=@%".contains(byte);
    if !bytes.is_empty() && !bytes.starts_with(b"-") && bytes.iter().all(is_plain) {
        return text.to_string_lossy().into_owned();
    }
    let is_printable = !text.to_string_lossy().contains(char::is_control);
    if let (Some(text), true) = (text.to_str(), is_printable) {
        let start = if text.starts_with('-') { "./" } else { "" };
        return format!("'{start}{}'", text.replace('\'', r"'\''"));
    }
    // Bytes that a terminal may not show.
    let escaped = bytes.iter().map(|byte| match byte {
        b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
        byte if is_plain(byte) || *byte == b' ' => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02x}"),
    });
    format!("$'{}'", escaped.collect::<String>())
}
