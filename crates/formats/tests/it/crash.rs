//! Power fails while an image is written: what was flushed is there. A dynamic VHD is sound, too; a
//! qcow2 is once `qemu-img check` has mended its counts.

use crate::support::{disk_to_write, file, run};
use extant_blockdev::{AlignedBuf, BlockDevice, DeviceError, Request, SharedDevice};
use extant_formats::{CreateHow, Format, OpenHow, create, open, recognise};
use extant_testkit::crash::{Budget, Content, CrashDevice, CrashImage};
use extant_testkit::crash::{FaultDevice, FaultRule, IoKind};
use extant_testkit::rng::{Rng, seed_from_env};
use extant_testkit::tool::tool;
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

fn opened(device: SharedDevice, format: Format, how: &OpenHow, what: &str) -> SharedDevice {
    let seen = recognise(&*device).expect("memory");
    assert_eq!(seen, Some(format), "{what}");
    open(device, format, how).unwrap_or_else(|e| panic!("{what}: {e}"))
}

/// Checks all sectors that were ever written.
fn check(disk: &dyn BlockDevice, model: &Model, flushes: u64, what: &str) {
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
}

/// What is written next stands among zeros, whatever the crash left where the block goes.
fn check_rest(disk: &dyn BlockDevice, model: &Model, what: &str) {
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

/// Writes here and there, with flushes between, and looks at what crashes leave.
fn survives(format: Format, seed: u64, each: impl Fn(&CrashImage, &Model, u64, &str)) {
    let mut rng = Rng::new(seed);
    for round in 0..3 {
        let device = Arc::new(CrashDevice::over(Content::zeros(ROOM)));
        let below: SharedDevice = device.clone();
        let disk = create(below, format, DISK, &CreateHow::default()).expect("room");
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
            each(&image, &model, acknowledged, &what);
            if looked % 40 == 0 {
                judge(&image, format, &what);
            }
            looked += 1;
        }
        assert!(looked > 20, "only {looked} images");
    }
}

#[test]
fn what_was_flushed_to_a_dynamic_vhd_survives_every_crash() {
    let seed = seed_from_env("crash::vhd");
    survives(Format::Vhd, seed, |image, model, flushes, what| {
        let how = OpenHow::read_write();
        let disk = opened(image.open(), Format::Vhd, &how, what);
        check(&*disk, model, flushes, what);
        check_rest(&*disk, model, what);
    });
}

#[test]
fn what_was_flushed_to_a_qcow2_survives_every_crash() {
    let seed = seed_from_env("crash::qcow2");
    survives(Format::Qcow2, seed, |image, model, flushes, what| {
        let how = OpenHow::read_only();
        let disk = opened(image.open(), Format::Qcow2, &how, what);
        check(&*disk, model, flushes, what);
    });
}

/// QEMU sees the disk that is seen here, also after more was written.
fn judge(image: &CrashImage, format: Format, what: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, raw) = (dir.path().join("image"), dir.path().join("raw"));
    image.write_to(&path);
    let name = if format == Format::Vhd {
        "vpc"
    } else {
        "qcow2"
    };
    if format == Format::Qcow2 {
        // What it mends it tells by its exit code.
        let check = ["check", "-q", "-r", "all", "-f", "qcow2"];
        tool("qemu-img").args(check).arg(&path).run();
        run("qemu-img check -q -f qcow2 {}", &[&path]);
    }
    let disk = disk_to_write(&path);
    disk.write_at(DISK - 512, &[0x77; 512]).expect("room");
    disk.flush().expect("a flush");
    run(
        &format!("qemu-img convert -f {name} -O raw {{}} {{}}"),
        &[&path, &raw],
    );
    crate::support::assert_same(&*disk, &*file(&raw), what);
}

/// Bytes of a sector of a disk that was compressed: half of them do not compress.
fn noise(sector: u64, version: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    if version != GONE {
        let mut rng = Rng::new(sector << 32 | version);
        bytes[..256].fill_with(|| rng.next_u64() as u8);
    }
    bytes
}

/// The version of a sector that was discarded.
const GONE: u64 = 0;

