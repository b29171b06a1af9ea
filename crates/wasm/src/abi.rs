//! The functions that a program calls, and those that it gives.
//!
//! Numbers that may be large are `f64`, which JavaScript has. Paths go in through the room that
//! [`extant_room`] gives. A function returns 0, or the number of an error. What else it has to say
//! lies in two rooms, by [`extant_result`], [`extant_result_len`], [`extant_more`] and
//! [`extant_more_len`], until the next call: of an error its sentence. One image is open at a time,
//! and one archive is made at a time.
//!
//! A panic tells its sentence by `extant_panic` and then traps. The instance is not to be used any
//! more then.
#![allow(unsafe_code, unreachable_pub)]

use crate::{Failure, Image, Progress, Tar, Told};
use extant_blockdev::{BlockDevice, DeviceError, DeviceResult};
use extant_format::errno::EBADF;
use std::cell::RefCell;
use std::sync::Arc;

#[link(wasm_import_module = "extant")]
unsafe extern "C" {
    /// Reads a range of the image into memory; 1, or 0 when that fails.
    fn extant_read_image(offset: f64, to: *mut u8, len: usize) -> i32;
    /// Hears how far work is, and which.
    fn extant_progress(what: *const u8, len: usize, done: f64, all: f64);
    /// Hears why the instance ends.
    fn extant_panic(why: *const u8, len: usize);
}

