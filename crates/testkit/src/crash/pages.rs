//! The content of a device as a value.
//!
//! Pages of 4 KiB hang in a table of two levels, and both are shared between copies until one of
//! them writes: a copy of a 64 MiB image costs 64 pointers, and a page of zeros costs nothing.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use extant_blockdev::{BlockDevice, DeviceResult, FileDevice, SharedDevice};

const PAGE: usize = 4096;
const PAGES_PER_LEAF: usize = 256;

type Page = [u8; PAGE];
type Leaf = [Option<Arc<Page>>; PAGES_PER_LEAF];

/// What a device holds, copied on write. A clone is independent of its original.
#[derive(Clone)]
pub struct Content {
    size: u64,
    leaves: Vec<Option<Arc<Leaf>>>,
}

impl Content {
    /// `size` bytes of zeros.
    pub fn zeros(size: u64) -> Content {
        let leaves = size.div_ceil((PAGE * PAGES_PER_LEAF) as u64);
        Content {
            size,
            leaves: vec![None; usize::try_from(leaves).expect("a device that fits a test")],
        }
    }

    /// Returns a copy of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Content {
        let mut content = Content::zeros(bytes.len() as u64);
        content.write(0, bytes);
        content
    }

    /// Returns a copy of what `device` holds now; its holes are skipped.
    ///
    /// # Errors
    ///
    /// What reading returned.
    pub fn of_device(device: &dyn BlockDevice) -> DeviceResult<Content> {
        let mut content = Content::zeros(device.size());
        let mut buffer = vec![0; 1 << 20];
        for extent in device.data_extents(0..device.size())? {
            let mut at = extent.start;
            while at < extent.end {
                let n = (extent.end - at).min(buffer.len() as u64) as usize;
                device.read_at(at, &mut buffer[..n])?;
                content.write(at, &buffer[..n]);
                at += n as u64;
            }
        }
        Ok(content)
    }

    /// Returns a copy of the image file at `path`.
    ///
    /// # Panics
    ///
    /// When it cannot be read.
    pub fn of_file(path: &Path) -> Content {
        FileDevice::open_read_only(path)
            .and_then(|device| Content::of_device(&device))
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory that pages with something in them take, in bytes, shared ones included.
    pub fn allocated_bytes(&self) -> u64 {
        self.present().count() as u64 * PAGE as u64
    }

    /// Fills `buf` from byte `offset`; past the end there are zeros.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (page, within, part) in pieces(offset, buf.len()) {
            match self.page(page) {
                Some(bytes) => buf[part].copy_from_slice(&bytes[within]),
                None => buf[part].fill(0),
            }
        }
    }

    /// Writes `bytes` at byte `offset`.
    ///
    /// # Panics
    ///
    /// Past the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, part) in pieces(offset, bytes.len()) {
            let new = &bytes[part];
            if self.page(page).is_none() && new.iter().all(|&byte| byte == 0) {
                continue;
            }
            self.page_mut(page)[within].copy_from_slice(new);
        }
    }

    /// Makes a range read as zeros.
    ///
    /// # Panics
    ///
    /// Past the end.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let len = usize::try_from(len).expect("a range that fits a test");
        for (page, within, _) in pieces(offset, len) {
            if within.len() == PAGE {
                if let Some(leaf) = &mut self.leaves[page / PAGES_PER_LEAF] {
                    Arc::make_mut(leaf)[page % PAGES_PER_LEAF] = None;
                }
            } else if self.page(page).is_some() {
                self.page_mut(page)[within].fill(0);
            }
        }
    }

    /// Writes an image file, with holes where there are zeros.
    ///
    /// # Errors
    ///
    /// What creating or writing it returned.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for (page, bytes) in self.present() {
            let at = (page * PAGE) as u64;
            let n = (self.size - at).min(PAGE as u64) as usize;
            file.write_all_at(&bytes[..n], at)?;
        }
        Ok(())
    }

    /// Returns a writable device with a copy of this content.
    pub fn open(&self) -> SharedDevice {
        Arc::new(ContentDevice::new(self.clone()))
    }

    fn page(&self, page: usize) -> Option<&Page> {
        let leaf = self.leaves.get(page / PAGES_PER_LEAF)?.as_ref()?;
        leaf[page % PAGES_PER_LEAF].as_deref()
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        let leaf = self.leaves[page / PAGES_PER_LEAF]
            .get_or_insert_with(|| Arc::new([const { None }; PAGES_PER_LEAF]));
        let page = &mut Arc::make_mut(leaf)[page % PAGES_PER_LEAF];
        Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])))
    }

    fn present(&self) -> impl Iterator<Item = (usize, &Page)> {
        let leaves = self.leaves.iter().enumerate();
        leaves.flat_map(|(index, leaf)| {
            let pages = leaf.as_deref().into_iter().flatten().enumerate();
            pages.filter_map(move |(page, bytes)| {
                Some((index * PAGES_PER_LEAF + page, bytes.as_deref()?))
            })
        })
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.allocated_bytes();
        write!(f, "Content({} bytes, {held} held)", self.size)
    }
}

/// The pages of a range: page number, range within the page, range within the buffer.
fn pieces(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (usize, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let offset = usize::try_from(offset).expect("an offset that fits a test");
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, start) = (at / PAGE, at % PAGE);
        let n = (PAGE - start).min(end - at);
        let part = at - offset..at - offset + n;
        at += n;
        Some((page, start..start + n, part))
    })
}

/// A [`Content`] as a device; a flush does nothing.
#[derive(Debug)]
pub struct ContentDevice {
    size: u64,
    content: RwLock<Content>,
}

impl ContentDevice {
    /// Returns a device that holds `content` at first.
    pub fn new(content: Content) -> ContentDevice {
        ContentDevice {
            size: content.size(),
            content: RwLock::new(content),
        }
    }

    /// Returns what the device holds now.
    pub fn content(&self) -> Content {
        let content = self.content.read();
        content.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl BlockDevice for ContentDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "a crash image".to_owned()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.check_range("read", offset, buf.len() as u64)?;
        let content = self.content.read();
        content
            .unwrap_or_else(PoisonError::into_inner)
            .read(offset, buf);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.check_writable("write", offset, buf.len() as u64)?;
        let content = self.content.write();
        content
            .unwrap_or_else(PoisonError::into_inner)
            .write(offset, buf);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_writable("zero", offset, len)?;
        let content = self.content.write();
        content
            .unwrap_or_else(PoisonError::into_inner)
            .zero(offset, len);
        Ok(())
    }

    fn flush(&self) -> DeviceResult<()> {
        Ok(())
    }
}
