//! Keeping quota files true: room for new owners, and what each commit writes.
//!
//! Blocks of quota files are published by commits only, one after the other, as those of the inode
//! table are: a commit knows what each inode it takes was counted as before, adds up the
//! differences by owner, and changes each block once. It takes no space for that. An owner that the
//! files do not know yet is *promised* an entry before the operation begins that makes it one, and
//! a file always has room for all entries that are promised.
//!
//! # Invariants
//!
//! - A file has at least [`BLOCKS_PER_ENTRY`] unused blocks for each promise. The blocks were
//!   mapped in the transaction of the operation that needs them, or in one before it.
//! - All files together have at most as many blocks as `most`, so that a transaction which changes
//!   all of them fits the log.

use super::Enforced;
use super::admit::Admission;
use super::file::load;
use super::layout::{Blocks, Layout};
use super::ledger::Ledger;
use super::setting::{Setting, limited};
use super::share::Tally;
use crate::alloc::Request;
use crate::fs::{DataMode, Fs, MountOptions};
use crate::map::{self, MapGuard, Mapping, Places, Target};
use crate::meta::BlockRef;
use crate::meta::{Seal, Seq};
use crate::{Error, Result};
use extant_format::Pblk;
use extant_format::features::RoCompat;
use extant_format::inode::InodeFlags;
use extant_format::quota::{self, BLOCK_LEN, Edit, EditedBlocks, QuotaEntry, QuotaInfo, QuotaKind};
use extant_sync::{LockClass, Mutex, MutexGuard, Rank};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

static FILES: LockClass = LockClass::new("quota files", Rank::Quota);

/// Most blocks of a quota file that a new entry may take: a leaf, and the nodes below the root that
/// lead to it.
const BLOCKS_PER_ENTRY: u64 = 4;

/// The quota files of a file system open for writing.
#[derive(Debug)]
pub(crate) struct Accounts {
    files: Mutex<Vec<File>>,
    /// Blocks of the file system that the files may have together.
    most: u64,
    /// There if anybody is held to limits.
    ledger: Option<Ledger>,
}

/// One quota file.
#[derive(Debug)]
struct File {
    kind: QuotaKind,
    /// The header as the last commit wrote it.
    info: QuotaInfo,
    layout: Layout,
    /// Owners that have an entry.
    known: HashSet<u32>,
    /// Owners that may get one.
    promised: HashSet<u32>,
    /// What somebody set, and in which transaction.
    settings: Vec<(Seq, Setting)>,
}

/// The files, which nobody changes meanwhile.
#[derive(Debug)]
pub(super) struct Still<'a>(MutexGuard<'a, Vec<File>>);

impl Still<'_> {
    /// The header of a file, and where the file lies.
    pub(super) fn file(&self, kind: QuotaKind) -> Option<(QuotaInfo, Layout)> {
        let file = self.0.iter().find(|file| file.kind == kind)?;
        Some((file.info, file.layout.clone()))
    }
}

impl File {
    fn has_room_for(&self, promises: usize) -> bool {
        let needed = (promises as u64).saturating_mul(BLOCKS_PER_ENTRY);
        let needed = needed.saturating_mul(BLOCK_LEN as u64);
        self.info.file_len().saturating_add(needed) <= self.layout.size()
    }

    /// Promises an entry; `false` if there is no room for it.
    fn promise(&mut self, fs: &Fs, id: u32) -> Result<bool> {
        if self.known.contains(&id) || self.promised.contains(&id) {
            return Ok(true);
        }
        let mut blocks = Blocks::new(fs, &self.layout);
        if quota::find(&mut blocks, &self.info, id)?.is_some() {
            self.known.insert(id);
            return Ok(true);
        }
        let has_room = self.has_room_for(self.promised.len() + 1);
        if has_room {
            self.promised.insert(id);
        }
        Ok(has_room)
    }

