//! Undo files of changes that are not known before: whatever write is the last, each byte comes
//! back; and an image of which a part is taken back is left alone by everybody.

use crate::cuts::{bytes_of, stop};
use crate::support::{check_bytes, superblock};
use extant::{Filesystem, MountOptions};
use extant_blockdev::{BlockDevice, DeviceResult, MemoryDevice, SharedDevice};
use extant_fsck::repair::{self, revert};
use extant_fsck::undo::KeepingDevice;
use extant_testkit::crash::{Budget, Content, CrashDevice, Fault, FaultDevice, FaultRule, IoKind};
use extant_testkit::oracle;
use extant_testkit::rng::{Rng, seed_from_env};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

fn made(dir: &Path) -> Vec<u8> {
    let path = dir.join("image");
    oracle::mke2fs(&path, 12 << 20, &["-t", "ext4", "-b", "1024"]);
    let content = dir.join("content");
    fs::write(&content, vec![7; 50_000]).unwrap();
    let mut requests = vec!["mkdir dir".to_owned()];
    requests.extend((0..20).map(|i| format!("write {} dir/file{i}", content.display())));
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    oracle::debugfs_write(&path, &requests);
    fs::read(&path).unwrap()
}

/// Changes of many kinds; what fails, fails.
fn change(device: SharedDevice) -> extant::Result<()> {
    let options = MountOptions::read_write().background(false);
    let fs = Filesystem::open_device(device, options)?;
    fs.write("/new", vec![9; 300_000])?;
    fs.create_dir_all("/a/b/c")?;
    for i in 0..10 {
        fs.remove_file(format!("/dir/file{i}"))?;
    }
    fs.sync()?;
    fs.write("/dir/file15", vec![3; 50_000])?;
    fs.rename("/dir/file16", "/a/moved")?;
    fs.close()
}

#[test]
fn whatever_write_is_the_last_each_byte_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path());
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let faults = Arc::new(FaultDevice::new(memory.clone()));
    let path = dir.path().join("undo");
    let open = || File::open(&path);
    let keep = || {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        Arc::new(KeepingDevice::new(faults.clone(), file).unwrap())
    };
    let device = keep();
    change(device.clone()).unwrap();
    assert!(device.finish().unwrap() > 50);
    let writes = faults.counts().writes;
    assert!(writes > 15, "{writes} writes");
    let done = bytes_of(&memory);
    let image = dir.path().join("done");
    fs::write(&image, &done).unwrap();
    oracle::assert_clean(&image);
    let whole = fs::read(&path).unwrap();

    for cut in 0..writes {
        memory.write_at(0, &start).unwrap();
        stop(&faults, cut);
        let device = keep();
        let _ = change(device.clone());
        faults.heal();
        drop(device);
        revert(&*memory, open).unwrap_or_else(|e| panic!("{cut} writes: {e}"));
        assert!(
            bytes_of(&memory) == start,
            "{cut} of {writes} writes: not as it was"
        );
    }

    // Taking it back is cut off too.
    fs::write(&path, &whole).unwrap();
    let mut half_way = 0;
    for cut in 0.. {
        memory.write_at(0, &done).unwrap();
        stop(&faults, cut);
        let is_whole = revert(&*faults, open).is_ok();
        faults.heal();
        let left = bytes_of(&memory);
        if left != done && left != start {
            half_way += 1;
            left_alone(dir.path(), &left, half_way == 1);
        }
        if cut == 1 {
            tear(&memory, &start, &done);
        }
        revert(&*memory, open).unwrap_or_else(|e| panic!("back by {cut}: {e}"));
        assert!(bytes_of(&memory) == start, "back by {cut}: not as it was");
        if is_whole {
            break;
        }
    }
    assert!(half_way > 5, "{half_way}");

    // Without the mark, a block that is neither is one that was written since.
    memory.write_at(0, &done).unwrap();
    tear(&memory, &start, &done);
    let why = revert(&*memory, open).unwrap_err().to_string();
    assert!(why.contains("was written since"), "{why}");
}

