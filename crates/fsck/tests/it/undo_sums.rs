//! Undo files tell blocks apart that end with a CRC32C of their own, as the superblock and its
//! copies do: what was written since is not taken for what became of a change.

use crate::cuts::bytes_of;
use crate::support::superblock;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_format::checksum::Crc32c;
use extant_format::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_fsck::repair::{self, revert, tune, write_undo};
use extant_fsck::undo::KeepingDevice;
use extant_testkit::oracle;
use std::fs::{self, File};
use std::sync::Arc;

/// Where the first copy of the superblock lies.
const COPY: u64 = 8193 << 10;

fn made() -> (tempfile::TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    oracle::mke2fs(&path, 12 << 20, &["-t", "ext4", "-b", "1024"]);
    let image = fs::read(&path).unwrap();
    (dir, image)
}

/// A superblock whose second sector alone is another one, and which is sound.
fn with_option(sb: &Superblock, letter: u8) -> Superblock {
    let changed = sb.with(|raw| raw.mount_opts[0] = letter).unwrap();
    let (before, after) = (sb.encode(), changed.encode());
    assert!(sb.has_metadata_csum());
    assert_eq!(before[..512], after[..512]);
    // Why CRC32C does not do.
    let sum = |bytes: &[u8]| Crc32c::INIT.update(bytes).value();
    assert_eq!(sum(&before[512..]), sum(&after[512..]));
    changed
}

/// The copy of the superblock in group 1, with another text.
fn copy_with_option(device: &MemoryDevice, letter: u8) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    device.read_at(COPY, &mut bytes).unwrap();
    let sb = Superblock::parse(&bytes).unwrap();
    let mut changed = sb.with(|raw| raw.mount_opts[0] = letter).unwrap();
    changed.set_write_time(sb.write_time());
    let group = extant_format::Group::new(1);
    changed.encode_for_group(group)
}

fn assert_refused(memory: &MemoryDevice, undo: &dyn Fn() -> std::io::Result<File>) {
    let since = bytes_of(memory);
    let why = revert(memory, undo).unwrap_err().to_string();
    assert!(why.contains("Nothing is taken back"), "{why}");
    assert!(bytes_of(memory) == since, "what is new is gone");
}

#[test]
fn a_superblock_written_since_is_told_from_that_of_a_command_that_was_cut_off() {
    let (dir, start) = made();
    let sb = superblock(&start);
    let path = dir.path().join("undo");
    let undo = || File::open(&path);
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let device = KeepingDevice::new(memory.clone(), File::create(&path).unwrap()).unwrap();
    let ours = with_option(&sb, b'a');
    device.write_at(SUPERBLOCK_OFFSET, &ours.encode()).unwrap();
    device.flush().unwrap();
    drop(device);
    let theirs = with_option(&sb, b'b').encode();
    memory.write_at(SUPERBLOCK_OFFSET, &theirs).unwrap();
    assert_refused(&memory, &undo);
    memory.write_at(SUPERBLOCK_OFFSET, &ours.encode()).unwrap();
    revert(&*memory, undo).unwrap();
    assert!(bytes_of(&memory) == start);
}

#[test]
fn a_block_written_since_is_told_from_what_a_command_made_of_it() {
    let (dir, start) = made();
    let path = dir.path().join("undo");
    let undo = || File::open(&path);
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let (ours, theirs) = (
        copy_with_option(&memory, b'a'),
        copy_with_option(&memory, b'b'),
    );
    let device = KeepingDevice::new(memory.clone(), File::create(&path).unwrap()).unwrap();
    device.write_at(COPY, &ours).unwrap();
    device.finish().unwrap();
    drop(device);
    memory.write_at(COPY, &theirs).unwrap();
    assert_refused(&memory, &undo);
    memory.write_at(COPY, &ours).unwrap();
    revert(&*memory, undo).unwrap();
    assert!(bytes_of(&memory) == start);
}

