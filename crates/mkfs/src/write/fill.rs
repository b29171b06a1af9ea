//! Fills segments and writes them: file data, directories, maps and attributes, in parallel.

use crate::place::{Content, Listing, Placement};
use crate::source::{FileData, NodeId, Tree};
use crate::verity::Sealer;
use crate::write::segments::{Part, SEGMENT_BYTES, Segment};
use crate::write::{Progress, WriteResult};
use extant_blockdev::{BlockDevice, Gathering};
use extant_format::Ino;
use extant_format::checksum::Crc32c;

/// Zeros are looked for in pieces of this many bytes; a shorter run is written as it is.
const ZERO_GRAIN: usize = 4096;

/// Where an image goes.
#[derive(Clone, Copy)]
pub(crate) struct Sink<'d> {
    pub(crate) device: &'d dyn BlockDevice,
    /// The device reads as zeros wherever nothing was written: zeros need not be.
    pub(crate) zeroed: bool,
}

impl Sink<'_> {
    /// Writes `bytes`, leaving out what is zero already.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> WriteResult<()> {
        if !self.zeroed {
            self.device.write_at(offset, bytes)?;
            return Ok(());
        }
        let mut changes = Gathering::new(self.device);
        let mut start = None;
        let mut at = 0;
        for grain in bytes.chunks(ZERO_GRAIN) {
            if is_zero(grain) {
                if let Some(from) = start.take() {
                    changes.write(offset + from as u64, &bytes[from..at])?;
                }
            } else if start.is_none() {
                start = Some(at);
            }
            at += grain.len();
        }
        if let Some(from) = start {
            changes.write(offset + from as u64, &bytes[from..])?;
        }
        Ok(changes.end()?)
    }
}

/// Whether all bytes are zero. Written so that it compiles to vector code.
fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks
        .iter()
        .all(|block| block.iter().fold(0, |a, b| a | b) == 0)
        && rest.iter().all(|b| *b == 0)
}

/// What a worker keeps between segments: a buffer, and the file it is in the middle of.
pub(crate) struct Filler<'p> {
    tree: &'p Tree,
    placement: &'p Placement,
    buffer: Vec<u8>,
    open: Option<FileData<'p>>,
    /// Hashes what is read.
    sealer: Option<&'p Sealer<'p>>,
}

impl<'p> Filler<'p> {
    /// A worker's own state.
    pub(crate) fn new(tree: &'p Tree, placement: &'p Placement) -> Self {
        Self {
            tree,
            placement,
            buffer: Vec::new(),
            open: None,
            sealer: None,
        }
    }

    /// Has what is read of files hashed.
    pub(crate) fn sealed_by(mut self, sealer: Option<&'p Sealer<'p>>) -> Self {
        self.sealer = sealer;
        self
    }

    /// Fills a segment and writes it.
    ///
    /// # Errors
    /// The source cannot be read or has changed; the device fails.
    pub(crate) fn write(
        &mut self,
        segment: &Segment,
        sink: Sink<'_>,
        progress: &dyn Progress,
    ) -> WriteResult<()> {
        if let [part] = &segment.parts[..]
            && let Content::Directory { ino, lblk } = part.content
        {
            return self.write_directory(segment, (ino, lblk), sink, progress);
        }
        let block = self.placement.shape.block_size.len();
        let len = segment.blocks as usize * block;
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let mut rest = &mut buffer[..len];
        for part in &segment.parts {
            let (bytes, after) = rest.split_at_mut(part.blocks as usize * block);
            self.fill(part, bytes)?;
            rest = after;
        }
        self.close()?;
        sink.write(
            segment.pblk << self.placement.shape.block_size.log2(),
            &buffer[..len],
        )?;
        progress.advance(len as u64);
        self.buffer = buffer;
        Ok(())
    }

