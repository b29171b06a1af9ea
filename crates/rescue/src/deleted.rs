//! Deleted files, with their verdicts.

use crate::Rescue;
use crate::candidate::Candidate;
use crate::claims::{give_to_later, give_to_live, overlap};
use crate::content::Content;
use crate::error::Result;
use crate::names::Names;
use crate::paths::{MOST_TOLD, Paths, former_directories};
use crate::timeline::{Timeline, has_content};
use crate::tree::Tree;
use extant_format::inode::{FileType, InodeFlags, Timestamp};
use extant_format::superblock::MountDefaults;
use extant_format::{Ino, Tid};
use extant_jbd2::HistoryEnd;
use std::collections::HashSet;

/// Why nothing is sure of a file whose blocks are not looked at.
const TOO_MUCH: &str = "inodes claim more blocks than there are";

/// How sure the content of a deleted file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Proven by the log. The log has every transaction from the last copy of the inode before its
    /// deletion to now. All blocks of its map are free, and no transaction behind the one that
    /// freed them changed the bitmap of their group, so that nothing was put there. The file system
    /// was unmounted in order, and not mounted again: what is being written in a crash is in no
    /// log. All nodes of the map come from the log, and the inode counts as many blocks as they
    /// have. No block reads as zeros, as one does that was trimmed. Or the file is an
    /// orphan, which still has its blocks, and recovery is known to leave it so: there is a log, it
    /// is sound and laid over the device, and no fast commits wait in it.
    ///
    /// It is the file as of the last transaction before the one that deleted it, as far as it had
    /// reached the device. That Linux was told to write data in order (`data=ordered`, its default,
    /// or `data=journal`) is assumed, and that nothing has written past the log since, as `debugfs`
    /// and `fuse2fs` do. Where bitmaps, tables, descriptors or directories show that, nothing is
    /// whole.
    Whole,
    /// All blocks are free, and nothing is known to have used them since; but that is not proven.
    Likely,
    /// A part of the blocks was given away, or a part of the map is not known.
    Partly,
    /// All blocks were given away.
    Lost,
    /// Nothing tells where the content was.
    Unmapped,
    /// There is a name, and nothing else.
    NameOnly,
}

impl Verdict {
    /// Returns the word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Likely => "likely",
            Self::Partly => "partly",
            Self::Lost => "lost",
            Self::Unmapped => "unmapped",
            Self::NameOnly => "name-only",
        }
    }
}

/// Where a deleted file was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A copy of its inode in the log.
    Log {
        /// The transaction that has it.
        tid: Tid,
        /// When that was committed, in seconds since the epoch.
        committed: u64,
    },
    /// The inode as it lies in its table.
    InodeTable,
    /// It waits to be deleted, in the list of orphans.
    OrphanList,
    /// It waits to be deleted, in the orphan file.
    OrphanFile,
    /// An entry in the slack of a directory.
    Directory,
}

/// A name that a deleted file had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedName {
    /// From the root, `/` in front.
    pub path: Vec<u8>,
    /// Whether the log shows this very file under this name.
    pub is_sure: bool,
}

/// A deleted file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeletedFile {
    /// Its number.
    pub ino: Ino,
    /// Its generation, which tells uses of the number apart; 0 where it is not known.
    pub generation: u32,
    /// What it was; `None` where that is not known.
    pub file_type: Option<FileType>,
    /// Permissions, with set-ID bits and the sticky bit as they were.
    pub permissions: u16,
    /// The user that owned it.
    pub uid: u32,
    /// The group that owned it.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// When its content was changed.
    pub mtime: Timestamp,
    /// When it was deleted, in seconds since the epoch, where that is known.
    pub deleted: Option<u32>,
    /// Where it was found.
    pub source: Source,
    /// Names that it had, the surest first.
    pub names: Vec<DeletedName>,
    /// How sure its content is.
    pub verdict: Verdict,
    /// Why it is no better.
    pub why: &'static str,
    /// Blocks of data that were written.
    pub blocks: u64,
    /// Those of them that were given away.
    pub lost_blocks: u64,
    /// Whether its content is encrypted, so that it says nothing without a key.
    pub is_encrypted: bool,
    pub(crate) content: Content,
}

/// What was deleted.
#[derive(Debug)]
#[non_exhaustive]
pub struct Deleted {
    /// By path, and then by number.
    pub files: Vec<DeletedFile>,
    /// Why nothing is proven, if that is so for all files.
    pub unproven: Option<&'static str>,
}

