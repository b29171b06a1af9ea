//! One file, exercised at random: reads, writes, cuts, reservations and changes of whole ranges, of
//! any size at any place, each read compared with what was written.
//!
//! The plan of such a test is that of the `fsx` program (Apple and others, 1991): most bugs of a
//! data path need no more than a few operations that overlap in one small file. What a byte must be
//! is known at any time, and when it differs the last operations and the one that wrote the byte
//! are printed.

use crate::rng::Rng;
use std::collections::VecDeque;
use std::fmt;
use std::io;

/// The file under test. Operations that have nothing to do, in the way the subject is used, do
/// nothing.
pub trait Subject {
    /// Reads from `offset`; fewer bytes at the end of the file only.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `bytes`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Cuts the file or makes it longer.
    fn set_len(&mut self, size: u64) -> io::Result<()>;
    /// Reserves space, beyond the end of the file without moving it when `keep_size` is set.
    fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> io::Result<()>;
    /// Changes a range without writing to it; whether it did. Does nothing unless the subject has
    /// such changes.
    fn change_range(&mut self, offset: u64, len: u64, how: RangeChange) -> io::Result<bool> {
        let _ = (offset, len, how);
        Ok(false)
    }
    /// The next data or hole at or after `offset`; none when there is no more data.
    fn seek(&mut self, offset: u64, what: Seek) -> io::Result<Option<u64>>;
    /// The size of the file.
    fn size(&mut self) -> io::Result<u64>;
    /// Makes everything durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Closes everything and opens it again.
    fn reopen(&mut self) -> io::Result<()>;
}

/// What becomes of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeChange {
    /// It becomes a hole. The size of the file stays.
    Punch,
    /// It becomes zeros. The file grows if it ends before.
    Zero,
    /// It is taken out. It begins and ends with blocks, and ends before the file does.
    Collapse,
    /// A hole is put in where it begins, which is inside the file. It begins and ends with blocks.
    Insert,
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that may be other than zero.
    Data,
    /// Zeros that take no space, the end of the file among them.
    Hole,
}

/// How a file is exercised.
#[derive(Debug, Clone)]
pub struct Exercise {
    /// Repeats a run.
    pub seed: u64,
    /// How many operations.
    pub operations: u64,
    /// Most bytes the file has.
    pub most_bytes: u64,
    /// Most bytes of one operation.
    pub largest_transfer: u64,
    /// Offsets and lengths of reads and writes are multiples of this, as direct I/O wants them.
    pub aligned_to: u64,
    /// Offsets and lengths of ranges taken out and put in are multiples of this: the size of a
    /// block, or of a cluster.
    pub moved_by: u64,
}

impl Exercise {
    /// Small operations on a small file, which meet often.
    pub fn new(seed: u64, operations: u64) -> Exercise {
        Exercise {
            seed,
            operations,
            most_bytes: 400_000,
            largest_transfer: 64 << 10,
            aligned_to: 1,
            moved_by: LARGEST_BLOCK,
        }
    }

    /// Runs it on an empty file.
    ///
    /// # Panics
    ///
    /// When an operation fails or something else is read than what was written.
    pub fn run(&self, subject: &mut impl Subject) {
        let mut run = Run {
            exercise: self,
            rng: Rng::new(self.seed),
            content: Vec::new(),
            writer: Vec::new(),
            number: 0,
            last: VecDeque::new(),
        };
        for number in 1..=self.operations {
            run.number = number;
            run.step(subject);
        }
        run.number += 1;
        let all = (self.most_bytes + 1).next_multiple_of(self.aligned_to);
        run.compare(subject, 0, all);
    }
}

