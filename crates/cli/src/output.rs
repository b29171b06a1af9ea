//! Standard output: terminal or not, names made safe, closed pipes.

use crate::commands::e2fsprogs::Called;
use crate::failure::Outcome;
use extant::Escaped;
use serde::Serialize;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output.
pub(crate) struct Output {
    writer: BufWriter<Stdout>,
    is_terminal: bool,
}

/// Standard output itself.
struct Stdout {
    lock: StdoutLock<'static>,
    /// What a reader that has gone would have got is dropped, and the work goes on.
    outlives_reader: bool,
}

impl Stdout {
    /// What came of writing, with `dropped` in place of a reader that has gone.
    fn unless_gone<T>(&self, done: io::Result<T>, dropped: T) -> io::Result<T> {
        match done {
            Err(e) if self.outlives_reader && e.kind() == io::ErrorKind::BrokenPipe => Ok(dropped),
            done => done,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = self.lock.write(bytes);
        self.unless_gone(done, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = self.lock.flush();
        self.unless_gone(done, ())
    }
}

impl Output {
    pub(crate) fn new() -> Self {
        let lock = io::stdout().lock();
        let is_terminal = lock.is_terminal();
        let stdout = Stdout {
            lock,
            outlives_reader: Called::now().is_some_and(Called::outlives_reader),
        };
        Self {
            is_terminal,
            writer: BufWriter::with_capacity(64 << 10, stdout),
        }
    }

    /// Whether it is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes a name: as it is for programs; for a terminal so that it cannot command it.
    pub(crate) fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.is_terminal {
            write!(self.writer, "{}", Escaped(name))
        } else {
            self.writer.write_all(name)
        }
    }

    /// Writes a name and ends the line.
    pub(crate) fn name_line(&mut self, name: &[u8]) -> io::Result<()> {
        self.name(name)?;
        self.writer.write_all(b"\n")
    }

    /// Writes an object on one line.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from)?;
        self.writer.write_all(b"\n")
    }

    /// Writes an object for people and programs.
    pub(crate) fn json_pretty(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut self.writer, value).map_err(io::Error::from)?;
        self.writer.write_all(b"\n")
    }

    pub(crate) fn finish(mut self) -> Outcome {
        self.writer.flush()?;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
