//! `extant grep`.
//!
//! | module | owns |
//! |---|---|
//! | `posix` | regular expressions of POSIX, in the form of the library |
//! | `matcher` | patterns, ready to search in lines |
//! | `lines` | the lines of a file, as far as memory allows |

mod lines;
mod matcher;
mod posix;

use crate::args::{Grep, Whereabouts};
use crate::failure::{Failure, Outcome, say};
use crate::glob;
use crate::image_path::ImagePath;
use crate::images::{Images, Problems};
use crate::operands::found;
use crate::output::Output;
use crate::record::lossless;
use extant::{Escaped, File, Filesystem};
use lines::{Lines, Piece};
use matcher::Matcher;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// The exit codes of grep: nothing was found, and something went wrong.
const NONE_FOUND: u8 = 1;
const TROUBLE: u8 = 2;

/// What is said of a file or of a line.
#[derive(Debug, Default, Serialize)]
struct Told<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// The file matches, and is no text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    binary: bool,
}

pub(super) fn run(args: &Grep, location: &Whereabouts) -> Outcome {
    let (patterns, operands) = patterns(args)?;
    let matcher = Matcher::new(args, &patterns).map_err(Failure::Usage)?;
    let mut problems = Problems::default();
    let places = found(operands, &mut Images::new(location), &mut problems)?;
    let with_path = !args.no_filename
        && (args.with_filename || args.recursive || places.len() > 1 || operands.len() > 1);
    let mut search = Search {
        args,
        matcher,
        output: Output::new(),
        problems,
        with_path,
        is_found: false,
    };
    for (fs, from) in &places {
        search.place(fs, from)?;
        if search.is_over() {
            break;
        }
    }
    let Search {
        output,
        problems,
        is_found,
        ..
    } = search;
    output.finish()?;
    match problems.outcome() {
        _ if args.quiet && is_found => Ok(()),
        Ok(()) if is_found => Ok(()),
        Ok(()) => Err(Failure::Code(NONE_FOUND)),
        Err(failure) => {
            // Its exit code is that of grep.
            let _ = failure.report();
            Err(Failure::Code(TROUBLE))
        }
    }
}

/// The patterns, and the operands behind them.
fn patterns(args: &Grep) -> Outcome<(Vec<&[u8]>, &[OsString])> {
    let (patterns, operands) = if args.regexp.is_empty() {
        let (pattern, operands) = args.words.split_at(1);
        (pattern, operands)
    } else {
        (&args.regexp[..], &args.words[..])
    };
    if operands.is_empty() {
        return Err(Failure::usage(
            "name the files to search behind the pattern: IMAGE:/path",
        ));
    }
    let patterns = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
    Ok((patterns, operands))
}

struct Search<'a> {
    args: &'a Grep,
    matcher: Matcher,
    output: Output,
    problems: Problems,
    /// Whether lines have the path in front.
    with_path: bool,
    is_found: bool,
}

