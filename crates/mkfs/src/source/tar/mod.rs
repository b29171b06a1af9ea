//! Reads a tar stream into a [`Tree`].
//!
//! | module | owns |
//! |---|---|
//! | `input` | bytes of the archive: seekable file or stream, compression, spooling of data |
//! | `header` | the 512-byte header: checksum, numbers, names |
//! | `pax` | extended headers: records, times, extended attributes |
//! | `sparse` | the maps of sparse members |
//! | `acl` | access control lists from their text |
//! | `assemble` | members into the tree: paths, hard links, replacement, whiteouts |
//! | `layer` | archives over what other sources hold |
//!
//! Understood: v7, ustar, GNU (long names, old sparse), pax (POSIX, with the keywords of GNU tar,
//! star, libarchive and Docker); plain or compressed, in several pieces too. The archive is
//! hostile input: every error names the byte and the member, memory is bounded by the
//! number of members and `EXTENSION_MAX`.
//!
//! Data of an uncompressed archive in a regular file stays there and is read in place; otherwise
//! it goes to an unnamed file in [`TarOptions::spool_dir`].
//!
//! What extraction would do, the tree shows: a later member replaces an earlier one of the same
//! name, a directory's attributes come from its last member, missing directories are made. A member
//! beneath a symbolic link goes where the link leads, which is never outside the tree: `/` and `..`
//! end at its root, as container tools have it. Refused are names with `..` in them, whiteouts (a
//! layer of a container image is no tree), and anything behind the archive's end.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::error::{SourceError, SourceResult};
use super::exclude::Excludes;
use super::model::Tree;

pub(crate) mod acl;
mod assemble;
mod header;
mod input;
mod layer;
mod pax;
mod sparse;

pub(super) use assemble::{Assembly, Below};
use header::{BLOCK, Header, Kind};
pub(super) use input::Allowance;
use input::Input;
pub(super) use layer::{Bytes, Survey, add_layer, settle, settle_layer, survey};
use pax::Pax;

/// Longest extended header or long name, in bytes. The attributes of one file fit Linux's limit
/// of 64 KiB for each value many times.
const EXTENSION_MAX: u64 = 16 << 20;

/// Most bytes of global extended headers in an archive: they are taken up by every member.
const GLOBAL_MAX: u64 = 1 << 20;

/// How to read an archive.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TarOptions {
    /// What stays out.
    pub excludes: Excludes,
    /// Where the data of members is put if the archive cannot be read in place: a directory
    /// with room for all of it, best that of the image.
    pub spool_dir: PathBuf,
}

impl Default for TarOptions {
    fn default() -> Self {
        Self {
            excludes: Excludes::default(),
            spool_dir: std::env::temp_dir(),
        }
    }
}

/// Reads the archive at `path`; `-` is the standard input.
///
/// # Errors
///
/// [`SourceError::NotASource`] for what is known to be something else;
/// [`SourceError::Archive`] with byte offset and member for an archive that breaks its format
/// (offsets count decompressed bytes), is cut short, or holds what ext4 cannot;
/// [`SourceError::Io`] if it cannot be read, or its data not be spooled.
pub fn read_tar(path: &Path, options: &TarOptions) -> SourceResult<Tree> {
    read(open(path, options)?, options)
}

fn open(path: &Path, options: &TarOptions) -> SourceResult<Input> {
    let file = if path.as_os_str() == "-" {
        // A regular file may be behind the standard input: then it is read in place.
        rustix::io::dup(std::io::stdin())
            .map(File::from)
            .map_err(|e| SourceError::io("open", path, e))?
    } else {
        File::open(path).map_err(|e| SourceError::io("open", path, e))?
    };
    Input::from_file(file, path, options)
}

/// Reads these bytes as an archive that is not compressed.
pub(super) fn read_bytes(bytes: &Bytes, name: &Path, options: &TarOptions) -> SourceResult<Tree> {
    read(Input::within(bytes, name), options)
}