#[test]
fn what_was_planned_is_told_from_what_was_written_since() {
    let (dir, start) = made();
    let path = dir.path().join("undo");
    let undo = || File::open(&path);
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let settings = tune::Settings {
        label: Some(b"ours".to_vec()),
        ..tune::Settings::default()
    };
    let plan = tune::plan(memory.clone(), &settings, repair::Options::default(), &()).unwrap();
    write_undo(&plan.changes, &mut File::create(&path).unwrap()).unwrap();
    plan.apply().unwrap();
    let done = bytes_of(&memory);
    let theirs = with_option(&superblock(&done), b'b').encode();
    memory.write_at(SUPERBLOCK_OFFSET, &theirs).unwrap();
    assert_refused(&memory, &undo);
    memory.write_at(0, &done).unwrap();
    memory
        .write_at(COPY, &copy_with_option(&memory, b'b'))
        .unwrap();
    assert_refused(&memory, &undo);
    memory.write_at(0, &done).unwrap();
    revert(&*memory, undo).unwrap();
    assert!(bytes_of(&memory) == start);
}

fn sum(bytes: &[u8]) -> [u8; 4] {
    Crc32c::INIT.update(bytes).value().to_le_bytes()
}

/// Pads to whole pages of 4 KiB.
fn pages(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    bytes
}

fn batch(number: u64, kind: u32, records: &[u8]) -> Vec<u8> {
    let mut head = b"EXTBATCH".to_vec();
    head.extend_from_slice(&9_u64.to_le_bytes());
    head.extend_from_slice(&number.to_le_bytes());
    head.extend_from_slice(&(records.len() as u32).to_le_bytes());
    head.extend_from_slice(&kind.to_le_bytes());
    head.extend_from_slice(&sum(records));
    head.extend_from_slice(&sum(&head));
    pages([&head, records].concat())
}

/// An undo file by CRC32C of a block at byte 8192 that was zeros and is ones, of changes that were
/// not known before.
fn kept_by_crc32c(size: u64) -> Vec<u8> {
    let mut page = b"EXTUNDO5".to_vec();
    page.extend_from_slice(&size.to_le_bytes());
    page.extend_from_slice(&[0; 16]);
    page.extend_from_slice(&9_u64.to_le_bytes());
    page.extend_from_slice(&sum(&page));
    let zeros = [8192_u64, 4096, 1].map(u64::to_le_bytes).concat();
    let mut sums = 8192_u64.to_le_bytes().to_vec();
    sums.extend_from_slice(&1_u32.to_le_bytes());
    sums.extend_from_slice(&sum(&[1; 4096]));
    [
        pages(page),
        batch(0, 1, &zeros),
        batch(1, 2, &sums),
        batch(2, 3, &1_u64.to_le_bytes()),
    ]
    .concat()
}

/// One of planned changes, of the same block.
fn planned_by_crc32c(size: u64) -> Vec<u8> {
    let mut header = b"EXTUNDO4".to_vec();
    header.extend_from_slice(&size.to_le_bytes());
    header.extend_from_slice(&[0; 32]);
    header.extend_from_slice(&sum(&header));
    let mut record = 8192_u64.to_le_bytes().to_vec();
    record.extend_from_slice(&(4096 | 1_u32 << 24).to_le_bytes());
    record.extend_from_slice(&[0; 4096]);
    record.extend(sum(&[1; 512]).repeat(8));
    record.extend_from_slice(&sum(&record));
    let mut end = 1_u64.to_le_bytes().to_vec();
    end.extend_from_slice(&[0; 4]);
    end.extend_from_slice(&sum(&end));
    [header, record, end].concat()
}

#[test]
fn undo_files_by_crc32c_are_read_as_before() {
    let mut done = vec![0; 1 << 16];
    done[8192..12_288].fill(1);
    for undo in [kept_by_crc32c(1 << 16), planned_by_crc32c(1 << 16)] {
        let device = MemoryDevice::from_image(&done);
        assert_eq!(revert(&device, || Ok(&undo[..])).unwrap(), 1);
        assert!(bytes_of(&device).iter().all(|byte| *byte == 0));
        device.write_at(8192, &[2; 4096]).unwrap();
        let why = revert(&device, || Ok(&undo[..])).unwrap_err().to_string();
        assert!(why.contains("Nothing is taken back"), "{why}");
    }
}
