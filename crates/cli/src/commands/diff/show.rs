//! Differences as lines, objects and counts.

use super::superblock::Field;
use crate::args::Diff;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::record::{hex, kind, lossless};
use crate::size::human;
use crate::time::rfc3339;
use extant::compare::{Difference, Report, What, Which};
use extant::{Escaped, Extent};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Pieces of a file that a line tells of.
const MOST_PIECES: usize = 8;

/// What is shown of differences, and how many there were.
pub(super) struct Shown<'a> {
    args: &'a Diff,
    output: Output,
    block_sizes: [u64; 2],
    /// How many of each kind there were, by the word for it.
    counts: BTreeMap<&'static str, u64>,
    /// With --brief, the file whose letters are gathered.
    brief: Option<(PathBuf, String)>,
}

/// The letter and the word for a kind of difference.
const fn named(what: &What) -> (char, &'static str) {
    match what {
        What::OnlyIn(Which::First, _) => ('-', "only-in-a"),
        What::OnlyIn(Which::Second, _) => ('+', "only-in-b"),
        What::Kind(..) => ('k', "kind"),
        What::Content { .. } => ('c', "content"),
        What::Target(..) => ('s', "target"),
        What::Mode(..) => ('m', "mode"),
        What::Owner(..) => ('o', "owner"),
        What::Time(..) => ('t', "time"),
        What::Xattr(..) => ('x', "xattr"),
        What::Link(..) => ('l', "link"),
        What::Device(..) => ('n', "device"),
        What::Project(..) => ('p', "project"),
        What::Flags(..) => ('f', "flags"),
        What::Layout { .. } => ('b', "blocks"),
        _ => ('?', "other"),
    }
}

