//! Reading a quota file.

use super::accounts::Still;
use super::layout::{Blocks, Layout};
use super::{Grace, Quota};
use crate::fs::Fs;
use crate::{InPlace, Result};
use extant_format::quota::{self, QuotaBlocks, QuotaEntry, QuotaInfo, QuotaKind};
use std::ops::ControlFlow;
use std::time::Duration;

/// A quota file, open.
#[derive(Debug)]
pub(crate) struct QuotaFile<'a> {
    fs: &'a Fs,
    info: QuotaInfo,
    layout: Layout,
    /// Keeps commits from changing it, where there are any.
    _still: Option<Still<'a>>,
}

impl<'a> QuotaFile<'a> {
    /// The file that counts this kind, if the file system has one.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) when the inode is no file of ours or its header
    /// breaks the format; [`Error::Device`](crate::Error::Device).
    pub(crate) fn open(fs: &'a Fs, kind: QuotaKind) -> Result<Option<Self>> {
        if let Some(accounts) = fs.accounts() {
            let still = accounts.still();
            let found = still.file(kind);
            return Ok(found.map(|(info, layout)| Self {
                fs,
                info,
                layout,
                _still: Some(still),
            }));
        }
        let found = load(fs, kind)?;
        Ok(found.map(|(info, layout)| Self {
            fs,
            info,
            layout,
            _still: None,
        }))
    }

    /// For how long soft limits may be exceeded.
    pub(crate) fn grace(&self) -> Grace {
        Grace {
            space: Duration::from_secs(self.info.space_grace.into()),
            inodes: Duration::from_secs(self.info.inode_grace.into()),
        }
    }

    /// What is said of `id`; where nothing is, nothing is in use and there are no limits.
    pub(crate) fn get(&self, id: u32) -> Result<Quota> {
        let mut blocks = Blocks::new(self.fs, &self.layout);
        let entry = quota::find(&mut blocks, &self.info, id)?;
        Ok(Quota::from_entry(
            entry.unwrap_or_else(|| QuotaEntry::of(id)),
        ))
    }

    /// Calls `visit` with what is said of every id, ascending.
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(Quota) -> ControlFlow<()>) -> Result<()> {
        let mut blocks = Blocks::new(self.fs, &self.layout);
        quota::for_each(&mut blocks, &self.info, &mut |entry| {
            visit(Quota::from_entry(*entry))
        })
    }
}

/// The header of the file that counts this kind, and where the file lies.
///
/// # Errors
/// As for [`QuotaFile::open`].
pub(super) fn load(fs: &Fs, kind: QuotaKind) -> Result<Option<(QuotaInfo, Layout)>> {
    let [user, group, project] = fs.superblock().quota_inodes();
    let ino = match kind {
        QuotaKind::User => user,
        QuotaKind::Group => group,
        QuotaKind::Project => project,
    };
    let Some(ino) = ino else { return Ok(None) };
    let inode = fs.inode(ino)?;
    let layout = Layout::of(fs, &inode)?;
    let header = Blocks::new(fs, &layout).read(0)?;
    let info = QuotaInfo::parse(&header, kind, layout.size()).in_place(layout.place(fs, 0))?;
    Ok(Some((info, layout)))
}