impl Search<'_> {
    /// Whether nothing that follows would make a difference.
    fn is_over(&self) -> bool {
        self.args.quiet && self.is_found
    }

    fn place(&mut self, fs: &Filesystem, from: &ImagePath) -> Outcome {
        let is_dir = match fs.metadata(&from.path) {
            Ok(found) => found.is_dir(),
            Err(e) => {
                self.problems.note(from.failure(&e));
                return Ok(());
            }
        };
        if !is_dir {
            let name = crate::path::last_name(&from.path);
            return match fs.open_file(&from.path) {
                Ok(_) if !self.is_wanted(name.unwrap_or_default()) => Ok(()),
                Ok(file) => self.file(from, from.path.as_os_str().as_bytes(), &file),
                Err(e) => {
                    self.problems.note(from.failure(&e));
                    Ok(())
                }
            };
        }
        if !self.args.recursive {
            self.problems.note(Failure::new(format!(
                "{} is a directory: -r searches all files below it",
                from.shown()
            )));
            return Ok(());
        }
        let walk = crate::path::follow(fs, &from.path).and_then(|path| fs.walk(path));
        let mut walk = match walk {
            Ok(walk) => walk.whole(),
            Err(e) => {
                self.problems.note(from.failure(&e));
                return Ok(());
            }
        };
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    self.problems.note(from.failure(&e));
                    continue;
                }
            };
            let found = entry.metadata();
            if found.is_dir()
                && entry.depth() > 0
                && fits(&self.args.exclude_dir, entry.file_name())
            {
                walk.skip_children();
            }
            if !found.is_file() || !self.is_wanted(entry.file_name()) {
                continue;
            }
            match entry.open() {
                Ok(file) => self.file(from, entry.path_bytes(), &file)?,
                Err(e) => self.problems.note(from.failure(&e)),
            }
            if self.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Whether a file of this name is to be searched.
    fn is_wanted(&self, name: &OsStr) -> bool {
        let Grep {
            include, exclude, ..
        } = self.args;
        !fits(exclude, name) && (include.is_empty() || fits(include, name))
    }

    fn file(&mut self, from: &ImagePath, path: &[u8], file: &File) -> Outcome {
        // Holes have no line that such patterns match.
        let skips_holes = !self.args.invert_match && !self.matcher.matches_nothing_at_all;
        let mut lines = Lines::new(file, self.args.text, skips_holes);
        let mut count = 0;
        loop {
            match lines.next() {
                Ok(Some(piece)) => {
                    if self.piece(path, &piece, &mut count)? {
                        break;
                    }
                }
                Ok(None) => break,
                Err(lines::Broken::Unreadable(e)) => {
                    self.problems.note(from.failure(&e));
                    break;
                }
                Err(lines::Broken::TooLong(most)) => {
                    let place = from.with_path(file.path()).shown();
                    self.problems.note(Failure::new(format!(
                        "{place} has a line of more than {most} bytes: the rest of it is not searched"
                    )));
                    break;
                }
            }
        }
        self.is_found |= count > 0;
        self.sum(path, count)
    }

    /// Searches some lines of a file. Returns whether the rest of it makes no difference.
    fn piece(&mut self, path: &[u8], piece: &Piece<'_>, count: &mut u64) -> Outcome<bool> {
        let text = piece.text;
        let (mut at, mut counted, mut number) = (0, 0, piece.first_line);
        while at < text.len() {
            let matching = self.matcher.find(text, at);
            // Behind the end of the last line there is none.
            let matching =
                matching.filter(|found| found.start < text.len() || !text.ends_with(b"\n"));
            let matching = matching.map(|found| line_at(text, found.start));
            let behind = matching.as_ref().map_or(text.len(), |line| line.end + 1);
            let selected = match matching {
                Some(line) if self.args.invert_match => at..line.start,
                None if self.args.invert_match => at..text.len(),
                Some(line) => line.start..line.end + 1,
                None => return Ok(false),
            };
            let mut from = selected.start;
            while from < selected.end.min(text.len()) {
                let line = line_at(text, from);
                if self.counts_lines() {
                    let between = text.get(counted..line.start).unwrap_or_default();
                    number += between.iter().filter(|byte| **byte == b'\n').count() as u64;
                    counted = line.start;
                }
                from = line.end + 1;
                *count += 1;
                if self.ends_with_first() {
                    return Ok(true);
                }
                if self.args.count {
                    continue;
                }
                if piece.is_binary {
                    self.binary(path)?;
                    return Ok(true);
                }
                let line = text.get(line).unwrap_or_default();
                self.line(path, number, line)?;
            }
            at = behind;
        }
        Ok(false)
    }

    fn counts_lines(&self) -> bool {
        self.args.line_number || self.args.json
    }

    /// Whether the first line of a file says all.
    fn ends_with_first(&self) -> bool {
        self.args.quiet || self.args.files_with_matches
    }

    /// Shows a line, or what matches of it.
    fn line(&mut self, path: &[u8], number: u64, line: &[u8]) -> Outcome {
        if !self.args.only_matching {
            return self.shown(path, number, line);
        }
        let mut at = 0;
        while at <= line.len() {
            let found = self.matcher.find_longest(line, at);
            let Some(found) = found.map_err(Failure::new)? else {
                return Ok(());
            };
            if found.is_empty() {
                at = found.end + 1;
                continue;
            }
            at = found.end;
            self.shown(path, number, line.get(found).unwrap_or_default())?;
        }
        Ok(())
    }

    fn shown(&mut self, path: &[u8], number: u64, text: &[u8]) -> Outcome {
        if self.args.json {
            let (text, text_hex) = lossless(text);
            return self.told(path, |told| {
                told.line = Some(number);
                told.text = Some(text);
                told.text_hex = text_hex;
            });
        }
        if self.with_path {
            self.output.name(path)?;
            self.output.write_all(b":")?;
        }
        if self.args.line_number {
            write!(self.output, "{number}:")?;
        }
        self.output.write_all(text)?;
        self.output.write_all(b"\n")?;
        Ok(())
    }

    fn binary(&mut self, path: &[u8]) -> Outcome {
        if self.args.json {
            return self.told(path, |told| told.binary = true);
        }
        self.output.flush()?;
        say(format_args!("{}: binary file matches", Escaped(path)));
        Ok(())
    }

    /// What is said of a file once it has been searched.
    fn sum(&mut self, path: &[u8], count: u64) -> Outcome {
        if self.args.quiet {
            return Ok(());
        }
        if self.args.files_with_matches && count > 0 {
            if self.args.json {
                return self.told(path, |_| {});
            }
            return Ok(self.output.name_line(path)?);
        }
        if !self.args.count {
            return Ok(());
        }
        if self.args.json {
            return self.told(path, |told| told.count = Some(count));
        }
        if self.with_path {
            self.output.name(path)?;
            self.output.write_all(b":")?;
        }
        Ok(writeln!(self.output, "{count}")?)
    }

    fn told(&mut self, path: &[u8], more: impl FnOnce(&mut Told<'_>)) -> Outcome {
        let (path, path_hex) = lossless(path);
        let mut told = Told {
            path: &path,
            path_hex: path_hex.as_deref(),
            ..Told::default()
        };
        more(&mut told);
        Ok(self.output.json_line(&told)?)
    }
}

/// The line that a place is in, without its end.
fn line_at(text: &[u8], at: usize) -> std::ops::Range<usize> {
    let before = text.get(..at).unwrap_or_default();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let behind = text.get(at..).unwrap_or_default();
    let end = behind.iter().position(|byte| *byte == b'\n');
    start..end.map_or(text.len(), |end| at + end)
}

fn fits(patterns: &[OsString], name: &OsStr) -> bool {
    patterns
        .iter()
        .any(|pattern| glob::matches(pattern.as_bytes(), name.as_bytes()))
}
