//! A script as it is read: lines, texts for files, conditions with what depends on them.

use super::condition::Condition;
use super::step::Step;
use super::words::{Input, split};
use crate::failure::{Failure, Outcome};
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fmt;

/// Conditions within conditions.
const MAX_DEPTH: usize = 64;

/// Where lines come from, which messages say in front.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A script of this name.
    Script(String),
    /// Lines that belong together and were typed, of which the first has this number.
    #[cfg(feature = "prompt")]
    Typed { first: usize, is_block: bool },
}

impl Origin {
    /// What is written in front of a message about a line.
    pub(super) fn before(&self, line: usize) -> String {
        match self {
            Self::Script(name) => format!("{name}:{line}: "),
            #[cfg(feature = "prompt")]
            Self::Typed {
                first,
                is_block: true,
            } => format!("line {} of the block: ", line - first + 1),
            #[cfg(feature = "prompt")]
            Self::Typed { .. } => String::new(),
        }
    }

    /// The number of the first line.
    fn first(&self) -> usize {
        match self {
            Self::Script(_) => 1,
            #[cfg(feature = "prompt")]
            Self::Typed { first, .. } => *first,
        }
    }
}

/// A script.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) origin: Origin,
    pub(super) parts: Vec<Part>,
}

/// A part of a script, with the number of its first line.
#[derive(Debug)]
pub(super) enum Part {
    Line(usize, Box<Step>),
    If {
        line: usize,
        condition: Condition,
        then: Vec<Part>,
        otherwise: Vec<Part>,
    },
}

/// A line as an object of JSON.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    input: Option<String>,
}

/// A line, taken apart.
struct Line {
    number: usize,
    words: Vec<OsString>,
    input: Option<Vec<u8>>,
}

/// What ended a block.
enum Ended {
    Script,
    Else(usize),
    Block(usize),
}

impl Script {
    /// Reads a script about `image`, as it is named on the command line.
    ///
    /// # Errors
    /// What is wrong with it, with the line in front.
    pub(super) fn read(text: &[u8], image: &OsStr, origin: Origin) -> Outcome<Self> {
        // What ends the last line begins none.
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut reader = Reader {
            lines: (origin.first()..).zip(text.split(|byte| *byte == b'\n')),
            image,
            origin: &origin,
        };
        let (parts, end) = reader.block(0)?;
        match end {
            Ended::Script => Ok(Self { origin, parts }),
            Ended::Else(line) | Ended::Block(line) => {
                Err(reader.wrong(line, "there is no `if` before it"))
            }
        }
    }
}

struct Reader<'a, L> {
    lines: L,
    image: &'a OsStr,
    origin: &'a Origin,
}

impl<'a, L: Iterator<Item = (usize, &'a [u8])>> Reader<'a, L> {
    fn wrong(&self, line: usize, why: impl fmt::Display) -> Failure {
        Failure::usage(format!("{}{why}", self.origin.before(line)))
    }

    /// Reads up to the end of the script, or of the block.
    fn block(&mut self, depth: usize) -> Outcome<(Vec<Part>, Ended)> {
        let mut parts = Vec::new();
        while let Some(line) = self.line()? {
            let number = line.number;
            let Some(first) = line.words.first() else {
                if line.input.is_some() {
                    return Err(self.wrong(number, "a text, and no command that writes it"));
                }
                continue;
            };
            let alone = || {
                if line.words.len() > 1 {
                    return Err(self.wrong(number, "nothing follows `else` and `end`"));
                }
                Ok(())
            };
            if first == "else" {
                alone()?;
                return Ok((parts, Ended::Else(number)));
            }
            if first == "end" {
                alone()?;
                return Ok((parts, Ended::Block(number)));
            }
            if first == "if" {
                parts.push(self.condition(&line, depth)?);
                continue;
            }
            let step = Step::of(line.words, line.input, self.image);
            let step = step.map_err(|why| self.wrong(number, why))?;
            parts.push(Part::Line(number, Box::new(step)));
        }
        Ok((parts, Ended::Script))
    }

    /// Reads what depends on a condition.
    fn condition(&mut self, line: &Line, depth: usize) -> Outcome<Part> {
        let number = line.number;
        if depth == MAX_DEPTH {
            return Err(self.wrong(number, "too many conditions within each other"));
        }
        let condition = Condition::of(&line.words[1..], self.image);
        let condition = condition.map_err(|why| self.wrong(number, why))?;
        let (then, mut end) = self.block(depth + 1)?;
        let mut otherwise = Vec::new();
        if let Ended::Else(_) = end {
            (otherwise, end) = self.block(depth + 1)?;
        }
        match end {
            Ended::Block(_) => Ok(Part::If {
                line: number,
                condition,
                then,
                otherwise,
            }),
            Ended::Else(second) => Err(self.wrong(second, "there is an `else` already")),
            Ended::Script => Err(self.wrong(number, "this `if` has no `end`")),
        }
    }

    /// The next line, with the text that follows it.
    fn line(&mut self) -> Outcome<Option<Line>> {
        let Some((number, text)) = self.lines.next() else {
            return Ok(None);
        };
        let stripped = text.strip_suffix(b"\r");
        let ends_as_dos = stripped.is_some();
        let text = stripped.unwrap_or(text);
        if text.trim_ascii_start().starts_with(b"{") {
            let object = object(text).map_err(|e| self.wrong(number, e))?;
            return Ok(Some(object.line(number)));
        }
        let found = split(text).map_err(|why| self.wrong(number, why))?;
        let input = match found.input {
            None => None,
            Some(Input::Text(text)) => Some(text),
            Some(Input::Lines(end)) => Some(self.text(number, &end, ends_as_dos)?),
        };
        Ok(Some(Line {
            number,
            words: found.words,
            input,
        }))
    }

    /// The lines up to the one that is `end`. In a script of DOS, they lose what lines end with
    /// there.
    fn text(&mut self, number: usize, end: &[u8], ends_as_dos: bool) -> Outcome<Vec<u8>> {
        let mut text = Vec::new();
        for (_, line) in self.lines.by_ref() {
            let stripped = line.strip_suffix(b"\r").filter(|_| ends_as_dos);
            let line = stripped.unwrap_or(line);
            if line == end {
                return Ok(text);
            }
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        let end = String::from_utf8_lossy(end);
        Err(self.wrong(number, format!("no line `{end}` ends its text")))
    }
}

fn object(text: &[u8]) -> serde_json::Result<Object> {
    serde_json::from_slice(text)
}

impl Object {
    fn line(self, number: usize) -> Line {
        let mut words = vec![OsString::from(self.what)];
        words.extend(self.args.into_iter().map(OsString::from));
        Line {
            number,
            words,
            input: self.input.map(String::into_bytes),
        }
    }
}
