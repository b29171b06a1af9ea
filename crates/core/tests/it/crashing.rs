//! Crashes and failing devices during changes of a file's data: recovery finds one of the states
//! that were, and none older than what was made durable.

use crate::support::{Image, pattern};
use extant_core::data::{self, WriteOptions};
use extant_core::fs::{Fs, MountOptions, Notice};
use extant_core::inode::Held;
use extant_format::Ino;
use extant_testkit::crash::{
    Budget, Content, ContentDevice, CrashDevice, FaultDevice, FaultRule, IoKind,
};
use extant_testkit::oracle::assert_clean;
use extant_testkit::rng::Rng;
use std::sync::Arc;

fn open(device: extant_blockdev::SharedDevice) -> Arc<Fs> {
    Fs::open(device, MountOptions::read_write().background(false)).unwrap()
}

fn read_all(fs: &Fs, held: &Held) -> Vec<u8> {
    let mut bytes = vec![0; held.live_size() as usize];
    let len = data::read_live(fs, held, 0, &mut bytes).unwrap();
    assert_eq!(len, bytes.len());
    bytes
}

/// One change of the file, which reaches the device whole or not at all: no overwriting. But a
/// truncation may clear the rest of a block early, as data is delayed: returns what.
fn change(
    fs: &Fs,
    held: &Held,
    rng: &mut Rng,
    model: &mut Vec<u8>,
    step: u64,
) -> std::ops::Range<usize> {
    let mut cleared = 0..0;
    match rng.below(5) {
        0 => {
            let bytes = pattern(step, 1 + rng.below(9000) as usize);
            data::append(fs, held, &bytes, WriteOptions::default()).unwrap();
            model.extend_from_slice(&bytes);
        }
        1 => {
            let at = model.len() + rng.below(20_000) as usize;
            let bytes = pattern(step, 1 + rng.below(9000) as usize);
            data::write_at(fs, held, at as u64, &bytes).unwrap();
            model.resize(at, 0);
            model.extend_from_slice(&bytes);
        }
        2 => {
            let size = model.len() + rng.below(9000) as usize;
            data::truncate(fs, held, size as u64).unwrap();
            model.resize(size, 0);
        }
        3 => {
            let size = rng.below(model.len() as u64 + 1) as usize;
            data::truncate(fs, held, size as u64).unwrap();
            cleared = size..size.next_multiple_of(1024).min(model.len());
            model.resize(size, 0);
        }
        _ => {
            data::truncate(fs, held, 0).unwrap();
            let bytes = pattern(step, 1 + rng.below(9000) as usize);
            model.clear();
            data::write_at(fs, held, 0, &bytes).unwrap();
            model.extend_from_slice(&bytes);
        }
    }
    cleared
}

/// Whether `found` is `state`, but for zeros in `cleared`.
fn is_state(found: &[u8], state: &[u8], cleared: &[std::ops::Range<usize>]) -> bool {
    let may_be_clear = |at: usize| cleared.iter().any(|range| range.contains(&at));
    let mut bytes = found.iter().zip(state).enumerate();
    found.len() == state.len()
        && bytes.all(|(at, (found, state))| found == state || (*found == 0 && may_be_clear(at)))
}

