//! What a search looks at, and what it settles for.

use super::*;
use extant_testkit::crash::FaultDevice;

#[test]
fn a_search_reads_bitmaps_that_lie_side_by_side_at_once() {
    // Without checksums of groups every bitmap is on the device.
    let plain = "^metadata_csum,^uninit_bg";
    let options = ["-t", "ext4", "-b", "1024", "-g", "2048", "-O", plain];
    let bench = Bench::new(64 * MIB, &options);
    let image = bench.image.clone();
    drop(bench.fs);
    let device = OpenSpec::read_write(&image).open().unwrap();
    let device = Arc::new(FaultDevice::new(device));
    let options = MountOptions::read_write().background(false);
    let fs = Fs::open(device.clone(), options).unwrap();
    fs.statfs().unwrap();
    device.reset_counts();
    // More than two groups have room for.
    let mut taken = Vec::new();
    for group in 0..16 {
        let request = Request {
            goal: Pblk::new(group * 2048 + 1),
            len: 500,
            min: 1,
            below_32_bits: false,
            privileged: false,
        };
        taken.push(fs.alloc().unwrap().take_blocks(&request).unwrap());
    }
    let groups = fs.geometry().groups();
    let loaded = groups.filter(|group| fs.alloc().unwrap().live_group(*group).is_some());
    let (loaded, reads) = (loaded.count() as u64, device.counts().reads);
    assert!(loaded >= 12, "{loaded}");
    assert!(reads <= loaded / 2, "{reads} reads for {loaded} groups");
    drop(taken);
}

#[test]
fn a_request_that_is_cut_gets_no_less_than_it_needs() {
    let bench = Bench::new(16 * MIB, &["-t", "ext4", "-b", "1024", "-m", "0"]);
    // Nothing is held back from such.
    let take = |len, min| {
        bench.alloc().take_blocks(&Request {
            goal: Pblk::new(1),
            len,
            min,
            below_32_bits: false,
            privileged: true,
        })
    };
    let mut all = Vec::new();
    while let Ok(taken) = take(8000, 1) {
        all.push(taken);
    }
    // Two runs are free, of 24 and 48 blocks.
    let at = all.iter().position(|taken| taken.len() > 1000).unwrap();
    let mut whole = all.swap_remove(at);
    let mut kept = vec![whole.split_front(101)];
    drop(whole.split_front(24));
    kept.push(whole.split_front(333));
    drop(whole.split_front(48));
    for (len, min, expected) in [
        (64, 49, None),
        (64, 40, Some(48)),
        (64, 25, None),
        (64, 24, Some(24)),
    ] {
        let got = take(len, min).ok();
        assert_eq!(
            got.as_ref().map(Taken::len),
            expected,
            "{len} or at least {min}"
        );
        kept.extend(got);
    }
    assert!(matches!(take(1, 1), Err(Error::NoSpace)));
}
