//! What the replies to requests say, checked against what was asked.

use super::connection::{Broken, Connection, Run};
use super::job::Job;
use super::replies::{Part, Progress, Reader};
use super::wire::{self, Command, Fields, chunk, spoken};
use std::ops::Range;

/// Most bytes of a list of extents.
const MOST_TOLD: u32 = 1 << 20;
/// Most bytes of an error: its text has at most 4096.
const MOST_SAID: u32 = 16 << 10;

/// A request as the thread that reads sees it.
struct Open {
    run: u64,
    number: usize,
    command: Command,
    offset: u64,
    len: u32,
}

impl Connection {
    fn take_vec(&self, reader: &mut Reader, len: u32) -> Result<Vec<u8>, Broken> {
        let mut bytes = vec![0; len as usize];
        self.take(reader, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads one message. Returns 1 if it ends a request of this thread.
    pub(super) fn read_with(
        &self,
        reader: &mut Reader,
        run: &Run<'_>,
        jobs: &mut [Job<'_>],
    ) -> Result<usize, Broken> {
        reader.begin();
        let mut magic = [0; 4];
        self.take(reader, &mut magic)?;
        match u32::from_be_bytes(magic) {
            wire::SIMPLE_REPLY => self.read_simple(reader, run, jobs),
            wire::CHUNK if self.export.structured => self.read_chunk(reader, run, jobs),
            _ => Err(self.wrong("a reply begins with a wrong number")),
        }
    }

    fn read_simple(
        &self,
        reader: &mut Reader,
        run: &Run<'_>,
        jobs: &mut [Job<'_>],
    ) -> Result<usize, Broken> {
        let mut head = [0; 12];
        self.take(reader, &mut head)?;
        let mut fields = Fields(&head);
        let (error, cookie) = fields.u32().zip(fields.u64()).unwrap_or_default();
        let open = self.find(cookie)?;
        if error != 0 {
            return self.finish(run, jobs, cookie, Err((error, String::new())));
        }
        match open.command {
            Command::Read if self.export.structured => {
                return Err(self.wrong("a read is answered in the simple way"));
            }
            Command::BlockStatus => return Err(self.wrong("extents were asked for, none came")),
            Command::Read => self.read_part(reader, run, jobs, cookie, &open, 0..open.len)?,
            _ => {}
        }
        self.finish(run, jobs, cookie, Ok(()))
    }

    fn read_chunk(
        &self,
        reader: &mut Reader,
        run: &Run<'_>,
        jobs: &mut [Job<'_>],
    ) -> Result<usize, Broken> {
        let mut head = [0; 16];
        self.take(reader, &mut head)?;
        let mut fields = Fields(&head);
        let (flags, kind) = fields.u16().zip(fields.u16()).unwrap_or_default();
        let (cookie, len) = fields.u64().zip(fields.u32()).unwrap_or_default();
        let is_last = flags & chunk::DONE != 0;
        let open = self.find(cookie)?;
        match kind {
            chunk::NONE if len == 0 && is_last => {}
            chunk::OFFSET_DATA if open.command == Command::Read && len > 8 => {
                let place = self.take_vec(reader, 8)?;
                let part = self.part(&open, Fields(&place).u64(), len - 8)?;
                self.read_part(reader, run, jobs, cookie, &open, part)?;
            }
            chunk::OFFSET_HOLE if open.command == Command::Read && len == 12 => {
                let told = self.take_vec(reader, 12)?;
                let mut fields = Fields(&told);
                let place = fields.u64();
                let part = self.part(&open, place, fields.u32().unwrap_or_default())?;
                self.cover(cookie, part.clone())?;
                if open.run == run.number {
                    let _ = jobs[open.number].fill_part(part, |piece| {
                        piece.fill(0);
                        Ok::<_, Broken>(())
                    });
                } else {
                    let zeroes = Part::Zeroes(part.end - part.start);
                    self.change(cookie, |progress| progress.parts.push((part.start, zeroes)))?;
                }
            }
            chunk::BLOCK_STATUS if open.command == Command::BlockStatus => {
                self.read_extents(reader, cookie, &open, len)?;
            }
            kind if kind & chunk::ERROR_BIT != 0 => {
                self.read_error(reader, cookie, kind, len)?;
            }
            _ => return Err(self.wrong("a chunk that does not fit its request")),
        }
        let mut chunks = 0;
        self.change(cookie, |progress| {
            progress.chunks += 1;
            chunks = progress.chunks;
        })?;
        if !is_last {
            return if chunks > most_chunks(&open) {
                Err(self.wrong("a reply that does not end"))
            } else {
                Ok(0)
            };
        }
        let mut result = Ok(());
        let mut is_whole = true;
        self.change(cookie, |progress| {
            if let Some(error) = progress.error.take() {
                result = Err(error);
            } else {
                is_whole = match open.command {
                    Command::Read => progress.is_whole(open.len),
                    Command::BlockStatus => progress.extents.is_some(),
                    _ => true,
                };
            }
        })?;
        if !is_whole {
            return Err(self.wrong("a reply that lacks some of what was asked for"));
        }
        self.finish(run, jobs, cookie, result)
    }

    /// The part of a read that a chunk is about.
    fn part(&self, open: &Open, place: Option<u64>, len: u32) -> Result<Range<u32>, Broken> {
        let start = place.and_then(|place| place.checked_sub(open.offset));
        let start = start.and_then(|start| u32::try_from(start).ok());
        match start.and_then(|start| Some(start..start.checked_add(len)?)) {
            Some(part) if !part.is_empty() && part.end <= open.len => Ok(part),
            _ => Err(self.wrong("a chunk that lies outside of its request")),
        }
    }

    fn read_part(
        &self,
        reader: &mut Reader,
        run: &Run<'_>,
        jobs: &mut [Job<'_>],
        cookie: u64,
        open: &Open,
        part: Range<u32>,
    ) -> Result<(), Broken> {
        self.cover(cookie, part.clone())?;
        if open.run == run.number {
            return jobs[open.number].fill_part(part, |piece| self.take(reader, piece));
        }
        let bytes = self.take_vec(reader, part.end - part.start)?;
        self.change(cookie, |progress| {
            progress.parts.push((part.start, Part::Bytes(bytes)));
        })
    }

    fn cover(&self, cookie: u64, part: Range<u32>) -> Result<(), Broken> {
        let mut is_new = false;
        self.change(cookie, |progress| is_new = progress.cover(part))?;
        if is_new {
            Ok(())
        } else {
            Err(self.wrong("the same bytes come twice"))
        }
    }

    fn read_extents(
        &self,
        reader: &mut Reader,
        cookie: u64,
        open: &Open,
        len: u32,
    ) -> Result<(), Broken> {
        if !(12..=MOST_TOLD).contains(&len) || len % 8 != 4 {
            return Err(self.wrong("a list of extents of a wrong length"));
        }
        let told = self.take_vec(reader, len)?;
        let mut fields = Fields(&told);
        let context = fields.u32();
        let mut extents = Vec::with_capacity(len as usize / 8);
        let mut total = 0_u64;
        while let Some(extent) = fields.u32().zip(fields.u32()) {
            // The last one may reach beyond what was asked for.
            if extent.0 == 0 || total >= open.len.into() {
                return Err(self.wrong("extents that cannot be"));
            }
            total += u64::from(extent.0);
            extents.push(extent);
        }
        let mut is_first = false;
        self.change(cookie, |progress| {
            is_first = progress.extents.is_none();
            progress.extents = Some(extents);
        })?;
        if context != self.export.allocation || !is_first {
            return Err(self.wrong("extents that were not asked for"));
        }
        Ok(())
    }

    fn read_error(
        &self,
        reader: &mut Reader,
        cookie: u64,
        kind: u16,
        len: u32,
    ) -> Result<(), Broken> {
        let known = matches!(kind, chunk::ERROR | chunk::ERROR_OFFSET);
        if len > MOST_SAID || (known && len < 6) {
            return Err(self.wrong("an error of a wrong length"));
        }
        let told = self.take_vec(reader, len)?;
        let mut fields = Fields(&told);
        let error = fields.u32().unwrap_or_default();
        let text_len = usize::from(fields.u16().unwrap_or_default());
        let text = match fields.0.get(..text_len) {
            Some(text) => spoken(text),
            None if known => return Err(self.wrong("an error of a wrong length")),
            None => String::new(),
        };
        if known && error == 0 {
            return Err(self.wrong("an error without a number"));
        }
        self.change(cookie, |progress| {
            let error = if error == 0 { 5 } else { error };
            progress.error.get_or_insert((error, text));
        })
    }

    /// The request that a reply is about.
    fn find(&self, cookie: u64) -> Result<Open, Broken> {
        let state = self.state.lock();
        let found = state.pending.get(&cookie).map(|open| Open {
            run: open.run,
            number: open.number,
            command: open.command,
            offset: open.offset,
            len: open.len,
        });
        drop(state);
        found.ok_or_else(|| self.wrong("a reply to what was not asked"))
    }

    fn change(&self, cookie: u64, change: impl FnOnce(&mut Progress)) -> Result<(), Broken> {
        let mut state = self.state.lock();
        let open = state.pending.get_mut(&cookie).ok_or(Broken)?;
        change(&mut open.progress);
        Ok(())
    }
}

/// Most chunks of the reply to a request. For a read, a hole and data in turn for each 128 bytes
/// are far more than any server sends; others have one that counts, and errors.
fn most_chunks(open: &Open) -> u32 {
    match open.command {
        Command::Read => 64 + open.len / 128,
        _ => 64,
    }
}