    /// What the commit of transaction `seq` changes of the file.
    fn count(
        &mut self,
        fs: &Fs,
        tally: &Tally,
        seq: Seq,
        ledger: Option<&Ledger>,
    ) -> Result<EditedBlocks> {
        let mut blocks = Blocks::new(fs, &self.layout);
        let ledger = ledger.filter(|ledger| ledger.enforces(self.kind));
        let mut changes = tally.of(self.kind).clone();
        changes.retain(|_, change| !change.is_none());
        for id in ledger.map_or_else(Default::default, |ledger| ledger.take_timed(self.kind)) {
            changes.entry(id).or_default();
        }
        let mut limits = BTreeMap::new();
        let mut new_header = false;
        self.settings.retain(|(of, setting)| {
            let is_due = *of <= seq;
            match setting {
                _ if !is_due => {}
                Setting::Limits(entry) => {
                    changes.entry(entry.id).or_default();
                    limits.insert(entry.id, *entry);
                }
                Setting::Graces { space, inodes } => {
                    (self.info.space_grace, self.info.inode_grace) = (*space, *inodes);
                    new_header = true;
                }
            }
            !is_due
        });
        let mut edit = Edit::new(&mut blocks, self.info);
        if new_header {
            edit.touch_header()?;
        }
        let mut added = Vec::new();
        for (id, change) in changes {
            let entry = match edit.get(id)? {
                Some(entry) => entry,
                None if self.promised.contains(&id) => {
                    added.push(id);
                    QuotaEntry::of(id)
                }
                // His limits are not in the file either.
                None if change.is_none() => continue,
                // It owned inodes when the file system was opened, and had no entry.
                None => {
                    let kind = self.kind.name();
                    crate::event!(warn, kind, id, "the quota file does not count this owner");
                    continue;
                }
            };
            let mut entry = change.apply(entry);
            if let Some(limits) = limits.get(&id) {
                entry = limited(entry, limits);
            }
            if let Some(ledger) = ledger {
                ledger.put_times(self.kind, &mut entry);
            }
            edit.set(&entry)?;
        }
        let (info, changed) = edit.finish()?;
        if info.file_len() > self.layout.size() {
            return Err(Error::Internal("a quota file without the promised room"));
        }
        self.info = info;
        for id in added {
            self.promised.remove(&id);
            self.known.insert(id);
        }
        Ok(changed)
    }
}

impl Accounts {
    /// The quota files, if the file system has the feature; they may grow to `most` blocks
    /// together. All else that changes need is there.
    ///
    /// # Errors
    /// When a file breaks the format or cannot be read; [`Error::Unsupported`] when they are larger
    /// than `most`.
    pub(crate) fn load(fs: &Fs, most: u64, options: &MountOptions) -> Result<Option<Self>> {
        if !fs.superblock().has_ro_compat(RoCompat::QUOTA) {
            check_enforceable(fs, options, &[])?;
            return Ok(None);
        }
        let mut files = Vec::new();
        let mut blocks = 0_u64;
        for kind in QuotaKind::ALL {
            let Some((info, layout)) = load(fs, kind)? else {
                continue;
            };
            layout.check_whole(fs)?;
            blocks = blocks.saturating_add(fs.block_size().blocks_for(layout.size()));
            files.push(File {
                kind,
                info,
                layout,
                known: HashSet::new(),
                promised: HashSet::new(),
                settings: Vec::new(),
            });
        }
        check_enforceable(fs, options, &files)?;
        if blocks > most {
            return Err(Error::Unsupported {
                features: format!(
                    "quota files of {blocks} blocks with a journal that has room for {most} of them (for writing; it \
                     can be opened for reading only)"
                ),
            });
        }
        let ledger = open_ledger(fs, options.quotas, &files)?;
        Ok(Some(Self {
            files: Mutex::new(&FILES, files),
            most,
            ledger,
        }))
    }

    /// What holds owners to limits, if any are.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Gives an owner other limits, which the commit of transaction `seq` writes. He was promised
    /// an entry.
    ///
    /// # Errors
    /// When the file breaks the format or cannot be read.
    pub(super) fn set_limits(
        &self,
        fs: &Fs,
        kind: QuotaKind,
        id: u32,
        seq: Seq,
        change: impl FnOnce(QuotaEntry, &QuotaInfo) -> QuotaEntry,
    ) -> Result<()> {
        let mut files = self.files.lock();
        let Some(file) = files.iter_mut().find(|file| file.kind == kind) else {
            return Ok(());
        };
        let newest = file.settings.iter().rev().find_map(|(_, set)| match set {
            Setting::Limits(entry) if entry.id == id => Some(*entry),
            _ => None,
        });
        let entry = match newest {
            Some(entry) => entry,
            None => {
                let mut blocks = Blocks::new(fs, &file.layout);
                quota::find(&mut blocks, &file.info, id)?.unwrap_or_else(|| QuotaEntry::of(id))
            }
        };
        let entry = change(entry, &file.info);
        file.settings.push((seq, Setting::Limits(entry)));
        if let Some(ledger) = &self.ledger {
            ledger.set_limits(kind, &entry);
        }
        Ok(())
    }

