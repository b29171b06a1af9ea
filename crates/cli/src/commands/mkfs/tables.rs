//! What is put beside the source, and tables of owners, devices and labels.

use crate::args::Tables as Asked;
use crate::commands::owners::Owners;
use crate::failure::{Failure, Outcome};
use crate::time::seconds_now;
use extant::Escaped;
use extant_mkfs::source::{
    Addition, Excludes, Meta, Owner, SourceResult, Times, Timestamp, Tree, TreeBuilder, additions,
};
use extant_mkfs::tables::TableResult;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Tables that were read, and what is added.
#[derive(Debug, Default)]
pub(super) struct Tables {
    additions: Vec<Addition>,
    owners: Owners,
}

impl Tables {
    /// Reads what was asked for.
    pub(super) fn read(asked: &Asked) -> Outcome<Self> {
        let usage = |option: &'static str| {
            move |problem: String| Failure::usage(format!("{option}: {problem}"))
        };
        let hosts = asked.add.iter().map(|host| host_of(host));
        let hosts: Result<Vec<Addition>, String> = hosts.collect();
        let texts = asked.write.iter().map(|text| text_of(text));
        let texts: Result<Vec<Addition>, String> = texts.collect();
        let owners = Owners::read(&asked.owners)?;
        let mut additions = hosts.map_err(usage("--add"))?;
        additions.extend(texts.map_err(usage("--write"))?);
        Ok(Self { additions, owners })
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.additions.is_empty() && self.owners.is_empty()
    }

    /// Leaves out of the directories that are added what lies in them and matches the pattern that
    /// is given for each.
    pub(super) fn leave_out(&mut self, pattern: impl Fn(&Path) -> Option<Vec<u8>>) -> Outcome {
        for addition in &mut self.additions {
            if let Addition::Host { from, excludes, .. } = addition {
                *excludes = Excludes::new(pattern(from)).map_err(Failure::new)?;
            }
        }
        Ok(())
    }

    /// A tree of nothing but a root directory, which tables fill.
    pub(super) fn nothing() -> SourceResult<Tree> {
        let now = Timestamp::from_secs(seconds_now() as i64);
        TreeBuilder::new(Meta::plain(0o755, Times::all(now)))?.finish()
    }

    /// Applies all of it, in the order that the documentation gives, with an owner for all where
    /// the numbers of owners are mapped. Says what named nothing.
    pub(super) fn apply(
        &mut self,
        tree: Tree,
        owner: Option<Owner>,
        threads: Option<NonZero<usize>>,
    ) -> TableResult<Tree> {
        let now = Timestamp::from_secs(seconds_now() as i64);
        let tree = additions::put(tree, &self.additions, threads, now)?;
        self.owners.apply(tree, owner)
    }
}

/// The files and directories of the host that are added and have data: what is read when their
/// image is.
pub(in crate::commands) fn hosts_with_data(asked: &Asked) -> Vec<PathBuf> {
    let hosts = asked.add.iter().filter_map(|host| host_of(host).ok());
    let hosts = hosts.filter_map(|host| match host {
        Addition::Host { from, .. } => {
            // A symbolic link stands for itself; with a slash at its end, for a directory.
            let is = |path: &Path, what: fn(&Metadata) -> bool| {
                path.symlink_metadata().is_ok_and(|meta| what(&meta))
            };
            let plain = from.components().as_path();
            if is(plain, Metadata::is_file) {
                return Some(plain.to_owned());
            }
            is(&from, Metadata::is_dir).then_some(from)
        }
        _ => None,
    });
    hosts.collect()
}

/// Parts `HOST=/PATH`, at the last place where it can be.
fn host_of(given: &OsStr) -> Result<Addition, String> {
    let bytes = given.as_bytes();
    let at = bytes.windows(2).rposition(|two| two == b"=/");
    let at = at.filter(|&at| at > 0).ok_or_else(|| {
        format!(
            "{} is not a file of the host and a path in the image: write HOST=/PATH",
            Escaped(bytes)
        )
    })?;
    Ok(Addition::Host {
        from: Path::new(OsStr::from_bytes(&bytes[..at])).to_owned(),
        to: bytes[at + 1..].to_vec(),
        excludes: Excludes::default(),
    })
}

/// Parts `/PATH=TEXT`.
fn text_of(given: &OsStr) -> Result<Addition, String> {
    let bytes = given.as_bytes();
    let wrong = || {
        format!(
            "{} is not a path in the image and a text: write /PATH=TEXT",
            Escaped(bytes)
        )
    };
    let at = bytes.iter().position(|&byte| byte == b'=');
    let at = at.filter(|_| bytes.starts_with(b"/")).ok_or_else(wrong)?;
    let mut text = bytes[at + 1..].to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    Ok(Addition::Text {
        to: bytes[..at].to_vec(),
        text,
    })
}
