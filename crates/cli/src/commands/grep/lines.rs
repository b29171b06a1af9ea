//! The lines of a file, some at a time: all of them whole.
//!
//! A file with a zero byte is a binary one from there on: zero bytes end lines in it as well, so
//! that what looks for lines finds some, and holes take neither time nor memory.

use extant::File;

/// Bytes read at once.
const CHUNK: usize = 128 << 10;
/// The longest line.
const LONGEST: usize = 64 << 20;

/// Lines of a file.
pub(super) struct Lines<'a> {
    file: &'a File,
    /// Whether zero bytes are text.
    as_text: bool,
    skips_holes: bool,
    /// What has been read, and how much of it has been given out.
    buffer: Vec<u8>,
    given: usize,
    /// Bytes of the file that have been read.
    at: u64,
    is_binary: bool,
    is_over: bool,
    /// Lines that have been given out.
    lines: u64,
}

/// Some lines.
pub(super) struct Piece<'a> {
    /// Each with its end, but for the last one of a file, which may have none.
    pub(super) text: &'a [u8],
    /// The number of the first one, from 1.
    pub(super) first_line: u64,
    pub(super) is_binary: bool,
}

/// Why there are no more lines.
pub(super) enum Broken {
    Unreadable(extant::Error),
    /// A line has more bytes than this.
    TooLong(usize),
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a File, as_text: bool, skips_holes: bool) -> Self {
        Self {
            file,
            as_text,
            skips_holes,
            buffer: Vec::new(),
            given: 0,
            at: 0,
            is_binary: false,
            is_over: false,
            lines: 0,
        }
    }

    /// The next lines; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Piece<'_>>, Broken> {
        let given = self.buffer.get(..self.given).unwrap_or_default();
        self.lines += given.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.buffer.drain(..self.given);
        self.given = 0;
        // What there is of the line at the end has been looked at for its end.
        let mut looked_at = self.buffer.len();
        while !self.is_over {
            self.read()?;
            let new = self.buffer.get(looked_at..).unwrap_or_default();
            if let Some(end) = new.iter().rposition(|byte| *byte == b'\n') {
                self.given = looked_at + end + 1;
                break;
            }
            looked_at = self.buffer.len();
            if looked_at > LONGEST {
                return Err(Broken::TooLong(LONGEST));
            }
        }
        if self.is_over && self.given == 0 {
            self.given = self.buffer.len();
        }
        if self.given == 0 {
            return Ok(None);
        }
        Ok(Some(Piece {
            text: self.buffer.get(..self.given).unwrap_or_default(),
            first_line: self.lines + 1,
            is_binary: self.is_binary,
        }))
    }

    /// Reads more, or notes that there is no more.
    fn read(&mut self) -> Result<(), Broken> {
        if self.is_binary && self.skips_holes {
            self.skip_hole()?;
        }
        let before = self.buffer.len();
        self.buffer.resize(before + CHUNK, 0);
        let room = self.buffer.get_mut(before..).unwrap_or_default();
        let read = match self.file.read_at(room, self.at) {
            Ok(read) => read,
            Err(e) => {
                self.buffer.truncate(before);
                return Err(Broken::Unreadable(e));
            }
        };
        self.buffer.truncate(before + read);
        self.at += read as u64;
        self.is_over = read == 0;
        let new = self.buffer.get(before..).unwrap_or_default();
        if self.as_text || !(self.is_binary || new.contains(&0)) {
            return Ok(());
        }
        self.is_binary = true;
        for byte in self.buffer.iter_mut().filter(|byte| **byte == 0) {
            *byte = b'\n';
        }
        Ok(())
    }

    /// Goes on at the next data, with one line for all of a hole.
    fn skip_hole(&mut self) -> Result<(), Broken> {
        let size = self.file.metadata().len();
        if self.at >= size {
            return Ok(());
        }
        let data = self.file.seek_data(self.at).map_err(Broken::Unreadable)?;
        let data = data.unwrap_or(size);
        if data > self.at {
            self.buffer.push(b'\n');
            self.at = data;
        }
        Ok(())
    }
}