/// One operation, to be printed.
#[derive(Clone, Copy)]
enum Operation {
    Read {
        offset: u64,
        len: u64,
    },
    Write {
        offset: u64,
        len: u64,
    },
    SetLen {
        size: u64,
    },
    Allocate {
        offset: u64,
        len: u64,
        keep_size: bool,
    },
    Change {
        offset: u64,
        len: u64,
        how: RangeChange,
    },
    Seek {
        offset: u64,
        what: Seek,
    },
    Sync,
    Reopen,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |f: &mut fmt::Formatter<'_>, what: &str, offset: u64, len: u64| {
            write!(f, "{what} {offset}..{} ({len} bytes)", offset + len)
        };
        match *self {
            Operation::Read { offset, len } => span(f, "read", offset, len),
            Operation::Write { offset, len } => span(f, "write", offset, len),
            Operation::SetLen { size } => write!(f, "set the size to {size}"),
            Operation::Allocate {
                offset,
                len,
                keep_size: false,
            } => span(f, "reserve", offset, len),
            Operation::Allocate {
                offset,
                len,
                keep_size: true,
            } => span(f, "reserve, the size kept,", offset, len),
            Operation::Change { offset, len, how } => span(f, how.name(), offset, len),
            Operation::Seek {
                offset,
                what: Seek::Data,
            } => write!(f, "look for data from {offset}"),
            Operation::Seek {
                offset,
                what: Seek::Hole,
            } => write!(f, "look for a hole from {offset}"),
            Operation::Sync => f.write_str("sync"),
            Operation::Reopen => f.write_str("open again"),
        }
    }
}

impl RangeChange {
    fn name(self) -> &'static str {
        match self {
            Self::Punch => "punch",
            Self::Zero => "make zeros of",
            Self::Collapse => "take out",
            Self::Insert => "put in",
        }
    }
}

struct Run<'a> {
    exercise: &'a Exercise,
    rng: Rng,
    content: Vec<u8>,
    /// Which operation wrote each byte, for the report.
    writer: Vec<u32>,
    number: u64,
    last: VecDeque<(u64, Operation)>,
}

/// Operations that a report shows.
const SHOWN: usize = 40;
/// Bytes of the largest blocks.
const LARGEST_BLOCK: u64 = 4096;