#[test]
fn what_lies_in_a_compressed_qcow2_survives_every_crash() {
    const CLUSTER: u64 = 4096;
    const SECTORS: u64 = 32 * CLUSTER / SECTOR;
    let seed = seed_from_env("crash::compressed");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let (plain, image) = (dir.path().join("plain"), dir.path().join("image"));
    let bytes: Vec<u8> = (0..SECTORS).flat_map(|sector| noise(sector, 1)).collect();
    std::fs::write(&plain, bytes).expect("room");
    run(
        &format!("qemu-img convert -c -f raw -O qcow2 -o cluster_size={CLUSTER} {{}} {{}}"),
        &[&plain, &image],
    );
    let mut bytes = std::fs::read(&image).expect("a file");
    bytes.resize(1 << 20, 0);
    for round in 0..4 {
        let device = Arc::new(CrashDevice::over(Content::from_bytes(&bytes)));
        let below: SharedDevice = device.clone();
        let disk = opened(below, Format::Qcow2, &OpenHow::read_write(), "at first");
        // For each sector its versions, each with the number of flushes before.
        let mut model = vec![vec![(0, 1)]; SECTORS as usize];
        let mut flushes = 1;
        for version in 2..26 {
            let cluster = rng.below(SECTORS * SECTOR / CLUSTER);
            let per_cluster = CLUSTER / SECTOR;
            let (first, len) = if rng.one_in(3) {
                (cluster * per_cluster + rng.below(4), 1 + rng.below(4))
            } else {
                (cluster * per_cluster, per_cluster)
            };
            let is_discard = rng.one_in(4) && len == per_cluster;
            let version = if is_discard { GONE } else { version };
            if is_discard {
                disk.discard(first * SECTOR, CLUSTER).expect("a discard");
            } else {
                let data: Vec<u8> = (first..first + len)
                    .flat_map(|sector| noise(sector, version))
                    .collect();
                disk.write_at(first * SECTOR, &data).expect("room");
            }
            for sector in first..first + len {
                model[sector as usize].push((flushes, version));
            }
            if rng.one_in(6) {
                disk.flush().expect("memory");
                flushes += 1;
                device.mark(flushes);
            }
        }
        drop(disk);
        let mut looked = 0;
        for image in device.log().images(Budget::limited(250, rng.next_u64())) {
            let acknowledged = image.marks().max().unwrap_or(1);
            let what = format!("round {round} of seed {seed:#x}: {image}");
            let how = OpenHow::read_only();
            let disk = opened(image.open(), Format::Qcow2, &how, &what);
            let mut found = [0; SECTOR as usize];
            for (sector, versions) in (0..).zip(&model) {
                disk.read_at(sector * SECTOR, &mut found)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                let last = versions
                    .iter()
                    .rposition(|(before, _)| *before < acknowledged);
                let allowed = &versions[last.unwrap_or(0)..];
                assert!(
                    allowed.iter().any(|(_, v)| noise(sector, *v) == found),
                    "{what}: sector {sector} holds none of {allowed:?}"
                );
            }
            looked += 1;
        }
        assert!(looked > 20, "only {looked} images");
    }
}

#[test]
fn nothing_is_written_after_a_flush_that_failed() {
    const BLOCK: u64 = 2 << 20;
    for (format, in_flight) in [
        (Format::Vhd, 1),
        (Format::Vhd, 32),
        (Format::Qcow2, 1),
        (Format::Qcow2, 32),
    ] {
        // What the batch begins with has its place, or gets one.
        for first in [0, BLOCK] {
            let what = format!("{format:?}, {in_flight} under way, {first}");
            let device = Arc::new(CrashDevice::over(Content::zeros(ROOM)));
            let below = Arc::new(FaultDevice::new(device).far(in_flight));
            let disk = create(below.clone(), format, DISK, &CreateHow::default()).expect("room");
            disk.write_at(0, &[1; 8192]).expect("room");
            disk.flush().expect("memory");
            below.inject(FaultRule::fail_nth(IoKind::Flush, 0).from_then_on());
            let write = |at| Request::write(at, AlignedBuf::copy_of(&[2; 512]));
            let batch = vec![write(first), Request::Flush, write(4096), Request::Flush];
            let done = disk.submit(batch).wait();
            assert!(done[0].result.is_ok(), "{what}");
            assert!(
                matches!(done[1].result, Err(DeviceError::Io { .. })),
                "{what}"
            );
            for after in &done[2..] {
                let is_cancelled = matches!(after.result, Err(DeviceError::Cancelled));
                assert!(is_cancelled, "{what}: {:?}", after.result);
            }
            below.heal();
            let mut found = [0; 512];
            disk.read_at(4096, &mut found).expect("memory");
            assert_eq!(found, [1; 512], "{what}");
        }
    }
}

#[test]
fn a_dynamic_vhd_tells_of_no_block_before_a_flush_made_it_durable() {
    for in_flight in [1, 32] {
        let device = Arc::new(CrashDevice::over(Content::zeros(ROOM)));
        let below = Arc::new(FaultDevice::new(device).far(in_flight));
        let disk = create(below.clone(), Format::Vhd, DISK, &CreateHow::default()).expect("room");
        disk.flush().expect("memory");
        disk.write_at(0, &[1; 512]).expect("room");
        let before = below.counts().writes;
        below.inject(FaultRule::fail_nth(IoKind::Flush, 0));
        disk.flush().expect_err("told to fail");
        assert_eq!(below.counts().writes, before, "entries were written");
        disk.flush().expect("memory");
        assert_eq!(below.counts().writes, before + 1);
    }
}
