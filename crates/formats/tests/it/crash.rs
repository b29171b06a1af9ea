//! Power fails while a dynamic VHD is written: what was flushed is there, and the image is sound.

use crate::support::{disk_to_write, file, run};
use extant_blockdev::SharedDevice;
use extant_formats::{CreateHow, Format, OpenHow, create, open, recognise};
use extant_testkit::crash::{Budget, Content, CrashDevice, CrashImage};
use extant_testkit::rng::{Rng, seed_from_env};
use std::sync::Arc;

/// Bytes of the device below: room for all blocks.
const ROOM: u64 = 14 << 20;
/// Bytes of the disk: six blocks of 2 MiB, the last in part.
const DISK: u64 = (11 << 20) + 512;
const SECTOR: u64 = 512;

/// For each sector of the disk that is ever written, what it holds after each write: the number of
/// flushes before, and the byte that fills it.
#[derive(Default)]
struct Model {
    sectors: std::collections::BTreeMap<u64, Vec<(u64, u8)>>,
}

impl Model {
    fn write(&mut self, offset: u64, len: u64, flushes: u64, byte: u8) {
        for sector in offset / SECTOR..(offset + len) / SECTOR {
            self.sectors
                .entry(sector)
                .or_default()
                .push((flushes, byte));
        }
    }

    /// Whether a sector may hold this byte where so many flushes are acknowledged: the last one
    /// that was flushed, or any later one.
    fn allows(&self, sector: u64, flushes: u64, byte: u8) -> bool {
        let writes = &self.sectors[&sector];
        let last = writes.iter().rposition(|(before, _)| *before < flushes);
        let from = last.unwrap_or(0);
        (last.is_none() && byte == 0) || writes[from..].iter().any(|(_, b)| *b == byte)
    }
}

fn opened(device: SharedDevice, what: &str) -> SharedDevice {
    let format = recognise(&*device).expect("memory");
    assert_eq!(format, Some(Format::Vhd), "{what}");
    open(device, Format::Vhd, &OpenHow::read_write()).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Checks all sectors that were ever written.
fn check(image: &CrashImage, model: &Model, flushes: u64, what: &str) {
    let disk = opened(image.open(), what);
    let mut bytes = [0; SECTOR as usize];
    for &sector in model.sectors.keys() {
        disk.read_at(sector * SECTOR, &mut bytes).expect("memory");
        let byte = bytes[0];
        assert!(
            bytes.iter().all(|b| *b == byte),
            "{what}: sector {sector} is torn"
        );
        assert!(
            model.allows(sector, flushes, byte),
            "{what}: sector {sector} holds {byte:#x} after {flushes} flushes"
        );
    }
    // What is written next stands among zeros, whatever the crash left where the block goes.
    let block = 2 << 20;
    for n in 0..DISK.div_ceil(block) {
        let written = |s: &u64| *s * SECTOR / block == n;
        if model.sectors.keys().any(written) {
            continue;
        }
        let (start, end) = (n * block, DISK.min((n + 1) * block));
        disk.write_at(start, &[0xee; 512]).expect("room");
        disk.flush().expect("memory");
        let mut rest = vec![1; (end - start - 512) as usize];
        disk.read_at(start + 512, &mut rest).expect("memory");
        assert!(rest.iter().all(|b| *b == 0), "{what}: block {n}");
    }
}

#[test]
fn what_was_flushed_to_a_dynamic_vhd_survives_every_crash() {
    let seed = seed_from_env("crash::vhd");
    let mut rng = Rng::new(seed);
    for round in 0..3 {
        let device = Arc::new(CrashDevice::over(Content::zeros(ROOM)));
        let below: SharedDevice = device.clone();
        let disk = create(below, Format::Vhd, DISK, &CreateHow::default()).expect("room");
        disk.flush().expect("memory");
        device.mark(0);
        let mut model = Model::default();
        let (mut flushes, mut byte) = (0, 0);
        for _ in 0..12 {
            if rng.one_in(3) {
                disk.flush().expect("memory");
                flushes += 1;
                device.mark(flushes);
                continue;
            }
            byte += 1;
            // Few places, so that they are written again; the last block stays for later.
            let block = rng.below(4) * (2 << 20);
            let len = SECTOR * (1 + rng.below(4));
            let offset = block + SECTOR * rng.below(12) * 100;
            disk.write_at(offset, &vec![byte; len as usize])
                .expect("room");
            model.write(offset, len, flushes, byte);
        }
        drop(disk);
        let budget = Budget::limited(250, rng.next_u64());
        let mut looked = 0;
        for image in device.log().images(budget) {
            // Before the empty image was flushed, nothing is promised.
            if !image.holds(0) {
                continue;
            }
            let acknowledged = image.marks().max().unwrap_or(0);
            let what = format!("round {round} of seed {seed:#x}: {image}");
            check(&image, &model, acknowledged, &what);
            if looked % 40 == 0 {
                judge(&image, &what);
            }
            looked += 1;
        }
        assert!(looked > 50, "only {looked} images");
    }
}

/// QEMU sees the disk that is seen here, also after more was written.
fn judge(image: &CrashImage, what: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (vhd, raw) = (dir.path().join("image.vhd"), dir.path().join("raw"));
    image.write_to(&vhd);
    let disk = disk_to_write(&vhd);
    disk.write_at(DISK - 512, &[0x77; 512]).expect("room");
    disk.flush().expect("a flush");
    run("qemu-img convert -f vpc -O raw {} {}", &[&vhd, &raw]);
    crate::support::assert_same(&*disk, &*file(&raw), what);
}
