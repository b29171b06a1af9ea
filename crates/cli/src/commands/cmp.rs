//! `extant cmp`.

use crate::args::{Cmp, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, say};
use crate::image_path::ImagePath;
use crate::images::Images;
use crate::output::Output;
use crate::record::lossless;
use crate::size;
use extant::Escaped;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;

/// Bytes read at once.
const CHUNK: usize = 256 << 10;

/// The exit code for trouble, which in cmp(1) is not that of a difference.
const TROUBLE: u8 = 2;

/// What came of it.
#[derive(Debug, Default, Serialize)]
struct Told {
    equal: bool,
    /// The first byte that differs, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    byte: Option<u64>,
    /// The line that it is in, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    /// The file that ends before the other does.
    #[serde(skip_serializing_if = "Option::is_none")]
    shorter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shorter_hex: Option<String>,
}

pub(super) fn run(args: &Cmp, location: &Whereabouts) -> Outcome {
    let told = compare(args, location);
    match told {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::Code(1)),
        Err(Failure::Failed(text)) => {
            say(text);
            Err(Failure::Code(TROUBLE))
        }
        Err(Failure::Said) => Err(Failure::Code(TROUBLE)),
        Err(failure) => Err(failure),
    }
}

/// Whether the files are the same.
fn compare(args: &Cmp, location: &Whereabouts) -> Outcome<bool> {
    let skips = skips(args)?;
    if args.one == "-" && args.other == "-" {
        return Ok(true);
    }
    let mut images = Images::new(location);
    let [mut one, mut other] = [
        Source::open(&args.one, skips[0], &mut images)?,
        Source::open(&args.other, skips[1], &mut images)?,
    ];
    let limit = args.bytes.unwrap_or(u64::MAX);
    let sizes = [one.left(), other.left()];
    if let [Some(one), Some(other)] = sizes
        && args.silent
        && one.min(limit) != other.min(limit)
    {
        return Ok(false);
    }
    let longest = sizes.into_iter().flatten().fold(limit, u64::min);
    let mut output = Output::new();
    let mut told = Told::default();
    let mut progress = Progress {
        byte: 0,
        lines: 0,
        ends_line: true,
        width: longest.min(i64::MAX as u64).to_string().len(),
    };
    let is_equal = chunks(
        args,
        [&mut one, &mut other],
        limit,
        &mut progress,
        &mut output,
        &mut told,
    )?;
    told.equal = is_equal;
    if args.json {
        output.json_pretty(&told)?;
    }
    output.finish()?;
    Ok(is_equal)
}

/// How far the comparison is.
struct Progress {
    /// Bytes that have been compared.
    byte: u64,
    /// Lines that have ended.
    lines: u64,
    /// Whether the last byte ended a line.
    ends_line: bool,
    /// Columns for the number of a byte.
    width: usize,
}

