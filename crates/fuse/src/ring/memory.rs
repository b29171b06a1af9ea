//! What the kernel writes requests to, and reads answers from.
//!
//! A [`Slot`] is one request's place. Its owner may use its memory; the kernel uses that of the
//! slots which were given to it, and says of each when it is done with it. Nothing here waits for
//! that: a slot that the kernel has is kept by the thread whose ring gave it, untouched.
#![allow(unsafe_code)]

use crate::protocol::{IN_HEADER, InHeader, OUT_HEADER, OutHeader};
use io_uring::{opcode, squeue::Entry128, types::Fixed};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// `FUSE_IO_URING_CMD_REGISTER`: takes a slot for the first time.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: takes an answer, and the slot for the next request.
const COMMIT_AND_FETCH: u32 = 2;

const PAGE: usize = 4096;

/// Bytes of the header of a request, or of an answer.
const HEADER: usize = 128;
/// Bytes of the fixed part of a request.
pub(super) const FIXED: usize = 128;
/// Where the number by which an answer is taken lies, and the length of what is in the payload.
const COMMIT_ID: usize = HEADER + FIXED + 8;
const PAYLOAD_LEN: usize = HEADER + FIXED + 16;
/// Bytes of all that.
const HEADERS: usize = HEADER + FIXED + 32;
/// Where the two parts of a slot are told to the kernel: behind them.
const PARTS: usize = 1024;
/// Where the field with the length of a command lies in it, which has no setter.
const SQE_LEN: usize = 24;

/// Memory of one queue's slots: a page of headers and a payload for each.
#[derive(Debug)]
struct Memory {
    base: NonNull<u8>,
    len: usize,
    payload: usize,
}

// SAFETY: it is plain memory, which is reached through slots alone; each is had by one at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(slots: usize, payload: usize) -> io::Result<Self> {
        let payload = payload.next_multiple_of(PAGE);
        let len = slots * (PAGE + payload);
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, flags, MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, payload })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no slot is left that reaches it. Slots that the kernel may
        // still have are never dropped: see `commands::Commands`.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// The place of one request.
#[derive(Debug)]
pub(super) struct Slot {
    memory: Arc<Memory>,
    /// Its place in the memory.
    place: usize,
    /// The processor whose requests it is for, and which of its slots this is.
    queue: u16,
    number: usize,
    /// Its request waits for the kernel.
    pub(super) waits: bool,
}

/// A request's header and its fixed part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) header: InHeader,
    pub(super) fixed: [u8; FIXED],
}

impl Slot {
    /// Makes `count` slots of queue `queue`, with numbers from `first` on, and `payload` bytes of
    /// payload each.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(super) fn several(
        queue: u16,
        first: usize,
        count: usize,
        payload: usize,
    ) -> io::Result<Vec<Self>> {
        let memory = Arc::new(Memory::new(count, payload)?);
        let slot = |place| Self {
            memory: Arc::clone(&memory),
            place,
            queue,
            number: first + place,
            waits: false,
        };
        Ok((0..count).map(slot).collect())
    }

    /// Returns the processor whose requests it is for.
    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    /// Returns what the kernel names it by.
    pub(super) fn tag(&self) -> u64 {
        (u64::from(self.queue) << 32) | self.number as u64
    }

    fn begin(&self) -> *mut u8 {
        let offset = self.place * (PAGE + self.memory.payload);
        // SAFETY: places are below the count that the memory was made for.
        unsafe { self.memory.base.as_ptr().add(offset) }
    }

    fn headers(&self) -> &[u8; HEADERS] {
        // SAFETY: within the slot's page, which nobody else uses while there is this reference to
        // the slot.
        unsafe { &*self.begin().cast() }
    }

    fn headers_mut(&mut self) -> &mut [u8; HEADERS] {
        // SAFETY: as above; the reference to the slot is the only one.
        unsafe { &mut *self.begin().cast() }
    }

    /// Reads the header and the fixed part of the request that is here.
    pub(super) fn request(&self) -> Parts {
        let (header, rest) = self.headers().split_at(HEADER);
        let mut fixed = [0; FIXED];
        fixed.copy_from_slice(rest.get(..FIXED).unwrap_or_default());
        let mut bytes = [0; IN_HEADER];
        bytes.copy_from_slice(header.get(..IN_HEADER).unwrap_or_default());
        let Ok(header) = InHeader::read_from_bytes(&bytes) else {
            unreachable!("any bytes are a header");
        };
        Parts { header, fixed }
    }

    fn word<const LEN: usize>(&self, at: usize) -> [u8; LEN] {
        let mut word = [0; LEN];
        let found = self.headers().get(at..at + LEN).unwrap_or_default();
        word.copy_from_slice(found);
        word
    }

    /// Returns what follows the fixed part of the request that is here.
    pub(super) fn rest(&self) -> &[u8] {
        let len = u32::from_ne_bytes(self.word(PAYLOAD_LEN)) as usize;
        // SAFETY: the payload lies behind the page of headers; it is the slot's as they are.
        let payload =
            unsafe { std::slice::from_raw_parts(self.begin().add(PAGE), self.memory.payload) };
        payload.get(..len).unwrap_or_default()
    }

    /// Lends the room for the body of the answer.
    pub(super) fn payload_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the reference to the slot is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.begin().add(PAGE), self.memory.payload) }
    }

    /// Puts the header of an answer, whose body of `len` bytes is at the beginning of the payload.
    pub(super) fn reply(&mut self, unique: u64, error: i32, len: usize) {
        let len = u32::try_from(len).unwrap_or(0);
        let header = OutHeader {
            len: len + OUT_HEADER as u32,
            error,
            unique,
        };
        let headers = self.headers_mut();
        if let Some(into) = headers.get_mut(..OUT_HEADER) {
            into.copy_from_slice(header.as_bytes());
        }
        if let Some(into) = headers.get_mut(PAYLOAD_LEN..PAYLOAD_LEN + 4) {
            into.copy_from_slice(&len.to_ne_bytes());
        }
    }

    /// Makes the command that gives the slot to the kernel for the first time, as one of its queue.
    pub(super) fn register(&mut self, device: Fixed) -> Entry128 {
        let begin = self.begin();
        let parts = [
            libc::iovec {
                iov_base: begin.cast(),
                iov_len: HEADERS,
            },
            libc::iovec {
                // SAFETY: the payload lies behind the page of headers.
                iov_base: unsafe { begin.add(PAGE).cast() },
                iov_len: self.memory.payload,
            },
        ];
        // SAFETY: within the slot's page and aligned in it; nobody else uses it.
        let addresses = unsafe {
            let addresses = begin.add(PARTS).cast::<[libc::iovec; 2]>();
            addresses.write(parts);
            addresses
        };
        let mut entry = opcode::UringCmd80::new(device, REGISTER)
            .addr(Some(addresses.addr() as u64))
            .cmd(command(0, self.queue))
            .build()
            .user_data(self.tag());
        let len = (parts.len() as u32).to_ne_bytes();
        // SAFETY: an entry is plain data of 128 bytes in the kernel's layout, which has this field
        // of four bytes here.
        unsafe {
            let field = std::ptr::from_mut(&mut entry).cast::<u8>().add(SQE_LEN);
            field.cast::<[u8; 4]>().write(len);
        }
        entry
    }

    /// Makes the command that gives the answer here to the kernel, and the slot with it.
    pub(super) fn commit(&self, device: Fixed) -> Entry128 {
        let id = u64::from_ne_bytes(self.word(COMMIT_ID));
        opcode::UringCmd80::new(device, COMMIT_AND_FETCH)
            .cmd(command(id, self.queue))
            .build()
            .user_data(self.tag())
    }
}

