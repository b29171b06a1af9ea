//! Repair of what a check finds, over a device that is only read until everything is known.
//!
//! A repair goes in rounds. Each checks the file system as it would be with the changes so far, and
//! lets the stages repair what was found, from the superblock down to the bitmaps; the first stage
//! that repairs anything ends the round. The repair is over when a check finds nothing that a stage
//! can repair. Only then, when the caller says so, is anything written: see [`Plan::apply`].
//!
//! | module | owns |
//! |---|---|
//! | `options` | how to repair |
//! | `plan` | what a repair would do, found out and written |
//! | `rounds` | the stages, and what they do until a check finds nothing for them |
//! | `draft` | the changes so far, and what they are for |
//! | `net` | what could be read before and could not be afterwards |
//! | [`mend`] | a repair that is read and never written |
//! | `shown` | the devices by which it is read |
//! | `zeroed` | parts of a device that are zeroed before all else |
//! | `undo` | files that take changes back |
//! | `kept` | making such a file |
//! | `in_progress` | writing: in which order, and what the superblock says meanwhile |
//! | `whole` | writing what changes of a sound file system as a whole |
//! | `space` | free blocks |
//! | `work` | what all stages use |
//! | `superblock` | superblock, its fields and backups |
//! | `trial` | whether a change would leave fewer errors |
//! | `layout` | where everything lies, if the root directory or groups are not found |
//! | `journal` | replay, the journal's inode and superblock |
//! | `fast_commits` | fast commits that are replayed over what is mended |
//! | `system_files` | numbers of quota files and the orphan file that are those of others |
//! | `groups` | where bitmaps and tables lie; inodes in parts of tables that were not looked at |
//! | `orphans` | files that wait to be deleted or cut |
//! | `inodes`, `content` | fields of inodes; links, inline data and attributes in them |
//! | `map_builder` | what is sound in a map; building maps |
//! | `maps` | maps with a fault |
//! | `clones` | blocks that are claimed twice |
//! | `xattrs` | attribute blocks, inodes that hold values |
//! | `dirs`, `entries`, `salvage` | directories; what becomes of each entry; names behind a record that makes no sense |
//! | `root` | a root directory that lies in its inode |
//! | `tree` | the root, `lost+found`, files without a name, `..`, link counts |
//! | [`resize`] | making a file system larger or smaller |
//! | [`tune`] | changing what a superblock says |
//! | [`trim`] | what is in no use, and giving it back |
//! | `reseal` | all checksums, with another start |
//! | `special` | the inode that keeps room for descriptors, multiple-mount protection |
//! | `quota` | quota files |
//! | `bitmaps` | bitmaps and counts |
//!
//! # Invariants
//! - The device is read only until [`Plan::apply`], or [`trim::Spare::give_back`].
//! - Nothing that could be read is given up: a file keeps its content, and one without a name gets
//!   one in `lost+found`. The stages keep to this, and `net` compares both sides without asking
//!   them.
//! - What a stage cannot repair without a guess it leaves; the check after the last round names it.

mod bitmaps;
mod clones;
mod content;
mod dirs;
mod draft;
mod entries;
mod fast_commits;
mod groups;
mod in_progress;
mod inodes;
mod journal;
mod kept;
mod layout;
mod map_builder;
mod maps;
pub mod mend;
mod net;
mod options;
mod orphans;
mod plan;
mod quota;
mod reseal;
pub mod resize;
mod root;
mod rounds;
mod salvage;
mod shown;
mod space;
mod special;
mod superblock;
mod system_files;
mod tree;
mod trial;
pub mod trim;
pub mod tune;
mod undo;
mod whole;
mod work;
mod xattrs;
mod zeroed;

pub use draft::{Change, Changes, Fix};
pub use fast_commits::Replay;
pub use kept::{create_undo, keep, sync_name};
pub use net::{Loss, Lost};
pub use options::Options;
pub use plan::{Plan, plan, plan_after_replay, plan_before_replay};
pub(crate) use undo::{MAGICS as UNDO_MAGICS, cut_off as undo_cut_off};
pub use undo::{revert, write_undo};
