//! fs-verity: content compared with the hashes that a file has of it. Only where that is asked for,
//! since all of it is read.

use crate::error::Result;
use crate::maps::{self, Run};
use crate::report::Sink;
use crate::volume::Volume;
use crate::{Code, Pass, Place, Progress};
use extant_format::Ino;
use extant_format::inode::{FileType, Inode, InodeFlags};
use extant_verity::fs::{DESCRIPTOR_LEN, DESCRIPTOR_MAX, Descriptor, descriptor_start, tree_start};
use extant_verity::{Verifier, WalkError};
use rayon::prelude::*;

/// Bytes read at once, a multiple of every block.
const CHUNK: u64 = 1 << 20;

/// Compares the content of these inodes with their hashes.
pub(crate) fn run(volume: &Volume, sealed: &[Ino], progress: &dyn Progress) -> Result<Sink> {
    progress.begin(Pass::Verity, sealed.len() as u64);
    sealed
        .par_iter()
        .try_fold(Sink::new, |mut sink, &ino| {
            one(volume, ino, &mut sink)?;
            progress.advance(1);
            Ok::<_, crate::Error>(sink)
        })
        .try_reduce(Sink::new, |mut a, b| {
            a.absorb(b);
            Ok(a)
        })
}

fn one(volume: &Volume, ino: Ino, sink: &mut Sink) -> Result<()> {
    let Some((_, inode)) = volume.inode(ino)? else {
        return Ok(());
    };
    let is_sealed = inode.flags.contains(InodeFlags::VERITY);
    if inode.file_type() != Some(FileType::Regular) || !is_sealed {
        return Ok(());
    }
    let place = Place::ino(ino);
    let file = Sealed {
        volume,
        runs: maps::runs(volume, ino, &inode)?,
        size: inode.size,
    };
    let descriptor = match file.descriptor(&inode)? {
        Ok(descriptor) => descriptor,
        Err(why) => {
            sink.say(Code::VerityDescriptor, place, why);
            return Ok(());
        }
    };
    let mut verifier = Verifier::new(
        descriptor.shape(),
        descriptor.salted(),
        descriptor.block_log2,
        descriptor.root_hash,
    );
    let mut at = 0;
    while at < file.size {
        let len = (file.size - at).min(CHUNK);
        // The last block is filled up with zeros.
        let whole = len.next_multiple_of(1 << descriptor.block_log2);
        let mut bytes = vec![0; whole as usize];
        file.read(at, bytes.get_mut(..len as usize).unwrap_or_default())?;
        for (index, block) in
            (at >> descriptor.block_log2..).zip(bytes.chunks(1 << descriptor.block_log2))
        {
            let tree = tree_start(file.size);
            let read = |from: u64, to: &mut [u8]| file.read(tree + from, to);
            let offset = index << descriptor.block_log2;
            let lblk = maps::lblk(offset >> volume.block_size().log2());
            match verifier.check(index, block, read) {
                Ok(()) => {}
                Err(WalkError::Read(e)) => return Err(e),
                Err(WalkError::Data { found, expected }) => {
                    let text = format!("byte {offset}: the hash is {found}, expected {expected}");
                    sink.say(Code::VerityContent, place.at_lblk(lblk), text);
                    return Ok(());
                }
                Err(WalkError::Tree { .. } | WalkError::Beyond) => {
                    let text = format!(
                        "the hashes that byte {offset} is compared with do not lead to the root hash"
                    );
                    sink.say(Code::VerityContent, place.at_lblk(lblk), text);
                    return Ok(());
                }
            }
        }
        at += len;
    }
    file.tail(place, sink)
}

/// A file with hashes.
struct Sealed<'a> {
    volume: &'a Volume,
    runs: Vec<Run>,
    size: u64,
}

impl Sealed<'_> {
    /// Looks at the last block behind the end of the file, which Linux hashes as it is.
    fn tail(&self, place: Place, sink: &mut Sink) -> Result<()> {
        let size = self.volume.block_size();
        let within = self.size % u64::from(size.bytes());
        if within == 0 {
            return Ok(());
        }
        let mut tail = vec![0; (u64::from(size.bytes()) - within) as usize];
        self.read(self.size, &mut tail)?;
        if let Some(at) = tail.iter().position(|&byte| byte != 0) {
            let text = format!(
                "byte {}, behind the end of the file, is not zero: Linux does not read the block",
                self.size + at as u64
            );
            let lblk = maps::lblk(self.size >> size.log2());
            sink.say(Code::VerityContent, place.at_lblk(lblk), text);
        }
        Ok(())
    }

    /// What describes the hashes, or why there is no such thing.
    fn descriptor(&self, inode: &Inode) -> Result<std::result::Result<Descriptor, String>> {
        let log2 = self.volume.block_size().log2();
        if !inode.flags.contains(InodeFlags::EXTENTS) {
            return Ok(Err("a file without extents has no descriptor".to_owned()));
        }
        // Blocks that are mapped over and over would be hashed without end.
        let mapped: u64 = self.runs.iter().map(|run| u64::from(run.len)).sum();
        if mapped > self.volume.geo.blocks_count() {
            return Ok(Err("its map has more blocks than there are".to_owned()));
        }
        let last = self.runs.iter().rev().find(|run| !run.unwritten);
        let end = last.map_or(0, |run| (u64::from(run.lblk) + u64::from(run.len)) << log2);
        let missing = || Ok(Err("it has no descriptor".to_owned()));
        let Some(at) = end.checked_sub(4).filter(|at| *at >= tree_start(self.size)) else {
            return missing();
        };
        let mut len = [0; 4];
        self.read(at, &mut len)?;
        let len = u64::from(u32::from_le_bytes(len));
        if !(DESCRIPTOR_LEN as u64..=DESCRIPTOR_MAX).contains(&len) {
            return Ok(Err(format!("its descriptor cannot have {len} bytes")));
        }
        let Some(start) = descriptor_start(self.size, end, len, log2) else {
            return missing();
        };
        let mut bytes = vec![0; len as usize];
        self.read(start, &mut bytes)?;
        Ok(Descriptor::parse(&bytes, self.size).map_err(|e| e.to_string()))
    }

    /// Reads from byte `offset` of the file, wherever it ends; holes are zeros.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let lblk = at >> log2;
            let next = self
                .runs
                .partition_point(|run| u64::from(run.lblk) + u64::from(run.len) <= lblk);
            let run = self.runs.get(next);
            let start = run.map_or(u64::MAX, |run| u64::from(run.lblk) << log2);
            let (end, from) = match run.filter(|_| start <= at) {
                Some(run) => {
                    let end = (u64::from(run.lblk) + u64::from(run.len)) << log2;
                    let from = (run.pblk << log2) + (at - start);
                    (end, Some(from).filter(|_| !run.unwritten))
                }
                None => (start, None),
            };
            let len = usize::try_from(end - at).unwrap_or(usize::MAX);
            let len = len.min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            match from {
                Some(from) => self.volume.read_bytes(from, now)?,
                None => now.fill(0),
            }
            at += len as u64;
            rest = later;
        }
        Ok(())
    }
}