impl Rescue {
    /// Returns what was deleted, as far as anything tells of it.
    ///
    /// # Errors
    /// A device that fails.
    pub fn deleted(&self) -> Result<Deleted> {
        let volume = &self.volume;
        volume.begin();
        let mut timeline = match &self.journal {
            Some(journal) => Timeline::read(volume, journal)?,
            None => Timeline::empty(),
        };
        let tree = Tree::read(volume, &HashSet::new())?;
        let unproven = self.why_unproven(&timeline, &tree)?;
        let mut candidates = self.candidates(&mut timeline)?;
        give_to_live(volume, &mut candidates)?;
        give_to_later(&mut candidates);
        self.judge_blocks(&timeline, &mut candidates)?;
        let former = former_directories(volume, &candidates);
        let numbers: HashSet<Ino> = candidates.iter().map(|found| found.ino).collect();
        let journal = self.journal.as_ref();
        let names = Names::read(volume, journal, &timeline, &tree, &former, &numbers)?;
        let paths = Paths::new(&timeline, &tree, &names, &candidates);
        let mut files = Vec::with_capacity(candidates.len());
        for (i, found) in candidates.iter().enumerate() {
            let mut file = self.told(found, unproven)?;
            file.names = paths.of(i);
            files.push(file);
        }
        self.names_alone(&paths, &numbers, &mut files)?;
        files.sort_by(|a, b| {
            let key = |file: &DeletedFile| file.names.first().map(|name| name.path.clone());
            (key(a).is_none(), key(a), a.ino, a.deleted).cmp(&(
                key(b).is_none(),
                key(b),
                b.ino,
                b.deleted,
            ))
        });
        Ok(Deleted { files, unproven })
    }