/// Leaves of the last block that changed a half as it was and a half as it became, as a loss of
/// power does.
fn tear(device: &MemoryDevice, start: &[u8], done: &[u8]) {
    let differs = |at: &usize| start[*at] != done[*at];
    let at = (0..start.len()).rev().find(differs).unwrap() / 4096 * 4096;
    let (was, is) = (&start[at..at + 4096], &done[at..at + 4096]);
    let first = (0..4096).find(|i| was[*i] != is[*i]).unwrap();
    let mut torn = is.to_vec();
    torn[first] = was[first];
    // Neither of the two, wherever they differ.
    torn[4095] = was[4095] ^ is[4095] ^ 0x55;
    device.write_at(at as u64, &torn).unwrap();
}

/// An image whose last MiB is free, and holds what was deleted.
fn with_free_space(dir: &Path) -> Vec<u8> {
    let mut start = made(dir);
    let free = start.len() - (1 << 20);
    start[free..].fill(0xaa);
    start
}

#[test]
fn what_is_cut_off_before_it_writes_the_superblock_is_told_from_what_was_written_since() {
    let dir = tempfile::tempdir().unwrap();
    let start = with_free_space(dir.path());
    let size = start.len() as u64;
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let path = dir.path().join("undo");
    let device = KeepingDevice::new(memory.clone(), File::create(&path).unwrap()).unwrap();
    device.zero(size - (1 << 20), 1 << 19).unwrap();
    drop(device);
    let cut = bytes_of(&memory);
    assert!(cut != start);

    change(memory.clone()).unwrap();
    let since = bytes_of(&memory);
    let why = revert(&*memory, || File::open(&path)).unwrap_err();
    assert!(
        why.to_string().contains("by another program since"),
        "{why}"
    );
    assert!(bytes_of(&memory) == since, "what is new is gone");

    // While it is taken back, the image has the mark.
    let faults = FaultDevice::new(memory.clone());
    memory.write_at(0, &cut).unwrap();
    stop(&faults, 1);
    revert(&faults, || File::open(&path)).unwrap_err();
    left_alone(dir.path(), &bytes_of(&memory), false);
    revert(&*memory, || File::open(&path)).unwrap();
    assert!(bytes_of(&memory) == start);
}

#[test]
fn an_undo_file_does_not_go_on_with_the_work_of_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let start = with_free_space(dir.path());
    let size = start.len() as u64;
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let paths = [dir.path().join("first"), dir.path().join("second")];
    for (i, path) in (1..).zip(&paths) {
        let device = KeepingDevice::new(memory.clone(), File::create(path).unwrap()).unwrap();
        device.zero(size - (i << 18), 1 << 18).unwrap();
        assert!(device.finish().unwrap() > 0);
    }
    let faults = FaultDevice::new(memory.clone());
    stop(&faults, 1);
    let [first, second] = paths.each_ref().map(|path| move || File::open(path));
    revert(&faults, second).unwrap_err();
    let left = bytes_of(&memory);
    revert(&*memory, first).unwrap_err();
    assert!(bytes_of(&memory) == left, "the mark of the other is gone");
    revert(&*memory, second).unwrap();
    revert(&*memory, first).unwrap();
    assert!(bytes_of(&memory) == start);
}

#[test]
fn what_is_written_after_a_failure_is_not_written_over_by_what_waited() {
    let dir = tempfile::tempdir().unwrap();
    let start = vec![1; 1 << 20];
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let faults = Arc::new(FaultDevice::new(memory.clone()));
    let path = dir.path().join("undo");
    let device = KeepingDevice::new(faults.clone(), File::create(&path).unwrap()).unwrap();
    device.write_at(10 * 4096, &[2; 3 * 4096]).unwrap();
    stop(&faults, 0);
    device.flush().unwrap_err();
    faults.heal();
    device.write_at(10 * 4096 + 5, &[3; 2 * 4096]).unwrap();
    device.flush().unwrap();
    let mut model = start.clone();
    model[10 * 4096..13 * 4096].fill(2);
    model[10 * 4096 + 5..12 * 4096 + 5].fill(3);
    assert!(bytes_of(&memory) == model);
    device.finish().unwrap();
    revert(&*memory, || File::open(&path)).unwrap();
    assert!(bytes_of(&memory) == start);
}