/// Puts together what the kernel reads in a command: flags, which answer, which queue.
fn command(commit_id: u64, queue: u16) -> [u8; 80] {
    let mut bytes = [0; 80];
    let fields: [(usize, &[u8]); 2] = [(8, &commit_id.to_ne_bytes()), (16, &queue.to_ne_bytes())];
    for (at, field) in fields {
        if let Some(into) = bytes.get_mut(at..at + field.len()) {
            into.copy_from_slice(field);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_touch_each_other() {
        let mut slots = Slot::several(0, 0, 3, 8192).unwrap();
        for slot in &mut slots {
            let number = slot.tag();
            slot.payload_mut().fill(number as u8 + 1);
            slot.reply(number, -5, 8192);
        }
        for slot in &slots {
            assert_eq!(slot.rest().len(), 8192);
            let expected = slot.tag() as u8 + 1;
            assert!(slot.rest().iter().all(|&byte| byte == expected));
            let header = OutHeader::read_from_prefix(slot.headers()).unwrap().0;
            assert_eq!((header.unique, header.error), (slot.tag(), -5));
        }
    }

    #[test]
    fn commands_are_where_the_kernel_looks_for_them() {
        const { assert!(size_of::<Entry128>() == 128) };
        let bytes = |entry: Entry128| -> [u8; 128] {
            // SAFETY: an entry is plain data of that length.
            unsafe { std::mem::transmute(entry) }
        };
        let word = |bytes: &[u8; 128], at: usize| {
            u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        let mut slots = Slot::several(7, 5, 2, 4096).unwrap();
        let slot = &mut slots[1];
        let begin = slot.begin() as u64;
        let registers = bytes(slot.register(Fixed(3)));
        // The operation, the file among the registered ones, which command.
        assert_eq!((registers[0], registers[4], registers[8]), (46, 3, 1));
        assert_eq!(word(&registers, 16), begin + PARTS as u64);
        assert_eq!(registers[24..28], 2_u32.to_ne_bytes());
        assert_eq!(word(&registers, 32), (7 << 32) + 6);
        assert_eq!((word(&registers, 48), word(&registers, 56)), (0, 0));
        assert_eq!(registers[64..66], 7_u16.to_ne_bytes());
        slot.headers_mut()[COMMIT_ID..COMMIT_ID + 8].copy_from_slice(&99_u64.to_ne_bytes());
        let commits = bytes(slot.commit(Fixed(3)));
        assert_eq!((commits[0], commits[8]), (46, 2));
        assert_eq!(word(&commits, 56), 99);
        assert_eq!(commits[64..66], 7_u16.to_ne_bytes());
    }

    #[test]
    fn a_length_that_is_no_length_of_a_payload_is_none() {
        let mut slots = Slot::several(0, 0, 1, 4096).unwrap();
        slots[0].reply(1, 0, 4097);
        assert_eq!(slots[0].rest(), b"");
    }
}
