//! Hash trees that are made with an image: what is asked for, and what is told of them.

use super::replacing;
use super::sources::place_of;
use crate::args::{DmVerity as DmVerityArgs, FsVerity as FsVerityArgs, Mkfs};
use crate::failure::{Failure, Outcome};
use crate::output::Output as Said;
use crate::record::{hex, uuid};
use crate::slip::refuse_over_disk;
use extant::Escaped;
use extant_mkfs::output::Replaces;
use extant_mkfs::source::{Excludes, FileType, Tree};
use extant_mkfs::{DmVerity, DmVerityReport, FsVerity, HashAlgorithm};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How a file of a tree for dm-verity begins: its mark and version.
const MARK: &[u8] = b"verity\0\0\x01\0\0\0";

/// What is asked for, checked.
#[derive(Debug)]
pub(super) struct Verity {
    dm: Option<Dm>,
    files: Files,
}

/// The tree for dm-verity that is asked for.
#[derive(Debug)]
pub(in crate::commands) struct Dm {
    place: Place,
    algorithm: HashAlgorithm,
    salt: Option<Vec<u8>>,
    data_block_size: Option<u32>,
    hash_block_size: Option<u32>,
}

/// Which files get trees of fs-verity, and how.
#[derive(Debug)]
pub(in crate::commands) struct Files {
    /// Patterns, each with what it is on the command line.
    pub(in crate::commands) patterns: Vec<(String, Excludes)>,
    pub(in crate::commands) list: Option<PathBuf>,
    pub(in crate::commands) algorithm: HashAlgorithm,
    pub(in crate::commands) salt: Vec<u8>,
    pub(in crate::commands) block_size: Option<u32>,
}

#[derive(Debug)]
enum Place {
    /// Behind the file system, and with it within so many bytes.
    Behind(Option<u64>),
    Apart(PathBuf),
}

impl Dm {
    /// Checks what was asked for, if anything was; `room` is what the image may take at most, where
    /// its place says so. `others` are what the tree may not take the place of, each with what it
    /// is.
    pub(in crate::commands) fn new<'a>(
        asked: &DmVerityArgs,
        room: Option<u64>,
        others: impl IntoIterator<Item = (&'static str, &'a Path)>,
    ) -> Outcome<Option<Self>> {
        let place = match asked.dm_verity.as_deref() {
            None => return Ok(None),
            Some(word) if word == "append" => Place::Behind(room),
            Some(file) => Place::Apart(apart(Path::new(file), others)?),
        };
        Ok(Some(Self {
            place,
            algorithm: algorithm(asked.dm_verity_hash.as_deref(), "--dm-verity-hash")?,
            salt: salt_of(asked.dm_verity_salt.as_deref(), "--dm-verity-salt")?,
            data_block_size: bytes_of(asked.dm_verity_data_block_size),
            hash_block_size: bytes_of(asked.dm_verity_hash_block_size),
        }))
    }

    /// Whether the tree lies behind the file system.
    pub(in crate::commands) const fn is_behind(&self) -> bool {
        matches!(self.place, Place::Behind(_))
    }

    /// How to make the tree. What is in the place of its file is looked at.
    pub(in crate::commands) fn how(&self, force: bool) -> Outcome<DmVerity> {
        let mut how = match &self.place {
            Place::Behind(within) => DmVerity::behind(*within),
            Place::Apart(path) => DmVerity::apart(path.clone(), replaced(path, force)?),
        };
        how.algorithm = self.algorithm;
        how.salt.clone_from(&self.salt);
        how.data_block_size = self.data_block_size;
        how.hash_block_size = self.hash_block_size.unwrap_or(how.hash_block_size);
        Ok(how)
    }
}

