//! `extant digest`.
//!
//! | module | owns |
//! |---|---|
//! | `list` | the lines of sha256sum and its like |
//! | `sum` | the algorithms, and reading files by several threads |

mod list;
mod sum;

use crate::args::{Algorithm, Digest, Whereabouts};
use crate::closed;
use crate::failure::{Failure, Outcome, in_image, say};
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::operands::found;
use crate::output::Output;
use crate::record::lossless;
use extant::{Cause, Escaped, Filesystem};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use sum::{Done, Job, Readers, name_of};

/// The longest line of a list that is read.
const LONGEST_LINE: u64 = 64 << 10;

/// What is said of a file.
#[derive(Debug, Serialize)]
struct Line {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    algorithm: &'static str,
    digest: String,
    size: u64,
    /// With a list: whether it is the digest that the list has.
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
}

pub(super) fn run(args: &Digest, location: &Whereabouts) -> Outcome {
    let mut problems = Problems::default();
    let places = found(&args.paths, &mut Images::new(location), &mut problems)?;
    let mut telling = Telling {
        args,
        output: Output::new(),
        problems,
        differing: 0,
    };
    let done = std::thread::scope(|scope| {
        let mut readers = Readers::start(scope);
        match &args.check {
            Some(list) => check(list, &places, &mut readers, &mut telling)?,
            None => {
                for (fs, from) in &places {
                    place(fs, from, &mut readers, &mut telling)?;
                }
            }
        }
        while let Some(done) = readers.oldest() {
            telling.tell(done)?;
        }
        Ok(())
    });
    let Telling {
        output,
        problems,
        differing,
        ..
    } = telling;
    done.and_then(|()| output.finish())?;
    match differing {
        0 => return problems.outcome(),
        1 => say("1 file has another digest than the list"),
        more => say(format_args!(
            "{more} files have another digest than the list"
        )),
    }
    problems.outcome().and(Err(Failure::Said))
}

struct Telling<'a> {
    args: &'a Digest,
    output: Output,
    problems: Problems,
    /// Files whose digest is not that of the list.
    differing: u64,
}

/// Has everything read that an operand names.
fn place<'a>(
    fs: &Filesystem,
    from: &'a ImagePath,
    readers: &mut Readers<'a>,
    telling: &mut Telling<'_>,
) -> Outcome {
    let algorithm = telling.args.algorithm.unwrap_or(Algorithm::Sha256);
    let prefix = telling
        .args
        .prefix
        .as_deref()
        .map_or(&[][..], OsStrExt::as_bytes);
    let is_dir = match fs.metadata(&from.path) {
        Ok(found) => found.is_dir(),
        Err(e) => {
            telling.problems.note(from.failure(&e));
            return Ok(());
        }
    };
    let mut job =
        |path: &[u8], file: extant::Result<extant::File>, telling: &mut Telling<'_>| match file {
            Ok(file) => hand_over(
                Job {
                    shown: [prefix, path].concat(),
                    from,
                    algorithm,
                    expected: None,
                    file,
                },
                readers,
                telling,
            ),
            Err(e) => {
                telling.problems.note(from.failure(&e));
                Ok(())
            }
        };
    if !is_dir {
        let path = from.path.as_os_str().as_bytes();
        return job(path, fs.open_file(&from.path), telling);
    }
    if !telling.args.recursive {
        telling.problems.note(Failure::new(format!(
            "{} is a directory: -r reads all files below it",
            from.shown()
        )));
        return Ok(());
    }
    let walk = match crate::path::follow(fs, &from.path).and_then(|path| fs.walk(path)) {
        Ok(walk) => walk.whole(),
        Err(e) => {
            telling.problems.note(from.failure(&e));
            return Ok(());
        }
    };
    for entry in walk {
        match entry {
            Ok(entry) if entry.metadata().is_file() => {
                job(entry.path_bytes(), entry.open(), telling)?;
            }
            Ok(_) => {}
            Err(e) => telling.problems.note(from.failure(&e)),
        }
    }
    Ok(())
}

/// Gives a file to the readers, and tells of the oldest one if they have enough.
fn hand_over<'a>(job: Job<'a>, readers: &mut Readers<'a>, telling: &mut Telling<'_>) -> Outcome {
    if readers.are_full()
        && let Some(done) = readers.oldest()
    {
        telling.tell(done)?;
    }
    readers.add(job);
    Ok(())
}