/// A difference for programs.
#[derive(Serialize)]
struct Object {
    difference: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// The name of an attribute, or of a field.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    a: Value,
    /// Of a name, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    a_hex: Option<String>,
    b: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    b_hex: Option<String>,
    /// The first byte that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// Of blocks: whether the content is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    same_content: Option<bool>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(args: &'a Diff, block_sizes: [Option<u64>; 2]) -> Self {
        Self {
            args,
            output: Output::new(),
            block_sizes: block_sizes.map(|size| size.unwrap_or(1)),
            counts: BTreeMap::new(),
            brief: None,
        }
    }

    /// Shows fields of superblocks that differ.
    pub(super) fn superblocks(&mut self, fields: &[Field]) -> Outcome {
        if !fields.is_empty() {
            self.counts.insert("superblock", fields.len() as u64);
        }
        for Field { name, values } in fields {
            if self.args.json {
                let [a, b] = values.each_ref().map(|value| json!(value));
                self.output.json_line(&json!({
                    "difference": "superblock", "name": name, "a": a, "b": b,
                }))?;
            } else if !self.args.stat && !self.args.quiet {
                let [a, b] = values
                    .each_ref()
                    .map(|value| value.as_deref().unwrap_or("none"));
                writeln!(self.output, "g {name}: {a}, {b}")?;
            }
        }
        Ok(())
    }

    /// Shows a difference.
    pub(super) fn difference(&mut self, difference: &Difference) -> Outcome {
        let (letter, word) = named(&difference.what);
        *self.counts.entry(word).or_default() += 1;
        if self.args.quiet || self.args.stat {
            return Ok(());
        }
        if self.args.json {
            self.output.json_line(&self.object(word, difference))?;
            return Ok(());
        }
        if self.args.brief {
            match &mut self.brief {
                Some((path, letters)) if *path == difference.path => {
                    if !letters.ends_with(letter) {
                        letters.push(letter);
                    }
                }
                _ => {
                    self.end_of_file()?;
                    self.brief = Some((difference.path.clone(), letter.into()));
                }
            }
            return Ok(());
        }
        write!(self.output, "{letter} ")?;
        self.output.name(difference.path.as_os_str().as_bytes())?;
        writeln!(self.output, ": {}", self.detail(&difference.what))?;
        Ok(())
    }

    /// Ends the line of a file, with --brief.
    fn end_of_file(&mut self) -> Outcome {
        if let Some((path, letters)) = self.brief.take() {
            write!(self.output, "{letters} ")?;
            self.output.name_line(path.as_os_str().as_bytes())?;
        }
        Ok(())
    }

    /// Shows what is to be shown at last. Whether there was no difference.
    pub(super) fn finish(self, report: &Report) -> Outcome<bool> {
        let total: u64 = self.counts.values().sum();
        let is_same = total == 0;
        match self.end(report, total) {
            // The verdict is the exit code, whatever becomes of the rest.
            Ok(()) | Err(Failure::PipeClosed) => Ok(is_same),
            Err(failure) => Err(failure),
        }
    }

    fn end(mut self, report: &Report, total: u64) -> Outcome {
        let is_same = total == 0;
        self.end_of_file()?;
        if self.args.json {
            self.output.json_line(&json!({
                "summary": {
                    "same": is_same && report.problem_count == 0,
                    "differences": total,
                    "by_kind": self.counts,
                    "common": report.common,
                    "bytes": report.bytes,
                    "problems": report.problem_count,
                }
            }))?;
        } else if self.args.stat {
            for (word, count) in &self.counts {
                writeln!(self.output, "{word}: {count}")?;
            }
            writeln!(
                self.output,
                "{total} differences; {} names in both, {} of content compared",
                report.common,
                human(report.bytes)
            )?;
        }
        self.output.finish()
    }

    /// What a line says behind the path.
    fn detail(&self, what: &What) -> String {
        match what {
            What::OnlyIn(_, file) => kind(*file).to_owned(),
            What::Kind(a, b) => format!("{}, {}", kind(*a), kind(*b)),
            What::Content {
                sizes: (a, b),
                at: None,
            } => format!("{a} bytes, {b} bytes"),
            What::Content {
                sizes: (size, _),
                at: Some(at),
            } => format!("from byte {at} of {size}"),
            What::Target(a, b) => format!("{}, {}", Escaped(a), Escaped(b)),
            What::Mode(a, b) => format!("{a:04o}, {b:04o}"),
            What::Owner(a, b) => format!("{}:{}, {}:{}", a.0, a.1, b.0, b.1),
            What::Time(a, b) => format!("{}, {}", rfc3339(*a), rfc3339(*b)),
            What::Xattr(name, a, b) => {
                let name = Escaped(name.as_bytes());
                match (a, b) {
                    (Some(_), None) => format!("{name} only in A"),
                    (None, Some(_)) => format!("{name} only in B"),
                    _ => format!("{name} has other values"),
                }
            }
            What::Link(a, b) => {
                let text = |name: &Option<PathBuf>| match name {
                    Some(name) => format!("the same as {}", Escaped::path(name)),
                    None => "by itself".to_owned(),
                };
                format!("{}, {}", text(a), text(b))
            }
            What::Device(a, b) => format!("{}:{}, {}:{}", a.major, a.minor, b.major, b.minor),
            What::Project(a, b) => format!("{a}, {b}"),
            What::Flags(a, b) => format!("{}, {}", a.lsattr(), b.lsattr()),
            What::Layout { first, second, .. } => {
                let [a, b] = self.block_sizes;
                format!("{}, {}", pieces(first, a), pieces(second, b))
            }
            _ => String::new(),
        }
    }

    fn object(&self, word: &'static str, difference: &Difference) -> Object {
        let (path, path_hex) = lossless(difference.path.as_os_str().as_bytes());
        let mut object = Object {
            difference: word,
            path,
            path_hex,
            name: None,
            name_hex: None,
            a: Value::Null,
            a_hex: None,
            b: Value::Null,
            b_hex: None,
            at: None,
            same_content: None,
        };
        (object.a, object.b) = match &difference.what {
            What::OnlyIn(Which::First, file) => (json!(kind(*file)), Value::Null),
            What::OnlyIn(Which::Second, file) => (Value::Null, json!(kind(*file))),
            What::Kind(a, b) => (json!(kind(*a)), json!(kind(*b))),
            What::Content { sizes, at } => {
                object.at = *at;
                (json!(sizes.0), json!(sizes.1))
            }
            What::Target(a, b) => {
                let [(a, a_hex), (b, b_hex)] = [a, b].map(|target| lossless(target));
                (object.a_hex, object.b_hex) = (a_hex, b_hex);
                (json!(a), json!(b))
            }
            What::Mode(a, b) => (json!(format!("{a:04o}")), json!(format!("{b:04o}"))),
            What::Owner(a, b) => {
                let [a, b] = [a, b].map(|(uid, gid)| json!({ "uid": uid, "gid": gid }));
                (a, b)
            }
            What::Time(a, b) => (json!(rfc3339(*a)), json!(rfc3339(*b))),
            What::Xattr(name, a, b) => {
                let (name, name_hex) = lossless(name.as_bytes());
                (object.name, object.name_hex) = (Some(name), name_hex);
                let value = |value: &Option<Vec<u8>>| json!(value.as_deref().map(hex));
                (value(a), value(b))
            }
            What::Link(a, b) => {
                let name = |name: &Option<PathBuf>| {
                    let name = name.as_ref().map(|name| name.as_os_str().as_bytes());
                    name.map(lossless).unzip()
                };
                let ((a, a_hex), (b, b_hex)) = (name(a), name(b));
                (object.a_hex, object.b_hex) = (a_hex.flatten(), b_hex.flatten());
                (json!(a), json!(b))
            }
            What::Device(a, b) => {
                let [a, b] =
                    [a, b].map(|device| json!({ "major": device.major, "minor": device.minor }));
                (a, b)
            }
            What::Project(a, b) => (json!(a), json!(b)),
            What::Flags(a, b) => (json!(a.lsattr()), json!(b.lsattr())),
            What::Layout {
                first,
                second,
                is_same_content,
            } => {
                object.same_content = *is_same_content;
                let [a, b] = [first, second].map(|all| {
                    let all = all.iter().map(|piece| {
                        json!({
                            "offset": piece.offset,
                            "length": piece.len,
                            "device_offset": piece.device_offset,
                            "unwritten": piece.unwritten,
                        })
                    });
                    Value::Array(all.collect())
                });
                (a, b)
            }
            _ => (Value::Null, Value::Null),
        };
        object
    }
}

/// Where pieces of a file lie, in blocks.
fn pieces(all: &[Extent], block: u64) -> String {
    let mut text = String::new();
    for piece in all.iter().take(MOST_PIECES) {
        if !text.is_empty() {
            text.push(' ');
        }
        // Writing to a string cannot fail.
        let _ = match piece.device_offset {
            Some(at) => write!(text, "{}+{}", at / block, piece.len.div_ceil(block)),
            None => write!(text, "inode"),
        };
        if piece.unwritten {
            text.push('u');
        }
    }
    match all.len() {
        0 => "none".to_owned(),
        few if few <= MOST_PIECES => text,
        many => format!("{text} and {} more", many - MOST_PIECES),
    }
}
