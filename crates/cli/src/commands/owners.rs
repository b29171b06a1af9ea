//! Tables of owners, devices and labels, as commands take them.

use crate::args::Owners as Asked;
use crate::failure::{Failure, Outcome, say};
use crate::time::seconds_now;
use extant::Escaped;
use extant_mkfs::source::{Normalisation, Owner, Timestamp, Tree};
use extant_mkfs::tables::{self, Contexts, IdMap, IdRange, Table, TableResult, split_kind};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tables that were read.
#[derive(Debug, Default)]
pub(super) struct Owners {
    ids: IdMap,
    tables: Vec<Table>,
    contexts: Option<Contexts>,
    /// Where the file system will be mounted, without a slash at its end.
    mount_point: Vec<u8>,
}

impl Owners {
    /// Reads what was asked for.
    pub(super) fn read(asked: &Asked) -> Outcome<Self> {
        let ranges = asked.map_ids.iter().map(|range| range.parse());
        let ranges = ranges.collect::<Result<Vec<IdRange>, String>>();
        let ids = ranges
            .and_then(IdMap::new)
            .map_err(|problem| Failure::usage(format!("--map-ids: {problem}")))?;
        let mount_point = mount_point(asked.mount_point.as_ref())?;
        if asked.mount_point.is_some() && asked.owners.is_empty() && asked.contexts.is_none() {
            return Err(Failure::usage(
                "--mount-point says what the paths of --owners and --contexts begin with: give one \
                 of these, too",
            ));
        }
        let tables = asked.owners.iter().map(|given| {
            let (dialect, path) = split_kind(given.as_bytes());
            let table = Table::read(Path::new(OsStr::from_bytes(path)), dialect);
            let table = table.map_err(Failure::new)?;
            Ok(if mount_point.is_empty() {
                table
            } else {
                table.mounted_at(&mount_point)
            })
        });
        let contexts = asked.contexts.as_deref();
        Ok(Self {
            ids,
            tables: tables.collect::<Outcome<_>>()?,
            contexts: contexts
                .map(Contexts::read)
                .transpose()
                .map_err(Failure::new)?,
            mount_point,
        })
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.tables.is_empty() && self.contexts.is_none()
    }

    /// Applies all of it, in the order that the documentation gives, with an owner for all where
    /// the numbers of owners are mapped. Says what named nothing.
    pub(super) fn apply(&mut self, mut tree: Tree, owner: Option<Owner>) -> TableResult<Tree> {
        let now = Timestamp::from_secs(seconds_now() as i64);
        tree.normalise(&Normalisation {
            owner,
            ..Normalisation::default()
        });
        self.ids.apply(&mut tree)?;
        let (mut tree, mut warnings) = tables::apply(tree, &self.tables, now)?;
        if let Some(contexts) = &mut self.contexts {
            let labelled = contexts.apply(tree, &self.mount_point, now)?;
            tree = labelled.0;
            warnings.extend(labelled.1);
        }
        for warning in warnings {
            say(format_args!("warning: {warning}"));
        }
        Ok(tree)
    }
}

/// Where a file system will be mounted: names with slashes before them, and nothing for the root.
pub(super) fn mount_point(asked: Option<&OsString>) -> Outcome<Vec<u8>> {
    let Some(asked) = asked else {
        return Ok(Vec::new());
    };
    let bytes = asked.as_bytes();
    let names = bytes.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    if !bytes.starts_with(b"/") || names.contains(&b"..".as_slice()) {
        return Err(Failure::usage(format!(
            "--mount-point: {} is no absolute path without `..`, such as /system",
            Escaped(bytes)
        )));
    }
    let parts = names.iter().flat_map(|name| [b"/".as_slice(), name]);
    Ok(parts.collect::<Vec<_>>().concat())
}
