//! Paths that stand for others: lines of a path and the one in whose place it is looked up.

use crate::tables::error::AtLine;
use crate::tables::text::{fields, is_blank, lines};

type Bytes = Box<[u8]>;

/// The lines of one file, in its order: a path, and the one in whose place it is looked up.
#[derive(Debug, Default)]
pub(super) struct Substitutions(Vec<(Bytes, Bytes)>);

impl Substitutions {
    /// Parses `FROM TO` lines.
    pub(super) fn parse(text: &[u8]) -> Result<Self, AtLine> {
        let line = |(number, line)| {
            let mut words = fields(line);
            match (words.next(), words.next()) {
                (Some(from), Some(to)) => Ok((Box::from(from), Box::from(to))),
                _ => Err((number, "has no second path".to_owned())),
            }
        };
        let said = lines(text).filter(|(_, line)| !is_blank(line));
        said.map(line).collect::<Result<_, _>>().map(Self)
    }

    /// The path in whose place another one stands; of several lines that fit, by the last.
    pub(super) fn apply(&self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.iter().rev().find_map(|(from, to)| {
            let rest = path.strip_prefix(&**from)?;
            match rest {
                [] => Some(to.to_vec()),
                // What goes to the root has its slash already.
                [b'/', rest @ ..] if **to == *b"/" => Some([b"/", rest].concat()),
                [b'/', ..] => Some([&**to, rest].concat()),
                _ => None,
            }
        })
    }
}