#[derive(Default)]
struct State {
    image: Option<Image>,
    tar: Option<Tar>,
    input: Vec<u8>,
    result: Vec<u8>,
    more: Vec<u8>,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

/// The file, by the reader of the program.
#[derive(Debug)]
struct PageDevice {
    size: u64,
}

impl BlockDevice for PageDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn name(&self) -> String {
        "the image".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        // SAFETY: the program fills the buffer, which lives until the call is over, and no more.
        match unsafe { extant_read_image(offset as f64, buf.as_mut_ptr(), buf.len()) } {
            1 => Ok(()),
            _ => Err(DeviceError::Io {
                op: "read",
                device: self.name(),
                offset,
                len: buf.len() as u64,
                source: std::io::Error::other("the program could not read the file"),
            }),
        }
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> DeviceResult<()> {
        Err(DeviceError::ReadOnly {
            device: self.name(),
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}

/// The program, which hears how far work is.
struct Page;

impl Progress for Page {
    fn told(&self, what: &'static str, done: u64, all: u64) {
        // SAFETY: the program reads the text during the call.
        unsafe { extant_progress(what.as_ptr(), what.len(), done as f64, all as f64) }
    }
}

/// What a call has to say.
type Rooms = (Vec<u8>, Vec<u8>);

fn text(text: String) -> Rooms {
    (text.into_bytes(), Vec::new())
}

fn numbers(numbers: &[f64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// Does something with the state, and puts what it says into the rooms.
fn answer(ask: impl FnOnce(&mut State) -> Told<Rooms>) -> i32 {
    STATE.with_borrow_mut(|state| {
        let (code, rooms) = match ask(state) {
            Ok(rooms) => (0, rooms),
            Err(why) => (why.errno.max(1), text(why.text)),
        };
        (state.result, state.more) = rooms;
        code
    })
}

/// Does something with the image, and the path that was put into the room.
fn with_image(ask: impl FnOnce(&Image, &[u8]) -> Told<Rooms>) -> i32 {
    answer(|state| match &state.image {
        Some(image) => ask(image, &state.input),
        None => Err(closed()),
    })
}

fn closed() -> Failure {
    Failure::new(EBADF, "no image is open")
}

/// Opens the image in a file of so many bytes: in the partition of this number, or where it is
/// found for 0.
#[unsafe(no_mangle)]
pub extern "C" fn extant_open(size: f64, partition: u32) -> i32 {
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.to_string();
        // SAFETY: the program reads the text during the call.
        unsafe { extant_panic(why.as_ptr(), why.len()) }
    }));
    answer(|state| {
        (state.image, state.tar) = (None, None);
        let file = Arc::new(PageDevice { size: size as u64 });
        let partition = (partition > 0).then_some(partition);
        let image = Image::open(file, partition, &Page)?;
        let about = image.about()?;
        state.image = Some(image);
        Ok(text(about))
    })
}

/// Makes room for a path of so many bytes, and tells where.
#[unsafe(no_mangle)]
pub extern "C" fn extant_room(len: usize) -> *mut u8 {
    STATE.with_borrow_mut(|state| {
        state.input = vec![0; len];
        state.input.as_mut_ptr()
    })
}

/// Lists a directory: names, and numbers beside them. Behind the names is an array of JSON with
/// what could not be looked at, and then the length of that in four bytes.
#[unsafe(no_mangle)]
pub extern "C" fn extant_list(whole: u32) -> i32 {
    with_image(|image, path| {
        let listing = image.list(path, whole != 0)?;
        let mut names = listing.names.clone();
        let problems = listing.problems();
        names.extend_from_slice(problems.as_bytes());
        names.extend_from_slice(&(problems.len() as u32).to_le_bytes());
        Ok((names, numbers(&listing.numbers)))
    })
}

/// Tells what is known of a file, as numbers.
#[unsafe(no_mangle)]
pub extern "C" fn extant_stat(follow: u32) -> i32 {
    with_image(|image, path| {
        let found = image.stat(path, follow != 0)?;
        Ok((numbers(&found), Vec::new()))
    })
}

/// Reads up to `len` bytes of the file of this inode.
#[unsafe(no_mangle)]
pub extern "C" fn extant_read(ino: u32, offset: f64, len: usize) -> i32 {
    with_image(|image, _| {
        // More at once would be most of the memory that there is.
        let mut buf = vec![0; len.min(16 << 20)];
        let count = image.read(ino, offset as u64, &mut buf)?;
        buf.truncate(count);
        Ok((buf, Vec::new()))
    })
}

/// Tells the target of a symbolic link.
#[unsafe(no_mangle)]
pub extern "C" fn extant_link() -> i32 {
    with_image(|image, path| Ok((image.link(path)?, Vec::new())))
}

/// Begins an archive.
#[unsafe(no_mangle)]
pub extern "C" fn extant_tar() -> i32 {
    answer(|state| {
        let image = state.image.as_ref().ok_or_else(closed)?;
        state.tar = Some(image.tar(&state.input)?);
        Ok(Rooms::default())
    })
}

/// Gives the next piece of the archive; nothing at its end, and then what is not in it, as an array
/// of JSON beside that.
#[unsafe(no_mangle)]
pub extern "C" fn extant_tar_piece() -> i32 {
    answer(|state| {
        let image = state.image.as_ref().ok_or_else(closed)?;
        let Some(tar) = &mut state.tar else {
            return Err(Failure::new(EBADF, "no archive is being made"));
        };
        if let Some(piece) = image.tar_piece(tar)? {
            return Ok((piece, Vec::new()));
        }
        let problems = serde_json::Value::from(tar.problems()).to_string();
        state.tar = None;
        Ok((Vec::new(), problems.into_bytes()))
    })
}

/// Checks the file system.
#[unsafe(no_mangle)]
pub extern "C" fn extant_check() -> i32 {
    with_image(|image, _| image.check(&Page).map(text))
}

/// Draws how the blocks are used.
#[unsafe(no_mangle)]
pub extern "C" fn extant_picture(cells: u32) -> i32 {
    with_image(|image, _| Ok((numbers(&image.picture(cells)?), Vec::new())))
}

/// Tells where the result lies, until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn extant_result() -> *const u8 {
    STATE.with_borrow(|state| state.result.as_ptr())
}

/// Tells how many bytes the result has.
#[unsafe(no_mangle)]
pub extern "C" fn extant_result_len() -> usize {
    STATE.with_borrow(|state| state.result.len())
}

/// Tells where what stands beside the result lies.
#[unsafe(no_mangle)]
pub extern "C" fn extant_more() -> *const u8 {
    STATE.with_borrow(|state| state.more.as_ptr())
}

/// Tells how many bytes that has.
#[unsafe(no_mangle)]
pub extern "C" fn extant_more_len() -> usize {
    STATE.with_borrow(|state| state.more.len())
}