#[test]
fn a_crash_leaves_a_state_that_was_and_nothing_older_than_what_was_synced() {
    let (mut images, mut torn) = (0, 0);
    let half = Notice::SuperblockTorn;
    for seed in 0..4 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-g", "1024"];
        let image = Image::make(6, &options, |tree| {
            std::fs::write(tree.join("f"), pattern(seed, 10_000)).unwrap();
        });
        let ino: Ino = image.ino("/f");
        let base = Content::of_file(&image.path());
        let device = Arc::new(CrashDevice::over(base));
        let fs = open(device.clone());
        let held = fs.hold(ino).unwrap();
        let mut model = read_all(&fs, &held);
        // Mark n: the state n is durable.
        let mut states = vec![model.clone()];
        // What was cleared on the way to each.
        let mut cleared = vec![std::ops::Range::default()];
        device.mark(0);
        for step in 0..14 {
            let gone = change(&fs, &held, &mut rng, &mut model, step);
            // What happens between has an empty file in it.
            states.push(Vec::new());
            states.push(model.clone());
            cleared.extend([gone.clone(), gone]);
            if rng.one_in(3) {
                fs.sync().unwrap();
                device.mark(states.len() as u64 - 1);
            }
        }
        drop(held);
        for crash in device.log().images(Budget::limited(150, seed)) {
            let durable = crash.marks().last().unwrap_or(0) as usize;
            let options = MountOptions::read_write().background(false);
            let fs = Fs::open(crash.open(), options).unwrap_or_else(|e| panic!("{crash}: {e}"));
            torn += u32::from(fs.notices().contains(&half));
            let held = fs.hold(ino).unwrap();
            let found = read_all(&fs, &held);
            let cleared = &cleared[durable + 1..];
            let is_legal = |state: &Vec<u8>| is_state(&found, state, cleared);
            let legal = states[durable..].iter().any(is_legal);
            let at = states.iter().rposition(|state| *state == found);
            assert!(legal, "{crash}: state {at:?} when {durable} was durable");
            drop(held);
            fs.close().unwrap();
            images += 1;
            if images % 10 == 0 {
                let path = image.path().with_extension("crashed");
                crash.write_to(&path);
                let after = extant_blockdev::FileDevice::open(&path).unwrap();
                open(Arc::new(after)).close().unwrap();
                assert_clean(&path);
            }
        }
    }
    println!("{images} images, {torn} with half a superblock");
}

/// Changes the file in every way; returns what it holds if all went well.
fn change_all(fs: &Fs, held: &Held) -> extant_core::Result<Vec<u8>> {
    let mut model = vec![0; held.live_size() as usize];
    data::read_live(fs, held, 0, &mut model)?;
    let bytes = pattern(1, 30_000);
    let (_, len) = data::append(fs, held, &bytes, WriteOptions::default())?;
    model.extend_from_slice(&bytes[..len]);
    data::truncate(fs, held, 20_001)?;
    model.truncate(20_001);
    for at in [60_000, 100_000, 140_000, 180_000, 220_000, 90_000] {
        let len = data::write_at(fs, held, at, &bytes[..9000])?;
        model.resize(model.len().max(at as usize + len), 0);
        model[at as usize..at as usize + len].copy_from_slice(&bytes[..len]);
    }
    data::write_at(fs, held, 5, b"in place")?;
    model[5..13].copy_from_slice(b"in place");
    fs.sync()?;
    data::truncate(fs, held, 30_000)?;
    model.truncate(30_000);
    fs.sync()?;
    Ok(model)
}

#[test]
fn whatever_transfer_fails_the_caller_is_told_and_the_image_recovers() {
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let image = Image::make(6, &options, |tree| {
        std::fs::write(tree.join("f"), pattern(7, 10_000)).unwrap();
    });
    let ino = image.ino("/f");
    let base = Content::of_file(&image.path());
    let path = image.path().with_extension("after");
    for kind in [IoKind::Write, IoKind::Read, IoKind::Flush] {
        let mut failed = 0;
        for n in 0.. {
            let content = Arc::new(ContentDevice::new(base.clone()));
            let device = Arc::new(FaultDevice::new(content.clone()));
            let fs = open(device.clone());
            let held = fs.hold(ino).unwrap();
            device.reset_counts();
            device.inject(FaultRule::fail_nth(kind, n));
            let outcome = change_all(&fs, &held);
            let hit = device.counts().faults > 0;
            device.heal();
            if let Ok(model) = &outcome {
                assert!(read_all(&fs, &held) == *model, "{kind:?} {n}");
            }
            drop(held);
            let closed = fs.close();
            drop(fs);
            failed += u32::from(outcome.is_err());
            if outcome.is_ok() && hit {
                // A short count is what the caller was told, or nothing needed the transfer.
                closed.unwrap();
            }
            content.content().write_to(&path).unwrap();
            let after = Arc::new(extant_blockdev::FileDevice::open(&path).unwrap());
            let fs = open(after);
            let held = fs.hold(ino).unwrap();
            let found = read_all(&fs, &held);
            if let Ok(model) = &outcome {
                assert!(found == *model, "{kind:?} {n}");
            }
            drop(held);
            fs.close().unwrap();
            drop(fs);
            assert_clean(&path);
            if !hit {
                println!("{kind:?}: {n} transfers, {failed} failures reported");
                break;
            }
        }
    }
}