impl Telling<'_> {
    fn tell(&mut self, done: Done<'_>) -> Outcome {
        let Done { job, outcome } = done;
        let digest = match outcome {
            Ok(digest) => digest,
            Err(e) => {
                self.problems
                    .note(Failure::new(in_image(&job.from.image, &e)));
                return Ok(());
            }
        };
        let is_same = job.expected.as_ref().map(|expected| *expected == digest);
        self.differing += u64::from(is_same == Some(false));
        if self.args.json {
            let (path, path_hex) = lossless(&job.shown);
            return Ok(self.output.json_line(&Line {
                path,
                path_hex,
                algorithm: name_of(job.algorithm),
                digest,
                size: job.file.metadata().len(),
                ok: is_same,
            })?);
        }
        match is_same {
            Some(true) if self.args.quiet => Ok(()),
            Some(is_same) => {
                let (mark, name) = list::escaped(&job.shown);
                self.output.write_all(mark.as_bytes())?;
                self.output.name(&name)?;
                let verdict = if is_same { "OK" } else { "FAILED" };
                Ok(writeln!(self.output, ": {verdict}")?)
            }
            None => {
                let (mark, name) = list::escaped(&job.shown);
                write!(self.output, "{mark}{digest}  ")?;
                Ok(self.output.name_line(&name)?)
            }
        }
    }
}

/// Has everything read that a list names.
fn check<'a>(
    list: &OsStr,
    places: &'a [(Filesystem, ImagePath)],
    readers: &mut Readers<'a>,
    telling: &mut Telling<'_>,
) -> Outcome {
    let shown = Escaped(list.as_bytes());
    let cannot = |e: io::Error| Failure::new(format!("{shown} cannot be read: {e}"));
    let mut lines: Box<dyn BufRead> = if list == "-" {
        closed::check_input()?;
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(list).map_err(cannot)?))
    };
    let [(fs, from)] = places else {
        if places.is_empty() {
            return Ok(());
        }
        return Err(Failure::usage("--check looks in one image: name one"));
    };
    let (mut good, mut bad, mut number) = (0u64, 0u64, 0u64);
    loop {
        let mut line = Vec::new();
        let most = &mut lines;
        io::Read::take(most, LONGEST_LINE)
            .read_until(b'\n', &mut line)
            .map_err(cannot)?;
        if line.is_empty() {
            break;
        }
        number += 1;
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let Some(entry) = list::read(line, telling.args.algorithm) else {
            bad += 1;
            continue;
        };
        good += 1;
        let prefix = telling
            .args
            .prefix
            .as_deref()
            .map_or(&[][..], OsStrExt::as_bytes);
        let Some(name) = entry.name.strip_prefix(prefix) else {
            telling.problems.note(Failure::new(format!(
                "{shown}, line {number}: {} does not begin with {}",
                Escaped(&entry.name),
                Escaped(prefix)
            )));
            continue;
        };
        let path = below(from, name);
        match fs.open_file(&path) {
            Ok(file) => hand_over(
                Job {
                    shown: entry.name,
                    from,
                    algorithm: entry.algorithm,
                    expected: Some(entry.digest),
                    file,
                },
                readers,
                telling,
            )?,
            Err(e) => {
                let is_missing = matches!(e.cause(), Cause::Image(_));
                let said = in_image(&from.image, &e);
                if is_missing && !telling.args.json {
                    let (mark, name) = list::escaped(&entry.name);
                    telling.output.write_all(mark.as_bytes())?;
                    telling.output.name(&name)?;
                    telling.output.write_all(b": FAILED to be read\n")?;
                }
                telling.problems.note(Failure::new(said));
            }
        }
    }
    if bad > 0 {
        telling.problems.note(Failure::new(format!(
            "{shown}: {bad} lines are no digests with names"
        )));
    }
    if good == 0 && bad == 0 {
        telling
            .problems
            .note(Failure::new(format!("{shown}: there is no digest in it")));
    }
    Ok(())
}

/// The path of a name in a list, below where the list begins.
fn below(from: &ImagePath, name: &[u8]) -> PathBuf {
    let mut name = name;
    loop {
        name = match name.strip_prefix(b"/").or_else(|| name.strip_prefix(b"./")) {
            Some(rest) => rest,
            None => return from.path.join(OsStr::from_bytes(name)),
        };
    }
}