impl Files {
    /// Checks what was asked for.
    pub(in crate::commands) fn new(asked: &FsVerityArgs) -> Outcome<Self> {
        let files_are_named = !asked.fs_verity.is_empty() || asked.fs_verity_list.is_some();
        let how = [&asked.fs_verity_salt, &asked.fs_verity_hash];
        let says_how = how.iter().any(|how| how.is_some()) || asked.fs_verity_block_size.is_some();
        if says_how && !files_are_named {
            return Err(Failure::usage(
                "--fs-verity-salt, --fs-verity-hash and --fs-verity-block-size go with --fs-verity or \
                 --fs-verity-list, which say which files",
            ));
        }
        let patterns = asked.fs_verity.iter().map(pattern);
        let salt = salt_of(asked.fs_verity_salt.as_deref(), "--fs-verity-salt")?;
        Ok(Self {
            patterns: patterns.collect::<Outcome<_>>()?,
            list: asked.fs_verity_list.clone(),
            algorithm: algorithm(asked.fs_verity_hash.as_deref(), "--fs-verity-hash")?,
            salt: salt.unwrap_or_default(),
            block_size: bytes_of(asked.fs_verity_block_size),
        })
    }

    /// Whether no file is asked for.
    pub(in crate::commands) const fn is_none(&self) -> bool {
        self.patterns.is_empty() && self.list.is_none()
    }
}

impl Verity {
    /// Checks what was asked for; `room` is what the image may take at most, where its place says
    /// so.
    pub(super) fn new(args: &Mkfs, room: Option<u64>) -> Outcome<Self> {
        let sources = args.plan.sources.from.iter().map(Path::new);
        let others = [("the image", args.image.as_path())].into_iter();
        let others = others.chain(sources.map(|source| ("a source", source)));
        let dm = Dm::new(&args.verity.dm, room, others)?;
        let files = Files::new(&args.verity.fs)?;
        Ok(Self { dm, files })
    }

    /// The trees of files of what the image is filled with, if some are asked for, and of how many.
    pub(super) fn of_files(&self, tree: Option<&Tree>) -> Outcome<Option<(FsVerity, u64)>> {
        let asked = &self.files;
        if asked.is_none() {
            return Ok(None);
        }
        let mut files = BTreeSet::new();
        for (text, pattern) in &asked.patterns {
            let found = tree.map(|tree| tree.matching(pattern)).unwrap_or_default();
            if found.is_empty() {
                return Err(Failure::new(format!(
                    "--fs-verity {text}: there is no such regular file in the source"
                )));
            }
            files.extend(found);
        }
        if let Some(list) = &asked.list {
            files.extend(listed(list, "the source", |path| {
                let tree = tree?;
                let found = tree.lookup(path)?;
                (tree.node(found).kind() == FileType::Regular).then_some(found)
            })?);
        }
        let count = files.len() as u64;
        let mut how = FsVerity::new(files);
        how.algorithm = asked.algorithm;
        how.salt.clone_from(&asked.salt);
        how.block_size = asked.block_size;
        Ok(Some((how, count)))
    }

    /// How to make the tree for dm-verity, if one is asked for. What is in the place of its file is
    /// looked at.
    pub(super) fn of_device(&self, force: bool) -> Outcome<Option<DmVerity>> {
        self.dm.as_ref().map(|dm| dm.how(force)).transpose()
    }
}

/// The file of a tree, which is neither the image nor a source.
fn apart<'a>(
    path: &Path,
    others: impl IntoIterator<Item = (&'static str, &'a Path)>,
) -> Outcome<PathBuf> {
    let place = |path: &Path| path.canonicalize().ok().or_else(|| place_of(path));
    let tree = place(path);
    for (what, other) in others {
        if tree.is_some() && place(other) == tree {
            return Err(Failure::usage(format!(
                "--dm-verity names {what}: give the hash tree a file of its own, or say append"
            )));
        }
    }
    Ok(path.to_owned())
}

/// Which file the tree may take the name of: one with a tree, or one without anything of use. A
/// disk that `extant mkfs` has made is none either: a tree is no build of it that runs again.
fn replaced(path: &Path, force: bool) -> Outcome<Replaces> {
    // Before it is looked at: what takes the name afterwards was not.
    let seen = Replaces::what_is_at(path);
    let mut head = Vec::new();
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    if is_file && let Ok(file) = File::open(path) {
        let read = file.take(MARK.len() as u64).read_to_end(&mut head);
        if read.is_ok() && head == MARK && !force {
            return Ok(seen);
        }
    }
    if !force {
        refuse_over_disk(path, "a hash tree")?;
    }
    replacing::check_precious(path, force)
}