    /// Why nothing can be proven, if that is so.
    fn why_unproven(&self, timeline: &Timeline, tree: &Tree) -> Result<Option<&'static str>> {
        let Some(journal) = &self.journal else {
            return Ok(Some("there is no journal"));
        };
        let history = journal.history()?;
        let newest = history.transactions.get(history.unbroken.clone());
        let last = newest.and_then(|all| all.last()?.committed);
        let Some((seconds, _)) = last else {
            return Ok(Some("the log does not reach to now without a gap"));
        };
        if journal.has_fast_commits() {
            return Ok(Some("fast commits wait to be replayed"));
        }
        if journal.damage.is_some() {
            return Ok(Some("the log is damaged"));
        }
        if tree.is_cut {
            return Ok(Some("directories claim more blocks than there are"));
        }
        let data = self.volume.sb.mount_defaults();
        if data.contains(MountDefaults::JOURNAL_WRITEBACK) {
            return Ok(Some("by default this is mounted with data=writeback"));
        }
        let sb = &self.volume.sb;
        let is_closed = match history.end {
            HistoryEnd::Closed => true,
            // The end of a mount notes its time in the superblock; one for reading, which may have
            // recovered the log, does not.
            HistoryEnd::ClosedOrRecovered => {
                sb.write_time() >= seconds && sb.last_check() <= seconds
            }
            HistoryEnd::Unknown => false,
        };
        if !is_closed || sb.needs_recovery() {
            return Ok(Some(
                "it is not known to be unmounted in order: what is being written in a crash is in no log",
            ));
        }
        if sb.mount_time() >= seconds {
            return Ok(Some("it was mounted after the last transaction in its log"));
        }
        if timeline.was_passed_by(&self.volume, journal, tree)? {
            return Ok(Some("it was changed past its log"));
        }
        Ok(None)
    }

    /// Why orphans may not be what recovery leaves, if that is so.
    fn why_orphans_are_unproven(&self) -> Option<&'static str> {
        let Some(journal) = &self.journal else {
            return Some("there is no journal");
        };
        if self.is_as_it_lies {
            return Some("it is looked at as it lies, without what its log has to replay");
        }
        if journal.has_fast_commits() {
            return Some("fast commits wait to be replayed");
        }
        journal.damage.as_ref().map(|_| "the log is damaged")
    }

    /// The verdict on a deleted file.
    fn told(&self, found: &Candidate, unproven: Option<&'static str>) -> Result<DeletedFile> {
        let inode = &found.inode;
        let written: u64 = found.data().map(|run| run.end - run.start).sum();
        let lost: u64 = found.data().map(|run| overlap(&found.given, &run)).sum();
        let content = match &found.inline {
            Some(bytes) => Content::Inline(bytes.clone()),
            None if matches!(found.source, Source::Directory) => Content::Unknown,
            None => Content::Blocks {
                runs: found.runs.clone(),
                given: found.given.clone(),
            },
        };
        let has_data = matches!(
            inode.file_type(),
            Some(FileType::Regular | FileType::Directory | FileType::Symlink)
        );
        let is_known = match found.source {
            Source::Directory => false,
            Source::InodeTable => inode.size > 0,
            _ => has_content(&self.volume, inode),
        };
        let (verdict, why) = if !has_data && inode.file_type().is_some() {
            (Verdict::Unmapped, "it had no content")
        } else if !is_known {
            (Verdict::Unmapped, "nothing tells where its content was")
        } else if !found.is_sound && found.runs.is_empty() && found.inline.is_none() {
            let why = if found.too_much {
                TOO_MUCH
            } else {
                "its map is not known any more"
            };
            (Verdict::Unmapped, why)
        } else if lost > 0 && lost == written {
            (Verdict::Lost, "its blocks were given away")
        } else if lost > 0 {
            (Verdict::Partly, "some of its blocks were given away")
        } else if !found.is_sound {
            (Verdict::Partly, "a part of its map is not known any more")
        } else {
            match self.doubt(found, unproven, &content)? {
                Some(why) => (Verdict::Likely, why),
                None => (Verdict::Whole, ""),
            }
        };
        let content = if verdict == Verdict::Unmapped {
            Content::Unknown
        } else {
            content
        };
        Ok(DeletedFile {
            ino: found.ino,
            generation: found.key.generation,
            file_type: inode.file_type(),
            permissions: inode.mode.permissions(),
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            mtime: inode.mtime,
            deleted: (found.dtime != 0).then_some(found.dtime),
            source: match found.source {
                Source::Directory => Source::InodeTable,
                source => source,
            },
            names: Vec::new(),
            verdict,
            why,
            blocks: written,
            lost_blocks: lost,
            is_encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            content,
        })
    }

    /// Why it is not proven that the content is whole.
    fn doubt(
        &self,
        found: &Candidate,
        unproven: Option<&'static str>,
        content: &Content,
    ) -> Result<Option<&'static str>> {
        if found.too_much {
            return Ok(Some(TOO_MUCH));
        }
        let counted = self.counts_its_blocks(found);
        if found.is_orphan() {
            let unproven = self.why_orphans_are_unproven();
            if unproven.is_some() {
                return Ok(unproven);
            }
            return Ok((!counted).then_some("the inode counts other blocks than its map has"));
        }
        if unproven.is_some() {
            return Ok(unproven);
        }
        let unbroken = self.journal.as_ref().map(|j| j.history()).transpose()?;
        let unbroken = unbroken.map_or(0..0, |history| history.unbroken.clone());
        if !found
            .copy
            .is_some_and(|at| unbroken.contains(&(at as usize)))
        {
            return Ok(Some(
                "the log does not reach from its last copy to now without a gap",
            ));
        }
        if found.gone.is_none() {
            return Ok(Some("its deletion is not in the log"));
        }
        if found.in_place {
            return Ok(Some("a part of its map lies outside of the log"));
        }
        if !counted {
            return Ok(Some("the inode counts other blocks than its map has"));
        }
        let is_link = found.inode.file_type() == Some(FileType::Symlink);
        if found.runs.is_empty() && !is_link && found.last_change != Some(found.inode.mtime) {
            return Ok(Some("it was written to by the transaction that deleted it"));
        }
        if !found.is_untouched {
            return Ok(Some(
                "the bitmap of its blocks was changed after they were freed",
            ));
        }
        if self.has_block_of_zeros(content)? {
            return Ok(Some("a block of it reads as zeros, as after a trim"));
        }
        Ok(None)
    }

    /// Adds names of which nothing else is known.
    fn names_alone(
        &self,
        paths: &Paths<'_>,
        numbers: &HashSet<Ino>,
        files: &mut Vec<DeletedFile>,
    ) -> Result<()> {
        let mut alone: Vec<Ino> = paths
            .names
            .inodes()
            .filter(|i| !numbers.contains(i))
            .collect();
        alone.sort_unstable();
        for ino in alone {
            // What is in use has another name now, or belongs to another file.
            if self.volume.slot(ino)?.is_none_or(|(_, in_use)| in_use) {
                continue;
            }
            let names: Vec<_> = paths.of_number(ino, None).take(MOST_TOLD).collect();
            if names.is_empty() {
                continue;
            }
            files.push(DeletedFile {
                ino,
                generation: 0,
                file_type: None,
                permissions: 0,
                uid: 0,
                gid: 0,
                size: 0,
                mtime: Timestamp::default(),
                deleted: None,
                source: Source::Directory,
                names,
                verdict: Verdict::NameOnly,
                why: "nothing is left but the name",
                blocks: 0,
                lost_blocks: 0,
                is_encrypted: false,
                content: Content::Unknown,
            });
        }
        Ok(())
    }
}
