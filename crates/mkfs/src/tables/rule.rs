//! What all dialects have in common: a list of rules.

use super::capabilities::Capabilities;
use super::error::Parsed;
use crate::source::glob::PathGlob;
use crate::source::{FileType, Timestamp};

/// Most lines that one table may have.
pub(super) const LINES_MAX: usize = 1 << 21;

/// Most bytes that the paths, the names of accounts and the targets of links of a table may have
/// together.
const NAMES_MAX: usize = 256 << 20;

/// Most bytes that the name of an account may have.
const ACCOUNT_MAX: usize = 255;

/// The rules of a table whose lines may each stand for more than they write out.
#[derive(Debug, Default)]
pub(super) struct Rules {
    all: Vec<Rule>,
    names_bytes: usize,
}

impl Rules {
    /// Adds a rule while the names of all have bounded size.
    pub(super) fn push(&mut self, rule: Rule) -> Parsed<()> {
        self.names_bytes += rule.names_bytes();
        if self.names_bytes > NAMES_MAX {
            return Err(format!(
                "is past {} MiB of paths and names, which are too many",
                NAMES_MAX >> 20
            ));
        }
        self.all.push(rule);
        Ok(())
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn into_vec(self) -> Vec<Rule> {
        self.all
    }
}

/// A line of a table: which files, what they shall have, and what happens if there are none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    /// Which line of the table, from 1.
    pub(super) line: u32,
    pub(super) which: Which,
    pub(super) kind: Kind,
    pub(super) change: Change,
    pub(super) absent: Absent,
}

impl Rule {
    /// How many bytes its path and the names in it have.
    fn names_bytes(&self) -> usize {
        let path = match &self.which {
            Which::Path(path) | Which::Below(path) => path.len(),
            Which::Glob(_) => 0,
        };
        let account = |account: &Option<Account>| match account {
            Some(Account::Name(name)) => name.len(),
            _ => 0,
        };
        let target = match &self.absent {
            Absent::Make(Make::Symlink(target)) => target.len(),
            _ => 0,
        };
        path + account(&self.change.user) + account(&self.change.group) + target
    }
}

/// The files that a rule is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Which {
    /// One, by its path without a leading `/`.
    Path(Box<[u8]>),
    /// One and everything below it.
    Below(Box<[u8]>),
    /// Those that match.
    Glob(PathGlob),
}

/// What a file has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Any,
    /// Others are passed over.
    Only(FileType),
    /// Others are an error.
    Must(FileType),
}

/// What a file shall have; what is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Change {
    pub(super) user: Option<Account>,
    pub(super) group: Option<Account>,
    /// Permission bits with set-id and sticky bits.
    pub(super) mode: Option<u16>,
    /// Empty ones are taken away.
    pub(super) capabilities: Option<Capabilities>,
    /// Flags of `chattr`, as the system numbers them.
    pub(super) flags: Option<u32>,
    pub(super) modified: Option<Timestamp>,
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Account {
    Number(u32),
    /// Looked up in the `/etc/passwd` or `/etc/group` of the tree.
    Name(Box<[u8]>),
}

/// What happens where a rule names nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Absent {
    Refuse,
    Warn,
    Ignore,
    /// The file is made.
    Make(Make),
}

/// What a rule makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Make {
    /// An empty directory, and with `parents` those above it.
    Directory {
        parents: bool,
    },
    /// An empty regular file.
    File,
    Device {
        kind: FileType,
        major: u32,
        minor: u32,
    },
    Fifo,
    Socket,
    Symlink(Box<[u8]>),
}

impl Account {
    /// A number, or the name of an account.
    pub(super) fn parse(field: &[u8]) -> Result<Self, String> {
        if super::text::is_decimal(field) {
            return super::text::id("owner", field).map(Self::Number);
        }
        check_account(field)?;
        Ok(Self::Name(Box::from(field)))
    }
}

/// Refuses the name of an account that none has.
pub(super) fn check_account(name: &[u8]) -> Parsed<()> {
    if name.len() > ACCOUNT_MAX {
        return Err(format!(
            "the account {} has more than {ACCOUNT_MAX} bytes in its name",
            super::text::shown(name)
        ));
    }
    Ok(())
}

impl Make {
    /// The permission bits of what is made where a table names none.
    pub(super) const fn mode(&self) -> u16 {
        match self {
            Self::Directory { .. } => 0o755,
            Self::File | Self::Device { .. } | Self::Fifo | Self::Socket => 0o644,
            Self::Symlink(_) => 0o777,
        }
    }
}