fn algorithm(text: Option<&str>, option: &str) -> Outcome<HashAlgorithm> {
    let algorithm = text.map_or(Ok(HashAlgorithm::default()), HashAlgorithm::from_str);
    algorithm.map_err(|e| Failure::usage(format!("{option}: {e}")))
}

fn pattern(text: &OsString) -> Outcome<(String, Excludes)> {
    let shown = Escaped(text.as_bytes()).to_string();
    let pattern = Excludes::new([text.as_bytes()]);
    let pattern = pattern.map_err(|e| Failure::usage(format!("--fs-verity: {e}")))?;
    Ok((shown, pattern))
}

/// The regular files of `whole` whose paths a file lists, one a line, as `find` finds them; empty
/// lines and those that begin with `#` are left out.
pub(in crate::commands) fn listed<T>(
    list: &Path,
    whole: &str,
    mut find: impl FnMut(&[u8]) -> Option<T>,
) -> Outcome<Vec<T>> {
    let place = Escaped::path(list);
    let text = std::fs::read(list).map_err(|e| Failure::new(format!("{place}: {e}")))?;
    let mut files = Vec::new();
    for (line, path) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        if path.is_empty() || path.starts_with(b"#") {
            continue;
        }
        files.push(find(path).ok_or_else(|| {
            Failure::new(format!(
                "{place}, line {line}: {} is no regular file in {whole}",
                Escaped(path)
            ))
        })?);
    }
    Ok(files)
}

fn bytes_of(asked: Option<u64>) -> Option<u32> {
    asked.map(|size| u32::try_from(size).unwrap_or(u32::MAX))
}

fn salt_of(text: Option<&str>, option: &str) -> Outcome<Option<Vec<u8>>> {
    text.map(|text| salt(option, text)).transpose()
}

fn salt(option: &str, text: &str) -> Outcome<Vec<u8>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let wrong = || {
        Failure::usage(format!(
            "{option}: {} is no hexadecimal of whole bytes, such as 5eed0001; none means \
             none",
            Escaped(text.as_bytes())
        ))
    };
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|d| !d.is_empty() && d.len() % 2 == 0);
    let pairs = digits.ok_or_else(wrong)?;
    Ok(pairs.chunks(2).map(|p| (p[0] << 4 | p[1]) as u8).collect())
}

/// A tree for dm-verity, for programs.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Hashed {
    root_hash: String,
    salt: String,
    uuid: String,
    hash_algorithm: String,
    data_block_size: u32,
    data_blocks: u64,
    hash_block_size: u32,
    hash_offset: u64,
    /// Bytes of the image, or of the file apart, up to the end of the tree.
    end: u64,
}

impl Hashed {
    pub(in crate::commands) fn new(tree: &DmVerityReport) -> Self {
        Self {
            root_hash: hex(&tree.root_hash),
            salt: hex(&tree.salt),
            uuid: uuid(tree.uuid),
            hash_algorithm: tree.algorithm.to_string(),
            data_block_size: tree.data_block_size,
            data_blocks: tree.data_blocks,
            hash_block_size: tree.hash_block_size,
            hash_offset: tree.hash_offset,
            end: tree.end,
        }
    }
}

/// Tells of a tree for dm-verity what opening it takes.
pub(in crate::commands) fn tell(output: &mut Said, tree: &DmVerityReport) -> Outcome {
    writeln!(output, "dm-verity root hash: {}", hex(&tree.root_hash))?;
    let salt = match &*tree.salt {
        [] => "none".to_owned(),
        salt => hex(salt),
    };
    writeln!(output, "dm-verity salt: {salt}")?;
    writeln!(
        output,
        "dm-verity hash offset: {} ({}, {} data blocks of {} bytes, hash blocks of {} bytes)",
        tree.hash_offset,
        tree.algorithm,
        tree.data_blocks,
        tree.data_block_size,
        tree.hash_block_size
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::salt;

    #[test]
    fn a_salt_is_whole_bytes() {
        let salt = |text| salt("--salt", text).ok();
        assert_eq!(salt("5eed00Ff"), Some(vec![0x5e, 0xed, 0, 0xff]));
        assert_eq!(salt("none"), Some(Vec::new()));
        for wrong in ["", "5", "5g", "0x5e", "é0"] {
            assert!(salt(wrong).is_none(), "{wrong}");
        }
    }
}
