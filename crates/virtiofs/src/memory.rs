//! The memory of a guest, which its monitor hands over in pieces.

use crate::message::{REGIONS, Region};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Regions that there are at most: those that one message tells of, and those that come later.
pub(crate) const SLOTS: usize = 4 * REGIONS;
/// The page of the machine, to multiples of which files are mapped.
const PAGE: u64 = 4096;

/// All of it at one time.
pub(crate) type Mapped = GuestMemoryMmap<()>;

/// The memory of a guest, and where the monitor has it.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<(Region, Arc<GuestRegionMmap<()>>)>,
    mapped: Arc<Mapped>,
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn map(region: &Region, file: OwnedFd) -> io::Result<Arc<GuestRegionMmap<()>>> {
    let ends = [region.guest, region.monitor, region.offset]
        .iter()
        .all(|begin| begin.checked_add(region.len).is_some());
    if region.len == 0 || !ends || !region.offset.is_multiple_of(PAGE) {
        return Err(invalid("a region of memory lies nowhere"));
    }
    let len = usize::try_from(region.len).map_err(invalid)?;
    let file = File::from(file);
    let found = file.metadata()?;
    // What is not there could be mapped, and would end the process when it is used.
    if found.is_file() && found.len() < region.offset + region.len {
        return Err(invalid("a region of memory goes past the end of its file"));
    }
    let file = FileOffset::new(file, region.offset);
    let mapped = MmapRegionBuilder::new(len)
        .with_file_offset(file)
        .with_mmap_prot((rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE).bits() as i32)
        .with_mmap_flags(
            (rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::NORESERVE).bits() as i32,
        )
        .build()
        .map_err(|e| invalid(e.to_string()))?;
    GuestRegionMmap::new(mapped, GuestAddress(region.guest))
        .map(Arc::new)
        .ok_or_else(|| invalid("a region of memory goes past the end"))
}

impl Memory {
    /// Returns what is there now. It stays mapped as long as somebody has it.
    pub(crate) fn mapped(&self) -> Arc<Mapped> {
        Arc::clone(&self.mapped)
    }

    fn set(&mut self, mut regions: Vec<(Region, Arc<GuestRegionMmap<()>>)>) -> io::Result<()> {
        if regions.len() > SLOTS {
            return Err(invalid("there are too many regions of memory"));
        }
        regions.sort_by_key(|(region, _)| region.guest);
        let all = regions
            .iter()
            .map(|(_, mapped)| Arc::clone(mapped))
            .collect();
        let mapped = if regions.is_empty() {
            Mapped::default()
        } else {
            // None may lie over another.
            Mapped::from_arc_regions(all).map_err(|e| invalid(e.to_string()))?
        };
        self.regions = regions;
        self.mapped = Arc::new(mapped);
        Ok(())
    }

    /// Maps all of it anew.
    ///
    /// # Errors
    /// When a file is too short for it, or regions lie over each other; nothing has changed then.
    pub(crate) fn replace(&mut self, regions: Vec<(Region, OwnedFd)>) -> io::Result<()> {
        let mut mapped = Vec::with_capacity(regions.len());
        for (region, file) in regions {
            mapped.push((region, map(&region, file)?));
        }
        self.set(mapped)
    }

    /// Maps one more region.
    ///
    /// # Errors
    /// As for [`replace`](Self::replace).
    pub(crate) fn add(&mut self, region: Region, file: OwnedFd) -> io::Result<()> {
        let mut regions = self.regions.clone();
        regions.push((region, map(&region, file)?));
        self.set(regions)
    }

    /// Takes a region away.
    ///
    /// # Errors
    /// When there is none like it.
    pub(crate) fn remove(&mut self, region: &Region) -> io::Result<()> {
        let is_it = |had: &Region| {
            (had.guest, had.len, had.monitor) == (region.guest, region.len, region.monitor)
        };
        let mut regions = self.regions.clone();
        regions.retain(|(had, _)| !is_it(had));
        if regions.len() == self.regions.len() {
            return Err(invalid("a region of memory goes that was not there"));
        }
        self.set(regions)
    }

    /// Finds where the guest has what the monitor has at an address.
    pub(crate) fn guest_address(&self, monitor: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|(region, _)| {
            let within = monitor.checked_sub(region.monitor)?;
            (within < region.len).then(|| GuestAddress(region.guest + within))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::Bytes;

    fn file(len: u64) -> OwnedFd {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        file.into()
    }

    fn region(guest: u64, len: u64, monitor: u64) -> Region {
        Region {
            guest,
            len,
            monitor,
            offset: 0,
        }
    }

    #[test]
    fn addresses_of_the_monitor_are_found() {
        let mut memory = Memory::default();
        let regions = vec![
            (region(0x10_0000, 0x2000, 0x7000_0000), file(0x2000)),
            (region(0, 0x1000, 0x9000_0000), file(0x1000)),
        ];
        memory.replace(regions).unwrap();
        let found = |address| memory.guest_address(address).map(|found| found.0);
        assert_eq!(found(0x7000_1fff), Some(0x10_1fff));
        assert_eq!(found(0x7000_2000), None);
        assert_eq!(found(0x9000_0004), Some(4));
        assert_eq!(found(u64::MAX), None);
        let mapped = memory.mapped();
        memory.remove(&region(0, 0x1000, 0x9000_0000)).unwrap();
        assert!(memory.mapped().write_slice(&[1], GuestAddress(0)).is_err());
        // Who had it has it still.
        mapped.write_slice(&[1], GuestAddress(0)).unwrap();
    }

    #[test]
    fn regions_that_cannot_be_are_refused_and_change_nothing() {
        let mut memory = Memory::default();
        memory
            .add(region(0x1000, 0x1000, 0x1000), file(0x1000))
            .unwrap();
        let wrong = [
            (region(0x2000, 0, 0x2000), 0x1000),
            // Its file is shorter.
            (region(0x2000, 0x2000, 0x2000), 0x1000),
            // There is one already.
            (region(0x1800, 0x1000, 0x2000), 0x1000),
            (region(u64::MAX - 0xfff, 0x1000, 0x2000), 0x1000),
            (region(0x2000, u64::MAX, 0x2000), 0x1000),
            (region(0x2000, 0x1000, u64::MAX - 1), 0x1000),
        ];
        for (region, len) in wrong {
            assert!(memory.add(region, file(len)).is_err(), "{region:?}");
        }
        let odd = Region {
            offset: 512,
            ..region(0x2000, 0x1000, 0x2000)
        };
        assert!(memory.add(odd, file(0x2000)).is_err());
        assert!(memory.remove(&region(0x1000, 0x800, 0x1000)).is_err());
        assert_eq!(memory.guest_address(0x1000), Some(GuestAddress(0x1000)));
        for more in 1..SLOTS as u64 {
            let at = 0x1000 * (2 * more + 1);
            memory.add(region(at, 0x1000, at), file(0x1000)).unwrap();
        }
        let at = 0x1000 * (2 * SLOTS as u64 + 1);
        assert!(memory.add(region(at, 0x1000, at), file(0x1000)).is_err());
    }
}
