//! Archives over what other sources hold: read twice, first for what they take away.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::super::data::Stamp;
use super::super::error::{SourceError, SourceResult};
use super::super::model::Timestamp;
use super::super::whiteout::Mark;
use super::assemble::{Assembly, clean};
use super::header::Kind;
use super::input::{Allowance, Input};
use super::{Checked, Member, Reading, TarOptions, open, read_into, sparse};

/// Bytes looked at together.
const CHUNK: usize = 256 << 10;

/// Names at the top of an archive that may be a container image.
const IMAGE_MARKS: [&[u8]; 4] = [
    b"oci-layout",
    b"index.json",
    b"manifest.json",
    b"repositories",
];

/// Some bytes of a file.
#[derive(Clone, Debug)]
pub(in super::super) struct Bytes {
    pub(in super::super) file: Arc<File>,
    pub(in super::super) base: u64,
    pub(in super::super) len: u64,
    /// Of the file, if it has a name; what was put into an unnamed file has none.
    pub(in super::super) stamp: Option<Stamp>,
    /// Whether a digest says that nothing is missing at its end.
    pub(in super::super) is_whole: bool,
}

impl Bytes {
    /// Reads all of them, a piece at a time. `name` stands for them in errors.
    pub(in super::super) fn each(
        &self,
        name: &Path,
        mut look: impl FnMut(&[u8]),
    ) -> SourceResult<()> {
        let mut buf = vec![0; CHUNK];
        let mut done = 0;
        while done < self.len {
            let most = usize::try_from(self.len - done).unwrap_or(CHUNK).min(CHUNK);
            let at = self.base.saturating_add(done);
            match self.file.read_at(&mut buf[..most], at) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Err(SourceError::io("read", name, error));
                }
                Ok(n) => {
                    look(&buf[..n]);
                    done += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(SourceError::io("read", name, e)),
            }
        }
        Ok(())
    }
}

/// What the first reading of an archive found.
#[derive(Debug, Default)]
pub(in super::super) struct Survey {
    whiteouts: Vec<Whiteout>,
    /// Whether it has the names that archives of container images have.
    pub(in super::super) may_be_image: bool,
}

/// A member that takes something away.
#[derive(Debug)]
struct Whiteout {
    offset: u64,
    path: Vec<u8>,
    time: Timestamp,
}

/// The archive at `path` as bytes of a file that are not compressed: where they are, or in an
/// unnamed file. `-` is the standard input.
pub(in super::super) fn settle(path: &Path, options: &TarOptions) -> SourceResult<Bytes> {
    let packed = match path.metadata() {
        Ok(meta) if meta.is_file() && path.as_os_str() != "-" => meta.len(),
        _ => u64::MAX,
    };
    open(path, options)?.settle(&Allowance::of(packed), |_| ())
}

/// The layer that these bytes are as bytes that are not compressed; `look` sees all of those.
/// `allowed` is what all layers of the image may still become.
pub(in super::super) fn settle_layer(
    packed: &Bytes,
    name: &Path,
    options: &TarOptions,
    allowed: &Allowance,
    mut look: impl FnMut(&[u8]),
) -> SourceResult<Bytes> {
    let input = Input::from_part(packed, name, options)?;
    if input.is_in_place() {
        packed.each(name, look)?;
        return Ok(packed.clone());
    }
    input.settle(allowed, &mut look)
}

/// Reads an archive for what it takes away, and what it may be.
pub(in super::super) fn survey(bytes: &Bytes, name: &Path) -> SourceResult<Survey> {
    let mut survey = Survey::default();
    // Some container tools write nothing at all for a layer without entries.
    if bytes.len == 0 {
        return Ok(survey);
    }
    let mut input = Input::within(bytes, name);
    let mut reading = Reading::default();
    while let Some(member) = reading.next_member(&mut input)? {
        look_at(&mut survey, &mut input, &member)
            .map_err(|problem| problem.at(&input, member.offset, Some(&member.path)))?;
    }
    Ok(survey)
}

fn look_at(survey: &mut Survey, input: &mut Input, member: &Member) -> Checked<()> {
    match member.header.kind {
        Kind::Regular | Kind::Unknown(_) | Kind::OldSparse => {
            let map = sparse::map_of(input, member)?;
            input.skip_padded(member.stored - map.header_bytes)?;
        }
        Kind::DumpDirectory => input.skip_padded(member.stored)?,
        _ => {}
    }
    let path = clean(&member.path)?;
    survey.may_be_image |= IMAGE_MARKS.contains(&&*path);
    if Mark::is_in(&path) {
        let time = Timestamp::from_secs(member.header.mtime);
        survey.whiteouts.push(Whiteout {
            offset: member.offset,
            path,
            time: member.pax.mtime.unwrap_or(time),
        });
    }
    Ok(())
}

/// Puts an archive over what there is; gives what there is to say about it.
pub(in super::super) fn add_layer(
    assembly: &mut Assembly<'_>,
    bytes: &Bytes,
    name: &Path,
    survey: &Survey,
) -> SourceResult<Vec<String>> {
    if bytes.len == 0 {
        return Ok(Vec::new());
    }
    let mut input = Input::within(bytes, name);
    for whiteout in &survey.whiteouts {
        assembly
            .take_away(&whiteout.path, whiteout.time)
            .map_err(|problem| problem.at(&input, whiteout.offset, Some(&whiteout.path)))?;
    }
    read_into(&mut input, assembly)
}
