//! What of which part has been written, and where it is until it is sent.

use super::UploadOptions;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A part that is to be sent now.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) number: usize,
    pub(super) bytes: Bytes,
}

/// Ranges that have been written, ascending and not touching.
#[derive(Debug, Default)]
struct Written(Vec<Range<u64>>);

impl Written {
    fn add(&mut self, range: Range<u64>) {
        let from = self.0.partition_point(|r| r.end < range.start);
        let to = self.0.partition_point(|r| r.start <= range.end);
        let mut joined = range;
        if let Some(touched) = self.0.get(from..to).filter(|touched| !touched.is_empty()) {
            joined.start = joined.start.min(touched[0].start);
            joined.end = joined.end.max(touched[touched.len() - 1].end);
        }
        self.0.splice(from..to.max(from), [joined]);
    }

    fn is_all(&self, len: u64) -> bool {
        self.0.first() == Some(&(0..len))
    }
}

#[derive(Debug)]
enum Part {
    /// Nothing has been written: zeroes.
    Empty,
    Memory {
        bytes: Vec<u8>,
        written: Written,
    },
    /// In the temporary file, at its place.
    Spilled {
        written: Written,
    },
    Sent,
}

/// The parts of an object.
#[derive(Debug)]
pub(super) struct Parts {
    size: u64,
    part: u64,
    parts: Vec<Part>,
    /// Parts in memory, from the one that came there first.
    in_memory: VecDeque<usize>,
    most_in_memory: usize,
    temporary_dir: PathBuf,
    temporary: Option<File>,
    /// Where the end of the object is looked for next.
    next: usize,
    zeroes: Option<Bytes>,
}

impl Parts {
    pub(super) fn new(size: u64, part: u64, options: &UploadOptions) -> Self {
        let number = size.div_ceil(part).max(1) as usize;
        Self {
            size,
            part,
            parts: (0..number).map(|_| Part::Empty).collect(),
            in_memory: VecDeque::new(),
            most_in_memory: (options.memory_bytes / part).max(2) as usize,
            temporary_dir: options.temporary_dir.clone(),
            temporary: None,
            next: 0,
            zeroes: None,
        }
    }

    fn bytes_of(&self, number: usize) -> Range<u64> {
        let start = number as u64 * self.part;
        start..(start + self.part).min(self.size)
    }

    /// Writes as much of `bytes` as belongs to one part. Returns how much that was, and the part if
    /// it is complete.
    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<(usize, Option<Ready>)> {
        let number = (at / self.part) as usize;
        let place = self.bytes_of(number);
        let len = place.end - place.start;
        let within = at - place.start;
        let n = bytes.len().min((place.end - at) as usize);
        let bytes = &bytes[..n];
        let range = within..within + n as u64;
        if matches!(self.parts[number], Part::Empty) {
            // All of it at once needs no place here.
            if n as u64 == len && self.parts.len() > 1 {
                self.parts[number] = Part::Sent;
                let bytes = Bytes::copy_from_slice(bytes);
                return Ok((n, Some(Ready { number, bytes })));
            }
            self.make_room()?;
            self.in_memory.push_back(number);
            self.parts[number] = Part::Memory {
                bytes: vec![0; len as usize],
                written: Written::default(),
            };
        }
        let is_all = match &mut self.parts[number] {
            Part::Memory {
                bytes: kept,
                written,
            } => {
                kept[range.start as usize..range.end as usize].copy_from_slice(bytes);
                written.add(range);
                written.is_all(len)
            }
            Part::Spilled { written } => {
                if let Some(file) = &self.temporary {
                    file.write_all_at(bytes, at)?;
                }
                written.add(range);
                written.is_all(len)
            }
            Part::Sent | Part::Empty => return Err(sent_already()),
        };
        // The only part is the object: nothing may appear before the end.
        let ready = if is_all && self.parts.len() > 1 {
            Some(self.take(number)?)
        } else {
            None
        };
        Ok((n, ready))
    }

