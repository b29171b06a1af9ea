//! One line of `file_contexts`: an expression for paths, perhaps a type, and a context.

use super::pattern::Pattern;
use crate::source::FileType;
use crate::tables::error::Parsed;
use crate::tables::text::{fields, shown};

/// What a line says of its expression.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sense {
    kind: Option<FileType>,
    context: u32,
    /// File and line.
    pub(super) place: (u32, u32),
}

/// A line.
#[derive(Debug)]
pub(super) struct Specification {
    pattern: Pattern,
    sense: Sense,
}

impl Specification {
    /// Parses a line; `number_of` numbers the context.
    pub(super) fn parse(
        line: &[u8],
        place: (u32, u32),
        number_of: &mut dyn FnMut(&[u8]) -> u32,
    ) -> Parsed<Self> {
        let words: Vec<&[u8]> = fields(line).take(4).collect();
        let (expression, kind, context) = match words.as_slice() {
            [expression, context] => (expression, None, context),
            [expression, kind, context] => (expression, Some(kind_of(kind)?), context),
            [_] => return Err("has no context: EXPRESSION [TYPE] CONTEXT are needed".to_owned()),
            _ => return Err("has more than three fields: EXPRESSION [TYPE] CONTEXT".to_owned()),
        };
        check_context(context)?;
        Ok(Self {
            pattern: Pattern::parse(expression)?,
            sense: Sense {
                kind,
                context: number_of(context),
                place,
            },
        })
    }

    /// Whether there is no special character in its expression.
    pub(super) const fn is_exact(&self) -> bool {
        self.pattern.is_exact()
    }

    /// What every path begins with that it matches.
    pub(super) fn prefix(&self) -> &[u8] {
        self.pattern.prefix()
    }

    /// Notes what it says of its expression, if nothing was said of its type.
    pub(super) fn note_in(&self, senses: &mut Vec<Sense>) {
        // There are as many as types and one for all, since what contradicts is refused.
        if senses.iter().all(|other| other.kind != self.sense.kind) {
            senses.push(self.sense);
        }
    }

    /// Whether it gives another context than a line of the same expression to a type that both are
    /// about.
    pub(super) fn contradicts(&self, other: &Sense) -> bool {
        let meets = match (self.sense.kind, other.kind) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        meets && self.sense.context != other.context
    }

    pub(super) const fn context(&self) -> u32 {
        self.sense.context
    }

    pub(super) const fn place(&self) -> (u32, u32) {
        self.sense.place
    }

    /// Whether it is about this file; `used` is what all automata together take.
    pub(super) fn matches(
        &mut self,
        path: &[u8],
        kind: FileType,
        used: &mut usize,
    ) -> Parsed<bool> {
        if self.sense.kind.is_some_and(|own| own != kind) {
            return Ok(false);
        }
        self.pattern.matches(path, used)
    }
}

fn kind_of(word: &[u8]) -> Parsed<FileType> {
    Ok(match word {
        b"--" => FileType::Regular,
        b"-d" => FileType::Directory,
        b"-l" => FileType::Symlink,
        b"-c" => FileType::CharDevice,
        b"-b" => FileType::BlockDevice,
        b"-p" => FileType::Fifo,
        b"-s" => FileType::Socket,
        _ => {
            return Err(format!(
                "the type {} is none of --, -d, -l, -c, -b, -p, -s",
                shown(word)
            ));
        }
    })
}

/// A context has a user, a role and a type, and perhaps a range.
fn check_context(context: &[u8]) -> Parsed<()> {
    let parts: Vec<&[u8]> = context.splitn(4, |&byte| byte == b':').collect();
    let is_whole = parts.len() >= 3 && parts.iter().all(|part| !part.is_empty());
    if context == super::NONE || is_whole && !context.contains(&0) {
        return Ok(());
    }
    Err(format!(
        "{} is no context such as system_u:object_r:bin_t:s0, nor <<none>>",
        shown(context)
    ))
}