/// Reads an archive from a stream. `name` stands for it in errors.
///
/// # Errors
///
/// Those of [`read_tar`].
pub fn read_tar_stream(
    stream: impl Read + Send + 'static,
    name: &Path,
    options: &TarOptions,
) -> SourceResult<Tree> {
    read(Input::from_stream(stream, name, options)?, options)
}

fn read(mut input: Input, options: &TarOptions) -> SourceResult<Tree> {
    let mut assembly = Assembly::new(&options.excludes, Below::Nothing, None)?;
    let warnings = read_into(&mut input, &mut assembly)?;
    let builder = assembly.finish()?;
    let mut tree = builder.finish_with(vec![input.into_store()])?;
    tree.warnings = warnings;
    Ok(tree)
}

/// Puts all members of an archive into the tree; gives what there is to say about it.
fn read_into(input: &mut Input, assembly: &mut Assembly<'_>) -> SourceResult<Vec<String>> {
    let mut reading = Reading::default();
    // How many there are, and the first of them.
    let mut unknown = 0_u64;
    let mut first_unknown = None;
    while let Some(member) = reading.next_member(input)? {
        let offset = member.offset;
        let name = member.path.clone();
        if let Kind::Unknown(flag) = member.header.kind {
            unknown += 1;
            first_unknown.get_or_insert_with(|| (flag, name.clone()));
        }
        add(assembly, input, member).map_err(|problem| problem.at(input, offset, Some(&name)))?;
    }
    check_end(input)?;
    assembly
        .end_archive()
        .map_err(|(offset, name, problem)| problem.at(input, offset, Some(&name)))?;
    let mut warnings = Vec::new();
    if let Some((flag, name)) = &first_unknown {
        warnings.push(format!(
            "{} of an unknown type: taken for regular files (the first is {:?}, type {:?})",
            match unknown {
                1 => "1 member".to_owned(),
                count => format!("{count} members"),
            },
            String::from_utf8_lossy(name),
            char::from(*flag)
        ));
    }
    if !reading.has_end && !input.is_whole() {
        warnings.push(format!(
            "{} ends without the mark of an archive's end: it may have been cut short",
            input.name().display()
        ));
    }
    Ok(warnings)
}

fn add(assembly: &mut Assembly<'_>, input: &mut Input, member: Member) -> Checked<()> {
    match member.header.kind {
        Kind::Regular | Kind::Unknown(_) | Kind::OldSparse => {
            let map = sparse::map_of(input, &member)?;
            let extents = input.take_data(member.stored - map.header_bytes, &map)?;
            assembly.add_file(&member, map.size, &extents)
        }
        Kind::DumpDirectory => {
            input.skip_padded(member.stored)?;
            assembly.add_other(&member)
        }
        _ => assembly.add_other(&member),
    }
}

/// What follows the end must be zeros: a second archive would be lost, and other data means that
/// something went wrong.
fn check_end(input: &mut Input) -> SourceResult<()> {
    let Some((offset, block)) = input.rest()? else {
        return Ok(());
    };
    let problem = if Header::parse(&block).is_ok() {
        "another archive follows the end of this one: build from each, or join them first (tar -A, or extract both)"
    } else {
        "data that is no archive follows the end: the file is damaged, or more than an archive"
    };
    Err(Problem::from(problem).at(input, offset, None))
}

/// What is wrong with a member, before it is known where the member is.
#[derive(Debug)]
enum Problem {
    /// The archive says something wrong.
    Text(String),
    /// Something else failed, which has its own evidence.
    Source(SourceError),
}