#[test]
fn an_undo_file_that_met_a_block_that_cannot_be_read_takes_back_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let mut start = vec![0; 20 << 20];
    Rng::new(1).fill(&mut start);
    let memory = Arc::new(MemoryDevice::from_image(&start));
    let faults = Arc::new(FaultDevice::new(memory.clone()));
    let path = dir.path().join("undo");
    let device = KeepingDevice::new(faults.clone(), File::create(&path).unwrap()).unwrap();
    // Farther than one batch holds.
    faults.inject(FaultRule {
        kind: IoKind::Read,
        within: Some(15 << 20..16 << 20),
        after: 0,
        times: u64::MAX,
        fault: Fault::Error(5),
    });
    device.zero(1 << 20, 18 << 20).unwrap_err();
    assert!(bytes_of(&memory) == start);
    faults.heal();
    device.zero(1 << 20, 4 << 20).unwrap();
    device.write_at(12 << 20, &[7; 3 << 20]).unwrap();
    device.finish().unwrap();
    assert!(bytes_of(&memory) != start);
    revert(&*memory, || File::open(&path)).unwrap();
    assert!(bytes_of(&memory) == start);
}

/// A device that cannot discard.
#[derive(Debug)]
struct NoDiscard(MemoryDevice);

impl BlockDevice for NoDiscard {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> DeviceResult<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> DeviceResult<()> {
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.0.flush()
    }

    fn try_discard(&self, _: u64, _: u64) -> DeviceResult<bool> {
        Ok(false)
    }
}

#[test]
fn what_was_kept_for_a_discard_that_cannot_be_done_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let base = Arc::new(NoDiscard(MemoryDevice::from_image(&vec![1; 1 << 20])));
    let file = File::create(dir.path().join("undo")).unwrap();
    let device = KeepingDevice::new(base, file).unwrap();
    assert!(!device.try_discard(1 << 16, 1 << 16).unwrap());
    assert_eq!(device.finish().unwrap(), 0);
}

/// What is neither as it was nor as it became is changed by nobody.
fn left_alone(dir: &Path, left: &[u8], asks_others: bool) {
    let why = check_bytes(left, false).unwrap_err().to_string();
    assert!(why.contains("extant revert"), "{why}");
    let memory: SharedDevice = Arc::new(MemoryDevice::from_image(left));
    let why = repair::plan(memory.clone(), repair::Options::default(), &()).unwrap_err();
    assert!(why.to_string().contains("extant revert"), "{why}");
    for options in [MountOptions::read_only(), MountOptions::read_write()] {
        let why = Filesystem::open_device(memory.clone(), options).unwrap_err();
        assert!(why.to_string().contains("FEATURE_I30"), "{why}");
    }
    assert!(
        !superblock(left)
            .state()
            .contains(extant_format::superblock::State::CLEAN)
    );
    if asks_others {
        let path = dir.join("half way");
        fs::write(&path, left).unwrap();
        for options in [&["-fy"][..], &["-p"]] {
            assert_eq!(oracle::e2fsck(&path, options).code & 8, 8, "{options:?}");
        }
        assert!(fs::read(&path).unwrap() == left, "e2fsck changed it");
    }
}

