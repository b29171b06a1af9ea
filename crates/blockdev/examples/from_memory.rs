//! Reads a disk image into memory, tells what is in its partitions, and tries a change in memory
//! without making it.
//!
//! ```console
//! cargo run -p extant-blockdev --example from_memory -- disk.img
//! ```

use extant_blockdev::{
    BlockDevice, Content, DeviceResult, MemoryDevice, OverlayDevice, SharedDevice, list_partitions,
    open_partition,
};
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args_os().nth(1).ok_or("give a disk image")?;
    let image = std::fs::read(image)?;
    for line in describe(&image)? {
        println!("{line}");
    }
    let disk = Arc::new(MemoryDevice::from_image(&image));
    let blocks = try_change(disk, b"no boot record any more")?;
    println!("wiping the start would change {blocks} blocks");
    Ok(())
}

/// Gives a line for each partition.
pub(crate) fn describe(image: &[u8]) -> DeviceResult<Vec<String>> {
    // Blocks of zeroes take no memory.
    let disk: SharedDevice = Arc::new(MemoryDevice::from_image(image));
    let table = list_partitions(&*disk)?;
    let mut lines = Vec::new();
    for partition in &table.partitions {
        // A partition is a device of its own, which ends where the partition does.
        let part = open_partition(Arc::clone(&disk), partition.number)?;
        let content = Content::on(&part)?;
        lines.push(format!(
            "{}: {} bytes, {content:?}",
            partition.number, partition.len
        ));
    }
    Ok(lines)
}

/// Writes `bytes` at the start of a copy that is made block by block as it is written to, and gives
/// back how many blocks of 4 KiB the change takes. The disk below keeps what it has.
pub(crate) fn try_change(disk: SharedDevice, bytes: &[u8]) -> DeviceResult<usize> {
    let copy = OverlayDevice::new(disk, 4096).keep_writes();
    copy.write_at(0, bytes)?;
    let mut back = vec![0; bytes.len()];
    copy.read_at(0, &mut back)?;
    assert_eq!(back, bytes, "a device gives back what was written");
    Ok(copy.written_blocks().len())
}
