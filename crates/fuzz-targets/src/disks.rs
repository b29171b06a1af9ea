//! Formats of disk images: an image in memory is opened, read and written to.

use extant_blockdev::{BlockDevice, MemoryDevice, SharedDevice};
use extant_formats::{CreateHow, Format, OpenHow, create, open, recognise, simg};
use extant_remote::{RemoteOptions, open_chunks};
use std::ffi::OsStr;
use std::sync::Arc;

/// Longest disk that is used as a whole.
const USED: u64 = 1 << 20;

/// Opens an image and uses its disk. Returns whether it could be opened.
fn used(input: &[u8], formats: &[Format]) -> bool {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(input));
    let seen = recognise(&*device).expect("memory can be read");
    let Some(format) = seen.filter(|format| formats.contains(format)) else {
        return false;
    };
    let mut opened = false;
    for how in [OpenHow::read_only(), OpenHow::read_write()] {
        let how = how.limit(USED);
        let Ok(disk) = open(Arc::clone(&device), format, &how) else {
            continue;
        };
        opened = true;
        read(&*disk);
        if !disk.is_read_only() {
            write(&*disk);
        }
    }
    opened
}

fn read(disk: &dyn BlockDevice) {
    let size = disk.size();
    let mut buf = vec![0; 64 << 10];
    for at in [0, size / 2, size.saturating_sub(buf.len() as u64)] {
        let len = (size - at).min(buf.len() as u64) as usize;
        let _ = disk.read_at(at, &mut buf[..len]);
    }
    let mut at = 0;
    for _ in 0..64 {
        let Ok(Some(found)) = disk.next_data(at, size) else {
            break;
        };
        assert!(found.start >= at && found.start < found.end && found.end <= size);
        at = found.end;
    }
}

fn write(disk: &dyn BlockDevice) {
    let size = disk.size();
    let len = size.min(5000) as usize;
    let at = (size - len as u64) / 2;
    if disk.write_at(at, &vec![7; len]).is_ok() {
        let mut back = vec![0; len];
        // Where tables contradict each other, what is read may be anything.
        let _ = disk.read_at(at, &mut back);
    }
    let _ = disk.zero(0, size.min(8192));
    let _ = disk.discard(0, size.min(8192));
    let _ = disk.flush();
}

/// A VHD whose checksums are made right.
pub fn vhd_image(input: &[u8]) -> bool {
    let mut bytes = input.to_vec();
    mend_sums(&mut bytes);
    used(&bytes, &[Format::Vhd, Format::VhdFixed])
}

/// A qcow2 image.
pub fn qcow2_image(input: &[u8]) -> bool {
    used(input, &[Format::Qcow2])
}

/// An Android sparse image, with its checksums.
pub fn simg_image(input: &[u8]) -> bool {
    let device: SharedDevice = Arc::new(MemoryDevice::from_image(input));
    let opened = used(input, &[Format::Simg]);
    let is_short = opened
        && open(Arc::clone(&device), Format::Simg, &OpenHow::read_only())
            .is_ok_and(|disk| disk.size() <= USED);
    if is_short {
        let _ = simg::verify(device);
    }
    opened
}

/// The description of a VMDK. Files that it names are not looked for.
pub fn vmdk_description(input: &[u8]) -> bool {
    used(input, &[Format::Vmdk])
}

/// A raw image compressed with gzip, Zstandard or xz.
pub fn compressed_image(input: &[u8]) -> bool {
    used(input, &[Format::Gzip, Format::Zstd, Format::Xz])
}

/// The index of an image in chunks, of which none is there.
pub fn chunk_index(input: &[u8]) -> bool {
    /// Bytes of the longest chunk, and of what an index has of each.
    const CHUNK: u64 = 16 << 20;
    const ITEM: u64 = 40;
    let index = MemoryDevice::from_image(input);
    let store = OsStr::new("/nonexistent/default.castr");
    let Ok(disk) = open_chunks(&index, store, RemoteOptions::default()) else {
        return false;
    };
    assert!(disk.size() <= input.len() as u64 / ITEM * CHUNK);
    read(&*disk);
    true
}

/// Makes the checksums of a VHD right, where its structures are.
fn mend_sums(bytes: &mut [u8]) {
    let end = bytes.len();
    let mut mend = |from: usize, len: usize, at: usize| {
        let Some(part) = bytes.get_mut(from..from + len) else {
            return;
        };
        part[at..at + 4].fill(0);
        let sum = part
            .iter()
            .fold(0_u32, |sum, byte| sum.wrapping_add((*byte).into()));
        part[at..at + 4].copy_from_slice(&(!sum).to_be_bytes());
    };
    mend(end.saturating_sub(512), 512, 64);
    if end > 512 {
        mend(0, 512, 64);
        mend(512, 1024, 36);
    }
}