    /// Fills `bytes`, which are as long as the part, with what is placed there.
    ///
    /// # Errors
    /// The source cannot be read or has changed.
    pub(crate) fn fill(&mut self, part: &Part, bytes: &mut [u8]) -> WriteResult<()> {
        let placement = self.placement;
        match part.content {
            Content::File { node, lblk } => self.read_file(node, lblk, bytes),
            // Made of hashes of the whole file, by what has them.
            Content::Seal { .. } => Ok(()),
            Content::Directory { ino, lblk } => self.encode_directory(ino, lblk, bytes),
            Content::Symlink { node } => {
                bytes.fill(0);
                let target = self.tree.symlink_target(node).unwrap_or_default();
                bytes[..target.len()].copy_from_slice(target);
                Ok(())
            }
            Content::Tree { ino, index } => {
                let seed = placement.shape.inode_seed(ino);
                Ok(placement.maps.encode_tree_block(index, bytes, seed)?)
            }
            Content::AttrBlock { index } => {
                Ok(placement
                    .attrs
                    .encode_block(index, bytes, placement.shape.seed)?)
            }
            Content::AttrValue { index, lblk } => {
                let value = placement.attrs.value(index);
                let from = value
                    .len()
                    .min(lblk as usize * placement.shape.block_size.len());
                let len = (value.len() - from).min(bytes.len());
                bytes[..len].copy_from_slice(&value[from..from + len]);
                bytes[len..].fill(0);
                Ok(())
            }
        }
    }

    fn read_file(&mut self, node: NodeId, lblk: u32, bytes: &mut [u8]) -> WriteResult<()> {
        if self.open.as_ref().is_none_or(|file| file.node() != node) {
            self.close()?;
            self.open = Some(self.tree.open(node)?);
        }
        if let Some(file) = &self.open {
            file.read_at(
                u64::from(lblk) << self.placement.shape.block_size.log2(),
                bytes,
            )?;
        }
        self.sealer
            .map_or(Ok(()), |sealer| sealer.note(node, lblk, bytes))
    }

    /// Lets go of the open file, after a last look at whether it changed while it was read.
    fn close(&mut self) -> WriteResult<()> {
        if let Some(file) = self.open.take() {
            file.check_unchanged()?;
        }
        Ok(())
    }

    fn listing(&self, ino: Ino) -> Listing<'p> {
        match self.placement.numbering.node(ino) {
            Some(id) => self.placement.listing(self.tree, id),
            None => self.placement.lost_found_listing(self.tree),
        }
    }

    fn directory_seed(&self, ino: Ino) -> Crc32c {
        self.placement.shape.inode_seed(ino).unwrap_or(Crc32c::INIT)
    }

    fn encode_directory(&self, ino: Ino, lblk: u32, bytes: &mut [u8]) -> WriteResult<()> {
        let listing = self.listing(ino);
        let laid_out = self.placement.shape.dirs.lay_out(&listing)?;
        laid_out.encode(self.directory_seed(ino), lblk, bytes);
        Ok(())
    }

    /// Writes many blocks of a directory, which is laid out once, with as much memory as others
    /// take.
    fn write_directory(
        &mut self,
        segment: &Segment,
        (ino, lblk): (Ino, u32),
        sink: Sink<'_>,
        progress: &dyn Progress,
    ) -> WriteResult<()> {
        let log2 = self.placement.shape.block_size.log2();
        let listing = self.listing(ino);
        let laid_out = self.placement.shape.dirs.lay_out(&listing)?;
        let seed = self.directory_seed(ino);
        let mut buffer = std::mem::take(&mut self.buffer);
        let at_once = (SEGMENT_BYTES >> log2).max(1);
        let mut done = 0;
        while done < segment.blocks {
            let len = ((segment.blocks - done).min(at_once) << log2) as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            let bytes = &mut buffer[..len];
            laid_out.encode(seed, lblk + done as u32, bytes);
            sink.write((segment.pblk + done) << log2, bytes)?;
            progress.advance(len as u64);
            done += at_once;
        }
        self.buffer = buffer;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_makes_a_block_worth_writing() {
        let mut bytes = [0u8; 200];
        assert!(is_zero(&bytes));
        for i in [0, 63, 64, 199] {
            bytes[i] = 1;
            assert!(!is_zero(&bytes));
            bytes[i] = 0;
        }
    }
}