fn chunks(
    args: &Cmp,
    [one, other]: [&mut Source; 2],
    limit: u64,
    progress: &mut Progress,
    output: &mut Output,
    told: &mut Told,
) -> Outcome<bool> {
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut is_equal = true;
    loop {
        let most = usize::try_from(limit - progress.byte).unwrap_or(CHUNK);
        let most = most.min(CHUNK);
        let read_a = one.fill(a.get_mut(..most).unwrap_or_default())?;
        let read_b = other.fill(b.get_mut(..most).unwrap_or_default())?;
        let common = read_a.min(read_b);
        let (left, right) = (
            a.get(..common).unwrap_or_default(),
            b.get(..common).unwrap_or_default(),
        );
        if left != right {
            is_equal = false;
            if args.silent {
                return Ok(false);
            }
            if args.verbose {
                differences(left, right, progress, output)?;
            } else {
                let at = left.iter().zip(right).position(|(a, b)| a != b);
                let before = left.get(..at.unwrap_or(0)).unwrap_or_default();
                let (byte, line) = (
                    progress.byte + before.len() as u64 + 1,
                    progress.lines + newlines(before) + 1,
                );
                (told.byte, told.line) = (Some(byte), Some(line));
                if !args.json {
                    output.name(args.one.as_bytes())?;
                    output.write_all(b" ")?;
                    output.name(args.other.as_bytes())?;
                    writeln!(output, " differ: byte {byte}, line {line}")?;
                }
                return Ok(false);
            }
        }
        progress.byte += common as u64;
        progress.lines += newlines(left);
        if let Some(last) = left.last() {
            progress.ends_line = *last == b'\n';
        }
        if read_a != read_b {
            let shorter = if read_a < read_b {
                &args.one
            } else {
                &args.other
            };
            ends_first(args, shorter, progress, told);
            return Ok(false);
        }
        if common < most || progress.byte >= limit {
            return Ok(is_equal);
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Every byte that differs, as `cmp -l` has them.
fn differences(
    left: &[u8],
    right: &[u8],
    progress: &Progress,
    output: &mut Output,
) -> io::Result<()> {
    let width = progress.width;
    let pairs = left.iter().zip(right).zip(progress.byte + 1..);
    for ((a, b), number) in pairs.filter(|((a, b), _)| a != b) {
        writeln!(output, "{number:>width$} {a:3o} {b:3o}")?;
    }
    Ok(())
}

/// Says that a file ends before the other does.
fn ends_first(args: &Cmp, shorter: &OsStr, progress: &Progress, told: &mut Told) {
    let shown = Escaped(shorter.as_bytes());
    let (name, hex) = lossless(shorter.as_bytes());
    (told.shorter, told.shorter_hex) = (Some(name), hex);
    if args.silent || args.json {
        return;
    }
    let Progress {
        byte,
        lines,
        ends_line,
        ..
    } = *progress;
    if byte == 0 {
        say(format_args!("EOF on {shown} which is empty"));
    } else if args.verbose {
        say(format_args!("EOF on {shown} after byte {byte}"));
    } else if ends_line {
        say(format_args!(
            "EOF on {shown} after byte {byte}, line {lines}"
        ));
    } else {
        let line = lines + 1;
        say(format_args!(
            "EOF on {shown} after byte {byte}, in line {line}"
        ));
    }
}

/// Bytes to leave out of each file.
fn skips(args: &Cmp) -> Outcome<[u64; 2]> {
    let Some(text) = &args.ignore_initial else {
        return Ok([0, 0]);
    };
    let (one, other) = text.split_once(':').unwrap_or((text, text));
    let read = |text: &str| {
        size::parse(text).map_err(|why| Failure::Usage(format!("--ignore-initial: {why}")))
    };
    Ok([read(one)?, read(other)?])
}

/// A file that is compared.
enum Source {
    Image {
        file: extant::File,
        from: ImagePath,
        at: u64,
    },
    Host {
        file: Box<dyn Read>,
        /// Bytes that are left in it, if it is a file of a known size.
        left: Option<u64>,
        name: String,
    },
}

impl Source {
    fn open(operand: &OsStr, skip: u64, images: &mut Images<'_>) -> Outcome<Self> {
        let name = Escaped(operand.as_bytes()).to_string();
        if operand == "-" {
            closed::check_input()?;
            let source = Self::Host {
                file: Box::new(io::stdin()),
                left: None,
                name: "standard input".to_owned(),
            };
            return source.without(skip);
        }
        if let Some(from) = ImagePath::inside_if_any(operand)? {
            let fs = images.readable(&from)?;
            let file = fs.open_file(&from.path).map_err(|e| from.failure(&e))?;
            return Ok(Self::Image {
                file,
                from,
                at: skip,
            });
        }
        let cannot = |e: io::Error| Failure::new(format!("{name} cannot be read: {e}"));
        let mut file = File::open(operand).map_err(cannot)?;
        let found = file.metadata().map_err(cannot)?;
        if found.is_dir() {
            return Err(Failure::new(format!("{name} is a directory")));
        }
        if found.is_file() {
            file.seek(SeekFrom::Start(skip)).map_err(cannot)?;
            return Ok(Self::Host {
                // Files that the kernel makes up say 0.
                left: (found.len() > 0).then(|| found.len().saturating_sub(skip)),
                file: Box::new(file),
                name,
            });
        }
        let source = Self::Host {
            file: Box::new(file),
            left: None,
            name,
        };
        source.without(skip)
    }

    /// Reads the first bytes away.
    fn without(mut self, skip: u64) -> Outcome<Self> {
        if let Self::Host { file, name, .. } = &mut self {
            io::copy(&mut file.take(skip), &mut io::sink())
                .map_err(|e| Failure::new(format!("{name} cannot be read: {e}")))?;
        }
        Ok(self)
    }

    /// Bytes that are left, if that is known.
    fn left(&self) -> Option<u64> {
        match self {
            Self::Image { file, at, .. } => Some(file.metadata().len().saturating_sub(*at)),
            Self::Host { left, .. } => *left,
        }
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Outcome<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = buffer.get_mut(filled..).unwrap_or_default();
            let read = match self {
                Self::Image { file, from, at } => {
                    let read = file.read_at(rest, *at).map_err(|e| from.failure(&e))?;
                    *at += read as u64;
                    read
                }
                Self::Host { file, name, .. } => match file.read(rest) {
                    Ok(read) => read,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => {
                        return Err(Failure::new(format!("{name} cannot be read: {e}")));
                    }
                },
            };
            if read == 0 {
                break;
            }
            filled += read;
        }
        Ok(filled)
    }
}