impl Run<'_> {
    fn step(&mut self, subject: &mut impl Subject) {
        match self.rng.below(1000) {
            0..380 => {
                let (offset, len) = self.place();
                self.note(Operation::Write { offset, len });
                let mut bytes = vec![0; len as usize];
                self.rng.fill(&mut bytes);
                self.must(subject.write(offset, &bytes));
                self.wrote(offset, &bytes);
            }
            380..710 => {
                let (offset, len) = self.place();
                self.compare(subject, offset, len);
            }
            710..800 => {
                // Little more than half of all cuts are to less than there is.
                let size = self.rng.below(self.exercise.most_bytes);
                self.note(Operation::SetLen { size });
                self.must(subject.set_len(size));
                self.resize(size);
            }
            800..860 => {
                let (offset, len) = self.place();
                let keep_size = self.rng.one_in(2);
                self.note(Operation::Allocate {
                    offset,
                    len,
                    keep_size,
                });
                self.must(subject.allocate(offset, len, keep_size));
                if !keep_size && offset + len > self.size() {
                    self.resize(offset + len);
                }
            }
            860..920 => self.change_range(subject),
            920..970 => self.seek(subject),
            970..995 => {
                self.note(Operation::Sync);
                self.must(subject.sync());
            }
            _ => {
                self.note(Operation::Reopen);
                self.must(subject.reopen());
            }
        }
        let size = self.must(subject.size());
        if size != self.size() {
            self.fail(format_args!("the size is {size}, not {}", self.size()));
        }
    }

    fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// A piece of the file, one that is not empty, small as often as large.
    fn place(&mut self) -> (u64, u64) {
        let unit = self.exercise.aligned_to;
        let most = match self.rng.below(4) {
            0 => 64.max(unit),
            1 => 5000.max(unit),
            _ => self.exercise.largest_transfer,
        };
        let len = self.rng.between(1, most / unit) * unit;
        // One in four begins or ends where the file does.
        let end = self.size() / unit * unit;
        let offset = match self.rng.below(8) {
            0 => end,
            1 => end.saturating_sub(len),
            _ => self.rng.below(self.exercise.most_bytes / unit) * unit,
        };
        let room = (self.exercise.most_bytes / unit * unit).saturating_sub(offset);
        let offset = if room == 0 { 0 } else { offset };
        (offset, if room == 0 { len } else { len.min(room) })
    }

    fn wrote(&mut self, offset: u64, bytes: &[u8]) {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if end > self.content.len() {
            self.resize(end as u64);
        }
        self.content[start..end].copy_from_slice(bytes);
        self.writer[start..end].fill(self.number as u32);
    }

    fn resize(&mut self, size: u64) {
        self.content.resize(size as usize, 0);
        self.writer.resize(size as usize, self.number as u32);
    }

    fn change_range(&mut self, subject: &mut impl Subject) {
        let how = match self.rng.below(4) {
            0 => RangeChange::Punch,
            1 => RangeChange::Zero,
            2 => RangeChange::Collapse,
            _ => RangeChange::Insert,
        };
        let (offset, len) = match how {
            RangeChange::Punch | RangeChange::Zero => self.place(),
            RangeChange::Collapse | RangeChange::Insert => {
                let unit = self.exercise.moved_by;
                let offset = self.rng.below(self.size() / unit + 1) * unit;
                let most = (self.exercise.largest_transfer / unit).max(1);
                (offset, self.rng.between(1, most) * unit)
            }
        };
        let end = offset + len;
        let fits = match how {
            RangeChange::Punch | RangeChange::Zero => true,
            RangeChange::Collapse => end < self.size(),
            RangeChange::Insert => {
                offset < self.size() && self.size() + len <= self.exercise.most_bytes
            }
        };
        if !fits {
            return;
        }
        self.note(Operation::Change { offset, len, how });
        if !self.must(subject.change_range(offset, len, how)) {
            return;
        }
        let (start, end, len) = (offset as usize, end as usize, len as usize);
        let size = self.content.len();
        match how {
            RangeChange::Punch => {
                let (start, end) = (start.min(size), end.min(size));
                self.content[start..end].fill(0);
                self.writer[start..end].fill(self.number as u32);
            }
            RangeChange::Zero => self.wrote(offset, &vec![0; len]),
            RangeChange::Collapse => {
                self.content.drain(start..end);
                self.writer.drain(start..end);
            }
            RangeChange::Insert => {
                let zeros = std::iter::repeat_n(0, len);
                self.content.splice(start..start, zeros);
                let number = std::iter::repeat_n(self.number as u32, len);
                self.writer.splice(start..start, number);
            }
        }
    }

    fn compare(&mut self, subject: &mut impl Subject, offset: u64, len: u64) {
        self.note(Operation::Read { offset, len });
        // What is not filled is noticed.
        let mut found = vec![0xdb; len as usize];
        let count = self.must(subject.read(offset, &mut found));
        let start = (offset as usize).min(self.content.len());
        let end = (offset + len).min(self.size()) as usize;
        let expected = &self.content[start..end.max(start)];
        if count != expected.len() {
            self.fail(format_args!(
                "{count} bytes were read, not {}",
                expected.len()
            ));
        }
        let differs = found.iter().zip(expected).position(|(f, e)| f != e);
        if let Some(at) = differs {
            let wrong = found.iter().zip(expected).filter(|(f, e)| f != e).count();
            let last = found.iter().zip(expected).rposition(|(f, e)| f != e);
            self.fail(format_args!(
                "byte {} is {:#04x}, not {:#04x} as operation {} left it; {wrong} bytes up to {} differ",
                offset as usize + at,
                found[at],
                expected[at],
                self.writer[start + at],
                offset as usize + last.unwrap_or(at),
            ));
        }
    }

    /// Data lies in what is called data. (What is called data may be zeros.)
    fn seek(&mut self, subject: &mut impl Subject) {
        let offset = self.rng.below(self.size() + 1000);
        self.note(Operation::Seek {
            offset,
            what: Seek::Data,
        });
        let data = self.must(subject.seek(offset, Seek::Data));
        let end = data.unwrap_or(self.size()).min(self.size());
        let zeros = self
            .content
            .get(offset as usize..end as usize)
            .unwrap_or(&[]);
        if let Some(at) = zeros.iter().position(|&byte| byte != 0) {
            let at = offset + at as u64;
            self.fail(format_args!(
                "data is said to begin at {data:?}, but byte {at} is data"
            ));
        }
        if data.is_some_and(|at| at < offset || at >= self.size()) {
            self.fail(format_args!("data is said to begin at {data:?}"));
        }
        self.note(Operation::Seek {
            offset,
            what: Seek::Hole,
        });
        let hole = self.must(subject.seek(offset, Seek::Hole));
        let inside = offset < self.size();
        if hole.is_some() != inside || hole.is_some_and(|at| at < offset || at > self.size()) {
            self.fail(format_args!("a hole is said to begin at {hole:?}"));
        }
        if hole == Some(offset) && data == Some(offset) {
            self.fail(format_args!("both data and a hole are said to begin there"));
        }
    }

    fn note(&mut self, operation: Operation) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back((self.number, operation));
    }

    fn must<T>(&self, result: io::Result<T>) -> T {
        result.unwrap_or_else(|e| self.fail(format_args!("{e}")))
    }

    fn fail(&self, what: fmt::Arguments<'_>) -> ! {
        let mut told = String::new();
        for (number, operation) in &self.last {
            told += &format!("{number:>8} {operation}\n");
        }
        panic!(
            "seed {:#x}, operation {}: {what}\nThe last operations:\n{told}",
            self.exercise.seed, self.number
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// A file in memory that forgets to clear what is cut off, if told so.
    #[derive(Default)]
    struct Memory {
        bytes: Vec<u8>,
        size: usize,
        forgets: bool,
    }

    impl Subject for Memory {
        fn read(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            let found = self.bytes[..self.size]
                .get(offset as usize..)
                .unwrap_or(&[]);
            let count = found.len().min(buf.len());
            buf[..count].copy_from_slice(&found[..count]);
            Ok(count)
        }

        fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let end = offset as usize + bytes.len();
            self.set_len(end.max(self.size) as u64)?;
            self.bytes[offset as usize..end].copy_from_slice(bytes);
            Ok(())
        }

        fn set_len(&mut self, size: u64) -> io::Result<()> {
            self.size = size as usize;
            if !self.forgets {
                self.bytes.truncate(self.size);
            }
            self.bytes.resize(self.bytes.len().max(self.size), 0);
            Ok(())
        }

        fn allocate(&mut self, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
            let end = offset + len;
            if keep_size || end <= self.size as u64 {
                Ok(())
            } else {
                self.set_len(end)
            }
        }

        fn seek(&mut self, offset: u64, what: Seek) -> io::Result<Option<u64>> {
            let inside = offset < self.size as u64;
            Ok(inside.then_some(match what {
                Seek::Data => offset,
                Seek::Hole => self.size as u64,
            }))
        }

        fn size(&mut self) -> io::Result<u64> {
            Ok(self.size as u64)
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn reopen(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_is_right_passes() {
        Exercise::new(1, 2000).run(&mut Memory::default());
        let aligned = Exercise {
            aligned_to: 4096,
            ..Exercise::new(2, 500)
        };
        aligned.run(&mut Memory::default());
    }

    #[test]
    fn old_bytes_that_come_back_are_found_and_the_operations_told() {
        let mut memory = Memory {
            forgets: true,
            ..Memory::default()
        };
        let run = catch_unwind(AssertUnwindSafe(|| Exercise::new(1, 2000).run(&mut memory)));
        let told = run.expect_err("a mistake that is not found");
        let told = told.downcast_ref::<String>().expect("a text");
        assert!(told.contains("bytes up to"), "{told}");
        assert!(told.contains("set the size to"), "{told}");
    }
}