impl From<SourceError> for Problem {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Problem {
    fn at(self, input: &Input, offset: u64, member: Option<&[u8]>) -> SourceError {
        let problem = match self {
            Self::Text(text) => text,
            // Errors of the builder do not know the path; the member's place says it.
            Self::Source(SourceError::Name { name, problem, .. }) => {
                format!("the name {name:?} {problem}")
            }
            Self::Source(SourceError::SymlinkTarget { found, .. }) => {
                format!("symbolic link target of {found} bytes, expected 1 to 4095")
            }
            Self::Source(error) => return error,
        };
        SourceError::Archive {
            archive: input.name().to_owned(),
            offset,
            member: member.map(|m| String::from_utf8_lossy(m).into_owned()),
            problem,
        }
    }
}

type Checked<T> = Result<T, Problem>;

/// A member: its header with everything its extended headers say, before its data.
struct Member {
    /// Where its first header is.
    offset: u64,
    header: Header,
    path: Vec<u8>,
    link: Vec<u8>,
    /// Bytes stored in the archive.
    stored: u64,
    pax: Pax,
}

#[derive(Default)]
struct Reading {
    global: Pax,
    global_bytes: u64,
    /// Whether the end was marked by a block of zeros.
    has_end: bool,
}

impl Reading {
    /// Reads headers up to the next member that is a file; `None` at the archive's end.
    fn next_member(&mut self, input: &mut Input) -> SourceResult<Option<Member>> {
        let start = input.position();
        let mut extensions = Extensions::default();
        loop {
            let offset = input.position();
            let fail = |input: &Input, problem: Problem| problem.at(input, offset, None);
            let mut block = [0; BLOCK];
            let more = input.read_block(&mut block)?;
            if !more && offset == 0 {
                return Err(fail(input, "the archive is empty".into()));
            }
            if !more || block.iter().all(|&b| b == 0) {
                if extensions.any {
                    let problem = "the archive ends after an extended header";
                    return Err(fail(input, problem.into()));
                }
                self.has_end = more;
                return Ok(None);
            }
            let header = Header::parse(&block).map_err(|p| match p {
                Problem::Text(text) if offset == 0 => fail(
                    input,
                    format!("{text}; if this is no tar archive: give a directory, a tar archive (plain or compressed), or a container image")
                        .into(),
                ),
                p => fail(input, p),
            })?;
            match header.kind {
                Kind::Extension(tag) => {
                    self.extend(&mut extensions, tag, input, header.size)
                        .map_err(|p| p.at(input, offset, Some(&header.name)))?;
                }
                Kind::Label => input.skip_padded(header.size)?,
                _ => {
                    return Ok(Some(extensions.apply(start, header, &self.global)));
                }
            }
        }
    }

    /// Reads an extended header. A member's own are bounded together, so are the global ones.
    fn extend(
        &mut self,
        extensions: &mut Extensions,
        tag: u8,
        input: &mut Input,
        size: u64,
    ) -> Checked<()> {
        let (total, limit) = match tag {
            b'g' => (&mut self.global_bytes, GLOBAL_MAX),
            _ => (&mut extensions.bytes, EXTENSION_MAX),
        };
        *total = total.saturating_add(size);
        if *total > limit {
            return Err(
                format!("{total} bytes of extended headers, expected at most {limit}").into(),
            );
        }
        let mut bytes = vec![0; size as usize];
        input.read_exact(&mut bytes)?;
        input.skip_padding(size)?;
        extensions.any |= tag != b'g';
        match tag {
            b'L' => extensions.long_name = Some(until_nul(bytes)),
            b'K' => extensions.long_link = Some(until_nul(bytes)),
            b'g' => self.global.merge(&bytes)?,
            _ => extensions.pax.merge(&bytes)?,
        }
        Ok(())
    }
}

/// What extended headers say about the member that follows.
#[derive(Default)]
struct Extensions {
    any: bool,
    bytes: u64,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax: Pax,
}

impl Extensions {
    fn apply(self, offset: u64, header: Header, global: &Pax) -> Member {
        let pax = self.pax.over(global);
        let name = self.long_name.unwrap_or_else(|| header.name.clone());
        let link = self.long_link.unwrap_or_else(|| header.link.clone());
        let mut member = Member {
            offset,
            path: pax.sparse.name.clone().or(pax.path.clone()).unwrap_or(name),
            link: pax.link.clone().unwrap_or(link),
            stored: pax.size.unwrap_or(header.size),
            header,
            pax,
        };
        if member.header.kind == Kind::Regular && member.path.ends_with(b"/") {
            // The way of archives older than the type flag for directories.
            member.header.kind = Kind::DumpDirectory;
        }
        member
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|&b| b == 0) {
        bytes.truncate(end);
    }
    bytes
}
