//! Overlays: replaced blocks are seen, the base is not touched.

use extant_blockdev::{BlockDevice, DeviceError, MemoryDevice, OverlayDevice, SharedDevice};
use std::sync::Arc;

const BLOCK: usize = 1024;

fn base() -> SharedDevice {
    let device = MemoryDevice::new(10 * BLOCK as u64 + 100);
    device.write_at(0, &[1; 10 * BLOCK + 100]).expect("a write");
    Arc::new(device)
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut all = vec![0; device.size() as usize];
    device.read_at(0, &mut all).expect("a read");
    all
}

#[test]
fn reads_see_replaced_blocks_whatever_their_bounds() {
    let base = base();
    let mut overlay = OverlayDevice::new(Arc::clone(&base), BLOCK as u32);
    overlay.replace(3, vec![8; BLOCK]).expect("a block");
    overlay
        .replace(3, vec![9; BLOCK])
        .expect("the same block again");
    overlay.replace(0, vec![7; BLOCK]).expect("a block");
    assert_eq!(
        (overlay.replaced_blocks(), overlay.memory_bytes()),
        (2, 2048)
    );
    let mut expected = vec![1; 10 * BLOCK + 100];
    expected[..BLOCK].fill(7);
    expected[3 * BLOCK..4 * BLOCK].fill(9);
    assert!(content(&overlay) == expected);
    for (from, len) in [
        (BLOCK - 1, 2),
        (3 * BLOCK + 5, 10),
        (2 * BLOCK + 1, 3 * BLOCK),
        (0, 0),
    ] {
        let mut got = vec![0; len];
        overlay.read_at(from as u64, &mut got).expect("a read");
        assert_eq!(got, expected[from..from + len]);
    }
    assert!(content(&*base).iter().all(|&byte| byte == 1));
}

#[test]
fn writes_are_refused_unless_they_are_to_be_kept() {
    let base = base();
    let mut overlay = OverlayDevice::new(Arc::clone(&base), BLOCK as u32);
    overlay.replace(1, vec![2; BLOCK]).expect("a block");
    assert!(overlay.is_read_only());
    let err = overlay.write_at(0, &[0]).expect_err("read only");
    assert!(matches!(err, DeviceError::ReadOnly { .. }));

    let overlay = overlay.keep_writes();
    overlay
        .write_at(BLOCK as u64 + 10, &[3; BLOCK])
        .expect("a write over two blocks");
    overlay
        .write_at(10 * BLOCK as u64 + 99, &[4])
        .expect("a write to the short last block");
    let mut expected = vec![1; 10 * BLOCK + 100];
    expected[BLOCK..2 * BLOCK].fill(2);
    expected[BLOCK + 10..2 * BLOCK + 10].fill(3);
    expected[10 * BLOCK + 99] = 4;
    assert!(content(&overlay) == expected);
    assert!(content(&*base).iter().all(|&byte| byte == 1));
}

#[test]
fn blocks_that_memory_has_no_room_for_go_to_the_spool() {
    let spool: SharedDevice = Arc::new(MemoryDevice::new(base().size()));
    let overlay = OverlayDevice::new(base(), BLOCK as u32)
        .spill_writes(Arc::clone(&spool), 2 * BLOCK as u64)
        .expect("a spool that is long enough");
    let mut expected = vec![1; 10 * BLOCK + 100];
    for block in [7, 0, 3, 10, 3] {
        let at = block * BLOCK + 5;
        overlay.write_at(at as u64, &[9; 50]).expect("a write");
        expected[at..at + 50].fill(9);
    }
    assert!(content(&overlay) == expected);
    assert_eq!(overlay.memory_bytes(), 2 * BLOCK as u64);
    assert_eq!(overlay.written_blocks(), [0, 3, 7, 10]);
    // Whole blocks are there, and no others.
    let mut spooled = vec![0; 10 * BLOCK + 100];
    for block in [3, 10] {
        let bytes = block * BLOCK..((block + 1) * BLOCK).min(expected.len());
        spooled[bytes.clone()].copy_from_slice(&expected[bytes]);
    }
    assert!(content(&*spool) == spooled);
    let short: SharedDevice = Arc::new(MemoryDevice::new(base().size() - 1));
    let refused = OverlayDevice::new(base(), BLOCK as u32).spill_writes(short, 0);
    assert!(matches!(refused, Err(DeviceError::OutOfRange { .. })));
}

#[test]
fn a_replacement_must_be_one_block_on_the_device() {
    let mut overlay = OverlayDevice::new(base(), BLOCK as u32);
    overlay
        .replace(10, vec![0; BLOCK])
        .expect_err("the last block is cut short");
    overlay
        .replace(u64::MAX, vec![0; BLOCK])
        .expect_err("far away");
    overlay
        .replace(0, vec![0; BLOCK - 1])
        .expect_err("too short");
    overlay
        .replace(0, vec![0; BLOCK + 1])
        .expect_err("too long");
    assert_eq!(overlay.replaced_blocks(), 0);
}

#[test]
fn replaced_blocks_are_data_even_in_holes() {
    let sparse: SharedDevice = Arc::new(MemoryDevice::new(1 << 30));
    sparse.write_at(1 << 20, &[1]).expect("a write");
    let mut overlay = OverlayDevice::new(sparse, 4096);
    overlay.replace(0, vec![1; 4096]).expect("a block");
    overlay.replace(1 << 17, vec![1; 4096]).expect("a block");
    let extents = overlay.data_extents(0..1 << 30).expect("extents");
    assert_eq!(extents.len(), 3);
    assert_eq!(extents[0], 0..4096);
    assert!(extents[1].contains(&(1 << 20)));
    assert_eq!(extents[2], 1 << 29..(1 << 29) + 4096);
}