/// Random requests give what they give without it, and come back.
#[test]
fn it_is_a_device_as_the_one_below() {
    const SIZE: u64 = (3 << 20) + 1000;
    let mut rng = Rng::new(seed_from_env("devices that keep"));
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let mut start = vec![0; SIZE as usize];
        rng.fill(&mut start[..1 << 20]);
        let memory = Arc::new(MemoryDevice::from_image(&start));
        let path = dir.path().join(format!("undo{round}"));
        let device = KeepingDevice::new(memory.clone(), File::create(&path).unwrap()).unwrap();
        let mut model = start.clone();
        for _ in 0..300 {
            let at = rng.below(SIZE);
            let len = rng.below((SIZE - at).min(100_000) + 1);
            let range = at as usize..(at + len) as usize;
            match rng.below(6) {
                0 | 1 => {
                    let mut bytes = vec![0; len as usize];
                    rng.fill(&mut bytes);
                    device.write_at(at, &bytes).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                2 => {
                    device.zero(at, len).unwrap();
                    model[range].fill(0);
                }
                3 => device.flush().unwrap(),
                _ => {
                    let mut bytes = vec![0; len as usize];
                    device.read_at(at, &mut bytes).unwrap();
                    assert!(bytes == model[range], "{len} bytes at {at}");
                    let found = device.next_data(at, SIZE).unwrap();
                    let start = found.map_or(SIZE, |found| found.start.max(at));
                    let hole = &model[at as usize..start as usize];
                    assert!(hole.iter().all(|byte| *byte == 0), "{at} to {start}");
                }
            }
        }
        let is_ended = rng.one_in(2);
        if is_ended {
            device.finish().unwrap();
            assert!(bytes_of(&memory) == model);
        }
        drop(device);
        revert(&*memory, || File::open(&path)).unwrap();
        assert!(bytes_of(&memory) == start, "round {round}");
    }
}

#[test]
fn taking_back_goes_on_whatever_arrived_of_its_writes() {
    let seed = seed_from_env("taking back, torn");
    let dir = tempfile::tempdir().unwrap();
    let start = made(dir.path());
    let path = dir.path().join("undo");
    let kept = || {
        let memory = Arc::new(MemoryDevice::from_image(&start));
        let file = File::create_new(&path).unwrap();
        let device = Arc::new(KeepingDevice::new(memory.clone(), file).unwrap());
        change(device.clone()).unwrap();
        device.finish().unwrap();
        (bytes_of(&memory), fs::read(&path).unwrap())
    };
    let planned = || {
        let memory = Arc::new(MemoryDevice::from_image(&start));
        let settings = repair::tune::Settings {
            uuid: Some(*b"another identity"),
            ..repair::tune::Settings::default()
        };
        let options = repair::Options::default();
        let plan = repair::tune::plan(memory.clone(), &settings, options, &()).unwrap();
        let mut undo = Vec::new();
        repair::write_undo(&plan.changes, &mut undo).unwrap();
        plan.apply().unwrap();
        (bytes_of(&memory), undo)
    };
    for (done, undo) in [kept(), planned()] {
        let device = CrashDevice::over(Content::from_bytes(&done));
        revert(&device, || Ok(&undo[..])).unwrap();
        let mut torn = 0;
        for image in device.log().images(Budget::limited(120, seed)) {
            torn += usize::from(image.tears(1024..2048));
            let device = image.open();
            revert(&*device, || Ok(&undo[..])).unwrap_or_else(|e| panic!("{image}: {e}"));
            let mut now = vec![0; start.len()];
            device.read_at(0, &mut now).unwrap();
            assert!(now == start, "{image}: not as it was");
        }
        assert!(torn > 1, "{torn} superblocks were torn");
    }
}

#[test]
fn an_undo_file_of_another_version_is_called_that() {
    let image = vec![7; 1 << 16];
    let device = MemoryDevice::from_image(&image);
    let why = |begins: &[u8]| {
        let file = [begins, &[0; 5000]].concat();
        let refused = revert(&device, || Ok(&file[..])).unwrap_err();
        refused.to_string()
    };
    for begins in [b"EXTUNDO2", b"EXTUNDO3", b"EXTUNDO8", b"EXTUNDO9"] {
        let why = why(begins);
        assert!(why.contains("another version of extant"), "{why}");
    }
    for begins in [
        b"EXTUNDO4",
        b"EXTUNDO5",
        b"EXTUNDO6",
        b"EXTUNDO7",
        b"EXTUNDOX",
        b"PK\x03\x04    ",
    ] {
        let why = why(begins);
        assert!(why.contains("no undo file"), "{why}");
    }
    // So short that no header is there.
    let refused = revert(&device, || Ok(&b"EXTUNDO2"[..])).unwrap_err();
    assert!(refused.to_string().contains("another version of extant"));
    assert!(bytes_of(&device) == image);
}