/// Valid inputs of a target of this module.
pub(crate) fn corpus(name: &str) -> Vec<Vec<u8>> {
    match name {
        "vhd_image" => vec![
            made(Format::Vhd, 1 << 20, 4096),
            small_vhd(),
            made(Format::VhdFixed, 4096, 4608),
        ],
        "qcow2_image" => {
            let mut image = made(Format::Qcow2, 256 << 10, 1 << 20);
            let used = image.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            image.truncate((used + 1).next_multiple_of(64 << 10));
            vec![image]
        }
        "simg_image" => {
            let disk = disk();
            let image = MemoryDevice::new(64 << 10);
            let mut how = simg::WriteHow::default();
            how.crc = true;
            how.holes_dont_care = true;
            simg::write(&disk, &image, &how, &()).expect("there is room");
            vec![content(&image)]
        }
        "chunk_index" => vec![index(&[1500, 6500, 6501])],
        "vmdk_description" => {
            vec![b"# Disk DescriptorFile\nversion=1\nRW 16 ZERO\nRW 2048 ZERO\n".to_vec()]
        }
        _ => compressed(),
    }
}

/// An index of chunks that end there.
fn index(ends: &[u64]) -> Vec<u8> {
    let table = 16 + (ends.len() as u64 + 1) * 40;
    let numbers = |numbers: &[u64]| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    };
    let mut index = numbers(&[
        48,
        0x9682_4d9c_7b12_9ff9,
        1 << 61,
        1400,
        2000,
        5000,
        u64::MAX,
        0xe75b_9e11_2f17_417d,
    ]);
    for end in ends {
        index.extend(numbers(&[*end, *end, 0, 0, 0]));
    }
    index.extend(numbers(&[0, 0, 48, table, 0x4b4f_050e_5549_ecd1]));
    index
}

/// A disk with data, words and holes.
fn disk() -> MemoryDevice {
    let disk = MemoryDevice::new(256 << 10);
    disk.write_at(4096, b"some data").expect("memory");
    disk.write_at(8192, &[5; 4096]).expect("memory");
    disk
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).expect("memory");
    bytes
}

/// An image of a disk of `size` bytes in `room` bytes, with data where the format needs no more
/// room for it.
fn made(format: Format, size: u64, room: u64) -> Vec<u8> {
    let device: SharedDevice = Arc::new(MemoryDevice::new(room));
    let mut how = CreateHow::default();
    how.uuid = Some([7; 16]);
    let disk = create(Arc::clone(&device), format, size, &how).expect("there is room");
    if format != Format::Vhd {
        disk.write_at(0, b"some data").expect("there is room");
    }
    disk.flush().expect("memory");
    drop(disk);
    content(&*device)
}

/// A dynamic VHD with blocks of 4 KiB, of which one is there.
fn small_vhd() -> Vec<u8> {
    let mut image = made(Format::Vhd, 8192, 2560);
    let footer = image[..512].to_vec();
    image.truncate(2048);
    // Two entries of the table, the first for the block behind it; the size of a block.
    image[1536..1540].copy_from_slice(&4_u32.to_be_bytes());
    image[512 + 28..512 + 32].copy_from_slice(&2_u32.to_be_bytes());
    image[512 + 32..512 + 36].copy_from_slice(&4096_u32.to_be_bytes());
    image.extend_from_slice(&[0xff; 512]);
    image.extend_from_slice(&[9; 4096]);
    image.extend_from_slice(&footer);
    image
}

/// A block of zeros in each of the three forms, as their tools write it.
fn compressed() -> Vec<Vec<u8>> {
    let plain = content(&disk());
    vec![gzip(&plain[..4096]), zstd(), xz()]
}

/// Content that is stored in a member of gzip without compression.
fn gzip(plain: &[u8]) -> Vec<u8> {
    let crc = plain.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    let len = plain.len() as u16;
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1];
    member.extend_from_slice(&len.to_le_bytes());
    member.extend_from_slice(&(!len).to_le_bytes());
    member.extend_from_slice(plain);
    member.extend_from_slice(&(!crc).to_le_bytes());
    member.extend_from_slice(&u32::from(len).to_le_bytes());
    member
}

/// A frame of Zstandard with one block, a byte over and over.
fn zstd() -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x60];
    // The size of the content, less 256; the last block, of one byte 4096 times.
    frame.extend_from_slice(&(4096_u16 - 256).to_le_bytes());
    let header = 4096_u32 << 3 | 1 << 1 | 1;
    frame.extend_from_slice(&header.to_le_bytes()[..3]);
    frame.push(7);
    frame
}

/// An empty stream of xz, as its tool writes it.
fn xz() -> Vec<u8> {
    vec![
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x00, 0x00, 0x00,
        0x00, 0x1c, 0xdf, 0x44, 0x21, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04,
        0x59, 0x5a,
    ]
}