    /// Gives soft limits other times of grace, which the commit of transaction `seq` writes.
    pub(super) fn set_graces(&self, kind: QuotaKind, seq: Seq, space: u32, inodes: u32) {
        let mut files = self.files.lock();
        if let Some(file) = files.iter_mut().find(|file| file.kind == kind) {
            let setting = Setting::Graces { space, inodes };
            file.settings.push((seq, setting));
        }
        if let Some(ledger) = &self.ledger {
            ledger.set_graces(kind, space, inodes);
        }
    }

    pub(super) fn still(&self) -> Still<'_> {
        Still(self.files.lock())
    }

    /// Promises an entry to one owner, as [`promise`](Self::promise) does.
    pub(super) fn promise_one(&self, fs: &Fs, kind: QuotaKind, id: u32) -> Result<bool> {
        let mut files = self.files.lock();
        let file = files.iter_mut().find(|file| file.kind == kind);
        file.map_or(Ok(true), |file| file.promise(fs, id))
    }

    /// Promises an entry to `id`: of the kinds that have no room for it, the first one is returned.
    fn promise(&self, fs: &Fs, ids: [u32; 3]) -> Result<Option<QuotaKind>> {
        let mut files = self.files.lock();
        for (kind, id) in QuotaKind::ALL.into_iter().zip(ids) {
            let file = files.iter_mut().find(|file| file.kind == kind);
            if let Some(file) = file
                && !file.promise(fs, id)?
            {
                return Ok(Some(kind));
            }
        }
        Ok(None)
    }
}

