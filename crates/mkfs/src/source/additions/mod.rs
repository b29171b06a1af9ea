//! What is put into a tree beside what its sources hold.

mod host;

use std::num::NonZero;
use std::path::PathBuf;

use super::Excludes;
use super::builder::{Content, Meta, TreeBuilder};
use super::directory::ScanOptions;
use super::error::{SourceError, SourceResult};
use super::model::{FileType, NodeId, Times, Timestamp, Tree};
use super::walk::{Found, file};

/// Permission bits of directories on the way to what is added, and of a text's file.
const DIRECTORY_MODE: u16 = 0o755;
const TEXT_MODE: u16 = 0o644;

/// Something to put into a tree.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Addition {
    /// A regular file of root's with these bytes. A file that is there gets them as its content,
    /// and keeps the rest; a symbolic link is replaced.
    Text {
        /// Its path in the tree.
        to: Vec<u8>,
        /// Its content.
        text: Vec<u8>,
    },
    /// A file or a directory of the host, with everything below it. A directory joins one that is
    /// there and gives it its owner and the like; a file takes the place of any that is no
    /// directory. A symbolic link is put there itself.
    Host {
        /// Its path on the host. With a slash at its end, a link to a directory is a directory.
        from: PathBuf,
        /// Its path in the tree. With a slash at its end, a file keeps its name in that directory.
        to: Vec<u8>,
        /// What stays out of a directory.
        excludes: Excludes,
    },
}

impl Addition {
    fn to(&self) -> &[u8] {
        match self {
            Self::Text { to, .. } | Self::Host { to, .. } => to,
        }
    }
}

/// Puts additions into a tree, one after the other. Directories that are missing on the way are
/// made and are root's; symbolic links on the way are followed inside the tree. What is made here
/// has `now` as its times. So many `threads` scan, or those of the surrounding thread pool.
///
/// # Errors
///
/// [`SourceError::Addition`] for what cannot be at its path; those of
/// [`scan_directory`](super::scan_directory) for what is on the host.
pub fn put(
    tree: Tree,
    additions: &[Addition],
    threads: Option<NonZero<usize>>,
    now: Timestamp,
) -> SourceResult<Tree> {
    if additions.is_empty() {
        return Ok(tree);
    }
    let (mut builder, mut aside) = TreeBuilder::reopen(tree);
    for addition in additions {
        let fail = |problem: String| SourceError::Addition {
            path: String::from_utf8_lossy(addition.to()).into_owned(),
            problem,
        };
        let to = clean(addition.to()).map_err(fail)?;
        match addition {
            Addition::Text { text, .. } => put_text(&mut builder, &to, text, now)?.map_err(fail)?,
            Addition::Host {
                from,
                to: given,
                excludes,
            } => {
                let scan = ScanOptions {
                    excludes: excludes.clone(),
                    threads,
                };
                let mut read = host::Read::new(from, &scan)?;
                builder.set_source(aside.begin_source(&mut read.tree));
                let to = read.place(to, given.ends_with(b"/"));
                host::put(&mut builder, &read, &to, now)?.map_err(fail)?;
            }
        }
    }
    builder.finish_again(aside)
}

/// What is wrong with one addition, if nothing is wrong with the tree.
type Put<T> = SourceResult<Result<T, String>>;

fn put_text(builder: &mut TreeBuilder, to: &[u8], text: &[u8], now: Timestamp) -> Put<()> {
    let times = Times::all(now);
    let content = Content::Inline(text);
    let place = match place_of(builder, to, now)? {
        Ok(place) => place,
        Err(problem) => return Ok(Err(problem)),
    };
    let (dir, name) = match place {
        Place::Taken(node, _, _) if builder.kind(node) == FileType::Regular => {
            builder.set_content(node, content, times)?;
            return Ok(Ok(()));
        }
        Place::Taken(node, _, _) if builder.kind(node) == FileType::Directory => {
            return Ok(Err("is a directory".to_owned()));
        }
        Place::Taken(_, dir, name) => {
            let made = builder.add(Meta::plain(TEXT_MODE, times), content)?;
            builder.relink(dir, &name, made);
            return Ok(Ok(()));
        }
        Place::Free(dir, name) => (dir, name),
        Place::Root => return Ok(Err("is a directory".to_owned())),
    };
    let made = builder.add(Meta::plain(TEXT_MODE, times), content)?;
    builder.link(dir, &name, made)?;
    Ok(Ok(()))
}

/// Where an addition goes.
enum Place {
    Root,
    /// A name that is free in a directory.
    Free(NodeId, Box<[u8]>),
    /// A file, and its name in a directory.
    Taken(NodeId, NodeId, Box<[u8]>),
}

/// Finds the place of a path; directories on the way are made.
fn place_of(builder: &mut TreeBuilder, to: &[u8], now: Timestamp) -> Put<Place> {
    let found = match file(builder, to) {
        Ok(found) => found,
        Err(problem) => return Ok(Err(problem)),
    };
    let (mut dir, missing, name) = match found {
        Found::File(NodeId::ROOT) => return Ok(Ok(Place::Root)),
        Found::File(node) => {
            // Its directory is what the path leads to without its name.
            let (above, name) = super::walk::split_last(to);
            let dir = match super::walk::directory(builder, above) {
                Ok(super::walk::Reached::Directory(dir)) => dir,
                _ => NodeId::ROOT,
            };
            let name = Box::from(name.unwrap_or_default());
            return Ok(Ok(Place::Taken(node, dir, name)));
        }
        Found::NoFile(dir, name) => (dir, Vec::new(), name),
        Found::NoDirectory(dir, missing, name) => (dir, missing, name),
    };
    for part in missing {
        let meta = Meta::plain(DIRECTORY_MODE, Times::all(now));
        let made = builder.add(meta, Content::Directory)?;
        builder.link(dir, &part, made)?;
        dir = made;
    }
    Ok(Ok(Place::Free(dir, Box::from(name))))
}

/// A path as names from the root.
fn clean(path: &[u8]) -> Result<Vec<u8>, String> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&b"..".as_slice()) {
        return Err("has .. in it".to_owned());
    }
    Ok(names.join(&b'/'))
}