    /// Makes a range zeroes. What has not been written is that already.
    pub(super) fn zero(&mut self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let number = (at / self.part) as usize;
            let place = self.bytes_of(number);
            let end = range.end.min(place.end);
            match &mut self.parts[number] {
                Part::Empty => {}
                Part::Memory { bytes, .. } => {
                    bytes[(at - place.start) as usize..(end - place.start) as usize].fill(0);
                }
                Part::Spilled { .. } => {
                    if let Some(file) = &self.temporary {
                        let zeroes = vec![0; (end - at) as usize];
                        file.write_all_at(&zeroes, at)?;
                    }
                }
                Part::Sent => return Err(sent_already()),
            }
            at = end;
        }
        Ok(())
    }

    /// Reads what has not been sent.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let number = (at / self.part) as usize;
            let place = self.bytes_of(number);
            let n = (buf.len() - done).min((place.end - at) as usize);
            let into = &mut buf[done..done + n];
            match &self.parts[number] {
                Part::Empty => into.fill(0),
                Part::Memory { bytes, .. } => {
                    let from = (at - place.start) as usize;
                    into.copy_from_slice(&bytes[from..from + n]);
                }
                Part::Spilled { .. } => {
                    if let Some(file) = &self.temporary {
                        file.read_exact_at(into, at)?;
                    }
                }
                Part::Sent => return Err(sent_already()),
            }
            done += n;
        }
        Ok(())
    }

    /// The next part that has not been sent, gaps as zeroes; `None` when all have been.
    pub(super) fn take_next(&mut self) -> io::Result<Option<Ready>> {
        while let Some(part) = self.parts.get(self.next) {
            let number = self.next;
            self.next += 1;
            if !matches!(part, Part::Sent) {
                return self.take(number).map(Some);
            }
        }
        Ok(None)
    }

    fn take(&mut self, number: usize) -> io::Result<Ready> {
        let place = self.bytes_of(number);
        let len = (place.end - place.start) as usize;
        let bytes = match std::mem::replace(&mut self.parts[number], Part::Sent) {
            Part::Empty => {
                let part = self.part.min(self.size) as usize;
                let zeroes = self
                    .zeroes
                    .get_or_insert_with(|| Bytes::from(vec![0; part]));
                zeroes.slice(..len)
            }
            Part::Memory { bytes, .. } => {
                self.in_memory.retain(|&n| n != number);
                Bytes::from(bytes)
            }
            Part::Spilled { .. } => {
                let mut bytes = vec![0; len];
                if let Some(file) = &self.temporary {
                    file.read_exact_at(&mut bytes, place.start)?;
                }
                Bytes::from(bytes)
            }
            Part::Sent => return Err(sent_already()),
        };
        Ok(Ready { number, bytes })
    }

    /// Moves parts from memory to the temporary file until there is room for another.
    fn make_room(&mut self) -> io::Result<()> {
        while self.in_memory.len() >= self.most_in_memory {
            let Some(number) = self.in_memory.pop_front() else {
                return Ok(());
            };
            let place = self.bytes_of(number);
            let file = match &mut self.temporary {
                Some(file) => file,
                none => {
                    let file = tempfile::tempfile_in(&self.temporary_dir)?;
                    file.set_len(self.size)?;
                    none.insert(file)
                }
            };
            let part = &mut self.parts[number];
            if let Part::Memory { bytes, written } = part {
                for range in &written.0 {
                    let within = &bytes[range.start as usize..range.end as usize];
                    file.write_all_at(within, place.start + range.start)?;
                }
                let written = std::mem::take(written);
                *part = Part::Spilled { written };
            }
        }
        Ok(())
    }
}

fn sent_already() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this part of the object has been sent, and can be neither read nor written again: make a \
         file and upload that",
    )
}

#[cfg(test)]
mod tests {
    use super::{Parts, UploadOptions, Written};

    #[test]
    fn written_ranges_join() {
        let mut written = Written::default();
        for range in [4..6, 0..2, 8..10, 2..3, 5..9] {
            written.add(range);
        }
        assert_eq!(written.0, [0..3, 4..10]);
        written.add(1..8);
        assert!(written.is_all(10) && !written.is_all(11));
        assert_eq!(written.0.len(), 1);
    }

    #[test]
    fn any_order_gives_the_same_parts_within_bounded_memory() {
        let size: u64 = 10 * 1000 + 300;
        let bytes: Vec<u8> = (0..size).map(|n| (n * 7 % 251) as u8 + 1).collect();
        let options = UploadOptions {
            memory_bytes: 3000,
            ..UploadOptions::default()
        };
        for step in [1, 3, 7, 19, 101] {
            let mut parts = Parts::new(size, 1000, &options);
            let mut object = vec![0; size as usize];
            let mut put = |ready: super::Ready| {
                let at = ready.number * 1000;
                object[at..at + ready.bytes.len()].copy_from_slice(&ready.bytes);
            };
            let pieces = size.div_ceil(100);
            for n in 0..pieces {
                let piece = n * step % pieces;
                let (mut at, end) = (piece * 100, (piece * 100 + 100).min(size));
                while at < end {
                    let (n, ready) = parts.write(at, &bytes[at as usize..end as usize]).unwrap();
                    ready.into_iter().for_each(&mut put);
                    at += n as u64;
                }
                assert!(parts.in_memory.len() <= 3);
            }
            while let Some(ready) = parts.take_next().unwrap() {
                put(ready);
            }
            assert!(object == bytes, "step {step}");
        }
    }

    #[test]
    fn the_only_part_waits_for_the_end() {
        for steps in [&[(0, 1000)][..], &[(500, 1000), (0, 500)]] {
            let mut parts = Parts::new(1000, 1000, &UploadOptions::default());
            for &(start, end) in steps {
                let bytes = vec![3; end - start];
                assert!(parts.write(start as u64, &bytes).unwrap().1.is_none());
            }
            let ready = parts.take_next().unwrap().unwrap();
            assert!(ready.bytes == vec![3; 1000]);
            assert!(parts.take_next().unwrap().is_none());
        }
    }

    #[test]
    fn gaps_are_zeroes_and_what_was_sent_is_closed() {
        let mut parts = Parts::new(2500, 1000, &UploadOptions::default());
        assert!(parts.write(0, &[1; 400]).unwrap().1.is_none());
        parts.zero(300..1500).unwrap();
        let (n, ready) = parts.write(1000, &[2; 1500]).unwrap();
        assert_eq!((n, ready.unwrap().bytes.len()), (1000, 1000));
        assert!(parts.write(1500, &[3]).is_err());
        assert!(parts.zero(900..1001).is_err());
        let mut buf = [9; 500];
        parts.read(0, &mut buf).unwrap();
        assert_eq!((buf[299], buf[300]), (1, 0));
        assert!(parts.read(800, &mut buf).is_err());
        let mut lens = Vec::new();
        while let Some(ready) = parts.take_next().unwrap() {
            lens.push((ready.number, ready.bytes.len()));
        }
        assert_eq!(lens, [(0, 1000), (2, 500)]);
    }
}