impl Fs {
    /// Admits an inode that is about to be made for these `owners` (user, group, project): they can
    /// be counted and may have it, as long as the result lives. Called before the handle starts.
    ///
    /// # Errors
    /// As for [`Fs::prepare_owners`]; [`Error::QuotaExceeded`].
    #[inline]
    pub(crate) fn admit_new_inode(
        &self,
        owners: impl FnOnce() -> [u32; 3],
    ) -> Result<Admission<'_>> {
        if !self.counts_usage() {
            return Ok(None);
        }
        let owners = owners();
        self.prepare_owners(owners)?;
        self.admit_inode(owners)
    }

    /// Sees to it that this user, group and project can be counted as owners of something. Before
    /// the handle starts that makes them so.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when a quota file has to grow and cannot; when one breaks the format or
    /// cannot be read.
    pub(crate) fn prepare_owners(&self, ids: [u32; 3]) -> Result<()> {
        let Some(accounts) = self.accounts() else {
            return Ok(());
        };
        while let Some(kind) = accounts.promise(self, ids)? {
            self.grow_quota_file(accounts, kind)?;
        }
        Ok(())
    }

    /// Gives a quota file room for one more entry.
    pub(super) fn grow_quota_file(&self, accounts: &Accounts, kind: QuotaKind) -> Result<()> {
        let size = self.block_size();
        let count = size.blocks_for(BLOCKS_PER_ENTRY * BLOCK_LEN as u64);
        let more = u32::try_from(count).map_err(|_| Error::NoSpace)?;
        let found = accounts.still().file(kind);
        let (_, layout) = found.ok_or(Error::Internal("a quota file that is not there"))?;
        let held = self.hold(layout.ino())?;
        let credits = map::insert_credits(&held.copy(), more) + more;
        let handle = self.start(credits)?;
        let map = MapGuard::lock(held.live());
        // Others may have made it larger meanwhile; by now nobody else does.
        let (used, last) = {
            let still = accounts.still();
            let all = still.0.iter();
            let used = all
                .map(|file| size.blocks_for(file.layout.size()))
                .sum::<u64>();
            let last = still.file(kind).and_then(|(_, layout)| layout.last());
            (used, last)
        };
        if used.saturating_add(count) > accounts.most {
            return Err(Error::NoSpace);
        }
        let image = held.copy();
        let first = size.blocks_for(image.size());
        let first = u32::try_from(first).map_err(|_| Error::FileTooLarge)?;
        let goal = last.map_or(Pblk::new(0), |last| Pblk::new(last.get() + 1));
        let places = Places::find(self, &image, first, more, |behind, len| {
            self.alloc()?.take_blocks(&Request {
                goal: behind.unwrap_or(goal),
                len,
                min: 1,
                below_32_bits: !image.flags().contains(InodeFlags::EXTENTS),
                privileged: true,
            })
        })?;
        let Places { taken, runs } = places;
        let bytes = (u64::from(first) + count) << size.log2();
        let edit = |tree: &mut map::Tree<'_>| {
            let mut runs = runs.iter();
            runs.try_for_each(|&(lblk, start, len)| tree.insert(lblk, start, len, false))
        };
        map::change(&handle, held.live(), &map, taken, edit, |inode| {
            inode.disk_mut().size = bytes;
        })?;
        for &(_, start, len) in &runs {
            for i in 0..u64::from(len) {
                let zeros = vec![0; size.len()].into_boxed_slice();
                handle.create(Pblk::new(start.get() + i), Seal::Plain, zeros);
            }
        }
        let mut files = accounts.files.lock();
        if let Some(file) = files.iter_mut().find(|file| file.kind == kind) {
            for (lblk, start, len) in runs {
                let run = Mapping {
                    lblk,
                    len: len.into(),
                    target: Target::Written(start),
                };
                file.layout.extend(run, bytes);
            }
        }
        Ok(())
    }

    /// Encodes what transaction `seq` changes of what owners use into new images of blocks of the
    /// quota files, which become the newest ones; returns those. Called once for each commit, in
    /// their order.
    ///
    /// # Errors
    /// When a file breaks the format or cannot be read. Nothing may be committed then.
    pub(crate) fn encode_quotas(&self, tally: &Tally, seq: Seq) -> Result<Vec<BlockRef>> {
        let Some(accounts) = self.accounts() else {
            return Ok(Vec::new());
        };
        let mut images = Vec::new();
        let mut files = accounts.files.lock();
        for file in files.iter_mut() {
            let changed = file.count(self, tally, seq, accounts.ledger())?;
            let mut whole = BTreeMap::<Pblk, (BlockRef, Box<[u8]>)>::new();
            for (block, bytes) in changed {
                let (pblk, inside) = file.layout.locate(self, block);
                let pblk = pblk.ok_or(Error::Internal("a hole in a quota file"))?;
                let (_, data) = match whole.entry(pblk) {
                    std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
                    std::collections::btree_map::Entry::Vacant(free) => {
                        let old = self.cache().read(pblk)?;
                        let data = self.cache().copy_of(&old);
                        free.insert((old, data))
                    }
                };
                if let Some(part) = data.get_mut(inside..inside + BLOCK_LEN) {
                    part.copy_from_slice(&bytes);
                }
            }
            let cache = self.cache();
            images.extend(whole.into_iter().map(|(pblk, (old, data))| {
                cache.publish_image(pblk, data, seq, Seal::Plain, Some(&old))
            }));
        }
        Ok(images)
    }
}

/// Refuses to hold owners to limits where nothing says what they use.
fn check_enforceable(fs: &Fs, options: &MountOptions, files: &[File]) -> Result<()> {
    let wanted = |kind: &QuotaKind| options.quotas.has(*kind);
    for kind in QuotaKind::ALL.into_iter().filter(wanted) {
        if !files.iter().any(|file| file.kind == kind) {
            let kind = kind.name();
            return Err(Error::Unsupported {
                features: format!("limits of {kind} quotas: this file system does not count them"),
            });
        }
    }
    let is_placed = options.data_mode != DataMode::Delayed;
    if options.quotas != Enforced::default() && !fs.cluster_size().is_block() && is_placed {
        return Err(Error::Unsupported {
            features: "limits of quotas with bigalloc and without delayed allocation".to_owned(),
        });
    }
    Ok(())
}

/// What holds owners to limits, if any are.
fn open_ledger(fs: &Fs, enforced: Enforced, files: &[File]) -> Result<Option<Ledger>> {
    if enforced == Enforced::default() {
        return Ok(None);
    }
    let held: Vec<&File> = (files.iter())
        .filter(|file| enforced.has(file.kind))
        .collect();
    let info = |kind| held.iter().find(|file| file.kind == kind);
    let ledger = Ledger::new(QuotaKind::ALL.map(|kind| info(kind).map(|file| &file.info)));
    for file in held {
        let mut blocks = Blocks::new(fs, &file.layout);
        quota::for_each(&mut blocks, &file.info, &mut |entry| {
            ledger.open(file.kind, entry);
            ControlFlow::Continue(())
        })?;
    }
    Ok(Some(ledger))
}
