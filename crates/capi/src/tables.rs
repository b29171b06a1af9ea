//! Tables of owners, devices and labels, as settings name them.

use crate::call::Failure;
use crate::making::now;
use extant_mkfs::source::{Normalisation, Owner, Timestamp, Tree};
use extant_mkfs::tables::{self, Contexts, IdMap, IdRange, Table, split_kind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Tables that are asked for.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) ids: Vec<IdRange>,
    /// Files, perhaps with their dialects in front.
    pub(crate) owners: Vec<Vec<u8>>,
    pub(crate) contexts: Option<Vec<u8>>,
    /// Where the file system will be mounted.
    pub(crate) mount_point: Vec<u8>,
}

impl Tables {
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.owners.is_empty() && self.contexts.is_none()
    }

    /// Applies all of it to a tree, with an owner for all where the numbers of owners are mapped.
    /// Lines that name nothing are passed over where their dialect lets them be.
    pub(crate) fn apply(&self, mut tree: Tree, owner: Option<Owner>) -> Result<Tree, Failure> {
        let now = Timestamp::from_secs(i64::try_from(now()).unwrap_or(i64::MAX));
        let path = |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).to_owned();
        let ids =
            IdMap::new(self.ids.clone()).map_err(|e| Failure::invalid(format!("map-ids: {e}")))?;
        let mut read = Vec::new();
        for given in &self.owners {
            let (dialect, file) = split_kind(given);
            let table = Table::read(&path(file), dialect)?;
            read.push(if self.mount_point.is_empty() {
                table
            } else {
                table.mounted_at(&self.mount_point)
            });
        }
        let contexts = self.contexts.as_deref();
        let contexts = contexts.map(|file| Contexts::read(&path(file)));
        tree.normalise(&Normalisation {
            owner,
            ..Normalisation::default()
        });
        ids.apply(&mut tree)?;
        let (mut tree, _) = tables::apply(tree, &read, now)?;
        if let Some(contexts) = contexts {
            tree = contexts?.apply(tree, &self.mount_point, now)?.0;
        }
        Ok(tree)
    }
}

/// Reads where a file system will be mounted: names with slashes before them, and nothing for the
/// root.
pub(crate) fn mount_point(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let names = text.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    if !text.starts_with(b"/") || names.contains(&b"..".as_slice()) {
        return Err("use an absolute path without `..`, such as /system");
    }
    let parts = names.iter().flat_map(|name| [b"/".as_slice(), name]);
    Ok(parts.collect::<Vec<_>>().concat())
}
