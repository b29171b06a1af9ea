//! Pages: the memory that folios are made of, and a store of pages for use again.

use extant_sync::{LockClass, Mutex, PerCpu, Rank};

static POOL: LockClass = LockClass::new("page pool", Rank::Leaf);

/// Binary logarithm of the bytes of a page.
pub(super) const PAGE_LOG2: u32 = 12;
/// Bytes of a page.
pub(super) const PAGE: usize = 1 << PAGE_LOG2;
/// Pages that are kept for use again, for each CPU.
const KEPT: usize = 1024;

/// The memory of a page.
#[derive(Debug)]
pub(super) struct Page(Box<[u8]>);

impl Page {
    /// A page of zeros.
    pub(super) fn zeroed() -> Self {
        Self(vec![0; PAGE].into_boxed_slice())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Pages that nobody uses, near each CPU: they need no fresh memory from the system.
#[derive(Debug)]
pub(super) struct Pool {
    free: PerCpu<Mutex<Vec<Page>>>,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            free: PerCpu::new(|_| Mutex::new(&POOL, Vec::new())),
        }
    }

    /// A page, of zeros unless it is `written` over.
    pub(super) fn get(&self, written: bool) -> Page {
        let kept = self.free.local().lock().pop();
        match kept {
            Some(mut page) => {
                if !written {
                    page.bytes_mut().fill(0);
                }
                page
            }
            None => Page::zeroed(),
        }
    }

    /// Keeps a page for later, if there are not too many.
    pub(super) fn put(&self, page: Page) {
        let mut free = self.free.local().lock();
        if free.len() < KEPT {
            free.push(page);
        }
    }
}
